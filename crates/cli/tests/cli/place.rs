//! `gpuws place`: graphs and models on simulated machines and on named devices.
//! `SNAPSHOTS=overwrite cargo test -p gpuws place::` updates the golden files.

use crate::live::{out, text};
use crate::schema::commands::run;
use serde_json::{Value, json};
use snapbox::Data;
use std::path::Path;
use std::process::{Command, Output};

/// The common first example: `a` and `b` on the CPU, `c` free.
pub(crate) const FIRST: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/place/first.pbtxt");
/// A variable, an operation that changes it, and one that reads it after a control edge.
const CONTROL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/place/control.pbtxt");
/// The directory of a model of 8 billion parameters, of which only the configuration is there.
pub(crate) const LLAMA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/place/llama");
/// A model with seven attention heads.
const ODD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/place/odd");

fn object(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// Compares the output of a command with a golden file. The command runs next to its inputs and
/// gets their names, not their paths: lines are wrapped, and the path of a checkout varies.
fn hold(golden: &str, words: &[&str]) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/place");
    let name = |word: &str| match word {
        FIRST => "first.pbtxt".to_owned(),
        CONTROL => "control.pbtxt".to_owned(),
        LLAMA => "llama".to_owned(),
        other => other.to_owned(),
    };
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpuws"));
    let output = command.args(words.iter().map(|word| name(word))).current_dir(&dir).output();
    let shown = out(&output.expect("gpuws runs"));
    snapbox::assert_data_eq!(shown, Data::read_from(&dir.join(golden), None).raw());
}

/// Returns the exit code and the text of standard error.
fn refusal(words: &[&str]) -> (Option<i32>, String) {
    let output = run(words);
    assert!(output.stdout.is_empty(), "{words:?}: {output:?}");
    (output.status.code(), text(&output.stderr))
}

