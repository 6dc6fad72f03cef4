//! The clients of all processes.

use gpu_core::{Absent, Bytes, PciBusId, Pid, Reading, Uids};
use gpu_drm::{Clients, Tree, clients};
use std::collections::{BTreeMap, BTreeSet};

fn device() -> PciBusId {
    "0000:0a:00.0".parse().unwrap()
}

/// A client of xe with this memory in MiB.
fn xe(id: u32, resident: u64, shared: u64) -> String {
    format!(
        "drm-driver:\txe\ndrm-client-id:\t{id}\ndrm-pdev:\t0000:0a:00.0\n\
         drm-resident-vram0:\t{resident} MiB\ndrm-shared-vram0:\t{shared} MiB\n"
    )
}

fn pids(pids: &[u32]) -> BTreeSet<Pid> {
    pids.iter().copied().map(Pid).collect()
}

#[test]
fn clients_are_counted_once() {
    let mut clients = Clients::default();
    for (pid, descriptor, text) in [
        (5, 3, xe(1, 40, 0)),
        (5, 4, xe(1, 40, 0)),
        (6, 3, xe(1, 40, 0)),
        (6, 9, xe(2, 7, 0)),
        (7, 3, xe(1, 40, 0).replace("0a:00.0", "0b:00.0")),
    ] {
        assert!(clients.add(Pid(pid), descriptor, text.as_bytes()));
    }
    assert!(!clients.add(Pid(8), 0, b"pos:\t0\n"));
    let found = |held: &gpu_drm::HeldClient| (held.descriptors, held.holders.clone());
    let held: Vec<_> = clients.on(device()).map(found).collect();
    assert_eq!(held, [(3, pids(&[5, 6])), (1, pids(&[6]))]);
    assert_eq!(clients.memory(device(), false).resident, Ok(Bytes::from_mib(47)));
    let found = clients.processes_on(device(), false);
    let found: Vec<_> =
        found.iter().map(|p| (p.pid.0, p.memory.resident, p.shared_with())).collect();
    let mib = |count| Ok(Bytes::from_mib(count));
    assert_eq!(found, [(5, mib(40), pids(&[6])), (6, mib(47), pids(&[5]))]);
}

#[test]
fn clients_without_a_number_are_told_apart_by_descriptor() {
    let mut clients = Clients::default();
    for (pid, descriptor) in [(5, 3), (5, 4), (6, 3)] {
        clients.add(Pid(pid), descriptor, b"pdev:\t0000:0a:00.0\nvram mem:\t1024 kB\n");
    }
    let memory = clients.memory(device(), false);
    assert_eq!(
        (memory.resident, memory.private),
        (Ok(Bytes::from_mib(3)), Err(Absent::NotSupported))
    );
}

#[test]
fn shared_memory_counts_once() {
    let mut clients = Clients::default();
    // Two clients of one process share buffers; process 6 inherits the third client.
    for (pid, text) in [(5, xe(1, 40, 30)), (5, xe(2, 25, 20)), (5, xe(3, 8, 0)), (6, xe(3, 8, 0))]
    {
        clients.add(Pid(pid), 0, text.as_bytes());
    }
    let mib = |count| Ok(Bytes::from_mib(count));
    let found = clients.processes_on(device(), false);
    let found: Vec<_> = found.iter().map(|p| (p.memory.resident, p.memory.private)).collect();
    assert_eq!(found, [(mib(10 + 5 + 8 + 30), mib(15)), (mib(8), mib(0))]);
    let memory = clients.memory(device(), false);
    assert_eq!((memory.resident, memory.private), (mib(53), mib(23)));
}

/// Files with their content, or with the reason why they cannot be read.
struct Files(BTreeMap<String, Reading<String>>);

impl Tree for Files {
    fn read(&self, path: &str, limit: usize) -> Reading<Vec<u8>> {
        let content = self.0.get(path).cloned().unwrap_or(Err(Absent::NotSupported))?;
        Ok(content.into_bytes().into_iter().take(limit).collect())
    }

    fn names(&self, path: &str) -> Reading<Vec<String>> {
        if let Some(Err(reason)) = self.0.get(path) {
            return Err(*reason);
        }
        let below = self.0.keys().filter_map(|file| file.strip_prefix(path)?.strip_prefix('/'));
        let names: BTreeSet<_> = below.filter_map(|file| file.split('/').next()).collect();
        let names: Vec<_> = names.into_iter().map(str::to_owned).collect();
        if names.is_empty() { Err(Absent::NotSupported) } else { Ok(names) }
    }

    fn target(&self, _: &str) -> Reading<String> {
        Err(Absent::NotSupported)
    }
}

#[test]
fn unreadable_processes_are_not_without_clients() {
    let text = |text: &str| Ok(text.to_owned());
    let status = "Name:\tx\nUid:\t1000\t1001\t1002\t1001\nVmSize:\t12 kB\n";
    let mut files = BTreeMap::new();
    let mut file = |path: &str, content| files.insert(format!("proc/{path}"), content);
    for pid in [2, 3, 4, 5, 6, 7] {
        file(&format!("{pid}/status"), text(if pid == 2 { "Name:\tkthreadd\n" } else { status }));
    }
    // A kernel thread, another user's process, one with an unreadable descriptor, a readable one,
    // one that has gone, and one with too many descriptors.
    for pid in [2, 3] {
        file(&format!("{pid}/fdinfo"), Err(Absent::NotPermitted));
    }
    file("4/fdinfo/3", text(&xe(1, 40, 0)));
    file("4/fdinfo/5", Err(Absent::NotPermitted));
    file("5/fdinfo/3", text(&xe(2, 40, 0)));
    file("5/fdinfo/5", Err(Absent::NotFound));
    file("5/comm", text("a.out\n"));
    for descriptor in 0..=4_096 {
        file(&format!("7/fdinfo/{descriptor}"), text("pos:\t0\n"));
    }
    file("sys/fdinfo/3", text(&xe(3, 40, 0)));
    let found = clients(&Files(files)).unwrap();
    assert_eq!(found.unreadable, pids(&[3, 4, 7]));
    assert_eq!(found.iter().count(), 2);
    assert_eq!(found.processes.keys().copied().collect::<BTreeSet<_>>(), pids(&[3, 4, 5, 7]));
    let process = &found.processes[&Pid(5)];
    assert_eq!(process.name.as_deref(), Ok("a.out"));
    assert_eq!(process.uids, Ok(Uids { real: 1_000, effective: 1_001, saved: 1_002 }));
}

#[test]
fn processes_are_unknown_without_proc() {
    assert_eq!(clients(&Files(BTreeMap::new())), Err(Absent::NotSupported));
}
