//! The real processes of a session. No other process can be ended within it.

use crate::{ExternalProcess, Session};
use gpu_core::{
    ErrorKind, Host, ProcessFault, ProcessHandle, ProcessInfo, ProcessKey, Result, StartTime,
};
use std::path::Path;

/// The maximum number of ancestors to follow; a forged `/proc` could contain a cycle.
const ANCESTORS: usize = 1 << 16;

/// Returns whether an opened process belongs to the session in a directory: it is a placeholder, or
/// it registered itself as external and has the session's device files open, or it descends from
/// this program.
///
/// # Errors
/// `Process(Gone)` if the process has ended, or if it reuses the PID of a placeholder.
pub(super) fn belongs(
    handle: &dyn ProcessHandle,
    host: &dyn Host,
    session: &Session,
    dir: &Path,
) -> Result<bool> {
    let ProcessKey { pid, start } = handle.info()?.key;
    let started = |ticks| start == Some(StartTime(ticks));
    if let Some(known) = session.placeholders.iter().find(|known| known.pid == pid.0) {
        return if started(known.start_ticks) {
            Ok(true)
        } else {
            Err(gpu_core::Error::new(ProcessFault::Gone, format!("open process {pid}")))
        };
    }
    // A session that was created by hand may not admit external processes.
    let externals = ExternalProcess::named(dir).unwrap_or_default();
    if externals.iter().any(|known| known.pid == pid.0 && started(known.start_ticks)) {
        // The entry can name any process. Only a process of the session has these files open.
        return Ok(!handle.held(&host.device_files()?)?.is_empty());
    }
    descends(host, ProcessKey { pid, start })
}

/// Returns whether a process descends from this program.
fn descends(host: &dyn Host, key: ProcessKey) -> Result<bool> {
    let own = host.own_ancestry()?.first().copied();
    let Some(mut child) = found(host.process(key.pid))?.filter(|child| child.key == key) else {
        return Ok(false);
    };
    for _ in 0..ANCESTORS {
        let Ok(pid) = child.parent else { return Ok(false) };
        if pid.0 == 0 {
            return Ok(false);
        }
        let Some(parent) = found(host.process(pid))? else { return Ok(false) };
        // A parent that is younger than its child is another process that reuses the PID.
        if parent.key.start.is_none() || parent.key.start > child.key.start {
            return Ok(false);
        }
        if Some(parent.key) == own {
            return Ok(true);
        }
        child = parent;
    }
    Ok(false)
}

/// Maps a process that is gone to `None`.
fn found(process: Result<ProcessInfo>) -> Result<Option<ProcessInfo>> {
    match process {
        Err(error) if error.kind() == ErrorKind::Process(ProcessFault::Gone) => Ok(None),
        process => process.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Placeholder, Use};
    use gpu_core::{Access, Error, MockHost, MockProcessHandle, Pid};

    const OWN: ProcessKey = ProcessKey { pid: Pid(50), start: Some(StartTime(500)) };

    /// Returns a host with these processes: PID, start time, parent.
    fn host(processes: &'static [(u32, u64, u32)]) -> MockHost {
        let mut host = MockHost::new();
        host.expect_own_ancestry().returning(|| Ok(vec![OWN]));
        host.expect_process().returning(|pid| {
            let known = processes.iter().find(|(own, ..)| *own == pid.0);
            let (pid, start, parent) = known
                .ok_or_else(|| Error::new(ProcessFault::Gone, format!("inspect process {pid}")))?;
            let mut info = ProcessInfo::from_name(Pid(*pid), "a");
            info.key.start = Some(StartTime(*start));
            info.parent = Ok(Pid(*parent));
            Ok(info)
        });
        host
    }

    /// Returns a process with this PID and start time that has `files` files of the session open.
    fn opened(pid: u32, start: u64, files: usize) -> MockProcessHandle {
        let mut handle = MockProcessHandle::new();
        let mut info = ProcessInfo::from_name(Pid(pid), "a");
        info.key.start = Some(StartTime(start));
        handle.expect_info().returning(move || Ok(info.clone()));
        let held = gpu_nvidia_driver::held_file("/dev/nvidia0", Access::MAPPED);
        handle.expect_held().returning(move |_| Ok(vec![held.clone(); files]));
        handle
    }

    #[test]
    fn session_membership_requires_start_time_and_open_files() {
        let dir = tempfile::tempdir().unwrap();
        ExternalProcess::admit(dir.path()).unwrap();
        let uses = vec![Use { gpu: 0, mig: None, mib: 1, utilization_percent: None }];
        ExternalProcess { pid: 70, start_ticks: 700, uses }.enter(dir.path()).unwrap();
        let session: Session = serde_json::from_value(serde_json::json!({
            "machine": "labbox", "began_ns": 0, "live": true,
            "placeholders": [Placeholder { simulated: 21044, pid: 60, start_ticks: 600 }],
        }))
        .unwrap();
        let ask = |handle: &MockProcessHandle| {
            let mut host = host(&[(1, 1, 0), (50, 500, 1), (60, 600, 1), (70, 700, 1)]);
            host.expect_device_files().returning(|| Ok(Vec::new()));
            belongs(handle, &host, &session, dir.path())
        };
        assert!(ask(&opened(60, 600, 0)).unwrap(), "a placeholder");
        let gone = ask(&opened(60, 601, 1)).unwrap_err().kind();
        assert_eq!(gone, ErrorKind::Process(ProcessFault::Gone), "one with its number");
        assert!(ask(&opened(70, 700, 1)).unwrap(), "a registered process with the files open");
        assert!(!ask(&opened(70, 700, 0)).unwrap(), "a registered process without the files");
        assert!(!ask(&opened(70, 701, 1)).unwrap(), "one with its number");
        assert!(!ask(&opened(1, 1, 1)).unwrap(), "a stranger");
    }

    #[test]
    fn descendants_match_by_pid_and_start_time() {
        let key = |pid, start| ProcessKey { pid: Pid(pid), start: Some(StartTime(start)) };
        let line = &[(1, 1, 0), (50, 500, 1), (60, 600, 50), (70, 700, 60)];
        assert!(descends(&host(line), key(60, 600)).unwrap());
        assert!(descends(&host(line), key(70, 700)).unwrap());
        assert!(!descends(&host(line), OWN).unwrap(), "this one itself");
        assert!(!descends(&host(line), key(1, 1)).unwrap());
        assert!(!descends(&host(line), key(70, 701)).unwrap(), "another with its number");
        assert!(!descends(&host(line), key(80, 800)).unwrap(), "no descendant");
        for broken in [
            // The PID was reused by a process younger than the child.
            &[(1, 1, 0), (50, 500, 1), (60, 800, 50), (70, 700, 60)][..],
            // The PID of this program, with an earlier start time.
            &[(1, 1, 0), (50, 400, 1), (60, 600, 50), (70, 700, 60)],
            // The parent is gone.
            &[(1, 1, 0), (50, 500, 1), (70, 700, 60)],
            // A cycle.
            &[(70, 700, 71), (71, 700, 70)],
        ] {
            assert!(!descends(&host(broken), key(70, 700)).unwrap(), "{broken:?}");
        }
    }
}