fn graph_file(dir: &Path, name: &str, content: &[u8]) -> String {
    let path = dir.join(name);
    std::fs::write(&path, content).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn first_example_has_the_log_of_tensorflow() {
    let place = ["--sim", "labbox", "place", "graph", FIRST];
    let log = out(&run(&[&place[..], &["--log"]].concat()));
    let mut lines: Vec<&str> = log.lines().collect();
    lines.sort_unstable();
    let on = "/job:localhost/replica:0/task:0/device:";
    assert_eq!(
        lines,
        [
            format!("a: (Const): {on}CPU:0"),
            format!("b: (Const): {on}CPU:0"),
            format!("c: (MatMul): {on}GPU:0"),
        ]
    );
    hold("first.txt", &place);
    hold("first.explain.txt", &[&place[..], &["--explain"]].concat());
    let placed = object(&run(&[&place[..], &["--json"]].concat()));
    assert_eq!(placed["machine"], "labbox");
    let of = |name: &str| {
        let nodes = placed["nodes"].as_array().unwrap();
        let node = nodes.iter().find(|node| node["name"] == name).unwrap();
        (node["device"].as_str().unwrap().to_owned(), node["reason"].clone())
    };
    assert_eq!(of("a"), (format!("{on}CPU:0"), json!("requested")));
    assert_eq!(of("c"), (format!("{on}GPU:0"), json!("first-with-kernel")));
}

#[test]
fn documented_examples_have_the_values_and_the_log_of_tensorflow() {
    let place = ["--sim", "labbox", "place", "graph"];
    let threads = ["--inter-op-threads", "3", "--intra-op-threads", "2"];
    for (file, fetch, golden) in
        [(FIRST, "c", "first.run.txt"), (CONTROL, "total", "control.run.txt")]
    {
        let words = [&place[..], &[file, "--run", "--fetch", fetch, "--log"], &threads].concat();
        hold(golden, &words);
        let page = include_str!("../../../../docs/graph-placement.md");
        let shown: String = out(&run(&words)).lines().map(|line| format!("    {line}\n")).collect();
        assert!(page.contains(&shown), "{shown}");
    }
    let ran = object(&run(&[&place[..], &[FIRST, "--run", "--json"], &threads].concat()));
    assert_eq!(
        ran["values"],
        json!([{"name": "c:0", "dtype": "DT_FLOAT", "shape": [2, 2], "elements": [22.0, 28.0, 49.0, 64.0]}])
    );
    assert_eq!((&ran["inter_op_threads"], &ran["intra_op_threads"]), (&json!(3), &json!(2)));
    hold(
        "control.values.txt",
        &[&place[..], &[CONTROL, "--run", "--fetch", "counter", "--fetch", "total"]].concat(),
    );
}

#[test]
fn operation_without_kernel_runs_in_virtual_time() {
    let dir = tempfile::tempdir().unwrap();
    let file = r#"{"nodes": [
        {"name": "x", "op": "Const", "attrs": {"dtype": {"type": "float"},
         "value": {"tensor": {"dtype": "float", "shape": [2], "values": [1]}}}},
        {"name": "y", "op": "Tanh", "inputs": ["x"], "attrs": {"T": {"type": "float"}}, "nanos": 7000},
        {"name": "z", "op": "Neg", "inputs": ["x"], "attrs": {"T": {"type": "float"}}, "nanos": 1000}]}"#;
    let file = graph_file(dir.path(), "deep.json", file.as_bytes());
    let place =
        ["place", "graph", &file, "--devices", "/cpu:0", "--run", "--inter-op-threads", "2"];
    let output = run(&[&place[..], &["--fetch", "y"]].concat());
    let said = text(&output.stderr);
    assert!(said.contains("no kernel here can compute Tanh"), "{said}");
    assert_eq!(
        (output.status.code(), text(&output.stdout)),
        (Some(6), "3 operations in 7.0 us of virtual time\n".to_owned())
    );
    let ran = object(&run(&[&place[..], &["--json"]].concat()));
    assert_eq!((&ran["unsupported"], &ran["values"]), (&json!({"Tanh": 1}), &json!([])));
    // What does not need the operation has a value.
    let output = run(&[&place[..], &["--fetch", "z"]].concat());
    assert_eq!(out(&output), "z:0  DT_FLOAT [2]\n[-1. -1.]\n");
}

#[test]
fn impossible_runs_are_refused() {
    let on = ["place", "graph", FIRST, "--devices", "/cpu:0,/gpu:0"];
    let of = |more: &[&str]| refusal(&[&on[..], more].concat());
    let (code, said) = of(&["--run", "--fetch", "d"]);
    assert!(
        code == Some(2) && said.contains("fetch 'd': the graph has no such operation"),
        "{said}"
    );
    let (code, said) = of(&["--run", "--memory", "0.06KiB"]);
    let limit = "the tensors of a run may have 61 bytes";
    assert!(code == Some(1) && said.contains(limit) && said.contains("--memory"), "{said}");
    let (code, said) = of(&["--replicas", "2"]);
    assert!(code == Some(2) && said.contains("2 replicas for 1 devices"), "{said}");
    for wrong in [
        &["--fetch", "c"][..],
        &["--run", "--schedule"],
        &["--run", "--inter-op-threads", "0"],
        &["--batch", "3"],
        &["--contexts", "gpu(0)", "--batch", "0"],
    ] {
        assert_eq!(of(wrong).0, Some(2), "{wrong:?}");
    }
}

