//! How weights are quantized: the size of matrices, and the schemes that users select by name.

mod mixture;
mod packing;
mod role;
mod scheme;
mod usable;

pub(crate) use packing::columns;
pub use packing::{Group, Packing};
pub(crate) use role::Role;
pub use scheme::{Scheme, Use};
pub use usable::{Unusable, cache_option, check, engine, kernels, loads, runnable};
