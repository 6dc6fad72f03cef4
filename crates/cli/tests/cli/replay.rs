//! `gpuws mem replay` and `gpuws mem fit` on synthetic recordings, with golden files.
//! `SNAPSHOTS=overwrite cargo test -p gpuws replay::` updates them.

use snapbox::Data;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// A step of a synthetic job whose addresses PyTorch's allocator would choose.
const STEP: &str = include_str!("../golden/memory/step.jsonl");

/// A directory with recordings.
struct Dir(tempfile::TempDir);

impl Dir {
    fn with(files: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().expect("a directory for files");
        for (name, text) in files {
            fs::write(dir.path().join(name), text).expect("it takes a file");
        }
        Dir(dir)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gpuws"));
        command.args(words).current_dir(self.0.path()).stdin(Stdio::null());
        command.env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE");
        command
    }

    fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().expect("gpuws runs")
    }

    /// Returns the output of a command on both streams and its exit code, below the command line.
    fn transcript(&self, words: &[&str]) -> String {
        let output = self.run(words);
        let text = |bytes| String::from_utf8(bytes).expect("gpuws prints UTF-8");
        let code = output.status.code().expect("gpuws ends by itself");
        let (stdout, stderr) = (text(output.stdout), text(output.stderr));
        format!("$ gpuws {}\n{stdout}{stderr}=> {code}\n", words.join(" "))
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.0.path().join(name)).expect("the plot exists")
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).expect("the directory is readable");
        let name = |entry: std::io::Result<fs::DirEntry>| entry.expect("an entry").file_name();
        let mut names: Vec<_> =
            entries.map(|entry| name(entry).into_string().expect("UTF-8")).collect();
        names.sort();
        names
    }
}

fn hold(name: &str, transcripts: &[String]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/memory").join(name);
    snapbox::assert_data_eq!(transcripts.join("\n"), Data::read_from(&path, None).raw());
}

/// The last allocation is a MiB further on, where PyTorch's allocator would not place it.
pub(crate) fn moved() -> String {
    const ADDRESS: u64 = 0x7f00_0000_0000 + (62 << 20);
    let text = STEP.replace(&ADDRESS.to_string(), &(ADDRESS + (1 << 20)).to_string());
    let mib = |count: u64| count << 20;
    let whole = format!("{{\"size_bytes\":{},\"requested_bytes\":{},", mib(34), mib(33));
    let after = format!(
        "{{\"size_bytes\":{},\"state\":\"free\"}},{{\"size_bytes\":{1},\"requested_bytes\":{1},",
        mib(1),
        mib(33)
    );
    assert!(text.contains(&whole));
    text.replace(&whole, &after)
}

/// A job without recorded segments.
fn without_regions() -> String {
    let head = "{\"schema\":1,\"kind\":\"memory-trace\"}".to_owned();
    let events = STEP.lines().filter(|line| line.contains("{\"event\":{"));
    let events = events.filter(|line| !line.contains("segment_"));
    let without_stack = |line: &str| match line.find(",\"stack\"") {
        Some(at) => format!("{}}}}}", &line[..at]),
        None => line.to_owned(),
    };
    let lines: Vec<_> = [head].into_iter().chain(events.map(without_stack)).collect();
    lines.join("\n") + "\n"
}

/// TensorFlow's out-of-memory message.
const DUMP: &str = "\
Allocator (GPU_0_bfc) ran out of memory trying to allocate 2.0KiB (rounded to 2048)
BFCAllocator dump for GPU_0_bfc
Bin (256): 	Total Chunks: 1, Chunks in use: 0. 768B allocated for chunks.
Next region of size 1024
InUse at 7f0000000000 of size 256 next 1
Free  at 7f0000000100 of size 768 next 18446744073709551615
";

#[test]
fn job_is_replayed_under_several_policies() {
    let dir = Dir::with(&[("step.jsonl", STEP), ("moved.jsonl", &moved())]);
    let with = |words: &[&str]| dir.transcript(&[&["mem", "replay"], words].concat());
    hold(
        "replay.txt",
        &[
            with(&["step.jsonl"]),
            with(&["step.jsonl", "--policy", "stream-ordered", "--policy", "direct"]),
            with(&["step.jsonl", "--set", "roundup_power2_divisions=4"]),
            with(&["moved.jsonl", "--policy", "caching"]),
        ],
    );
}

