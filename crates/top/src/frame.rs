//! A snapshot of the machine, with the rows that are derived from it.

use crate::rows::{self, Device, Row};
use gpu_core::{
    DeviceId, DeviceState, Driver, ErrorKind, HolderSearch, HostLoad, Observation, Origin,
    ProcessDetail, ProcessKey, Snapshot, Timestamp, clean,
};
use gpu_reaper::{Diagnosis, Usage};
use gpu_report::{ProcessFilter, fault, wording};
use gpu_steward::DeviceLeases;
use std::collections::BTreeMap;
use std::time::Duration;

/// One snapshot: the state of the machine, its diagnosis, and its leases.
#[derive(Clone, Debug)]
pub struct Frame {
    /// The state of the whole machine.
    pub snapshot: Snapshot,
    /// The diagnosis of the whole machine.
    pub diagnosis: Diagnosis,
    /// The devices that are shown, each followed by its MIG devices.
    pub devices: Vec<Device>,
    /// The users of these devices, by device; within a device, in the driver's order.
    pub rows: Vec<Row>,
    /// The ancestors of the processes in `rows` that use no device; empty until they are needed.
    pub(crate) parents: Vec<Row>,
    /// The time of the snapshot that devices and rows come from, if the driver reported none in
    /// this one.
    pub(crate) as_of: Option<Timestamp>,
    /// When the processes were read, relative to a fixed time.
    pub(crate) read_at: Duration,
    /// The load of the host; `None` if it was not read.
    pub(crate) load: Option<HostLoad>,
    /// The busy share of its processors since the previous snapshot, in percent.
    pub(crate) busy: Option<u8>,
    /// Why devices, rows or leases are not known. Text is escaped.
    pub unknown: Vec<String>,
    /// Which processes are shown, unless all are: `only processes of alice; 2 rows left out`.
    pub only: Option<String>,
}

/// The CPU times of processes in a snapshot, from which their shares in the next one follow.
#[derive(Clone, Debug, Default)]
pub struct CpuTimes {
    /// When the processes were read, as [`Frame::read_at`].
    pub(crate) read_at: Duration,
    pub(crate) times: BTreeMap<ProcessKey, Duration>,
}

impl CpuTimes {
    /// Returns the CPU times in a snapshot of a recording.
    pub fn of(snapshot: &Snapshot) -> Self {
        let known = snapshot.processes.values().filter_map(|process| process.0.as_ref().ok());
        let times = known.filter_map(|info| Some((info.key, info.cpu_time.ok()?)));
        CpuTimes { read_at: Duration::from_millis(snapshot.taken_at.0), times: times.collect() }
    }
}

/// Returns what a snapshot for the screen covers: only the process details of a list, except for
/// suspects.
pub fn observation() -> Observation {
    Observation {
        groups: gpu_reaper::defect_groups(),
        holders: HolderSearch::wanted(false),
        processes: ProcessDetail::WithJob,
        driver_messages: false,
    }
}

impl Frame {
    /// Derives the rows of a snapshot. `shown` selects devices and `filter` processes; memory
    /// without a listed process is always shown. `user_name` returns the name of a user by UID, for
    /// the owners of leases.
    pub fn of(
        snapshot: Snapshot,
        diagnosis: Diagnosis,
        leased: &DeviceLeases,
        shown: impl Fn(&DeviceId) -> bool,
        filter: &ProcessFilter,
        user_name: &dyn Fn(u32) -> String,
    ) -> Self {
        let usage = Usage::of(&snapshot);
        let source = rows::RowSource { snapshot: &snapshot, diagnosis: &diagnosis, usage: &usage };
        let visible = || snapshot.devices.iter().filter(|device| shown(device.id()));
        let devices = visible().flat_map(|device| {
            let whole = source.device(device, leased, user_name);
            std::iter::once(whole).chain(source.parts(device, leased, user_name))
        });
        let devices = devices.collect();
        let mut rows: Vec<Row> =
            visible().flat_map(|device| source.rows_of(device, leased)).collect();
        let all = rows.len();
        rows.retain(|row| row.pid().is_none_or(|pid| filter.shows(&snapshot, pid)));
        let only = filter.describe(all - rows.len());
        let only = (!filter.is_empty()).then(|| clean(&only).into_owned());
        let leases = leased.fault().map(|fault| format!("leases unknown: failed to {fault}"));
        // Other effects of a driver failure are shown in place of the devices.
        let driver =
            snapshot.driver.as_ref().err().filter(|fault| fault.kind == ErrorKind::TimedOut);
        let driver = driver.map(|fault| format!("failed to {fault}"));
        let unknown = driver.into_iter().chain(wording::unknown_users(visible())).chain(leases);
        let unknown = unknown.map(|text| clean(&text).into_owned()).collect();
        let (parents, as_of, load, busy) = (Vec::new(), None, None, None);
        let read_at = Duration::from_millis(snapshot.taken_at.0);
        Frame {
            devices,
            rows,
            parents,
            as_of,
            read_at,
            load,
            busy,
            unknown,
            only,
            snapshot,
            diagnosis,
        }
    }

