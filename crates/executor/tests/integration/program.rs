//! Values of graphs, compared with figures computed by hand by TensorFlow's definitions.

use crate::Ticks;
use gpu_core::{Bytes, Rates};
use gpu_executor::{
    Data, NodeIx, OpError, Options, PlacedGraph, Port, Program, ProgramError, ProgramOptions, Ran,
    RunError, RunLimits, TaskGraph, ValueError, Values, run_placed,
};
use gpu_graph::cost::Cluster;
use gpu_graph::placer::place;
use gpu_graph::read::{self, Limits};
use gpu_graph::{Device, DeviceSet, Graph, Registry, replicate};
use std::sync::Arc;

/// Reads a graph in our JSON form; operations are those of TensorFlow.
fn graph(nodes: &str) -> Graph {
    let file = format!("{{\"nodes\": [{nodes}]}}");
    let document = read::graph(file.as_bytes(), &Limits::default()).expect("it is well-formed");
    let mut registry = Registry::tensorflow();
    replicate::register(&mut registry);
    Graph::build(document.graph, &registry).expect("it can be built")
}

fn constant(name: &str, dtype: &str, shape: &str, values: &str) -> String {
    format!(
        r#"{{"name": "{name}", "op": "Const", "attrs": {{"dtype": {{"type": "{dtype}"}},
            "value": {{"tensor": {{"dtype": "{dtype}", "shape": {shape}, "values": {values}}}}}}}}}"#
    )
}

fn node(name: &str, op: &str, dtype: &str, inputs: &str, more: &str) -> String {
    format!(
        r#"{{"name": "{name}", "op": "{op}", "inputs": [{inputs}],
            "attrs": {{"T": {{"type": "{dtype}"}}{more}}}}}"#
    )
}

fn variable(name: &str, dtype: &str, shape: &str) -> String {
    format!(
        r#"{{"name": "{name}", "op": "VariableV2", "attrs": {{"dtype": {{"type": "{dtype}"}},
            "shape": {{"shape": {shape}}}}}}}"#
    )
}

fn options(inter_op_threads: usize, intra_op_threads: usize) -> ProgramOptions {
    let limits = RunLimits::default();
    ProgramOptions { inter_op_threads, intra_op_threads, limits, run: Options::default() }
}

/// Returns the text of each fetched value.
fn values(
    graph: &Graph,
    fetches: &[&str],
    options: &ProgramOptions,
) -> Result<Vec<String>, RunError<OpError>> {
    let fetches: Vec<String> = fetches.iter().map(|name| (*name).to_owned()).collect();
    let outcome = Program::of(graph, &fetches).expect("it has kernels").run(options)?;
    let text = |of: &gpu_executor::Fetched| {
        of.tensor.as_ref().map_or_else(String::new, |of| of.to_string())
    };
    Ok(outcome.fetched.iter().map(text).collect())
}

fn value(nodes: &[String], fetch: &str) -> String {
    values(&graph(&nodes.join(",")), &[fetch], &options(1, 1)).expect("it runs").remove(0)
}

fn failure(nodes: &[String], fetch: &str) -> String {
    let error = values(&graph(&nodes.join(",")), &[fetch], &options(2, 2)).unwrap_err();
    let RunError::Kernel { name, error, .. } = error else { panic!("{error}") };
    format!("{name}: {error}")
}

