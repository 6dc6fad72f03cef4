//! CUDA contexts that hold devices, through the driver's own interface (`libcuda`), which is loaded
//! at run time.
//!
//! Nothing runs in them. A device on which a process has a context is in use for everybody who
//! asks NVML or nvidia-smi, safe-gpu among them.

use gpu_core::{Absent, DeviceFault, DeviceUuid, Error, ErrorKind, MachineFault, Result};
use libloading::Library;
use std::ffi::{CStr, OsStr, c_int, c_uint, c_void};
use std::path::Path;

/// The name under which drivers install it.
const NAME: &str = "libcuda.so.1";

/// What the functions return but for success (`CUresult`).
pub(crate) const OUT_OF_MEMORY: c_int = 2;
const NO_DEVICE: c_int = 100;
const OPERATING_SYSTEM: c_int = 304;
const DRIVER_MISMATCH: c_int = 803;

/// A context on each of some devices, gone when this is dropped or the process ends.
#[derive(Debug)]
pub struct CudaContexts {
    functions: Functions,
    held: Vec<Held>,
    /// What the functions are part of; dropped last.
    library: Option<Library>,
}

/// A device on which a context is held.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub(crate) device: c_int,
    pub(crate) context: Context,
}

/// A context, by the driver's handle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context(pub(crate) *mut c_void);

// SAFETY: the handle is only given to the driver, which lets any thread use any context.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// The functions that are called (CUDA Driver API: initialisation, device management, primary
/// context management).
#[derive(Clone, Copy, Debug)]
struct Functions {
    init: unsafe extern "C" fn(c_uint) -> c_int,
    count: unsafe extern "C" fn(*mut c_int) -> c_int,
    device: unsafe extern "C" fn(*mut c_int, c_int) -> c_int,
    uuid: unsafe extern "C" fn(*mut [u8; 16], c_int) -> c_int,
    retain: unsafe extern "C" fn(*mut *mut c_void, c_int) -> c_int,
    release: unsafe extern "C" fn(c_int) -> c_int,
}

impl CudaContexts {
    /// Makes a context on each of `devices`, of which the calling process must see all
    /// (`CUDA_VISIBLE_DEVICES`), with the `libcuda` at `library`, or the system's.
    ///
    /// # Errors
    /// `Machine(NoLibrary)` without a driver; `Invalid` when the library at `library` does not
    /// load, and for a device that this process does not see; `Field(TooOld)` when the driver lacks
    /// a function; `Machine` and `Device` as CUDA answers. Nothing is held then.
    pub fn hold(library: Option<&Path>, devices: &[DeviceUuid]) -> Result<Self> {
        let library = load(library)?;
        let functions = Functions::of(&library)?;
        Self::with(functions, Some(library), devices)
    }

    fn with(
        functions: Functions,
        library: Option<Library>,
        devices: &[DeviceUuid],
    ) -> Result<Self> {
        let seen = functions.devices()?;
        let mut contexts = CudaContexts { functions, held: Vec::new(), library };
        for uuid in devices {
            let what = || format!("create a CUDA context on {uuid}");
            let found = seen.iter().find(|(own, _)| is_named(uuid, own));
            let (_, device) = found.ok_or_else(|| {
                let why = "no such device is visible to this process (CUDA_VISIBLE_DEVICES)";
                Error::new(ErrorKind::Invalid, what()).with_source(why)
            })?;
            let mut context = std::ptr::null_mut();
            // SAFETY: the driver gave the device; the context's handle is filled in.
            let code = unsafe { (functions.retain)(&mut context, *device) };
            check(code, what, |code| match code {
                OUT_OF_MEMORY => DeviceFault::OutOfMemory.into(),
                code => DeviceFault::Unknown(code.unsigned_abs()).into(),
            })?;
            contexts.held.push(Held { device: *device, context: Context(context) });
        }
        Ok(contexts)
    }

    /// Returns what is held, in the order in which it was asked for.
    pub(crate) fn held(&self) -> &[Held] {
        &self.held
    }

    /// Returns the library that was loaded.
    pub(crate) fn library(&self) -> Option<&Library> {
        self.library.as_ref()
    }
}

impl Drop for CudaContexts {
    fn drop(&mut self) {
        for Held { device, .. } in self.held.drain(..) {
            // SAFETY: its context was retained once and not released yet. Where that fails, it
            // goes with the process.
            let _ = unsafe { (self.functions.release)(device) };
        }
    }
}

