//! One initialisation of NVML, with a cache of constant values.

use crate::call::{Caller, Failure, reading, reading_by};
use crate::code::Code;
use crate::device::{Device, Handle};
use crate::raw::{EventSet, cuda_version_v1};
use crate::value::switch;
use gpu_core::{
    Absent, DeviceId, DeviceUuid, Driver, Error, ErrorKind, FileId, PciBusId, Reach, Reading,
    Result,
};
use nvml_wrapper::Nvml;
use nvml_wrapper::enum_wrappers::device::GpuVirtualizationMode;
use nvml_wrapper_sys::bindings::nvmlPciInfo_t;
use std::ffi::OsStr;
use std::sync::{Mutex, OnceLock};

/// The maximum number of devices, larger than on any machine.
const MAX_DEVICES: u32 = 4096;

/// The state from one initialisation to the next shutdown.
pub(crate) struct Session {
    version: OnceLock<Reading<String>>,
    entries: Vec<Entry>,
    pub(crate) events: Mutex<Option<EventSet>>,
    pub(crate) nvml: Nvml,
}

/// Constant values of a device. Only definite results are cached, so a lost device is queried again
/// every time.
#[derive(Default)]
struct Entry {
    handle: OnceLock<Handle>,
    uuid: OnceLock<Reading<String>>,
    name: OnceLock<Reading<String>>,
    node: OnceLock<Reading<FileId>>,
    pci: OnceLock<Reading<nvmlPciInfo_t>>,
    numa_node: OnceLock<Reading<u32>>,
    virtualization: OnceLock<Reading<GpuVirtualizationMode>>,
    capability: OnceLock<Reading<(u32, u32)>>,
    /// Why the device has no MIG mode.
    no_mig: OnceLock<Absent>,
}

impl Session {
    /// Initialises NVML from the library with this name, looking up all of its functions.
    ///
    /// # Errors
    /// `Machine` on failure; NVML is then not initialised.
    pub(crate) fn open(caller: &Caller, library: &OsStr) -> Result<Self> {
        // Either function may hang, because nvml-wrapper also queries the version.
        const INIT: &str = "nvmlInit_v2 or nvmlSystemGetDriverVersion";
        let init = || Nvml::builder().lib_path(library).init();
        let nvml = caller.call(INIT, "initialise", None, init);
        // nvml-wrapper ignores a missing version, so an error comes from the initialisation.
        let failed = |failure: Failure| failure.of_function("nvmlInit_v2").error(Code::of_machine);
        let nvml = nvml.map_err(failed)?;
        let count = caller
            .call("nvmlDeviceGetCount_v2", "for the number of GPUs", None, || nvml.device_count());
        let count = match count {
            Ok(count) => count.min(MAX_DEVICES),
            Err(failure) => {
                shut_down(caller, nvml);
                return Err(failure.error(Code::of_machine));
            }
        };
        Ok(Session {
            version: OnceLock::new(),
            entries: (0..count).map(|_| Entry::default()).collect(),
            events: Mutex::default(),
            nvml,
        })
    }

    /// Shuts NVML down: closes its device files and invalidates its handles.
    pub(crate) fn close(self, caller: &Caller) {
        let events = self.events.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(events) = events {
            events.free(caller, &self.nvml);
        }
        shut_down(caller, self.nvml);
    }
}

fn shut_down(caller: &Caller, nvml: Nvml) {
    // A failure is ignored: the next query reports the problem. nvml-wrapper's `shutdown` would
    // shut down a second time after a failure.
    let _ = caller.call("nvmlShutdown", "shut down", None, || {
        drop(nvml);
        Ok(())
    });
}

/// NVML while it is initialised.
#[derive(Clone, Copy)]
pub(crate) struct Opened<'a> {
    pub(crate) caller: &'a Caller,
    pub(crate) session: &'a Session,
    /// Whether the library is simulated, with its own clock.
    pub(crate) simulated: bool,
}

impl<'a> Opened<'a> {
    /// Returns the indices of the devices.
    pub(crate) fn indices(self) -> std::ops::Range<u32> {
        0..self.session.entries.len() as u32
    }

