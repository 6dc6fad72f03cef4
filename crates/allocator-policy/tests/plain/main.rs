//! The plain policies, a device in parts, and a policy for several threads.

mod direct;
#[path = "../bfc/fixture.rs"]
mod fixture;
mod logical;
mod properties;
mod shared;
mod stream_ordered;
