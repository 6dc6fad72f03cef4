//! All forms of one graph are read as that graph; hostile files are refused within the limits.

mod contents;
mod hostile;
mod models;
mod printed;
mod protobuf;

use super::{Document, Form, Limits, Location, ReadError, Reason, detect};
use crate::def::{ArgDef, ArgKind, Attr, FunctionDef, GraphDef, NodeDef, OpDef};
use crate::dtype::ValueType;
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use prost::Message;
use std::collections::BTreeMap;

fn read(file: impl AsRef<[u8]>) -> Result<Document, ReadError> {
    super::graph(file.as_ref(), &Limits::default())
}

fn read_as(form: Form, file: impl AsRef<[u8]>) -> Result<GraphDef, ReadError> {
    super::graph_as(form, file.as_ref(), &Limits::default()).map(|document| document.graph)
}

/// Returns the error as shown to a user.
fn error(file: impl AsRef<[u8]>) -> String {
    read(file).map(|document| document.graph).unwrap_err().to_string()
}

fn a_type() -> impl Strategy<Value = ValueType> {
    (1u32..34, any::<bool>()).prop_map(|(number, reference)| {
        let of = ValueType::numbered(number).unwrap();
        ValueType { reference, ..of }
    })
}

fn a_shape() -> impl Strategy<Value = Option<Vec<i64>>> {
    option::of(vec(any::<i64>(), 0..3))
}

fn a_single_value() -> BoxedStrategy<Attr> {
    let tensor = (option::of(a_type()), a_shape());
    prop_oneof![
        any::<i64>().prop_map(Attr::Int),
        any::<i16>().prop_map(|number| Attr::Float(f64::from(number) / 8.0)),
        any::<bool>().prop_map(Attr::Bool),
        any::<String>().prop_map(Attr::Text),
        a_type().prop_map(Attr::Type),
        a_shape().prop_map(Attr::Shape),
        tensor.prop_map(|(of, shape)| Attr::Tensor {
            dtype: of.map(|of| of.dtype),
            shape,
            content: None
        }),
    ]
    .boxed()
}

fn a_value() -> impl Strategy<Value = Attr> {
    let leaf = prop_oneof![
        4 => a_single_value(),
        1 => any::<String>().prop_map(Attr::Placeholder),
        1 => (a_single_value(), 0usize..4).prop_map(|(item, count)| Attr::List(vec![item; count])),
        1 => vec(any::<i64>().prop_map(Attr::Int), 0..4).prop_map(Attr::List),
    ];
    leaf.prop_recursive(3, 8, 2, |inner| {
        let attrs = btree_map("[a-zA-Z_]{1,4}", inner, 0..2);
        let function = (any::<String>(), attrs).prop_map(|(name, of)| Attr::Function(name, of));
        prop_oneof![function.clone(), vec(function, 1..3).prop_map(Attr::List)]
    })
}

fn some_attrs() -> impl Strategy<Value = BTreeMap<String, Attr>> {
    btree_map(any::<String>(), a_value(), 0..3)
}

fn a_node() -> impl Strategy<Value = NodeDef> {
    let name = || ".{1,6}";
    (name(), name(), vec(any::<String>(), 0..4), any::<String>(), some_attrs()).prop_map(
        |(name, op, inputs, device, attrs)| NodeDef {
            name,
            op,
            inputs,
            device,
            attrs,
            outputs: None,
        },
    )
}

fn an_argument() -> impl Strategy<Value = ArgDef> {
    let name = || "[a-zA-Z]{1,4}";
    let kind = prop_oneof![
        a_type().prop_map(|of| ArgKind::Type(of.dtype)),
        name().prop_map(ArgKind::TypeAttr),
        name().prop_map(ArgKind::TypeListAttr),
        (name(), name())
            .prop_map(|(count, of)| { ArgKind::Repeated(count, Box::new(ArgKind::TypeAttr(of))) }),
    ];
    (name(), kind, any::<bool>()).prop_map(|(name, kind, reference)| ArgDef {
        name,
        kind,
        reference,
    })
}

