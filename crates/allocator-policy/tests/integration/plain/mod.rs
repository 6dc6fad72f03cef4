//! The plain policies, a divided device, and a policy for several threads.

mod config;
mod direct;
mod logical;
mod properties;
mod shared;
mod stream_ordered;
