//! `gpuws mem env`, with golden files (`SNAPSHOTS=overwrite` updates them), and the environment
//! variables of `run` and `claim` with `--mem`.

use crate::live::{GPUWS, out, reported, script};
use serde_json::Value;
use snapbox::Data;
use std::path::Path;
use std::process::{Command, Output};

/// The variables that affect a limit.
const NAMES: [&str; 10] = [
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "XLA_CLIENT_MEM_FRACTION",
    "XLA_PYTHON_CLIENT_MEM_FRACTION",
    "XLA_PYTHON_CLIENT_ALLOCATOR",
    "XLA_PYTHON_CLIENT_PREALLOCATE",
    "TF_FORCE_GPU_ALLOW_GROWTH",
    "TF_GPU_ALLOCATOR",
    "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
    "CUDA_MPS_PIPE_DIRECTORY",
];

/// Runs gpuws with only these relevant variables.
fn gpuws(words: &[&str], set: &[(&str, &str)]) -> Output {
    let mut command = Command::new(GPUWS);
    for name in NAMES.iter().chain(&["VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "NO_COLOR"]) {
        command.env_remove(name);
    }
    command.env_remove("CUDA_VISIBLE_DEVICES").env("PATH", "/nowhere");
    command.envs(set.iter().copied()).args(words).output().expect("gpuws runs")
}

fn transcript(words: &[&str], set: &[(&str, &str)]) -> String {
    let output = gpuws(words, set);
    let (stdout, stderr) = (out(&output), reported(&output));
    let code = output.status.code().expect("gpuws ends by itself");
    format!("$ gpuws {}\n{stdout}{stderr}=> {code}\n", words.join(" "))
}

fn hold(name: &str, transcript: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/env").join(name);
    snapbox::assert_data_eq!(transcript, Data::read_from(&path, None).raw());
}

/// Creates a virtual environment with these packages, whose Python is a shell.
fn environment(dir: &Path, packages: &[&str]) {
    for package in packages {
        let package = format!("lib/python3.11/site-packages/{package}.dist-info");
        std::fs::create_dir_all(dir.join(package)).unwrap();
    }
    std::fs::create_dir_all(dir.join("bin")).unwrap();
    std::os::unix::fs::symlink("/bin/sh", dir.join("bin/python")).unwrap();
    std::fs::write(dir.join("pyvenv.cfg"), "home = /usr/bin\nversion = 3.11.4\n").unwrap();
}

#[test]
fn printed_environment_matches_golden_file() {
    let all = ["--framework", "torch,tensorflow,jax", "--torch-version", "2.10"];
    let on = |machine: &'static str, limit: &'static str, more: &[&'static str]| {
        transcript(&[&["--sim", machine, "mem", "env", "--limit", limit], more].concat(), &[])
    };
    let printed = [
        on("labbox", "6GiB", &all),
        on("display-and-daemons", "2GiB", &["--framework", "jax"]),
        on("labbox", "6GiB", &[]),
        on("labbox", "80GiB", &all),
        on("labbox", "500MiB", &all),
        on("labbox", "6GiB", &[&all[..], &["--gpu", "7"]].concat()),
        on("labbox", "6GiB", &[&all[..], &["--json"]].concat()),
    ];
    hold("simulated.txt", &printed.join("\n"));

    let reported =
        ["mem", "env", "--limit", "6GiB", "--device-memory", "24GiB", "--framework", "torch"];
    let printed = [
        transcript(&reported, &[]),
        transcript(
            &[&reported[..], &["--torch-version", "2.11", "--context", "1GiB"]].concat(),
            &[("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")],
        ),
        transcript(&[&reported[..], &["--torch-version", "2.9", "--quiet"]].concat(), &[]),
    ];
    hold("message.txt", &printed.join("\n"));
}

#[test]
fn installed_frameworks_are_detected_without_running_python() {
    let dir = tempfile::tempdir().unwrap();
    environment(dir.path(), &["torch-2.10.0+cu128", "jax-0.7.1", "jaxlib-0.7.1", "numpy-2.0"]);
    let active = [("VIRTUAL_ENV", dir.path().to_str().unwrap())];
    let words = ["--sim", "labbox", "--json", "mem", "env", "--limit", "6GiB"];
    let object: Value = serde_json::from_slice(&gpuws(&words, &active).stdout).expect("valid JSON");
    let frameworks: Vec<_> = object["frameworks"].as_array().expect("a list").iter().collect();
    let text = |at: usize, key: &str| frameworks[at][key].as_str().map(str::to_owned);
    assert_eq!(
        (text(0, "framework"), text(1, "framework")),
        (Some("torch".into()), Some("jax".into()))
    );
    assert_eq!(
        (text(0, "version"), text(0, "installed")),
        (Some("2.10".into()), Some("2.10.0+cu128".into()))
    );
    let names: Vec<_> =
        object["variables"].as_array().expect("a list").iter().map(|v| &v["name"]).collect();
    assert_eq!(names, ["PYTORCH_ALLOC_CONF", "XLA_PYTHON_CLIENT_MEM_FRACTION"]);
    assert_eq!(object["schema"], 1);
    // The installed version has its interpreter; another one comes from the command line.
    let text = |words: &[&str]| out(&gpuws(words, &active));
    let shown = text(&[&words[..2], &words[3..]].concat());
    let python = dir.path().join("bin/python");
    let line = format!("\n# PyTorch 2.10.0+cu128 of {}\n", python.display());
    assert!(shown.replace("\n#  ", "").contains(&line), "{shown}");
    let message = text(&[&words[..2], &words[3..], &["--torch-version", "2.11"]].concat());
    assert!(message.contains("\n# PyTorch 2.11\n"), "{message}");
    // A named framework has the version that is installed.
    let named = [&words[..], &["--framework", "jax"]].concat();
    let named: Value = serde_json::from_slice(&gpuws(&named, &active).stdout).expect("valid JSON");
    assert_eq!(named["frameworks"], serde_json::json!([frameworks[1]]));
    let nobody: Value = serde_json::from_slice(&gpuws(&words, &[]).stdout).expect("valid JSON");
    assert_eq!(
        (&nobody["python"], nobody["variables"].as_array().map(Vec::len)),
        (&Value::Null, Some(0))
    );
}

/// The shell must not evaluate any name or value in the environment.
#[test]
fn hostile_text_is_shell_quoted() {
    let dir = tempfile::tempdir().unwrap();
    let name = "a'$(touch made)`touch made`\n touch made\n#;\u{1b}[2J";
    let place = dir.path().join(name);
    std::fs::create_dir(&place).unwrap();
    environment(&place, &["torch-2.10.0';touch made;'", "torch-2.10.1$(touch made)"]);
    let settings = "max_split_size_mb:64,x:'; touch made; echo ',\n touch made\n$(touch made)`touch made`\u{1b}[2J";
    let words = ["--sim", "labbox", "mem", "env", "--limit", "6GiB", "--framework", "auto,torch"];
    let words = [&words[..], &["--torch-version", "2.10"]].concat();
    let set = [
        ("VIRTUAL_ENV", place.to_str().unwrap()),
        ("PYTORCH_ALLOC_CONF", settings),
        ("XLA_CLIENT_MEM_FRACTION", "'; touch made"),
        ("CUDA_MPS_PIPE_DIRECTORY", "/tmp/$(touch made)"),
        ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=1G'; touch made"),
        ("TF_FORCE_GPU_ALLOW_GROWTH", "\n touch made"),
    ];
    let all = [&words[..], &["--framework", "tensorflow,jax"]].concat();
    let printed = gpuws(&all, &set);
    assert!(printed.status.success(), "{printed:?}");
    for line in out(&printed).lines() {
        assert!(line.starts_with("# ") || line.starts_with("export "), "{line}");
    }
    assert!(!printed.stdout.contains(&0x1b), "the terminal is not reached");
    for shell in ["sh", "bash"] {
        let output = Command::new(shell)
            .args(["-c", "eval \"$1\"; printf %s \"$PYTORCH_ALLOC_CONF\"", shell, &out(&printed)])
            .current_dir(dir.path())
            .output()
            .expect("sh runs");
        let value = out(&output);
        assert!(value.starts_with("max_split_size_mb:64,x:'; touch made; echo ',"), "{value}");
        assert!(value.ends_with("per_process_memory_fraction:0.0671"), "{value}");
        assert!(output.stderr.is_empty() && !dir.path().join("made").exists(), "{output:?}");
    }
}

/// A comment of 80 columns is not wrapped, a longer one is, between two words.
#[test]
fn comments_are_wrapped_at_80_columns() {
    for (length, wraps) in [(60, false), (61, true), (62, true)] {
        let dir = tempfile::tempdir().unwrap();
        let name = "m".repeat(length);
        let machine = dir.path().join(&name);
        std::fs::create_dir(&machine).unwrap();
        let text = "description = 'made: one device'\nclock = 2025-03-03T10:00:00Z\n\
                    [[gpu]]\nindex = 0\nmemory_total_mib = 24576\n";
        std::fs::write(machine.join("machine.toml"), text).unwrap();
        let words = ["--sim", machine.to_str().unwrap(), "mem", "env", "--limit", "6GiB"];
        let printed = out(&gpuws(&words, &[]));
        let between = if wraps { "\n#   " } else { " " };
        let expected = format!("# simulated machine{between}{name}\n# limit 6 GiB per GPU");
        assert!(printed.starts_with(&expected), "{length}: {printed}");
    }
}

#[test]
fn limit_applies_to_the_named_devices() {
    let memory = |more: &[&str]| {
        let words = ["--json", "--sim", "mig-a100", "mem", "env", "--limit", "2GiB"];
        let output = gpuws(&[&words[..], more].concat(), &[]);
        let object: Value = serde_json::from_slice(&output.stdout).expect("valid JSON");
        let sizes = object["device_memory_bytes"].as_array().expect("a list").clone();
        sizes.iter().map(|size| size.as_u64().expect("bytes") >> 20).collect::<Vec<_>>()
    };
    let part = "MIG-12c54c5e-ecac-9193-bb3a-2ba04a79b9ed";
    assert_eq!(memory(&["--gpu", "0"]), [40960]);
    assert_eq!(memory(&["--gpu", part]), [19968]);
    assert_eq!(memory(&["--gpu", &format!("0,{part}")]), [19968, 40960]);
    let unknown =
        gpuws(&["--sim", "no-driver", "mem", "env", "--limit", "2GiB", "--gpu", "0"], &[]);
    assert_eq!((out(&unknown).as_str(), unknown.status.code()), ("(exit 3)\n", Some(3)));
    assert!(reported(&unknown).contains("find the devices that --gpu names"), "{unknown:?}");
    // Without names, a limit does not need their size.
    let any = ["--sim", "no-driver", "mem", "env", "--limit", "2GiB", "--framework", "jax"];
    assert!(gpuws(&any, &[]).status.success());
}

#[test]
fn missing_python_is_reported() {
    let words = ["--sim", "labbox", "mem", "env", "--limit", "6GiB", "--python"];
    for (python, code) in [("/nope", 3), ("python3", 3), ("", 3), ("/", 4)] {
        let output = gpuws(&[&words[..], &[python]].concat(), &[]);
        assert_eq!(output.status.code(), Some(code), "{python}: {output:?}");
        let message = reported(&output);
        let what = format!("gpuws: failed to find program '{python}'");
        assert!(
            message.contains(&what) && message.contains("hint: --python takes a path"),
            "{message}"
        );
        assert_eq!(out(&output), format!("(exit {code})\n"), "eval fails, too");
    }
}

#[test]
fn eval_fails_if_no_limit_can_be_set() {
    let printed = gpuws(&["mem", "env", "--limit", "100MiB", "--device-memory", "8GiB"], &[]);
    assert_eq!((out(&printed).as_str(), printed.status.code()), ("(exit 2)\n", Some(2)));
}

/// Runs a script in a session with twelve devices of 24 GiB; `v/bin/python` is a shell.
fn with_python(packages: &str, words: &str) -> Output {
    let begin = format!(
        "unset VIRTUAL_ENV CONDA_PREFIX PYTHONPATH {}\n\
         for package in {packages}; do \
         mkdir -p v/bin \"v/lib/python3.11/site-packages/$package.dist-info\"; done\n\
         ln -s /bin/sh v/bin/python; echo 'version = 3.11.4' > v/pyvenv.cfg\n",
        NAMES.join(" ")
    );
    script("twelve-gpus", &format!("{begin}{words}"))
}

const SHOW: &str = "echo \"$PYTORCH_ALLOC_CONF|$XLA_PYTHON_CLIENT_MEM_FRACTION|\
                    $TF_FORCE_GPU_ALLOW_GROWTH\"";

#[test]
fn run_with_memory_share_sets_environment() {
    let output = with_python(
        "torch-2.10.0 jax-0.7.1",
        &format!(
            "\"$0\" run --gpu 0 --mem 6GiB -- v/bin/python -c '{SHOW}'\n\
             \"$0\" run --gpu 0 --mem 6GiB --context 2GiB --framework jax -- sh -c '{SHOW}'\n\
             PYTORCH_ALLOC_CONF=per_process_memory_fraction:0.01,a:1 \
             \"$0\" run --gpu 0 --mem 6GiB -- v/bin/python -c '{SHOW}'\n\
             \"$0\" run --gpu 0 --mem 6GiB --keep-env -- v/bin/python -c '{SHOW}'\n\
             \"$0\" run --gpu 0 -- v/bin/python -c '{SHOW}'\n"
        ),
    );
    let output_text = out(&output);
    let lines: Vec<&str> = output_text.lines().collect();
    let [both, named, smaller, kept, whole] = lines[..] else { panic!("{output:?}") };
    let share = |text: &str| text.rsplit_once(':').and_then(|(_, share)| share.parse().ok());
    let (torch, jax) = both.split_once('|').expect("two variables");
    let torch: f64 = share(torch).expect("a share of the device");
    assert!(torch > 0.05 && jax.starts_with(&format!("{torch}|")), "{both}");
    let named: f64 = named.trim_matches('|').parse().expect("the share of JAX alone");
    assert!(named < torch, "JAX alone must get less");
    assert!(smaller.starts_with("a:1,per_process_memory_fraction:0.01|"), "{smaller}");
    assert_eq!((kept, whole), ("||", "||"));
    let reported = reported(&output);
    let line = "limited to 6 GiB by PYTORCH_ALLOC_CONF and XLA_PYTHON_CLIENT_MEM_FRACTION \
                (cooperative)";
    assert_eq!(reported.matches(line).count(), 2, "{reported}");
}

/// A shell may start any Python, and an older PyTorch fails on an unknown key.
#[test]
fn non_python_command_has_unknown_framework_version() {
    let output = with_python(
        "torch-2.10.0 tensorflow-2.17.0",
        &format!(
            "export VIRTUAL_ENV=$PWD/v\n\
             \"$0\" run --gpu 0 --mem 6GiB -- sh -c '{SHOW}'\n\
             \"$0\" run --gpu 0 --mem 6GiB --torch-version 2.10 -- sh -c 'echo $PYTORCH_ALLOC_CONF'\n\
             \"$0\" --quiet run --gpu 0 --mem 6GiB -- true\n"
        ),
    );
    let output_text = out(&output);
    let (first, second) = output_text.trim_end().split_once('\n').expect("two lines");
    assert_eq!(first, "||true", "{output:?}");
    assert!(second.starts_with("per_process_memory_fraction:0."), "{output:?}");
    let reported = reported(&output);
    assert!(
        reported
            .contains("set the limit of 6 GiB for PyTorch and TensorFlow in the program itself"),
        "{reported}"
    );
}

#[test]
fn claim_of_memory_share_prints_variables() {
    let output = with_python(
        "jax-0.7.1",
        "export VIRTUAL_ENV=$PWD/v\n\
         echo | \"$0\" claim --gpu 1 --mem 6GiB --hold | grep -c ^XLA_PYTHON_CLIENT_MEM_FRACTION=0.\n\
         echo | \"$0\" claim --gpu 1 --mem 6GiB --hold --keep-env | grep -c XLA\n\
         echo | \"$0\" claim --gpu 1 --hold | grep -c XLA\n\
         eval \"$(\"$0\" claim --gpu 0 --mem 6GiB --export)\"; \
         echo \"$XLA_PYTHON_CLIENT_MEM_FRACTION\" $CUDA_DEVICE_ORDER",
    );
    let output_text = out(&output);
    let lines: Vec<&str> = output_text.lines().collect();
    assert_eq!(lines[..3], ["1", "0", "0"], "{output:?}");
    assert!(lines[3].starts_with("0.") && lines[3].ends_with(" PCI_BUS_ID"), "{output:?}");
}

#[test]
fn unenforced_limit_is_a_warning() {
    let words = ["mem", "env", "--limit", "6GiB", "--device-memory", "24GiB"];
    let unnamed = gpuws(&words, &[]);
    assert!(
        reported(&unnamed).starts_with("gpuws: warning: the 6 GiB limit is not enforced: no "),
        "{}",
        reported(&unnamed)
    );
    assert!(reported(&unnamed).contains("--framework torch"));
    let named = gpuws(&[&words[..], &["--framework", "jax"]].concat(), &[]);
    assert_eq!(reported(&named), "");
}
