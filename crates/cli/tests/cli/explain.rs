//! `gpuws mem explain` on synthetic logs, with golden files; `SNAPSHOTS=overwrite` updates them.

use crate::program::is_deep;
use snapbox::Data;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const LOGS: [&str; 6] =
    ["too-big", "fragmented", "somebody-else", "tensorflow", "others", "programs"];

fn dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/oom")
}

fn gpuws(words: &[&str], input: &[u8]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpuws"));
    command.args(words).current_dir(dir()).env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("gpuws runs");
    let mut stdin = child.stdin.take().expect("stdin is piped");
    let input = input.to_vec();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // The program may have exited without reading.
            let _ = stdin.write_all(&input);
        });
        child.wait_with_output().expect("gpuws ends")
    })
}

fn printed(words: &[&str]) -> String {
    let output = gpuws(words, b"");
    let text = |bytes| String::from_utf8(bytes).expect("gpuws prints UTF-8");
    let code = output.status.code().expect("gpuws ends by itself");
    let (stdout, stderr) = (text(output.stdout), text(output.stderr));
    format!("$ gpuws {}\n{stdout}{stderr}=> {code}\n", words.join(" "))
}

fn hold(name: &str, transcript: String) {
    snapbox::assert_data_eq!(transcript, Data::read_from(&dir().join(name), None).raw());
}

#[test]
fn every_log_matches_golden_file() {
    for log in LOGS {
        let file = format!("{log}.log");
        hold(&format!("{log}.txt"), printed(&["mem", "explain", "--no-live", &file]));
    }
}

#[test]
fn log_is_explained_with_machine_and_as_json() {
    let words = ["--sim", "labbox", "mem", "explain", "too-big.log"];
    hold("too-big.labbox.txt", printed(&words));
    let json = ["mem", "explain", "--no-live", "tensorflow.log", "--json"];
    hold("tensorflow.json.txt", printed(&json));
}

#[test]
fn lines_fit_terminal_except_commands() {
    for log in LOGS {
        let file = format!("{log}.log");
        let output = gpuws(&["mem", "explain", "--no-live", &file], b"");
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            assert!(line.chars().count() <= 80, "{log}: {line}");
        }
        assert!(!output.stdout.contains(&b'\x1b'), "a pipe gets no colour");
    }
}

#[test]
fn log_without_oom_message_exits_1() {
    for input in [&b""[..], b"all is well\n", &[0xff, 0xfe, 0x00], b"| NVIDIA-SMI 535.54 |\n"] {
        let output = gpuws(&["mem", "explain", "--no-live", "-"], input);
        assert_eq!(output.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&output.stdout).starts_with("no out-of-memory message"));
        let json = gpuws(&["mem", "explain", "--no-live", "-", "--json"], input);
        assert_eq!(json.status.code(), Some(1));
        let object: serde_json::Value = serde_json::from_slice(&json.stdout).expect("valid JSON");
        assert_eq!(
            (object["schema"].as_u64(), object["events"].as_array().map(Vec::len)),
            (Some(1), Some(0))
        );
    }
    let missing = gpuws(&["mem", "explain", "no-such.log"], b"");
    assert_eq!(missing.status.code(), Some(3));
}

#[test]
fn device_without_end_is_refused() {
    let output = gpuws(&["mem", "explain", "--no-live", "/dev/zero"], b"");
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{error}");
    assert!(error.contains("'/dev/zero'") && error.contains("more bytes than any log"), "{error}");
    let empty = gpuws(&["mem", "explain", "--no-live", "/dev/null"], b"");
    assert_eq!(empty.status.code(), Some(1));
}

#[test]
fn message_of_an_engine_gives_its_option_as_text_and_json() {
    let log = "ValueError: The model's max seq len (40960) is larger than the maximum number of \
        tokens that can be stored in KV cache (17328). Try increasing `gpu_memory_utilization`.\n";
    let text = explained(&["--no-live", "-"], log.as_bytes());
    for words in ["vLLM", "context length 40960 tokens", "--max-model-len 17328"] {
        assert!(text.contains(words), "{text}");
    }
    let json = explained(&["--no-live", "-", "--json"], log.as_bytes());
    let object: serde_json::Value = serde_json::from_str(&json).expect("valid JSON");
    let event = &object["events"][0];
    assert_eq!(event["facts"]["fitting_length"].as_f64(), Some(17_328.0), "{event}");
    assert_eq!(event["diagnosis"]["cause"], "limit");
    assert_eq!(event["remedies"][0]["set"], "--max-model-len 17328");
}

