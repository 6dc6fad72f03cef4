//! One initialisation of NVML, and what does not change in it.

use crate::call::{Answer, Caller, reading, reading_by};
use crate::code::Code;
use crate::device::{Data, Device, Handle, text_in};
use crate::event::EventSet;
use crate::functions::{Function, Tell};
use crate::value::switch;
use gpu_core::{
    Absent, DeviceId, DeviceUuid, Driver, Error, ErrorKind, PciBusId, Reach, Reading, Result,
};
use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlPciInfo_t};
use std::ffi::c_uint;
use std::sync::{Mutex, OnceLock};

/// No machine has more devices; a driver that says so is not believed.
const MAX_DEVICES: u32 = 4096;

/// `NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE`
const VERSION_SIZE: usize = 80;
/// `NVML_DEVICE_UUID_V2_BUFFER_SIZE`
pub(crate) const UUID_SIZE: usize = 96;

/// What is known from one initialisation to the next shutdown.
pub(crate) struct Session {
    version: OnceLock<Reading<String>>,
    entries: Vec<Entry>,
    pub(crate) events: Mutex<Option<EventSet>>,
}

/// What does not change of a device. Only what the driver told for good is kept: a lost device is
/// asked again every time.
#[derive(Default)]
struct Entry {
    handle: OnceLock<Handle>,
    uuid: OnceLock<Reading<String>>,
    name: OnceLock<Reading<String>>,
    minor: OnceLock<Reading<u32>>,
    pci: OnceLock<Reading<nvmlPciInfo_t>>,
    /// Why the device tells no MIG mode, when it has none.
    no_mig: OnceLock<Absent>,
}

impl Session {
    /// Initialises NVML.
    ///
    /// # Errors
    /// `Machine` when it does not; it is then not initialised.
    pub(crate) fn open(caller: &Caller) -> Result<Self> {
        let init = match caller.has(&caller.functions.nvmlInit_v2) {
            true => &caller.functions.nvmlInit_v2,
            false => &caller.functions.nvmlInit,
        };
        // SAFETY: it takes nothing.
        match caller.call(init, None, |f| unsafe { f() }) {
            Err(failure) if failure.code != Code::ALREADY_INITIALIZED => {
                return Err(failure.error(Code::of_machine));
            }
            _ => {}
        }
        let functions = &caller.functions;
        let count = tell(caller, &functions.nvmlDeviceGetCount_v2)
            .or_else(|newer| match newer.is_too_old() {
                true => tell(caller, &functions.nvmlDeviceGetCount),
                false => Err(newer),
            })
            .map_err(|failure| failure.error(Code::of_machine));
        let count = count.inspect_err(|_| shut_down(caller))?.min(MAX_DEVICES);
        Ok(Session {
            version: OnceLock::new(),
            entries: (0..count).map(|_| Entry::default()).collect(),
            events: Mutex::default(),
        })
    }

    /// Shuts NVML down: its device files are closed, its handles worth nothing.
    pub(crate) fn close(self, caller: &Caller) {
        let events = self.events.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(events) = events {
            events.free(caller);
        }
        shut_down(caller);
    }
}

fn shut_down(caller: &Caller) {
    // A failure has nobody to help: the next question says what is wrong.
    // SAFETY: it takes nothing, and nobody uses a handle of this initialisation any more.
    let _ = caller.call(&caller.functions.nvmlShutdown, None, |f| unsafe { f() });
}

/// Asks for something of the machine.
fn tell<T: Data>(caller: &Caller, function: &Function<Tell<T>>) -> Answer<T> {
    let mut value = T::zeroed();
    // SAFETY: NVML is initialised, and `value` is what the function fills in.
    caller.call(function, None, |f| unsafe { f(&mut value) })?;
    Ok(value)
}

/// NVML while it is initialised.
#[derive(Clone, Copy)]
pub(crate) struct Opened<'a> {
    pub(crate) caller: &'a Caller,
    pub(crate) session: &'a Session,
    /// The library is a simulated one, whose time need not be ours.
    pub(crate) simulated: bool,
}

