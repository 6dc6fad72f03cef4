//! Valid contents of a machine's directory, and the errors for invalid input.

use gpu_core::ErrorKind;
use gpu_sim::Machine;
use std::path::Path;

const HEAD: &str = "description = 'made: a test'\nclock = 2025-03-03T10:00:00Z\n";

fn read(text: &str) -> Result<Machine, (ErrorKind, String)> {
    let dir = tempfile::tempdir().unwrap();
    let machine = dir.path().join("x");
    std::fs::create_dir(&machine).unwrap();
    std::fs::write(machine.join("machine.toml"), text).unwrap();
    std::fs::write(dir.path().join("outside.txt"), "secret").unwrap();
    std::fs::write(machine.join("noise.txt"), "neither table nor list").unwrap();
    load(&machine)
}

fn load(dir: &Path) -> Result<Machine, (ErrorKind, String)> {
    Machine::from_dir(dir).map_err(|error| (error.kind(), error.fault().text))
}

/// Asserts that `text` is rejected with exactly this message.
fn refused(text: &str, message: &str) {
    let (kind, reported) = read(text).unwrap_err();
    assert_eq!(reported, format!("read machine 'x': {message}"));
    assert_eq!(kind, ErrorKind::Invalid);
}

#[test]
fn unknown_field_error_has_line_and_suggestion() {
    let gpu = "[[gpu]]\nindex = 0\n";
    for (text, message) in [
        (
            format!("{HEAD}{gpu}[[process]]\npid = 1\nmemry = []\n"),
            "machine.toml line 7: unknown field 'memry'; did you mean 'memory'?",
        ),
        (
            format!("{HEAD}{gpu}memory_totl_mib = 1\n"),
            "machine.toml line 5: unknown field 'memory_totl_mib'; did you mean 'memory_total_mib'?",
        ),
        (
            format!("{HEAD}{gpu}[gpu.details.clocks]\ngraphic_mhz = 1\n"),
            "machine.toml line 6: unknown field 'graphic_mhz'; did you mean 'graphics_mhz'?",
        ),
        (
            format!("{HEAD}{gpu}[gpu.busy.clock]\ngraphics_mhz = 1\n"),
            "machine.toml line 5: unknown field 'clock'; did you mean 'clocks'?",
        ),
        (
            format!("{HEAD}{gpu}[product.'G'.detail]\n"),
            "machine.toml line 5: unknown field 'detail'; did you mean 'details'?",
        ),
        (
            format!("{HEAD}[viewer]\nuids = 1\n"),
            "machine.toml line 4: unknown field 'uids'; did you mean 'uid'?",
        ),
        (
            format!("{HEAD}[driver]\nfault = 'no-libary'\n"),
            "machine.toml line 4: unknown word 'no-libary'; did you mean 'no-library'?",
        ),
        (
            format!("{HEAD}[[process]]\npid = 1\nname = 'a'\non_term = 'ignors'\n"),
            "machine.toml line 6: unknown word 'ignors'; did you mean 'ignores'?",
        ),
        (
            format!("{HEAD}[[event]]\nat_ms = 1\nlet_go = {{ pid = 1, gpus = 0 }}\n"),
            "machine.toml line 5: unknown field 'gpus'; did you mean 'gpu'?",
        ),
        (
            format!("{HEAD}[[event]]\nat_ms = 1\nreports = {{ gpu = 0, xids = 79 }}\n"),
            "machine.toml line 5: unknown field 'xids'; did you mean 'xid'?",
        ),
        (
            format!(
                "{HEAD}[[process]]\npid = 1\nmemory = [{{ gpu = 0, mib = 1, lsted = true }}]\n"
            ),
            "machine.toml line 5: unknown field 'lsted'; did you mean 'listed'?",
        ),
    ] {
        refused(&text, message);
    }
}

