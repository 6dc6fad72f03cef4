//! Invalid input causes an error that names file and line, the documented exit code, and no output.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

struct Ended {
    code: i32,
    stdout: String,
    stderr: String,
}

fn ended(output: Output) -> Ended {
    Ended {
        code: output.status.code().expect("gpuws ends by itself"),
        stdout: String::from_utf8(output.stdout).expect("gpuws prints UTF-8"),
        stderr: String::from_utf8(output.stderr).expect("gpuws prints UTF-8"),
    }
}

fn gpuws(dir: &Path, words: &[&str]) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpuws"));
    ended(command.args(words).current_dir(dir).stdin(Stdio::null()).output().expect("gpuws runs"))
}

fn with_input(words: &[&str], input: &[u8]) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpuws"));
    command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("gpuws runs");
    let mut stdin = child.stdin.take().expect("stdin is piped");
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // It may have exited before it read everything.
            let _ = stdin.write_all(input);
        });
        ended(child.wait_with_output().expect("gpuws ends"))
    })
}

/// A directory with a modified copy of a shipped machine.
fn machine(change: impl Fn(String) -> String) -> tempfile::TempDir {
    machine_from("p100-ghost", change)
}

fn machine_from(name: &str, change: impl Fn(String) -> String) -> tempfile::TempDir {
    let machines = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sim-fixtures/machines");
    let shipped = machines.join(name);
    let dir = tempfile::tempdir().expect("temporary directory");
    let to = dir.path().join("box");
    fs::create_dir(&to).expect("temporary directory");
    for entry in fs::read_dir(shipped).expect("the machine is shipped") {
        let entry = entry.expect("an entry");
        fs::copy(entry.path(), to.join(entry.file_name())).expect("a copy");
    }
    let file = to.join("machine.toml");
    let text = fs::read_to_string(&file).expect("a machine has its file");
    fs::write(&file, change(text)).expect("written");
    dir
}

fn files(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .expect("temporary directory")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn machine_loads_from_dir() {
    let dir = machine(|text| text);
    let seen = gpuws(dir.path(), &["--sim", "./box", "doctor"]);
    assert_eq!(seen.code, 1, "{}", seen.stderr);
    assert!(seen.stdout.starts_with("simulated machine box"), "{}", seen.stdout);
}

#[test]
fn unknown_field_error_names_file_and_line() {
    let dir = machine(|text| text.replace("on_term", "on_trem"));
    let line = fs::read_to_string(dir.path().join("box/machine.toml")).expect("a file");
    let line = 1 + line.lines().position(|line| line.contains("on_trem")).expect("the file opens");
    let refused = gpuws(dir.path(), &["--sim", "./box", "doctor"]);
    assert_eq!(refused.code, 2, "{}", refused.stderr);
    assert_eq!(refused.stdout, "");
    let expected =
        format!("machine.toml line {line}: unknown field 'on_trem'; did you mean 'on_term'?");
    assert!(
        refused.stderr.starts_with("gpuws: failed to read machine 'box'"),
        "{}",
        refused.stderr
    );
    assert!(refused.stderr.contains(&expected), "{}", refused.stderr);
}

#[test]
fn recording_outside_machine_dir_is_rejected() {
    let dir = machine(|text| text.replace("\"nvidia-smi.txt\"", "\"../../etc/passwd\""));
    let refused = gpuws(dir.path(), &["--sim", "./box", "doctor"]);
    assert_eq!(refused.code, 2, "{}", refused.stderr);
    assert!(refused.stderr.contains("passwd"), "{}", refused.stderr);
}

#[test]
fn truncated_recording_is_rejected_with_line() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let recorded = gpuws(dir.path(), &["--sim", "p100-ghost", "record", "a.gpuws", "--names"]);
    assert_eq!(recorded.code, 0, "{}", recorded.stderr);
    let whole = fs::read(dir.path().join("a.gpuws")).expect("a recording");
    let replayed = gpuws(dir.path(), &["--sim", "a.gpuws", "doctor"]);
    assert_eq!(replayed.code, 1, "{}", replayed.stderr);
    assert!(replayed.stdout.contains("100562  t2t-decoder"), "{}", replayed.stdout);
    for cut in [1, whole.len() / 3, whole.len() / 2, whole.len() - 2] {
        fs::write(dir.path().join("cut.gpuws"), &whole[..cut]).expect("written");
        let refused = gpuws(dir.path(), &["--sim", "cut.gpuws", "doctor"]);
        assert_eq!(refused.code, 2, "{cut}: {}{}", refused.stdout, refused.stderr);
        assert!(refused.stderr.contains("cut.gpuws"), "{}", refused.stderr);
        assert!(refused.stderr.contains("line "), "{cut}: {}", refused.stderr);
    }
}