    /// Sets when the processes were read, on the monotonic clock. CPU shares follow from it: a
    /// snapshot begins long before, if the driver is slow, and its time comes from a clock that may
    /// be set.
    #[must_use]
    pub fn read_at(self, read_at: Duration) -> Self {
        Frame { read_at, ..self }
    }

    /// Sets the load of the host.
    #[must_use]
    pub fn load(self, load: Option<HostLoad>) -> Self {
        Frame { load, ..self }
    }

    /// Takes over the devices and rows of an earlier snapshot if the driver reported none in this
    /// one, or did not answer for any in time: the last known state is more useful than an empty
    /// screen.
    pub(crate) fn keep(&mut self, earlier: &Frame) {
        let is_late = |device: &DeviceState| {
            device.sample.as_ref().is_err_and(|fault| fault.kind == ErrorKind::TimedOut)
        };
        let devices = &self.snapshot.devices;
        let is_answered = if devices.is_empty() {
            self.snapshot.driver.is_ok()
        } else {
            !devices.iter().all(is_late)
        };
        let earlier_devices = &earlier.snapshot.devices;
        let was_answered = earlier.as_of.is_some() || !earlier_devices.iter().all(is_late);
        if is_answered || !was_answered || earlier.devices.is_empty() {
            return;
        }
        self.as_of = earlier.as_of.or(Some(earlier.snapshot.taken_at));
        self.devices.clone_from(&earlier.devices);
        self.rows.clone_from(&earlier.rows);
        self.parents.clone_from(&earlier.parents);
        for device in &mut self.devices {
            // This is unknown now.
            device.is_free = false;
        }
    }

    /// Returns the host name, escaped; `None` if it is unknown.
    pub fn host(&self) -> Option<String> {
        self.snapshot.hostname.as_deref().ok().map(|name| clean(name).into_owned())
    }

    /// Returns the label of a machine that is not this one, such as `simulated machine labbox`.
    pub fn label(&self) -> Option<String> {
        let origin = &self.snapshot.origin;
        (*origin != Origin::Live).then(|| clean(&origin.to_string()).into_owned())
    }

    /// Returns the driver and its version, or why it cannot be queried.
    ///
    /// # Errors
    /// The reason, as a phrase.
    pub fn driver(&self) -> Result<String, String> {
        match &self.snapshot.driver {
            Ok(Driver { version: Ok(version), .. }) => Ok(format!("driver {}", clean(version))),
            Ok(_) => Ok("driver of unknown version".to_owned()),
            Err(fault) => Err(clean(&fault::brief(fault)).into_owned()),
        }
    }

    /// Formats `4 GPUs, 1 free`, `1 GPU, 0 free, 1 MIG device free`.
    pub fn summary(&self) -> String {
        let whole = || self.devices.iter().filter(|device| device.mig.is_none());
        let free = whole().filter(|device| device.is_free).count();
        let parts = self.devices.iter().filter(|device| device.mig.is_some() && device.is_free);
        wording::free(&self.snapshot, whole().count(), free, parts.count())
    }
}
