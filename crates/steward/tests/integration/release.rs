//! The release of a lease: which processes keep it, and whether they may be ended.

use crate::fake::*;
use gpu_core::*;
use gpu_steward::{LeaseKeepers, ReleaseError, is_supervisor, release};

/// The process that keeps a lease.
const KEEPER: u32 = 100;

fn file(path: &str) -> DeviceFile {
    DeviceFile::any(path.into(), Ok(FileId::Inode { dev: 1, ino: 1 }))
}

fn program() -> DeviceFile {
    file("/usr/bin/gpuws")
}

/// Opens a file for a process.
fn has(world: &World, pid: u32, path: &str, access: Access) {
    let held = HeldFile::of(&file(path), access, vec![3]);
    world.state().other_files.push((pid, held));
}

/// A lease of process 100, which runs gpuws with these arguments.
fn claimed(words: &[&str]) -> World {
    let world = World::new(1);
    let command_line = Ok(words.iter().map(|word| word.to_string()).collect());
    world.state().add(ProcessInfo { command_line, ..process(KEEPER, 2, "gpuws") });
    has(&world, KEEPER, "/usr/bin/gpuws", Access::EXECUTABLE);
    has(&world, KEEPER, "/leases/a", Access::OPEN_FOR_WRITING);
    world.state().leases = vec![lease("a", 1, KEEPER, &[0])];
    world
}

fn keepers(world: &World, entry: &LeaseEntry) -> LeaseKeepers {
    let leases = [(entry, vec![file("/leases/a")])];
    LeaseKeepers::of(&leases, Some(&program()), 1000, world).unwrap().remove(0)
}

fn described(keepers: LeaseKeepers) -> String {
    match keepers {
        LeaseKeepers::Holders(holders) => {
            let pids: Vec<u32> = holders.iter().map(|it| it.info().unwrap().key.pid.0).collect();
            format!("holders {pids:?}")
        }
        LeaseKeepers::Run(pid) => format!("run {pid}"),
        LeaseKeepers::Others(others) => format!("others {}", others.len()),
        LeaseKeepers::Unseen => "unseen".to_owned(),
    }
}

fn kept_by(world: &World) -> String {
    let entry = world.state().leases[0].clone();
    described(keepers(world, &entry))
}

#[test]
fn root_keeps_lease_as_holder_only_if_it_was_started_as_claim() {
    for (words, expected) in [
        (&["gpuws", "claim", "--for", "60"][..], "holders [100]"),
        (&["gpuws", "run", "--", "train"], "run 100"),
        (&["gpuws", "run", "--", "claim"], "run 100"),
        (&["gpuws", "claim", "run"], "holders [100]"),
        (&["gpuws"], "run 100"),
    ] {
        assert_eq!(kept_by(&claimed(words)), expected, "{words:?}");
    }
    // Any other process of the program is a holder without another purpose.
    let world = claimed(&["gpuws", "keep"]);
    world.state().leases[0].root = key(7);
    assert_eq!(kept_by(&world), "holders [100]");
}

#[test]
fn process_with_other_user_or_program_is_not_a_holder() {
    type Change = fn(&mut State);
    let changes: [(Change, &str); 5] = [
        (|state| state.processes.get_mut(&KEEPER).unwrap().uid = Ok(1001), "others 1"),
        (|state| state.other_files[0].1.access = Access::OPEN, "others 1"),
        (|state| drop(state.other_files.remove(0)), "others 1"),
        (|state| state.other_files[1].1.access = Access::OPEN, "unseen"),
        (|state| state.leases[0].owner = 1001, "unseen"),
    ];
    for (change, expected) in changes {
        let world = claimed(&["gpuws", "claim"]);
        change(&mut world.state());
        assert_eq!(kept_by(&world), expected);
    }
    let world = claimed(&["gpuws", "claim"]);
    let entry = world.state().leases[0].clone();
    let leases = [(&entry, vec![file("/leases/a")])];
    let unknown = LeaseKeepers::of(&leases, None, 1000, &world).unwrap().remove(0);
    assert_eq!(described(unknown), "others 1", "the program is unknown");
}

