//! The public API.

mod order;
mod pool;
mod program;
mod strict;
