//! Texts from public bug reports, in the directory `GPUWS_BUGS`. Each case has a directory; the
//! name of the directory ends with the name of the case. The texts are not in the repository.

use crate::program::{Ended, ended, gpuws, skipped, with_input};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

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

/// A case, its file or its command, the exit code, and what the output has, or lacks after `!`.
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
    (
        "nvidia-docker-759",
        "in.txt",
        1,
        &["78 % busy: an unlisted process is computing", "outside any container"],
    ),
    ("gpustat-paste", "in.txt", 1, &["GHOST  GPU 3", "21,305 of 24,564", "15,184 MiB", "!GPU 0 "]),
    ("wsl-0mib", "in.txt", 0, &["0 findings"]),
    ("hami-table-17tb", "in.txt", 0, &["memory use exceeds the installed memory"]),
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
    ("gb10-nvrm-nomem", "in.txt", 1, &["could not allocate system memory", "free -h", "!fuser"]),
    ("wsl-access-blocked", "in.txt", 1, &["WSL 2", "wsl.exe --update", "!(--gpus)"]),
    ("old-dated-xid", "in.txt", 1, &["Xid 79", "2026-09-11 08:00 UTC", "to reboot"]),
    ("old-dated-xid", "in2.txt", 1, &["Xid 79", "2026-09-11 08:00 UTC", "to reboot"]),
    ("old-dated-xid", "in3.txt", 1, &["Xid 48", "Xid 154", "GPU 0 H100"]),
    ("slurm-host-oom", "in.log", 1, &["system memory ran out", "--mem", "!fuser"]),
    ("slurm-host-oom", "in2.log", 1, &["system memory ran out", "--mem", "!fuser"]),
    ("ollama-runner-oom", "in.log", 1, &["not released in time", "gpuws mem explain"]),
    ("ollama-runner-oom", "in2.log", 1, &["not released in time", "sudo fuser"]),
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

/// Returns the exit code and the output, on one line, if they differ from the expected ones.
fn differs(ended: &Ended, code: i32, parts: &[&str]) -> Option<String> {
    let line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let message = line(&format!("{} {}", ended.stdout, ended.stderr));
    let is_told = |part: &&str| match part.strip_prefix('!') {
        Some(part) => !message.contains(&line(part)),
        None => message.contains(&line(part)),
    };
    let is_right = ended.code == code && parts.iter().all(is_told);
    (!is_right).then(|| format!("{} {message}", ended.code))
}

