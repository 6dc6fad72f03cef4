//! The public API.

mod pool;