#[test]
fn noise_and_binary_input_is_rejected() {
    let dir = tempfile::tempdir().expect("temporary directory");
    // A linear congruential generator: reproducible noise.
    let mut state = 1u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    })
    .take(1 << 20)
    .collect();
    fs::write(dir.path().join("large"), noise.repeat(100)).expect("written");
    fs::write(dir.path().join("small"), &noise[..4096]).expect("written");
    let program = fs::read(env!("CARGO_BIN_EXE_gpuws")).expect("it can be read");
    fs::write(dir.path().join("program"), &program[..4 << 20]).expect("written");
    fs::write(dir.path().join("empty"), "").expect("written");
    let before = files(dir.path());
    for name in ["large", "small", "program", "empty", "missing", "."] {
        let path = format!("./{name}");
        for words in [&["parse", &path, "--json"][..], &["--sim", &path, "doctor"]] {
            let refused = gpuws(dir.path(), words);
            assert!(
                [2, 3].contains(&refused.code),
                "{words:?}: {} {}",
                refused.code,
                refused.stderr
            );
            assert_eq!(refused.stdout, "", "{words:?}");
            assert!(refused.stderr.contains(name), "{words:?}: {}", refused.stderr);
            assert!(!refused.stderr.contains('\u{fffd}'), "{words:?}: {}", refused.stderr);
        }
    }
    assert_eq!(files(dir.path()), before, "nothing was written");
    let refused = with_input(&["doctor", "--paste"], &noise);
    assert_eq!((refused.code, refused.stdout.as_str()), (2, ""), "{}", refused.stderr);
}

#[test]
fn pasted_output_is_diagnosed() {
    let shipped =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sim-fixtures/machines/p100-ghost");
    let read = |name: &str| fs::read(shipped.join(name)).expect("a recording");
    let paste =
        [read("nvidia-smi.txt"), b"\n$ fuser -v /dev/nvidia*\n".to_vec(), read("fuser.txt")];
    let explained = with_input(&["doctor", "--paste"], &paste.concat());
    assert_eq!(explained.code, 1, "{}", explained.stderr);
    assert!(explained.stdout.starts_with("pasted text"), "{}", explained.stdout);
    for shown in
        ["GHOST", "100562  t2t-decoder", "67193  argusagent", "a monitor", "confidence: high"]
    {
        assert!(explained.stdout.contains(shown), "{shown}: {}", explained.stdout);
    }
}

#[test]
fn two_machines_in_one_paste_are_detected() {
    let machines = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sim-fixtures/machines");
    let read = |name: &str| fs::read(machines.join(name).join("nvidia-smi.txt")).expect("recorded");
    let both = [read("p100-ghost"), read("k80-single")].concat();
    let refused = with_input(&["doctor", "--paste"], &both);
    assert_eq!((refused.code, refused.stdout.as_str()), (2, ""), "{}", refused.stderr);
    assert!(refused.stderr.contains("one machine at a time"), "{}", refused.stderr);
    let twice = [read("p100-ghost"), read("p100-ghost")].concat();
    assert_eq!(with_input(&["doctor", "--paste"], &twice).code, 1);
}

#[test]
fn uninformative_paste_is_not_reported_healthy() {
    let list = b"GPU 0: NVIDIA L4 (UUID: GPU-792fe281-9572-edc7-e6f2-4c560560e705)\n";
    let refused = with_input(&["doctor", "--paste"], list);
    assert_eq!((refused.code, refused.stdout.as_str()), (2, ""), "{}", refused.stderr);
    let machines = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sim-fixtures/machines");
    let refusal = fs::read(machines.join("p100-ghost/gpu-reset.txt")).expect("recorded");
    let reported = with_input(&["doctor", "--paste"], &refusal);
    assert_eq!(reported.code, 1, "{}", reported.stderr);
    assert!(reported.stdout.contains("a reset was refused"), "{}", reported.stdout);
    let log = b"[12.5] NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n";
    let accepted = with_input(&["doctor", "--paste"], log);
    assert_eq!((accepted.code, accepted.stderr.as_str()), (1, ""), "{}", accepted.stdout);
}

