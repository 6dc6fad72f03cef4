//! The plain policies, a device in parts, and a policy for several threads.

mod direct;
mod logical;
mod properties;
mod shared;
mod stream_ordered;
