//! The port to what a vendor's kernel driver leaves on a machine.

use crate::absent::Reading;
use crate::clock::Timestamp;
use crate::device::DeviceInfo;
use crate::driver_error::DriverError;
use crate::driver_message::DriverMessage;
use crate::file::{DeviceFile, FileRole};
use crate::holder::HeldFile;
use crate::id::{DeviceId, DeviceKey, FileId, PciBusId};
use std::fmt;

/// What the traces of one vendor's kernel driver mean: its device files, its list of devices, and
/// its messages in the kernel log.
pub trait KernelDriver: Send + Sync {
    /// Returns its name in sysfs, where `/sys/bus/pci/drivers/NAME` has the devices that it drives.
    fn name(&self) -> &'static str;

    /// Returns the path below `/proc` of the directory in which the driver describes its devices,
    /// each in a directory named by the PCI address; `None` if only sysfs lists them.
    fn device_list(&self) -> Option<&'static str> {
        None
    }

    /// Returns the device at an address of that list, from the text of the file `information`
    /// there, which is empty if there is none. The caller sets the index.
    ///
    /// The file is not read to find out whether a device sleeps: the driver may resume the device
    /// to describe it.
    fn listed_device(&self, bus: PciBusId, _information: &str) -> DeviceInfo {
        DeviceInfo::unknown(DeviceId { bus: Ok(bus), ..DeviceId::from_index(0) })
    }

    /// Returns the directories below `/dev` that have files of the driver, apart from `dri`.
    fn directories(&self) -> &'static [&'static str] {
        &[]
    }

    /// Returns the names of the files that programs open in addition to that of a device, in the
    /// same directory.
    fn shared(&self) -> &'static [&'static str] {
        &[]
    }

    /// Returns the role of a file and the device it belongs to; `None` if it is not a file of this
    /// driver. A file known only from text has no identity.
    fn describe(&self, path: &str, id: Reading<FileId>) -> Option<(FileRole, Option<DeviceKey>)>;

    /// Returns the beginnings of its records in the kernel log. Elsewhere, a kernel record can contain
    /// text that users choose, such as names of cgroups.
    fn log_prefixes(&self) -> &'static [&'static str] {
        &[]
    }

    /// Returns the error message in a record of the kernel log that begins with one of the prefixes,
    /// with its explanation.
    fn log_message(&self, _text: &str, _at: Timestamp) -> Option<DriverMessage> {
        None
    }

    /// Returns the error that a message of this driver is about, by its code and text; `None` if the
    /// code is of no list of this driver.
    fn explain(&self, _message: &DriverMessage) -> Option<DriverError> {
        None
    }

    /// Sets [`HeldFile::memory`] of each file of this driver, from all files of one process and, for
    /// drivers that report memory there, the beginning of `/proc/PID/fdinfo` of a descriptor.
    fn find_memory_use(&self, held: &mut [HeldFile], fdinfo: &dyn Fn(u32) -> Option<String>);
}

impl fmt::Debug for dyn KernelDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl DeviceFile {
    /// Returns the file in the role that it has for this driver, if it is one of its files.
    #[must_use]
    pub fn described_by(self, driver: &dyn KernelDriver) -> Self {
        match driver.describe(&self.path, self.id) {
            Some((role, device)) => DeviceFile { role, device, ..self },
            None => self,
        }
    }
}