#[test]
fn contradictory_machine_is_rejected() {
    let gpu = "[[gpu]]\nindex = 0\nmemory_total_mib = 100\n";
    for (more, message) in [
        ("[[process]]\npid = 7\n", "line 4: process 7 has no name and is not in any recording"),
        (
            "[[process]]\npid = 7\nname = 'a'\n[[process]]\npid = 7\nname = 'b'\n",
            "line 7: process 7 is defined twice",
        ),
        (
            "[[process]]\npid = 7\nname = 'a'\nmemory = [{ gpu = 3, mib = 1 }]\n",
            "line 4: process 7 has memory on GPU 3, which is not in this machine",
        ),
        (
            "[[process]]\npid = 7\nname = 'a'\non_kill = 'ignores'\n",
            "line 4: process 7 cannot ignore SIGKILL; use 'stuck'",
        ),
        (
            "[[process]]\npid = 7\nname = 'nvidia-persistenced'\n",
            "line 4: process 7 has the name 'nvidia-persistenced', longer than the kernel's limit \
             of 15 bytes",
        ),
        (
            "[[process]]\npid = 7\nname = 'a'\nfiles = { '/dev/nvidia0' = 'Fx' }\n",
            "line 6: 'Fx' is not a fuser access string",
        ),
        (
            "[[process]]\npid = 7\nname = 'a'\nfiles = { '/dev/nvdia0' = 'F....' }\n",
            "process 7 has '/dev/nvdia0' open, which is not a device file of this machine",
        ),
        (
            "[[process]]\npid = 7\nname = 'a'\nstate = 'zombie'\nthreads = 0\n\
             files = { '/dev/nvidiactl' = 'F....' }\n",
            "process 7 is a zombie without live threads and cannot hold anything",
        ),
        (
            "[[process]]\npid = 7\nname = 'a'\nnamespace = { name = 'n', pid = 1 }\n\
             [[process]]\npid = 8\nname = 'a'\nnamespace = { name = 'n', pid = 1 }\n",
            "process 7 shares its namespace PID with another process",
        ),
        (
            "[[process]]\npid = 7\nname = 'a'\nstarted = 2025-03-03T10:00:01Z\n",
            "process 7 starts before the boot of the machine or after its clock",
        ),
        (
            "[[event]]\nat_ms = 1\nstart = { pid = 7, name = 'a', started = 2025-03-03T10:00:01Z }\n",
            "line 4: a process started by an event must not set 'started'",
        ),
        ("[[process]]\npid = 0\nname = 'a'\n", "line 4: process 0 is invalid: PIDs start at 1"),
        ("[[event]]\nexit = 7\n", "an event requires exactly one of 'at_ms' and 'after_exit_of'"),
        (
            "[[event]]\nat_ms = 5\n",
            "line 4: an event requires exactly one change, such as 'exit' or 'start'",
        ),
        (
            "[[event]]\nat_ms = 5\nreports = { gpu = 2, xid = 79 }\n",
            "line 4: GPU 2 is not in this machine",
        ),
        (
            "[[event]]\nat_ms = 5\nfails = { gpu = 2, fault = 'lost' }\n",
            "line 4: GPU 2 is not in this machine",
        ),
    ] {
        let prefix = if message.starts_with("line") { "machine.toml " } else { "machine.toml: " };
        refused(&format!("{HEAD}{more}"), &format!("{prefix}{message}"));
    }
    refused(
        &format!("{HEAD}{gpu}driver_reserve_mib = 101\n"),
        "machine.toml line 4: GPU 0 uses 101 MiB, more than its memory",
    );
    refused(
        &format!("{HEAD}topology = ['X PIX', 'PIX']\n"),
        "machine.toml: topology must be a square matrix of cells such as 'X NV2 PIX SYS', a row \
         for each GPU",
    );
    for (rows, message) in [
        (
            "topology = ['X NV1', 'NV1 X']",
            "topology must be a square matrix of cells such as 'X NV2 PIX SYS'",
        ),
        (
            "topology = ['X']\npeers = ['OK OK']",
            "peers must be a square matrix of cells such as 'X OK CNS'",
        ),
        (
            "topology = ['X']\npeers = ['GOOD']",
            "peers must be a square matrix of cells such as 'X OK CNS'",
        ),
    ] {
        let message = format!("machine.toml: {message}, a row for each GPU");
        refused(&format!("{HEAD}{rows}\n{gpu}"), &message);
    }
    for (more, message) in [
        ("through = 64", "'through' must be an index from 0 to 63"),
        (
            "through = 3\nminor = 1",
            "an entry for several GPUs must not set 'uuid', 'minor' or 'bus'",
        ),
    ] {
        refused(&format!("{HEAD}{gpu}{more}\n"), &format!("machine.toml line 4: {message}"));
    }
    let gpus = format!("{gpu}[[gpu]]\nindex = 1\n");
    for paths in ["['X NV2', 'NV2 X']", "['X X', 'X X']", "['PIX PIX', 'PIX X']", "['X PIX']"] {
        let text = format!("{HEAD}topology = ['X NV2', 'NV2 X']\npaths = {paths}\n{gpus}");
        let message = "machine.toml: paths must be a square matrix of cells such as 'X PIX SYS', \
                       a row for each GPU, equal to 'topology' except for its NVLinks";
        refused(&text, message);
    }
    refused(&format!("{HEAD}paths = ['X']\n{gpu}"), "machine.toml: 'paths' requires 'topology'");
    refused(&format!("{HEAD}peers = ['X']\n{gpu}"), "machine.toml: 'peers' requires 'topology'");
    refused(
        "description = ''\nclock = 2025-03-03\n",
        "machine.toml: clock '2025-03-03' is not a date-time, e.g. 2026-11-21T09:00:00Z",
    );
    refused("clock = 2025-03-03T10:00:00Z\n", "machine.toml line 1: missing field 'description'");
}