    /// Returns the driver and CUDA versions.
    ///
    /// # Errors
    /// `Machine` if the driver does not respond.
    pub(crate) fn driver(self) -> Result<Driver> {
        let (caller, nvml) = (self.caller, &self.session.nvml);
        let purpose = "for the CUDA version";
        let cuda = caller.call("nvmlSystemGetCudaDriverVersion_v2", purpose, None, || {
            nvml.sys_cuda_driver_version()
        });
        let cuda = cuda.or_else(|newer| {
            if newer.is_too_old() { cuda_version_v1(caller, nvml) } else { Err(newer) }
        });
        let cuda = reading_by(cuda, Code::of_driver)?.and_then(cuda_version);
        Ok(Driver { version: self.driver_version()?, cuda })
    }

    /// Returns the driver version.
    ///
    /// # Errors
    /// `Machine` if the driver does not respond.
    pub(crate) fn driver_version(self) -> Result<Reading<String>> {
        once(&self.session.version, || {
            let purpose = "for the driver version";
            let answer = self.caller.call("nvmlSystemGetDriverVersion", purpose, None, || {
                self.session.nvml.sys_driver_version()
            });
            Ok(reading_by(answer, Code::of_driver)?.and_then(reported))
        })
    }

    /// Returns the device at an index.
    ///
    /// # Errors
    /// The reason why NVML returns no handle.
    pub(crate) fn device(self, index: u32) -> Result<Device<'a>> {
        let (caller, nvml) = (self.caller, &self.session.nvml);
        let entry = self.entry(index)?;
        if let Some(handle) = entry.handle.get() {
            return Ok(Device { caller, nvml, handle: *handle, index });
        }
        let answer = caller.call(
            "nvmlDeviceGetHandleByIndex_v2",
            "for a handle",
            Some(index),
            // SAFETY: the handle is used while NVML is initialised, and is not freed.
            || nvml.device_by_index(index).map(|device| Handle(unsafe { device.handle() })),
        );
        let handle = answer.map_err(|failure| failure.error(Code::of_handle))?;
        let handle = *entry.handle.get_or_init(|| handle);
        Ok(Device { caller, nvml, handle, index })
    }

    fn entry(self, index: u32) -> Result<&'a Entry> {
        let entries = &self.session.entries;
        entries.get(index as usize).ok_or_else(|| no_such(&DeviceId::from_index(index)))
    }

    /// Returns the device with this ID.
    ///
    /// # Errors
    /// `Invalid` if this machine has no such device; otherwise the reason why NVML returns no
    /// handle.
    pub(crate) fn named(self, id: &DeviceId) -> Result<Device<'a>> {
        let others = self.indices().filter(|index| *index != id.index);
        let first = self.indices().contains(&id.index).then_some(id.index);
        for index in first.into_iter().chain(others) {
            let mut known = DeviceId::from_index(index);
            if let (Ok(_), Ok(device)) = (&id.uuid, self.device(index)) {
                known.uuid = self.uuid(device).unwrap_or(Err(Absent::Failed));
            }
            if let (Err(_), Ok(_), Ok(device)) = (&known.uuid, id.bus, self.device(index)) {
                known.bus = self.bus(device).unwrap_or(Err(Absent::Failed));
            }
            if known.same_device(id) {
                return self.device(index);
            }
        }
        Err(no_such(id))
    }

    /// Returns a device's UUID.
    ///
    /// # Errors
    /// `Device` or `Machine`, as for all values below.
    pub(crate) fn uuid(self, device: Device<'_>) -> Result<Reading<DeviceUuid>> {
        let uuid = once(&self.entry(device.index)?.uuid, || {
            let uuid = device.query("nvmlDeviceGetUUID", "for its UUID", |device| device.uuid());
            Ok(reading(uuid)?.and_then(reported))
        })?;
        Ok(uuid.map(DeviceUuid))
    }

    /// Returns a device's product name.
    pub(crate) fn name(self, device: Device<'_>) -> Result<Reading<String>> {
        once(&self.entry(device.index)?.name, || {
            let name = device.query("nvmlDeviceGetName", "for its name", |device| device.name());
            Ok(reading(name)?.and_then(reported))
        })
    }

    /// Returns the file of a device, by its minor number.
    pub(crate) fn node(self, device: Device<'_>) -> Result<Reading<FileId>> {
        once(&self.entry(device.index)?.node, || {
            let minor =
                device.value("nvmlDeviceGetMinorNumber", "for its minor number", |device| {
                    device.minor_number()
                })?;
            Ok(minor.map(gpu_nvidia_driver::node))
        })
    }

    /// Returns a device's PCI address and PCI IDs.
    pub(crate) fn pci(self, device: Device<'_>) -> Result<Reading<nvmlPciInfo_t>> {
        once(&self.entry(device.index)?.pci, || {
            let older = [Device::pci_v2, Device::pci_v1];
            let answer = older.iter().fold(device.pci_v3(), |answer, older| match answer {
                Err(failure) if failure.is_too_old() => older(&device),
                answer => answer,
            });
            reading(answer)
        })
    }

    /// Returns a device's PCI address.
    pub(crate) fn bus(self, device: Device<'_>) -> Result<Reading<PciBusId>> {
        Ok(self.pci(device)?.and_then(|pci| bus_id(&pci)))
    }

    /// Returns the NUMA node that a device's memory forms; most devices have none.
    pub(crate) fn numa_node(self, device: Device<'_>) -> Result<Reading<u32>> {
        once(&self.entry(device.index)?.numa_node, || {
            device.value("nvmlDeviceGetNumaNodeId", "for its NUMA node", |device| {
                device.numa_node_id()
            })
        })
    }

    /// Returns the virtualization mode of a device; `NotFound` for a mode that this program does
    /// not know.
    pub(crate) fn virtualization(
        self,
        device: Device<'_>,
    ) -> Result<Reading<GpuVirtualizationMode>> {
        const FUNCTION: &str = "nvmlDeviceGetVirtualizationMode";
        once(&self.entry(device.index)?.virtualization, || {
            let mode = device.query(FUNCTION, "for its virtualization mode", |device| {
                device.virtualization_mode()
            });
            match mode {
                Err(failure) if failure.is_unknown_value() => Ok(Err(Absent::NotFound)),
                answer => reading(answer),
            }
        })
    }

    /// Returns a device's compute capability, major and minor.
    pub(crate) fn capability(self, device: Device<'_>) -> Result<Reading<(u32, u32)>> {
        const FUNCTION: &str = "nvmlDeviceGetCudaComputeCapability";
        once(&self.entry(device.index)?.capability, || {
            let capability = device.value(FUNCTION, "for its compute capability", |device| {
                device.cuda_compute_capability()
            })?;
            let number = |part| u32::try_from(part).map_err(|_| Absent::Implausible);
            Ok(capability.and_then(|both| Ok((number(both.major)?, number(both.minor)?))))
        })
    }

    /// Returns whether MIG is on, now and after the next reset.
    pub(crate) fn mig_mode(self, device: Device<'_>) -> Result<Reading<(bool, Reading<bool>)>> {
        let entry = self.entry(device.index)?;
        if let Some(reason) = entry.no_mig.get() {
            return Ok(Err(*reason));
        }
        let mode = device.value("nvmlDeviceGetMigMode", "for its MIG mode", |d| d.mig_mode())?;
        if let Err(reason @ (Absent::NotSupported | Absent::TooOld)) = mode {
            // Another thread may have stored the same reason.
            let _ = entry.no_mig.set(reason);
        }
        Ok(mode.and_then(|mode| Ok((switch(mode.current)?, switch(mode.pending)))))
    }
}

