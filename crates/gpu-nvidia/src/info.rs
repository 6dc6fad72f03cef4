//! Device identification.

use crate::session::{Opened, affects_all};
use gpu_core::visible::cuda::CUDA;
use gpu_core::{Absent, DeviceId, DeviceInfo, Error, MachineFault, PidNamespace, Reading, Result};

impl Opened<'_> {
    /// Returns all devices, by index. An unresponsive device has only its location, if NVML still
    /// reports it.
    ///
    /// # Errors
    /// `Machine` if there is no device or the driver stops responding.
    pub(crate) fn devices(self) -> Result<Vec<DeviceInfo>> {
        (0..self.count()?).map(|index| self.device_info(index)).collect()
    }

    /// Returns the number of devices.
    ///
    /// # Errors
    /// `Machine` if there is no device.
    pub(crate) fn count(self) -> Result<u32> {
        match self.indices().end {
            0 => Err(Error::new(MachineFault::NoDevices, "find a GPU")),
            count => Ok(count),
        }
    }

    /// Returns the device at an index.
    ///
    /// # Errors
    /// `Machine` if the driver stops responding.
    pub(crate) fn device_info(self, index: u32) -> Result<DeviceInfo> {
        match self.complete_info(index) {
            Err(error) if !affects_all(&error) => {
                Ok(self.partial_info(index, error.kind().absent()))
            }
            answer => answer,
        }
    }

    fn complete_info(self, index: u32) -> Result<DeviceInfo> {
        let device = self.device(index)?;
        let bus = self.bus(device)?;
        let node = self.node(device)?;
        let uuid = self.uuid(device)?;
        let name = self.name(device)?;
        let persistence =
            device.value("nvmlDeviceGetPersistenceMode", "for its persistence mode", |device| {
                device.is_in_persistent_mode()
            })?;
        let display_active =
            device.value("nvmlDeviceGetDisplayActive", "for its active display", |device| {
                device.is_display_active()
            })?;
        let mig = self.mig_mode(device)?;
        Ok(DeviceInfo {
            id: DeviceId { uuid, index, node, bus },
            name,
            persistence,
            display_active,
            partitioned: mig.map(|(now, _)| now),
            pid_namespace: PidNamespace::Initial,
            visibility: CUDA,
        })
    }

    fn partial_info(self, index: u32, reason: Absent) -> DeviceInfo {
        let device = self.device(index);
        let still = |reported: Option<Result<Reading<_>>>| {
            reported.and_then(Result::ok).unwrap_or(Err(reason))
        };
        let bus = still(device.as_ref().ok().map(|device| self.bus(*device)));
        let node = device.map_or(Err(reason), |device| self.node(device).unwrap_or(Err(reason)));
        DeviceInfo {
            id: DeviceId { uuid: Err(reason), index, node, bus },
            name: Err(reason),
            persistence: Err(reason),
            display_active: Err(reason),
            partitioned: Err(reason),
            pid_namespace: PidNamespace::Initial,
            visibility: CUDA,
        }
    }
}
