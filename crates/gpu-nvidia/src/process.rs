//! The processes on a device.
//!
//! NVML has three lists, and a process may be in several. Each list has three versions of its
//! function: the first does not report instances, and the third is the same as the second, except
//! in drivers 535.43 to 535.103, whose entries were larger.

use crate::call::{Answer, Failure};
use crate::code::Code;
use crate::device::Device;
use crate::mig::instance_id;
use crate::process_utilization::shares;
use crate::session::Opened;
use crate::value::bytes;
use gpu_core::{
    Absent, Bytes, DeviceProcess, DeviceProcessKind, Error, ErrorKind, Pid, Reach, Reading, Result,
    plausible,
};
use nvml_wrapper_sys::bindings::{nvmlProcessInfo_v1_t, nvmlProcessInfo_v2_t};
use std::collections::BTreeMap;

/// An entry of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Listed {
    pid: u32,
    /// All ones under WDDM, in some WSL versions, and without permission.
    memory: u64,
    gpu_instance: u32,
    compute_instance: u32,
}

impl From<nvmlProcessInfo_v1_t> for Listed {
    fn from(entry: nvmlProcessInfo_v1_t) -> Self {
        Listed {
            pid: entry.pid,
            memory: entry.usedGpuMemory,
            gpu_instance: u32::MAX,
            compute_instance: u32::MAX,
        }
    }
}

impl From<nvmlProcessInfo_v2_t> for Listed {
    fn from(entry: nvmlProcessInfo_v2_t) -> Self {
        Listed {
            pid: entry.pid,
            memory: entry.usedGpuMemory,
            gpu_instance: entry.gpuInstanceId,
            compute_instance: entry.computeInstanceId,
        }
    }
}

/// Queries one version of a list.
type List<'a, T> = fn(&Device<'a>) -> Answer<Vec<T>>;

impl Opened<'_> {
    /// Returns the processes on a device, sorted by PID and instance, each once.
    ///
    /// # Errors
    /// `Field` if the device has none of the lists, or a list is not permitted; `Device` or
    /// `Machine` if a query returns such a code; `Again` if a list grew faster than it could be
    /// read.
    pub(crate) fn processes(self, device: Device<'_>) -> Result<Vec<DeviceProcess>> {
        let compute =
            self.list(device, [Device::compute_v3, Device::compute_v2], Device::compute_v1)?;
        let graphics =
            self.list(device, [Device::graphics_v3, Device::graphics_v2], Device::graphics_v1)?;
        let mps = self.list(device, [Device::mps_v3, Device::mps_v2], Device::mps_v1)?;
        let mut processes = joined([
            (DeviceProcessKind::Compute, compute),
            (DeviceProcessKind::Graphics, graphics),
            (DeviceProcessKind::Mps, mps),
        ])
        .map_err(|failure| failure.error(of_list))?;
        all_have_numbers(&processes)?;
        if processes.is_empty() {
            return Ok(processes);
        }
        // With MIG, the driver does not report the utilisation of processes.
        let shares = if self.mig_mode(device)?.is_ok_and(|(now, _)| now) {
            Err(Absent::NotSupported)
        } else {
            shares(device, self.simulated)?
        };
        for process in &mut processes {
            process.utilization = match &shares {
                Ok(shares) => shares.of(process.pid),
                Err(reason) => Err(*reason),
            };
        }
        Ok(processes)
    }

    /// Returns one of the lists, through the newest function version that the driver supports.
    ///
    /// # Errors
    /// `Device`, `Machine` and `Again`; a failure that concerns only this list is in the inner
    /// result.
    fn list<'a>(
        self,
        device: Device<'a>,
        [third, second]: [List<'a, nvmlProcessInfo_v2_t>; 2],
        first: List<'a, nvmlProcessInfo_v1_t>,
    ) -> Result<Answer<Vec<Listed>>> {
        let with_instances =
            [third, second].into_iter().skip(if self.third_is_larger()? { 1 } else { 0 });
        for list in with_instances {
            match list(&device) {
                Err(failure) if failure.is_too_old() => {}
                answer => return answer_of(answer),
            }
        }
        answer_of(first(&device))
    }

    /// Returns whether entries of the third version may be larger; `true` if the driver version is
    /// unknown.
    fn third_is_larger(self) -> Result<bool> {
        Ok(self.driver_version()?.map_or(true, |version| has_larger_entries(&version)))
    }
}

/// Maps a code from a list query; unlike for a value, an invalid argument is a fault.
fn of_list(code: Code) -> ErrorKind {
    code.of_device()
}

