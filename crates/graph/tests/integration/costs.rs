//! From a file to a schedule.

use gpu_core::{Bytes, Rates, Topology};
use gpu_graph::cost::{
    Cluster, Dag, Estimates, Item, Processor, Schedule, estimate, list_schedule, verify,
};
use gpu_graph::placer::{self, Options};
use gpu_graph::read::{self, Limits};
use gpu_graph::replicate::{self, Reduction, Replicas};
use gpu_graph::{DeviceSet, Graph, GraphDef, Registry};

const HERE: &str = "/job:localhost/replica:0/task:0/device:";

/// Two GPUs and a CPU with a tenth of their speed.
fn cluster(gpu_memory: Option<Bytes>) -> Cluster {
    let processor = |name: &str, speed, memory| Processor {
        name: format!("{HERE}{name}").into(),
        speed,
        memory,
    };
    let gpus = ["GPU:0", "GPU:1"].map(|name| processor(name, 1.0, gpu_memory));
    let cpu = processor("CPU:0", 0.1, None);
    Cluster::of_machine(gpus.into(), Some(cpu), &Topology::default(), &Rates::default())
}

fn read(json: &str) -> (GraphDef, Registry) {
    let document = read::graph(json.as_bytes(), &Limits::default()).unwrap();
    (document.graph, document.registry.unwrap_or_default())
}

fn scheduled(def: GraphDef, registry: &Registry, cluster: &Cluster) -> (Graph, Dag, Schedule) {
    let graph = Graph::build(def, registry).unwrap();
    let dag = estimate(&graph, registry, cluster, &Estimates::default()).unwrap();
    let schedule = list_schedule(&dag, cluster).unwrap();
    verify(&dag, cluster, &schedule).unwrap();
    (graph, dag, schedule)
}

#[test]
fn nodes_of_a_group_without_a_named_node_stay_together() {
    let json = r#"{"nodes": [
        {"name": "a", "op": "A", "outputs": ["float"], "nanos": 1000000, "colocate_with": ["g"]},
        {"name": "b", "op": "B", "outputs": ["float"], "nanos": 1000000, "colocate_with": ["g"]},
        {"name": "c", "op": "C", "outputs": ["float"], "nanos": 1000000}
    ]}"#;
    let (def, _) = read(json);
    let registry = Registry::supporting(&def, &["GPU", "CPU"]);
    let (_, dag, schedule) = scheduled(def, &registry, &cluster(None));
    assert_eq!([0, 1, 2].map(|at| dag.items[at].group), [Some(0), Some(0), None]);
    assert_eq!(schedule.slots[0].processor, schedule.slots[1].processor);
}

#[test]
fn unknown_operation_runs_on_every_device() {
    let node = |extra: &str| {
        let outputs = r#""outputs": ["float"]"#;
        read(&format!(r#"{{"nodes": [{{"name": "a", "op": "Mine", {outputs}{extra}}}]}}"#)).0
    };
    let registry = Registry::tensorflow();
    let (graph, dag, schedule) = scheduled(node(""), &registry, &cluster(None));
    assert_eq!(dag.items[0].nanos.iter().flatten().count(), 3);
    let names = ["GPU:0", "GPU:1", "CPU:0"].map(|name| format!("{HERE}{name}"));
    let devices = DeviceSet::named(names.iter().map(String::as_str)).unwrap();
    let placement = placer::place(&graph, &registry, &devices, &Options::default()).unwrap();
    assert_eq!(placement.devices().collect::<Vec<_>>(), [schedule.slots[0].processor as usize]);
    // Times and requests still count.
    let times = r#", "nanos": {"CPU": 7}, "device": "/cpu:0""#;
    let dag = scheduled(node(times), &registry, &cluster(None)).1;
    assert_eq!(dag.items[0].nanos, [None, None, Some(7)]);
    // A defined operation without a kernel runs nowhere.
    let mut registry = registry;
    registry.add_op(gpu_graph::OpDef { name: "Mine".into(), ..Default::default() });
    let graph = Graph::build(node(""), &registry).unwrap();
    let dag = estimate(&graph, &registry, &cluster(None), &Estimates::default()).unwrap();
    assert!(list_schedule(&dag, &cluster(None)).is_err());
}

#[test]
fn weights_of_onnx_models_take_no_time_and_stay_in_memory() {
    let json = r#"{"nodes": [
        {"name": "x", "op": "Input", "outputs": [{"type": "float", "bytes": 1000000}]},
        {"name": "w", "op": "Initializer", "outputs": [{"type": "float", "bytes": 6000000}]},
        {"name": "one", "op": "Constant", "outputs": [{"type": "float", "bytes": 4000}]},
        {"name": "y", "op": "Gemm", "inputs": ["x", "w", "one"],
         "outputs": [{"type": "float", "bytes": 1000000}], "device": "/gpu:0"},
        {"name": "z", "op": "Relu", "inputs": ["y"], "device": "/gpu:0",
         "outputs": [{"type": "float", "bytes": 1000000}]}
    ]}"#;
    let (def, _) = read(json);
    let registry = Registry::supporting(&def, &["GPU"]);
    // The weights count once, so they fit together with the values.
    let cluster = cluster(Some(Bytes(8_100_000)));
    let (_, dag, schedule) = scheduled(def, &registry, &cluster);
    for at in 0..3 {
        assert_eq!(dag.items[at].nanos[..2], [Some(0); 2], "{}", dag.items[at].name);
    }
    let persistent = dag.items.iter().map(|item| item.persistent.0).collect::<Vec<_>>();
    assert_eq!(persistent, [0, 6_000_000, 0, 0, 0]);
    assert_eq!(dag.items[1].outputs, [Bytes(6_000_000)]);
    assert!(schedule.slots.iter().all(|slot| slot.processor == 0));
    assert_eq!(schedule.peaks, [Bytes(8_004_000), Bytes(0), Bytes(0)]);
}

