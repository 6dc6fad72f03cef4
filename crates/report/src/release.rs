//! The differences between releases of nvidia-smi.

use gpu_core::{Bytes, Driver, Fault};

/// The release of nvidia-smi that the output follows: the driver's, because both are installed
/// together. If the driver's version is unknown, it is 535.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    /// Branch and release, such as 550 and 90 for 550.90.12.
    version: (u32, u32),
}

impl Release {
    /// The first release that is known to round memory up: 550.90.12 does, 550.54.14 does not.
    const ROUNDS_UP: (u32, u32) = (550, 90);

    /// The first release that is known to write `display_mode` as deprecated; 560 does not.
    const DEPRECATES_DISPLAY_MODE: (u32, u32) = (575, 51);

    /// The first branch that is known to write a fabric without labels; 535 writes them.
    const WITHOUT_LABELS: (u32, u32) = (580, 0);

    /// Returns the release that comes with a driver.
    pub fn of(driver: &Result<Driver, Fault>) -> Self {
        let version = driver.as_ref().ok().and_then(|driver| driver.version.as_deref().ok());
        Release { version: version.and_then(parse).unwrap_or((535, 0)) }
    }

    /// Returns whole mebibytes: rounded down, or up since 550.90.
    pub(crate) fn mib(self, bytes: Bytes) -> u64 {
        if self.version >= Self::ROUNDS_UP { bytes.0.div_ceil(1 << 20) } else { bytes.mib() }
    }

    /// Returns whether state and status of the fabric have a label.
    pub(crate) fn labels_fabric(self) -> bool {
        self.version < Self::WITHOUT_LABELS
    }

    /// Returns whether `display_mode` is deprecated: `display_attached` replaces it.
    pub(crate) fn deprecates_display_mode(self) -> bool {
        self.version >= Self::DEPRECATES_DISPLAY_MODE
    }
}

fn parse(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split('.').map(|part| part.parse().ok());
    Some((parts.next()??, parts.next().flatten().unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_core::Absent;

    fn release(version: &str) -> Release {
        Release::of(&Ok(Driver { version: Ok(version.to_owned()), cuda: Err(Absent::NotRecorded) }))
    }

    /// Total, reserved, used and free memory in MiB that nvidia-smi printed, and their sums:
    /// rounded up, the parts are never less than the total; rounded down, never more.
    #[test]
    fn memory_is_rounded_as_the_parts_of_real_totals_show() {
        for (version, [total, reserved, used, free], rounds_up) in [
            ("545.29.06", [8_192, 78, 8_002, 111], false),
            ("550.54.14", [8_192, 85, 984, 7_122], false),
            ("550.90.12", [23_028, 526, 1, 22_503], true),
            ("575.51.02", [8_188, 390, 2_026, 5_773], true),
            ("580.159.04", [143_771, 616, 0, 143_156], true),
        ] {
            assert_eq!(reserved + used + free > total, rounds_up, "{version}");
            let more_than_615_mib = Bytes(644_939_776);
            let mib = release(version).mib(more_than_615_mib);
            assert_eq!(mib, if rounds_up { 616 } else { 615 }, "{version}");
        }
        assert_eq!(release("580.159.04").mib(Bytes::from_mib(143_771)), 143_771);
    }

    #[test]
    fn unknown_versions_count_as_535() {
        let unknown = Release::of(&Ok(Driver {
            version: Err(Absent::NotRecorded),
            cuda: Err(Absent::NotRecorded),
        }));
        for other in ["", "x", "535", "535.261.03"] {
            assert_eq!(release(other).mib(Bytes(1)), unknown.mib(Bytes(1)), "{other}");
        }
    }
}
