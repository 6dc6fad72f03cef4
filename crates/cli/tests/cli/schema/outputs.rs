//! Every output of `--json` matches its schema, for every command and every shipped machine.

use super::commands::{run, with_json};
use super::documents::dir;
use super::validator::validate;
use crate::live::{GPUWS, each_at_once, out, script};
use crate::place::{FIRST, LLAMA};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden");
const MACHINES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../sim-fixtures/machines");

/// The commands run on each machine.
const LOOKS: [&[&str]; 20] = [
    &["status"],
    &["status", "-q"],
    &["status", "-i", "0"],
    &["doctor"],
    &["doctor", "--gpu", "0"],
    &["doctor", "--looks", "3"],
    &["reap"],
    &["reap", "--yes"],
    &["reap", "--pid", "1"],
    &["reap", "--user", "1"],
    &["reap", "--scope", "group"],
    &["reap", "--scope", "container"],
    &["reset", "0"],
    &["reset", "0", "--yes"],
    &["holders"],
    &["holders", "/dev/nvidia0", "/dev/null"],
    &["topo"],
    &["claim"],
    &["claim", "-n", "100"],
    &["leases"],
];

/// Text of other tools, in addition to the recordings of the machines.
const PASTED: [&str; 10] = [
    "GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-1)\n  MIG 3g.20gb Device 0: (UUID: MIG-1)\n",
    "index, name, memory.used [MiB], power.draw [W]\n0, Tesla P100, 12 MiB, [N/A]\n",
    "pid, process_name, used_gpu_memory [MiB]\n12, python, 100 MiB\n",
    "# gpu        pid  type    sm   mem   enc   dec   command\n# Idx          #   C/G     %     %     %     %   name\n    0       1234     C    12     3     -     -   python\n",
    "# gpu   pwr gtemp mtemp    sm   mem\n# Idx     W     C     C     %     %\n    0    62    40     -     0     0\n",
    "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV2\t0-7\nGPU1\tNV2\t X \t0-7\n",
    "COMMAND  PID USER   FD   TYPE DEVICE SIZE/OFF NODE NAME\npython  1234 root  mem    CHR  195,0          500 /dev/nvidia0\n",
    "                     USER        PID ACCESS COMMAND\n/dev/nvidia0:        root      1234 F...m python\nnoise\n",
    "Failed to initialize NVML: Driver/library version mismatch\n",
    "2025-03-03T10:00:00Z n kernel: NVRM: Xid (PCI:0000:04:00 GPU-I:01): 43, pid=7, name=a, Ch 1\n[1.5] NVRM: GPU 0000:04:00.0: GPU has fallen off the bus.\n",
];

/// Prints the name of a schema and an output in one line, on real processes.
const SHOW: &str = r#"
show() { name=$1; shift; "$0" --json "$@" > shown 2> message; emit "$name" shown; }
emit() { printf '%s ' "$1"; tr -d '\n' < "$2"; echo; }
lease() { leases | grep -o '"id":"[^"]*' | cut -d'"' -f4; }
"#;

/// Counts the outputs that matched, by schema.
struct Checked(BTreeMap<String, (Value, usize)>);

impl Checked {
    fn new() -> Self {
        let schema = |entry: std::io::Result<fs::DirEntry>| {
            let path = entry.expect("it can be read").path();
            let text = fs::read_to_string(&path).expect("it can be read");
            let schema = serde_json::from_str(&text).expect("it is JSON");
            (path.file_stem().expect("a name").to_string_lossy().into_owned(), (schema, 0))
        };
        Checked(fs::read_dir(dir()).expect("it can be listed").map(schema).collect())
    }

    /// Checks a text that is one object.
    fn check(&mut self, name: &str, text: &str, what: &str) {
        let object: Value = serde_json::from_str(text)
            .unwrap_or_else(|error| panic!("{what}: not one object: {error}: {text}"));
        let (schema, count) =
            self.0.get_mut(name).unwrap_or_else(|| panic!("{what}: there is no schema '{name}'"));
        validate(schema, &object).unwrap_or_else(|why| panic!("{what}: {why}"));
        *count += 1;
    }

    /// Checks an output that is one object, or empty with an error.
    fn object_or_error(&mut self, name: &str, output: &Output, what: &str) {
        if output.stdout.is_empty() && output.status.code() != Some(0) {
            return assert!(!output.stderr.is_empty(), "{what}: neither an object nor an error");
        }
        self.check(name, &out(output), what);
    }

