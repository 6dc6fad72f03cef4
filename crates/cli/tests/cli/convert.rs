//! `gpuws mem convert`: recordings of each format as JSON Lines.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn gpuws(dir: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpuws"));
    command.args(words).current_dir(dir).output().expect("gpuws runs")
}

fn printed(output: &Output) -> &str {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::str::from_utf8(&output.stdout).expect("UTF-8")
}

const RMM: &str = "Thread,Time,Action,Pointer,Size,Stream\n\
                   7,14:21:19.998533,allocate,0x30a000000,256,0x2\n\
                   7,14:21:20.000000,free,0x30a000000,256,0x2\n";

/// TensorFlow's out-of-memory message, without timestamps and source locations.
const BFC: &str = "\
Allocator (GPU_1_bfc) ran out of memory trying to allocate 2.0KiB (rounded to 2048)
BFCAllocator dump for GPU_1_bfc
Bin (256): 	Total Chunks: 1, Chunks in use: 0. 768B allocated for chunks.
Next region of size 1536
InUse at 7f0000000800 of size 1280 next 2
InUse at 7f0000000d00 of size 256 next 18446744073709551615
Next region of size 1024
InUse at 7f0000000000 of size 256 next 1
Free  at 7f0000000100 of size 768 next 18446744073709551615
Stats: 
Limit:                        2560
InUse:                        1792
";

#[test]
fn rmm_log_converts_to_stable_json_lines() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("rmm.csv"), RMM).unwrap();
    let reported = gpuws(dir.path(), &["mem", "convert", "rmm.csv", "-o", "job.jsonl"]);
    assert_eq!(
        printed(&reported),
        "device 0: 3 events, segments not recorded\nwritten to job.jsonl\n"
    );
    let lines = fs::read_to_string(dir.path().join("job.jsonl")).unwrap();
    let again = gpuws(dir.path(), &["mem", "convert", "job.jsonl"]);
    assert_eq!(printed(&again), lines);
    let first: serde_json::Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    assert_eq!(first["recorded_by"], "rmm-log");
    assert_eq!(lines.lines().count(), 1 + 1 + 3);

    let reported = gpuws(dir.path(), &["mem", "explain", "--no-live", "job.jsonl"]);
    let output_text = String::from_utf8_lossy(&reported.stdout);
    assert_eq!(reported.status.code(), Some(1));
    assert!(
        output_text.contains("this is a memory recording; use: gpuws mem replay job.jsonl"),
        "{output_text}"
    );

    let json = ["--json", "mem", "convert", "rmm.csv", "-o", "other.jsonl"];
    let counts: serde_json::Value =
        serde_json::from_str(printed(&gpuws(dir.path(), &json))).unwrap();
    assert_eq!(counts["devices"][0]["event_count"], 3);
    assert_eq!(counts["devices"][0].get("segment_count"), None);
    let mut left: Vec<_> = fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    assert_eq!(left, ["job.jsonl", "other.jsonl", "rmm.csv"], "no temporary file is left");
}

#[test]
fn tensorflow_dump_converts_to_segments_and_failed_request() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("train.log"), format!("starting\n{BFC}done\n")).unwrap();
    let converted = gpuws(dir.path(), &["mem", "convert", "train.log"]);
    let lines: Vec<serde_json::Value> =
        printed(&converted).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0]["recorded_by"], "bfc-dump");
    assert_eq!(lines[0]["settings"]["memory_limit"], "2560");
    assert_eq!(lines[1]["device"]["device"], 1);
    let (lower, upper) = (&lines[2]["segment"], &lines[3]["segment"]);
    assert_eq!(lower["address"], 0x7f00_0000_0000_u64);
    assert_eq!(lower["blocks"][1]["state"], "free");
    assert_eq!(lower["blocks"][1]["size_bytes"], 768);
    assert_eq!(upper["blocks"][0]["size_bytes"], 1280);
    assert_eq!(lines[4]["event"]["action"], "oom");
    assert_eq!(lines[4]["event"]["size_bytes"], 2048);
    assert_eq!(lines[4]["event"].get("device_free_bytes"), None);
    assert_eq!(lines.len(), 5);

    // Another device, with another limit.
    let both = format!("{BFC}{}", BFC.replace("GPU_1_bfc", "GPU_3_bfc").replace("2560", "2816"));
    fs::write(dir.path().join("both.log"), both).unwrap();
    let converted = gpuws(dir.path(), &["mem", "convert", "both.log"]);
    let lines: Vec<serde_json::Value> =
        printed(&converted).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let limits = serde_json::json!({"memory_limit.1": "2560", "memory_limit.3": "2816"});
    assert_eq!(lines[0]["settings"], limits);
    let devices: Vec<_> =
        lines.iter().filter_map(|line| line["device"]["device"].as_u64()).collect();
    assert_eq!(devices, [1, 3]);

    // A line of the dump is missing.
    let cut = BFC.replace("Free  at 7f0000000100 of size 768 next 18446744073709551615\n", "");
    fs::write(dir.path().join("cut.log"), cut).unwrap();
    let refused = gpuws(dir.path(), &["mem", "convert", "cut.log"]);
    assert_eq!(refused.status.code(), Some(2));
    let output_text = String::from_utf8_lossy(&refused.stderr);
    assert!(
        output_text.contains("the blocks cover 256 bytes of a segment of 1024"),
        "{output_text}"
    );
}