#[test]
fn copies_of_weights_occupy_memory_on_other_processors() {
    let item = |processor, inputs| Item {
        inputs,
        outputs: vec![Bytes(5)],
        nanos: vec![Some(10); 3],
        fixed: Some(processor),
        ..Item::default()
    };
    let weights = Item { persistent: Bytes(5), keeps_outputs: true, ..item(0, Vec::new()) };
    let of_weights = vec![gpu_graph::cost::Input::value(0, 0)];
    let items = vec![weights, item(1, of_weights.clone()), item(0, of_weights)];
    let (dag, cluster) = (Dag { items }, cluster(None));
    let schedule = list_schedule(&dag, &cluster).unwrap();
    verify(&dag, &cluster, &schedule).unwrap();
    assert_eq!(schedule.peaks, [Bytes(10), Bytes(10), Bytes(0)]);
}

/// A step of training whose gradient has 12,000,006 bytes.
const TRAINING: &str = r#"{
    "ops": [
        {"name": "Weights", "outputs": [{"name": "ref", "type": "float_ref"}]},
        {"name": "Gradient", "inputs": [{"name": "weights", "type": "float"}],
         "outputs": [{"name": "loss", "type": "float"}, {"name": "gradient", "type": "float"}]},
        {"name": "ApplyGradientDescent",
         "inputs": [{"name": "var", "type": "float", "reference": true},
                    {"name": "alpha", "type": "float"}, {"name": "delta", "type": "float"}],
         "outputs": [{"name": "out", "type": "float_ref"}]}
    ],
    "kernels": [
        {"op": "Weights", "device": "GPU"},
        {"op": "Gradient", "device": "GPU"},
        {"op": "ApplyGradientDescent", "device": "GPU"}
    ],
    "nodes": [
        {"name": "weights", "op": "Weights"},
        {"name": "grad", "op": "Gradient", "inputs": ["weights"], "attrs": {"T": {"type": "float"}},
         "outputs": [{"type": "float"}, {"type": "float", "bytes": 12000006}]},
        {"name": "update", "op": "ApplyGradientDescent", "inputs": ["weights", "grad", "grad:1"]}
    ]
}"#;

#[test]
fn gradients_of_a_file_are_reduced_in_chunks_of_their_size() {
    let (def, mut registry) = read(TRAINING);
    replicate::register(&mut registry);
    let devices = vec!["/device:GPU:0".to_owned(), "/device:GPU:1".to_owned()];
    let gradients = replicate::gradients(&def);
    let how = Replicas { devices, gradients, reduction: Reduction::Ring, mean: false };
    let parallel = replicate::data_parallel(&def, &how).unwrap();
    let cluster = cluster(None);
    let (graph, dag, schedule) = scheduled(parallel, &registry, &cluster);
    let item = |name: &str| &dag.items[graph.find(name).unwrap().index()];
    let half = Bytes(6_000_003);
    for replica in ["reduce/0/replica_0", "reduce/0/replica_1"] {
        assert_eq!(item(&format!("{replica}/split")).outputs, [half; 2]);
        for step in ["copy_0", "add_0", "copy_1"] {
            assert_eq!(item(&format!("{replica}/{step}")).outputs, [half], "{replica}/{step}");
        }
        assert_eq!(item(&format!("{replica}/join")).outputs, [Bytes(12_000_006)]);
    }
    // Every replica sends each half once: one to be added, and the sum of the other.
    let sent = |from: u32| {
        let of = schedule.transfers.iter().filter(move |of| of.from == from && of.bytes == half);
        of.count()
    };
    assert_eq!((schedule.transfers.len(), sent(0), sent(1)), (4, 2, 2));
    for (at, node) in graph.nodes().iter().enumerate() {
        if node.name.starts_with("replica_1/") || node.name.contains("/replica_1/") {
            assert_eq!(schedule.slots[at].processor, 1, "{}", node.name);
        }
    }
}