fn a_function() -> impl Strategy<Value = FunctionDef> {
    let attrs = btree_map("[a-zA-Z]{1,4}", option::of(a_value()), 0..2);
    let signature =
        (".{1,5}", vec(an_argument(), 0..3), vec(an_argument(), 0..3), attrs, any::<bool>())
            .prop_map(|(name, inputs, outputs, attrs, stateful)| OpDef {
                name,
                inputs,
                outputs,
                attrs,
                stateful,
            });
    let returns = btree_map(any::<String>(), any::<String>(), 0..3);
    (signature, vec(a_node(), 0..3), returns).prop_map(|(signature, nodes, returns)| FunctionDef {
        signature,
        nodes,
        returns,
    })
}

fn a_graph() -> impl Strategy<Value = GraphDef> {
    (vec(a_node(), 0..4), vec(a_function(), 0..2))
        .prop_map(|(nodes, functions)| GraphDef { nodes, functions })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn every_form_of_a_graph_reads_as_the_same_graph(def in a_graph()) {
        let binary = protobuf::graph(&def).encode_to_vec();
        prop_assert_eq!(read_as(Form::GraphBinary, &binary), Ok(def.clone()));
        let text = printed::text(&def);
        prop_assert_eq!(read_as(Form::GraphText, &text), Ok(def.clone()), "{}", text);
        let json = printed::json(&def);
        prop_assert_eq!(read_as(Form::Json, &json), Ok(def.clone()), "{}", json);
        prop_assert_eq!(detect(json.as_bytes()), Ok(Form::Json));
        prop_assert_eq!(detect(text.as_bytes()), Ok(Form::GraphText));
        if !def.nodes.is_empty() {
            let detected = detect(&binary).unwrap();
            let capitals = !def.nodes[0].op.contains(|c: char| c.is_ascii_lowercase());
            prop_assert!(detected == Form::GraphBinary || capitals || def.nodes[0].op.contains(char::is_control));
            let graph_def = Some(protobuf::graph(&def));
            let meta = protobuf::MetaGraph { graph_def };
            prop_assert_eq!(read_as(Form::MetaGraph, meta.encode_to_vec()), Ok(def.clone()));
            let saved_model_schema_version = 1;
            let model = protobuf::SavedModel { saved_model_schema_version, meta_graphs: vec![meta] };
            let document = read(model.encode_to_vec());
            let found = document.map(|document| (document.form, document.graph));
            prop_assert_eq!(found, Ok((Form::SavedModel, def)));
        }
    }

    #[test]
    fn changed_bytes_are_read_only_where_another_decoder_reads_them(
        def in a_graph(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut binary = protobuf::graph(&def).encode_to_vec();
        if !binary.is_empty() {
            let at = at.index(binary.len());
            binary[at] = byte;
        }
        if read_as(Form::GraphBinary, &binary).is_ok() {
            prop_assert!(protobuf::Graph::decode(binary.as_slice()).is_ok());
        }
    }
}

#[test]
fn errors_name_the_line_and_the_column() {
    let text = "node {\n  name: \"a\"\n  opp: \"NoOp\"\n}\n";
    assert_eq!(
        error(text),
        "read the GraphDef in text form at line 3, column 3: unknown field 'opp'"
    );
    let location = Location::Line { line: 1, column: 25 };
    let unknown = "node { attr { key: \"T\" value { type: DT_FLOT } } }";
    let found = read(unknown).unwrap_err();
    assert_eq!(found.location, Location::Line { line: 1, column: 38 });
    let unclosed = read("node { name: \"a\" op: \"b\" ").unwrap_err();
    assert_eq!(unclosed.location, Location::Line { line: 1, column: 26 });
    assert_ne!(unclosed.location, location);
    let json = "{\n \"nodes\": [\n {\"name\": \"a\", \"op\": \"b\", \"devise\": \"\"}]}";
    let found = error(json);
    let start = "read the graph in JSON at line 3, column 34: unknown field `devise`";
    assert!(found.starts_with(start), "{found}");
}

#[test]
fn nodes_need_names_and_operations() {
    assert!(error("node { op: 'b' }").ends_with("a node has no name"));
    assert!(error("node { name: 'a' }").ends_with("node 'a' has no operation"));
    assert!(error(r#"{"nodes": [{"name": "", "op": "b"}]}"#).contains("expected a name"));
    assert!(error(r#"{"nodes": [{"name": "a"}]}"#).contains("missing field `op`"));
}

/// Reads the value of an attribute in text form.
fn value(text: &str) -> Attr {
    let text = format!("node {{ name: 'a' op: 'B' attr {{ key: 'x' value {{ {text} }} }} }}");
    read_as(Form::GraphText, text).unwrap().nodes[0].attrs["x"].clone()
}

#[test]
fn numbers_and_flags_in_text_have_several_spellings() {
    let ints = value("list { i: [0, -1, 017, 0x1F, -0X10, 9223372036854775807] i: - 5 }");
    let expected = [0, -1, 15, 31, -16, i64::MAX, -5].map(Attr::Int);
    assert_eq!(ints, Attr::List(expected.to_vec()));
    let floats = value("list { f: [1, -2.5e+3, .5f, 25E-2F, inf, -infinity, 1f] f: - 1e1; }");
    let expected = [1.0, -2500.0, 0.5, 0.25, f64::INFINITY, f64::NEG_INFINITY, 1.0, -10.0];
    assert_eq!(floats, Attr::List(expected.map(Attr::Float).to_vec()));
    assert!(matches!(value("f: nan"), Attr::Float(number) if number.is_nan()));
    let flags = value("list { b: [true, t, True, 1] b: [] b: [false, f], b: 0 }");
    let expected = [true, true, true, true, false, false, false].map(Attr::Bool);
    assert_eq!(flags, Attr::List(expected.to_vec()));
    assert_eq!(value("type: 101"), Attr::Type(ValueType::named("float_ref").unwrap()));
    assert_eq!((value("type: 77"), value("type: DT_INVALID")), (Attr::Int(77), Attr::Int(0)));
}

#[test]
fn escapes_in_text_are_bytes() {
    let text = value(r#"s: "\a\b\t\n\v\f\r\\\'\"\?" '\101\60x\x4a\X4\u00e9\U0001F600'"#);
    assert_eq!(text, Attr::Text("\u{7}\u{8}\t\n\u{b}\u{c}\r\\'\"?A0xJ\u{4}é😀".to_owned()));
    assert_eq!(value(r"s: '\303\251\377'"), Attr::Text("é\u{fffd}".to_owned()));
}

#[test]
fn later_attribute_replaces_an_earlier_one_as_in_protobuf() {
    let attr = |number| format!("attr {{ key: 'N' value {{ i: {number} }} }}");
    let text = format!("node {{ name: 'a' op: 'b' {} {} }}", attr(1), attr(-0x10));
    let graph = read(text).unwrap().graph;
    assert_eq!(graph.nodes[0].attrs, BTreeMap::from([("N".to_owned(), Attr::Int(-16))]));
    let json = r#"{"nodes": [{"name": "a", "op": "b", "attrs": {"N": 1, "N": 2}}]}"#;
    assert!(error(json).contains("duplicate key 'N'"), "{}", error(json));
}

#[test]
fn kernels_of_labels_and_constraints_on_numbers_are_left_out() {
    let text = "kernel { op: 'A' device_type: 'CPU' label: 'x' }
        kernel { op: 'A' device_type: 'GPU' priority: -1 host_memory_arg: ['in', 'out']
          constraint { name: 'T' allowed_values { list { type: [DT_FLOAT, 2] } } }
          constraint { name: 'flag' allowed_values { list { b: true } } } }";
    let kernels = super::kernels(text.as_bytes(), &Limits::default()).unwrap();
    let [kernel] = kernels.as_slice() else { panic!("{kernels:?}") };
    assert_eq!((kernel.op.as_str(), kernel.device_type.as_str()), ("A", "GPU"));
    assert_eq!((kernel.priority, kernel.host_memory.len()), (-1, 2));
    let types: Vec<_> = kernel.constraints["T"].iter().map(|of| of.number()).collect();
    assert_eq!((types, kernel.constraints.len()), (vec![1, 2], 1));
}

#[test]
fn lists_of_operations_and_kernels_differ_from_graphs() {
    assert_eq!(detect(b"# all\n\n# of them\nop { name: 'A' }"), Ok(Form::Ops));
    assert_eq!(detect(b" kernel { op: 'A' device_type: 'CPU' }"), Ok(Form::Kernels));
    assert_eq!(detect(b"kernels { }"), Ok(Form::GraphText));
    let (argument, name) = (b"\x12\x05\x0a\x01x\x18\x01", b"\x0a\x01A");
    let item = |fields: &[u8]| [&[0x0a, fields.len() as u8], fields].concat();
    let op = item(&[name.as_slice(), argument].concat());
    assert_eq!((detect(&op), detect(&item(name))), (Ok(Form::Ops), Ok(Form::Ops)));
    let op = &super::ops(&op, &Limits::default()).unwrap()[0];
    assert_eq!((op.inputs.len(), &op.inputs[0].kind), (1, &ArgKind::Type(crate::Dtype::FLOAT)));
    let kernel = item(b"\x0a\x01A\x12\x03CPU\x30\x02");
    assert_eq!(detect(&kernel), Ok(Form::Kernels));
    assert_eq!(super::kernels(&kernel, &Limits::default()).unwrap()[0].priority, 2);
    assert_eq!(detect(&item(b"\x0a\x01A\x12\x03Cpu")), Ok(Form::GraphBinary));
    assert!(error(kernel).ends_with("read the list of kernels: it has no graph"));
}

#[test]
fn meta_graph_differs_from_a_graph_with_functions() {
    let with = |graph: &str| {
        let graph = read_as(Form::GraphText, graph).unwrap();
        let graph_def = Some(protobuf::graph(&graph));
        let graph = protobuf::graph(&graph).encode_to_vec();
        (graph, protobuf::MetaGraph { graph_def }.encode_to_vec())
    };
    let (graph, meta) = with("node { name: 'a' op: 'NoOp' }");
    assert_eq!((detect(&graph), detect(&meta)), (Ok(Form::GraphBinary), Ok(Form::MetaGraph)));
    // A version, which only a graph has; fields that no form has.
    let graph = [meta, b"\x18\x01".to_vec()].concat();
    assert_eq!(detect(&graph), Ok(Form::GraphBinary));
    for none in [b"\x48\x01\x12\x00".as_slice(), b"\x1a\x00", b"\x10\x00", b"\x08\x01"] {
        assert!(detect(none).is_err(), "{none:?}");
    }
    let (graph, _) = with("node { name: 'a' op: 'FFT' attr { key: 'T' value { type: 8 } } }");
    assert_eq!(detect(&graph), Ok(Form::GraphBinary));
    let (graph, _) = with("library { function { signature { name: 'f' } } }");
    assert_eq!(detect(&graph), Ok(Form::GraphBinary));
}

#[test]
fn limits_hold() {
    let text = "node { name: 'a' op: 'b' } node { name: 'c' op: 'd' }";
    let refused = |limits: Limits| match super::graph(text.as_bytes(), &limits) {
        Err(ReadError { reason: Reason::Limit { what, .. }, .. }) => what,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(Limits { nodes: 1, ..Limits::default() }), "nodes");
    assert_eq!(refused(Limits { bytes: 10, ..Limits::default() }), "bytes");
    assert_eq!(refused(Limits { memory: 500, ..Limits::default() }), "bytes of memory");
    assert_eq!(refused(Limits { depth: 0, ..Limits::default() }), "nested messages");
    let one = read_as(Form::GraphText, text).unwrap();
    for file in [text.as_bytes(), &protobuf::graph(&one).encode_to_vec()] {
        let limits = Limits { depth: 1, bytes: file.len() as u64, ..Limits::default() };
        assert!(super::graph(file, &limits).is_ok());
    }
    let json = r#"{"nodes": [{"name": "a", "op": "b"}],
        "functions": [{"name": "f", "nodes": [{"name": "a", "op": "b"}]}]}"#;
    let read = |nodes| super::graph(json.as_bytes(), &Limits { nodes, ..Limits::default() });
    assert!(read(2).is_ok() && read(1).unwrap_err().to_string().ends_with("more than 1 nodes"));
    let read = |nodes| super::graph(text.as_bytes(), &Limits { nodes, ..Limits::default() });
    assert!(read(2).is_ok());
}
