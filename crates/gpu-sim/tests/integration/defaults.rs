//! Defaults of a `machine.toml`, and the limits of its values.

use gpu_core::{
    Absent, Access, Bytes, Celsius, DeviceId, FileId, FileRole, GpuBackend, Groups, Link,
    Milliwatts, PeerAccess, Pid, ProcessState, ProcessTable, StartTime,
};
use gpu_sim::{Event, Machine, Scheduled, Simulation, When, device_file};
use std::time::Duration;

const HEAD: &str = "description = 'made: a test'\nclock = 2025-03-03T10:00:00Z\n";

fn read(text: &str) -> Result<Machine, String> {
    read_beside(text, &[])
}

/// Reads a machine with copies of recordings of `p100-ghost` next to it.
fn read_beside(text: &str, recordings: &[&str]) -> Result<Machine, String> {
    let dir = tempfile::tempdir().unwrap();
    let recorded = Machine::embedded("p100-ghost").unwrap().recordings;
    for name in recordings {
        std::fs::write(dir.path().join(name), &recorded[*name]).unwrap();
    }
    std::fs::write(dir.path().join("machine.toml"), format!("{HEAD}{text}")).unwrap();
    Machine::from_dir(dir.path()).map_err(|error| error.fault().text)
}

fn start(text: &str) -> Simulation {
    Simulation::start(read(text).unwrap(), gpu_sim::Seed(0))
}

#[test]
fn process_defaults_follow_user_and_kind() {
    let simulation = start(
        "[[process]]\npid = 1\nname = 'init'\nuid = 0\n\
         [[process]]\npid = 7\nname = 'a'\n\
         [[process]]\npid = 8\nname = 'b'\ngroup = 7\nuid = 0\n\
         [[process]]\npid = 9\nname = 'kworker'\nkernel_thread = true\n\
         [[process]]\npid = 10\nname = 'c'\nuser = 'carol'\n\
         [[process]]\npid = 11\nname = 'd'\nuser = 'bob'\n\
         [[process]]\npid = 12\nname = 'e'\nuser = 'dave'\nuid = 1001\n\
         [[process]]\npid = 13\nname = 'f'\nuid = 1003\n\
         [[event]]\nat_ms = 1000\nstart = { pid = 14, name = 'g', user = 'alice', session = 3 }\n",
    );
    simulation.advance_to(Duration::from_secs(1));
    let own = "/user.slice/user-";
    for (pid, uid, user, parent, group, session, line, cgroup) in [
        (1, 0, "root", 0, 1, 1, &["init"][..], "/system.slice/init.service".to_owned()),
        (7, 1000, "user1000", 1, 7, 7, &["a"], format!("{own}1000.slice/session-7.scope")),
        (8, 0, "root", 1, 7, 7, &["b"], "/system.slice/b.service".to_owned()),
        (9, 0, "root", 1, 9, 9, &[], "/system.slice/kworker.service".to_owned()),
        (10, 1004, "carol", 1, 10, 10, &["c"], format!("{own}1004.slice/session-10.scope")),
        (11, 1003, "bob", 1, 11, 11, &["d"], format!("{own}1003.slice/session-11.scope")),
        (12, 1001, "dave", 1, 12, 12, &["e"], format!("{own}1001.slice/session-12.scope")),
        (13, 1003, "bob", 1, 13, 13, &["f"], format!("{own}1003.slice/session-13.scope")),
        (14, 1002, "alice", 1, 14, 3, &["g"], format!("{own}1002.slice/session-3.scope")),
    ] {
        let info = ProcessTable::process(&simulation, Pid(pid)).unwrap();
        assert_eq!((info.uid, info.user.as_deref()), (Ok(uid), Ok(user)), "{pid}");
        let named = (info.parent, info.group, info.session);
        assert_eq!(named, (Ok(Pid(parent)), Ok(Pid(group)), Ok(Pid(session))), "{pid}");
        assert_eq!(info.command_line.unwrap().iter().collect::<Vec<_>>(), line, "{pid}");
        assert_eq!(info.cgroup, Ok(cgroup), "{pid}");
        assert_eq!((info.state, info.live_threads), (Ok(ProcessState::Sleeping), Ok(1)), "{pid}");
        // A machine has been up for 30 days, and its processes started an hour ago.
        let (seconds, used) = if pid == 14 { (1, 0) } else { (-3600, 60) };
        let tick = (30 * 86_400 + seconds) * 100;
        assert_eq!(info.key.start, Some(StartTime(tick as u64)), "{pid}");
        assert_eq!(info.cpu_time, Ok(Duration::from_secs(used)), "{pid}");
        let started = 1_740_996_000_000 + seconds * 1000;
        assert_eq!(info.started_at.unwrap().0 as i64, started, "{pid}");
    }
}