    /// Checks the output of a command, which must be an object.
    fn words(&mut self, name: &str, words: &[&str]) {
        let output = run(&[&["--json"], words].concat());
        self.check(name, &out(&output), &format!("{words:?}: {output:?}"));
    }

    /// Runs a script that prints lines by `show` and `emit`.
    fn script(&mut self, machine: &str, text: &str) {
        let output = script(machine, &format!("{SHOW}{text}"));
        let expected =
            text.lines().filter(|line| line.starts_with("show ") || line.starts_with("emit "));
        let said = out(&output);
        assert_eq!(said.lines().count(), expected.count(), "{output:?}");
        for line in said.lines() {
            let (name, object) = line.split_once(' ').expect("a name and an object");
            self.check(name, object, &format!("{line}\n{output:?}"));
        }
    }
}

#[test]
fn every_json_output_matches_its_schema() {
    let parts: [fn(&mut Checked); 6] = [
        on_every_machine,
        of_pasted_text,
        about_memory,
        about_places,
        of_watchers,
        on_real_processes,
    ];
    let counts = Mutex::new(BTreeMap::<String, usize>::new());
    each_at_once(parts, |part| {
        let mut checked = Checked::new();
        part(&mut checked);
        let mut counts = counts.lock().expect("no part panics with it");
        for (name, (_, count)) in checked.0 {
            *counts.entry(name).or_default() += count;
        }
    });
    let counts = counts.into_inner().expect("no part panics with it");
    for command in with_json() {
        let name = command.replace(' ', "-");
        assert!(counts.contains_key(&name), "there is no schema for gpuws {command} --json");
    }
    for (name, count) in &counts {
        assert!(*count > 0, "no output was checked against docs/schema/{name}.json");
    }
}

fn on_every_machine(checked: &mut Checked) {
    // No host has this name (RFC 6761).
    checked.words("hosts", &["status", "--host", "gpu.invalid", "--deadline", "5s"]);
    checked.words("hosts", &["leases", "--host", "gpu.invalid", "--deadline", "5s"]);
    for machine in gpu_sim::machines() {
        for words in LOOKS {
            let words = [&["--json", "--sim", machine.name], words].concat();
            checked.object_or_error(words[3], &run(&words), &words.join(" "));
        }
    }
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("labbox.gpuws");
    let file = file.to_str().expect("UTF-8");
    checked.words("record", &["--sim", "labbox", "record", file]);
    checked.words("report", &["report", file]);
    checked.words("status", &["--sim", file]);
}

fn of_pasted_text(checked: &mut Checked) {
    let recordings = gpu_sim::machines().into_iter().flat_map(|machine| {
        fs::read_dir(Path::new(MACHINES).join(machine.name)).expect("it can be listed")
    });
    let recordings = recordings.map(|entry| entry.expect("it can be read").path());
    let recordings: Vec<String> = recordings
        .filter(|path| !path.ends_with("machine.toml"))
        .map(|path| fs::read_to_string(path).expect("it is text"))
        .collect();
    for text in recordings.iter().map(String::as_str).chain(PASTED) {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("pasted");
        fs::write(&file, text).expect("it takes a file");
        let parsed = run(&["--json", "parse", file.to_str().expect("UTF-8")]);
        checked.object_or_error("parse", &parsed, text);
        let pasted = Command::new(GPUWS)
            .args(["doctor", "--paste", "--json"])
            .stdin(Stdio::from(fs::File::open(&file).expect("it was written")))
            .output()
            .expect("gpuws runs");
        checked.object_or_error("doctor", &pasted, text);
    }
}

