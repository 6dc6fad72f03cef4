//! A session with the simulated NVML, and the real backend that uses it.

use gpu_nvidia::{Helper, NvmlChild};
use gpu_sim::{CallFault, Session, Simulation};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The session directory of a simulated NVML.
pub(crate) struct Fixture {
    dir: tempfile::TempDir,
    session: Session,
}

impl Fixture {
    /// Creates a session of a machine with its time stopped at `at`.
    pub(crate) fn of(machine: &str, at: Duration) -> Self {
        Fixture::with(machine, at, Vec::new())
    }

    /// Like `of`, with faults in NVML calls.
    pub(crate) fn with(machine: &str, at: Duration, faults: Vec<CallFault>) -> Self {
        let session = Session {
            machine: machine.into(),
            seed: 7,
            frozen_at_ms: Some(at.as_millis() as u64),
            faults,
            counts_calls: true,
            ..Session::default()
        };
        let dir = tempfile::tempdir().unwrap();
        session.write(dir.path()).unwrap();
        Fixture { dir, session }
    }

    /// Creates a session of a machine that starts now, with advancing time.
    pub(crate) fn moving(machine: &str) -> Self {
        let mut fixture = Fixture::of(machine, Duration::ZERO);
        let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
        let seconds: f64 = uptime.split(' ').next().unwrap().parse().unwrap();
        fixture.session.began_ns = (seconds * 1e9) as u64;
        fixture.session.frozen_at_ms = None;
        fixture.session.write(fixture.dir.path()).unwrap();
        fixture
    }

    /// Returns the session's machine at its stopped time, without NVML.
    pub(crate) fn simulation(&self) -> Simulation {
        let simulation = self.session.open().unwrap();
        simulation.advance_to(self.session.elapsed(0));
        simulation
    }

    /// Returns the real backend on the simulated NVML.
    pub(crate) fn nvml(&self, deadline: Duration) -> NvmlChild {
        let variable = format!("{}={}", Session::VARIABLE, self.dir.path().display());
        let helper = Helper {
            // The environment passes the session; a test cannot change its own environment.
            arguments: vec![variable.into(), env!("CARGO_BIN_EXE_nvml-helper").into()],
            library: Some(library()),
            ..Helper::new("/usr/bin/env")
        };
        NvmlChild::new(helper, deadline, Box::new(|_| {}))
    }

    /// Returns the number of calls of each function by programs that have ended.
    pub(crate) fn calls(&self) -> BTreeMap<String, u64> {
        let text = std::fs::read_to_string(self.dir.path().join(Session::CALLS));
        let mut all = BTreeMap::new();
        for line in text.unwrap_or_default().lines() {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            for (function, count) in line["calls"].as_object().unwrap() {
                *all.entry(function.clone()).or_default() += count.as_u64().unwrap();
            }
        }
        all
    }
}

/// Returns the simulated NVML, which cargo puts next to the tests.
fn library() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let library = own.parent().unwrap_or(Path::new(".")).join("libnvml_sim.so");
    assert!(library.is_file(), "{} is not built", library.display());
    library
}

/// The times of the snapshots: at the start, and after changes.
pub(crate) const MOMENTS: [Duration; 3] =
    [Duration::ZERO, Duration::from_millis(7_300), Duration::from_secs(3_600)];
