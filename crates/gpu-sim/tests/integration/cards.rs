//! Simulated GPUs of AMD and Intel: their files follow the processes.

use gpu_core::{
    Absent, ActToken, Bytes, Clock, DeviceFiles, DriverView, ErrorKind, GpuBackend, MemoryUse, Pid,
    ProcessTable, Signal,
};
use gpu_drm::{Tree, clients, processes};
use gpu_sim::{Event, Simulation};
use std::sync::Arc;
use std::time::Duration;

const CARD: &str = "0000:03:00.0";

/// A card of amdgpu with a KFD node, as a file of cards.
fn files() -> String {
    let node = "sys/class/kfd/kfd/topology/nodes/1";
    format!(
        "[sys/devices/pci0000:00/{CARD}]\n\
         uevent = DRIVER=amdgpu\\nPCI_ID=1002:744C\\nPCI_SLOT_NAME={CARD}\n\
         mem_info_vram_total = 1073741824\n\
         mem_info_vram_used = 1048576\n\
         mem_info_gtt_used = 0\n\
         gpu_busy_percent = 3\n\
         energy =+ 5 1000\n\
         reset =\n\
         [sys/class/drm/card0]\n\
         device -> ../../../devices/pci0000:00/{CARD}\n\
         [sys/class/drm/renderD128]\n\
         device -> ../../../devices/pci0000:00/{CARD}\n\
         [{node}]\n\
         gpu_id = 77\n\
         properties = location_id 768\\ndrm_render_minor 128\\nsimd_count 8\n"
    )
}

fn machine(cards: &str, entries: &str) -> gpu_core::Result<Simulation> {
    let dir = tempfile::tempdir().unwrap();
    let head = "description = 'made: a test'\nclock = 2025-03-03T10:00:00Z\ncards = 'cards.txt'\n";
    std::fs::write(dir.path().join("machine.toml"), format!("{head}{entries}")).unwrap();
    std::fs::write(dir.path().join("cards.txt"), cards).unwrap();
    Simulation::named(dir.path())
}

fn start(entries: &str) -> (Simulation, Arc<dyn Tree>) {
    let simulation = machine(&files(), entries).unwrap();
    let tree = simulation.tree().unwrap();
    (simulation, tree)
}

fn process(pid: u32, memory: &str) -> String {
    format!(
        "[[process]]\npid = {pid}\nname = 'p{pid}'\nmemory = [{{ card = '{CARD}', {memory} }}]\n"
    )
}

/// Returns a number of the card.
fn number(tree: &Arc<dyn Tree>, file: &str) -> u64 {
    tree.number(&format!("sys/class/drm/card0/device/{file}")).unwrap()
}

/// Returns the used memory of the card, without that of its files, in MiB.
fn used(tree: &Arc<dyn Tree>) -> u64 {
    (number(tree, "mem_info_vram_used") >> 20) - 1
}

#[test]
fn end_of_a_process_frees_its_memory_after_a_while() {
    let entry = process(7, "mib = 100, host_mib = 30, utilization_percent = 50");
    let (simulation, tree) = start(&entry);
    let read = || (used(&tree), number(&tree, "mem_info_gtt_used") >> 20);
    assert_eq!((read(), number(&tree, "gpu_busy_percent")), ((100, 30), 53));
    simulation.happen(Event::Exit(Pid(7)));
    assert_eq!((read(), number(&tree, "gpu_busy_percent")), ((100, 30), 3), "not yet free");
    simulation.sleep(Duration::from_millis(200));
    assert_eq!(read(), (0, 0));
}

#[test]
fn leaked_memory_stays_until_a_reset() {
    let entry = format!("{}leaks_memory = true\n", process(7, "mib = 100"));
    let (simulation, tree) =
        start(&format!("[[card]]\nbus = '{CARD}'\nmemory_leaked_mib = 8\n{entry}"));
    simulation.happen(Event::Exit(Pid(7)));
    simulation.sleep(Duration::from_secs(9));
    assert_eq!(used(&tree), 108);
    assert_eq!(
        simulation.reset_card("sys/class/drm/card0/device/nothing"),
        Err(Absent::NotSupported)
    );
    assert_eq!(used(&tree), 108);
    simulation.reset_card("sys/class/drm/card0/device/reset").unwrap();
    assert_eq!(used(&tree), 0);
}

