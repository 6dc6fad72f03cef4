//! The port to the devices.

use crate::absent::Absent;
use crate::details::{DeviceDetails, DeviceEvent, Groups};
use crate::device::{DeviceInfo, DeviceProcess, DeviceSample, Driver, Partition};
use crate::error::{Error, ErrorKind, Fault, Reach, Result};
use crate::id::{DeviceId, Pid};
use crate::inventory::{Inventory, ask};
use crate::snapshot::{DeviceState, Origin};
use crate::token::ActToken;
use crate::topology::{PeerAccess, PeerCapability, Topology};
use std::time::Duration;

/// Reads the devices of a machine.
///
/// Each method is one query, which may be repeated at any time; [`inventory`](GpuBackend::inventory) makes
/// all of them. A value that the machine does not report is [`Absent`](crate::Absent) inside an
/// `Ok`; the [`ErrorKind`](crate::ErrorKind) of an `Err` says whether it affects the machine, one
/// device or only this call.
#[cfg_attr(feature = "mock", mockall::automock)]
pub trait GpuBackend: Send + Sync {
    /// Returns the source of the answers; shown in every output.
    fn origin(&self) -> Origin;

    /// Returns the driver's versions.
    ///
    /// # Errors
    /// `Machine` when no driver answers.
    fn driver(&self) -> Result<Driver>;

    /// Returns every device, by index.
    ///
    /// # Errors
    /// `Machine` when no driver answers.
    fn devices(&self) -> Result<Vec<DeviceInfo>>;

    /// Returns the current state of a device.
    ///
    /// # Errors
    /// `Device` when it is lost; `Again` when the query may be repeated at once.
    fn sample(&self, device: &DeviceId) -> Result<DeviceSample>;

    /// Returns the processes that the driver lists on a device, by PID and partition, each once. The
    /// driver may not know their names.
    ///
    /// # Errors
    /// As [`sample`](GpuBackend::sample); `Again` when the list grew between two calls.
    fn processes(&self, device: &DeviceId) -> Result<Vec<DeviceProcess>>;

    /// Returns the MIG instances of a device; none if MIG is off.
    ///
    /// # Errors
    /// As [`sample`](GpuBackend::sample).
    fn partitions(&self, device: &DeviceId) -> Result<Vec<Partition>>;

    /// Returns the requested groups of details.
    ///
    /// # Errors
    /// As [`sample`](GpuBackend::sample).
    fn details(&self, device: &DeviceId, groups: Groups) -> Result<DeviceDetails>;

    /// Returns the topology.
    ///
    /// # Errors
    /// `Field` when the machine does not report it.
    fn topology(&self) -> Result<Topology>;

    /// Returns whether each device has this kind of access to each other one, by index; square. By
    /// default only reads are known, from the [`topology`](GpuBackend::topology).
    ///
    /// # Errors
    /// `Field` when the machine does not report it.
    fn peer_access(&self, capability: PeerCapability) -> Result<Vec<Vec<PeerAccess>>> {
        let peers = match capability {
            PeerCapability::Read => self.topology()?.peers,
            _ => Vec::new(),
        };
        let unreported = || Error::new(Absent::NotSupported, "query the peer-to-peer status");
        if peers.is_empty() { Err(unreported()) } else { Ok(peers) }
    }

    /// Waits at most `wait` for an event from a device; returns the events, or nothing if none
    /// occurred.
    ///
    /// # Errors
    /// `Machine` when no driver answers; `Unsupported` if the backend has no events.
    fn events(&self, wait: Duration) -> Result<Vec<DeviceEvent>>;

    /// Resets an unused device.
    ///
    /// # Errors
    /// `Device(InUse)` when it is in use, with the driver's refusal as the text.
    fn reset(&self, device: &DeviceId, token: &ActToken) -> Result<()>;

    /// Reads all devices once, with the requested groups of details.
    ///
    /// It never fails: each failure is recorded as a fault instead of the value it affects. The
    /// default calls the methods above one by one; a backend that can answer everything at once
    /// does so.
    fn inventory(&self, groups: Groups) -> Inventory {
        take(self, groups)
    }

    /// Returns the live children of the calling process that it keeps for its own work.
    fn helpers(&self) -> Vec<Pid> {
        Vec::new()
    }

    /// Returns whether it keeps every device awake between calls, so that sleeping devices need not
    /// be left alone.
    fn keeps_devices_awake(&self) -> bool {
        false
    }
}

/// Makes the queries of a backend one by one.
fn take<B: GpuBackend + ?Sized>(backend: &B, groups: Groups) -> Inventory {
    let driver = ask(|| backend.driver());
    if driver.as_ref().is_err_and(|fault| is_machine_wide(fault.kind)) {
        return Inventory { driver, devices: Vec::new() };
    }
    match ask(|| backend.devices()) {
        Ok(infos) => {
            let states = infos.into_iter().map(|info| DeviceState::ask(backend, info, groups));
            Inventory { driver, devices: states.collect() }
        }
        Err(fault) => Inventory { driver: Err(fault), devices: Vec::new() },
    }
}

/// Returns whether further queries are useless after this failure: the machine does not answer, or
/// blocks the caller.
fn is_machine_wide(kind: ErrorKind) -> bool {
    kind.reach() == Reach::Machine || kind == ErrorKind::TimedOut
}

impl DeviceState {
    /// Queries everything of one device; a device that timed out is not queried again.
    pub fn ask<B: GpuBackend + ?Sized>(backend: &B, info: DeviceInfo, groups: Groups) -> Self {
        let sample = ask(|| backend.sample(&info.id));
        let mut hung = hanging(&sample);
        let mut processes = unless(&hung, || ask(|| backend.processes(&info.id)));
        hung = hung.or_else(|| hanging(&processes));
        let partitions = unless(&hung, || ask(|| backend.partitions(&info.id)));
        hung = hung.or_else(|| hanging(&partitions));
        let details = if groups.is_empty() {
            Ok(DeviceDetails::default())
        } else {
            unless(&hung, || ask(|| backend.details(&info.id, groups)))
        };
        if let (Ok(sample), Ok(processes)) = (&sample, &mut processes) {
            drop_idle_for_all(sample.utilization.is_ok_and(|busy| busy.get() > 0), processes);
        }
        DeviceState { info, sample, processes, partitions, details }
    }
}

/// A busy device on which every listed process is reported idle: the process samples lag behind or
/// miss the busy process, so none of them is evidence.
fn drop_idle_for_all(busy: bool, processes: &mut [DeviceProcess]) {
    let idle = |process: &DeviceProcess| process.utilization.is_ok_and(|share| share.get() == 0);
    if busy && processes.iter().all(idle) {
        for process in processes {
            process.utilization = Err(Absent::Implausible);
        }
    }
}

fn hanging<T>(answer: &Result<T, Fault>) -> Option<Fault> {
    answer.as_ref().err().filter(|fault| is_machine_wide(fault.kind)).cloned()
}

fn unless<T>(
    hung: &Option<Fault>,
    question: impl FnOnce() -> Result<T, Fault>,
) -> Result<T, Fault> {
    hung.clone().map_or_else(question, Err)
}
