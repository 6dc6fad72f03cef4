//! What the crate promises to its users.

mod costs;
mod limits;
mod placer;
