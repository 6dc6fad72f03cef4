//! `gpuws mem explain` on synthetic logs, with golden files; `SNAPSHOTS=overwrite` updates them.

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
            // It may have exited without reading.
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