#[test]
fn protect_rejects_unknown_name() {
    let here = Path::new(".");
    let refused = gpuws(here, &["--sim", "labbox", "reap", "--protect", "carol", "--yes"]);
    assert_eq!((refused.code, refused.stdout.as_str()), (2, ""), "{}", refused.stderr);
    let kept = gpuws(here, &["--sim", "labbox", "reap", "--protect", "user:carol", "--yes"]);
    assert_eq!(kept.code, 1, "{}", kept.stdout);
    assert!(kept.stdout.contains("it is on the protect list"), "{}", kept.stdout);
}

#[test]
fn reap_rejects_unknown_user() {
    let here = Path::new(".");
    let refused = gpuws(here, &["--sim", "labbox", "reap", "--user", "carl"]);
    assert_eq!((refused.code, refused.stdout.as_str()), (2, ""), "{}", refused.stderr);
    assert!(refused.stderr.contains("reap for user 'carl'"), "{}", refused.stderr);
    let planned = gpuws(here, &["--sim", "labbox", "reap", "--user", "carol"]);
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    assert!(planned.stdout.contains("19777"), "{}", planned.stdout);
}

#[test]
fn record_never_overwrites_file() {
    let dir = tempfile::tempdir().expect("temporary directory");
    fs::write(dir.path().join("mine"), "mine").expect("written");
    let refused = gpuws(dir.path(), &["--sim", "p100-ghost", "record", "mine"]);
    assert_eq!(refused.code, 2, "{}", refused.stderr);
    assert_eq!(fs::read_to_string(dir.path().join("mine")).expect("there"), "mine");
    let nowhere = gpuws(dir.path(), &["--sim", "p100-ghost", "record", "no/such/directory"]);
    assert_eq!(nowhere.code, 3, "{}", nowhere.stderr);
    assert_eq!(files(dir.path()), ["mine"]);
}

#[test]
fn record_anonymizes_by_default() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let recorded = gpuws(dir.path(), &["--sim", "labbox", "record", "a"]);
    assert_eq!(recorded.code, 0, "{}", recorded.stderr);
    let text = fs::read_to_string(dir.path().join("a")).expect("a recording");
    for name in ["alice", "bob", "carol", "train.py", "notebook"] {
        assert!(!text.contains(name), "{name}: {text}");
    }
}

#[test]
fn invalid_arguments_exit_with_usage_error() {
    let here = Path::new(".");
    for words in [
        &["no-such-word"][..],
        &["--sim", "no-such-machine", "doctor"],
        &["--sim", "p100-ghost", "reap", "--gpu", "7"],
        &["--sim", "p100-ghost", "reap", "--pid", "x"],
        &["--sim", "p100-ghost", "doctor", "--looks", "0"],
        &["demo", "no-such-machine"],
        &["parse"],
        &["--sim", "labbox", "status", "-i", "7"],
        &["--sim", "labbox", "status", "-i", "GPU-none"],
        &["--sim", "labbox", "status", "-i", "x"],
        &["--sim", "labbox", "status", "--format", "csv"],
        &["--sim", "labbox", "status", "--format", "table"],
        &["--sim", "labbox", "--json", "status", "--format", "gpustat-json"],
        &["--sim", "labbox", "query"],
        &["--sim", "labbox", "query", "--query-gpu=index"],
        &["--sim", "labbox", "query", "--query-gpu=index", "--format=xml"],
        &["--sim", "labbox", "query", "--query-gpu=index", "--format=csv", "-l", "0"],
        &["--sim", "labbox", "reset"],
        &["--sim", "labbox", "reset", "9", "--yes"],
    ] {
        let refused = gpuws(here, words);
        assert_eq!(refused.code, 2, "{words:?}: {}", refused.stderr);
        assert_eq!(refused.stdout, "", "{words:?}");
        assert!(!refused.stderr.is_empty(), "{words:?}");
    }
}

