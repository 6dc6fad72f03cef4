//! Why memory could not be allocated or freed.

use gpu_core::{Bytes, DeviceFault, Error, ErrorKind};

/// Why a policy call failed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The held memory and the memory that the policy may still take do not suffice.
    #[error("allocate {} bytes: out of memory", .0.asked.0)]
    OutOfMemory(Box<Shortage>),
    /// The device failed for a reason other than a lack of memory.
    #[error(transparent)]
    Device(#[from] Error),
    /// The allocation does not belong to this policy, or is no longer in use.
    #[error("free the allocation at {address:#x}: it belongs to another policy")]
    Foreign {
        /// Its start address.
        address: u64,
    },
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Device(error) => error,
            other => Error::new(ErrorKind::Invalid, other.to_string()),
        }
    }
}

/// Turns an out-of-memory error of the device into `None`.
pub(crate) fn unless_refused<T>(given: Result<T, Error>) -> Result<Option<T>, Error> {
    match given {
        Ok(given) => Ok(Some(given)),
        Err(error) if error.kind() == DeviceFault::OutOfMemory.into() => Ok(None),
        Err(error) => Err(error),
    }
}

/// The state in which memory was insufficient, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Shortage {
    /// The requested size.
    #[cfg_attr(feature = "serde", serde(rename = "asked_bytes"))]
    pub asked: Bytes,
    /// The smallest size that the policy requested from the device.
    #[cfg_attr(feature = "serde", serde(rename = "segment_bytes"))]
    pub segment: Bytes,
    /// The limit of the policy, if it has one.
    #[cfg_attr(feature = "serde", serde(rename = "limit_bytes"))]
    pub limit: Option<Bytes>,
    /// The device's free memory, if it reports it.
    #[cfg_attr(feature = "serde", serde(rename = "device_free_bytes"))]
    pub device_free: Option<Bytes>,
    /// The device memory that the policy holds.
    #[cfg_attr(feature = "serde", serde(rename = "reserved_bytes"))]
    pub reserved: Bytes,
    /// The part of `reserved` that is in use.
    #[cfg_attr(feature = "serde", serde(rename = "in_use_bytes"))]
    pub in_use: Bytes,
    /// The largest free block.
    #[cfg_attr(feature = "serde", serde(rename = "largest_free_bytes"))]
    pub largest_free: Bytes,
}

impl Shortage {
    /// Returns the held memory that is not in use.
    pub fn cached(&self) -> Bytes {
        self.reserved.saturating_sub(self.in_use)
    }

    /// Returns the cached memory plus the memory that the policy may still take from the device, as
    /// far as this is known.
    pub fn free(&self) -> Bytes {
        let within = self.limit.map(|limit| limit.saturating_sub(self.reserved));
        let left = within.into_iter().chain(self.device_free).min().unwrap_or_default();
        self.cached() + left
    }

    /// Returns whether enough memory was free, but not contiguous.
    pub fn is_fragmented(&self) -> bool {
        self.free() >= self.asked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_includes_memory_still_reservable() {
        let mib = Bytes::from_mib;
        let short = Shortage {
            asked: mib(36),
            limit: Some(mib(150)),
            device_free: Some(mib(500)),
            reserved: mib(140),
            in_use: mib(106),
            ..Shortage::default()
        };
        assert_eq!((short.cached(), short.free(), short.is_fragmented()), (mib(34), mib(44), true));
        let less = Shortage { device_free: Some(mib(1)), ..short };
        assert_eq!((less.free(), less.is_fragmented()), (mib(35), false));
        let unreported = Shortage { limit: None, device_free: None, ..short };
        assert_eq!(unreported.free(), mib(34));
    }
}
