//! Claims while a user fills a directory with leases.

use super::log::Reader;
use super::{HANGS, StressRun};
use gpu_claim::Ledger;
use gpu_core::{Clock, LeaseEntry};
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc::{F_WRLCK, flock};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::chown;
use std::path::Path;
use std::time::Duration;

/// The number of concurrent claims.
const CLAIMS: usize = 40;

/// The number of leases in the directory. Readers keep only some of them as separate leases.
const LEASES: usize = 250;

/// The number of names in each lease.
const NAMES: usize = 64;

/// The user that owns the leases.
const OWNER: u32 = 65_534;

/// Fills the directory of a user with live leases on other devices.
fn fill(dir: &Path) -> Vec<File> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    fs::create_dir(dir).unwrap();
    chown(dir, Some(OWNER), None).unwrap();
    let lease = |number: usize| {
        let id = format!("{number:012x}");
        let devices: Vec<String> = (0..NAMES).map(|name| format!("GPU-{number}-{name}")).collect();
        let text = serde_json::json!({
            "schema": 1, "id": id, "ticket": 7, "root": { "pid": 7, "start_ticks": 3 },
            "claim": { "count": NAMES, "share": "whole", "accept_used": false },
            "devices": devices, "command": "python", "since_unix_ms": 5,
        });
        let path = dir.join(format!("lease-{id}"));
        fs::write(&path, text.to_string()).unwrap();
        chown(&path, Some(OWNER), None).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let kind = i16::try_from(F_WRLCK).unwrap();
        let all = flock { l_type: kind, l_whence: 0, l_start: 0, l_len: 0, l_pid: 0 };
        fcntl(&file, FcntlArg::F_OFD_SETLK(&all)).unwrap();
        file
    };
    (0..LEASES).map(lease).collect()
}

#[test]
fn claims_are_served_despite_full_directory_of_other_user() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: leases of another user need root");
        return;
    }
    let mut run = StressRun::new("queue");
    let _files = fill(&run.path(&format!("leases/u{OWNER}")));
    let leases = Ledger::read(&run.locks()).unwrap().leases;
    assert_eq!(leases.iter().map(LeaseEntry::count).sum::<usize>(), LEASES);
    assert!(leases.len() < LEASES, "some of them are merged");
    (0..CLAIMS).for_each(|_| run.start(1));
    let mut reader = Reader::new(run.machine.clone());
    let mut lines = BufReader::new(File::open(run.path("log")).unwrap());
    let (mut served, mut line) = (BTreeSet::new(), String::new());
    while served.len() < CLAIMS {
        assert!(run.clock.monotonic() < HANGS, "{} claims are served", served.len());
        if lines.read_line(&mut line).unwrap() == 0 || !line.ends_with('\n') {
            let ended = run.children.iter_mut().find_map(|(_, child)| child.try_wait().unwrap());
            assert_eq!(ended, None, "no claim fails");
            run.clock.sleep(Duration::from_millis(5));
            continue;
        }
        reader.read(&line);
        let event: serde_json::Value = serde_json::from_str(&line).unwrap();
        if event["event"] == "hold" {
            served.insert(event["process"].to_string());
        }
        line.clear();
    }
    run.finish();
    for rest in lines.lines() {
        reader.read(&(std::mem::take(&mut line) + &rest.unwrap()));
    }
    println!("{} grants to {CLAIMS} claims next to {LEASES} leases of one user", reader.grants);
    assert!(reader.violations.is_empty(), "{:#?}", reader.violations);
}