/// The formats of other tools are for scripts, but their output may reach a terminal: control
/// characters in a process name must affect neither.
#[test]
fn hostile_process_name_is_escaped_in_every_format() {
    let dir = machine_from("labbox", |text| {
        let hostile = "command_line = [\"\\u001b]0;x\\u0007\\n, 9\", \"\\u202e\"]";
        let lines = text.lines().map(|line| match line.starts_with("command_line") {
            true => hostile,
            false => line,
        });
        lines.collect::<Vec<_>>().join("\n")
    });
    for words in [
        &["status"][..],
        &["status", "-q"],
        &["status", "-q", "--json"],
        &["status", "--format", "gpustat-json"],
        &["query", "--query-compute-apps=pid,name", "--format=csv"],
        &["reset", "0"],
    ] {
        let shown = gpuws(dir.path(), &[&["--sim", "./box"], words].concat());
        let acts = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        assert!(!shown.stdout.contains(acts), "{words:?}: {}", shown.stdout);
        assert!(!shown.stderr.contains(acts), "{words:?}: {}", shown.stderr);
    }
    let rows = gpuws(dir.path(), &["--sim", "./box", "status", "-q"]);
    assert!(rows.stdout.contains("\\x1b]0;x\\x07\\n, 9"), "{}", rows.stdout);
}

#[test]
fn query_writes_rows_to_file() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let words = ["--sim", "labbox", "query", "--query-gpu=index", "--format=csv", "-f", "rows"];
    let written = gpuws(dir.path(), &words);
    assert_eq!((written.code, written.stdout.as_str()), (0, ""), "{}", written.stderr);
    let rows = fs::read_to_string(dir.path().join("rows")).expect("written");
    assert_eq!(rows, "index\n0\n1\n2\n3\n");
    let nowhere = gpuws(dir.path(), &[&words[..6], &["no/such/file"]].concat());
    assert_eq!((nowhere.code, nowhere.stdout.as_str()), (3, ""), "{}", nowhere.stderr);
}

