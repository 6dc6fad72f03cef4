//! What a process has: memory of devices, and device files.

use gpu_core::{Absent, Bytes, DeviceFile, DeviceProcessKind, FileId, FileRole};
use gpu_nvidia_driver::MAJOR;

/// Memory of one device that a process has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    /// The device, by index; those of cards are above those of NVML.
    pub device: u32,
    /// The amount.
    pub memory: Bytes,
    /// Its kind in NVML's list; `None` if it is not listed.
    pub listed: Option<DeviceProcessKind>,
    /// Why NVML does not report the amount, if it does not.
    pub memory_untold: Option<Absent>,
    /// The share of the device's time that its kernels take, in percent.
    pub load: u8,
    /// Why NVML does not report that share per process, if it does not.
    pub load_untold: Option<Absent>,
    /// MIG GPU instance.
    pub gpu_instance: Option<u32>,
    /// MIG compute instance.
    pub compute_instance: Option<u32>,
    /// How the driver of a card counts it; `None` on an NVIDIA device.
    pub client: Option<ClientUse>,
}

/// What else a client uses of a card (`fdinfo` of DRM drivers).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientUse {
    /// Memory of the host that the card has mapped.
    pub host: Bytes,
    /// The number of the client, which processes that share it have in common; `None` for a client
    /// of its own.
    pub id: Option<u32>,
    /// The partition of the card; 0 also if it is not partitioned.
    pub partition: u32,
    /// Whether the process inherited the client: KFD counts memory only for the process that allocated it.
    pub inherited: bool,
}

impl Holding {
    /// Returns memory that NVML lists as a CUDA context's, without utilisation.
    pub fn new(device: u32, memory: Bytes) -> Self {
        Holding {
            device,
            memory,
            listed: Some(DeviceProcessKind::Compute),
            memory_untold: None,
            load: 0,
            load_untold: Some(Absent::NotSupported),
            gpu_instance: None,
            compute_instance: None,
            client: None,
        }
    }
}

/// Returns the device file with this path, with the device numbers of Linux: 195 for `nvidia*`, 226
/// for `dri`, and one of the dynamic majors for the rest.
pub fn device_file(path: &str) -> DeviceFile {
    let file = gpu_nvidia_driver::device_file(path, Err(Absent::NotRecorded));
    let trailing = || {
        let digits = path.rsplit(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
        digits.parse().unwrap_or_default()
    };
    let (major, minor) = match file.role {
        FileRole::Compute => (MAJOR, trailing()),
        FileRole::Control => (MAJOR, 255),
        FileRole::Display => (MAJOR, 254),
        FileRole::Memory => (511, 0),
        FileRole::Tools => (511, 1),
        FileRole::Capability => (236, trailing()),
        FileRole::Render => (226, trailing()),
        // A minor number has 20 bits. The upper bits of this hash hardly depend on the last byte.
        FileRole::Other => (240, crate::seed::fnv1a(path.as_bytes()) as u32 & 0xf_ffff),
    };
    DeviceFile { id: Ok(FileId::Device { major, minor }), ..file }
}
