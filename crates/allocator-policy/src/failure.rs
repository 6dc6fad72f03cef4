//! Why memory could not be handed out or taken back.

use gpu_core::{Bytes, DeviceFault, Error, ErrorKind};

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
    #[error("free the allocation at {address:#x}: it belongs to another policy")]
    Foreign {
        /// Where the allocation begins.
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

/// Makes a device's lack of memory an answer.
pub(crate) fn unless_refused<T>(given: Result<T, Error>) -> Result<Option<T>, Error> {
    match given {
        Ok(given) => Ok(Some(given)),
        Err(error) if error.kind() == DeviceFault::OutOfMemory.into() => Ok(None),
        Err(error) => Err(error),
    }
}

/// What there was when memory did not suffice, all in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Shortage {
    /// What the program asked for.
    #[cfg_attr(feature = "serde", serde(rename = "asked_bytes"))]
    pub asked: Bytes,
    /// What the policy asked of the device for it, the smallest of its tries.
    #[cfg_attr(feature = "serde", serde(rename = "segment_bytes"))]
    pub segment: Bytes,
    /// The limit of the policy, where it has one.
    #[cfg_attr(feature = "serde", serde(rename = "limit_bytes"))]
    pub limit: Option<Bytes>,
    /// What the device said that it has left, where it could say.
    #[cfg_attr(feature = "serde", serde(rename = "device_free_bytes"))]
    pub device_free: Option<Bytes>,
    /// What the policy holds of the device.
    #[cfg_attr(feature = "serde", serde(rename = "reserved_bytes"))]
    pub reserved: Bytes,
    /// What of that is handed out.
    #[cfg_attr(feature = "serde", serde(rename = "in_use_bytes"))]
    pub in_use: Bytes,
    /// The largest piece that is held and not handed out.
    #[cfg_attr(feature = "serde", serde(rename = "largest_free_bytes"))]
    pub largest_free: Bytes,
}

impl Shortage {
    /// Returns what the policy holds and has not handed out.
    pub fn cached(&self) -> Bytes {
        self.reserved.saturating_sub(self.in_use)
    }

    /// Returns what is cached, and what the policy may still take of the device as far as that is
    /// told.
    pub fn free(&self) -> Bytes {
        let within = self.limit.map(|limit| limit.saturating_sub(self.reserved));
        let left = within.into_iter().chain(self.device_free).min().unwrap_or_default();
        self.cached() + left
    }

    /// Tells whether enough was free, but not in one piece.
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
        let untold = Shortage { limit: None, device_free: None, ..short };
        assert_eq!(untold.free(), mib(34));
    }
}
