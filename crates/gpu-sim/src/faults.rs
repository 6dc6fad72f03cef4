//! Counts the calls of every port and makes selected calls fail.

use crate::machine::Event;
use gpu_core::{Error, ErrorKind};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// A call of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Call {
    /// `GpuBackend::driver`
    Driver,
    /// `GpuBackend::devices`
    Devices,
    /// `GpuBackend::sample`
    Sample,
    /// `GpuBackend::processes`
    DeviceProcesses,
    /// `GpuBackend::partitions`
    MigInstances,
    /// `GpuBackend::details`
    Details,
    /// `GpuBackend::topology`
    Topology,
    /// `GpuBackend::events`
    DeviceEvents,
    /// `GpuBackend::reset`
    Reset,
    /// `Host::hostname`
    Hostname,
    /// `Host::sees_host_pids`
    SeesHostPids,
    /// `Host::driver_devices`
    DriverDevices,
    /// `Host::driver_messages`
    DriverMessages,
    /// `Host::device_files`
    DeviceFiles,
    /// `Host::holders`
    Holders,
    /// `Host::process`
    Process,
    /// `Host::processes`
    Processes,
    /// `Host::own_ancestry`
    OwnAncestry,
    /// `Host::open`
    Open,
    /// `ProcessHandle::info`
    Info,
    /// `ProcessHandle::held`
    HeldFiles,
    /// `ProcessHandle::has_exited`
    HasExited,
    /// `ProcessHandle::signal`
    Signal,
    /// `Journal::append`
    Append,
    /// `DeviceMemory::info`
    MemoryInfo,
    /// `DeviceMemory::reserve`
    Reserve,
    /// `DeviceMemory::release`
    Release,
    /// `DeviceMemory::reserve_addresses`
    ReserveAddresses,
    /// `DeviceMemory::map`
    Map,
    /// `DeviceMemory::unmap`
    Unmap,
    /// `DeviceMemory::release_addresses`
    ReleaseAddresses,
    /// `DeviceMemory::page`
    Page,
    /// `Clock::wall`: cannot fail, only be delayed.
    Wall,
    /// `Clock::monotonic`: cannot fail, only be delayed.
    Monotonic,
    /// `Clock::sleep`: cannot fail, only take longer.
    Sleep,
}

impl Call {
    /// Every call in the order of the ports, and the fragment that completes 'failed to …'.
    pub const ALL: [(Call, &str); 35] = [
        (Call::Driver, "query the driver version"),
        (Call::Devices, "list the devices"),
        (Call::Sample, "sample a device"),
        (Call::DeviceProcesses, "list the processes of a device"),
        (Call::MigInstances, "list the MIG instances of a device"),
        (Call::Details, "query the details of a device"),
        (Call::Topology, "query the topology"),
        (Call::DeviceEvents, "wait for events"),
        (Call::Reset, "reset a device"),
        (Call::Hostname, "read the host name"),
        (Call::SeesHostPids, "read the PID namespace"),
        (Call::DriverDevices, "list the devices of the kernel module"),
        (Call::DriverMessages, "read the kernel log"),
        (Call::DeviceFiles, "list the device files"),
        (Call::Holders, "find holders"),
        (Call::Process, "inspect a process"),
        (Call::Processes, "list the processes"),
        (Call::OwnAncestry, "read the ancestors of this process"),
        (Call::Open, "open a process"),
        (Call::Info, "inspect an opened process"),
        (Call::HeldFiles, "inspect the files of an opened process"),
        (Call::HasExited, "check whether an opened process has exited"),
        (Call::Signal, "signal a process"),
        (Call::Append, "append to the journal"),
        (Call::MemoryInfo, "query the memory of a device"),
        (Call::Reserve, "reserve device memory"),
        (Call::Release, "release device memory"),
        (Call::ReserveAddresses, "reserve addresses of a device"),
        (Call::Map, "map device memory"),
        (Call::Unmap, "unmap device memory"),
        (Call::ReleaseAddresses, "release addresses of a device"),
        (Call::Page, "query the page size of a device"),
        (Call::Wall, "read the wall clock"),
        (Call::Monotonic, "read the clock"),
        (Call::Sleep, "sleep"),
    ];
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Call::ALL[*self as usize].1)
    }
}

/// A fault of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The call fails with this kind and has no effect.
    Error(ErrorKind),
    /// The call takes this long, then does its work.
    Delay(Duration),
    /// The call takes this long, then fails with `TimedOut`, without effect.
    Hang(Duration),
    /// A list changes its length during the read: the call fails with `Again`.
    ListChanged,
    /// The machine changes just before the call does its work.
    Meanwhile(Event),
}

#[derive(Clone, Debug)]
struct Injected {
    call: Call,
    first: u64,
    last: u64,
    fault: Fault,
}

/// The count of each call, and the pending faults.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults {
    counts: BTreeMap<Call, u64>,
    injected: Vec<Injected>,
}

impl Faults {
    pub(crate) fn inject(&mut self, call: Call, first: u64, last: u64, fault: Fault) {
        self.injected.push(Injected { call, first, last, fault });
    }

    pub(crate) fn counts(&self) -> &BTreeMap<Call, u64> {
        &self.counts
    }

    /// Counts a call and returns its faults, in the order of injection.
    pub(crate) fn enter(&mut self, call: Call) -> Vec<Fault> {
        let count = self.counts.entry(call).or_default();
        *count += 1;
        let nth = *count;
        let due = self.injected.iter().filter(|injected| injected.call == call);
        let due = due.filter(|injected| (injected.first..=injected.last).contains(&nth));
        due.map(|injected| injected.fault.clone()).collect()
    }
}

/// Returns the error of a call with an injected failure.
pub(crate) fn injected(call: Call, kind: ErrorKind, why: &'static str) -> Error {
    Error::new(kind, call.to_string()).with_source(why)
}