impl<'a> Opened<'a> {
    /// Returns the indices of the devices.
    pub(crate) fn indices(self) -> std::ops::Range<u32> {
        0..self.session.entries.len() as u32
    }

    /// Returns the driver.
    ///
    /// # Errors
    /// `Machine` when it does not answer.
    pub(crate) fn driver(self) -> Result<Driver> {
        let functions = &self.caller.functions;
        let cuda = tell(self.caller, &functions.nvmlSystemGetCudaDriverVersion_v2);
        let cuda = cuda.or_else(|newer| match newer.is_too_old() {
            true => tell(self.caller, &functions.nvmlSystemGetCudaDriverVersion),
            false => Err(newer),
        });
        let cuda = reading_by(cuda, Code::of_driver)?.and_then(cuda_version);
        Ok(Driver { version: self.driver_version()?, cuda })
    }

    /// Returns the driver's version.
    ///
    /// # Errors
    /// `Machine` when it does not answer.
    pub(crate) fn driver_version(self) -> Result<Reading<String>> {
        once(&self.session.version, || {
            let function = &self.caller.functions.nvmlSystemGetDriverVersion;
            let mut buffer = [0u8; VERSION_SIZE];
            // SAFETY: the buffer has the length that is told.
            let answer = self.caller.call(function, None, |f| unsafe {
                f(buffer.as_mut_ptr().cast(), VERSION_SIZE as c_uint)
            });
            Ok(reading_by(answer, Code::of_driver)?.and_then(|()| told(text_in(&buffer))))
        })
    }

    /// Returns the device at an index.
    ///
    /// # Errors
    /// Why NVML gives no handle of it.
    pub(crate) fn device(self, index: u32) -> Result<Device<'a>> {
        let caller = self.caller;
        let entry = self.entry(index)?;
        if let Some(handle) = entry.handle.get() {
            return Ok(Device { caller, handle: *handle, index });
        }
        let newer = &caller.functions.nvmlDeviceGetHandleByIndex_v2;
        let function = match caller.has(newer) {
            true => newer,
            false => &caller.functions.nvmlDeviceGetHandleByIndex,
        };
        let mut handle = nvmlDevice_t::zeroed();
        // SAFETY: NVML is initialised, and `handle` is what the function fills in.
        let answer = caller.call(function, Some(index), |f| unsafe { f(index, &mut handle) });
        answer.map_err(|failure| failure.error(Code::of_handle))?;
        let handle = *entry.handle.get_or_init(|| Handle(handle));
        Ok(Device { caller, handle, index })
    }

    fn entry(self, index: u32) -> Result<&'a Entry> {
        let entries = &self.session.entries;
        entries.get(index as usize).ok_or_else(|| no_such(&DeviceId::from_index(index)))
    }

    /// Returns the device that a caller names.
    ///
    /// # Errors
    /// `Invalid` for one that this machine does not have; why NVML gives no handle of it.
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
    /// `Device` or `Machine`, as for every value that follows.
    pub(crate) fn uuid(self, device: Device<'_>) -> Result<Reading<DeviceUuid>> {
        let uuid = once(&self.entry(device.index)?.uuid, || {
            let function = &self.caller.functions.nvmlDeviceGetUUID;
            Ok(reading(device.text::<UUID_SIZE>(function))?.and_then(told))
        })?;
        Ok(uuid.map(DeviceUuid))
    }

    /// Returns a device's product name.
    pub(crate) fn name(self, device: Device<'_>) -> Result<Reading<String>> {
        /// `NVML_DEVICE_NAME_V2_BUFFER_SIZE`
        const NAME_SIZE: usize = 96;
        once(&self.entry(device.index)?.name, || {
            let function = &self.caller.functions.nvmlDeviceGetName;
            Ok(reading(device.text::<NAME_SIZE>(function))?.and_then(told))
        })
    }

    /// Returns a device's minor number.
    pub(crate) fn minor(self, device: Device<'_>) -> Result<Reading<u32>> {
        once(&self.entry(device.index)?.minor, || {
            reading(device.get(&self.caller.functions.nvmlDeviceGetMinorNumber))
        })
    }

    /// Returns a device's PCI address and the numbers of its maker.
    pub(crate) fn pci(self, device: Device<'_>) -> Result<Reading<nvmlPciInfo_t>> {
        once(&self.entry(device.index)?.pci, || {
            let functions = &self.caller.functions;
            let mut answer = device.get(&functions.nvmlDeviceGetPciInfo_v3);
            for older in [&functions.nvmlDeviceGetPciInfo_v2, &functions.nvmlDeviceGetPciInfo] {
                if answer.as_ref().is_err_and(|failure| failure.is_too_old()) {
                    answer = device.get(older);
                }
            }
            reading(answer)
        })
    }

    /// Returns a device's PCI address.
    pub(crate) fn bus(self, device: Device<'_>) -> Result<Reading<PciBusId>> {
        Ok(self.pci(device)?.and_then(|pci| bus_id(&pci)))
    }

    /// Returns whether a device is split into MIG instances, now and after the next reset.
    pub(crate) fn mig_mode(self, device: Device<'_>) -> Result<Reading<(bool, Reading<bool>)>> {
        let entry = self.entry(device.index)?;
        if let Some(reason) = entry.no_mig.get() {
            return Ok(Err(*reason));
        }
        let mode = reading(device.get_two(&self.caller.functions.nvmlDeviceGetMigMode))?;
        if let Err(reason @ (Absent::NotSupported | Absent::TooOld)) = mode {
            // What another thread has put there is the same.
            let _ = entry.no_mig.set(reason);
        }
        Ok(mode.and_then(|(now, pending): (u32, u32)| Ok((switch(now)?, switch(pending)))))
    }
}

