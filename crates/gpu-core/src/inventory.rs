//! One read of all devices, as plain data.

use crate::absent::Absent;
use crate::backend::GpuBackend;
use crate::details::{DeviceDetails, Groups};
use crate::device::{DeviceInfo, DeviceProcess, Driver};
use crate::error::{Error, ErrorKind, Fault, Reach, Result};
use crate::snapshot::DeviceState;

/// How often to repeat a query that the machine could not answer *this* time.
const TRIES: usize = 4;

/// What the driver reports about all devices at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Inventory {
    /// The driver, or why it cannot be queried.
    pub driver: Result<Driver, Fault>,
    /// The devices by index; none when the driver does not answer.
    pub devices: Vec<DeviceState>,
}

impl Inventory {
    /// Returns an inventory without any data.
    pub fn failed(error: &Error) -> Self {
        Inventory { driver: Err(error.fault()), devices: Vec::new() }
    }
}

/// Makes the queries of a backend one by one.
pub(crate) fn take<B: GpuBackend + ?Sized>(backend: &B, groups: Groups) -> Inventory {
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
        let mig = unless(&hung, || ask(|| backend.mig_instances(&info.id)));
        hung = hung.or_else(|| hanging(&mig));
        let details = match groups.is_empty() {
            true => Ok(DeviceDetails::default()),
            false => unless(&hung, || ask(|| backend.details(&info.id, groups))),
        };
        if let (Ok(sample), Ok(processes)) = (&sample, &mut processes) {
            drop_idle_for_all(sample.utilization.is_ok_and(|busy| busy.get() > 0), processes);
        }
        DeviceState { info, sample, processes, mig, details }
    }

    /// Returns a device that was not queried, or did not answer, because of `fault`.
    pub fn unanswered(info: DeviceInfo, groups: Groups, fault: &Fault) -> Self {
        DeviceState {
            info,
            sample: Err(fault.clone()),
            processes: Err(fault.clone()),
            mig: Err(fault.clone()),
            details: match groups.is_empty() {
                true => Ok(DeviceDetails::default()),
                false => Err(fault.clone()),
            },
        }
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

/// Repeats a query a few times, without delay, if it could not be answered this time.
///
/// # Errors
/// Those of the query, as data.
pub fn ask<T>(question: impl Fn() -> Result<T>) -> Result<T, Fault> {
    let mut answer = question();
    for _ in 1..TRIES {
        match &answer {
            Err(error) if error.kind().reach() == Reach::Again => answer = question(),
            _ => break,
        }
    }
    answer.map_err(|error| error.fault())
}
