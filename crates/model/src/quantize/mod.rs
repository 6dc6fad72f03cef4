//! How weights are quantized: what a matrix takes, and the schemes that people ask for by name.

mod mixture;
mod packing;
mod role;
mod scheme;

pub(crate) use packing::columns;
pub use packing::{Group, Packing};
pub(crate) use role::Role;
pub use scheme::{Scheme, Use};
