//! Graphs on simulated machines and on named devices.

use super::*;

#[test]
fn earlier_placement_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let gpu = "/job:localhost/replica:0/task:0/device:GPU:3";
    let log = graph_file(dir.path(), "log", format!("c: (MatMul): {gpu}\nz: {gpu}\n").as_bytes());
    let place = |more: &[&str]| {
        run(&[&["--sim", "labbox", "--json", "place", "graph", FIRST][..], more].concat())
    };
    let is_kept = |placed: &Value| {
        let nodes = placed["nodes"].as_array().unwrap();
        let node = nodes.iter().find(|node| node["name"] == "c").unwrap();
        node["device"] == gpu && node["reason"] == "assigned"
    };
    let placed = place(&["--placed", &log]);
    assert!(is_kept(&object(&placed)) && !is_kept(&object(&place(&[]))));
    let note = &object(&placed)["notes"][0];
    assert!(note.as_str().unwrap().starts_with("the graph does not have 'z' of '"), "{note}");
    let json = graph_file(dir.path(), "json", &placed.stdout);
    assert!(is_kept(&object(&place(&["--placed", &json]))));
    let (code, why) = refusal(&["place", "graph", FIRST, "--devices", "/cpu:0", "--placed", &log]);
    assert_eq!(code, Some(2), "{why}");
    assert!(why.contains("GPU:3, which is not one of the devices"), "{why}");
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
        let page = include_str!("../../../../../docs/graph-placement.md");
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
    let limit = "the tensors of a run are limited to 61 bytes";
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
    assert!(text(&soft.stderr).contains("d: no available device /"), "{soft:?}");
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
