//! Contexts, memory and pools, on a stand-in for NVIDIA's driver, on one that lacks most functions
//! because it is too old, and without a driver.

mod contexts;
mod failures;
mod kernels;
mod pool;
mod presence;
mod stand_in;
mod streams;
