//! The search for holders of devices, with and without BPF. The unit tests of the module `bpf`
//! check that it uses BPF where possible.

use crate::child::{Sleeper, compile};
use crate::holders::MAPPER;
use crate::threads::{UNSHARED, ZOMBIE};
use crate::{host, skip};
use gpu_core::{DeviceFiles, Pid};
use gpu_host::resolve;
use std::path::{Path, PathBuf};
use std::process::Command;

#[test]
fn holders_are_the_same_with_and_without_bpf() {
    compare();
}

/// Compares both searches on processes that hold a device in each way, also in another PID
/// namespace.
pub(crate) fn compare() {
    let dir = tempfile::tempdir().unwrap();
    let program = |name: &str, source: &str| -> Option<PathBuf> {
        let dir = dir.path().join(name);
        std::fs::create_dir(&dir).unwrap();
        compile(&dir, source)
    };
    let [full, zero] = ["/dev/full", "/dev/zero"].map(Path::new);
    let mut holders = vec![
        (Sleeper::shell("exec 3< \"$1\" 9> \"$1\"", &[full]), "F....".to_owned()),
        (Sleeper::shell("exec 3<> \"$1\"", &[zero]), "F....".to_owned()),
    ];
    let other = Sleeper::shell("exec 3< \"$1\"", &[Path::new("/dev/null")]);
    for (name, source, device, access) in [
        ("mapper", MAPPER, zero, "....m"),
        ("zombie", ZOMBIE, zero, "F...."),
        ("unshared", UNSHARED, full, "f...."),
    ] {
        let Some(program) = program(name, source) else {
            skip("compare", "there is no C compiler");
            break;
        };
        let mut command = Command::new(program);
        holders.push((Sleeper::ready(command.arg(device)), access.to_owned()));
    }
    let files = [resolve(full).unwrap(), resolve(zero).unwrap()];
    let ours = |scan: gpu_core::HolderScan| {
        let known: Vec<Pid> = holders.iter().map(|(sleeper, _)| sleeper.pid()).collect();
        let mut found = scan.holders;
        // Tests that run at the same time may hold the devices too.
        found.retain(|holder| known.contains(&holder.process.pid));
        found
    };
    let (with, without) = (host(), host().without_bpf());
    let with = ours(with.holders(&files).unwrap());
    assert_eq!(with, ours(without.holders(&files).unwrap()));
    for (sleeper, access) in &holders {
        let found = with.iter().find(|holder| holder.process.pid == sleeper.pid()).unwrap();
        assert_eq!(found.held[0].access.to_string(), *access);
    }
    assert!(!with.iter().any(|holder| holder.process.pid == other.pid()));
}