fn answer_of<T: Into<Listed>>(answer: Answer<Vec<T>>) -> Result<Answer<Vec<Listed>>> {
    match answer {
        Ok(list) => Ok(Ok(list.into_iter().map(Into::into).collect())),
        Err(failure) if failure.cause.kind(of_list).reach() == Reach::Field => Ok(Err(failure)),
        Err(failure) => Err(failure.error(of_list)),
    }
}

/// Returns whether a driver has the larger entries: from 535.43 to before 535.104.
fn has_larger_entries(version: &str) -> bool {
    let mut parts = version.split('.').map(|part| part.parse::<u32>().ok());
    match (parts.next().flatten(), parts.next().flatten()) {
        (Some(535), Some(minor)) => (43..104).contains(&minor),
        (Some(_), _) => false,
        (None, _) => true,
    }
}

/// Joins the lists: each process once per instance, sorted by PID and instance.
///
/// Missing graphics and MPS lists count as empty. A missing compute list does not: its processes
/// would be unknown, and their memory would look like a ghost's.
///
/// # Errors
/// The first failure of a list.
fn joined(lists: [(DeviceProcessKind, Answer<Vec<Listed>>); 3]) -> Answer<Vec<DeviceProcess>> {
    let missing = |kind, failure: &Failure| {
        let absent = failure.cause.kind(of_list).absent();
        kind != DeviceProcessKind::Compute
            && matches!(absent, Absent::NotSupported | Absent::TooOld)
    };
    let mut known = BTreeMap::new();
    for (kind, list) in lists {
        match list {
            Ok(list) => {
                for entry in list {
                    let entry = process(kind, entry);
                    let key = (entry.pid, entry.gpu_instance, entry.compute_instance);
                    known.entry(key).and_modify(|known| merge(known, &entry)).or_insert(entry);
                }
            }
            Err(failure) if missing(kind, &failure) => {}
            Err(failure) => return Err(failure),
        }
    }
    Ok(known.into_values().collect())
}

/// Rejects a list with an invalid PID: without that entry the list would be incomplete, and the
/// memory of the process unexplained.
fn all_have_numbers(processes: &[DeviceProcess]) -> Result<()> {
    match processes.iter().find(|process| !plausible::is_pid(process.pid)) {
        None => Ok(()),
        Some(process) => {
            let what =
                format!("list the processes: the driver reported invalid PID {}", process.pid);
            Err(Error::new(ErrorKind::Field(Absent::Implausible), what))
        }
    }
}

fn process(kind: DeviceProcessKind, entry: Listed) -> DeviceProcess {
    DeviceProcess {
        pid: Pid(entry.pid),
        kind,
        memory: bytes(entry.memory),
        utilization: Err(Absent::NotSupported),
        name: Err(Absent::NotSupported),
        gpu_instance: instance_id(entry.gpu_instance).ok(),
        compute_instance: instance_id(entry.compute_instance).ok(),
    }
}

/// Merges another entry of the same process. Each list reports the total memory, so the larger
/// amount is the more recent one; the amounts must not be added.
fn merge(known: &mut DeviceProcess, more: &DeviceProcess) {
    use DeviceProcessKind::{ComputeAndGraphics, Graphics};
    known.kind = match (known.kind, more.kind) {
        (a, b) if a == b => a,
        (ComputeAndGraphics | Graphics, _) | (_, ComputeAndGraphics | Graphics) => {
            ComputeAndGraphics
        }
        // An MPS client may also be in the compute list.
        _ => DeviceProcessKind::Mps,
    };
    known.memory = larger(known.memory, more.memory);
}