#[test]
fn replicas_average_their_gradients() {
    let dir = tempfile::tempdir().unwrap();
    let constant = |name: &str, values: &str| {
        format!(
            r#"{{"name": "{name}", "op": "Const", "attrs": {{"dtype": {{"type": "float"}},
            "value": {{"tensor": {{"dtype": "float", "shape": [3], "values": {values}}}}}}}}}"#
        )
    };
    let node = |name: &str, op: &str, inputs: &str| {
        format!(
            r#"{{"name": "{name}", "op": "{op}", "inputs": {inputs}, "attrs": {{"T": {{"type": "float"}},
            "dtype": {{"type": "float"}}, "shape": {{"shape": [3]}}}}}}"#
        )
    };
    let rate = constant("rate", "[0.5]").replace("\"shape\": [3]", "\"shape\": []");
    let nodes = [
        node("w", "VariableV2", "[]"),
        constant("start", "[1, 2, 3]"),
        node("w/Assign", "Assign", r#"["w", "start"]"#),
        rate,
        constant("gradient", "[2, 4, -2]"),
        node("step", "ApplyGradientDescent", r#"["w", "rate", "gradient"]"#),
    ];
    let file = format!(r#"{{"nodes": [{}]}}"#, nodes.join(","));
    let file = graph_file(dir.path(), "training.json", file.as_bytes());
    let place = ["--sim", "labbox", "place", "graph", &file, "--run", "--quiet"];
    let fetch = ["--fetch", "replica_0/step", "--fetch", "replica_1/step"];
    let words = [&place[..], &["--contexts", "[gpu(0), gpu(1)]"], &fetch].concat();
    // Half of the gradient is subtracted; the mean of equal gradients is the gradient.
    let value = "[0. 0. 4.]";
    let expected = format!(
        "replica_0/step:0  DT_FLOAT [3]\n{value}\nreplica_1/step:0  DT_FLOAT [3]\n{value}\n"
    );
    assert_eq!(out(&run(&words)), format!("simulated machine labbox\n{expected}"));
    let on = ["place", "graph", &file, "--devices", "/cpu:0,/gpu:0,/gpu:1", "--replicas", "2"];
    let placed = object(&run(&[&on[..], &["--batch", "7", "--loads", "3,1", "--json"]].concat()));
    let notes: Vec<&str> =
        placed["notes"].as_array().unwrap().iter().map(|note| note.as_str().unwrap()).collect();
    assert!(notes[0].starts_with("gradients: 1, averaged by a tree of "), "{notes:?}");
    assert!(
        notes[1].ends_with("GPU:0 takes rows 0 to 4")
            && notes[2].ends_with("GPU:1 takes rows 5 to 6"),
        "{notes:?}"
    );
    let nodes = placed["nodes"].as_array().unwrap();
    let device = |name: &str| {
        nodes.iter().find(|node| node["name"] == name).unwrap()["device"].as_str().unwrap()
    };
    assert!(device("replica_1/step").ends_with("GPU:1"), "{placed:#}");
}

#[test]
fn lost_gpu_is_no_device() {
    let placed = object(&run(&["--sim", "lost-gpu", "place", "graph", FIRST, "--json"]));
    let names: Vec<&str> = placed["devices"]
        .as_array()
        .unwrap()
        .iter()
        .map(|at| at["name"].as_str().unwrap())
        .collect();
    let status = object(&run(&["--sim", "lost-gpu", "status", "--json"]));
    let gpus = status["gpus"].as_array().unwrap();
    let answering = gpus.iter().filter(|gpu| gpu["memory_used_bytes"].is_u64());
    let expected = answering.map(|gpu| format!("device:GPU:{}", gpu["index"]));
    let expected: Vec<String> = expected.collect();
    assert!(expected.len() < gpus.len(), "{status:#}");
    assert_eq!(names.len(), 1 + expected.len(), "{names:?}");
    for name in expected {
        assert!(names.iter().any(|known| known.ends_with(&name)), "{name}: {names:?}");
    }
}

/// A machine with a slow GPU and one that reads its memory 1.93 times as fast.
const TWO_KINDS: &str = r#"
description = "made: two kinds of GPUs"
hostname = "two"
clock = 2025-03-03T10:00:00Z

[driver]
version = "535.261.03"
cuda = "12.2"

[[gpu]]
index = 0
name = "NVIDIA GeForce GTX 1080 Ti"
memory_total_mib = 11264
driver_reserve_mib = 4
temperature_c = 33
power_draw_mw = 21000
power_limit_mw = 260000

[[gpu]]
index = 1
name = "NVIDIA GeForce RTX 3090"
memory_total_mib = 24576
driver_reserve_mib = 4
temperature_c = 33
power_draw_mw = 21000
power_limit_mw = 350000
"#;

#[test]
fn faster_gpu_gets_more() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("machine.toml"), TWO_KINDS).unwrap();
    let machine = dir.path().to_str().unwrap();
    let words = ["--sim", machine, "place", "graph", FIRST, "--schedule", "--json"];
    let scheduled = object(&run(&words));
    let speeds: Vec<f64> = scheduled["devices"]
        .as_array()
        .unwrap()
        .iter()
        .map(|at| at["speed_ratio"].as_f64().unwrap())
        .collect();
    // 484.44 and 936.192 GB/s; the CPU is assumed.
    assert_eq!(speeds[0], 0.1);
    assert!((speeds[1] - 484.44 / 936.192).abs() < 0.01 && speeds[2] == 1.0, "{speeds:?}");
    let node = |name: &str| {
        let nodes = scheduled["nodes"].as_array().unwrap();
        nodes.iter().find(|node| node["name"] == name).unwrap()["device"].as_str().unwrap()
    };
    assert!(node("c").ends_with("GPU:1"), "{scheduled:#}");

    let goal = ["--context", "8k", "--goal", "throughput", "--json"];
    let words = [&["--sim", machine, "place", "model", LLAMA], &goal[..]].concat();
    let placed = object(&run(&words));
    let layers = |at: usize| placed["rooms"][at]["layer_count"].as_u64().unwrap();
    assert_eq!((layers(0), layers(1)), (10, 23), "{placed:#}");
}