#[test]
fn operations_compute_values_of_tensorflow() {
    let a = || constant("a", "float", "[2, 3]", "[1, 2, 3, 4, 5, 6]");
    let b = || constant("b", "float", "[3, 2]", "[1, 2, 3, 4, 5, 6]");
    let of = |op: &str, inputs: &str, more: &str| {
        value(&[a(), b(), node("c", op, "float", inputs, more)], "c")
    };
    assert_eq!(of("MatMul", r#""a", "b""#, ""), "[[22. 28.]\n [49. 64.]]");
    // a · aᵀ and aᵀ · a.
    assert_eq!(of("MatMul", r#""a", "a""#, r#", "transpose_b": true"#), "[[14. 32.]\n [32. 77.]]");
    assert_eq!(
        of("MatMul", r#""a", "a""#, r#", "transpose_a": true"#),
        "[[17. 22. 27.]\n [22. 29. 36.]\n [27. 36. 45.]]"
    );
    assert_eq!(
        of("MatMul", r#""b", "a""#, r#", "transpose_a": true, "transpose_b": true"#),
        "[[22. 49.]\n [28. 64.]]"
    );
    assert_eq!(of("AddN", r#""a", "a", "a""#, r#", "N": 3"#), "[[ 3.  6.  9.]\n [12. 15. 18.]]");
    assert_eq!(of("Neg", r#""a""#, ""), "[[-1. -2. -3.]\n [-4. -5. -6.]]");
}

#[test]
fn shapes_are_broadcast_as_by_numpy() {
    let of = |op: &str, dtype: &str, a: (&str, &str), b: (&str, &str)| {
        let inputs = [constant("a", dtype, a.0, a.1), constant("b", dtype, b.0, b.1)];
        value(&[&inputs[..], &[node("c", op, dtype, r#""a", "b""#, "")]].concat(), "c")
    };
    let (row, column) = (("[3]", "[1, 2, 3]"), ("[2, 1]", "[10, 20]"));
    assert_eq!(of("AddV2", "int32", row, column), "[[11 12 13]\n [21 22 23]]");
    assert_eq!(of("Sub", "double", column, row), "[[ 9.  8.  7.]\n [19. 18. 17.]]");
    assert_eq!(of("Mul", "int64", row, ("[]", "[5]")), "[ 5 10 15]");
    assert_eq!(of("Div", "float", ("[2]", "[1, -3]"), ("[]", "[2]")), "[ 0.5 -1.5]");
    assert_eq!(of("Div", "int32", ("[2]", "[7, -7]"), ("[]", "[2]")), "[ 3 -3]");
    assert_eq!(of("Add", "float", ("[0, 3]", "[]"), row), "[]");
    // 2³¹ − 1 + 1 wraps around.
    assert_eq!(of("Add", "int32", ("[]", "[2147483647]"), ("[]", "[1]")), "-2147483648");
    assert_eq!(of("RealDiv", "float", ("[3]", "[1, -1, 0]"), ("[]", "[0]")), "[ inf -inf  nan]");
}

#[test]
fn sums_and_relu_follow_their_attributes() {
    let of = |axes: &str, shape: &str, keeps: bool| {
        let keeps = format!(r#", "Tidx": {{"type": "int32"}}, "keep_dims": {keeps}"#);
        let nodes = [
            constant("x", "float", "[2, 3]", "[1, -2, 3, 4, 5, -6]"),
            constant("axes", "int32", shape, axes),
            node("r", "Relu", "float", r#""x""#, ""),
            node("s", "Sum", "float", r#""r", "axes""#, &keeps),
        ];
        value(&nodes, "s:0")
    };
    assert_eq!(of("[0]", "[]", false), "[5. 5. 3.]");
    assert_eq!(of("[-1]", "[1]", true), "[[4.]\n [9.]]");
    assert_eq!(of("[1, 0]", "[2]", false), "13.0");
    assert_eq!(of("[]", "[0]", false), "[[1. 0. 3.]\n [4. 5. 0.]]");
    let long = [
        constant("x", "float", "[2, 3]", "[1, -2, 3, 4, 5, -6]"),
        constant("axes", "int64", "[1]", "[1]"),
        node("s", "Sum", "float", r#""x", "axes""#, r#", "Tidx": {"type": "int64"}"#),
    ];
    assert_eq!(value(&long, "s:0"), "[2. 3.]");
}

#[test]
fn wrong_inputs_have_messages_of_tensorflow() {
    let a = || constant("a", "int32", "[2, 3]", "[1]");
    let of =
        |b: String, op: &str| failure(&[a(), b, node("c", op, "int32", r#""a", "b""#, "")], "c");
    let b = |shape: &str| constant("b", "int32", shape, "[0]");
    assert_eq!(of(b("[2]"), "Add"), "c: Incompatible shapes: [2,3] vs. [2]");
    assert_eq!(
        of(b("[2, 3]"), "MatMul"),
        "c: Matrix size-incompatible: In[0]: [2,3], In[1]: [2,3]"
    );
    assert_eq!(of(b("[3]"), "MatMul"), "c: Matrix size-incompatible: In[0]: [2,3], In[1]: [3]");
    assert_eq!(of(b("[]"), "Div"), "c: Integer division by zero");
    let sum = |axes: &str| {
        let axes = constant("axes", "int32", "[2]", axes);
        failure(&[a(), axes, node("c", "Sum", "int32", r#""a", "axes""#, "")], "c")
    };
    assert_eq!(sum("[0, 2]"), "c: Invalid reduction dimension 2 for input with 2 dimensions");
    assert_eq!(sum("[1, -1]"), "c: Invalid reduction dimension -1 for input with 2 dimensions");
    assert_eq!(sum("[0, -3]"), "c: Invalid reduction dimension -3 for input with 2 dimensions");
}

/// A counter that starts at 10: `bump` adds 5, and `y` = 2 · `x` runs after it.
fn counter() -> Vec<String> {
    vec![
        variable("x", "float", "[]"),
        constant("start", "float", "[]", "[10]"),
        node("x/Assign", "Assign", "float", r#""x", "start""#, ""),
        node("init", "NoOp", "float", r#""^x/Assign""#, ""),
        constant("five", "float", "[]", "[5]"),
        constant("two", "float", "[]", "[2]"),
        node("bump", "AssignAdd", "float", r#""x", "five""#, ""),
        node("before", "Mul", "float", r#""x", "two""#, ""),
        node("y", "Mul", "float", r#""x", "two", "^bump""#, ""),
    ]
}

#[test]
fn control_edge_orders_variable_and_its_reader() {
    let graph = graph(&counter().join(","));
    for threads in [1, 2, 4] {
        let found = values(&graph, &["y", "x:0"], &options(threads, 1)).unwrap();
        assert_eq!(found, ["30.0", "15.0"]);
        // Without `y`, nothing needs `bump`.
        assert_eq!(values(&graph, &["before"], &options(threads, 1)).unwrap(), ["20.0"]);
        // Without an edge, the order of the graph counts: `bump` is before `before`.
        let all = Program::of(&graph, &[]).unwrap().run(&options(threads, 2)).unwrap();
        let names: Vec<_> = all
            .fetched
            .iter()
            .map(|of| (&*of.name, of.tensor.as_ref().unwrap().to_string()))
            .collect();
        assert_eq!(names, [("before:0", "30.0".to_owned()), ("y:0", "30.0".to_owned())]);
    }
}

#[test]
fn initializers_run_first_and_in_the_order_of_their_variables() {
    // `w` starts as 3 · `v`, and its initializer is before that of `v` in the file.
    let nodes = [
        variable("w", "int64", "[2]"),
        variable("v", "int64", "[2]"),
        constant("three", "int64", "[]", "[3]"),
        node("v/read", "Identity", "int64", r#""v""#, ""),
        node("triple", "Mul", "int64", r#""v/read", "three""#, ""),
        node("w/Assign", "Assign", "int64", r#""w", "triple""#, ""),
        constant("start", "int64", "[2]", "[1, 2]"),
        node("v/Assign", "Assign", "int64", r#""v", "start""#, ""),
        node("w/read", "Identity", "int64", r#""w""#, ""),
    ];
    assert_eq!(value(&nodes, "w/read"), "[3 6]");
    let wrong = [
        variable("v", "int64", "[3]"),
        constant("start", "int64", "[2]", "[1, 2]"),
        node("v/Assign", "Assign", "int64", r#""v", "start""#, ""),
    ];
    assert_eq!(
        failure(&wrong, "v"),
        "v/Assign: Assign requires shapes of both tensors to match. lhs shape= [3] rhs shape= [2]"
    );
    let none = [variable("v", "int64", "[3]"), node("r", "Identity", "int64", r#""v""#, "")];
    assert_eq!(failure(&none, "r"), "r: Attempting to use uninitialized value v");
}

#[test]
fn initializer_is_the_assignment_named_after_its_variable_or_else_the_first() {
    let of = |names: [&str; 2]| {
        let assign = |name: &str, from: &str| {
            node(name, "Assign", "int32", &format!(r#""v", "{from}""#), "")
        };
        let nodes = [
            variable("v", "int32", "[]"),
            constant("one", "int32", "[]", "[1]"),
            constant("two", "int32", "[]", "[2]"),
            assign(names[0], "one"),
            assign(names[1], "two"),
            node("r", "Identity", "int32", r#""v""#, ""),
        ];
        value(&nodes, "r")
    };
    assert_eq!((of(["set", "v/Assign"]), of(["v/Assign", "set"])), ("2".into(), "1".into()));
    assert_eq!(of(["set", "w/Assign"]), "1");
}

#[test]
fn variable_descends_along_its_gradient() {
    let nodes = |gradient: &str| {
        vec![
            variable("v", "float", "[2]"),
            constant("start", "float", "[2]", "[10, 20]"),
            node("v/Assign", "Assign", "float", r#""v", "start""#, ""),
            constant("rate", "float", "[]", "[0.5]"),
            constant("g", "float", gradient, "[2, 4]"),
            node("step", "ApplyGradientDescent", "float", r#""v", "rate", "g""#, ""),
            node("r", "Identity", "float", r#""v", "^step""#, ""),
        ]
    };
    assert_eq!(value(&nodes("[2]"), "r"), "[ 9. 18.]");
    assert_eq!(
        failure(&nodes("[1, 2]"), "r"),
        "step: Assign requires shapes of both tensors to match. lhs shape= [2] rhs shape= [1,2]"
    );
}

#[test]
fn operations_without_users_are_the_default_except_for_initializers_and_their_group() {
    let nodes = [
        variable("v", "float", "[]"),
        constant("start", "float", "[]", "[1]"),
        node("v/Assign", "Assign", "float", r#""v", "start""#, ""),
        node("init", "NoOp", "float", r#""^v/Assign""#, ""),
        node("later", "Neg", "float", r#""start", "^v/Assign""#, ""),
        node("nothing", "NoOp", "float", "", ""),
    ];
    let graph = graph(&nodes.join(","));
    let outcome = Program::of(&graph, &[]).unwrap().run(&options(1, 1)).unwrap();
    let names: Vec<_> = outcome.fetched.iter().map(|of| &*of.name).collect();
    assert_eq!(names, ["later:0", "nothing"]);
}

#[test]
fn tasks_and_values_follow_the_edges_of_a_graph() {
    let nodes = [
        constant("a", "float", "[]", "[1]"),
        node("b", "Neg", "float", r#""a""#, ""),
        node("c", "Add", "float", r#""b", "b", "^a""#, ""),
    ];
    let graph = graph(&nodes.join(","));
    let tasks = TaskGraph::of(&graph).unwrap();
    assert_eq!((tasks.len(), tasks.edges(), &*tasks.name(NodeIx(2))), (3, 3, "c"));
    let values = Values::of(&graph).unwrap();
    values.of_node(NodeIx(1)).set_output(0, 7_u32).unwrap();
    let read = |input| values.of_node(NodeIx(2)).input::<u32>(input).map(|of| *of);
    assert_eq!((read(0), read(1)), (Ok(7), Ok(7)));
    assert_eq!(read(2), Err(ValueError::Unknown(Port::Input(NodeIx(2), 2))));
}

#[test]
fn resource_variables_keep_values() {
    let float = r#""dtype": {"type": "float"}"#;
    let of = |name: &str, op: &str, inputs: &str| {
        format!(r#"{{"name": "{name}", "op": "{op}", "inputs": [{inputs}], "attrs": {{{float}}}}}"#)
    };
    let nodes = [
        of("v", "VarHandleOp", ""),
        constant("one", "float", "[2]", "[1]"),
        of("v/Assign", "AssignVariableOp", r#""v", "one""#),
        of("more", "AssignSubVariableOp", r#""v", "one""#),
        of("r", "ReadVariableOp", r#""v", "^more""#),
    ];
    assert_eq!(value(&nodes, "r"), "[0. 0.]");
}

#[test]
fn handle_of_a_variable_passes_through_before_it_has_a_value() {
    let of = |name: &str, op: &str, key: &str, dtype: &str, inputs: &str| {
        format!(
            r#"{{"name": "{name}", "op": "{op}", "inputs": [{inputs}],
                "attrs": {{"{key}": {{"type": "{dtype}"}}}}}}"#
        )
    };
    let nodes = [
        of("v", "VarHandleOp", "dtype", "float", ""),
        of("h", "Identity", "T", "resource", r#""v""#),
        constant("one", "float", "[2]", "[1]"),
        of("h/Assign", "AssignVariableOp", "dtype", "float", r#""h", "one""#),
        of("more", "AssignAddVariableOp", "dtype", "float", r#""h", "one", "^h/Assign""#),
        of("r", "ReadVariableOp", "dtype", "float", r#""h", "^more""#),
    ];
    assert_eq!(value(&nodes, "r"), "[2. 2.]");
}

#[test]
fn each_step_of_an_offset_counts_as_work() {
    let nodes = [
        constant("a", "float", "[2, 3]", "[1]"),
        constant("b", "float", "[3]", "[1]"),
        node("c", "Add", "float", r#""a", "b""#, ""),
    ];
    let graph = graph(&nodes.join(","));
    let limited = |steps| {
        let limits = RunLimits { steps, ..RunLimits::default() };
        values(&graph, &["c"], &ProgramOptions { limits, ..options(1, 1) }).is_ok()
    };
    // 15 elements; for each of 6 outputs one step in the first input, and two in the second.
    assert!(limited(33) && !limited(32));
}

#[test]
fn constant_without_a_value_and_variable_of_text_have_no_kernel() {
    let empty = r#"{"name": "a", "op": "Const", "attrs": {"dtype": {"type": "float"}}}"#;
    let graph = graph(empty);
    let error = Program::of(&graph, &["a".to_owned()]).map(drop).unwrap_err();
    assert_eq!(error.to_string(), "compute Const");
    let text = r#"{"name": "a", "op": "VarHandleOp", "attrs": {"dtype": {"type": "string"}}}"#;
    let graph = self::graph(text);
    let error = Program::of(&graph, &["a".to_owned()]).map(drop).unwrap_err();
    assert_eq!(error.to_string(), "compute VarHandleOp");
}

#[test]
fn hostile_shapes_are_refused_before_memory_is_reserved() {
    let large = constant("a", "float", "[1000000, 1000000]", "[1]");
    assert_eq!(
        failure(&[large], "a"),
        "a: Const of shape [1000000,1000000]: the tensors of a run are limited to 2147483648 bytes"
    );
    let shape = format!("[{}]", ["4294967296"; 4].join(","));
    assert!(failure(&[constant("a", "float", &shape, "[]")], "a").contains("Const of shape"));
    let (row, column) = (
        constant("a", "double", "[1, 100000]", "[1]"),
        constant("b", "double", "[100000, 1]", "[1]"),
    );
    let sum = node("c", "Add", "double", r#""a", "b""#, "");
    assert!(failure(&[row, column, sum], "c").starts_with("c: Add of shape [100000,100000]"));
    // Many small outputs count together, and so does work without a large output.
    let graph = graph(
        &[
            constant("a", "float", "[100, 100]", "[1]"),
            node("b", "MatMul", "float", r#""a", "a""#, ""),
            node("c", "MatMul", "float", r#""b", "a""#, ""),
        ]
        .join(","),
    );
    let limited = |memory, steps| {
        let limits = RunLimits { memory: Bytes(memory), steps };
        values(&graph, &["c"], &ProgramOptions { limits, ..options(1, 1) }).is_ok()
    };
    // 3 outputs of 40,000 bytes; 30,000 elements and 2 · 10⁶ products.
    assert!(limited(120_000, 2_030_000));
    assert!(!limited(119_999, 2_030_000) && !limited(120_000, 2_029_999));
}

#[test]
fn values_do_not_depend_on_the_number_of_threads() {
    let side = 150;
    let numbers = |seed: usize| {
        let of = |at: usize| format!("{:.3}", ((at * 7919 + seed) % 1013) as f64 / 100.0 - 5.0);
        format!("[{}]", (0..side * side).map(of).collect::<Vec<_>>().join(","))
    };
    let shape = format!("[{side}, {side}]");
    let mut nodes = vec![
        constant("a", "float", &shape, &numbers(1)),
        constant("b", "float", &shape, &numbers(2)),
        constant("axis", "int32", "[]", "[0]"),
        variable("v", "float", &shape),
        node("v/Assign", "Assign", "float", r#""v", "a""#, ""),
    ];
    for at in 0..12 {
        nodes.push(node(&format!("m{at}"), "MatMul", "float", r#""a", "b""#, ""));
        nodes.push(node(&format!("u{at}"), "AssignAdd", "float", &format!(r#""v", "m{at}""#), ""));
        nodes.push(node(&format!("s{at}"), "Sum", "float", r#""v", "axis""#, ""));
    }
    let graph = graph(&nodes.join(","));
    let fetches: Vec<String> = (0..12).map(|at| format!("s{at}")).collect();
    let fetches: Vec<&str> = fetches.iter().map(String::as_str).collect();
    let of = |inter, intra| values(&graph, &fetches, &options(inter, intra)).unwrap();
    let alone = of(1, 1);
    for (inter, intra) in [(1, 4), (4, 1), (4, 4), (2, 3)] {
        assert!(of(inter, intra) == alone, "{inter} and {intra} threads");
    }
}

#[test]
fn unknown_fetches_and_operations_are_named() {
    let graph =
        graph(&[counter(), vec![node("deep", "Tanh", "float", r#""y""#, "")]].concat().join(","));
    let of = |name: &str| Program::of(&graph, &[name.to_owned()]).map(drop);
    assert_eq!(of("zz").unwrap_err().to_string(), "fetch 'zz': the graph has no such operation");
    for name in ["y:1", "y:-1", "y:x", "init:0"] {
        assert!(matches!(of(name), Err(ProgramError::UnknownOutput { .. })), "{name}");
    }
    assert_eq!(of("deep").unwrap_err().to_string(), "compute Tanh");
    // What does not need the operation runs.
    assert_eq!((of("y"), of("init")), (Ok(()), Ok(())));
    let done = Program::of(&graph, &["init".to_owned()]).unwrap().run(&options(1, 1)).unwrap();
    assert_eq!((&*done.fetched[0].name, &done.fetched[0].tensor), ("init", &None));
}

#[test]
fn steps_of_a_reduction_split_scale_and_join() {
    let float = r#""T": {"type": "float"}"#;
    let of = |name: &str, op: &str, inputs: &str, more: &str| {
        format!(
            r#"{{"name": "{name}", "op": "{op}", "inputs": [{inputs}], "attrs": {{{float}{more}}}}}"#
        )
    };
    let nodes = [
        constant("v", "float", "[1, 5]", "[1, 2, 3, 4, 5]"),
        of("split", replicate::SPLIT, r#""v""#, r#", "N": 2"#),
        of("scale", replicate::SCALE, r#""split:1""#, r#", "factor": 0.5"#),
        of("join", replicate::JOIN, r#""v", "split", "scale""#, r#", "N": 2"#),
    ];
    let graph = graph(&nodes.join(","));
    let program = Program::of(&graph, &["join".to_owned()]).unwrap();
    let outcome = program.run(&options(1, 1)).unwrap();
    let tensor = outcome.fetched[0].tensor.clone().unwrap();
    assert_eq!(tensor.shape(), [1, 5]);
    assert_eq!(*tensor.data(), Data::Float(vec![1.0, 2.0, 3.0, 2.0, 2.5]));
    // 20 bytes of the constant, 20 of its two parts, 8 of the scaled one, and 20 of the result.
    let limited = |memory| {
        let limits = RunLimits { memory: Bytes(memory), ..RunLimits::default() };
        values(&graph, &["join"], &ProgramOptions { limits, ..options(1, 1) }).is_ok()
    };
    assert!(limited(68) && !limited(67));
}

#[test]
fn message_names_six_operations_without_a_kernel() {
    let of = |count: usize| {
        let unknown = ["Tanh", "Exp", "Log", "Sqrt", "Square", "Sigmoid", "Tanh", "Abs"];
        let nodes = unknown[..count].iter().enumerate();
        let nodes = nodes.map(|(at, op)| node(&format!("n{at}"), op, "float", r#""a""#, ""));
        let nodes: Vec<String> =
            [constant("a", "float", "[]", "[1]")].into_iter().chain(nodes).collect();
        Program::of(&graph(&nodes.join(",")), &[]).map(drop).unwrap_err().to_string()
    };
    assert_eq!(of(7), "compute Exp, Log, Sigmoid, Sqrt, Square, Tanh (2 times)");
    assert_eq!(of(8), "compute Abs, Exp, Log, Sigmoid, Sqrt, Square, …");
}

#[test]
fn placed_graph_runs_for_real_or_in_virtual_time() {
    let devices = DeviceSet::new(["/cpu:0", "/gpu:0"].into_iter().filter_map(Device::local));
    let registry = Registry::tensorflow();
    let cluster =
        Cluster::of_devices(&devices, &Default::default(), &Default::default(), &Rates::default());
    let ran = |last: &str| {
        let nodes = [
            constant("a", "float", "[2]", "[1, -2]"),
            node("b", "Neg", "float", r#""a""#, ""),
            node("c", last, "float", r#""b""#, ""),
        ];
        let graph = graph(&nodes.join(","));
        let placement = place(&graph, &registry, &devices, &Default::default()).unwrap();
        let placed = PlacedGraph {
            graph: &graph,
            registry: &registry,
            devices: &devices,
            placement: &placement,
        };
        let run = Options { clock: Some(Arc::new(Ticks::default())), ..Options::default() };
        let options = ProgramOptions { run, ..options(1, 1) };
        run_placed(placed, &cluster, &["c".to_owned()], &options).unwrap()
    };
    let names = |of: &Ran| -> Vec<String> {
        of.trace.spans.iter().map(|span| of.tasks.name(span.node).to_string()).collect()
    };
    let real = ran("Relu");
    assert_eq!(real.values[0].tensor.as_ref().unwrap().to_string(), "[0. 2.]");
    assert_eq!(names(&real), ["a", "b", "c", "fetch"]);
    assert_eq!((real.unsupported.len(), real.trace.lanes.len()), (0, 1));
    let virtually = ran("Tanh");
    assert_eq!(virtually.unsupported, [("Tanh".to_owned(), 1)].into());
    assert_eq!(
        (names(&virtually), virtually.values.len()),
        (vec!["a".into(), "b".into(), "c".into()], 0)
    );
    assert_eq!(virtually.trace.lanes.len(), 2);
}