#[test]
fn oom_replay_names_helpful_settings() {
    let dir = Dir::with(&[("step.jsonl", STEP)]);
    let with = |words: &[&str]| dir.transcript(&[&["mem", "replay"], words].concat());
    hold(
        "replay-limit.txt",
        &[
            with(&["step.jsonl", "--limit", "150MiB"]),
            with(&["step.jsonl", "--limit", "1GiB", "--device-memory", "80MiB"]),
        ],
    );
}

#[test]
fn fit_reports_exact_need_and_fitting_sets() {
    let dir = Dir::with(&[("step.jsonl", STEP), ("other.jsonl", &without_regions())]);
    let with = |words: &[&str]| dir.transcript(&[&["mem", "fit"], words].concat());
    hold(
        "fit.txt",
        &[
            with(&["step.jsonl"]),
            with(&["step.jsonl", "other.jsonl", "--device-memory", "1500MiB"]),
            with(&["step.jsonl", "other.jsonl", "--device-memory", "1GiB", "--policy", "caching"]),
            with(&["step.jsonl", "--device-memory", "600MiB", "--context", "500MiB"]),
        ],
    );
}

/// The sufficient and insufficient device sizes, and the output that `--quiet` leaves out.
#[test]
fn fit_names_device_sizes() {
    let dir = Dir::with(&[("step.jsonl", STEP)]);
    let with = |words: &[&str]| dir.transcript(&[&["mem", "fit", "step.jsonl"], words].concat());
    hold(
        "fit-sizes.txt",
        &[
            // The smallest need is 160 MiB, which just fits next to the context.
            with(&["--context", "3936MiB"]),
            with(&["--context", "3937MiB"]),
            with(&["--context", "300GiB"]),
            with(&["--policy", "bfc-all-at-once"]),
            with(&["--set", "max_split_size_mb=64"]),
            with(&["--quiet"]),
            with(&["--quiet", "--device-memory", "1MiB"]),
        ],
    );
}

#[test]
fn title_of_a_job_takes_two_lines_only_if_it_must() {
    // The title is 43 columns long without the name.
    for (length, one_line) in [(36, true), (37, true), (38, false)] {
        let name = "a".repeat(length);
        let dir = Dir::with(&[(&name, STEP)]);
        let output = dir.run(&["mem", "fit", &format!("./{name}"), "--policy", "caching"]);
        let text = String::from_utf8(output.stdout).expect("gpuws prints UTF-8");
        let between = if one_line { "" } else { "\n" };
        let title = format!("{name}  16 events, device 0{between}  147 MiB live at once\n");
        assert!(text.starts_with(&title), "{length}: {text}");
    }
}

#[test]
fn quiet_replay_has_no_advice() {
    let dir = Dir::with(&[("step.jsonl", STEP)]);
    let replay = |words: &[&str]| {
        let output = dir.run(&[&["mem", "replay", "step.jsonl"], words].concat());
        String::from_utf8(output.stdout).expect("gpuws prints UTF-8")
    };
    let quiet = replay(&["--quiet", "--limit", "150MiB", "--timeline", "out.svg"]);
    assert!(quiet.contains("Fragmentation: 72 MiB free"), "{quiet}");
    assert!(!quiet.contains("Fits with") && !quiet.contains("drawn: "), "{quiet}");
    assert!(!quiet.contains("No setting of this allocator helps"), "{quiet}");
    assert!(dir.read("out.svg").ends_with("</svg>\n"));
}

#[test]
fn allocator_of_whole_device_requires_its_size() {
    let dir = Dir::with(&[("step.jsonl", STEP)]);
    let replay = |words: &[&str]| {
        dir.run(&[&["mem", "replay", "step.jsonl", "--policy", "bfc-all-at-once"], words].concat())
    };
    let refused = replay(&[]);
    assert_eq!(refused.status.code(), Some(2));
    let text = String::from_utf8(refused.stderr).expect("gpuws prints UTF-8");
    assert!(text.contains("it allocates the whole device up front"), "{text}");
    assert!(replay(&["--device-memory", "1GiB"]).status.success());
    assert!(replay(&["--limit", "1GiB"]).status.success());
}