fn about_memory(checked: &mut Checked) {
    for entry in fs::read_dir(Path::new(GOLDEN).join("oom")).expect("it can be listed") {
        let path = entry.expect("it can be read").path();
        if path.extension().is_some_and(|extension| extension == "log") {
            let log = path.to_str().expect("UTF-8");
            checked.words("mem-explain", &["mem", "explain", "--no-live", log]);
            checked.words("mem-explain", &["--sim", "labbox", "mem", "explain", log]);
        }
    }
    let step = format!("{GOLDEN}/memory/step.jsonl");
    let step = step.as_str();
    let dir = tempfile::tempdir().expect("a directory");
    let other = dir.path().join("moved.jsonl");
    fs::write(&other, crate::replay::moved()).expect("it takes a file");
    let other = other.to_str().expect("UTF-8");
    for words in [
        &[step][..],
        &[step, "--limit", "150MiB", "--policy", "bfc"],
        &[step, "--limit", "1GiB", "--device-memory", "80MiB"],
        &[other, "--policy", "caching"],
    ] {
        checked.words("mem-replay", &[&["mem", "replay"], words].concat());
    }
    for words in [&[step][..], &[step, step, "--device-memory", "2GiB"]] {
        checked.words("mem-fit", &[&["mem", "fit"], words].concat());
    }
    let env = ["mem", "env", "--limit", "6GiB"];
    let all = ["--framework", "torch", "--framework", "jax", "--framework", "tensorflow"];
    checked.words("mem-env", &[&env[..], &["--device-memory", "80GiB"]].concat());
    checked.words("mem-env", &[&["--sim", "labbox"], &env[..], &all].concat());
    let file = dir.path().join("job.jsonl");
    checked.words("mem-convert", &["mem", "convert", step, "-o", file.to_str().expect("UTF-8")]);
}

/// Events, one on each line.
fn of_watchers(checked: &mut Checked) {
    let dir = tempfile::tempdir().expect("a directory");
    let policy = dir.path().join("policy.toml");
    let text = "[reap]\ndry_run = false\nmost_per_hour = 9\n[[reap.rule]]\nkinds = [\"ghost\"]\n\
        all_users = true\nmin_confidence = \"high\"\nafter = \"10m\"\nwarn = \"2m\"\n";
    fs::write(&policy, text).expect("it takes a file");
    let policy = policy.to_str().expect("UTF-8");
    let words = ["watch", "--for", "20m", "--every", "30s", "--policy", policy];
    for machine in gpu_sim::machines() {
        for more in [&[][..], &["--reap"]] {
            let output = run(&[&["--json", "--sim", machine.name], &words[..], more].concat());
            assert_eq!(output.status.code(), Some(0), "{}: {output:?}", machine.name);
            for line in out(&output).lines() {
                checked.check("watch", line, machine.name);
            }
        }
    }
}

/// Graphs and models.
fn about_places(checked: &mut Checked) {
    for more in [&[][..], &["--devices", "/cpu:0,/gpu:0"]] {
        let graph = [&["--sim", "labbox", "place", "graph", FIRST], more].concat();
        checked.words("place-graph", &graph);
        checked.words("place-graph-schedule", &[&graph[..], &["--schedule"]].concat());
        checked.words("place-graph-run", &[&graph[..], &["--run"]].concat());
    }
    let model = ["place", "model", LLAMA, "--context", "8k"];
    checked.words("place-model", &[&["--sim", "labbox"], &model[..]].concat());
    for memory in ["8GiB,8GiB", "80GiB"] {
        checked.words("place-model", &[&model[..], &["--memory", memory]].concat());
    }
}

/// Leases, waiting claims, runs and what they leave behind, and a process that is ended.
fn on_real_processes(checked: &mut Checked) {
    checked.script(
        "twelve-gpus",
        r#"
show claim claim --gpu 7 --mem 1GiB
sleep 300 & owner=$!
show claim-hold claim --gpu 6 --export --for $owner
held=$(lease)
"$0" run --gpu 7 --mem 2GiB --report job -- "$GPUWS_SIM_SESSION/nvml-sim-process" \
  --use visible:1000 2> message & front=$!
uses() { leases | grep -q '"users":\[{'; }
until_so uses
"$0" run -n 12 -- true 2> message & waits=$!
waiting() { leases | grep -q ahead_count; }
until_so waiting
show leases leases
show status status
show status status -q -i 6,7
show claim claim --gpu 7
show claim-release claim --release $held
kill $waits $front $owner; wait $waits $front $owner
emit run job
use_gpu 3000 & job=$!
shows() { "$0" status --json | grep -q "\"pid\": $job,"; }
until_so shows
show holders holders
show reap reap --pid $job
show reap reap --pid $job --yes
"$0" run --gpu 2 --report report -- sh -c "setsid \"$GPUWS_SIM_SESSION/nvml-sim-process\" --use visible:3000 &
until python3 let-go.py 2> /dev/null; do sleep 0.05; done; exit 7" 2> message
emit run report
"$0" --json run --time-limit 1s -- sleep 300 2> message; tail -n 1 message > last
emit run last
"#,
    );
    checked.script(
        "mig-a100",
        r#"
"$0" claim --mig --export > message 2>&1
show status status -q
show leases leases
show claim claim
"#,
    );
}