/// Two operations on GPU 0 of two machines.
const TWO_TASKS: &str = r#"{
  "devices": ["/job:a/task:0/gpu:0", "/job:a/task:1/gpu:0"],
  "ops": [
    {"name": "Make", "outputs": [{"name": "y", "type": "float"}], "stateful": true},
    {"name": "Use", "inputs": [{"name": "x", "type": "float"}], "stateful": true}
  ],
  "kernels": [{"op": "Make", "device": "GPU"}, {"op": "Use", "device": "GPU"}],
  "nodes": [
    {"name": "make", "op": "Make", "device": "/task:0", "nanos": 1,
     "outputs": [{"type": "float", "bytes": 1250000000}]},
    {"name": "use", "op": "Use", "device": "/task:1", "inputs": ["make"], "nanos": 1}
  ]
}"#;

#[test]
fn copy_between_machines_takes_the_time_of_a_network() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("two.json");
    std::fs::write(&file, TWO_TASKS).unwrap();
    let words = ["place", "graph", file.to_str().unwrap(), "--schedule", "--json"];
    let scheduled = object(&run(&words));
    assert_eq!(scheduled["transfers"].as_array().unwrap().len(), 1, "{scheduled:#}");
    // 1.25 GB at 10 Gbit/s, and the latency.
    assert_eq!(scheduled["makespan_ns"], 1_000_050_002_u64, "{scheduled:#}");
}

/// A loop: its value returns to the merge by `NextIteration`.
const LOOP: &str = r#"
node { name: "zero" op: "Const" attr { key: "dtype" value { type: DT_FLOAT } } }
node { name: "enter" op: "Enter" input: "zero" attr { key: "T" value { type: DT_FLOAT } } }
node { name: "merge" op: "Merge" input: "enter" input: "next"
  attr { key: "T" value { type: DT_FLOAT } } attr { key: "N" value { i: 2 } } }
node { name: "next" op: "NextIteration" input: "merge"
  attr { key: "T" value { type: DT_FLOAT } } }
"#;

