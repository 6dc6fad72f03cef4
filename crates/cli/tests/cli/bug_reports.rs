//! Texts from public bug reports, in the directory `GPUWS_BUGS`. Each case has a directory; the
//! name of the directory ends with the name of the case. The texts are not in the repository.

use crate::program::{gpuws, skipped, with_input};
use std::fs;
use std::path::{Path, PathBuf};

/// The directory of each case; prints a message and returns `None` if this machine has no cases.
fn cases() -> Option<impl Fn(&str) -> PathBuf> {
    let Some(root) = std::env::var_os("GPUWS_BUGS").map(PathBuf::from) else {
        skipped("GPUWS_BUGS does not name a directory of bug reports");
        return None;
    };
    let entries = fs::read_dir(&root).expect("GPUWS_BUGS is a directory");
    let all: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    Some(move |name: &str| {
        let is_it = |path: &&PathBuf| {
            let own = path.file_name().and_then(|own| own.to_str()).unwrap_or_default();
            own.split_once('-').is_some_and(|(_, own)| own == name)
        };
        all.iter().find(is_it).unwrap_or_else(|| panic!("a case {name}")).clone()
    })
}

/// A case, its file, the exit code, and what the output has, or lacks after `!`.
type Case = (&'static str, &'static str, i32, &'static [&'static str]);

const PASTED: &[Case] = &[
    ("nvrm-fallen-multiline", "in.txt", 1, &["00000000:B3:00.0: Xid 79"]),
    ("nvrm-fallen-multiline", "in2.txt", 1, &["00000000:3B:00.0: Xid 79"]),
    (
        "journal-xid",
        "in.txt",
        1,
        &["Xid 43", "Xid 154", "changed to reboot", "Xid 45", "3 findings"],
    ),
    ("quoted-table", "in.txt", 1, &["GHOST  GPU 0", "7,829 of 12,189 MiB used"]),
    ("nvidia-docker-759", "in.txt", 1, &["78 % busy: a process computes", "outside any container"]),
    ("gpustat-paste", "in.txt", 1, &["GHOST  GPU 3", "21,305 of 24,564", "15,184 MiB", "!GPU 0 "]),
    ("wsl-0mib", "in.txt", 0, &["0 findings"]),
    ("hami-table-17tb", "in.txt", 0, &["figure of the used memory is impossible"]),
    ("xid-nvlink-nonfatal", "in.txt", 1, &["Xid 144", "confidence: possible"]),
    ("xid-nvlink-nonfatal", "in2.txt", 1, &["Xid 149", "confidence: likely"]),
    (
        "xid45-caused-by",
        "in.txt",
        1,
        &[
            "Xid 149: NVLink error",
            "Xid 145: NVLink error",
            "a consequence of",
            "!fault of the program",
        ],
    ),
    ("sxid", "in.txt", 1, &["an NVSwitch", "SXid 20034, fatal", "LTSSM Fault Up", "SXid 12028"]),
    (
        "dmesg-iso-prefix",
        "in.txt",
        1,
        &["Xid 94", "2025-01-25", "Xid 145", "Xid 119", "3 findings"],
    ),
    ("gb10-nvrm-nomem", "in.txt", 1, &["system memory ran out", "free -h", "!fuser"]),
    ("wsl-access-blocked", "in.txt", 1, &["WSL 2", "wsl.exe --update", "!(--gpus)"]),
    ("old-dated-xid", "in.txt", 1, &["Xid 79", "2026-09-11 08:00 UTC", "to reboot"]),
    ("old-dated-xid", "in2.txt", 1, &["Xid 79", "2026-09-11 08:00 UTC", "to reboot"]),
    ("old-dated-xid", "in3.txt", 1, &["Xid 48", "Xid 154", "GPU 0 H100"]),
    ("slurm-host-oom", "in.log", 1, &["system memory ran out", "--mem", "!fuser"]),
    ("slurm-host-oom", "in2.log", 1, &["system memory ran out", "--mem", "!fuser"]),
    ("ollama-runner-oom", "in.log", 1, &["not given back in time", "gpuws mem explain"]),
    ("ollama-runner-oom", "in2.log", 1, &["not given back in time", "sudo fuser"]),
    ("mig-lgip", "in.txt", 2, &["profiles or instances of MIG"]),
    ("mixed-mig-table", "in.txt", 0, &["0 findings"]),
    ("q-recovery", "in.txt", 1, &["requires a reset", "route in its NVLink fabric is unhealthy"]),
    ("q-recovery", "in2.txt", 1, &["requires a reboot", "sudo reboot", "fabric is degraded"]),
    ("q-recovery", "in3.txt", 1, &["IMEX domain", "unhealthy", "!unknown recovery"]),
    ("q-recovery", "in4.txt", 1, &["NVLINK DOWN", "unhealthy", "1 finding."]),
    ("mail-wrapped-table", "in.txt", 0, &["0 findings"]),
    ("prefixed-table", "in.txt", 1, &["8,023 of 11,519 MiB used"]),
    ("prefixed-table", "in2.txt", 1, &["8,023 of 11,519 MiB used"]),
    ("mig-mem-na", "in.txt", 1, &["GHOST  GPU 0", "10,821 of 11,008 MiB used there"]),
    ("mig-parent-present", "in.txt", 1, &["10,847 of 95,830 MiB used", "within MIG 0"]),
    ("busy-unavailable", "in.txt", 1, &["GHOST  GPU 0", "E. Process", "compute_mode"]),
    ("triton-fallback", "in.log", 2, &["!FAILURE"]),
    ("nvitop-mig", "in.txt", 1, &["GHOST  GPU 2", "15,210 of 19,968", "!GHOST  GPU 1"]),
    ("json-escaped", "in.txt", 1, &["814 of 22,945 MiB used"]),
    ("nvml-unknown-error", "in.txt", 1, &["daemon-reload", "nvidia-ctk", "CDI", "!fuser"]),
];

