//! JSON documents and ONNX models.

use super::*;

const EXAMPLE: &str = r#"{
  "devices": ["/cpu:0", "/job:w/task:1/gpu:0"],
  "remote_devices": ["/job:w/task:2/gpu:0"],
  "nodes": [
    {"name": "a", "op": "Const", "device": "/cpu:0", "nanos": {"CPU": 5, "GPU": 2},
     "outputs": [{"type": "float", "shape": [2, 3], "bytes": 24}, "int32_ref"]},
    {"name": "c", "op": "MatMul", "inputs": ["a", "a:1"], "colocate_with": ["a"], "nanos": 7,
     "attrs": {"_class": "loc:@b"}}
  ],
  "ops": [{"name": "MatMul", "stateful": true, "attrs": {"T": {"type": "half"}, "N": null},
    "inputs": [{"name": "a", "type_attr": "T"}, {"name": "r", "type": "float_ref"}],
    "outputs": [{"name": "c", "type_attr": "T", "number_attr": "N"}]}],
  "kernels": [{"op": "MatMul", "device": "GPU", "priority": 1, "nanos": 9,
    "constraints": {"T": ["float", "half"]}, "host_memory": ["c"]}]
}"#;

#[test]
fn document_has_graph_operations_kernels_and_devices() {
    let Document { form, graph, registry, devices, notes } = read(EXAMPLE).unwrap();
    assert_eq!((form, notes.len()), (Form::Json, 0));
    let devices: Vec<_> =
        devices.iter().flatten().map(|of| (of.name.to_string(), of.is_local)).collect();
    assert_eq!(
        devices,
        [
            ("/job:localhost/replica:0/task:0/device:CPU:0".to_owned(), true),
            ("/job:w/replica:0/task:1/device:GPU:0".to_owned(), true),
            ("/job:w/replica:0/task:2/device:GPU:0".to_owned(), false),
        ]
    );
    let [a, c] = graph.nodes.as_slice() else { panic!("{graph:?}") };
    let types = a.outputs.as_ref().unwrap();
    assert_eq!(
        types.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["DT_FLOAT", "DT_INT32_REF"]
    );
    assert_eq!(a.attrs["_nanos_CPU"], Attr::Int(5));
    assert_eq!(a.attrs["_nanos_GPU"], Attr::Int(2));
    assert_eq!(a.attrs["_output_bytes"], Attr::List(vec![Attr::Int(24), Attr::Int(-1)]));
    let shapes = vec![Attr::Shape(Some(vec![2, 3])), Attr::Shape(None)];
    assert_eq!(a.attrs["_output_shapes"], Attr::List(shapes));
    let classes = ["loc:@b", "loc:@a"].map(|name| Attr::Text(name.to_owned()));
    assert_eq!(c.attrs["_class"], Attr::List(classes.to_vec()));
    assert_eq!((c.attrs.get("_nanos"), &c.outputs), (Some(&Attr::Int(7)), &None));
    let registry = registry.unwrap();
    let op = registry.op("MatMul").unwrap();
    assert!(op.stateful && op.inputs[1].reference && !op.inputs[0].reference);
    assert_eq!(op.attrs["N"], None);
    let [kernel] = registry.kernels("MatMul") else { panic!("one kernel") };
    assert_eq!((kernel.priority, kernel.nanos, kernel.host_memory.len()), (1, Some(9), 1));
    assert_eq!(kernel.constraints["T"].len(), 2);
}

#[test]
fn documented_examples_are_read() {
    let page = include_str!("../../../../../docs/graph-formats.md");
    let examples = page.split("```json\n").skip(1).filter_map(|rest| rest.split("```").next());
    let graphs: Vec<_> = examples.map(|json| read(json).unwrap().graph).collect();
    let names: Vec<_> = graphs[0].nodes.iter().map(|node| node.name.as_str()).collect();
    assert_eq!((graphs.len(), names), (2, vec!["a", "b", "c"]));
    assert_eq!(graphs[0].nodes[2].device, "");
    assert_eq!(graphs[1].nodes[1].attrs["_nanos_GPU"], Attr::Int(25_000));
}