#[test]
fn hostile_text_is_escaped() {
    let log = "Process 7 \x1b[2Jhas\nAllocator (GPU_0\x1b]0;x\x07_bfc) ran out of memory trying to allocate \
        1.00GiB (rounded to 1073741824)\nOOM when allocating tensor with shape[99999999999,9,9] and type \
        \x1b[31mfloat on x\n";
    let output = gpuws(&["mem", "explain", "--no-live", "-", "--color", "never"], log.as_bytes());
    assert_eq!(output.status.code(), Some(0));
    assert!(!output.stdout.contains(&b'\x1b'), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn parse_suggests_mem_explain_for_oom_log() {
    let output = gpuws(&["parse", "too-big.log"], b"");
    assert_eq!(output.status.code(), Some(2));
    let output_text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output_text.contains("gpuws mem explain"), "{output_text}");
}

/// Runs `gpuws mem explain` on this machine, whether it has a driver or not.
fn explained(words: &[&str], input: &[u8]) -> String {
    String::from_utf8(gpuws(&[&["mem", "explain"], words].concat(), input).stdout).expect("UTF-8")
}

fn message(device: usize) -> String {
    format!(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU {device} has a \
         total capacity of 23.69 GiB of which 1.00 GiB is free.\n"
    )
}

#[test]
fn quiet_output_has_causes_but_no_remedies() {
    let whole = explained(&["--no-live", "too-big.log"], b"");
    let quiet = explained(&["--no-live", "too-big.log", "--quiet"], b"");
    assert!(whole.contains("\nTry: ") && whole.starts_with(&quiet), "{whole}");
    assert!(!quiet.contains("\nTry: ") && quiet.lines().count() > 2, "{quiet}");
}

#[test]
fn at_most_20_messages_are_shown() {
    for (count, note) in [
        (20, None),
        (21, Some("1 more message; --json has all")),
        (22, Some("2 more messages; --json has all")),
    ] {
        let log: String =
            (0..count).map(|n| message(0).replace("2.00 GiB", &format!("2.{n:02} GiB"))).collect();
        let shown = explained(&["--no-live", "--quiet", "-"], log.as_bytes());
        let heads =
            shown.lines().filter(|line| line.starts_with("  PyTorch 2.2 or later, GPU ")).count();
        assert_eq!(heads, 20, "{shown}");
        let last = shown.lines().last().expect("some output");
        assert_eq!(last.ends_with("--json has all").then_some(last), note, "{shown}");
        let blanks = shown.lines().filter(|line| line.is_empty()).count();
        assert_eq!(blanks, 19 + usize::from(note.is_some()), "one between two messages: {shown}");
    }
}

#[test]
fn only_a_recording_is_referred_to_replay() {
    let none = "no out-of-memory message found\n";
    let next = "this is a memory recording; use: gpuws mem replay -\n";
    for (input, is_recording) in [
        (&b"\x80\x04 a pickle"[..], true),
        (b"{\"kind\":\"memory-trace\"}\n", true),
        (b"{\"kind\":\"other\"}\n", false),
        (b"a memory-trace\n", false),
        (b"all is well\n", false),
    ] {
        let expected = if is_recording { format!("{none}{next}") } else { none.to_owned() };
        assert_eq!(explained(&["--no-live", "-"], input), expected);
        assert_eq!(explained(&["--no-live", "--quiet", "-"], input), none);
    }
}

#[test]
fn machine_is_asked_only_if_it_helps() {
    let own = env!("CARGO_BIN_EXE_gpuws");
    let session = |words: &[&str]| {
        let mut command = Command::new(own);
        command.args(["sim", "labbox", "--", own, "mem", "explain"]).args(words);
        command.current_dir(dir()).env_remove("GPUWS_SIM_SESSION").env("NO_COLOR", "1");
        String::from_utf8(command.output().expect("gpuws runs").stdout).expect("UTF-8")
    };
    let asked = session(&["too-big.log"]);
    assert!(asked.starts_with("simulated machine labbox (driver 535.261.03)\n\n"), "{asked}");
    assert!(asked.contains("\nnow "), "{asked}");
    let alone = explained(&["--no-live", "too-big.log"], b"");
    assert_eq!(session(&["--no-live", "too-big.log"]), alone);
    // A machine without devices adds no information.
    assert_eq!(explained(&["--sim", "no-driver", "too-big.log"], b""), alone);
    let json = |words: &[&str]| -> serde_json::Value {
        let words = [&["--json", "--sim", "labbox"], words].concat();
        serde_json::from_str(&explained(&words, b"all is well\n")).expect("valid JSON")
    };
    let (none, some) = (json(&["-"]), json(&["too-big.log"]));
    assert_ne!(none["looked_at"], some["looked_at"], "no message, no question: {none}");
    let silent = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(silent.path().join("box")).expect("a directory");
    let text = "description = 'made: no device'\nclock = 2025-03-03T10:00:00Z\n[driver]\n\
                version = '535.261.03'\ncuda = '12.2'\n";
    let machine = silent.path().join("box");
    std::fs::write(machine.join("machine.toml"), text).expect("written");
    let machine = machine.to_str().expect("UTF-8");
    assert_eq!(explained(&["--sim", machine, "too-big.log"], b""), alone);
    // A machine that was not named need not answer.
    let mut command = Command::new(own);
    let words = ["env", "-u", "LD_LIBRARY_PATH", own, "mem", "explain", "too-big.log"];
    command.args(["sim", "labbox", "--"]).args(words).current_dir(dir());
    let output = command.env_remove("GPUWS_SIM_SESSION").output().expect("gpuws runs");
    assert_eq!(String::from_utf8(output.stdout).expect("UTF-8"), alone);
    for named in [["--sim", "no-such"], ["--nvml", "/no/such/library.so"]] {
        let output = gpuws(&[&["mem", "explain", "too-big.log"], &named[..]].concat(), b"");
        assert!(!output.status.success() && output.stdout.is_empty(), "{named:?}: {output:?}");
    }
}

const OOM: &str = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 6.50 GiB. GPU 0 has a \
    total capacity of 31.75 GiB of which 5.00 GiB is free. Including non-PyTorch memory, this process \
    has 26.40 GiB memory in use. Of the allocated memory 25.90 GiB is allocated by PyTorch, and 64.00 \
    MiB is reserved by PyTorch but unallocated.\n";

#[test]
fn message_before_the_last_64_mib_is_explained_once() {
    use flate2::{Compression, write::GzEncoder};
    let steps = format!("{:1023}\n", "step").repeat(1 << 10);
    // A file may have several members (RFC 1952), and one is faster to compress than 66.
    let member = |text: &str| {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(text.as_bytes()).unwrap();
        gzip.finish().unwrap()
    };
    let begin = member(&format!("start\n{OOM}"));
    let gzip = [begin, member(&steps).repeat(66)].concat();
    let text = is_deep().then(|| format!("start\n{OOM}{}", steps.repeat(66)).into_bytes());
    for input in [gzip].into_iter().chain(text) {
        let output = gpuws(&["mem", "explain", "--no-live", "-"], &input);
        assert_eq!(output.status.code(), Some(0));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.starts_with("The program is too big for this GPU"), "{text}");
        assert!(text.contains("   line 2\n"), "{text}");
        assert_eq!(text.matches("PyTorch 2.2 or later").count(), 1, "{text}");
    }
}