#[test]
fn invalid_recording_is_rejected_without_output() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("kept.jsonl"), "mine").unwrap();
    fs::write(dir.path().join("rmm.csv"), RMM).unwrap();
    fs::write(dir.path().join("notes.txt"), "nothing\n").unwrap();
    fs::write(dir.path().join("evil.pickle"), b"cos\nsystem\n(S'touch ran'\ntR.").unwrap();
    let refusal = |words: &[&str]| {
        let output = gpuws(dir.path(), words);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert!(output.stdout.is_empty());
        String::from_utf8(output.stderr).unwrap()
    };
    let output_text = refusal(&["mem", "convert", "rmm.csv", "-o", "kept.jsonl"]);
    assert!(
        output_text.contains("failed to write 'kept.jsonl': it already exists"),
        "{output_text}"
    );
    let long = fs::File::create(dir.path().join("long.pickle")).unwrap();
    long.set_len(3 << 30).unwrap();
    let output_text = refusal(&["mem", "convert", "long.pickle", "-o", "new.jsonl"]);
    assert!(output_text.contains("it is larger than 2048 MiB"), "{output_text}");
    fs::remove_file(dir.path().join("long.pickle")).unwrap();
    let output_text = refusal(&["mem", "convert", "notes.txt", "-o", "new.jsonl"]);
    assert!(
        output_text.contains("unrecognised format")
            && output_text.contains("hint: use a torch.cuda"),
        "{output_text}"
    );
    let output_text = refusal(&["mem", "convert", "evil.pickle", "-o", "new.jsonl"]);
    assert!(output_text.contains("at byte 0: GLOBAL imports 'os.system'"), "{output_text}");
    assert!(
        output_text.contains("hint: a memory snapshot is plain data; do not unpickle this file"),
        "{output_text}"
    );
    assert_eq!(fs::read_to_string(dir.path().join("kept.jsonl")).unwrap(), "mine");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 4, "nothing was written");
}

#[test]
fn recorded_text_is_escaped() {
    let dir = tempfile::tempdir().unwrap();
    let hostile = "{\"schema\":1,\"kind\":\"memory-trace\",\"settings\":{\"a\":\"\u{9b}2J\u{202e}€😀\u{7f}\"}}\n";
    fs::write(dir.path().join("job.jsonl"), hostile).unwrap();
    let output = gpuws(dir.path(), &["mem", "convert", "job.jsonl"]);
    let lines = printed(&output);
    assert!(lines.bytes().all(|byte| matches!(byte, b'\n' | b' '..=b'~')), "{lines}");
    let first: serde_json::Value = serde_json::from_str(lines.trim_end()).unwrap();
    assert_eq!(first["settings"]["a"], "\u{9b}2J\u{202e}€😀\u{7f}");
}

#[test]
fn dump_in_a_broken_recording_is_not_converted() {
    let dir = tempfile::tempdir().unwrap();
    let text = format!("{{\"schema\":1,\"kind\":\"memory-trace\"}}\n{BFC}");
    fs::write(dir.path().join("job.jsonl"), text).unwrap();
    let refused = gpuws(dir.path(), &["mem", "convert", "job.jsonl"]);
    assert_eq!((refused.status.code(), refused.stdout.len()), (Some(2), 0), "{refused:?}");
}

#[test]
fn memory_for_reading_can_be_limited() {
    let dir = tempfile::tempdir().unwrap();
    let (head, rows) = RMM.split_once('\n').unwrap();
    fs::write(dir.path().join("rmm.csv"), format!("{head}\n{}", rows.repeat(1000))).unwrap();
    let limited =
        |limit: &str| gpuws(dir.path(), &["mem", "convert", "rmm.csv", "--read-limit", limit]);
    assert!(limited("16MiB").status.success());
    let refused = limited("1KiB");
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(text.contains("--read-limit"), "{text}");
}

#[test]
fn quiet_conversion_has_no_output() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("rmm.csv"), RMM).unwrap();
    let output = gpuws(dir.path(), &["--quiet", "mem", "convert", "rmm.csv", "-o", "out.jsonl"]);
    assert_eq!(printed(&output), "");
    assert!(dir.path().join("out.jsonl").exists());
}
