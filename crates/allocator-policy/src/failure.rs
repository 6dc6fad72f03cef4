//! Why memory could not be handed out or taken back.

use gpu_core::{Bytes, Error};
use serde::Serialize;

/// Why a policy could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Neither what the policy holds nor what it may still take suffices.
    #[error("allocate {} bytes: out of memory", .0.asked.0)]
    OutOfMemory(Box<Shortage>),
    /// The device refused for another reason than a lack of memory.
    #[error(transparent)]
    Device(#[from] Error),
    /// The allocation is not one that this policy handed out and still counts as taken.
    #[error("free the allocation at {address:#x}: it is not of this policy")]
    Foreign {
        /// Where the allocation begins.
        address: u64,
    },
}

/// What there was when memory did not suffice, all in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Shortage {
    /// What the program asked for.
    #[serde(rename = "asked_bytes")]
    pub asked: Bytes,
    /// What the policy asked of the device for it, the smallest of its tries.
    #[serde(rename = "segment_bytes")]
    pub segment: Bytes,
    /// The limit of the policy, where it has one.
    #[serde(rename = "limit_bytes")]
    pub limit: Option<Bytes>,
    /// What the device said that it has left, where it could say.
    #[serde(rename = "device_free_bytes")]
    pub device_free: Option<Bytes>,
    /// What the policy holds of the device.
    #[serde(rename = "reserved_bytes")]
    pub reserved: Bytes,
    /// What of that is handed out.
    #[serde(rename = "in_use_bytes")]
    pub in_use: Bytes,
    /// The largest piece that is held and not handed out.
    #[serde(rename = "largest_free_bytes")]
    pub largest_free: Bytes,
}

impl Shortage {
    /// Returns what the policy holds and has not handed out.
    pub fn cached(&self) -> Bytes {
        self.reserved.saturating_sub(self.in_use)
    }
}
