//! A backend of another vendor, on real processes: two devices with PCI addresses and no
//! `/dev/nvidiaN`, whose driver reports the memory of a process in `fdinfo`, as graphics drivers do.
//!
//! Only this file knows the vendor. It has its own process, because a run supervises all children.

use gpu_core::visible::Form;
use gpu_core::*;
use gpu_host::supervise::LinuxLauncher;
use gpu_host::{FileJournal, Roots};
use gpu_machine::{Source, roots};
use gpu_reaper::{FindingKind, Guard, Outcome, diagnose, execute, plan};
use gpu_steward::{OnDeath, RunOrder, Wait, run, take};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

const TOTAL: Bytes = Bytes::from_mib(16_000);

/// The position of a descriptor stands for the memory allocated through it, in MiB.
fn allocated(fdinfo: &str) -> Option<Bytes> {
    let position = fdinfo.lines().find_map(|line| line.strip_prefix("pos:"))?;
    Some(Bytes::from_mib(position.trim().parse().ok()?))
}

fn bus(index: u32) -> PciBusId {
    PciBusId { domain: 0, bus: 0x0a, device: index as u8, function: 0 }
}

/// The files of the driver: `toy0` and `toy1`.
struct ToyDriver;

impl KernelDriver for ToyDriver {
    fn name(&self) -> &'static str {
        "toy"
    }
    fn describe(&self, path: &str, _: Reading<FileId>) -> Option<(FileRole, Option<DeviceKey>)> {
        let number = path.rsplit('/').next()?.strip_prefix("toy")?.parse().ok()?;
        Some((FileRole::Compute, Some(DeviceKey::Pci(bus(number)))))
    }
    fn find_memory_use(&self, held: &mut [HeldFile], fdinfo: &dyn Fn(u32) -> Option<String>) {
        for file in held {
            let texts = file.descriptors.iter().filter_map(|descriptor| fdinfo(*descriptor));
            let memory: Bytes = texts.filter_map(|text| allocated(&text)).sum();
            if memory > Bytes(0) {
                file.memory = MemoryUse::Certain(Some(memory));
            }
        }
    }
}

/// The driver: it counts the memory of every process, and lists only those on its first device.
struct Toy(PathBuf);

impl Toy {
    fn users(&self, index: u32) -> Vec<(Pid, Bytes)> {
        let file = self.0.join(format!("toy{index}"));
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let of = |process: &Path| {
            let held = std::fs::read_link(process.join("fd/3")).ok()? == file;
            let fdinfo = std::fs::read_to_string(process.join("fdinfo/3")).ok()?;
            let pid = process.file_name()?.to_str()?.parse().ok()?;
            held.then_some((Pid(pid), allocated(&fdinfo)?))
        };
        processes.filter_map(|process| of(&process.path())).collect()
    }
}

impl GpuBackend for Toy {
    fn origin(&self) -> Origin {
        Origin::Live
    }
    fn driver(&self) -> Result<Driver> {
        Ok(Driver { version: Ok("1.0".to_owned()), cuda: Err(Absent::NotSupported) })
    }
    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        let device = |index| {
            let id = DeviceId {
                uuid: Ok(DeviceUuid(format!("TOY-{index}"))),
                bus: Ok(bus(index)),
                node: Err(Absent::NotSupported),
                index,
            };
            DeviceInfo {
                name: Ok("Toy".to_owned()),
                partitioned: Err(Absent::NotSupported),
                pid_namespace: PidNamespace::Caller,
                ..DeviceInfo::unknown(id)
            }
        };
        Ok(vec![device(0), device(1)])
    }
    fn sample(&self, device: &DeviceId) -> Result<DeviceSample> {
        let mut sample = DeviceSample::absent(Absent::NotSupported);
        sample.memory.total = Ok(TOTAL);
        sample.memory.used = Ok(self.users(device.index).iter().map(|(_, memory)| *memory).sum());
        Ok(sample)
    }
    fn processes(&self, device: &DeviceId) -> Result<Vec<DeviceProcess>> {
        let users = if device.index == 0 { self.users(0) } else { Vec::new() };
        let listed = users.into_iter().map(|(pid, memory)| DeviceProcess {
            pid,
            kind: DeviceProcessKind::Compute,
            memory: Ok(memory),
            utilization: Err(Absent::NotSupported),
            name: Err(Absent::NotSupported),
            gpu_instance: None,
            compute_instance: None,
        });
        Ok(listed.collect())
    }
    fn partitions(&self, _: &DeviceId) -> Result<Vec<Partition>> {
        Ok(Vec::new())
    }
    fn details(&self, _: &DeviceId, _: Groups) -> Result<DeviceDetails> {
        Ok(DeviceDetails::default())
    }
    fn topology(&self) -> Result<Topology> {
        Err(Error::new(Absent::NotSupported, "query the topology"))
    }
    fn events(&self, _: Duration) -> Result<Vec<DeviceEvent>> {
        Err(Error::new(ErrorKind::Unsupported, "wait for events"))
    }
    fn reset(&self, device: &DeviceId, _: &ActToken) -> Result<()> {
        Err(Error::new(ErrorKind::Unsupported, format!("reset {device}")))
    }
}

/// A program with this much memory of a device.
fn program(dev: &Path, index: u32, mib: u32) -> Program {
    let script = format!("exec 3>\"$0\"; printf '%{mib}s' . >&3; exec sleep 600");
    let file = dev.join(format!("toy{index}"));
    let mut sh = Command::new("sh");
    Program(sh.arg("-c").arg(script).arg(file).stdout(Stdio::null()).spawn().expect("sh runs"))
}

