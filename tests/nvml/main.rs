//! The real backend on the simulated NVML, and the contract of all backends.

mod contract;
mod events;
mod faults;
mod fixture;
mod groups;