#[test]
fn process_files_follow_its_memory() {
    let machine = read(
        "[[gpu]]\nindex = 0\n[[gpu]]\nindex = 1\nminor = 4\n\
         [[process]]\npid = 7\nname = 'a'\nmemory = [{ gpu = 1, mib = 0 }, { gpu = 1, mib = 0 }]\n\
         [[process]]\npid = 8\nname = 'a'\nmemory = [{ gpu = 0, mib = 0, kind = 'graphics' }]\n\
         [[process]]\npid = 9\nname = 'a'\n\
         memory = [{ gpu = 0, mib = 0, kind = 'graphics' }, { gpu = 1, mib = 0 }]\n\
         [[process]]\npid = 10\nname = 'a'\ngone = true\nmemory = [{ gpu = 0, mib = 0 }]\n\
         [[process]]\npid = 11\nname = 'a'\nmemory = [{ gpu = 0, mib = 0 }]\n\
         files = { '/dev/nvidia4' = '....m' }\n\
         [[process]]\npid = 12\nname = 'a'\n",
    )
    .unwrap();
    let letters = |access: Access| match access {
        _ if Some(access) == Access::from_letters("F...m") => "open and mapped",
        _ if Some(access) == Access::from_letters("F....") => "open",
        _ => "mapped",
    };
    let files = |pid| -> Vec<(String, &str)> {
        let process = machine.processes.iter().find(|process| process.pid() == Pid(pid)).unwrap();
        process.files.iter().map(|file| (file.path.to_string(), letters(file.access))).collect()
    };
    let both = "open and mapped";
    let of = |list: &[(&str, &'static str)]| -> Vec<(String, &str)> {
        list.iter().map(|(path, access)| (format!("/dev/{path}"), *access)).collect()
    };
    assert_eq!(files(7), of(&[("nvidia-uvm", both), ("nvidia4", both), ("nvidiactl", both)]));
    let graphics = [("nvidia-modeset", "open"), ("nvidia0", both), ("nvidiactl", both)];
    assert_eq!(files(8), of(&graphics));
    let mixed = [("nvidia-uvm", both), ("nvidia0", both), ("nvidia4", both), ("nvidiactl", both)];
    assert_eq!(files(9), of(&mixed));
    assert_eq!(files(10), [], "it has ended");
    assert_eq!(files(11), of(&[("nvidia4", "mapped")]), "as stated");
    assert_eq!(files(12), []);
    let all: Vec<_> = machine.files.iter().map(|file| &*file.path).collect();
    let expected = ["nvidia0", "nvidia4", "nvidiactl", "nvidia-modeset", "nvidia-uvm"];
    let mut sorted = all.clone();
    sorted.sort_unstable();
    let mut expected = expected.map(|name| format!("/dev/{name}"));
    expected.sort_unstable();
    assert_eq!(sorted, expected, "each once");
    let listed = read("device_files = ['/dev/nvidia9', '/dev/nvidiactl', '/dev/nvidia9']\n");
    assert_eq!(listed.unwrap().files, ["/dev/nvidia9", "/dev/nvidiactl"].map(device_file));
}

#[test]
fn device_files_have_the_numbers_of_linux() {
    for (path, role, major, minor) in [
        ("/dev/nvidia3", FileRole::Compute, 195, 3),
        ("/dev/nvidiactl", FileRole::Control, 195, 255),
        ("/dev/nvidia-modeset", FileRole::Display, 195, 254),
        ("/dev/nvidia-uvm", FileRole::Memory, 511, 0),
        ("/dev/nvidia-uvm-tools", FileRole::Tools, 511, 1),
        ("/dev/nvidia-caps/nvidia-cap12", FileRole::Capability, 236, 12),
        ("/dev/dri/renderD128", FileRole::Render, 226, 128),
    ] {
        let file = device_file(path);
        assert_eq!((&*file.path, file.role), (path, role));
        assert_eq!(file.id, Ok(FileId::Device { major, minor }), "{path}");
    }
    let other = |path| match device_file(path).id {
        Ok(FileId::Device { major: 240, minor }) => minor,
        id => panic!("{id:?}"),
    };
    let (a, b) = (other("/dev/a"), other("/dev/b"));
    // A minor number has 20 bits.
    assert!(a != b && a.max(b) < 1 << 20, "{a} {b}");
}

#[test]
fn viewer_is_named_and_privileged_by_uid() {
    for (viewer, uid, user, privileged, sees_host_pids) in [
        ("", 0, "root", true, true),
        ("uid = 1001", 1001, "alice", false, true),
        ("uid = 7777", 7777, "user7777", false, true),
        ("uid = 1001\nprivileged = true\nuser = 'x'", 1001, "x", true, true),
        ("privileged = false\nnamespace = 'n'", 0, "root", false, false),
    ] {
        let process = "[[process]]\npid = 7\nname = 'a'\nuser = 'alice'\n";
        let machine = read(&format!("[viewer]\n{viewer}\n{process}")).unwrap();
        let found = &machine.viewer;
        assert_eq!((found.uid, found.user.as_str(), found.privileged), (uid, user, privileged));
        assert_eq!(machine.sees_host_pids, Ok(sees_host_pids), "{viewer}");
    }
}

#[test]
fn stated_driver_supplements_recorded_one() {
    let driver = |text: &str, recordings: &[&str]| {
        let names: Vec<String> = recordings.iter().map(|name| format!("'{name}'")).collect();
        let state = format!("[recordings]\nstate = [{}]\n", names.join(", "));
        let machine = read_beside(&format!("{state}[driver]\n{text}"), recordings).unwrap();
        machine.driver.map(|driver| (driver.version.ok(), driver.cuda.ok())).ok()
    };
    let some = |text: &str| Some(text.to_owned());
    for (text, stated) in [
        ("", (None, None)),
        ("version = '1'", (some("1"), None)),
        ("cuda = '2'", (None, some("2"))),
        ("version = '1'\ncuda = '2'", (some("1"), some("2"))),
    ] {
        assert_eq!(driver(text, &[]), Some(stated), "{text}");
    }
    let recorded = driver("", &["nvidia-smi.txt"]).unwrap();
    assert_eq!(recorded, (some("418.87.00"), some("10.1")));
    assert_eq!(driver("cuda = '2'", &["nvidia-smi.txt"]), Some((recorded.0, some("2"))));
    assert_eq!(driver("fault = 'no-library'", &["nvidia-smi.txt"]), None);
    // A list of holders does not show the driver.
    assert_eq!(driver("", &["fuser.txt"]), None);
    assert_eq!(driver("version = '1'", &["fuser.txt"]), Some((some("1"), None)));
}

#[test]
fn device_identifiers_are_generated_once_unless_stated() {
    let text = "[[gpu]]\nindex = 0\nmig_enabled = true\n\
         mig = [{ index = 0, gpu_instance = 1, memory_total_mib = 1 }, \
                { index = 1, gpu_instance = 2, memory_total_mib = 1, uuid = 'MIG-1' }]\n\
         [[gpu]]\nindex = 1\nthrough = 2\n\
         [[gpu]]\nindex = 3\nuuid = 'GPU-3'\nminor = 7\nbus = '00000000:81:00.0'\n\
         [[gpu]]\nindex = 4\nunsupported = ['uuid']\n";
    let machine = read(text).unwrap();
    let again = read(text).unwrap();
    let id = |machine: &Machine, at: usize| machine.devices[at].info.id.clone();
    let form = |uuid: &str| uuid.split('-').map(str::len).collect::<Vec<_>>();
    let uuids: Vec<_> = (0..3).map(|at| id(&machine, at).uuid.unwrap().0).collect();
    assert!(uuids.iter().all(|uuid| uuid.starts_with("GPU-")), "{uuids:?}");
    assert!(uuids.iter().all(|uuid| form(uuid) == [3, 8, 4, 4, 4, 12]), "{uuids:?}");
    assert!(uuids[0] != uuids[1] && uuids[1] != uuids[2] && uuids[0] != uuids[2]);
    let minors: Vec<_> = (0..5).map(|at| id(&machine, at).minor().unwrap()).collect();
    assert_eq!(minors, [0, 1, 2, 7, 4]);
    assert_eq!(id(&machine, 3).uuid.unwrap().0.to_string(), "GPU-3");
    assert_eq!(id(&machine, 3).bus.unwrap().bus, 0x81);
    assert_eq!(id(&machine, 4).uuid, Err(Absent::NotSupported));
    let migs: Vec<_> = machine.devices[0].mig.iter().map(|mig| mig.uuid.clone()).collect();
    assert_eq!(form(&migs[0].as_ref().unwrap().0), [3, 8, 4, 4, 4, 12]);
    assert!(migs[0].as_ref().unwrap().0.starts_with("MIG-"));
    assert_eq!(migs[1].as_ref().unwrap().0.to_string(), "MIG-1");
    // They depend on the machine's name, which is its directory's name.
    assert_ne!(id(&machine, 0).uuid, id(&again, 0).uuid);
    let labbox = |at| id(&Machine::embedded("labbox").unwrap(), at);
    assert_eq!(labbox(1), labbox(1));
}

#[test]
fn unsupported_values_are_not_reported() {
    let all = "persistence = true\ndisplay_active = true\nmig_enabled = false\n\
               memory_total_mib = 5\ntemperature_c = 40\npower_draw_mw = 1\npower_limit_mw = 2\n\
               idle_utilization_percent = 3\n";
    let no = Err(Absent::NotSupported);
    for word in [
        "memory",
        "utilization",
        "temperature",
        "power-draw",
        "power-limit",
        "persistence",
        "display-active",
        "mig-enabled",
        "",
    ] {
        let unsupported = if word.is_empty() { String::new() } else { format!("'{word}'") };
        let simulation =
            start(&format!("[[gpu]]\nindex = 0\n{all}unsupported = [{unsupported}]\n"));
        let info = simulation.devices().unwrap().remove(0);
        let sample = simulation.sample(&info.id).unwrap();
        let is = |own: &str| word == own;
        let flag = |own: &str, value: bool| if is(own) { no } else { Ok(value) };
        assert_eq!(info.persistence, flag("persistence", true), "{word}");
        assert_eq!(info.display_active, flag("display-active", true), "{word}");
        assert_eq!(info.partitioned, flag("mig-enabled", false), "{word}");
        assert_eq!(sample.memory.total.is_err(), is("memory"), "{word}");
        assert_eq!(sample.memory.used.is_err(), is("memory"), "{word}");
        assert_eq!(
            sample.utilization.map(|percent| percent.get()).ok(),
            (!is("utilization")).then_some(3)
        );
        let temperature =
            if is("temperature") { Err(Absent::NotSupported) } else { Ok(Celsius(40)) };
        assert_eq!(sample.temperature, temperature);
        let draw = if is("power-draw") { Err(Absent::NotSupported) } else { Ok(Milliwatts(1)) };
        assert_eq!(sample.power_draw, draw);
        let limit = if is("power-limit") { Err(Absent::NotSupported) } else { Ok(Milliwatts(2)) };
        assert_eq!(sample.power_limit, limit);
    }
}

#[test]
fn values_at_their_limits_are_accepted() {
    let gpu = "[[gpu]]\nindex = 0\nmemory_total_mib = 100\n";
    let process = "[[process]]\npid = 7\nname = 'a'\n";
    for (accepted, refused) in [
        ("idle_utilization_percent = 100", "idle_utilization_percent = 101"),
        ("driver_reserve_mib = 100", "driver_reserve_mib = 101"),
        ("memory_leaked_mib = 100", "memory_leaked_mib = 101"),
        ("memory_reserved_mib = 100", "memory_reserved_mib = 101"),
        (
            "driver_reserve_mib = 60\nmemory_reserved_mib = 40",
            "driver_reserve_mib = 60\nmemory_reserved_mib = 41",
        ),
        (
            "driver_reserve_mib = 60\nmemory_leaked_mib = 40",
            "driver_reserve_mib = 60\nmemory_leaked_mib = 41",
        ),
        ("through = 0", "uuid = 'GPU-1'\nthrough = 0"),
        ("through = 63", "bus = '0:1:0.0'\nthrough = 63"),
        (
            "[gpu.details.activity]\nperformance_state = 15",
            "[gpu.details.activity]\nperformance_state = 16",
        ),
        (
            "[gpu.details.product]\ncompute_capability = [1, 0]",
            "[gpu.details.product]\ncompute_capability = [0, 9]",
        ),
    ] {
        assert!(read(&format!("{gpu}{accepted}\n")).is_ok(), "{accepted}");
        assert!(read(&format!("{gpu}{refused}\n")).is_err(), "{refused}");
    }
    assert!(read("[[gpu]]\nindex = 3\nthrough = 2\n").is_err());
    for (accepted, refused) in [
        ("memory = [{ gpu = 0, mib = 100 }]", "memory = [{ gpu = 0, mib = 101 }]"),
        (
            "memory = [{ gpu = 0, mib = 0, utilization_percent = 100 }]",
            "memory = [{ gpu = 0, mib = 0, utilization_percent = 101 }]",
        ),
        ("memory = [{ gpu = 0, mib = 0 }]", "memory = [{ gpu = 0, mib = 0, gpu_instance = 1 }]"),
        ("started = 2025-03-03T09:00:00Z", "started = 2025-03-03T08:59:59Z"),
        ("started = 2025-03-03T10:00:00Z", "started = 2025-03-03T10:00:01Z"),
        (
            "state = 'zombie'\nmemory = [{ gpu = 0, mib = 0 }]",
            "state = 'zombie'\nthreads = 0\nmemory = [{ gpu = 0, mib = 0 }]",
        ),
        ("state = 'zombie'\nthreads = 0", "workload = { kind = 'container', id = 'c' }"),
        ("namespace = { name = 'n', pid = 2 }", "namespace = { name = 'm', pid = 2 }"),
    ] {
        let read = |text: &str| {
            read(&format!(
                "booted = 2025-03-03T09:00:00Z\n{gpu}{process}{text}\n\
                 [[process]]\npid = 8\nname = 'name-of-15-byte'\n\
                 namespace = {{ name = 'm', pid = 2 }}\n"
            ))
        };
        assert!(read(accepted).is_ok(), "{accepted}");
        assert!(read(refused).is_err(), "{refused}");
    }
}

#[test]
fn event_has_time_delay_and_device() {
    let gpu = "[[gpu]]\nindex = 0\n";
    let event = |text: &str| {
        let mut machine = read(&format!("{gpu}[[event]]\n{text}\n"))?;
        Ok::<Scheduled, String>(machine.events.remove(0))
    };
    for (text, when) in [
        ("at_ms = 20\nafter_ms = 5", When::At(Duration::from_millis(25))),
        ("at_ms = 20", When::At(Duration::from_millis(20))),
        ("after_exit_of = 7\nafter_ms = 5", When::AfterExit(Pid(7), Duration::from_millis(5))),
    ] {
        let scheduled = event(&format!("{text}\nexit = 9")).unwrap();
        assert_eq!((scheduled.when, scheduled.event), (when, Event::Exit(Pid(9))));
    }
    for (text, expected) in [
        ("let_go = { pid = 7 }", Event::LetGo(Pid(7), None)),
        ("let_go = { pid = 7, gpu = 0 }", Event::LetGo(Pid(7), Some(0))),
        (
            "uses = { pid = 7, gpu = 0, mib = 2, utilization_percent = 101 }",
            Event::Uses(Pid(7), 0, Bytes::from_mib(2), 100),
        ),
        ("computes = { pid = 7, cpu_percent = 3 }", Event::Computes(Pid(7), 3)),
        ("joins_group = { pid = 7, group = 8 }", Event::JoinsGroup(Pid(7), Pid(8))),
        ("joins_cgroup = { pid = 7, cgroup = '/c' }", Event::JoinsCgroup(Pid(7), "/c".into())),
    ] {
        assert_eq!(event(&format!("at_ms = 1\n{text}")).unwrap().event, expected);
        if text.contains("gpu = 0") {
            let elsewhere = text.replace("gpu = 0", "gpu = 1");
            let refused = event(&format!("at_ms = 1\n{elsewhere}")).unwrap_err();
            assert!(refused.ends_with("line 6: GPU 1 is not in this machine"), "{refused}");
        }
    }
    assert!(event("at_ms = 1\nexit = 7\nlet_go = { pid = 7 }").is_err(), "one change");
    assert!(event("at_ms = 1\nafter_exit_of = 7\nexit = 7").is_err(), "one time");
}

#[test]
fn topology_cells_use_nvidia_smi_terms() {
    let topology = |links: &str, peers: &str| {
        let gpus = "[[gpu]]\nindex = 0\nthrough = 1\n";
        let text = format!(
            "topology = ['X {links}', '{links} X']\npeers = ['X {peers}', '{peers} X']\n{gpus}"
        );
        let topology = start(&text).topology().unwrap();
        (topology.links[0][1], topology.peers[0][1])
    };
    use PeerAccess as Peer;
    for (links, link, peers, peer) in [
        ("PIX", Link::Pix, "OK", Peer::Ok),
        ("PXB", Link::Pxb, "CNS", Peer::ChipsetNotSupported),
        ("PHB", Link::Phb, "GNS", Peer::DeviceNotSupported),
        ("NODE", Link::Node, "TNS", Peer::TopologyNotSupported),
        ("SYS", Link::Sys, "DR", Peer::Disabled),
        ("NV12", Link::NvLink(12), "NS", Peer::NotSupported),
        ("NV1", Link::NvLink(1), "U", Peer::Unknown),
    ] {
        assert_eq!(topology(links, peers), (link, peer), "{links} {peers}");
    }
}

#[test]
fn nvlink_version_follows_architecture() {
    for (architecture, version) in [
        ("Pascal", Ok(1)),
        ("Volta", Ok(2)),
        ("Turing", Ok(2)),
        ("Ampere", Ok(3)),
        ("Hopper", Ok(4)),
        ("Blackwell", Ok(5)),
        ("Kepler", Err(Absent::NotSupported)),
    ] {
        let simulation = start(&format!(
            "topology = ['X NV2', 'NV2 X']\n[[gpu]]\nindex = 0\nthrough = 1\n\
             details.product = {{ architecture = '{architecture}' }}\n"
        ));
        let details = simulation.details(&DeviceId::from_index(0), Groups::all()).unwrap();
        let links = details.nvlinks.unwrap();
        assert_eq!(links.len(), 2);
        assert!(links.iter().all(|link| link.version == version), "{architecture}");
    }
}

#[test]
fn links_beyond_device_maximum_end_at_switches() {
    for (links, own, switched) in [(9, 18, 0), (10, 10, 10)] {
        let cell = format!("NV{links}");
        let simulation = start(&format!(
            "topology = ['X {cell} {cell}', '{cell} X {cell}', '{cell} {cell} X']\n\
             [[gpu]]\nindex = 0\nbus = '0:ff:0.0'\n[[gpu]]\nindex = 1\nthrough = 2\n"
        ));
        let buses: Vec<_> = simulation.devices().unwrap().iter().map(|d| d.id.bus).collect();
        let details = simulation.details(&DeviceId::from_index(1), Groups::all()).unwrap();
        let ends: Vec<_> = details.nvlinks.unwrap().iter().map(|link| link.remote).collect();
        assert_eq!(ends.len(), own, "{links}");
        assert_eq!(ends.iter().filter(|end| !buses.contains(end)).count(), switched, "{links}");
        assert!(!ends.contains(&buses[1]), "none ends at the device itself");
        let distinct: std::collections::BTreeSet<_> = ends.iter().map(|end| end.unwrap()).collect();
        assert_eq!(distinct.len(), if switched == 0 { 2 } else { 4 });
    }
}