#[test]
fn failed_allocation_of_the_job_is_reported() {
    let oom = "{\"event\":{\"action\":\"oom\",\"device\":0,\"size_bytes\":2147483648}}\n";
    let text = STEP.replace("\"events\":16", "\"events\":17") + oom;
    let dir = Dir::with(&[("failed.jsonl", &text)]);
    for command in ["replay", "fit"] {
        let output = dir.run(&["mem", command, "failed.jsonl", "--policy", "caching"]);
        let text = String::from_utf8(output.stdout).expect("gpuws prints UTF-8");
        let line = "  the job ended with a failed allocation of 2 GiB; the replay grants it\n";
        assert!(text.contains(line), "{command}: {text}");
    }
}

#[test]
fn recording_is_read_from_standard_input() {
    let dir = Dir::with(&[("step.jsonl", STEP)]);
    let shown = |file: &str| {
        let input = fs::File::open(dir.0.path().join("step.jsonl")).expect("it was written");
        let mut command = dir.command(&["mem", "fit", file, "--policy", "caching"]);
        let output = command.stdin(input).output().expect("gpuws runs");
        String::from_utf8(output.stdout).expect("gpuws prints UTF-8")
    };
    let whole = dir.0.path().join("step.jsonl");
    let (named, piped) = (shown(whole.to_str().expect("UTF-8")), shown("-"));
    assert!(named.starts_with("step.jsonl  16 events"), "{named}");
    assert_eq!(piped, named.replacen("step.jsonl", "standard input", 1));
}

#[test]
fn replay_and_fit_print_json() {
    let dir = Dir::with(&[("step.jsonl", STEP), ("moved.jsonl", &moved())]);
    let with = |words: &[&str]| dir.transcript(&[&["--json", "mem"], words].concat());
    let limited = ["replay", "step.jsonl", "--limit", "150MiB", "--policy", "bfc"];
    hold(
        "replay.json.txt",
        &[with(&limited), with(&["replay", "moved.jsonl", "--policy", "direct"])],
    );
    let both =
        ["fit", "step.jsonl", "moved.jsonl", "--device-memory", "2GiB", "--policy", "caching"];
    hold("fit.json.txt", &[with(&both)]);
}

#[test]
fn unreplayable_input_is_rejected_with_hint() {
    let dir = Dir::with(&[
        ("step.jsonl", STEP),
        ("other.jsonl", &without_regions()),
        ("tensorflow.log", DUMP),
        ("freed.jsonl", &STEP.replace("\"free_completed\"", "\"free_requested\"")),
    ]);
    let with = |words: &[&str]| dir.transcript(&[&["mem"], words].concat());
    hold(
        "refused.txt",
        &[
            with(&["replay", "tensorflow.log"]),
            with(&["fit", "tensorflow.log"]),
            with(&["replay", "step.jsonl", "--device", "3"]),
            with(&["replay", "step.jsonl", "--policy", "cachng"]),
            with(&["replay", "step.jsonl", "--policy", "slab"]),
            with(&["replay", "step.jsonl", "--set", "max_splt_size_mb=64"]),
            with(&["replay", "step.jsonl", "--set", "max_split_size_mb"]),
            with(&["replay", "step.jsonl", "--policy", "bfc", "--set", "growth=true"]),
            with(&["replay", "step.jsonl", "--policy", "direct", "--set", "growth=true"]),
            with(&["replay", "step.jsonl", "--timeline", "out.png"]),
            with(&["replay", "step.jsonl", "--timeline", "step.jsonl.svg/out.svg"]),
            with(&["fit", "freed.jsonl"]),
        ],
    );
    assert_eq!(dir.names().len(), 4, "nothing was written");
}

