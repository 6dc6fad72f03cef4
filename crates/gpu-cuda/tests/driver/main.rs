//! Contexts, memory and pools on a driver that stands in for NVIDIA's, on one that is too old for
//! most of it, and without a driver.

mod contexts;
mod failures;
mod pool;
mod presence;
mod stand_in;