#[test]
fn loop_is_drawn() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (file, svg, trace) = (at("loop.pbtxt"), at("loop.svg"), at("loop.json"));
    std::fs::write(&file, LOOP).unwrap();
    let words = ["place", "graph", &file, "--devices", "/cpu:0,/gpu:0", "--schedule"];
    let drawn = run(&[&words[..], &["--svg", &svg, "--trace", &trace]].concat());
    assert_eq!(drawn.status.code(), Some(0), "{drawn:?}");
    let trace: Value = serde_json::from_slice(&std::fs::read(trace).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    assert!(events.iter().any(|event| event["name"] == "merge"), "{trace:#}");
    assert!(std::fs::read_to_string(svg).unwrap().contains("merge"));
}

#[test]
fn devices_of_two_processes_have_different_names() {
    let devices =
        "/job:a/replica:0/task:0/device:GPU:0,/job:a/replica:0/task:1/device:GPU:0,/cpu:0";
    for more in [&["--explain"][..], &["--schedule", "--explain"]] {
        let words = [&["place", "graph", FIRST, "--devices", devices], more].concat();
        let shown = out(&run(&words));
        assert!(shown.contains("/task:"), "{shown}");
    }
    let twice = ["place", "graph", FIRST, "--devices", "/gpu:0,/device:GPU:0"];
    let (code, message) = refusal(&twice);
    assert_eq!((code, message.contains("device:GPU:0 twice")), (Some(2), true), "{message}");
}

