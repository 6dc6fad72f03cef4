//! Functions in the nesting of hostile files.

use super::fixture;
use gpu_graph::placer::{self, Options, PlaceErrorKind};
use gpu_graph::{
    ArgDef, ArgKind, Attr, Dtype, FunctionDef, Graph, GraphDef, NodeDef, OpDef, ValueType,
};
use std::collections::BTreeMap;

fn resource(name: &str) -> ArgDef {
    ArgDef { name: name.into(), kind: ArgKind::Type(Dtype::RESOURCE), reference: false }
}

/// A call of a function that takes and returns a resource.
fn call(name: &str, input: &str, function: &str, attrs: BTreeMap<String, Attr>) -> NodeDef {
    let types = Attr::List(vec![Attr::Type(ValueType::of(Dtype::RESOURCE))]);
    NodeDef {
        name: name.into(),
        op: "PartitionedCall".into(),
        inputs: vec![input.into()],
        attrs: [
            ("Tin".to_owned(), types.clone()),
            ("Tout".to_owned(), types),
            ("f".to_owned(), Attr::Function(function.into(), attrs)),
        ]
        .into(),
        ..NodeDef::default()
    }
}

/// Functions `f0` to `fN`: each calls the next with attributes made by `attrs`; the last returns
/// its argument.
fn chain(last: usize, attrs: impl Fn(usize) -> BTreeMap<String, Attr>) -> Vec<FunctionDef> {
    let function = |at: usize| {
        let next = (at < last).then(|| call("y", "x", &format!("f{}", at + 1), attrs(at)));
        let result = if next.is_some() { "y:output:0" } else { "x" };
        FunctionDef {
            signature: OpDef {
                name: format!("f{at}"),
                inputs: vec![resource("x")],
                outputs: vec![resource("out")],
                ..OpDef::default()
            },
            nodes: next.into_iter().collect(),
            returns: [("out".to_owned(), result.to_owned())].into(),
        }
    };
    (0..=last).map(function).collect()
}

/// Places a graph that calls the first of some functions.
fn place(functions: Vec<FunctionDef>) -> Result<Vec<usize>, (PlaceErrorKind, String)> {
    let registry = fixture::registry();
    let handle = NodeDef { name: "h".into(), op: "HandleC".into(), ..NodeDef::default() };
    let nodes = vec![handle, call("y", "h", "f0", BTreeMap::new())];
    let graph = Graph::build(GraphDef { nodes, functions }, &registry).unwrap();
    let placement = placer::place(&graph, &registry, &fixture::devices("1"), &Options::default());
    placement.map(|of| of.devices().collect()).map_err(|error| (error.kind, error.message))
}

#[test]
fn nested_functions_are_inspected_up_to_a_depth() {
    assert!(place(chain(50, |_| BTreeMap::new())).is_ok());
    let (kind, message) = place(chain(10_000, |_| BTreeMap::new())).unwrap_err();
    assert_eq!(kind, PlaceErrorKind::Function);
    assert!(message.starts_with("Functions are nested more than 64 deep"), "{message}");
}

#[test]
fn attributes_doubling_on_every_level_are_an_error() {
    let functions = chain(60, |at| {
        let nested = match at {
            0 => Attr::Int(1),
            _ => {
                let both =
                    ["a", "b"].map(|name| (name.to_owned(), Attr::Placeholder("A".to_owned())));
                Attr::Function("g".into(), both.into())
            }
        };
        [("A".to_owned(), nested)].into()
    });
    let (kind, message) = place(functions).unwrap_err();
    assert_eq!(kind, PlaceErrorKind::Function);
    assert!(message.starts_with("The bodies of functions are too large"), "{message}");
}

/// A function that takes and returns a resource, with many more results.
fn many(name: &str, inputs: usize, outputs: usize) -> FunctionDef {
    let kind = ArgKind::Repeated("N".into(), Box::new(ArgKind::Type(Dtype::FLOAT)));
    let arg = |at: usize| ArgDef { name: format!("a{at}"), kind: kind.clone(), reference: false };
    FunctionDef {
        signature: OpDef {
            name: name.into(),
            inputs: [resource("x")].into_iter().chain((0..inputs).map(arg)).collect(),
            outputs: [resource("out")].into_iter().chain((0..outputs).map(arg)).collect(),
            attrs: [("N".to_owned(), Some(Attr::Int(65_536)))].into(),
            ..OpDef::default()
        },
        returns: [("out".to_owned(), "x".to_owned())].into(),
        ..FunctionDef::default()
    }
}

#[test]
fn arguments_and_outputs_of_a_body_count_before_they_are_made() {
    let too_large = |functions| {
        let (kind, message) = place(functions).unwrap_err();
        assert_eq!(kind, PlaceErrorKind::Function);
        assert!(message.starts_with("The bodies of functions are too large"), "{message}");
    };
    too_large(vec![many("f0", 200, 0)]);
    too_large(vec![many("f0", 0, 200)]);
    // The output of a node in the body.
    let mut outer = many("f0", 0, 0);
    outer.nodes.push(NodeDef { name: "y".into(), op: "f1".into(), ..NodeDef::default() });
    too_large(vec![outer.clone(), many("f1", 0, 200)]);
    outer.nodes[0].outputs = Some(vec![ValueType::of(Dtype::FLOAT); 1_000_001]);
    outer.nodes[0].op = "Unknown".into();
    too_large(vec![outer.clone()]);
    // Long texts count as many values.
    outer.nodes[0].outputs = None;
    outer.nodes[0].op = "HandleC".into();
    outer.nodes[0].name = "y".repeat(65_000_000);
    too_large(vec![outer]);
}

#[test]
fn missing_function_error_names_it() {
    let (kind, message) = place(Vec::new()).unwrap_err();
    assert_eq!(kind, PlaceErrorKind::Function);
    assert!(message.contains("Failed to find function \"f0\""), "{message}");
}
