//! The plain policies, a divided device, and a policy for several threads.

mod choice;
mod direct;
mod logical;
mod properties;
mod shared;
mod stream_ordered;
