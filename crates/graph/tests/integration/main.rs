//! What the crate promises to its users.

mod limits;
mod placer;