fn larger(a: Reading<Bytes>, b: Reading<Bytes>) -> Reading<Bytes> {
    match (a, b) {
        (Ok(a), Ok(b)) => Ok(a.max(b)),
        (reported, Err(_)) | (Err(_), reported) => reported,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use DeviceProcessKind::{Compute, ComputeAndGraphics, Graphics, Mps};

    const NONE: u32 = u32::MAX;

    fn entry(pid: u32, mib: u64, instance: u32) -> Listed {
        Listed { pid, memory: mib << 20, gpu_instance: instance, compute_instance: NONE }
    }

    fn lists(
        compute: Answer<Vec<Listed>>,
        graphics: Answer<Vec<Listed>>,
        mps: Answer<Vec<Listed>>,
    ) -> Answer<Vec<DeviceProcess>> {
        joined([(Compute, compute), (Graphics, graphics), (Mps, mps)])
    }

    fn failure<T>(code: Code) -> Answer<T> {
        Err(Failure::of(code))
    }

    #[test]
    fn process_is_listed_once_per_mig_instance() {
        let compute = vec![entry(9, 100, NONE), entry(7, 50, 2), entry(7, 30, 1)];
        let graphics = vec![entry(9, 120, NONE), entry(8, 4, NONE)];
        let mps = vec![entry(7, 50, 2)];
        let listed = lists(Ok(compute), Ok(graphics), Ok(mps)).unwrap();
        let seen: Vec<_> = listed
            .iter()
            .map(|p| (p.pid.0, p.gpu_instance, p.kind, p.memory.unwrap().mib()))
            .collect();
        assert_eq!(
            seen,
            [
                (7, Some(1), Compute, 30),
                (7, Some(2), Mps, 50),
                (8, None, Graphics, 4),
                (9, None, ComputeAndGraphics, 120),
            ]
        );
    }

    #[test]
    fn unreported_memory_is_absent_not_zero() {
        let unreported = Listed { memory: u64::MAX, ..entry(7, 0, NONE) };
        let listed = lists(Ok(vec![unreported]), Ok(vec![]), Ok(vec![])).unwrap();
        assert_eq!(listed[0].memory, Err(Absent::NotSupported));
        let listed = lists(Ok(vec![unreported]), Ok(vec![entry(7, 5, NONE)]), Ok(vec![])).unwrap();
        assert_eq!(listed[0].memory, Ok(Bytes::from_mib(5)));
    }

    #[test]
    fn unsupported_list_is_empty_except_compute() {
        for code in [Code::NOT_SUPPORTED, Code::FUNCTION_NOT_FOUND] {
            let some = lists(Ok(vec![entry(7, 1, NONE)]), failure(code), failure(code));
            assert_eq!(some.unwrap().len(), 1);
            assert_eq!(lists(Ok(vec![]), failure(code), failure(code)).unwrap(), []);
            let unreported = lists(failure(code), Ok(vec![entry(7, 1, NONE)]), Ok(vec![]));
            assert_eq!(unreported.unwrap_err(), Failure::of(code));
        }
    }

    #[test]
    fn unpermitted_list_is_an_error() {
        let denied = lists(Ok(vec![entry(7, 1, NONE)]), Ok(vec![]), failure(Code::NO_PERMISSION));
        assert_eq!(denied.unwrap_err(), Failure::of(Code::NO_PERMISSION));
    }

    #[test]
    fn invalid_pid_invalidates_list() {
        let listed =
            |pid| lists(Ok(vec![entry(7, 1, NONE), entry(pid, 1, NONE)]), Ok(vec![]), Ok(vec![]));
        assert!(all_have_numbers(&listed(8).unwrap()).is_ok());
        for pid in [0, u32::MAX] {
            let error = all_have_numbers(&listed(pid).unwrap()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Field(Absent::Implausible), "{pid}");
        }
    }

    #[test]
    fn drivers_with_larger_process_entries_are_recognised() {
        for version in ["535.43.02", "535.86.10", "535.103", "what is this", ""] {
            assert!(has_larger_entries(version), "{version}");
        }
        for version in ["535.104.05", "535.261.03", "418.226", "535.40", "550.54.14", "570"] {
            assert!(!has_larger_entries(version), "{version}");
        }
    }

    #[test]
    fn kind_of_process_in_several_lists_covers_all() {
        for (first, second, both) in [
            (Compute, Compute, Compute),
            (Compute, Graphics, ComputeAndGraphics),
            (Graphics, Compute, ComputeAndGraphics),
            (Graphics, Mps, ComputeAndGraphics),
            (Mps, Graphics, ComputeAndGraphics),
            (ComputeAndGraphics, Compute, ComputeAndGraphics),
            (Mps, ComputeAndGraphics, ComputeAndGraphics),
            (Compute, Mps, Mps),
        ] {
            let mut known = process(first, entry(7, 30, 1));
            merge(&mut known, &process(second, entry(7, 20, 1)));
            assert_eq!((known.kind, known.memory), (both, Ok(Bytes::from_mib(30))));
        }
    }

    #[test]
    fn older_entries_have_no_instances() {
        let first: Listed = nvmlProcessInfo_v1_t { pid: 7, usedGpuMemory: 9 }.into();
        let first = process(Compute, first);
        assert_eq!((first.pid, first.memory), (Pid(7), Ok(Bytes(9))));
        assert_eq!((first.gpu_instance, first.compute_instance), (None, None));
        let second: Listed = nvmlProcessInfo_v2_t {
            pid: 7,
            usedGpuMemory: 9,
            gpuInstanceId: 1,
            computeInstanceId: 0,
        }
        .into();
        let second = process(Compute, second);
        assert_eq!((second.gpu_instance, second.compute_instance), (Some(1), Some(0)));
    }
}