/// A program, which ends with the test.
struct Program(Child);

impl Program {
    fn pid(&self) -> Pid {
        Pid(self.0.id())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn main() {
    let dir = tempfile::tempdir().unwrap();
    let dev = dir.path().canonicalize().unwrap();
    for name in ["toy0", "toy1"] {
        std::fs::write(dev.join(name), "").unwrap();
    }
    let programs = [program(&dev, 0, 9_000), program(&dev, 1, 5_000)];
    let toy = || -> Box<dyn GpuBackend> { Box::new(Toy(dev.clone())) };
    let at = Roots { dev: dev.clone(), ..roots() };
    // The second backend reports the same devices: they stay two.
    let source = Source::composed(vec![toy(), toy()], vec![Arc::new(ToyDriver)], at);
    let ready = |snapshot: &Snapshot| {
        snapshot.devices.len() == 2
            && snapshot.devices.iter().all(|d| d.memory_used() > Ok(Bytes(0)))
    };
    let snapshot = (0..1_000).map(|_| source.snapshot()).find(ready).expect("both have memory");
    let [listed, ghost] = [programs[0].pid(), programs[1].pid()];

    status(&snapshot, [listed, ghost]);
    reap(&source, &dir.path().join("audit.jsonl"), ghost);
    claim_and_run(&source, &dir.path().join("leases"), dir.path());
}

/// `status` shows the memory and the processes, and `doctor` the one that is not listed.
fn status(snapshot: &Snapshot, [listed, ghost]: [Pid; 2]) {
    let used: Vec<_> = snapshot.devices.iter().map(|device| device.memory_used()).collect();
    assert_eq!(used, [9_000, 5_000].map(|mib| Ok(Bytes::from_mib(mib))));
    assert_eq!(snapshot.sees_host_pids, Ok(true), "its PIDs are those of /proc");
    let holder = |pid| snapshot.holders().iter().find(|holder| holder.process.pid == pid).unwrap();
    let uses = |pid, at: usize| holder(pid).memory_use(snapshot.devices[at].id());
    assert_eq!(uses(listed, 0), MemoryUse::Certain(Some(Bytes::from_mib(9_000))));
    assert_eq!((uses(ghost, 0), uses(listed, 1)), (MemoryUse::None, MemoryUse::None));
    let findings = diagnose(std::slice::from_ref(snapshot)).findings;
    let found: Vec<_> = findings.iter().filter(|f| f.kind == FindingKind::Ghost).collect();
    assert_eq!(found.len(), 1, "{findings:?}");
    assert_eq!(found[0].devices[0].bus, Ok(bus(1)));
    assert_eq!(found[0].suspects[0].process.pid, ghost);
}

/// `reap` ends that process and verifies that its memory is free.
fn reap(source: &Source, audit: &Path, ghost: Pid) {
    let snapshots = source.two_snapshots();
    let guard = Guard::new(&*source.host, Vec::new()).unwrap();
    let request = gpu_reaper::Request { pids: vec![ghost], ..gpu_reaper::Request::default() };
    let plan = plan(&snapshots, &diagnose(&snapshots), &guard, &request);
    let journal = FileJournal::open(audit).unwrap();
    let token = ActToken::user_confirmed();
    let go_on = &mut |_: gpu_reaper::Event<'_>| ControlFlow::Continue(());
    let report = execute(&plan, &guard, source.ports(&journal), &token, go_on);
    assert!(matches!(report.actions[0].outcome, Outcome::Ended { .. }), "{report:?}");
    assert_eq!(report.memory[0].freed, Some(Bytes::from_mib(5_000)), "{report:?}");
}

/// `claim` takes the free device, and `run` runs a program on it.
fn claim_and_run(source: &Source, leases: &Path, dir: &Path) {
    std::fs::create_dir(leases).unwrap();
    let locks = source.lease_store(Some(leases)).unwrap();
    let journal = FileJournal::open(dir.join("run.jsonl")).unwrap();
    let ports = gpu_steward::Ports {
        backend: &*source.backend,
        host: &*source.host,
        clock: &*source.clock,
        journal: &journal,
        locks: &locks,
    };
    let request = gpu_steward::Request {
        claim: Claim::whole(1),
        wait: Wait::No,
        pace: Duration::from_millis(100),
        needs_topology: false,
        command: "train".to_owned(),
        root: source.host.own_ancestry().unwrap()[0],
    };
    let grant = take(&request, &ports, &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(grant.devices[0].bus, Ok(bus(1)), "the other device is in use");
    drop(grant);
    let launch = Launch {
        program: "sh".into(),
        arguments: vec!["-c".into(), "test \"$CUDA_VISIBLE_DEVICES\" = TOY-1".into()],
        ..Launch::default()
    };
    let order = RunOrder {
        request,
        launch,
        visible: Form::Uuid,
        inherited: |_| None,
        bounding: None,
        time_limit: None,
        grace: Duration::from_secs(1),
        on_death: OnDeath::End,
        handoff: Duration::from_secs(1),
        placeholder: None,
    };
    let launcher = LinuxLauncher::new(&roots(), None).unwrap();
    let go_on = &mut |_: gpu_steward::Event<'_>| ControlFlow::Continue(());
    let report = run(&order, &ports, &launcher, &ActToken::user_confirmed(), go_on).unwrap();
    assert_eq!(report.ending, JobExit::Code(0));
    assert_eq!(report.devices[0].device.bus, Ok(bus(1)));
}