#[test]
fn documents_violating_the_form_are_refused() {
    for (json, reason) in [
        (r#"{"schema": 2}"#, "'schema' is not 1"),
        (r#"{"devices": ["/cpu"]}"#, "malformed device '/cpu'"),
        (r#"{"devices": ["/job:a"]}"#, "malformed device '/job:a'"),
        (
            r#"{"ops": [{"name": "A", "inputs": [{"name": "x"}]}]}"#,
            "operation 'A': argument 'x' needs one of 'type', 'type_attr' and 'type_list_attr'",
        ),
        (
            r#"{"nodes": [{"name": "a", "op": "b", "outputs": ["flaot"]}]}"#,
            "expected the name of an element type, or an object with a type",
        ),
        (
            r#"{"nodes": [{"name": "a", "op": "b", "nanos": -1}]}"#,
            "expected a number of nanoseconds, or an object with one for each device type",
        ),
        (
            r#"{"nodes": [{"name": "a", "op": "b", "attrs": {"x": 9223372036854775808}}]}"#,
            "a number above 64 bits",
        ),
    ] {
        assert!(error(json).ends_with(reason), "{}", error(json));
    }
    let two =
        r#"{"nodes": [{"name": "a", "op": "b", "attrs": {"x": {"type": "int8", "shape": []}}}]}"#;
    assert!(read(two).is_err());
}

/// A field with a length.
fn part(number: u8, content: impl AsRef<[u8]>) -> Vec<u8> {
    let content = content.as_ref();
    let mut bytes = key(number, 2);
    prost::encode_length_delimiter(content.len(), &mut bytes).unwrap();
    bytes.extend_from_slice(content);
    bytes
}

/// A field with a number below 128.
fn small(number: u8, value: u8) -> Vec<u8> {
    [key(number, 0), vec![value]].concat()
}

fn key(number: u8, wire_type: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    // A length is a number like any other.
    prost::encode_length_delimiter(usize::from(number) << 3 | wire_type, &mut bytes).unwrap();
    bytes
}

/// An ONNX value: name, element type, dimensions (0 for a variable one).
fn value(name: &str, element: u8, dims: &[u8]) -> Vec<u8> {
    let dim = |size: &u8| match size {
        0 => part(1, part(2, "batch")),
        _ => part(1, small(1, *size)),
    };
    let shape: Vec<u8> = dims.iter().flat_map(dim).collect();
    let tensor = [small(1, element), part(2, shape)].concat();
    [part(1, name), part(2, part(1, tensor))].concat()
}

fn model(graph: &[Vec<u8>]) -> Vec<u8> {
    [small(1, 8), part(7, graph.concat())].concat()
}

fn onnx_node(inputs: &[&str], outputs: &[&str], name: &str, op: &str) -> Vec<u8> {
    let inputs = inputs.iter().flat_map(|name| part(1, name));
    let outputs = outputs.iter().flat_map(|name| part(2, name));
    inputs.chain(outputs).chain(part(3, name)).chain(part(4, op)).collect()
}

#[test]
fn values_of_an_onnx_model_become_outputs_of_nodes() {
    let weights = [small(1, 3), small(1, 5), small(2, 16), part(8, "w:0")].concat();
    let location = part(13, [part(1, "location"), part(2, "w.bin")].concat());
    let split = [onnx_node(&["y", "", "w:0"], &["", "l", "i"], "", "TopK"), part(7, "my.domain")];
    let branch = [part(1, "then"), part(6, [part(1, ""), part(1, "")].concat()), small(20, 5)];
    let to = [part(1, "to"), small(3, 10), small(20, 2)].concat();
    let axes = [part(1, "axes"), part(8, [1, 2, 3]), small(20, 7)].concat();
    let cast = [onnx_node(&["l"], &["z"], "/é^n:1", "Cast"), part(5, to), part(5, axes)].concat();
    let file = model(&[
        part(1, [onnx_node(&["x", "w:0"], &["y"], "x", "Gemm"), part(5, branch.concat())].concat()),
        part(1, split.concat()),
        part(1, cast),
        part(5, [weights, location].concat()),
        part(11, value("x", 1, &[0, 5])),
        part(11, value("w:0", 16, &[3, 5])),
        part(12, value("z", 10, &[2])),
    ]);
    let Document { form, graph, notes, .. } = read(&file).unwrap();
    assert_eq!(form, Form::Onnx);
    let [x, w, gemm, top, cast] = graph.nodes.as_slice() else { panic!("{graph:?}") };
    assert_eq!((x.name.as_str(), x.op.as_str()), ("x", "Input"));
    assert_eq!(x.attrs["_output_shapes"], Attr::List(vec![Attr::Shape(Some(vec![-1, 5]))]));
    assert_eq!((w.name.as_str(), w.op.as_str()), ("w_0", "Initializer"));
    assert_eq!(w.attrs["_output_bytes"], Attr::List(vec![Attr::Int(30)]));
    assert_eq!(w.attrs["location"], Attr::Text("w.bin".to_owned()));
    assert_eq!(w.outputs.as_ref().unwrap()[0].to_string(), "DT_BFLOAT16");
    assert_eq!(
        (gemm.name.as_str(), gemm.inputs.as_slice()),
        ("x_2", ["x", "w_0"].map(String::from).as_slice())
    );
    assert_eq!(gemm.attrs["then"], Attr::Int(2));
    assert_eq!((top.name.as_str(), top.op.as_str()), ("TopK_3", "my.domain.TopK"));
    assert_eq!(top.inputs, ["x_2", "w_0"]);
    let types = |node: &NodeDef| -> Vec<_> {
        node.outputs.iter().flatten().map(ToString::to_string).collect()
    };
    assert_eq!(types(top), ["DT_FLOAT", "DT_INT64", "DT_FLOAT"]);
    assert_eq!(
        (cast.inputs.as_slice(), types(cast)),
        (["TopK_3:1".to_owned()].as_slice(), vec!["DT_HALF".to_owned()])
    );
    assert_eq!(cast.name, "_/__n_1");
    assert_eq!(cast.attrs["axes"], Attr::List([1, 2, 3].map(Attr::Int).to_vec()));
    assert_eq!(notes.len(), 2, "{notes:?}");
    for end in 0..file.len() {
        let _ = read_as(Form::Onnx, &file[..end]);
        let mut changed = file.clone();
        changed[end] ^= 0x55;
        let _ = read_as(Form::Onnx, changed);
    }
}

#[test]
fn inconsistent_onnx_models_are_refused() {
    let x = part(11, value("x", 1, &[1]));
    let relu = |input: &str, output: &str| part(1, onnx_node(&[input], &[output], "n", "Relu"));
    let twice = model(&[x.clone(), relu("x", "y"), relu("x", "y")]);
    assert!(error(twice).ends_with("two nodes produce 'y'"));
    let unknown = model(&[x.clone(), relu("zz", "y")]);
    assert!(error(unknown).ends_with("nothing produces 'zz', an input of a node Relu"));
    let unnamed = model(&[part(1, part(3, "n"))]);
    assert!(error(unnamed).ends_with("node 'n' has no op_type"));
    // A file in which nodes come before their inputs is read as well.
    let reversed = model(&[relu("y", "z"), relu("x", "y"), x]);
    assert_eq!(read(reversed).unwrap().graph.nodes[1].inputs, ["n_2"]);
    let huge = [&[8][..], &[0xff; 8], &[0x7f], &small(1, 9), &small(2, 1), &part(8, "h")].concat();
    let node = &read(model(&[part(5, huge)])).unwrap().graph.nodes[0];
    assert_eq!(node.attrs.get("_output_bytes"), None);
}

#[test]
fn nodes_of_onnx_models_count_against_the_memory() {
    let input = part(11, value("x", 1, &[]));
    let initializer = part(5, [small(2, 1), small(1, 0), part(8, "w")].concat());
    let node = part(1, onnx_node(&[], &["y"], "n", "Relu"));
    for part in [input, initializer, node] {
        let file = model(&[part]);
        let read = |memory| super::super::graph(&file, &Limits { memory, ..Limits::default() });
        assert!(read(1_500).is_err());
        let graph = read(1 << 20).unwrap().graph;
        assert_eq!(graph.nodes.len(), 1);
        if let Some(bytes) = graph.nodes[0].attrs.get("_output_bytes") {
            assert_eq!(bytes, &Attr::List(vec![Attr::Int(0)]));
        }
    }
}