fn no_such(id: &DeviceId) -> Error {
    Error::new(ErrorKind::Invalid, format!("find {id}: no such device"))
}

/// Returns the cached value, or queries and caches it. Results that may change are not cached: a
/// device error, a missing permission.
fn once<T: Clone>(
    cell: &OnceLock<Reading<T>>,
    query: impl FnOnce() -> Result<Reading<T>>,
) -> Result<Reading<T>> {
    if let Some(known) = cell.get() {
        return Ok(known.clone());
    }
    let answer = query()?;
    if matches!(answer, Ok(_) | Err(Absent::NotSupported | Absent::TooOld)) {
        // Another thread may have stored the same value.
        let _ = cell.set(answer.clone());
    }
    Ok(answer)
}

/// Returns the trimmed text, which is absent if empty.
pub(crate) fn reported(text: String) -> Reading<String> {
    match text.trim() {
        "" => Err(Absent::NotFound),
        text => Ok(text.to_owned()),
    }
}

/// Returns the PCI address from the text, which includes the function, or else from the numbers.
pub(crate) fn bus_id(pci: &nvmlPciInfo_t) -> Reading<PciBusId> {
    let by_numbers = || {
        Some(PciBusId {
            domain: pci.domain,
            bus: u8::try_from(pci.bus).ok()?,
            device: u8::try_from(pci.device).ok().filter(|device| *device < 32)?,
            function: 0,
        })
    };
    let by_text = |text: &[std::ffi::c_char]| {
        let bytes: Vec<u8> = text.iter().map(|byte| *byte as u8).collect();
        let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(text).trim().parse().ok()
    };
    let found = by_text(&pci.busId).or_else(|| by_text(&pci.busIdLegacy)).or_else(by_numbers);
    found.ok_or(Absent::Implausible)
}

