//! Graphs for which quadratic placement time would be too long.

use super::fixture;
use gpu_graph::placer::{self, Options, Placement};
use gpu_graph::{ArgDef, ArgKind, Attr, Dtype, Graph, Kernel, OpDef, Registry, ValueType};

/// An operation that takes `count` values.
fn sink(count: usize, reference: bool) -> OpDef {
    let types = vec![Attr::Type(ValueType::of(Dtype::FLOAT)); count];
    let kind = ArgKind::TypeListAttr("T".into());
    OpDef {
        name: "Sink".into(),
        inputs: vec![ArgDef { name: "x".into(), kind, reference }],
        attrs: [("T".to_owned(), Some(Attr::List(types)))].into(),
        ..OpDef::default()
    }
}

fn place(lines: impl Iterator<Item = String>, op: Option<OpDef>) -> (Graph, Placement) {
    let mut registry: Registry = fixture::registry();
    if let Some(op) = op {
        let device_type = "FakeCPU".to_owned();
        registry.add_kernel(Kernel { op: op.name.clone(), device_type, ..Kernel::default() });
        registry.add_op(op);
    }
    let lines: Vec<String> = lines.collect();
    let graph = fixture::graph(lines.iter().map(String::as_str), &registry);
    let devices = fixture::devices("1");
    let placement = placer::place(&graph, &registry, &devices, &Options::default()).unwrap();
    (graph, placement)
}

#[test]
fn many_function_calls_are_inspected() {
    let count = 100_000;
    let line = |at| format!("c{at} = call:Same h{}", at % 100);
    let handles = (0..100).map(|at| format!("h{at} = HandleC"));
    let (graph, placement) = place(handles.chain((0..count).map(line)), None);
    assert_eq!(graph.nodes().len(), count + 100);
    // Each call has one identity for its argument and one for its result, which are on the device
    // of the handle.
    assert_eq!(placement.inserted().len(), 2 * count);
    let first = placement.device(graph.find("h0").unwrap());
    let identities = graph.nodes().len()..graph.nodes().len() + 2 * count;
    let identities = identities.map(|at| gpu_graph::NodeId(at as u32));
    assert!(identities.into_iter().all(|id| placement.device(id) == first));
}

#[test]
fn many_values_from_one_call_get_separate_identities() {
    let count = 65_536;
    let sink_line = format!("sink = Sink{}", " c:1".repeat(count));
    let lines = ["x = Out", "h = HandleC", "c = call:PassResource x h"].map(str::to_owned);
    let taken = ["c_sink_0 = Out", "c_sink_2 = Out"].map(str::to_owned);
    let lines = lines.into_iter().chain(taken).chain([sink_line]);
    let (_, placement) = place(lines, Some(sink(count, false)));
    let names: Vec<&str> = placement.inserted().iter().map(|node| &*node.name).collect();
    let named = |prefix| names.iter().filter(move |name| name.starts_with(prefix));
    let of_sink: Vec<&&str> = named("c_sink").collect();
    assert_eq!(of_sink[..4], [&"c_sink", &"c_sink_1", &"c_sink_3", &"c_sink_4"]);
    assert_eq!((of_sink.len(), of_sink[count - 1]), (count, &"c_sink_65536"));
}

#[test]
fn node_with_many_references_is_bound_to_each() {
    let count = 400_000;
    let sink_line = format!("sink = Sink{}", " v".repeat(count));
    let lines = ["v = VarC".to_owned(), sink_line].into_iter();
    let (graph, placement) = place(lines, Some(sink(count, true)));
    let [v, sink] = ["v", "sink"].map(|name| placement.device(graph.find(name).unwrap()));
    assert_eq!(v, sink);
}