fn no_such(id: &DeviceId) -> Error {
    Error::new(ErrorKind::Invalid, format!("find {id}: no such device"))
}

/// Returns what is kept, else what `ask` says, and keeps that unless it may be another the next
/// time: an error of the device, a lack of permission.
fn once<T: Clone>(
    cell: &OnceLock<Reading<T>>,
    ask: impl FnOnce() -> Result<Reading<T>>,
) -> Result<Reading<T>> {
    if let Some(known) = cell.get() {
        return Ok(known.clone());
    }
    let answer = ask()?;
    if matches!(answer, Ok(_) | Err(Absent::NotSupported | Absent::TooOld)) {
        // What another thread has put there meanwhile is the same.
        let _ = cell.set(answer.clone());
    }
    Ok(answer)
}

/// An empty text is no answer.
pub(crate) fn told(text: String) -> Reading<String> {
    if text.is_empty() { Err(Absent::NotFound) } else { Ok(text) }
}

/// Returns the address in `pci`: by its text, which alone has the function, else by its numbers.
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
        text_in(&bytes).parse().ok()
    };
    let found = by_text(&pci.busId).or_else(|| by_text(&pci.busIdLegacy)).or_else(by_numbers);
    found.ok_or(Absent::Implausible)
}

/// Writes NVML's number of a version of CUDA, 1000 times the major and 10 times the minor.
fn cuda_version(number: i32) -> Reading<String> {
    if number <= 0 {
        return Err(Absent::Implausible);
    }
    Ok(format!("{}.{}", number / 1000, number % 1000 / 10))
}

/// Tells whether a failure is about more than one device.
pub(crate) fn spoils_all(error: &Error) -> bool {
    error.kind().reach() == Reach::Machine
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pci(text: &str, legacy: &str, numbers: (u32, u32, u32)) -> nvmlPciInfo_t {
        let mut pci = nvmlPciInfo_t::zeroed();
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
        assert_eq!(bus_id(&pci("", "x", (0, 300, 0))), Err(Absent::Implausible));
    }

    #[test]
    fn cuda_version_is_decoded() {
        assert_eq!(cuda_version(12020).unwrap(), "12.2");
        assert_eq!(cuda_version(9000).unwrap(), "9.0");
        assert_eq!(cuda_version(11080).unwrap(), "11.8");
        assert_eq!(cuda_version(0), Err(Absent::Implausible));
    }
}
