//! What a device is.

use crate::session::{Opened, spoils_all};
use gpu_core::{Absent, DeviceId, DeviceInfo, Error, MachineFault, Reading, Result};

impl Opened<'_> {
    /// Returns every device, by index; one that does not answer tells where it sits if NVML still
    /// knows that, and nothing else.
    ///
    /// # Errors
    /// `Machine` when there is none, or the driver stops to answer.
    pub(crate) fn devices(self) -> Result<Vec<DeviceInfo>> {
        (0..self.count()?).map(|index| self.device_info(index)).collect()
    }

    /// Returns how many devices there are.
    ///
    /// # Errors
    /// `Machine` when there is none.
    pub(crate) fn count(self) -> Result<u32> {
        match self.indices().end {
            0 => Err(Error::new(MachineFault::NoDevices, "find a GPU")),
            count => Ok(count),
        }
    }

    /// Returns the device at an index.
    ///
    /// # Errors
    /// `Machine` when the driver stops to answer.
    pub(crate) fn device_info(self, index: u32) -> Result<DeviceInfo> {
        match self.answering(index) {
            Err(error) if !spoils_all(&error) => Ok(self.silent(index, error.kind().absent())),
            answer => answer,
        }
    }

    fn answering(self, index: u32) -> Result<DeviceInfo> {
        let device = self.device(index)?;
        let bus = self.bus(device)?;
        let minor = self.minor(device)?;
        let uuid = self.uuid(device)?;
        let name = self.name(device)?;
        let persistence =
            device.value("nvmlDeviceGetPersistenceMode", "for its persistence mode", |device| {
                device.is_in_persistent_mode()
            })?;
        let display_active = device.value(
            "nvmlDeviceGetDisplayActive",
            "whether a display is active",
            |device| device.is_display_active(),
        )?;
        let mig = self.mig_mode(device)?;
        Ok(DeviceInfo {
            id: DeviceId { uuid, index, minor, bus },
            name,
            persistence,
            display_active,
            mig_enabled: mig.map(|(now, _)| now),
        })
    }

    fn silent(self, index: u32, reason: Absent) -> DeviceInfo {
        let device = self.device(index);
        let still = |reported: Option<Result<Reading<_>>>| {
            reported.and_then(Result::ok).unwrap_or(Err(reason))
        };
        let bus = still(device.as_ref().ok().map(|device| self.bus(*device)));
        let minor = device.map_or(Err(reason), |device| self.minor(device).unwrap_or(Err(reason)));
        DeviceInfo {
            id: DeviceId { uuid: Err(reason), index, minor, bus },
            name: Err(reason),
            persistence: Err(reason),
            display_active: Err(reason),
            mig_enabled: Err(reason),
        }
    }
}
