//! The kubelet's sockets, with correct and malformed answers, and pod names.

mod names;
mod sockets;
mod stand_in;