#[test]
fn pasted_bug_reports_are_judged() {
    let Some(directory) = cases() else { return };
    let mut wrong = Vec::new();
    for (name, file, code, parts) in PASTED {
        let text = fs::read(directory(name).join(file)).expect("the text");
        let pasted = with_input(&["doctor", "--paste"], &text);
        let told = format!("{}{}", pasted.stdout, pasted.stderr);
        let told = told.split_whitespace().collect::<Vec<_>>().join(" ");
        let has =
            |part: &str| told.contains(&part.split_whitespace().collect::<Vec<_>>().join(" "));
        let is_told = |part: &&str| match part.strip_prefix('!') {
            Some(part) => !has(part),
            None => has(part),
        };
        if pasted.code != *code || !parts.iter().all(is_told) {
            wrong.push(format!("{name}/{file}: {} {told}", pasted.code));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn bug_reports_are_parsed() {
    let Some(directory) = cases() else { return };
    for (name, file, kind, part) in [
        ("csv-comma-name", "in.csv", "query_apps", "python train.py --gpus=0,1,2"),
        ("topo-nic", "in.txt", "topo", "NIC1"),
        ("topo-nic", "in2.txt", "topo", "mlx5_17"),
        ("journal-xid", "in.txt", "kernel_log", "trigger_xid"),
        ("sxid", "in.txt", "kernel_log", "20034"),
        ("mig-lgip", "in.txt", "mig", "MIG 1g.18gb+me"),
        ("gpustat-paste", "in.txt", "gpustat", "user1"),
        ("mail-wrapped-table", "in.txt", "table", "7952"),
        ("json-escaped", "in.txt", "table", "22945"),
    ] {
        let path = directory(name).join(file);
        let parsed = gpuws(Path::new("."), &["parse", path.to_str().expect("a path in UTF-8")]);
        assert_eq!(parsed.code, 0, "{name}: {}", parsed.stderr);
        let json: serde_json::Value = serde_json::from_str(&parsed.stdout).expect("JSON");
        assert_eq!(json["kind"], kind, "{name}");
        assert!(parsed.stdout.contains(part), "{name}: {}", parsed.stdout);
    }
}

#[test]
fn bug_reports_of_other_commands_have_their_answer() {
    let Some(directory) = cases() else { return };
    let graph = directory("onnx-opset21").join("in.onnx");
    let graph = graph.to_str().expect("a path in UTF-8");
    let here = Path::new(".");
    let placed = gpuws(here, &["place", "graph", graph, "--explain", "--devices", "/cpu:0,/gpu:0"]);
    assert!(placed.stdout.contains("first device; its kernels are not known"), "{}", placed.stdout);
    assert!(!placed.stdout.contains("with a kernel"), "{}", placed.stdout);
    let machine = directory("zombie-dstate-fuse");
    let machine = machine.to_str().expect("a path in UTF-8");
    let reaped = gpuws(here, &["--sim", machine, "reap", "--yes"]);
    for part in ["survived SIGKILL", "wchan", "/sys/fs/fuse/connections", "sudo reboot"] {
        assert!(reaped.stdout.contains(part), "{part}: {}{}", reaped.stdout, reaped.stderr);
    }
}
