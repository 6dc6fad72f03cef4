//! The placer against TensorFlow's own, on random graphs.
//!
//! `GPUWS_TF_PLACER` is the path of a program that reads the files written here and runs
//! TensorFlow's `Placer` on each graph; without it the test prints that it skips. Graphs with
//! several calls of functions that return resources may differ, but only a few do: TensorFlow
//! inspects the calls in the order of a hash set of addresses. `GPUWS_TF_PLACER_GRAPHS` is the
//! number of graphs to compare (1,000), `GPUWS_TF_PLACER_SEED` the first seed.

#![expect(clippy::print_stderr, reason = "a peer that is not there is skipped visibly")]

use super::fixture::{self, OPS};
use super::random::{self, Scenario};
use gpu_graph::placer::{self, Options, PlaceErrorKind};
use gpu_graph::{ArgDef, ArgKind, Attr, FunctionDef, Graph, NodeDef, Registry};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// The result of a placer: the devices by name and the log, or an error.
#[derive(Debug, Default, PartialEq)]
struct Answer {
    devices: BTreeMap<String, String>,
    log: Vec<String>,
    error: Option<String>,
}

fn text_of(attr: &Attr) -> String {
    match attr {
        Attr::Type(of) => format!("type: {of}"),
        Attr::Int(number) => format!("i: {number}"),
        Attr::Placeholder(name) => format!("placeholder: {name:?}"),
        Attr::Function(name, inner) => {
            format!("func {{ name: {name:?} {} }}", text_of_attrs(inner))
        }
        Attr::List(items) => {
            let items = items.iter().map(|item| match item {
                Attr::Text(text) => format!("s: {text:?} "),
                other => format!("{} ", text_of(other)),
            });
            format!("list {{ {} }}", items.collect::<String>())
        }
        other => panic!("{other:?}"),
    }
}

fn text_of_attrs(attrs: &BTreeMap<String, Attr>) -> String {
    let attr = |(name, attr): (&String, &Attr)| {
        format!(" attr {{ key: {name:?} value {{ {} }} }}", text_of(attr))
    };
    attrs.iter().map(attr).collect()
}

fn text_of_node(kind: &str, node: &NodeDef, number: usize) -> String {
    let mut attrs = node.attrs.clone();
    if node.op == "_Arg" || node.op == "_Retval" {
        attrs.insert("index".into(), Attr::Int(number as i64));
    }
    let inputs: String = node.inputs.iter().map(|input| format!(" input: {input:?}")).collect();
    format!(
        "{kind} {{ name: {:?} op: {:?}{inputs} device: {:?}{} }}\n",
        node.name,
        node.op,
        node.device,
        text_of_attrs(&attrs)
    )
}

fn text_of_arg(kind: &str, arg: &ArgDef) -> String {
    let of = match &arg.kind {
        ArgKind::Type(dtype) => format!("type: {dtype}"),
        ArgKind::TypeAttr(name) => format!("type_attr: {name:?}"),
        other => panic!("{other:?}"),
    };
    let reference = if arg.reference { " is_ref: true" } else { "" };
    format!(" {kind} {{ name: {:?} {of}{reference} }}", arg.name)
}

fn text_of_function(function: &FunctionDef) -> String {
    let signature = &function.signature;
    let mut text = format!("function {{ signature {{ name: {:?}", signature.name);
    text.extend(signature.inputs.iter().map(|arg| text_of_arg("input_arg", arg)));
    text.extend(signature.outputs.iter().map(|arg| text_of_arg("output_arg", arg)));
    text.extend(
        signature.attrs.keys().map(|name| format!(" attr {{ name: {name:?} type: \"type\" }}")),
    );
    text += " }\n";
    for (number, node) in function.nodes.iter().enumerate() {
        text += &text_of_node("node_def", node, number);
    }
    for (name, value) in &function.returns {
        text += &format!("ret {{ key: {name:?} value: {value:?} }}\n");
    }
    text + "}\n"
}

fn write_registry(folder: &Path, registry: &Registry) {
    let (mut ops, mut kernels) = (String::new(), String::new());
    for (name, _, _, of) in OPS {
        let op = registry.op(name).unwrap();
        let args = op.inputs.iter().map(|arg| text_of_arg("input_arg", arg));
        let args: String =
            args.chain(op.outputs.iter().map(|arg| text_of_arg("output_arg", arg))).collect();
        writeln!(ops, "op {{ name: {name:?}{args} }}").unwrap();
        for (kind, priority) in fixture::kernels(of) {
            writeln!(
                kernels,
                "kernel {{ op: {name:?} device_type: {kind:?} priority: {priority} }}"
            )
            .unwrap();
        }
    }
    for name in ["Shape", "_Arg", "_Retval", "Identity", "Mul", "Add", "PartitionedCall"] {
        for kind in ["FakeCPU", "FakeGPU"] {
            writeln!(kernels, "kernel {{ op: {name:?} device_type: {kind:?} }}").unwrap();
        }
    }
    std::fs::write(folder.join("ops.pbtxt"), ops).unwrap();
    std::fs::write(folder.join("kernels.pbtxt"), kernels).unwrap();
}