impl Functions {
    fn of(library: &Library) -> Result<Self> {
        macro_rules! find {
            ($($name:literal),+) => {
                // SAFETY: in the CUDA Driver API these names are of the type of their field.
                unsafe { find(library, &[$($name),+]) }?
            };
        }
        Ok(Functions {
            init: find!(c"cuInit"),
            count: find!(c"cuDeviceGetCount"),
            device: find!(c"cuDeviceGet"),
            // The second version names a MIG device, the first the whole one.
            uuid: find!(c"cuDeviceGetUuid_v2", c"cuDeviceGetUuid"),
            retain: find!(c"cuDevicePrimaryCtxRetain"),
            release: find!(c"cuDevicePrimaryCtxRelease_v2", c"cuDevicePrimaryCtxRelease"),
        })
    }

    /// Returns the devices that this process sees, each with its UUID.
    fn devices(&self) -> Result<Vec<([u8; 16], c_int)>> {
        let what = || "list CUDA devices".to_owned();
        let machine = |code: c_int| match code {
            NO_DEVICE => MachineFault::NoDevices.into(),
            OPERATING_SYSTEM => MachineFault::Blocked.into(),
            DRIVER_MISMATCH => MachineFault::VersionMismatch.into(),
            code => MachineFault::Unknown(code.unsigned_abs()).into(),
        };
        // SAFETY: it takes flags, of which there are none.
        check(unsafe { (self.init)(0) }, what, machine)?;
        let mut count = 0;
        // SAFETY: the count is filled in.
        check(unsafe { (self.count)(&mut count) }, what, machine)?;
        let mut devices = Vec::new();
        for ordinal in 0..count {
            let (mut device, mut uuid) = (0, [0; 16]);
            // SAFETY: the device is filled in.
            check(unsafe { (self.device)(&mut device, ordinal) }, what, machine)?;
            // SAFETY: the driver gave the device; the UUID is sixteen bytes, which are filled in.
            check(unsafe { (self.uuid)(&mut uuid, device) }, what, machine)?;
            devices.push((uuid, device));
        }
        Ok(devices)
    }
}

/// Makes a code other than success an error.
pub(crate) fn check(
    code: c_int,
    what: impl Fn() -> String,
    kind: impl Fn(c_int) -> ErrorKind,
) -> Result<()> {
    match code {
        0 => Ok(()),
        code => Err(Error::new(kind(code), what()).with_source(format!("CUDA error {code}"))),
    }
}

/// Tells whether a device with these bytes has this UUID, as NVML writes it.
fn is_named(uuid: &DeviceUuid, bytes: &[u8; 16]) -> bool {
    let text = uuid.0.strip_prefix("GPU-").or_else(|| uuid.0.strip_prefix("MIG-"));
    let digits = text.map(|text| text.replace('-', "").to_ascii_lowercase());
    digits.is_some_and(|digits| digits == format!("{:032x}", u128::from_be_bytes(*bytes)))
}

fn load(path: Option<&Path>) -> Result<Library> {
    let name = path.map_or(OsStr::new(NAME), Path::as_os_str);
    // SAFETY: loading runs the library's constructors. It is the driver's own library, from where
    // the system's loader finds it, or one that the caller names to be trusted as such.
    unsafe { Library::new(name) }.map_err(|error| {
        let kind = match path {
            Some(_) => ErrorKind::Invalid,
            None => MachineFault::NoLibrary.into(),
        };
        Error::new(kind, format!("load {}", name.display())).with_source(error.to_string())
    })
}