#[test]
fn supervisor_is_root_of_lease_and_runs_program() {
    let world = claimed(&["gpuws", "run"]);
    let leases = world.state().leases.clone();
    let is = |pid: u32, program: Option<&DeviceFile>| {
        let info = world.state().processes[&pid].clone();
        is_supervisor(&info, &leases, program, &world)
    };
    assert!(is(KEEPER, Some(&program())));
    assert!(!is(KEEPER, Some(&file("/usr/bin/other"))));
    assert!(!is(KEEPER, None));
    has(&world, SELF, "/usr/bin/gpuws", Access::EXECUTABLE);
    assert!(!is(SELF, Some(&program())), "no lease has this root");
}

fn released(world: &World, caller: u32) -> Result<LeaseEntry, ReleaseError> {
    let token = ActToken::user_confirmed();
    let id = LeaseId::parse("a").unwrap();
    release(&id, caller, world, world, |entry| Ok(keepers(world, entry)), &token)
}

#[test]
fn release_ends_holders_and_waits_until_lease_is_gone() {
    let world = claimed(&["gpuws", "claim"]);
    world.after(std::time::Duration::from_secs(3), |state| state.leases.clear());
    let entry = released(&world, 1000).unwrap();
    assert_eq!(entry.id.as_str(), "a");
    assert_eq!(world.state().signals, [(KEEPER, 15)]);
    assert!(world.state().now >= std::time::Duration::from_secs(1003));
}

#[test]
fn lease_outliving_its_holders_is_reported() {
    let world = claimed(&["gpuws", "claim"]);
    assert!(matches!(released(&world, 1000), Err(ReleaseError::StillThere)));
    let waited = world.state().now - std::time::Duration::from_secs(1000);
    assert_eq!(waited.as_secs(), 10);
}

#[test]
fn release_ignores_lease_of_other_user_with_same_name() {
    let world = claimed(&["gpuws", "claim"]);
    world.state().leases.push(LeaseEntry { owner: 1001, ..lease("a", 2, 7, &[0]) });
    world.after(std::time::Duration::from_secs(1), |state| drop(state.leases.remove(0)));
    assert_eq!(released(&world, 1000).unwrap().owner, 1000);
}

#[test]
fn lease_with_another_keeper_or_owner_is_not_released() {
    let refused = |world: World| {
        let error = released(&world, 1000).unwrap_err();
        assert!(world.state().signals.is_empty(), "{error:?}");
        format!("{error:?}")
    };
    let claim = || claimed(&["gpuws", "claim"]);
    assert_eq!(refused(claimed(&["gpuws", "run"])), "IsOfRun(Pid(100))");

    let world = claim();
    world.state().processes.get_mut(&KEEPER).unwrap().uid = Ok(1001);
    assert!(refused(world).starts_with("KeptByOthers"));

    let world = claim();
    world.state().other_files.clear();
    assert_eq!(refused(world), "Unseen");

    let world = claim();
    world.state().leases[0].owner = 1001;
    assert!(refused(world).starts_with("NotOwned"));

    let world = claim();
    world.state().leases[0].id = LeaseId::parse("b").unwrap();
    assert_eq!(refused(world), "NotFound");
}

#[test]
fn ended_holder_needs_no_signal() {
    for (kind, fails) in [(ProcessFault::Gone, false), (ProcessFault::NotPermitted, true)] {
        let world = claimed(&["gpuws", "claim"]);
        world.state().signal_fault = Some(kind.into());
        world.after(std::time::Duration::from_secs(1), |state| state.leases.clear());
        let result = released(&world, 1000);
        assert_eq!(matches!(result, Err(ReleaseError::Failed(_))), fails, "{result:?}");
        assert_eq!(result.is_err(), fails);
    }
}

#[test]
fn lease_with_inner_lease_of_owner_or_root_is_not_released() {
    for (owner, refuses) in [(1000, true), (0, true), (1001, false)] {
        let world = claimed(&["gpuws", "claim"]);
        let outer = OuterLease { id: LeaseId::parse("a").unwrap(), owner: 1000 };
        let inner = LeaseEntry { owner, within: vec![outer], ..lease("inner", 2, 101, &[0]) };
        world.state().leases.push(inner);
        world.after(std::time::Duration::from_secs(1), |state| drop(state.leases.remove(0)));
        let result = released(&world, 1000);
        assert_eq!(
            matches!(result, Err(ReleaseError::HasInner(_))),
            refuses,
            "{owner}: {result:?}"
        );
    }
}
