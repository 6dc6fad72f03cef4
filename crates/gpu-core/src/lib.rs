//! Ports and plain data: the interface between all other crates of the workspace.
//!
//! The main decision is that no crate both decides and touches the machine. This crate holds what
//! both sides need and nothing else: the *ports* ([`GpuBackend`], [`Host`], [`KernelDriver`], [`ProcessHandle`],
//! [`DeviceMemory`], [`Journal`], [`Clock`], [`LeaseStore`], [`Launcher`]) as object-safe traits
//! with plain data in and out, and the plain [`Snapshot`] that [`observe`] fills through them. It
//! does no I/O and has no `unsafe`. Adapters implement the ports, policies are functions from a
//! snapshot to a plan, and only the program chooses the adapter behind each port.
//!
//! A missing value is never zero: a [`Reading`] is a value or the reason why it is [`Absent`]. A
//! failure is an [`Error`] whose [`ErrorKind`] says how far it reaches.
//!
//! ```
//! use gpu_core::{
//!     Absent, Bytes, DeviceFault, DeviceId, DeviceInfo, DeviceSample, DeviceState, Error, Groups,
//!     Reading,
//! };
//!
//! /// A decision is a function of plain data. Devices that do not report memory are passed over.
//! fn most_free(devices: &[DeviceState]) -> Option<&DeviceId> {
//!     let free = |device: &DeviceState| -> Reading<Bytes> {
//!         Ok(device.memory_total()?.saturating_sub(device.memory_used()?))
//!     };
//!     let known = devices.iter().filter_map(|device| Some((free(device).ok()?, device.id())));
//!     known.max_by_key(|(free, _)| *free).map(|(_, id)| id)
//! }
//!
//! // Two devices as an adapter reports them; the second has fallen off the bus.
//! let lost = Error::new(DeviceFault::Lost, "sample GPU 1").fault();
//! let device = |index| {
//!     let info = DeviceInfo::unknown(DeviceId::from_index(index));
//!     DeviceState::unanswered(info, Groups::NONE, &lost)
//! };
//! let mut sample = DeviceSample::absent(Absent::NotSupported);
//! sample.memory.total = Ok(Bytes::from_mib(16_384));
//! sample.memory.used = Ok(Bytes::from_mib(400));
//! let devices = [DeviceState { sample: Ok(sample), ..device(0) }, device(1)];
//!
//! assert_eq!(devices[1].memory_used(), Err(Absent::DeviceLost));
//! assert_eq!(most_free(&devices).map(|id| id.index), Some(0));
//! ```

mod absent;
mod access;
mod ancestry;
mod backend;
mod clock;
mod details;
mod device;
mod device_files;
mod driver_error;
mod driver_message;
mod driver_view;
mod environment;
mod error;
mod executable;
mod file;
mod holder;
mod host;
mod id;
mod inventory;
mod journal;
mod kernel_driver;
mod launch;
mod lease;
mod lease_key;
mod lease_store;
mod load;
mod memory;
mod memory_figures;
mod memory_source;
mod merged;
mod observe;
mod observer;
pub mod plausible;
mod process;
mod rates;
#[cfg(feature = "serde")]
mod recorded;
#[cfg(feature = "schema")]
mod schema;
pub mod selector;
mod service;
mod snapshot;
mod text;
mod token;
mod topology;
mod units;
pub mod visible;

pub use absent::{Absent, Reading};
pub use access::Access;
pub use ancestry::{current_ancestry, line_of};
pub use backend::GpuBackend;
pub use clock::{Clock, Timestamp};
#[cfg(feature = "serde")]
pub use details::DetailsView;
pub use details::{
    AccountedProcess, Accounting, Activity, AddressingMode, ApplicationClocks, ClockChoice, Clocks,
    ComputeMode, DeviceDetails, DeviceEvent, DeviceEventKind, Engines, ErrorsByPlace, Fabric,
    FabricState, Group, Groups, GspFirmware, Inforom, MemoryErrors, MemoryHealth, Modes,
    ModulePower, NvLink, OperationMode, OperationModes, Pcie, PcieThroughput, Platform, Power,
    PowerReadings, Product, ProtectedMemory, RareModes, RecoveryAction, ResetStatus, RetiredPage,
    SramErrors, SupportedClocks, Thermal, ThrottleReasons, ThrottleTimes, VirtualGpus,
};
pub use device::{
    DeviceInfo, DeviceProcess, DeviceProcessKind, DeviceSample, Driver, MemoryInfo, Partition,
    PidNamespace,
};
pub use device_files::{DeviceFiles, FileActivity};
pub use driver_error::{DriverError, DriverErrorCode, FaultClass, Relation, Remedy, Severity};
pub use driver_message::DriverMessage;
pub use driver_view::DriverView;
pub use environment::Environment;
pub use error::{DeviceFault, Error, ErrorKind, Fault, MachineFault, ProcessFault, Reach, Result};
pub use executable::{Executable, in_system_dir};
pub use file::{DeviceFile, FileRole, file_number};
pub use holder::{Client, HeldFile, Holder, HolderScan, MemoryUse, UnreadProcess, Unreadable};
pub use host::{Host, ProcessHandle, ProcessList, ProcessTable, Signal};
pub use id::{DeviceId, DeviceKey, DeviceUuid, FileId, PciBusId, Pid, ProcessKey, StartTime, Uids};
pub use inventory::{Inventory, ask};
pub use journal::{Journal, NoJournal};
pub use kernel_driver::KernelDriver;
pub use launch::{
    Companion, Job, JobEvent, JobExit, KilledTree, Launch, Launcher, Sent, Supervised, Supervisors,
    SuspendedProcesses,
};
pub use lease::{Claim, LeaseEntry, LeaseId, OuterLease, Share};
pub use lease_key::NoLeaseKey;
pub use lease_store::{
    EntryKind, LeaseGuard, LeaseStore, QUEUE_HEARTBEAT, QUEUE_STALL_TIMEOUT, QueuePlace,
    SafeGpuGuard, SafeGpuHolder, Waiter,
};
pub use load::{CpuTime, HostLoad};
pub use memory::{DeviceMemory, Region};
pub use memory_figures::own_memory;
pub use memory_source::{HostMemory, MemoryKind, MemorySource};
pub use merged::MergedLeases;
pub use observe::{
    HolderSearch, Observation, complete_processes, look_up_processes, observe, observe_free,
    observe_in_detail, observe_users, take_inventory, take_inventory_with_users,
};
pub use observer::Observer;
pub use process::{
    PodEvidence, PodName, ProcessDetail, ProcessInfo, ProcessState, Workload, WorkloadKind,
};
pub use rates::{Rates, Route};
pub use selector::{SelectError, Selector};
pub use service::{
    FIRST_USER, ServiceUnit, SystemService, is_login_program, is_mps_program, kernel_name,
    service_of,
};
pub use snapshot::{DRIVER_OVERHEAD, DeviceState, Origin, Process, Snapshot, driver_reserve};
pub use text::{acts, clean, escape_markup};
pub use token::ActToken;
pub use topology::{Link, PeerAccess, PeerCapability, Topology};
pub use units::{Bytes, Celsius, Milliwatts, Percent, amount};
#[cfg(feature = "mock")]
pub use {
    backend::MockGpuBackend, clock::MockClock, device_files::MockFileActivity,
    host::MockProcessHandle, host::mock::MockHost, journal::MockJournal, launch::MockSupervisors,
    lease_store::MockLeaseStore, memory::MockDeviceMemory,
};

#[cfg(feature = "serde")]
pub use absent::reading;

/// The example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
