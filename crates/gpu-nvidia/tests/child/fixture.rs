//! A child in a temporary directory, and its messages.

use gpu_core::{
    Absent, DeviceId, DeviceInfo, DeviceState, Driver, ErrorKind, Fault, Groups, Inventory,
};
use gpu_nvidia::{Helper, NvmlChild, Waiting};
use rustix::event::{Timespec, poll};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

pub(crate) const GREETING: &str = r#"echo '{"greeting":{"protocol":6,"simulated":null}}'"#;

/// Much longer than any step of these tests.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// Shorter than the silence of the children in these tests.
pub(crate) const SHORT: Duration = Duration::from_millis(300);

/// A directory with a child that records each start: a script, or the real one.
pub(crate) struct Child {
    pub(crate) dir: TempDir,
    arguments: Vec<OsString>,
}

impl Child {
    /// A child that runs a script. `$1` is its directory.
    pub(crate) fn script(script: &str) -> Self {
        Child::run(&[], script)
    }

    /// The real child.
    pub(crate) fn real(library: &[&Path]) -> Self {
        let helper = Path::new(env!("CARGO_BIN_EXE_gpu-nvidia-helper"));
        Child::run(&[&[helper], library].concat(), r#"shift; exec "$@""#)
    }

    fn run(command: &[&Path], script: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("proc")).unwrap();
        let script = format!("echo $$ >> \"$1/starts\"\n{script}");
        let mut arguments: Vec<OsString> = vec!["-c".into(), script.into(), "sh".into()];
        arguments.push(dir.path().into());
        arguments.extend(command.iter().map(|word| word.into()));
        Child { dir, arguments }
    }

    /// Writes a file that the script can read.
    pub(crate) fn with(self, name: &str, lines: &[serde_json::Value]) -> Self {
        let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
        fs::write(self.dir.path().join(name), lines).unwrap();
        self
    }

    pub(crate) fn backend(&self, deadline: Duration) -> NvmlChild {
        self.backend_that_waits(deadline, |_| {})
    }

    pub(crate) fn backend_that_waits(
        &self,
        deadline: Duration,
        waiting: impl Fn(&Waiting) + Send + Sync + 'static,
    ) -> NvmlChild {
        NvmlChild::new(self.helper(self.proc()), deadline, Box::new(waiting))
    }

    /// Returns a backend that searches this `/proc` for hanging children.
    pub(crate) fn backend_with_proc(&self, proc: PathBuf, deadline: Duration) -> NvmlChild {
        NvmlChild::new(self.helper(proc), deadline, Box::new(|_| {}))
    }

    fn helper(&self, proc: PathBuf) -> Helper {
        Helper { arguments: self.arguments.clone(), proc, ..Helper::new("/bin/sh") }
    }

    pub(crate) fn proc(&self) -> PathBuf {
        self.dir.path().join("proc")
    }

    /// The PIDs of the children, in the order of their starts.
    pub(crate) fn starts(&self) -> Vec<u32> {
        let text = fs::read_to_string(self.dir.path().join("starts")).unwrap_or_default();
        text.lines().map(|line| line.parse().unwrap()).collect()
    }
}

pub(crate) fn pause(duration: Duration) {
    let timeout = Timespec::try_from(duration).unwrap();
    poll(&mut [], Some(&timeout)).unwrap();
}

/// Waits until the condition is true, for at most ten seconds.
pub(crate) fn eventually(mut condition: impl FnMut() -> bool) {
    for _ in 0..5000 {
        if condition() {
            return;
        }
        pause(Duration::from_millis(2));
    }
    panic!("timeout");
}

pub(crate) fn is_there(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

/// Returns whether a process has exited but has not been reaped.
pub(crate) fn is_zombie(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| stat.contains(") Z "))
}

pub(crate) fn info(index: u32) -> DeviceInfo {
    DeviceInfo::unknown(DeviceId::from_index(index))
}

pub(crate) fn driver() -> Driver {
    Driver { version: Ok("535.261.03".to_owned()), cuda: Err(Absent::TooOld) }
}

/// A device that responded, with an identifying fault.
pub(crate) fn device(index: u32) -> DeviceState {
    let fault = Fault { kind: ErrorKind::Unsupported, text: format!("sample {index}") };
    DeviceState {
        sample: Err(fault.clone()),
        processes: Ok(Vec::new()),
        ..DeviceState::unanswered(info(index), Groups::NONE, &fault)
    }
}

pub(crate) fn driver_reply() -> serde_json::Value {
    serde_json::json!({ "driver": { "Ok": driver() } })
}

pub(crate) fn begun(count: u32) -> serde_json::Value {
    serde_json::json!({ "begun": { "driver": { "Ok": driver() }, "count": count } })
}

pub(crate) fn part(index: u32) -> serde_json::Value {
    serde_json::json!({ "device": device(index) })
}

pub(crate) fn done() -> serde_json::Value {
    "done".into()
}

/// The fault of a snapshot without devices.
pub(crate) fn failed(inventory: Inventory) -> Fault {
    assert!(inventory.devices.is_empty());
    inventory.driver.unwrap_err()
}