/// Returns the first of some functions that a library has.
///
/// # Safety
/// Each of them is of type `T`, which is copied out: it is valid while the library is loaded.
pub(crate) unsafe fn find<T: Copy>(library: &Library, names: &[&CStr]) -> Result<T> {
    let found = names.iter().find_map(|name| {
        // SAFETY: the caller says that it is of this type.
        unsafe { library.get::<T>(name.to_bytes_with_nul()) }.ok()
    });
    found.map(|function| *function).ok_or_else(|| {
        let name = names.first().map(|name| name.to_string_lossy()).unwrap_or_default();
        Error::new(Absent::TooOld, format!("find {name} in {NAME}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicI32, Ordering};

    /// A driver of two devices, 40 and 41, of which one test at a time makes use.
    static TURN: Mutex<()> = Mutex::new(());
    static HELD: [AtomicI32; 2] = [AtomicI32::new(0), AtomicI32::new(0)];
    /// What the function that is named answers, in place of doing its work.
    static INIT: AtomicI32 = AtomicI32::new(0);
    static RETAIN_41: AtomicI32 = AtomicI32::new(0);

    extern "C" fn init(flags: c_uint) -> c_int {
        assert_eq!(flags, 0);
        INIT.load(Ordering::SeqCst)
    }

    unsafe extern "C" fn count(count: *mut c_int) -> c_int {
        // SAFETY: the caller lends a place for it.
        unsafe { *count = 2 };
        0
    }

    unsafe extern "C" fn device(device: *mut c_int, ordinal: c_int) -> c_int {
        // SAFETY: the caller lends a place for it.
        unsafe { *device = 40 + ordinal };
        0
    }

    unsafe extern "C" fn uuid(uuid: *mut [u8; 16], device: c_int) -> c_int {
        let last = u8::try_from(device).unwrap();
        // SAFETY: the caller lends a place for it.
        unsafe { *uuid = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 0xab, last] };
        0
    }

    extern "C" fn retain(_: *mut *mut c_void, device: c_int) -> c_int {
        let code = if device == 41 { RETAIN_41.load(Ordering::SeqCst) } else { 0 };
        if code == 0 {
            HELD[usize::try_from(device - 40).unwrap()].fetch_add(1, Ordering::SeqCst);
        }
        code
    }

    extern "C" fn release(device: c_int) -> c_int {
        HELD[usize::try_from(device - 40).unwrap()].fetch_sub(1, Ordering::SeqCst);
        0
    }

    const DRIVER: Functions = Functions { init, count, device, uuid, retain, release };

    fn named(last: &str) -> DeviceUuid {
        DeviceUuid(format!("GPU-00010203-0405-0607-0809-0a0b0c0dAB{last}"))
    }

    fn held() -> Vec<i32> {
        HELD.iter().map(|held| held.load(Ordering::SeqCst)).collect()
    }

    #[test]
    fn contexts_are_held_by_uuid_until_drop() {
        let _turn = TURN.lock().unwrap();
        let both = CudaContexts::with(DRIVER, None, &[named("29"), named("28")]).unwrap();
        let one = CudaContexts::with(DRIVER, None, &[named("29")]).unwrap();
        assert_eq!(held(), [1, 2]);
        drop(both);
        assert_eq!(held(), [0, 1]);
        drop(one);
        assert_eq!(held(), [0, 0]);
    }

    #[test]
    fn failed_context_creation_releases_others() {
        let _turn = TURN.lock().unwrap();
        let all = [named("28"), named("29")];
        for (code, kind) in [
            (2, DeviceFault::OutOfMemory),
            (46, DeviceFault::Unknown(46)), // CUDA_ERROR_DEVICE_UNAVAILABLE
        ] {
            RETAIN_41.store(code, Ordering::SeqCst);
            let error = CudaContexts::with(DRIVER, None, &all).unwrap_err();
            RETAIN_41.store(0, Ordering::SeqCst);
            assert_eq!(error.kind(), kind.into());
            assert!(error.fault().text.ends_with(&format!("CUDA error {code}")), "{error:?}");
            assert_eq!(held(), [0, 0]);
        }
        let unseen = CudaContexts::with(DRIVER, None, &[named("28"), named("77")]).unwrap_err();
        assert_eq!((unseen.kind(), held()), (ErrorKind::Invalid, vec![0, 0]));
        for (code, fault) in [
            (100, MachineFault::NoDevices),
            (803, MachineFault::VersionMismatch),
            (999, MachineFault::Unknown(999)),
        ] {
            INIT.store(code, Ordering::SeqCst);
            let error = CudaContexts::with(DRIVER, None, &all).unwrap_err();
            INIT.store(0, Ordering::SeqCst);
            assert_eq!(error.kind(), fault.into());
        }
    }

    #[test]
    fn missing_or_invalid_libcuda_is_reported() {
        let none = CudaContexts::hold(Some(Path::new("/no/such/libcuda.so.1")), &[]).unwrap_err();
        assert_eq!(none.kind(), ErrorKind::Invalid);
        assert!(none.fault().text.starts_with("load /no/such/libcuda.so.1: "), "{none:?}");
        // Any library that has none of the functions.
        let other = CudaContexts::hold(Some(Path::new("libc.so.6")), &[]).unwrap_err();
        assert_eq!(other.kind(), Absent::TooOld.into());
        assert_eq!(other.fault().text, "find cuInit in libcuda.so.1");
    }
}