#[test]
fn damaged_gzip_is_an_error() {
    let output = gpuws(&["mem", "explain", "--no-live", "-"], &[0x1f, 0x8b, 8, 0, 1, 2]);
    assert_eq!(output.status.code(), Some(3));
}

#[test]
fn ranks_of_a_job_are_one_block_and_other_causes_stay_apart() {
    let rank = |gpu: u32| {
        let free = 84 - 10 * gpu;
        OOM.replace("6.50 GiB", "320.00 MiB")
            .replace("GPU 0", &format!("GPU {gpu}"))
            .replace("5.00 GiB is free", &format!("{free}.00 MiB is free"))
            .replace("64.00 MiB is reserved", "0 bytes is reserved")
            .replace("25.90 GiB", "31.20 GiB")
            .replace("26.40 GiB", "31.60 GiB")
    };
    let ranks: String = (0..8).map(rank).collect();
    let other = "CUDA out of memory. Tried to allocate 3.00 GiB. GPU 9 has a total capacity of 24.00 GiB \
        of which 20.00 GiB is free. 3.00 GiB allowed; Of the allocated memory 2.90 GiB is allocated by \
        PyTorch, and 40.00 MiB is reserved by PyTorch but unallocated.\n";
    let output = gpuws(&["mem", "explain", "--no-live", "-"], format!("{ranks}{other}").as_bytes());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        text.contains("8 ranks, GPUs 0–7 (31.75 GiB), each short by 236–306 MiB   lines 1–8"),
        "{text}"
    );
    assert!(text.contains("GPU 7 lacks the most:"), "{text}");
    assert_eq!(text.matches("Try: ").count(), 2, "{text}");
}