fn write_scenario(folder: &Path, name: &str, scenario: &Scenario, graph: &Graph) {
    let functions = fixture::functions();
    let mut text = String::new();
    for (number, line) in scenario.lines.iter().enumerate() {
        text += &text_of_node("node", &fixture::node(line, &functions), number);
    }
    text += "library {\n";
    text.extend(functions.iter().map(text_of_function));
    text += "}\nversions { producer: 1000 }\n";
    std::fs::write(folder.join(format!("{name}.graph")), text).unwrap();
    let assigned =
        graph.nodes().iter().filter_map(|node| Some((&node.name, node.assigned.as_ref()?)));
    let assigned: String = assigned.map(|(name, device)| format!("{name} {device}\n")).collect();
    if !assigned.is_empty() {
        std::fs::write(folder.join(format!("{name}.assigned")), assigned).unwrap();
    }
}

/// Runs TensorFlow's placer on the cases in a folder.
fn run_peer(program: &Path, folder: &Path) -> BTreeMap<String, Answer> {
    let output = Command::new(program).arg(folder).stderr(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{} ended with {}", program.display(), output.status);
    let text = String::from_utf8_lossy(&output.stdout);
    let mut answers: BTreeMap<String, Answer> = BTreeMap::new();
    let mut current = Answer::default();
    let mut name = None;
    for line in text.lines() {
        if let Some(next) = line.strip_prefix("CASE ") {
            name = Some(next.to_owned());
            current = Answer::default();
        } else if line == "END" {
            answers.insert(name.take().expect("a case"), std::mem::take(&mut current));
        } else if let Some(error) = &mut current.error {
            error.push('\n');
            error.push_str(line);
        } else if let Some(error) = line.strip_prefix("GRAPHERROR ") {
            answers.insert(
                name.take().expect("a case"),
                Answer { error: Some(format!("invalid graph: {error}")), ..Answer::default() },
            );
        } else if let Some(error) = line.strip_prefix("ERROR ") {
            let message = error.split_once(": ").map_or(error, |(_, message)| message);
            current.error = Some(message.to_owned());
        } else if let Some(node) = line.strip_prefix("NODE ") {
            let (node, device) = node.split_once(' ').expect(line);
            current.devices.insert(node.into(), device.into());
        } else {
            current.log.push(line.to_owned());
        }
    }
    answers
}

/// Runs our placer.
fn run_ours(
    scenario: &Scenario,
    graph: &Graph,
    registry: &Registry,
) -> (Answer, Option<PlaceErrorKind>) {
    let devices = fixture::devices(&scenario.devices.to_string());
    let options = Options {
        soft: scenario.soft,
        default_device: scenario.default_device.clone(),
        ..Options::default()
    };
    match placer::place(graph, registry, &devices, &options) {
        Ok(placement) => {
            let ids = placement.order().iter();
            let of = |id| placement.node(graph, id).expect("a node").name.to_string();
            let by_name =
                ids.map(|id| (of(*id), devices.names()[placement.device(*id)].clone())).collect();
            let log = placement.log(graph, &devices).collect();
            (Answer { devices: by_name, log, error: None }, None)
        }
        Err(error) => {
            (Answer { error: Some(error.message), ..Answer::default() }, Some(error.kind))
        }
    }
}

/// Returns the kind of an error of TensorFlow by its message.
fn kind_of(message: &str) -> Option<PlaceErrorKind> {
    let kinds = [
        ("No OpKernel was registered", PlaceErrorKind::NoKernel),
        ("Malformed device specification", PlaceErrorKind::MalformedRequest),
        ("does not have registered OpKernel", PlaceErrorKind::AssignedWithoutKernel),
        ("Cannot place the graph because a reference", PlaceErrorKind::IncompatibleEdge),
        ("Cannot assign a device for operation", PlaceErrorKind::Unsatisfiable),
        ("Cannot colocate nodes", PlaceErrorKind::CannotColocate),
        ("Cannot merge devices", PlaceErrorKind::CannotColocate),
        ("Recursive function calls", PlaceErrorKind::RecursiveFunction),
    ];
    kinds.iter().find(|(text, _)| message.contains(text)).map(|(_, kind)| *kind)
}

/// Returns the lines of a message in a fixed order: TensorFlow lists the operations of a group and
/// the kernels of an operation in the order of a hash map.
fn sorted(message: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = message.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    lines.sort_unstable();
    lines
}

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

#[test]
fn random_graphs_are_placed_as_by_tensorflow() {
    let Some(program) = std::env::var_os("GPUWS_TF_PLACER") else {
        eprintln!("skipped: GPUWS_TF_PLACER is not set");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let registry = fixture::registry();
    write_registry(folder.path(), &registry);
    for count in [1, 2, 4, 12] {
        let line = |name: &String| {
            let kind = name.rsplit(':').nth(1).expect("a type");
            format!("{name} {kind}\n")
        };
        let lines: String = fixture::device_names(count).iter().map(line).collect();
        std::fs::write(folder.path().join(format!("d{count}.devices")), lines).unwrap();
    }
    let first = number("GPUWS_TF_PLACER_SEED", 1);
    let seeds = first..first + number("GPUWS_TF_PLACER_GRAPHS", 1_000);
    let mut index = String::new();
    let mut scenarios = Vec::new();
    for seed in seeds {
        let scenario = random::scenario(seed);
        let graph = fixture::graph(scenario.lines.iter().map(String::as_str), &registry);
        write_scenario(folder.path(), &format!("s{seed}"), &scenario, &graph);
        let (soft, devices) = (u8::from(scenario.soft), scenario.devices);
        let default = scenario.default_device.as_deref().unwrap_or("-");
        writeln!(index, "s{seed} {soft} 1 1 d{devices} {default}").unwrap();
        scenarios.push((seed, scenario, graph));
    }
    std::fs::write(folder.path().join("cases.txt"), index).unwrap();

    let peer = run_peer(Path::new(&program), folder.path());
    let (mut placed, mut failed, mut exact, mut different) = (0, BTreeMap::new(), 0, Vec::new());
    for (seed, scenario, graph) in &scenarios {
        let (ours, kind) = run_ours(scenario, graph, &registry);
        let theirs = peer.get(&format!("s{seed}"));
        let same = theirs.is_some_and(|theirs| match (&theirs.error, kind) {
            (Some(message), Some(kind)) => kind_of(message) == Some(kind),
            (None, None) => ours == *theirs,
            _ => false,
        });
        match (same, &ours.error, theirs.and_then(|theirs| theirs.error.as_ref())) {
            (true, Some(message), Some(theirs)) => {
                *failed.entry(format!("{kind:?}")).or_insert(0) += 1;
                exact += usize::from(sorted(message) == sorted(theirs));
            }
            (true, ..) => placed += 1,
            (false, ..) => {
                different.push((scenario.lines.len(), *seed, scenario, difference(&ours, theirs)));
            }
        }
    }
    let calls = |lines: &[String]| lines.iter().filter(|line| line.contains(" = call:")).count();
    let all = different.len();
    different.retain(|(_, _, scenario, _)| calls(&scenario.lines) < 2);
    let by_order = all - different.len();
    let several = scenarios.iter().filter(|(_, of, _)| calls(&of.lines) > 1).count();
    eprintln!(
        "{placed} graphs placed on the same devices in the same order; errors of the same kind: \
         {failed:?}, {exact} of them with the same message; {} differ, and {by_order} of \
         {several} with several calls of functions",
        different.len()
    );
    let tolerated = 1 + scenarios.len() / 1_000;
    assert!(by_order <= tolerated, "{by_order} graphs with several calls differ");
    different.sort_by_key(|(size, ..)| *size);
    let shown = different.iter().take(3).map(|(_, seed, scenario, difference)| {
        let Scenario { lines, devices, default_device, soft } = scenario;
        format!(
            "\nseed {seed}, soft {soft}, {devices} devices, default {default_device:?}\n{}\n{difference}",
            lines.join("\n")
        )
    });
    let shown: Vec<String> = shown.collect();
    assert!(different.is_empty(), "{} differ, such as{}", different.len(), shown.join("\n"));
}

/// Returns the differences between two results.
fn difference(ours: &Answer, theirs: Option<&Answer>) -> String {
    let Some(theirs) = theirs else { return "no answer".to_owned() };
    let mut text = String::new();
    for (who, error) in [("ours", &ours.error), ("theirs", &theirs.error)] {
        if let Some(error) = error {
            writeln!(text, "{who}: {error}").unwrap();
        }
    }
    for (node, device) in &ours.devices {
        let other = theirs.devices.get(node);
        if other != Some(device) {
            writeln!(text, "{node}: ours {device}, theirs {other:?}").unwrap();
        }
    }
    if ours.devices == theirs.devices && ours.log != theirs.log {
        writeln!(text, "logs:\n{}\n{}", ours.log.join("; "), theirs.log.join("; ")).unwrap();
    }
    text
}
