//! The examples of docs/graph-placement.md: their log and their values.

use gpu_executor::{PlacedGraph, ProgramOptions, RunLimits, run_placed};
use gpu_graph::cost::Cluster;
use gpu_graph::placer::{self, place};
use gpu_graph::read::{self, Limits};
use gpu_graph::{Device, DeviceSet, Graph, Registry};
use std::fmt::Write;

const PAGE: &str = include_str!("../../../../docs/graph-placement.md");
const FIRST: &str = include_str!("../../../cli/tests/golden/place/first.pbtxt");
const CONTROL: &str = include_str!("../../../cli/tests/golden/place/control.pbtxt");

/// Returns what the page shows for an example: the log, and the value.
fn shown(file: &str, fetch: &str) -> String {
    let limits = Limits { contents: true, ..Limits::default() };
    let document = read::graph(file.as_bytes(), &limits).expect("it is well-formed");
    let registry = Registry::tensorflow();
    let graph = Graph::build(document.graph, &registry).expect("it can be built");
    let devices =
        DeviceSet::new(["/cpu:0", "/gpu:0", "/gpu:1"].into_iter().filter_map(Device::local));
    let placement = place(&graph, &registry, &devices, &placer::Options::default());
    let placement = placement.expect("it can be placed");
    let placed = PlacedGraph {
        graph: &graph,
        registry: &registry,
        devices: &devices,
        placement: &placement,
    };
    let options = ProgramOptions {
        inter_op_threads: 3,
        intra_op_threads: 2,
        limits: RunLimits::default(),
        run: gpu_executor::Options::default(),
    };
    let rates = gpu_core::Rates::default();
    let cluster = Cluster::of_devices(&devices, &Default::default(), &Default::default(), &rates);
    let ran = run_placed(placed, &cluster, &[fetch.to_owned()], &options).expect("it runs");
    let value = ran.values[0].tensor.as_ref().expect("it has a value").to_string();
    let mut shown = String::new();
    for line in placement.log(&graph, &devices) {
        let _ = writeln!(shown, "    {line}");
    }
    value.lines().for_each(|line| {
        let _ = writeln!(shown, "    {line}");
    });
    shown
}

#[test]
fn examples_of_the_page_have_the_log_and_the_values_of_tensorflow() {
    let (first, control) = (shown(FIRST, "c"), shown(CONTROL, "total"));
    assert!(first.ends_with("    [[22. 28.]\n     [49. 64.]]\n"), "{first}");
    assert!(control.ends_with("    75.0\n"), "{control}");
    assert!(PAGE.contains(&first) && PAGE.contains(&control), "{first}{control}");
}
