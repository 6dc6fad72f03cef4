//! The port to the devices.

use crate::absent::Absent;
use crate::details::{DeviceDetails, DeviceEvent, Groups};
use crate::device::{DeviceInfo, DeviceProcess, DeviceSample, Driver, MigInstance};
use crate::error::{Error, Result};
use crate::id::{DeviceId, Pid};
use crate::inventory::{self, Inventory};
use crate::snapshot::Origin;
use crate::token::ActToken;
use crate::topology::{PeerAccess, PeerCapability, Topology};
use std::time::Duration;

/// Reads the devices of a machine.
///
/// Each method is one query, which may be repeated at any time; [`look`](GpuBackend::look) makes
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
    fn mig_instances(&self, device: &DeviceId) -> Result<Vec<MigInstance>>;

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
    /// It never fails: each failure is recorded as a fault in the place of the value it affects.
    /// The default calls the methods above one by one; a backend that can answer everything at once
    /// does so.
    fn look(&self, groups: Groups) -> Inventory {
        inventory::take(self, groups)
    }

    /// Returns the live children of the calling process that it keeps for its own work.
    fn helpers(&self) -> Vec<Pid> {
        Vec::new()
    }

    /// Returns whether it keeps every device awake between calls, so that none has to be left alone
    /// because it sleeps.
    fn keeps_devices_awake(&self) -> bool {
        false
    }
}
