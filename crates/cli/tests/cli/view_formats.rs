//! Views in the formats of other tools, in other locales and for terminals.

use crate::program::{Ended, ended, gpuws, machine_from};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// The formats of other tools are for scripts, but their output may reach a terminal: control
/// characters in a process name must affect neither.
#[test]
fn hostile_process_name_is_escaped_in_every_format() {
    let dir = machine_from("labbox", |text| {
        let hostile = "command_line = [\"\\u001b]0;x\\u0007\\n, 9\", \"\\u202e\"]";
        let lines =
            text.lines().map(|line| if line.starts_with("command_line") { hostile } else { line });
        lines.collect::<Vec<_>>().join("\n")
    });
    for words in [
        &["status"][..],
        &["status", "-q"],
        &["status", "-q", "--json"],
        &["status", "--format", "gpustat-json"],
        &["status", "--format", "nvidia-smi"],
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
            let (same, rich, message) = shown(locale, words);
            assert!(!rich.is_ascii() || !message.is_ascii(), "{rich}{message}");
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
    // As with nvidia-smi, a missing device does not hide the others.
    let some = of("labbox", "0,9");
    assert_eq!((some.code, some.stdout.matches("\"index\": ").count()), (0, 1), "{}", some.stderr);
    let missing = of("labbox", "9");
    assert_eq!((missing.code, missing.stdout.as_str()), (2, ""), "{}", missing.stderr);
}

/// `parse` reads the outputs of nvidia-smi; it finds the same devices and processes in those of
/// gpuws.
#[test]
fn table_and_xml_are_read_back() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let read_back = |machine: &str, form: &[&str]| -> serde_json::Value {
        let shown = gpuws(dir.path(), &[&["--sim", machine, "status"], form].concat());
        assert_eq!(shown.code, 0, "{}", shown.stderr);
        fs::write(dir.path().join("text"), &shown.stdout).unwrap();
        let parsed = gpuws(dir.path(), &["parse", "text"]);
        assert_eq!(parsed.code, 0, "{}", parsed.stderr);
        serde_json::from_str(&parsed.stdout).unwrap()
    };
    for machine in ["labbox", "p100-ghost", "gtx1080ti-x8", "mig-a100"] {
        let status = gpuws(dir.path(), &["--sim", machine, "status", "--json"]);
        let status: serde_json::Value = serde_json::from_str(&status.stdout).unwrap();
        for form in [&["-q", "-x"][..], &["--format", "nvidia-smi"]] {
            let parsed = read_back(machine, form);
            assert_eq!(parsed["unread"].as_array().map(Vec::len), Some(0), "{form:?}: {parsed}");
            let (read, shown) = (parsed["gpus"].as_array(), status["gpus"].as_array());
            let (read, shown) = (read.unwrap(), shown.unwrap());
            assert_eq!(read.len(), shown.len());
            for (read, shown) in read.iter().zip(shown) {
                let mib = shown["memory_used_bytes"].as_u64().map(|bytes| bytes >> 20);
                assert_eq!(read["memory_used_mib"].as_u64(), mib, "{machine} {form:?}");
                assert_eq!(read["utilization_percent"], shown["utilization_percent"]);
                assert_eq!(read["temperature_c"], shown["temperature_c"]);
                assert_eq!(read["bus_id"], shown["bus_id"]);
            }
            let listed = |value: &serde_json::Value| -> usize {
                value.as_array().into_iter().flatten().filter(|row| row["listed"] != false).count()
            };
            let processes = shown.iter().map(|gpu| listed(&gpu["processes"])).sum::<usize>();
            assert_eq!(listed(&parsed["processes"]), processes, "{machine} {form:?}: {parsed}");
        }
    }
}