#[test]
fn shared_client_counts_once_and_lives_as_long_as_a_holder() {
    let entries =
        [process(7, "mib = 100, client = 4"), process(8, "mib = 100, client = 4")].concat();
    let (simulation, tree) = start(&entries);
    let held: Vec<_> = clients(&*tree).unwrap().iter().map(|held| held.holders.len()).collect();
    assert_eq!((used(&tree), held), (100, vec![2]));
    simulation.happen(Event::Exit(Pid(7)));
    simulation.sleep(Duration::from_secs(1));
    assert_eq!(used(&tree), 100, "its other holder lives");
    simulation.happen(Event::Exit(Pid(8)));
    simulation.sleep(Duration::from_secs(1));
    assert_eq!(used(&tree), 0);
}

#[test]
fn holders_have_the_clients_of_their_descriptors() {
    let entries = [process(7, "mib = 100"), process(8, "mib = 40, kind = 'graphics'")].concat();
    let (simulation, _) = start(&entries);
    let files = simulation.device_files().unwrap();
    let paths: Vec<&str> = files.iter().map(|file| &*file.path).collect();
    assert_eq!(paths, ["/dev/dri/card0", "/dev/dri/renderD128", "/dev/kfd"]);
    let memory = |pid: u32| {
        let holders = simulation.holders(&files).unwrap().holders;
        let holder = holders.into_iter().find(|holder| holder.process.pid == Pid(pid)).unwrap();
        let paths: Vec<String> = holder.held.iter().map(|held| held.path.to_string()).collect();
        (paths, holder.any_memory_use())
    };
    let certain = |mib| MemoryUse::Certain(Some(Bytes::from_mib(mib)));
    let kfd = ["/dev/dri/renderD128", "/dev/kfd"].map(str::to_owned).to_vec();
    assert_eq!(memory(7), (kfd, certain(100)));
    assert_eq!(memory(8), (vec!["/dev/dri/renderD128".to_owned()], certain(40)));
}

#[test]
fn kfd_lists_programs_that_compute_or_once_opened_it() {
    let gone = "[[process]]\npid = 9\nname = 'gone'\ngone = true\nopened_kfd = true\n";
    let graphics = process(8, "mib = 40, kind = 'graphics'");
    let (simulation, tree) = start(&[&process(7, "mib = 100"), &graphics, gone].concat());
    let listed = || {
        let all = processes(&*tree).unwrap().into_iter();
        let row =
            |one: gpu_drm::KfdProcess| (one.pid.0, one.memory(77).unwrap().mib(), one.is_unused());
        all.map(row).collect::<Vec<_>>()
    };
    assert_eq!(listed(), [(7, 100, false), (9, 0, true)]);
    assert_eq!(tree.text("proc/9/comm"), Err(Absent::NotSupported), "it has ended");
    simulation.open(Pid(7)).unwrap().signal(Signal::Kill, &ActToken::user_confirmed()).unwrap();
    simulation.sleep(Duration::from_secs(1));
    assert_eq!(listed(), [(9, 0, true)]);
}

#[test]
fn descriptors_of_other_users_are_hidden_without_root() {
    let own = format!("uid = 1001\n{}", "");
    let entries = format!(
        "[viewer]\nuid = 1001\n{}{own}{}uid = 1002\n",
        process(7, "mib = 100"),
        process(8, "mib = 50")
    );
    let (simulation, tree) = start(&entries);
    let found = clients(&*tree).unwrap();
    assert_eq!(found.iter().count(), 1);
    assert!(found.unreadable.contains(&Pid(8)) && found.processes.contains_key(&Pid(7)));
    assert_eq!(used(&tree), 150, "the card counts all");
    let reset = simulation.reset_card("sys/class/drm/card0/device/reset");
    assert_eq!(reset, Err(Absent::NotPermitted));
}

