//! Addresses without memory behind them.

use gpu_core::Bytes;
use std::collections::BTreeSet;

/// An address range, and its pages that have memory.
#[derive(Clone, Debug)]
pub(crate) struct AddressRange {
    pub(crate) size: Bytes,
    pub(crate) mapped: BTreeSet<u64>,
}
