//! The public API.

mod order;
mod pool;
mod strict;
