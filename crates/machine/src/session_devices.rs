//! The devices of a session, for a program that runs in it.

use crate::MachineError;
use gpu_core::{
    ActToken, DeviceDetails, DeviceEvent, DeviceId, DeviceInfo, DeviceProcess, DeviceSample,
    Driver, Error, ErrorKind, GpuBackend, Groups, Inventory, Origin, Partition, PeerAccess,
    PeerCapability, Pid, Result, Topology,
};
use gpu_nvidia::NvmlChild;
use gpu_sim::Session;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// NVML in a session. The origin is the session's machine even if no child reported its library;
/// values from any other library are discarded.
pub(crate) struct SessionDevices {
    child: NvmlChild,
    dir: PathBuf,
    origin: Origin,
}

impl SessionDevices {
    /// Returns the devices of the session in a directory.
    ///
    /// # Errors
    /// When a child reports that its library is real, or that it belongs to another session.
    pub(crate) fn new(child: NvmlChild, dir: &Path, origin: Origin) -> Result<Self, MachineError> {
        let devices = SessionDevices { child, dir: dir.to_owned(), origin };
        let is_reported = devices.child.simulated().is_some() || devices.child.is_real();
        if is_reported && !devices.are_known() { Err(devices.refusal()) } else { Ok(devices) }
    }

    /// Returns whether a child reported that its library belongs to this session.
    fn are_known(&self) -> bool {
        self.child.simulated().is_some_and(|simulated| simulated.session == self.dir)
    }

    fn refusal(&self) -> MachineError {
        let what = match self.child.simulated() {
            Some(other) => {
                format!("the loaded NVML belongs to session '{}'", other.session.display())
            }
            None => "the loaded NVML is not simulated".to_owned(),
        };
        let query = format!("query session '{}'", self.dir.display());
        MachineError::new(Error::new(ErrorKind::Invalid, query).with_source(what))
            .with_hint(format!("start it with 'gpuws sim', or unset {}", Session::VARIABLE))
    }

    /// Returns a value only if it is from the session's library.
    fn checked<T>(&self, answer: Result<T>) -> Result<T> {
        match answer {
            Ok(_) if !self.are_known() => Err(self.other()),
            answer => answer,
        }
    }

    fn other(&self) -> Error {
        Error::new(ErrorKind::Invalid, format!("query session '{}'", self.dir.display()))
            .with_source("the responding NVML does not belong to the session")
    }
}

impl GpuBackend for SessionDevices {
    fn origin(&self) -> Origin {
        self.origin.clone()
    }

    fn driver(&self) -> Result<Driver> {
        self.checked(self.child.driver())
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        self.checked(self.child.devices())
    }

    fn sample(&self, device: &DeviceId) -> Result<DeviceSample> {
        self.checked(self.child.sample(device))
    }

    fn processes(&self, device: &DeviceId) -> Result<Vec<DeviceProcess>> {
        self.checked(self.child.processes(device))
    }

    fn partitions(&self, device: &DeviceId) -> Result<Vec<Partition>> {
        self.checked(self.child.partitions(device))
    }

    fn details(&self, device: &DeviceId, groups: Groups) -> Result<DeviceDetails> {
        self.checked(self.child.details(device, groups))
    }

    fn topology(&self) -> Result<Topology> {
        self.checked(self.child.topology())
    }

    fn peer_access(&self, capability: PeerCapability) -> Result<Vec<Vec<PeerAccess>>> {
        self.checked(self.child.peer_access(capability))
    }

    fn events(&self, wait: Duration) -> Result<Vec<DeviceEvent>> {
        self.checked(self.child.events(wait))
    }

    /// Always fails, because there is no real device.
    fn reset(&self, device: &DeviceId, _: &ActToken) -> Result<()> {
        let error = Error::new(ErrorKind::Unsupported, format!("reset {device}"));
        Err(error.with_source("the machine is simulated"))
    }

    fn inventory(&self, groups: Groups) -> Inventory {
        let inventory = self.child.inventory(groups);
        let is_reported = inventory.driver.is_ok() || !inventory.devices.is_empty();
        if is_reported && !self.are_known() {
            Inventory { driver: Err(self.other().fault()), devices: Vec::new() }
        } else {
            inventory
        }
    }

    fn helpers(&self) -> Vec<Pid> {
        self.child.helpers()
    }

