//! Golden files: every shipped machine with every command that queries or acts, and every help
//! text. `SNAPSHOTS=overwrite cargo test -p gpuws` updates them.

use snapbox::Data;
use std::path::Path;
use std::process::{Command, Stdio};

fn gpuws(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpuws"));
    command.args(words).env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE").stdin(Stdio::null());
    command.env("TZ", "UTC").env_remove("COLUMNS");
    command
}

/// Returns the output of a command on both streams and its exit code, below the command line.
pub(crate) fn transcript(words: &[&str]) -> String {
    let output = gpuws(words).output().expect("gpuws runs");
    let text = |bytes| String::from_utf8(bytes).expect("gpuws prints UTF-8");
    let code = output.status.code().expect("gpuws ends by itself");
    let (stdout, stderr) = (text(output.stdout), text(output.stderr));
    format!("$ gpuws {}\n{stdout}{stderr}=> {code}\n", words.join(" "))
}

pub(crate) fn hold(name: &str, transcript: String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    snapbox::assert_data_eq!(transcript, Data::read_from(&path, None).raw());
}

#[test]
fn every_command_on_every_machine_matches_golden_file() {
    let machines = gpu_sim::machines();
    assert!(machines.len() >= 10, "the taxonomy has more machines than {}", machines.len());
    for machine in machines {
        let sim = ["--sim", machine.name];
        let with = |words: &[&str]| transcript(&[&sim[..], words].concat());
        let looks = [with(&[]), with(&["doctor"]), with(&["holders"])];
        hold(&format!("{}.look.txt", machine.name), looks.join("\n"));
        let acts = [with(&["reap"]), with(&["reap", "--yes"])];
        hold(&format!("{}.reap.txt", machine.name), acts.join("\n"));
        let resets = [with(&["reset", "0"]), with(&["reset", "0", "--yes"])];
        hold(&format!("{}.reset.txt", machine.name), resets.join("\n"));
        hold(&format!("{}.demo.txt", machine.name), transcript(&["demo", machine.name]));
    }
}

/// All details of a device, for each shipped machine that has special ones.
#[test]
fn every_device_detail_matches_golden_file() {
    for (machine, gpu) in [
        ("labbox", "0"),
        ("mig-a100", "0"),
        ("lost-gpu", "2"),
        ("other-user", "0"),
        ("k80-single", "0"),
        ("display-and-daemons", "0"),
    ] {
        let name = format!("{machine}.details.txt");
        hold(&name, transcript(&["--sim", machine, "status", "-i", gpu, "-q"]));
    }
    let words = ["--sim", "labbox", "status", "-i", "3", "-q", "--json"];
    hold("labbox.details.json.txt", transcript(&words));
}

/// A lost device keeps its row, whereas nvidia-smi stops there; without a driver there are no rows.
#[test]
fn drop_in_formats_of_faulty_machines() {
    let query = ["query", "--query-gpu=index,name,memory.used", "--format=csv"];
    let apps = ["query", "--query-compute-apps=pid,process_name,used_memory", "--format=csv"];
    let gpustat = ["status", "--format", "gpustat-json"];
    for machine in ["lost-gpu", "no-driver"] {
        let with = |words: &[&str]| transcript(&[&["--sim", machine], words].concat());
        let all = [with(&query), with(&apps), with(&gpustat)];
        hold(&format!("{machine}.drop-ins.txt"), all.join("\n"));
    }
}

#[test]
fn status_is_default_command() {
    for machine in gpu_sim::machines() {
        let printed = |words: &[&str]| gpuws(words).output().expect("gpuws runs").stdout;
        assert_eq!(printed(&["--sim", machine.name]), printed(&["--sim", machine.name, "status"]));
    }
}

#[test]
fn every_help_text_matches_golden_file() {
    let words = [
        "status",
        "top",
        "query",
        "dmon",
        "pmon",
        "doctor",
        "reap",
        "reset",
        "holders",
        "parse",
        "record",
        "demo",
        "sim",
        "completions",
        "man",
    ];
    let mut all = vec![transcript(&["--help"]), transcript(&["-h"])];
    all.extend(words.map(|word| transcript(&[word, "--help"])));
    hold("help.txt", all.join("\n"));
    let fields = [
        "--help-query-gpu",
        "--help-query-compute-apps",
        "--help-query-accounted-apps",
        "--help-query-retired-pages",
        "--help-query-remapped-rows",
        "--help-query-supported-clocks",
    ];
    hold("query-fields.txt", fields.map(|option| transcript(&["query", option])).join("\n"));
}

#[test]
fn json_of_ghost_walkthrough() {
    for words in
        [&["status"][..], &["doctor"], &["reap"], &["reap", "--yes"], &["reset", "0"], &["holders"]]
    {
        let name = format!("p100-ghost.{}.json.txt", words.join("-"));
        hold(&name, transcript(&[&["--sim", "p100-ghost", "--json"], words].concat()));
    }
}

/// Every finding ends with a suggested command, and those of gpuws work.
#[test]
fn suggested_next_commands_work() {
    for machine in gpu_sim::machines() {
        let output =
            gpuws(&["--sim", machine.name, "--json", "doctor"]).output().expect("gpuws runs");
        let Ok(doctor) = serde_json::from_slice::<serde_json::Value>(&output.stdout) else {
            assert_eq!(output.status.code(), Some(3), "{}: no device can be asked", machine.name);
            continue;
        };
        for finding in doctor["findings"].as_array().expect("a list") {
            let next = finding["next"].as_array().expect("a list");
            assert!(!next.is_empty(), "{}: {finding}", machine.name);
            let commands = next.iter().filter_map(|next| next["command"].as_str());
            for command in commands.filter(|command| command.starts_with("gpuws --sim")) {
                let words: Vec<&str> = command.split(' ').skip(1).collect();
                let ended = gpuws(&words).output().expect("gpuws runs");
                assert!([Some(0), Some(1)].contains(&ended.status.code()), "{command}");
                let output_text = String::from_utf8_lossy(&ended.stdout);
                let useful = !words.contains(&"reap") || output_text.contains("would send SIGTERM");
                assert!(useful, "{command}: {output_text}");
            }
        }
    }
}

/// In 80 columns no line is longer, except for suggested commands.
#[test]
fn lines_fit_80_columns() {
    for machine in gpu_sim::machines() {
        for words in [&["status"][..], &["doctor"], &["reap"], &["reset", "0"]] {
            let words = [&["--sim", machine.name], words].concat();
            let printed = gpuws(&words).env("COLUMNS", "80").output().expect("gpuws runs");
            for line in String::from_utf8_lossy(&printed.stdout).lines() {
                let fits = line.chars().count() <= 80 || line.contains("gpuws --sim");
                assert!(fits, "{words:?}: {line}");
            }
        }
    }
}

#[test]
fn colour_requires_terminal_or_option() {
    let printed = |words: &[&str]| {
        let output = gpuws(words).env("NO_COLOR", "1").output().expect("gpuws runs");
        String::from_utf8(output.stdout).expect("gpuws prints UTF-8")
    };
    let plain = gpuws(&["--sim", "p100-ghost", "doctor"]).output().expect("gpuws runs").stdout;
    assert!(!plain.contains(&b'\x1b'), "a pipe gets no colour");
    assert!(printed(&["--sim", "p100-ghost", "--color", "always", "doctor"]).contains("\x1b["));
    assert!(!printed(&["--sim", "p100-ghost", "--color", "never", "doctor"]).contains('\x1b'));
}