#[test]
fn contradictory_details_are_rejected() {
    let gpu = "[[gpu]]\nindex = 0\nname = 'G'\nmemory_total_mib = 100\n";
    for (details, message) in [
        (
            "power_limit_mw = 9\ndetails.power = { limit_min_mw = 10 }",
            "its power limit is below the minimum",
        ),
        ("details.power = { limit_max_mw = 10 }", "its power limit is above the maximum"),
        (
            "details.power = { default_limit_mw = 5, limit_min_mw = 6 }",
            "its default power limit is below the minimum",
        ),
        (
            "details.power = { default_limit_mw = 300_001, limit_max_mw = 300_000 }",
            "its default power limit is above the maximum",
        ),
        ("details.clocks = { sm_mhz = 2, sm_max_mhz = 1 }", "its SM clock is above the maximum"),
        (
            "details.clocks = { memory_mhz = 2, memory_max_mhz = 1 }",
            "its memory clock is above the maximum",
        ),
        (
            "details.clocks = { video_mhz = 2, video_max_mhz = 1 }",
            "its video clock is above the maximum",
        ),
        (
            "details.pcie = { generation = 5, generation_max = 4 }",
            "its PCIe generation is above the maximum",
        ),
        (
            "details.pcie = { bar1_used_bytes = 2, bar1_total_bytes = 1 }",
            "its used BAR1 memory exceeds the total",
        ),
        (
            "details.product = { compute_capability = [0, 9] }",
            "its compute capability must be at least 1.0",
        ),
        (
            "details.clocks = { graphics_max_mhz = 1 }\nbusy.clocks = { graphics_mhz = 2 }",
            "its graphics clock is above the maximum",
        ),
        ("details.pcie = { width = 16, width_max = 8 }", "its PCIe width is above the maximum"),
        ("details.activity = { performance_state = 16 }", "its performance state must be 0 to 15"),
        (
            "display_active = true\ndetails.modes = { display_attached = false }",
            "it has an active display but no display connector",
        ),
        (
            "details.accounting = { processes = [{ pid = 1 }] }",
            "it has accounted processes although accounting is off",
        ),
        ("details.memory_health = { corrected = 0 }", "it has corrected ECC errors but no ECC"),
    ] {
        let message = format!("machine.toml line 4: GPU 0: {message}");
        refused(&format!("{HEAD}{gpu}{details}\n"), &message);
        // The product is checked too, except for values outside the details.
        if details.starts_with("details") && !details.contains("busy") {
            let product = format!("[product.G]\n{details}\n");
            refused(&format!("{HEAD}{gpu}{product}"), &message);
        }
    }
    refused(
        &format!("{HEAD}{gpu}[product.'H'.details.clocks]\nsm_mhz = 1\n"),
        "machine.toml line 7: this machine has no GPU of product 'H'",
    );
    let (_, reported) =
        read(&format!("{HEAD}{gpu}[gpu.details.clocks]\nsm_mhz = 'fast'\n")).unwrap_err();
    assert!(reported.starts_with("read machine 'x': machine.toml line 8: "), "{reported}");
}

