//! The guarantees of the crate to its users.

mod costs;
mod limits;
mod placer;