/// A header, then the same rows repeatedly, until the reader closes the pipe.
#[test]
fn query_loops_until_reader_closes() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpuws"));
    let words = ["--sim", "labbox", "query", "--query-gpu=index", "--format=csv", "-i", "1"];
    command.args(words).args(["-lms", "1"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("gpuws runs");
    let mut reader = std::io::BufReader::new(child.stdout.take().expect("stdin is piped"));
    let mut text = String::new();
    for _ in 0..4 {
        std::io::BufRead::read_line(&mut reader, &mut text).expect("a line");
    }
    assert_eq!(text, "index\n1\n1\n1\n");
    drop(reader);
    let ended = ended(child.wait_with_output().expect("gpuws ends"));
    assert_eq!((ended.code, ended.stderr.as_str()), (0, "gpuws: simulated machine labbox\n"));
}

#[test]
fn missing_file_does_not_hide_other_holders() {
    let here = Path::new(".");
    for sim in [&[][..], &["--sim", "p100-ghost"]] {
        let none = gpuws(here, &[sim, &["holders", "/dev/nvidia-none"]].concat());
        assert_eq!((none.code, none.stdout.as_str()), (3, ""), "{}", none.stderr);
    }
    let one = gpuws(here, &["--sim", "p100-ghost", "holders", "/dev/nvidia0", "/dev/none"]);
    assert_eq!(one.code, 3);
    assert!(
        one.stdout.contains("t2t-decoder") && one.stderr.contains("/dev/none"),
        "{}",
        one.stderr
    );
}

#[test]
fn closed_pipe_is_not_an_error() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpuws"));
    command.args(["demo"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("gpuws runs");
    drop(child.stdout.take());
    let ended = ended(child.wait_with_output().expect("gpuws ends"));
    assert_eq!((ended.code, ended.stderr.as_str()), (0, ""));
}

#[test]
fn input_at_the_size_limit_is_read_and_one_byte_more_is_not() {
    let dir = tempfile::tempdir().expect("temporary directory");
    for (name, length) in [("limit", 64 << 20), ("more", (64 << 20) + 1)] {
        let file = fs::File::create(dir.path().join(name)).expect("a file");
        file.set_len(length).expect("a sparse file");
        let refused = gpuws(dir.path(), &["parse", name]);
        assert_eq!(refused.code, 2, "{}", refused.stderr);
        let too_long = refused.stderr.contains("it is larger than 64 MiB");
        assert_eq!(too_long, name == "more", "{name}: {}", refused.stderr);
        let mut command = Command::new(env!("CARGO_BIN_EXE_gpuws"));
        let input = fs::File::open(dir.path().join(name)).expect("the file");
        let piped = ended(command.args(["parse", "-"]).stdin(input).output().expect("gpuws runs"));
        assert_eq!(piped.stderr, refused.stderr.replacen(name, "-", 1), "{name}");
    }
}

/// The fields of CSV without a header line, and files of unknown length.
#[test]
fn parse_takes_fields_and_reads_proc() {
    let of = |words: &[&str], input: &str| with_input(words, input.as_bytes());
    let named = ["parse", "--kind", "query_gpu", "--fields", "index,name,memory.used", "-"];
    let parsed = of(&named, "0, Tesla K80, 5 MiB\n");
    assert_eq!(parsed.code, 0, "{}", parsed.stderr);
    assert!(parsed.stdout.contains("Tesla K80"), "{}", parsed.stdout);
    let refused = gpuws(Path::new("."), &["parse", "/proc/self/status"]);
    assert_eq!(refused.code, 2, "{}", refused.stderr);
    assert!(refused.stderr.contains("hint: gpuws parse --help"), "{}", refused.stderr);
}

/// A text with an out-of-memory message belongs to another command, unless its kind is named.
#[test]
fn failure_text_is_distinguished_from_oom_log() {
    let oom = "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 10.76 GiB total \
               capacity; 8.00 GiB already allocated; 1.00 GiB free)\n";
    let failed = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n";
    for (kind, text, code) in
        [("", oom, 2), ("error", oom, 0), ("", failed, 0), ("", &format!("{failed}{oom}"), 0)]
    {
        let kind = if kind.is_empty() { vec![] } else { vec!["--kind", kind] };
        let parsed = with_input(&[&["parse"], &kind[..], &["-"]].concat(), text.as_bytes());
        assert_eq!(parsed.code, code, "{kind:?} {text}: {}{}", parsed.stdout, parsed.stderr);
        assert_eq!(parsed.stderr.contains("use gpuws mem explain"), code == 2, "{}", parsed.stderr);
    }
}

#[test]
fn pasted_failures_have_meaning_and_remedy() {
    let machines = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sim-fixtures/machines");
    let healthy = fs::read_to_string(machines.join("p100-ghost/nvidia-smi.txt")).expect("recorded");
    let lost = "Unable to determine the device handle for GPU 0000:04:00.0: Unknown Error\n";
    let no_driver = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. \
                     Make sure that the latest NVIDIA driver is installed and running.\n";
    let pasted = |words: &[&str], text: &str| {
        with_input(&[&["doctor", "--paste"], words].concat(), text.as_bytes())
    };
    let shown = pasted(&[], lost);
    assert_eq!(shown.code, 1, "{}", shown.stderr);
    assert!(shown.stdout.contains("DEVICE FAULT  GPU 0"), "{}", shown.stdout);
    assert!(shown.stdout.contains("off the bus"), "{}", shown.stdout);
    assert!(shown.stdout.contains("sudo dmesg"), "{}", shown.stdout);
    assert!(!shown.stdout.contains("no GPU could be queried"), "{}", shown.stdout);
    let shown = pasted(&[], no_driver);
    assert_eq!(shown.code, 1, "{}", shown.stderr);
    assert!(shown.stdout.starts_with("no GPU could be queried there: "), "{}", shown.stdout);
    assert_eq!(shown.stdout.matches("  there    ").count(), 1, "{}", shown.stdout);
    assert!(!shown.stdout.contains("FAILURE"), "{}", shown.stdout);
    // A failure beside figures does not hide them, nor the other way round.
    let both = pasted(&[], &format!("{lost}{healthy}"));
    assert_eq!(both.code, 1, "{}", both.stderr);
    assert!(both.stdout.starts_with("FAILURE  ") && both.stdout.contains("pasted text"));
    let refused = "Unable to reset this GPU because it's being used by some other process\n";
    for (text, findings, failures) in [
        (lost.to_owned(), 1, &[][..]),
        (format!("{lost}{healthy}"), 1, &["device-handle"]),
        (refused.to_owned(), 0, &["reset-refused"]),
    ] {
        let json = pasted(&["--json"], &text);
        assert_eq!(json.code, 1, "{}", json.stderr);
        let json: serde_json::Value = serde_json::from_str(&json.stdout).expect("one JSON object");
        assert_eq!(json["findings"].as_array().unwrap().len(), findings, "{json}");
        let codes: Vec<_> = json["failures"].as_array().unwrap().iter().collect();
        let codes: Vec<_> = codes.iter().map(|failure| failure["code"].as_str().unwrap()).collect();
        assert_eq!(codes, failures, "{json}");
    }
}

/// The rows of a table, from the device on.
fn table(rows: &str) -> String {
    let rule = format!("+{}+\n", "-".repeat(77));
    format!(
        "{rule}| NVIDIA-SMI 470.57.02    Driver Version: 470.57.02    CUDA Version: 11.4     |\n\
         |-------------------------------+----------------------+----------------------+\n\
         | GPU  Name        Persistence-M| Bus-Id        Disp.A | Volatile Uncorr. ECC |\n\
         |===============================+======================+======================|\n\
         {rows}{rule}"
    )
}

#[test]
fn pasted_output_shows_faults_of_devices() {
    let fan = table(
        "|   0  Tesla V100-PCIE...  On   | 00000000:3B:00.0 Off |                    0 |\n\
         |ERR!   41C    P0    N/A /  N/A |      0MiB / 16160MiB |      0%      Default |\n\
         |                               |                      |                  N/A |\n",
    );
    let mig = |enabled: &str| {
        table(&format!(
            "|   0  A100-SXM4-40GB      On   | 00000000:3B:00.0 Off |                    0 |\n\
             | N/A   41C    P0    52W / 400W |      0MiB / 40536MiB |     N/A      Default |\n\
             |                               |                      |             {enabled} |\n",
        ))
    };
    let empty = format!(
        "{}\n{}",
        mig(" Enabled"),
        table("")
            .replace("GPU  Name ", "MIG devices:")
            .replace(&format!("+{}+\n", "-".repeat(77)), "")
    );
    let empty = format!("{empty}|  No MIG devices found                     |\n");
    let ecc =
        fan.replace("ERR!", "N/A ").replace("                   0 |", "                   7 |");
    let query = "\
==============NVSMI LOG==============
GPU 00000000:3B:00.0
    Product Name                 : Example
    Compute Mode                 : Prohibited
    FB Memory Usage
        Total                    : 40000 MiB
        Used                     : 10 MiB
    Remapped Rows
        Remapping Failure Occurred : Yes
";
    let pending = "Warning: MIG mode is in pending enable state for GPU 00000000:3B:00.0:In use \
                   by another client\n";
    let links = "GPU 0: A100 (UUID: GPU-1)\n\t Link 0: <inactive>\n\t Link 1: <inactive>\n";
    let undated = "[12.5] NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n";
    for (text, shown) in [
        (fan.as_str(), &["DEVICE FAULT  GPU 0", "its fan speed cannot be read"][..]),
        (&mig("    ERR!"), &["DEVICE FAULT  GPU 0", "its MIG mode cannot be read"]),
        (&empty, &["NO MIG INSTANCE  GPU 0", "CUDA sees no device"]),
        (&ecc, &["MEMORY ERRORS  GPU 0", "7 uncorrected memory errors"]),
        (query, &["COMPUTE PROHIBITED  GPU 0", "a memory row could not be remapped"]),
        (pending, &["PENDING RESET  GPU 0", "MIG will be enabled after a reset"]),
        (links, &["NVLINK DOWN  GPU 0", "all its NVLinks are inactive"]),
        (undated, &["Xid 79", "at an unknown time"]),
    ] {
        let pasted = with_input(&["doctor", "--paste"], text.as_bytes());
        assert_eq!(pasted.code, 1, "{text}{}{}", pasted.stdout, pasted.stderr);
        for shown in shown {
            assert!(pasted.stdout.contains(shown), "{shown}: {text}{}", pasted.stdout);
        }
    }
}

#[test]
fn same_machine_may_be_pasted_in_two_spellings() {
    let list = |bus: &str| {
        format!(
            "index, pci.bus_id, memory.used [MiB], memory.total [MiB]\n0, {bus}, 5 MiB, 16280 MiB\n"
        )
    };
    for (second, same) in
        [("00000000:04:00.0", true), ("0000:04:00.0", true), ("0000:05:00.0", false)]
    {
        let text = format!("{}\n{}", list("00000000:04:00.0"), list(second));
        let pasted = with_input(&["doctor", "--paste"], text.as_bytes());
        assert_eq!(pasted.stderr.contains("one machine at a time"), !same, "{}", pasted.stderr);
    }
}

#[test]
fn other_locale_gets_ascii() {
    let shown = |locale: Option<&str>, words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gpuws"));
        for name in ["LC_ALL", "LC_CTYPE", "LANG"] {
            command.env_remove(name);
        }
        command.envs(locale.map(|locale| ("LANG", locale))).args(words);
        let Ended { code, stdout, stderr } = ended(command.output().expect("gpuws runs"));
        (code, stdout, stderr)
    };
    for words in [&["--sim", "labbox"][..], &["--sim", "labbox", "doctor", "--gpu", "9"]] {
        let (code, stdout, stderr) = shown(Some("C"), words);
        assert!(stdout.is_ascii() && stderr.is_ascii(), "{stdout}{stderr}");
        for locale in [None, Some("C.UTF-8")] {
            let (same, rich, told) = shown(locale, words);
            assert!(!rich.is_ascii() || !told.is_ascii(), "{rich}{told}");
            let lines = |text: &str| text.lines().map(|line| line.chars().count()).collect();
            let (rich, plain): (Vec<_>, Vec<_>) = (lines(&rich), lines(&stdout));
            assert_eq!((same, rich), (code, plain));
        }
    }
    // JSON is UTF-8 everywhere.
    let json = |locale| shown(Some(locale), &["--sim", "labbox", "--json"]).1;
    assert_eq!(json("C"), json("C.UTF-8"));
}

#[test]
fn reap_by_pid_without_driver_cannot_observe() {
    let refused = gpuws(Path::new("."), &["--sim", "no-driver", "reap", "--pid", "5"]);
    assert_eq!(refused.code, 3, "{}{}", refused.stdout, refused.stderr);
    assert!(refused.stdout.contains("refused 5"), "{}", refused.stdout);
    assert!(refused.stderr.contains("no NVIDIA driver"), "{}", refused.stderr);
}

#[test]
fn quiet_holders_have_no_legend() {
    let here = Path::new(".");
    let legend = "f open, F open for writing, m mapped";
    let whole = gpuws(here, &["--sim", "p100-ghost", "holders"]);
    assert!(whole.stdout.contains(legend), "{}", whole.stdout);
    let nobody =
        gpuws(here, &["--sim", "healthy-box", "holders", "/dev/nvidiactl", "/dev/nvidia0"]);
    assert_eq!(nobody.code, 0, "{}", nobody.stderr);
    assert_eq!(whole.code, 0, "{}", whole.stderr);
    let none = gpuws(here, &["--sim", "dgx1-v100", "holders"]);
    assert_eq!(none.stdout.contains(legend), !none.stdout.contains("(no holder)"));
    assert_eq!(none.code, 1, "as fuser: {}", none.stdout);
}

#[test]
fn gpustat_format_selects_devices_or_fails() {
    let here = Path::new(".");
    let of = |machine: &str, gpu: &str| {
        let words = ["--sim", machine, "status", "--format", "gpustat-json", "-i", gpu];
        gpuws(here, &words)
    };
    let one = of("labbox", "2");
    assert_eq!((one.code, one.stdout.matches("\"index\": ").count()), (0, 1), "{}", one.stdout);
    // As with nvidia-smi, a missing one does not hide the others.
    let some = of("labbox", "0,9");
    assert_eq!((some.code, some.stdout.matches("\"index\": ").count()), (0, 1), "{}", some.stderr);
    let missing = of("labbox", "9");
    assert_eq!((missing.code, missing.stdout.as_str()), (2, ""), "{}", missing.stderr);
}

#[test]
fn diagnosis_without_driver_is_an_object_too() {
    let ended = gpuws(Path::new("."), &["--sim", "no-driver", "--json", "doctor"]);
    assert_eq!(ended.code, 3, "{}", ended.stderr);
    let object: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    assert!(object["driver_error"]["what"].is_string(), "{object}");
    assert_eq!(object["findings"], serde_json::json!([]));
    assert!(!ended.stderr.is_empty());
}