/// Formats NVML's CUDA version: 1000 × major + 10 × minor.
fn cuda_version(number: i32) -> Reading<String> {
    if number <= 0 {
        return Err(Absent::Implausible);
    }
    Ok(format!("{}.{}", number / 1000, number % 1000 / 10))
}

/// Returns whether a failure affects more than one device.
pub(crate) fn affects_all(error: &Error) -> bool {
    error.kind().reach() == Reach::Machine
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pci(text: &str, legacy: &str, numbers: (u32, u32, u32)) -> nvmlPciInfo_t {
        let mut pci = <nvmlPciInfo_t as crate::raw::Data>::zeroed();
        for (slot, byte) in pci.busId.iter_mut().zip(text.bytes()) {
            *slot = byte as _;
        }
        for (slot, byte) in pci.busIdLegacy.iter_mut().zip(legacy.bytes()) {
            *slot = byte as _;
        }
        (pci.domain, pci.bus, pci.device) = numbers;
        pci
    }

    #[test]
    fn bus_id_is_read_from_any_filled_field() {
        let read = |text, legacy, numbers| bus_id(&pci(text, legacy, numbers)).unwrap().to_string();
        assert_eq!(read("00000001:3B:00.1", "0001:3B:00.1", (1, 59, 0)), "00000001:3B:00.1");
        assert_eq!(read("", "0000:3B:00.0", (0, 59, 0)), "00000000:3B:00.0");
        assert_eq!(read("", "", (2, 59, 31)), "00000002:3B:1F.0");
        for numbers in [(0, 300, 0), (0, 59, 32), (0, 59, 300)] {
            assert_eq!(bus_id(&pci("", "x", numbers)), Err(Absent::Implausible));
        }
    }

    #[test]
    fn cuda_version_is_decoded() {
        assert_eq!(cuda_version(12020).unwrap(), "12.2");
        assert_eq!(cuda_version(9000).unwrap(), "9.0");
        assert_eq!(cuda_version(11080).unwrap(), "11.8");
        assert_eq!(cuda_version(0), Err(Absent::Implausible));
    }

    #[test]
    fn only_lasting_answers_are_cached() {
        for (answer, is_kept) in [
            (Ok(1), true),
            (Err(Absent::NotSupported), true),
            (Err(Absent::TooOld), true),
            (Err(Absent::NotPermitted), false),
            (Err(Absent::Failed), false),
        ] {
            let cell = OnceLock::new();
            assert_eq!(once(&cell, || Ok(answer)).unwrap(), answer);
            let again = once(&cell, || Ok(Ok(2))).unwrap();
            assert_eq!(again, if is_kept { answer } else { Ok(2) }, "{answer:?}");
        }
        let cell = OnceLock::new();
        let failed = once::<u8>(&cell, || Err(no_such(&DeviceId::from_index(7))));
        assert_eq!(failed.unwrap_err().to_string(), "find GPU 7: no such device");
        assert_eq!(once(&cell, || Ok(Ok(2))).unwrap(), Ok(2));
    }

    #[test]
    fn blank_text_is_absent() {
        assert_eq!(reported(" 535.86 ".into()).as_deref(), Ok("535.86"));
        for blank in ["", "  "] {
            assert_eq!(reported(blank.into()), Err(Absent::NotFound));
        }
    }
}
