//! Ports and plain data: the interface between all other crates of the workspace.
//!
//! The main decision is that no crate both decides and touches the machine. This crate holds what
//! both sides need and nothing else: the *ports* ([`GpuBackend`], [`Host`], [`ProcessHandle`],
//! [`DeviceMemory`], [`Journal`], [`Clock`], [`Locks`], [`Launcher`]) as object-safe traits with
//! plain data in and out, and the plain [`Snapshot`] that [`observe`] fills through them. It does
//! no I/O and has no `unsafe`. Adapters implement the ports, policies are functions from a snapshot
//! to a plan, and only the program chooses the adapter behind each port.
//!
//! A missing value is never zero: a [`Reading`] is a value or the reason why it is [`Absent`]. A
//! failure is an [`Error`] whose [`ErrorKind`] says how far it reaches.

mod absent;
mod access;
mod ancestry;
mod backend;
mod clock;
mod details;
mod device;
mod error;
mod executable;
mod file;
mod holder;
mod host;
mod id;
mod inventory;
mod journal;
mod launch;
mod lease;
mod locks;
mod memory;
mod observe;
pub mod plausible;
mod process;
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
pub use details::{
    AccountedProcess, Accounting, Activity, AddressingMode, ApplicationClocks, Clocks, ComputeMode,
    DeviceDetails, DeviceEvent, DeviceEventKind, Engines, ErrorsByPlace, Fabric, FabricState,
    Group, Groups, GspFirmware, Inforom, MemoryErrors, MemoryHealth, Modes, NvLink, OperationMode,
    OperationModes, Pcie, PcieThroughput, Power, PowerReadings, Product, ProtectedMemory,
    ResetStatus, Thermal, ThrottleReasons, VirtualGpus,
};
pub use device::{
    DeviceInfo, DeviceProcess, DeviceProcessKind, DeviceSample, Driver, MemoryInfo, MigInstance,
};
pub use error::{DeviceFault, Error, ErrorKind, Fault, MachineFault, ProcessFault, Reach, Result};
pub use executable::{Executable, in_system_folder};
pub use file::{DeviceFile, DeviceFileKind, FileId};
pub use holder::{HeldFile, Holder, HolderScan, Unreadable};
pub use host::{Host, ProcessHandle, ProcessList, Signal};
pub use id::{DeviceId, DeviceUuid, PciBusId, Pid, ProcessKey, StartTime};
pub use inventory::{Inventory, ask};
pub use journal::{Journal, NoJournal};
pub use launch::{
    Companion, Job, JobEvent, JobExit, KilledTree, Launch, Launcher, Sent, Supervised, Supervisors,
    SuspendedProcesses,
};
pub use lease::{Claim, Entry, LeaseId, OuterLease, Share};
pub use locks::{
    EntryKind, Held, HeldBack, Locks, QUEUE_HEARTBEAT, QUEUE_STALL_TIMEOUT, QueuePlace,
    SafeGpuHolder, Waiter,
};
pub use memory::{DeviceMemory, Region};
pub use observe::{look_at_devices, look_up_processes, observe, observe_in_detail, observe_users};
pub use process::{ProcessInfo, ProcessState, Workload, WorkloadKind};
pub use selector::{SelectError, Selector};
pub use service::{SystemService, is_login_program, kernel_name};
pub use snapshot::{DeviceState, Origin, Process, Snapshot};
pub use text::{acts, clean};
pub use token::ActToken;
pub use topology::{Link, PeerAccess, Topology};
pub use units::{Bytes, Celsius, Milliwatts, Percent, amount};
#[cfg(feature = "mock")]
pub use {
    backend::MockGpuBackend, clock::MockClock, host::MockHost, host::MockProcessHandle,
    journal::MockJournal, launch::MockCompanion, launch::MockJob, launch::MockLauncher,
    launch::MockSupervised, launch::MockSupervisors, locks::MockHeld, locks::MockHeldBack,
    locks::MockLocks, memory::MockDeviceMemory,
};

#[cfg(feature = "serde")]
pub use absent::reading;