#[test]
fn counters_grow_with_the_time_of_the_machine() {
    let (simulation, tree) = start("");
    assert_eq!((number(&tree, "energy"), tree.now()), (5, Duration::ZERO));
    simulation.sleep(Duration::from_millis(2500));
    assert_eq!((number(&tree, "energy"), tree.now()), (2505, Duration::from_millis(2500)));
}

#[test]
fn machine_without_devices_of_nvidia_has_no_nvml() {
    let (simulation, _) = start("");
    assert!(!simulation.has_nvidia() && simulation.driver().is_err());
    assert_eq!(simulation.driver_devices().unwrap(), []);
    let both = machine(&files(), "[[gpu]]\nindex = 0\n").unwrap();
    assert!(both.has_nvidia() && both.tree().is_some());
    assert!(Simulation::embedded("labbox").unwrap().tree().is_none());
}

#[test]
fn errors_name_file_line_and_remedy() {
    for (line, expected) in [
        ("a", "cards.txt line 1: 'a' is none of the forms; write 'PATH = TEXT'"),
        ("a = b\\q", "cards.txt line 1: '\\q' is no escape; write \\n, \\t or \\\\"),
        ("a =x 123", "write an even number of hex digits"),
        ("a =+ 1", "write the start and the growth per second"),
        ("a = 1\na = 2", "cards.txt line 2: 'a' is there twice; remove one of the lines"),
        ("a = 1\na/b = 2", "cards.txt line 2: 'a' is already a file"),
        ("a/b = 1\na = 2", "cards.txt line 2: 'a' is already a directory"),
        ("[x]\n../a = 1", "cards.txt line 2: 'x/../a' is no path below the root"),
        ("a = 1", "cards.txt has no card; a card is a directory"),
    ] {
        let error = machine(line, "").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{line}");
        let text = error.fault().text;
        assert!(text.contains(expected), "{line}: {text}");
    }
    for (entries, expected) in [
        (process(7, "mib = 2000"), "uses 2,001 MiB, more than its memory"),
        (process(7, "mib = 1, partition = 3"), "has memory in partition 3 of card"),
        (process(7, "mib = 1, kind = 'mps'"), "'mps' is a kind of use of NVIDIA's GPUs"),
        (process(7, "mib = 1, listed = false"), "only memory on a 'gpu' has"),
        (process(7, "mib = 1, client = 1000"), "choose a lower one"),
        (process(7, "mib = 1").replace("03:", "04:"), "its cards are 0000:03:00.0"),
        (
            [process(7, "mib = 1, client = 1"), process(8, "mib = 2, client = 1")].concat(),
            "write the same",
        ),
        ("[[card]]\nbus = '0000:09:00.0'\n".to_owned(), "line 5: card '0000:09:00.0'"),
        ("[[process]]\npid = 7\nname = 'a'\nmemory = [{ mib = 1 }]\n".to_owned(), "add one"),
    ] {
        let text = machine(&files(), &entries).unwrap_err().fault().text;
        assert!(text.contains(expected), "{entries}: {text}");
    }
}

#[test]
fn links_that_loop_are_an_error() {
    let simulation = machine(&format!("{}[loop]\na -> b\nb -> a\n", files()), "").unwrap();
    let tree = simulation.tree().unwrap();
    assert_eq!(tree.text("loop/a"), Err(Absent::Failed));
    assert_eq!(tree.names("loop").unwrap(), ["a", "b"]);
    assert_eq!(tree.target("loop/a").as_deref(), Ok("b"));
    assert_eq!(tree.read("sys/class/drm", 9), Err(Absent::Failed), "a directory");
    assert_eq!(tree.names("nothing"), Err(Absent::NotSupported));
}