    fn keeps_devices_awake(&self) -> bool {
        self.child.keeps_devices_awake()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_core::Absent;
    use gpu_nvidia::Helper;
    use nix::fcntl::{FcntlArg, fcntl};
    use nix::libc::{F_RDLCK, SEEK_SET, flock};
    use std::fs;
    use std::os::unix::fs::symlink;

    const OWN: &str = "/run/own";

    /// Returns devices whose child prints this greeting and then answers each request with the
    /// driver, and each inventory with no device; `proc` replaces `/proc`.
    fn devices(greeting: &str, proc: &Path) -> Result<SessionDevices, MachineError> {
        let driver = Driver { version: Ok("1.2".to_owned()), cuda: Err(Absent::TooOld) };
        let look = serde_json::json!({ "begun": { "driver": { "Ok": driver }, "count": 0 } });
        let driver = serde_json::json!({ "driver": { "Ok": driver } });
        let script = format!(
            "{greeting}; while read query; do case $query in *look*) echo '{look}';; \
             *) echo '{driver}';; esac; echo '\"done\"'; done"
        );
        let helper = Helper {
            arguments: vec!["-c".into(), script.into()],
            proc: proc.to_owned(),
            ..Helper::new("/bin/sh")
        };
        let child = NvmlChild::new(helper, Duration::from_secs(60), Box::new(|_| {}));
        SessionDevices::new(child, Path::new(OWN), Origin::Simulated("labbox".into()))
    }

    fn greeting(simulated: &str) -> String {
        format!(r#"echo '{{"greeting":{{"protocol":6,"simulated":{simulated}}}}}'"#)
    }

    #[test]
    fn library_of_session_is_used() {
        let proc = tempfile::tempdir().unwrap();
        let devices =
            devices(&greeting(r#"{"machine":"labbox","session":"/run/own"}"#), proc.path())
                .unwrap();
        assert_eq!(devices.driver().unwrap().version, Ok("1.2".to_owned()));
        assert_eq!(devices.inventory(Groups::NONE).driver.unwrap().version, Ok("1.2".to_owned()));
        assert_eq!(devices.helpers().len(), 1);
        assert_eq!(devices.origin(), Origin::Simulated("labbox".to_owned()));
    }

    #[test]
    fn real_or_foreign_session_library_is_rejected() {
        let proc = tempfile::tempdir().unwrap();
        for (simulated, why) in [
            ("null", "the loaded NVML is not simulated"),
            (r#"{"machine":"labbox","session":"/run/b"}"#, "belongs to session '/run/b'"),
            (r#"{"machine":"labbox","session":""}"#, "belongs to session ''"),
        ] {
            let Err(failure) = devices(&greeting(simulated), proc.path()) else {
                panic!("{simulated}")
            };
            let error = failure.into_error();
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(error.fault().text.contains(why), "{error:?}");
        }
    }

    #[test]
    fn failed_child_keeps_simulated_origin_without_data() {
        let proc = tempfile::tempdir().unwrap();
        let devices = devices("exit 1", proc.path()).unwrap();
        assert_eq!(devices.origin(), Origin::Simulated("labbox".to_owned()));
        let device = DeviceId::from_index(0);
        for error in [
            devices.driver().err(),
            devices.devices().err(),
            devices.sample(&device).err(),
            devices.processes(&device).err(),
            devices.partitions(&device).err(),
            devices.details(&device, Groups::NONE).err(),
            devices.topology().err(),
            devices.events(Duration::ZERO).err(),
            devices.reset(&device, &ActToken::user_confirmed()).err(),
        ] {
            assert!(error.is_some_and(|error| error.kind() != ErrorKind::Invalid));
        }
        let inventory = devices.inventory(Groups::NONE);
        assert!(inventory.devices.is_empty());
        assert_ne!(
            inventory.driver.unwrap_err().kind,
            ErrorKind::Invalid,
            "it has no library at all"
        );
    }

    #[test]
    fn late_real_library_is_not_used() {
        // A child from an earlier query hangs, so no new one is started; then it is gone.
        let proc = tempfile::tempdir().unwrap();
        let process = proc.path().join("4711");
        let user = rustix::process::getuid().as_raw();
        fs::create_dir(&process).unwrap();
        for (name, text) in [
            ("comm", "gpuws-stuck\n".to_owned()),
            ("status", format!("State:\tD (disk sleep)\nUid:\t{user}\t{user}\t{user}\n")),
            ("stat", format!("4711 (gpuws-stuck) D {}\n", "0 ".repeat(40))),
        ] {
            fs::write(process.join(name), text).unwrap();
        }
        symlink(std::env::current_exe().unwrap(), process.join("exe")).unwrap();
        for pid in ["self", "4711"] {
            let namespaces = proc.path().join(pid).join("ns");
            fs::create_dir_all(&namespaces).unwrap();
            for kind in ["pid", "user"] {
                symlink(format!("{kind}:[4026531836]"), namespaces.join(kind)).unwrap();
            }
        }
        // Only processes that lock a byte of their program are inspected.
        let program = fs::File::open("/proc/self/exe").unwrap();
        let (l_type, l_whence) = (F_RDLCK as i16, SEEK_SET as i16);
        let l_start = (i64::from(user) << 22) + 4711;
        let mark = flock { l_type, l_whence, l_start, l_len: 1, l_pid: 0 };
        fcntl(&program, FcntlArg::F_OFD_SETLK(&mark)).unwrap();

        let devices = devices(&greeting("null"), proc.path()).unwrap();
        assert_eq!(devices.driver().unwrap_err().kind(), ErrorKind::TimedOut);
        fs::remove_dir_all(&process).unwrap();
        let error = devices.driver().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        let inventory = devices.inventory(Groups::NONE);
        assert_eq!(inventory.driver.unwrap_err().kind, ErrorKind::Invalid);
        assert_eq!(devices.origin(), Origin::Simulated("labbox".to_owned()));
    }
}
