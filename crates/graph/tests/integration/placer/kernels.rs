//! Kernels with constraints, kernels for all types of devices, and types that only the CPU holds.

use gpu_graph::placer::{self, Options, PlaceError, Placement};
use gpu_graph::{
    ArgDef, ArgKind, Attr, DeviceSet, Dtype, Graph, GraphDef, Kernel, NodeDef, OpDef, Registry,
    ValueType,
};

const HERE: &str = "/job:localhost/replica:0/task:0/device:";

fn arg(name: &str, attr: &str) -> ArgDef {
    ArgDef { name: name.into(), kind: ArgKind::TypeAttr(attr.into()), reference: false }
}

fn variant(name: &str) -> ArgDef {
    ArgDef { name: name.into(), kind: ArgKind::Type(Dtype::VARIANT), reference: false }
}

/// A few operations as TensorFlow registers them: multiplication on both types, constants of
/// numbers on all types and of text on the CPU, and lists of tensors on both.
fn registry() -> Registry {
    let mut registry = Registry::default();
    let mut add = |name: &str, inputs, outputs, kernels: &[(&str, &[Dtype])]| {
        registry.add_op(OpDef { name: name.into(), inputs, outputs, ..OpDef::default() });
        for (device_type, allowed) in kernels {
            let mut kernel =
                Kernel { op: name.into(), device_type: (*device_type).into(), ..Kernel::default() };
            if !allowed.is_empty() {
                kernel.constraints.insert("T".into(), allowed.to_vec());
            }
            registry.add_kernel(kernel);
        }
    };
    let numbers: &[Dtype] = &[Dtype::FLOAT, Dtype::INT32];
    add("Const", vec![], vec![arg("output", "T")], &[("CPU", &[]), ("DEFAULT", numbers)]);
    let (a, b) = (arg("a", "T"), arg("b", "T"));
    let products: &[(&str, &[Dtype])] = &[("CPU", &[]), ("GPU", &[Dtype::FLOAT])];
    add("MatMul", vec![a, b], vec![arg("product", "T")], products);
    let both: &[(&str, &[Dtype])] = &[("CPU", &[]), ("GPU", &[])];
    add("EmptyTensorList", vec![], vec![variant("handle")], both);
    add("TensorListLength", vec![variant("handle")], vec![], both);
    registry
}

fn devices() -> DeviceSet {
    let names = ["CPU:0", "GPU:0", "GPU:1"].map(|name| format!("{HERE}{name}"));
    DeviceSet::named(names.iter().map(String::as_str)).unwrap()
}

fn node(name: &str, op: &str, inputs: &[&str], dtype: Dtype, device: &str) -> NodeDef {
    let dtype = Attr::Type(ValueType::of(dtype));
    NodeDef {
        name: name.into(),
        op: op.into(),
        inputs: inputs.iter().map(|input| (*input).into()).collect(),
        device: device.into(),
        attrs: [("T".to_owned(), dtype.clone()), ("element_dtype".to_owned(), dtype)].into(),
        outputs: None,
    }
}

fn place(nodes: Vec<NodeDef>, soft: bool) -> (Graph, Result<Placement, PlaceError>) {
    let registry = registry();
    let graph = Graph::build(GraphDef { nodes, functions: Vec::new() }, &registry).unwrap();
    let options = Options { soft, ..Options::default() };
    let placement = placer::place(&graph, &registry, &devices(), &options);
    (graph, placement)
}

fn log(nodes: Vec<NodeDef>) -> Vec<String> {
    let (graph, placement) = place(nodes, true);
    placement.unwrap().log(&graph, &devices()).map(|line| line.replace(HERE, "")).collect()
}

#[test]
fn product_runs_on_the_gpu_and_constants_where_they_are_pinned() {
    let log = log(vec![
        node("a", "Const", &[], Dtype::FLOAT, "/cpu:0"),
        node("b", "Const", &[], Dtype::FLOAT, "/cpu:0"),
        node("c", "MatMul", &["a", "b"], Dtype::FLOAT, ""),
    ]);
    assert_eq!(log, ["c: (MatMul): GPU:0", "a: (Const): CPU:0", "b: (Const): CPU:0"]);
}

#[test]
fn type_without_a_kernel_falls_back_to_the_kernel_for_all_types() {
    let log = log(vec![
        node("n", "Const", &[], Dtype::INT32, "/gpu:1"),
        node("s", "Const", &[], Dtype::STRING, "/gpu:1"),
    ]);
    assert_eq!(log, ["n: (Const): GPU:1", "s: (Const): CPU:0"]);
}

#[test]
fn kernel_for_all_types_does_not_serve_the_types_that_represent_compilation() {
    let names = ["CPU:0", "XLA_GPU:0", "XLA_GPU_JIT:0"].map(|name| format!("{HERE}{name}"));
    let devices = DeviceSet::named(names.iter().map(String::as_str)).unwrap();
    let registry = registry();
    let on = |kind: &str| {
        let nodes = vec![node("n", "Const", &[], Dtype::INT32, &format!("/device:{kind}:0"))];
        let graph = Graph::build(GraphDef { nodes, functions: Vec::new() }, &registry).unwrap();
        let options = Options { soft: true, ..Options::default() };
        let placement = placer::place(&graph, &registry, &devices, &options).unwrap();
        placement.log(&graph, &devices).next().unwrap().replace(HERE, "")
    };
    assert_eq!(on("XLA_GPU"), "n: (Const): XLA_GPU:0");
    assert_eq!(on("XLA_GPU_JIT"), "n: (Const): CPU:0");
}

#[test]
fn error_lists_the_kernels_with_their_constraints() {
    let nodes = vec![
        node("a", "Const", &[], Dtype::INT32, ""),
        node("c", "MatMul", &["a", "a"], Dtype::INT32, "/device:GPU:1"),
    ];
    let error = place(nodes, false).1.unwrap_err();
    assert_eq!(error.node.as_deref(), Some("c"));
    let start = "Cannot assign a device for operation c: Could not satisfy explicit device \
                 specification '/device:GPU:1' because no supported kernel for GPU devices is \
                 available.\nColocation Debug Info:\n";
    assert!(error.message.starts_with(start), "{error}");
    let end = "\nOp: MatMul\nNode attrs: T=DT_INT32, element_dtype=DT_INT32\nRegistered kernels:\n  \
               device='CPU'\n  device='GPU'; T in [DT_FLOAT]\n\n\t [[{{node c}}]]";
    assert!(error.message.ends_with(end), "{error}");
}

#[test]
fn users_of_a_list_of_strings_are_on_the_cpu() {
    for (dtype, device) in [(Dtype::STRING, "CPU:0"), (Dtype::FLOAT, "GPU:0")] {
        let log = log(vec![
            node("list", "EmptyTensorList", &[], dtype, ""),
            node("length", "TensorListLength", &["list"], dtype, ""),
        ]);
        assert_eq!(log[0], format!("length: (TensorListLength): {device}"));
    }
}
