use super::*;
use crate::def::{ArgDef, ArgKind};
use crate::dtype::Dtype;

fn arg(kind: ArgKind, reference: bool) -> ArgDef {
    ArgDef { name: "x".into(), kind, reference }
}

fn op(name: &str, inputs: Vec<ArgDef>, outputs: Vec<ArgDef>) -> OpDef {
    OpDef { name: name.into(), inputs, outputs, ..OpDef::default() }
}

fn registry() -> Registry {
    let float = || arg(ArgKind::Type(Dtype::FLOAT), false);
    let t = || arg(ArgKind::TypeAttr("T".into()), false);
    let mut registry = Registry::default();
    registry.add_op(op("In", vec![], vec![float(), float()]));
    registry.add_op(op("Relu", vec![float()], vec![float()]));
    registry.add_op(op("Var", vec![], vec![arg(ArgKind::Type(Dtype::FLOAT), true)]));
    registry.add_op(op("Set", vec![arg(ArgKind::Type(Dtype::FLOAT), true), float()], vec![]));
    let mut merge = op("Merge", vec![], vec![t()]);
    merge.inputs =
        vec![arg(ArgKind::Repeated("N".into(), Box::new(ArgKind::TypeAttr("T".into()))), false)];
    merge.attrs.insert("N".into(), Some(Attr::Int(2)));
    merge.attrs.insert("T".into(), Some(Attr::Type(ValueType::of(Dtype::FLOAT))));
    registry.add_op(merge);
    registry.add_op(op("NextIteration", vec![float()], vec![float()]));
    let list = arg(ArgKind::TypeListAttr("Tout".into()), false);
    registry.add_op(op("Split", vec![], vec![list, t()]));
    registry
}

fn node(name: &str, op: &str, inputs: &[&str]) -> NodeDef {
    let inputs = inputs.iter().map(|input| (*input).to_owned()).collect();
    NodeDef { name: name.into(), op: op.into(), inputs, ..NodeDef::default() }
}

fn build(nodes: Vec<NodeDef>) -> Result<Graph, BuildError> {
    Graph::build(GraphDef { nodes, functions: Vec::new() }, &registry())
}

fn message(nodes: Vec<NodeDef>) -> String {
    build(nodes).unwrap_err().to_string()
}

#[test]
fn names_and_outputs_are_resolved_in_any_order_of_the_file() {
    let graph = build(vec![
        node("b", "Relu", &["a:1", "^c"]),
        node("a", "In", &[]),
        node("c", "Relu", &["a", "^a", "^a"]),
    ])
    .unwrap();
    let [b, a, c] = ["b", "a", "c"].map(|name| graph.find(name).unwrap());
    assert_eq!(graph.node(b).inputs, [Source { node: a, output: 1 }]);
    assert_eq!(graph.node(b).controls, [c]);
    assert_eq!(graph.node(c).controls, [a]);
    assert_eq!(graph.node(a).outputs, [ValueType::of(Dtype::FLOAT); 2]);
    assert_eq!(graph.order(), [a, c, b]);
}

#[test]
fn names_begin_with_a_letter_a_digit_a_dot_or_an_underscore() {
    for name in ["a", "Z", "0", ".a", "_a", "a/b-c>d\\e._9"] {
        assert!(build(vec![node(name, "In", &[])]).is_ok(), "{name}");
    }
    for name in ["", "-a", "/a", ">a", "a b", "a:0", "ä"] {
        let error = build(vec![node(name, "In", &[])]).err();
        assert_eq!(error, Some(BuildError::InvalidName { node: name.into() }), "{name}");
    }
}

#[test]
fn output_types_come_from_attributes_and_their_defaults() {
    let mut split = node("s", "Split", &[]);
    let types = [Dtype::INT32, Dtype::RESOURCE].map(|of| Attr::Type(ValueType::of(of)));
    split.attrs.insert("Tout".into(), Attr::List(types.into()));
    assert_eq!(message(vec![split.clone()]), "No attr named 'T' in NodeDef of node 's'");
    split.attrs.insert("T".into(), Attr::Type(ValueType::of(Dtype::STRING)));
    let graph = build(vec![split.clone(), node("a", "In", &[]), node("m", "Merge", &["a", "a:1"])])
        .unwrap();
    let outputs: Vec<Dtype> = graph.nodes()[0].outputs.iter().map(|of| of.dtype).collect();
    assert_eq!(outputs, [Dtype::INT32, Dtype::RESOURCE, Dtype::STRING]);
    assert_eq!(graph.nodes()[2].outputs, [ValueType::of(Dtype::FLOAT)]);
    split.attrs.insert("T".into(), Attr::Int(3));
    assert!(matches!(build(vec![split]), Err(BuildError::InvalidAttr { .. })));
}