#[test]
fn consistent_details_are_accepted() {
    for details in [
        "details.power = { limit_min_mw = 250_000, limit_max_mw = 250_000, default_limit_mw = 250_000 }",
        "details.clocks = { sm_mhz = 1, sm_max_mhz = 1, memory_mhz = 2, memory_max_mhz = 2 }",
        "details.pcie = { width = 8, width_max = 8, bar1_used_bytes = 1, bar1_total_bytes = 1 }",
        "details.activity = { performance_state = 15 }",
        "display_active = true\ndetails.modes = { display_attached = true }",
        "details.modes = { display_attached = false }",
        "details.accounting = { processes = [] }",
        "details.modes = { accounting = true }\ndetails.accounting = { processes = [{ pid = 1 }] }",
        "details.modes = { ecc = true }\ndetails.memory_health = { corrected = 0 }",
        "details.memory_health = { uncorrected = 0 }",
        "details.product = { compute_capability = [1, 0] }",
    ] {
        let read = read(&format!("{HEAD}[[gpu]]\nindex = 0\n{details}\n"));
        assert!(read.is_ok(), "{details}: {read:?}");
    }
}

#[test]
fn files_of_the_largest_size_are_read() {
    for (size, is_read) in [(4 << 20, true), ((4 << 20) + 1, false)] {
        let text = format!("{HEAD}#{}", "x".repeat(size - HEAD.len() - 1));
        assert_eq!(read(&text).is_ok(), is_read, "{size}");
    }
}

#[test]
fn recording_outside_dir_is_not_read() {
    for name in ["../outside.txt", "/etc/hostname", "a/b.txt", ".", "..", "", "./noise.txt"] {
        let (kind, reported) =
            read(&format!("{HEAD}[recordings]\nother = ['{name}']\n")).unwrap_err();
        assert_eq!(kind, ErrorKind::Invalid, "{name}");
        assert!(reported.contains("machine.toml line 4: recording "), "{name}: {reported}");
        assert!(!reported.contains("secret"));
    }
}

#[test]
fn symlinked_recording_is_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let text = format!("{HEAD}[recordings]\nother = ['link.txt']\n");
    std::fs::write(dir.path().join("machine.toml"), text).unwrap();
    std::os::unix::fs::symlink("/etc/hostname", dir.path().join("link.txt")).unwrap();
    let (kind, reported) = load(dir.path()).unwrap_err();
    assert_eq!(kind, ErrorKind::Invalid);
    assert!(
        reported.ends_with("recording 'link.txt' cannot be read: 'link.txt' is not a regular file")
    );
}

#[test]
fn missing_unknown_binary_and_large_files_are_rejected() {
    let (_, reported) = read(&format!("{HEAD}[recordings]\nstate = ['a.txt']\n")).unwrap_err();
    assert!(
        reported.contains("machine.toml line 4: recording 'a.txt' cannot be read: read 'a.txt'")
    );
    let (_, reported) = read(&format!("{HEAD}[recordings]\nstate = ['noise.txt']\n")).unwrap_err();
    assert!(
        reported.contains("machine.toml line 4: recording 'noise.txt' cannot be read"),
        "{reported}"
    );

    let dir = tempfile::tempdir().unwrap();
    let (kind, reported) = load(dir.path()).unwrap_err();
    assert_eq!(kind, ErrorKind::Invalid, "it is no machine");
    let path = dir.path().display();
    assert!(reported.starts_with(&format!("find 'machine.toml' in '{path}'")), "{reported}");
    let (kind, _) = load(&dir.path().join("nowhere")).unwrap_err();
    assert_eq!(kind, ErrorKind::Invalid);

    let toml = dir.path().join("machine.toml");
    std::fs::write(&toml, b"\x7fELF\x02\x01\x01\0\xff\xfe").unwrap();
    let (kind, reported) = load(dir.path()).unwrap_err();
    assert_eq!(kind, ErrorKind::Invalid);
    assert!(reported.ends_with("machine.toml is not valid UTF-8"), "{reported}");

    std::fs::File::create(&toml).unwrap().set_len(100 << 20).unwrap();
    let (_, reported) = load(dir.path()).unwrap_err();
    assert!(reported.ends_with("'machine.toml' is larger than 4 MiB"), "{reported}");
}

#[test]
fn unknown_machine_error_has_suggestion() {
    let error = Machine::embedded("p100-gost").unwrap_err();
    assert_eq!(error.to_string(), "find machine 'p100-gost'; did you mean 'p100-ghost'?");
    assert!(Machine::embedded("../machines/labbox").is_err());
    assert!(Machine::embedded("").is_err());
}
