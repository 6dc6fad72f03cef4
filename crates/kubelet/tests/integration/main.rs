//! The kubelet, honest and not, and the names of pods.

mod names;
mod sockets;
mod stand_in;
