//! The exported functions, by subject.

mod accounting;
mod activity;
mod events;
pub(crate) mod fields;
mod identity;
mod initialisation;
mod marker;
mod memory;
mod memory_health;
mod mig;
mod modes;
mod nvlink;
mod pcie;
mod power;
mod processes;
mod system;
mod topology;
mod unsupported;
mod virtualization;