#[test]
fn pasted_bug_reports_are_judged() {
    let Some(directory) = cases() else { return };
    let mut wrong = Vec::new();
    for (name, file, code, parts) in PASTED {
        let text = fs::read(directory(name).join(file)).expect("the text");
        let pasted = with_input(&["doctor", "--paste"], &text);
        if let Some(message) = differs(&pasted, *code, parts) {
            wrong.push(format!("{name}/{file}: {message}"));
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

/// Commands of other kinds: variables and words; `@` precedes a file of the case.
const COMMANDS: &[Case] = &[
    (
        "minimax-m2",
        "place model @config.json --memory 140GiB,140GiB",
        0,
        &["weights 214.23 GiB", "fits 2 GPUs by tensor parallelism", "--tensor-parallel-size 2"],
    ),
    (
        "glm45-air",
        "place model @config.json --memory 140GiB,140GiB",
        0,
        &["106.85 B parameters", "weights 197.87 GiB", "fits 2 GPUs"],
    ),
    (
        "deepseek-v32",
        "place model @config.json --memory 140GiB,140GiB",
        1,
        &["671.88 B parameters", "weights 627.71 GiB", "does not fit"],
    ),
    (
        "glm5",
        "place model @config.json --memory 140GiB,140GiB",
        1,
        &["743.91 B parameters", "weights 1383.87 GiB", "does not fit", "--weights Q2_K"],
    ),
    (
        "llama-compressed-tensors",
        "place model @config.json --memory 24GiB --context 4k",
        0,
        &["8.03 B parameters", "weights 5.31 GiB", "fits 1 GPU", "vllm serve", "!llama-server"],
    ),
    (
        "llama-modelopt-nvfp4",
        "place model @config.json --memory 24GiB --context 4k",
        0,
        &["8.03 B parameters", "weights 5.61 GiB", "fits 1 GPU", "vllm serve"],
    ),
    ("models", "place model @dots1 --memory 24GiB", 1, &["142.77 B parameters", "does not fit"]),
    (
        "models",
        "place model @ernie4_5_moe-21b-a3b --memory 24GiB",
        1,
        &["21.83 B parameters", "weights 40.65 GiB", "does not fit"],
    ),
    (
        "models",
        "place model @glm-4-9b-0414 --memory 24GiB --context 4k",
        0,
        &["9.40 B parameters", "17.51 GiB", "fits 1 GPU"],
    ),
    (
        "models",
        "place model @hunyuan-a13b --memory 24GiB",
        1,
        &["80.39 B parameters", "weights 149.74 GiB", "does not fit"],
    ),
    (
        "models",
        "place model @kimi_k25 --memory 24GiB",
        1,
        &["weights 554.28 GiB", "image and audio parts are included", "does not fit"],
    ),
    (
        "models",
        "place model @mistral3-24b --memory 24GiB --context 4k",
        1,
        &["24.01 B parameters", "does not fit", "--weights Q6_K"],
    ),
    ("models", "place model @olmo2-7b --memory 24GiB --context 4k", 0, &["7.30 B", "fits 1 GPU"]),
    ("models", "place model @olmoe-1b-7b --memory 24GiB --context 4k", 0, &["6.92 B", "fits 1"]),
    ("models", "place model @phi3-mini --memory 24GiB --context 4k", 0, &["3.82 B", "fits 1"]),
    ("models", "place model @phi3.5-moe --memory 24GiB --context 4k", 1, &["41.87 B", "77.99 GiB"]),
    ("models", "place model @qwen2-7b --memory 24GiB --context 4k", 0, &["7.62 B", "fits 1 GPU"]),
    ("models", "place model @smollm3-3b --memory 24GiB --context 4k", 0, &["3.08 B", "fits 1"]),
    (
        "safetensors-f4",
        "place model @f4 --memory 24GiB",
        0,
        &["weights 580.5 KiB", "fits 1 GPU", "!not understood"],
    ),
    (
        "safetensors-f4",
        "place model @f6 --memory 24GiB",
        0,
        &["256.07 KiB", "fits 1 GPU", "!not understood"],
    ),
    (
        "snapshot-new",
        "mem replay @new.pickle",
        0,
        &["3 of 3 addresses, 1 of 1 segments", "peak reserved 20 MiB, allocated 13 MiB"],
    ),
    ("snapshot-new", "mem replay @new5.pickle", 0, &["3 of 3 addresses, 1 of 1 segments"]),
    ("snapshot-new", "mem replay @userdef.pickle", 0, &["3 of 3 addresses, 1 of 1 segments"]),
    (
        "snapshot-new",
        "mem replay @notraces.pickle",
        2,
        &["no allocation history", "_record_memory_history()"],
    ),
    (
        "snapshot-new",
        "mem replay @unknown-action.pickle",
        2,
        &["the action 'segment_rejected' is unknown"],
    ),
    (
        "tf-scalarsummary-gpu",
        "place graph @in.pbtxt --hard --devices /cpu:0,/gpu:0",
        1,
        &["Cannot assign a device for operation Accuracy/__raw_", "omit --hard"],
    ),
    (
        "tf-scalarsummary-gpu",
        "place graph @in.pbtxt --explain --devices /cpu:0,/gpu:0",
        0,
        &["Accuracy/__raw_ (ScalarSummary) CPU:0 no device /device:GPU:0 supports it"],
    ),
    (
        "onnx-opset21",
        "place graph @in.onnx --explain --devices /cpu:0,/gpu:0",
        0,
        &["first device; its kernels are unknown", "!with a kernel"],
    ),
    (
        "zombie-dstate-fuse",
        "--sim @ reap --yes",
        1,
        &["survived SIGKILL", "wchan", "/sys/fs/fuse/connections", "sudo reboot"],
    ),
    (
        "hetero-order",
        "CUDA_VISIBLE_DEVICES=0 --sim @machine.toml claim -n 1",
        2,
        &["the GPUs differ", "CUDA_DEVICE_ORDER=PCI_BUS_ID", "!would claim"],
    ),
    (
        "hetero-order",
        "CUDA_VISIBLE_DEVICES=0 CUDA_DEVICE_ORDER=PCI_BUS_ID --sim @machine.toml claim -n 1",
        0,
        &["would claim GPU 0 GeForce GTX 1650", "GPU 1: excluded by CUDA_VISIBLE_DEVICES"],
    ),
    (
        "minor-mismatch",
        "--sim @machine.toml status",
        0,
        &["2 GPUs, 1 free", "11 MiB/ 80.0 GiB free 1 A100", "alice 4711 python train.py 19.5 GiB"],
    ),
];

#[test]
fn bug_reports_of_other_commands_have_their_answer() {
    let Some(directory) = cases() else { return };
    let mut wrong = Vec::new();
    for (name, line, code, parts) in COMMANDS {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gpuws"));
        for variable in ["CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"] {
            command.env_remove(variable);
        }
        for word in line.split(' ') {
            match (word.strip_prefix('@'), word.split_once('=')) {
                (Some(file), _) => command.arg(directory(name).join(file)),
                (None, Some((variable, value))) => command.env(variable, value),
                (None, None) => command.arg(word),
            };
        }
        let ended = ended(command.stdin(Stdio::null()).output().expect("gpuws runs"));
        if let Some(message) = differs(&ended, *code, parts) {
            wrong.push(format!("{name}: {line}: {message}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}