#[test]
fn hard_placement_refuses_requests_soft_placement_moves() {
    let dir = tempfile::tempdir().unwrap();
    let pinned = graph_file(
        dir.path(),
        "pinned.pbtxt",
        b"node { name: 's' op: 'Placeholder' device: '/gpu:1' \
          attr { key: 'dtype' value { type: DT_STRING } } } \
          node { name: 'd' op: 'DecodeRaw' input: 's' device: '/gpu:1' \
          attr { key: 'out_type' value { type: DT_UINT8 } } }",
    );
    let words = ["--sim", "labbox", "place", "graph", &pinned];
    let soft = run(&words);
    assert_eq!(soft.status.code(), Some(0), "{soft:?}");
    assert!(text(&soft.stderr).contains("d: no device /"), "{soft:?}");
    let (code, message) = refusal(&[&words[..], &["--hard"]].concat());
    assert_eq!(code, Some(1), "{message}");
    for part in ["Could not satisfy explicit device specification", "DecodeRaw", "omit --hard"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert!(
        message.starts_with("gpuws: failed to place '") && !message.contains("\\t"),
        "{message}"
    );
}

#[test]
fn unbuildable_graph_is_refused_with_its_nodes() {
    let dir = tempfile::tempdir().unwrap();
    let node = |name: &str, inputs: &str| {
        let of = "attr { key: 'T' value { type: DT_FLOAT } }";
        format!("node {{ name: '{name}' op: 'Relu' {inputs} {of} }}")
    };
    let cycle = node("a", "input: 'b'") + &node("b", "input: 'a'");
    for (content, expected) in [
        (cycle.as_str(), "nodes in a cycle"),
        (&node("a", "input: 'zz'"), "Unknown input node 'zz'"),
        ("node { name: 'a' op: 'Bogus' }", "--kernels FILE adds operations"),
        ("node { name: 'a' op: ", "failed to read '"),
        ("{\"nodes\": 3}", "failed to read '"),
        ("", "failed to read '"),
    ] {
        let file = graph_file(dir.path(), "graph", content.as_bytes());
        let (code, message) = refusal(&["place", "graph", &file, "--devices", "/cpu:0"]);
        assert_eq!(code, Some(2), "{content}: {message}");
        assert!(message.contains(expected), "{content}: {message}");
    }
    let (code, message) = refusal(&["place", "graph", FIRST, "--devices", "/cpu:0,gpu0"]);
    assert_eq!((code, message.contains("device name 'gpu0'")), (Some(2), true), "{message}");
    let (_, message) = refusal(&["--sim", "no-driver", "place", "graph", FIRST]);
    assert!(message.contains("--devices /cpu:0,/gpu:0"), "{message}");
}

#[test]
fn schedule_is_drawn_and_traced_to_new_files() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (svg, trace) = (at("a.svg"), at("a.json"));
    let words = ["--sim", "dgx1-v100", "place", "graph", FIRST, "--schedule"];
    hold("first.schedule.txt", &[&words[..], &["--explain"]].concat());
    let files = ["--svg", &svg, "--trace", &trace];
    let drawn = run(&[&words[..], &files].concat());
    assert_eq!(drawn.status.code(), Some(0), "{drawn:?}");
    assert!(std::fs::read_to_string(&svg).unwrap().starts_with("<svg"));
    let trace: Value = serde_json::from_slice(&std::fs::read(&trace).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let ran = events.iter().filter(|event| event["ph"] == "X").count();
    assert_eq!(ran, 3, "{trace:#}");
    let (code, message) = refusal(&[&words[..], &files].concat());
    assert_eq!((code, message.contains("already exists")), (Some(2), true), "{message}");
    let (code, _) = refusal(&["place", "graph", FIRST, "--svg", &at("b.svg")]);
    assert_eq!(code, Some(2), "a picture is of a schedule");
}

#[test]
fn model_is_placed_on_gpus_available_to_a_claim() {
    let words = ["--sim", "labbox", "place", "model", LLAMA, "--context", "8k"];
    hold("llama.txt", &words);
    let placed = object(&run(&[&words[..], &["--json"]].concat()));
    assert_eq!((&placed["fits"], placed["context_tokens"].as_u64()), (&json!(true), Some(8192)));
    assert_eq!(placed["model"]["parameter_count"].as_u64(), Some(8_030_261_248));
    assert_eq!(placed["rooms"].as_array().unwrap().len(), 1, "the other GPUs are in use");
    assert_eq!(placed["unavailable"].as_array().unwrap().len(), 3);
    // 32 layers, 8 heads of keys and of values, 128 elements of 2 bytes, 8,192 tokens.
    assert_eq!(placed["needs"]["context_bytes"].as_u64(), Some(32 * 8 * 2 * 128 * 2 * 8192));
    let used = object(&run(&[&words[..], &["--accept-used", "--json"]].concat()));
    assert_eq!(used["rooms"].as_array().unwrap().len(), 4);
}

#[test]
fn oversized_model_exits_with_1_and_offers_an_encoding() {
    let words = ["place", "model", LLAMA, "--context", "8k", "--memory", "8GiB,8GiB"];
    let small = run(&words);
    assert_eq!(small.status.code(), Some(1), "{small:?}");
    hold("llama.small.txt", &words);
    assert!(out(&small).contains("--weights Q8_0"), "{small:?}");
    let smaller = run(&[&words[..], &["--weights", "Q8_0"]].concat());
    assert_eq!(smaller.status.code(), Some(0), "{smaller:?}");
    let host = run(&[&words[..], &["--host-memory", "64GiB"]].concat());
    assert_eq!(host.status.code(), Some(0), "{host:?}");
}

#[test]
fn split_is_printed_in_the_form_of_other_programs() {
    let words = ["place", "model", LLAMA, "--context", "8k", "--memory", "10GiB,10GiB"];
    let with = |more: &[&str]| run(&[&words[..], more].concat());
    let llama = out(&with(&["--format", "llama"]));
    let shares = llama.trim_end().strip_prefix("-c 8192 -ngl 33 --tensor-split ").unwrap();
    let shares = shares.strip_suffix(" -np 1").unwrap();
    let shares: Vec<u32> = shares.split(',').map(|share| share.parse().unwrap()).collect();
    assert_eq!((shares.len(), shares.iter().sum()), (2, 33));
    let map = object(&with(&["--format", "device-map", "--engine", "transformers"]));
    assert_eq!((&map["model.embed_tokens"], &map["lm_head"]), (&json!(0), &json!(1)));
    let svg = out(&with(&["--svg", "-"]));
    assert!(svg.starts_with("<svg") && svg.contains("GPU 1"), "{svg}");
    let vllm = out(&with(&["--format", "vllm"]));
    let expected = format!(
        "vllm serve {LLAMA} --tensor-parallel-size 2 --max-model-len 8192 \
         --gpu-memory-utilization 0.98\n"
    );
    assert_eq!(vllm, expected);
    let spilled = ["--memory", "10GiB", "--host-memory", "64GiB", "--format", "vllm"];
    let (code, message) = refusal(&[&words[..5], &spilled].concat());
    assert_eq!((code, message.contains("on GPUs alone")), (Some(1), true), "{message}");
    let (_, message) = refusal(&[&words[..5], &spilled[..2], &spilled[4..]].concat());
    assert!(!message.contains("--host-memory"), "{message}");
    let (code, message) =
        refusal(&[&words[..], &["--format", "vllm", "--engine", "llama.cpp"]].concat());
    assert_eq!((code, message.contains("of another engine")), (Some(2), true), "{message}");
    let small = ["place", "model", LLAMA, "--memory", "2GiB", "--format", "llama"];
    let (code, message) = refusal(&small);
    assert_eq!((code, message.contains("the GPU has 1.5 GiB")), (Some(1), true), "{message}");
}

/// `gpuws run` lets the program see only the GPUs that hold layers.
#[test]
fn device_map_numbers_the_gpus_in_use() {
    let sizes = ["--memory", "2GiB,24GiB", "--context", "8k", "--format", "device-map"];
    let mapped = run(&[&["place", "model", LLAMA], &sizes[..]].concat());
    assert_eq!(object(&mapped), json!({ "": 0 }));
    let message = String::from_utf8_lossy(&mapped.stderr);
    assert!(message.contains("CUDA_VISIBLE_DEVICES=1'"), "{message}");
}

/// A program that sees all GPUs would use the small one in the middle.
#[test]
fn command_shows_only_the_gpus_in_use() {
    let sizes = ["--memory", "12GiB,4GiB,12GiB", "--context", "8k"];
    let words = [&["place", "model", LLAMA], &sizes[..]].concat();
    let shown = out(&run(&words)).split_whitespace().collect::<Vec<_>>().join(" ");
    let command = "CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=0,2 llama-server";
    assert!(shown.contains(command) && shown.contains(" -np 1"), "{shown}");
    let equal = ["place", "model", LLAMA, "--memory", "12GiB,12GiB", "--context", "8k"];
    assert!(!out(&run(&equal)).contains("CUDA_VISIBLE_DEVICES"));
    // The first of several equal GPUs is in use.
    let many = ["place", "model", LLAMA, "--memory", "24GiB,24GiB,24GiB", "--context", "8k"];
    for goal in ["fewest", "latency", "throughput"] {
        let placed = object(&run(&[&many[..], &["--goal", goal, "--json"]].concat()));
        assert!(placed["rooms"][0]["layer_count"].as_u64().unwrap() > 0, "{goal}: {placed:#}");
        assert_eq!(placed["layers"][1]["room"], "GPU 0", "{goal}");
    }
}

#[test]
fn as_many_layers_as_fit_stay_on_gpus() {
    let words = ["place", "model", LLAMA, "--context", "8k", "--memory", "8GiB,8GiB"];
    let placed = object(&run(&[&words[..], &["--host-memory", "64GiB", "--json"]].concat()));
    let layers = |at: usize| placed["rooms"][at]["layer_count"].as_u64().unwrap();
    assert!(layers(0) >= 10 && layers(1) >= 10, "{placed:#}");
    // The memory of the host counts for the context.
    let tried = &placed["encodings"][0];
    assert!(tried["largest_context_tokens"].as_u64().unwrap() >= 8192, "{tried}");
}

#[test]
fn vllm_has_sizes_for_each_degree_of_tensor_parallelism() {
    let sizes = ["--memory", "16GiB,24GiB,16GiB", "--context", "8k", "--engine", "vllm"];
    let words = [&["place", "model", LLAMA], &sizes[..]].concat();
    let placed = object(&run(&[&words[..], &["--json"]].concat()));
    let sizes = placed["tensor_parallel"].as_array().unwrap();
    let of = |key: &str| -> Vec<Value> { sizes.iter().map(|size| size[key].clone()).collect() };
    assert_eq!(of("gpu_count"), [1, 2]);
    // One rank goes to the largest GPU.
    assert_eq!(of("fits"), [true, true]);
    assert_eq!(of("memory_percent"), [92, 92]);
    assert_eq!(of("weights_bytes")[1], 8_030_261_248_u64);
    let many = object(&run(&[&words[..], &["--sequences", "8", "--json"]].concat()));
    let fits: Vec<&Value> =
        many["tensor_parallel"].as_array().unwrap().iter().map(|size| &size["fits"]).collect();
    assert_eq!((fits[0], &many["tensor_parallel_count"]), (&json!(false), &json!(2)), "{many:#}");
    // Rooms and layers describe the division.
    let rooms = many["rooms"].as_array().unwrap();
    let ranks: Vec<&Value> = rooms.iter().filter(|room| room["weights_bytes"] != 0).collect();
    assert_eq!(ranks.len(), 2, "{many:#}");
    for rank in ranks {
        assert_eq!(rank["weights_bytes"], 8_030_261_248_u64);
        assert_eq!((&rank["layer_count"], &rank["lacking_bytes"]), (&json!(34), &json!(0)));
    }
    assert!(many["layers"].as_array().unwrap().iter().all(|layer| layer["room"].is_null()));
    let shown = out(&run(&[&words[..], &["--sequences", "8"]].concat()));
    assert!(shown.contains("a part of each") && shown.contains("does not fit"), "{shown}");
}

/// A pipeline needs no more of a GPU than its command requests.
#[test]
fn verdict_of_a_pipeline_has_a_command() {
    for tenths in 86..104 {
        let size = format!("{}MiB", tenths * 1024 / 10);
        let sizes = format!("{size},{size}");
        // Seven heads cannot be divided over two GPUs.
        let words = ["place", "model", ODD, "--memory", &sizes, "--context", "8k"];
        let words = [&words[..], &["--engine", "vllm"]].concat();
        let fits = object(&run(&[&words[..], &["--json"]].concat()))["fits"] == json!(true);
        let shown = out(&run(&words));
        assert_eq!(shown.contains("--pipeline-parallel-size 2"), fits, "{size}: {shown}");
    }
}

#[test]
fn bad_model_is_refused_with_its_reason() {
    let dir = tempfile::tempdir().unwrap();
    let empty = dir.path().to_str().unwrap();
    let memory = ["--memory", "8GiB"];
    let refused = |words: &[&str]| refusal(&[&["place", "model"], words, &memory].concat());
    for (words, part) in [
        (&[empty][..], "no model found (expected .safetensors, .gguf, .bin or config.json)"),
        (&[LLAMA, "--weights", "Q4"], "read the encoding 'Q4'"),
        (&[LLAMA, "--context", "0"], "must be between 1 and"),
        (&["/nonexistent"], "failed to read '/nonexistent'"),
    ] {
        let (code, message) = refused(words);
        assert!(code != Some(0) && message.contains(part), "{words:?}: {code:?} {message}");
    }
    // A header of two gigabytes in a file of 16 bytes.
    let lying = dir.path().join("model.safetensors");
    std::fs::write(&lying, [&(2_u64 << 30).to_le_bytes()[..], b"{\"a\": {}"].concat()).unwrap();
    let (code, message) = refused(&[empty]);
    assert_eq!(code, Some(2), "{message}");
    assert!(message.contains("model.safetensors"), "{message}");
}