#[test]
fn output_fits_terminal_and_pipe_gets_no_colour() {
    let long = format!("{}.jsonl", "a-long-name-of-a-recording-".repeat(2));
    let dir = Dir::with(&[(&long, STEP), ("other.jsonl", &without_regions())]);
    for words in [
        &["mem", "replay", &long][..],
        &["mem", "replay", &long, "--limit", "150MiB"],
        &["mem", "replay", &long, "--set", "roundup_power2_divisions=4"],
        &[
            "mem",
            "fit",
            &long,
            "--set",
            "max_split_size_mb=64",
            "--set",
            "expandable_segments=True",
        ],
        &["mem", "fit", &long, "other.jsonl", "--device-memory", "1500MiB"],
    ] {
        let printed = dir.run(words).stdout;
        let text = String::from_utf8(printed).expect("gpuws prints UTF-8");
        // The file name is not truncated, so that it can be copied.
        for line in text.lines().filter(|line| !line.contains(&long)) {
            assert!(line.chars().count() <= 80, "{words:?}: {line}");
        }
        assert!(!text.contains('\u{1b}'), "a pipe gets no colour");
        let coloured = [&["--color", "always"], words].concat();
        assert!(dir.run(&coloured).stdout.contains(&0x1b));
        let never = dir.command(words).env("NO_COLOR", "1").output().expect("gpuws runs");
        assert!(!never.stdout.contains(&0x1b));
        assert_eq!(never.stderr, b"", "no progress without a terminal");
    }
}

#[test]
fn timeline_file_is_written_atomically() {
    let dir = Dir::with(&[("step.jsonl", STEP)]);
    let replay = |file: &str| dir.run(&["mem", "replay", "step.jsonl", "--timeline", file]);
    let reported = replay("step.svg");
    assert!(reported.status.success());
    assert!(String::from_utf8_lossy(&reported.stdout).ends_with("drawn: step.svg\n"));
    let svg = dir.read("step.svg");
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    assert!(replay("step.html").status.success());
    let html = dir.read("step.html");
    assert_eq!(html.matches("<svg ").count(), 2, "one per allocator");
    assert!(html.contains("attend, models/train.py:31"), "stacks are shown");

    let again = replay("step.svg");
    assert_eq!(again.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&again.stderr).contains("it already exists"));
    assert_eq!(dir.names(), ["step.html", "step.jsonl", "step.svg"], "no temporary file is left");
}

#[test]
fn documented_timeline_is_current() {
    let dir = Dir::with(&[("step.jsonl", STEP)]);
    let words = ["mem", "replay", "step.jsonl", "--limit", "150MiB", "--timeline", "step.svg"];
    assert_eq!(dir.run(&words).status.code(), Some(1), "it runs out of memory");
    let documented = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/memory-timeline.svg");
    snapbox::assert_data_eq!(dir.read("step.svg"), Data::read_from(&documented, None).raw());
    let shown = include_str!("../../../../docs/memory.md");
    let replay = String::from_utf8(dir.run(&words[..5]).stdout).expect("gpuws prints UTF-8");
    let stop = replay
        .find("caching (as recorded): out")
        .map(|at| &replay[at..])
        .expect("the program exits");
    let stop = stop.split("\n\n").next().expect("a paragraph");
    assert!(shown.contains(&stop.replace('\n', "\n    ")), "{stop}");
    let fit = dir.run(&["mem", "fit", "step.jsonl"]).stdout;
    let fit = String::from_utf8(fit).expect("gpuws prints UTF-8");
    assert!(shown.contains(&fit.trim_end().replace('\n', "\n    ")), "{fit}");
}

#[test]
fn svg_shows_one_device_and_html_all() {
    let second = STEP.lines().filter(|line| line.contains("\"event\":{"));
    let second = second.filter(|line| !line.contains("segment_"));
    let second = second.map(|line| line.replace("{\"event\":{", "{\"event\":{\"device\":1,"));
    let two = STEP.to_owned() + &second.collect::<Vec<_>>().join("\n") + "\n";
    let dir = Dir::with(&[("two.jsonl", &two)]);
    let replay = |words: &[&str]| dir.run(&[&["mem", "replay", "two.jsonl"], words].concat());
    let text = String::from_utf8(replay(&["--quiet"]).stdout).expect("gpuws prints UTF-8");
    assert!(text.starts_with("two.jsonl  ") && text.contains("\n\ntwo.jsonl  "), "{text}");
    let refused = replay(&["--timeline", "two.svg"]);
    assert_eq!(refused.status.code(), Some(2));
    let output_text = String::from_utf8_lossy(&refused.stderr);
    assert!(
        output_text.contains("the job ran on 2 devices") && output_text.contains("--device"),
        "{output_text}"
    );
    assert!(replay(&["--timeline", "two.svg", "--device", "1"]).status.success());
    assert!(dir.read("two.svg").contains("Memory of device 1 over"));
    assert!(replay(&["--timeline", "two.html", "--policy", "caching"]).status.success());
    assert_eq!(dir.read("two.html").matches("<svg ").count(), 2);
}

