//! Device selectors, and a full output device.

use std::fs::File;
use std::process::{Command, Output};

fn gpuws(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpuws"));
    command.args(words).env("NO_COLOR", "1").env("TZ", "UTC");
    command
}

fn run(words: &[&str]) -> Output {
    gpuws(words).output().expect("gpuws runs")
}

/// Returns the UUIDs of a machine's devices.
fn uuids(machine: &str) -> Vec<String> {
    let words = ["--sim", machine, "query", "--query-gpu=uuid", "--format=csv,noheader"];
    let output_text = String::from_utf8(run(&words).stdout).expect("UTF-8");
    output_text.lines().map(str::to_owned).collect()
}

#[test]
fn device_selectors_work_in_doctor_reap_and_status() {
    let uuids = uuids("labbox");
    let uuid = uuids[3].as_str();
    // The shortest unique prefix.
    let is_own =
        |end: &usize| uuids.iter().filter(|other| other.starts_with(&uuid[..*end])).count() == 1;
    let part = &uuid[..(4..uuid.len()).find(is_own).expect("they differ")];
    for command in [&["doctor", "--gpu"][..], &["reap", "--gpu"], &["status", "-i"]] {
        let of = |name| run(&[&["--sim", "labbox"], command, &[name]].concat());
        let by_index = of("3");
        for name in [uuid, part, "00000000:34:00.0"] {
            let by_name = of(name);
            assert_eq!(by_name.status.code(), by_index.status.code(), "{command:?} {name}");
            let text = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
            // The suggested command uses the same selector.
            let expected =
                text(&by_index).replace("reap --gpu 3 --yes", &format!("reap --gpu {name} --yes"));
            let expected = if command[0] == "reap" { expected } else { text(&by_index) };
            assert_eq!(text(&by_name), expected, "{command:?} {name}");
        }
        let many = of(&part[..part.len() - 1]);
        assert_eq!(many.status.code(), Some(2), "{many:?}");
        let reported = String::from_utf8_lossy(&many.stderr).into_owned();
        assert!(
            reported.contains("the prefix matches")
                && reported.contains("hint: use a longer prefix"),
            "{reported}"
        );
        assert_eq!(of("GPU-no-such").status.code(), Some(2));
    }
}

/// The headline is that of the whole machine; findings elsewhere are not repeated.
#[test]
fn status_of_one_device_names_no_findings_of_others() {
    let shown = |gpu: &str| {
        String::from_utf8(run(&["--sim", "labbox", "status", "-i", gpu]).stdout).expect("UTF-8")
    };
    let possible = "1 possible finding: ";
    for (gpu, named) in [("1", &[][..]), ("2", &[possible]), ("2,3", &["GPU 3: ", possible])] {
        let shown = shown(gpu);
        let findings: Vec<&str> = shown.lines().filter(|line| line.contains("doctor")).collect();
        assert!(shown.contains("4 GPUs, 1 free, 1+ findings"), "{shown}");
        assert_eq!(findings.len(), named.len(), "{shown}");
        let all = findings.iter().zip(named).all(|(line, name)| line.starts_with(name));
        assert!(all, "{shown}");
    }
}

#[test]
fn failed_output_exits_nonzero() {
    for command in ["status", "doctor", "holders", "leases", "--help"] {
        let full = File::options().write(true).open("/dev/full").expect("the file opens");
        let output =
            gpuws(&["--sim", "labbox", command]).stdout(full).output().expect("gpuws runs");
        assert_eq!(output.status.code(), Some(74), "{command}: {output:?}");
        let reported = String::from_utf8_lossy(&output.stderr).into_owned();
        let expected = "failed to write to standard output: No space left on device";
        assert!(command == "--help" || reported.contains(expected), "{command}: {reported}");
    }
}
