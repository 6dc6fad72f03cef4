//! The plain policies, a divided device, and a policy for several threads.

mod config;
mod direct;
mod properties;
mod stream_ordered;