#[test]
fn job_too_large_or_out_of_memory_exits_1() {
    let dir = Dir::with(&[("step.jsonl", STEP)]);
    let code = |words: &[&str]| dir.run(&[&["mem"], words].concat()).status.code();
    for (device, expected) in [("4GiB", 0), ("600MiB", 1)] {
        let fit = ["fit", "step.jsonl", "--device-memory", device];
        assert_eq!(code(&fit), Some(expected), "{device}");
        assert_eq!(code(&[&fit[..], &["--json"]].concat()), Some(expected), "{device}");
    }
    assert_eq!(code(&["fit", "step.jsonl"]), Some(0));
    assert_eq!(code(&["replay", "step.jsonl", "--limit", "150MiB"]), Some(1));
    assert_eq!(code(&["replay", "step.jsonl", "--limit", "150MiB", "--json"]), Some(1));
    assert_eq!(code(&["replay", "step.jsonl"]), Some(0));
}

#[test]
fn decimal_size_of_a_device_is_noted() {
    let dir = Dir::with(&[("step.jsonl", STEP)]);
    let words = ["mem", "fit", "step.jsonl", "--device-memory", "24GB"];
    let stderr = String::from_utf8(dir.run(&words).stderr).unwrap();
    assert!(stderr.starts_with("gpuws: note: 24GB is 22.35 GiB; a card sold as 24 GB"), "{stderr}");
    let words = ["mem", "fit", "step.jsonl", "--device-memory", "24GiB"];
    assert!(dir.run(&words).stderr.is_empty());
}

#[test]
fn fit_suggests_expandable_segments_if_they_suffice() {
    // A small block keeps the segment of a large one, so the next large one needs another segment.
    let event = |(at, (action, address, mib)): (usize, &(&str, u64, u64))| {
        let (address, size) = ((1_u64 << 40) + (address << 20), mib << 20);
        format!(
            "{{\"event\":{{\"action\":\"{action}\",\"address\":{address},\"size_bytes\":{size},\
            \"time_us\":{at}}}}}\n"
        )
    };
    let events = [
        ("alloc", 0, 200),
        ("free_requested", 0, 200),
        ("free_completed", 0, 200),
        ("alloc", 0, 20),
        ("alloc", 1000, 200),
    ];
    let events: String = events.iter().enumerate().map(event).collect();
    let head = "{\"schema\":1,\"kind\":\"memory-trace\"}\n";
    let dir = Dir::with(&[("job.jsonl", &format!("{head}{events}"))]);
    let fit = |device: &str, more: &[&str]| {
        let words = ["mem", "fit", "job.jsonl", "--device-memory", device, "--context", "100MiB"];
        let output = dir.run(&[&words[..], more].concat());
        (output.status.code(), String::from_utf8(output.stdout).expect("gpuws prints UTF-8"))
    };
    let (code, text) = fit("400MiB", &[]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("fits 400 MiB with expandable_segments:True"), "{text}");
    let next = "next: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True gpuws run --mem ";
    assert!(text.contains(next), "{text}");
    let (code, json) = fit("400MiB", &["--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).expect("valid JSON");
    let job = &json["jobs"][0];
    assert_eq!((code, job["fits"].as_bool()), (Some(0), Some(true)));
    assert_eq!(job["setting"], "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True");
    let (code, text) = fit("600MiB", &[]);
    assert!(code == Some(0) && !text.contains("expandable_segments:True"), "{text}");
    let (code, text) = fit("250MiB", &[]);
    assert!(code == Some(1) && text.contains("does not fit 250 MiB"), "{text}");
}
