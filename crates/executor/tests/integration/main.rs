//! The public API.

mod documented;
mod order;
mod pool;
mod program;
mod strict;
