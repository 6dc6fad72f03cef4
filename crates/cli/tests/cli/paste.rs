//! `gpuws parse` and `doctor --paste`: output of other tools from a pipe or a file.

use crate::program::{ended, files, gpuws, is_deep, with_input};
use std::fs;
use std::path::Path;
use std::process::Command;

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
fn pasted_log_of_placements_is_counted() {
    let log = "2026-01-02 03:04:05.6: I some/placer.cc:9] m: (MatMul): \
               /job:localhost/replica:0/task:0/device:GPU:0\n\
               v: (Const): /job:localhost/replica:0/task:0/device:CPU:0\n\
               n: (MatMul): /job:localhost/replica:0/task:0/device:GPU:0\n";
    let shown = with_input(&["doctor", "--paste"], log.as_bytes());
    assert_eq!(
        (shown.code, &*shown.stdout),
        (0, "placed: 3 operations: 1 on CPU:0, 2 on GPU:0\n"),
        "{}",
        shown.stderr
    );
    let parsed = with_input(&["parse", "--json", "-"], log.as_bytes());
    let parsed: serde_json::Value = serde_json::from_str(&parsed.stdout).expect("JSON");
    assert_eq!(parsed["kind"], "placement");
    assert_eq!(parsed["placements"][2]["name"], "n");
    let refused = with_input(&["doctor", "--paste", "--json"], log.as_bytes());
    assert_eq!((refused.code, &*refused.stdout), (2, ""));
    assert!(refused.stderr.contains("gpuws parse --json"), "{}", refused.stderr);
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
fn input_at_the_size_limit_is_read_and_one_byte_more_is_not() {
    let dir = tempfile::tempdir().expect("temporary directory");
    for (name, length) in [("limit", 64 << 20), ("more", (64 << 20) + 1)] {
        let file = fs::File::create(dir.path().join(name)).expect("a file");
        file.set_len(length).expect("a sparse file");
        let refused = gpuws(dir.path(), &["parse", name]);
        assert_eq!(refused.code, 2, "{}", refused.stderr);
        let too_long = refused.stderr.contains("it is larger than 64 MiB");
        assert_eq!(too_long, name == "more", "{name}: {}", refused.stderr);
        if !too_long && !is_deep() {
            continue;
        }
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
    for (text, is_refused) in [(oom, true), (&format!("{failed}{oom}"), false)] {
        let pasted = with_input(&["doctor", "--paste"], text.as_bytes());
        assert_eq!(pasted.code, if is_refused { 2 } else { 1 }, "{}", pasted.stderr);
        assert_eq!(pasted.stderr.contains("use gpuws mem explain"), is_refused, "{text}");
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
    // A failure next to figures does not hide them, nor vice versa.
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

/// The rows of a table, starting at the device.
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