#[test]
fn node_may_state_its_outputs() {
    let mut unknown = node("x", "FusedGemm", &[]);
    let text = message(vec![unknown.clone()]);
    assert!(text.starts_with("Op type not registered 'FusedGemm'"), "{text}");
    unknown.outputs = Some(vec![ValueType::of(Dtype::FLOAT)]);
    assert!(build(vec![unknown, node("r", "Relu", &["x"])]).is_ok());
}

#[test]
fn wrong_inputs_are_errors_naming_the_node() {
    let a = || node("a", "In", &[]);
    for (nodes, expected) in [
        (vec![node("a", "Relu", &["zz"])], "Node 'a': Unknown input node 'zz'"),
        (vec![node("a", "In", &["^zz"])], "Node 'a': Unknown input node '^zz'"),
        (vec![a(), a()], "Node 'a' is not unique"),
        (vec![node("a b", "In", &[])], "Node 'a b': Node name contains invalid characters"),
        (
            vec![a(), node("b", "Relu", &["a:5"])],
            "Node 'b': Connecting to invalid output 5 of source node a which has 2 outputs.",
        ),
        (
            vec![a(), node("b", "Relu", &["^a", "a"])],
            "Node 'b': Control dependencies must come after regular dependencies",
        ),
        (
            vec![a(), node("b", "Relu", &["a", "a"])],
            "Node 'b': expected inputs 'float' do not match 2 inputs specified",
        ),
        (
            vec![a(), node("b", "Set", &["a", "a:1"])],
            "Input 0 of node b was passed float from a:0 incompatible with expected float_ref.",
        ),
    ] {
        assert_eq!(message(nodes), expected);
    }
}

#[test]
fn cycle_is_an_error_naming_its_nodes() {
    let nodes = vec![
        node("first", "In", &[]),
        node("a", "Relu", &["b"]),
        node("b", "Relu", &["c"]),
        node("c", "Relu", &["a"]),
        node("after", "Relu", &["c"]),
    ];
    assert_eq!(message(nodes), "4 nodes in a cycle, name=c, name=b, name=a");
    assert_eq!(message(vec![node("a", "In", &["^a"])]), "1 nodes in a cycle, name=a");
}

#[test]
fn loop_closed_by_next_iteration_is_no_cycle() {
    let graph = build(vec![
        node("start", "In", &[]),
        node("merge", "Merge", &["start", "next"]),
        node("body", "Relu", &["merge"]),
        node("next", "NextIteration", &["body"]),
    ])
    .unwrap();
    assert_eq!(graph.order().len(), 4);
}

#[test]
fn repeated_arguments_together_respect_the_value_bound() {
    let most = 65_536;
    let many = || {
        let kind = ArgKind::Repeated("N".into(), Box::new(ArgKind::Type(Dtype::FLOAT)));
        vec![arg(kind, false); 150_000]
    };
    for (inputs, outputs) in [(Vec::new(), many()), (many(), Vec::new())] {
        let mut registry = registry();
        registry.add_op(op("Many", inputs, outputs));
        let mut node = node("m", "Many", &[]);
        node.attrs.insert("N".into(), Attr::Int(most));
        let graph = GraphDef { nodes: vec![node], functions: Vec::new() };
        assert_eq!(Graph::build(graph, &registry).err(), Some(BuildError::TooLarge));
    }
}

#[test]
fn defaults_of_all_nodes_count_against_the_bound() {
    let mut of = op("Text", Vec::new(), Vec::new());
    of.attrs.insert("value".into(), Some(Attr::Text("x".repeat(6_400))));
    let mut left = Budget::new(250);
    let mut added = || {
        let mut attrs = BTreeMap::new();
        add_defaults(&mut attrs, &of, &mut left).map(|()| attrs.len())
    };
    assert_eq!([added(), added(), added()], [Ok(1), Ok(1), Err(BuildError::TooLarge)]);
    let shapes = vec![Attr::Shape(Some(vec![1; 16])); 3];
    let nested = Attr::Function("f".into(), [("a".to_owned(), Attr::List(shapes))].into());
    assert_eq!(budget::count(&nested), 11);
}

#[test]
fn repeated_argument_cannot_demand_more_values_than_the_bound() {
    let mut merge = node("m", "Merge", &[]);
    merge.attrs.insert("N".into(), Attr::Int(i64::MAX));
    assert!(matches!(build(vec![merge]), Err(BuildError::InvalidAttr { .. })));
}
