//! PyTorch's caching allocator, tested through its public API.

mod adopting;
mod device;
mod expandable;
mod faults;
mod garbage;
mod invariants;
mod larger_regions;
mod naive;
mod oversize;
mod pools;
mod rules;
mod settings;
mod statistics;
mod streams;
