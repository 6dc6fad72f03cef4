//! The bodies of functions, as graphs with a node for each argument and each result.

use crate::build::{self, BuildError, signature};
use crate::def::{Attr, FunctionDef, NodeDef};
use crate::dtype::ValueType;
use crate::graph::Graph;
use crate::registry::{ArgDef, ArgKind, OpDef, Registry};
use std::collections::{BTreeMap, HashMap};

/// A function with the values of its attributes put in.
#[derive(Debug)]
pub(super) struct Instance {
    pub(super) graph: Graph,
    /// The positions of the nodes for the arguments, in their order.
    pub(super) arguments: Vec<u32>,
    /// The positions of the nodes for the results, in their order.
    pub(super) results: Vec<u32>,
}

/// The largest number of nodes, inputs and values of attributes in the bodies of one placement:
/// functions that pass each other nested attributes can double them on every level.
pub(super) const MOST_VALUES: usize = 1_000_000;

/// Returns the types of the results of a function.
pub(super) fn result_types(
    signature: &OpDef,
    attrs: &BTreeMap<String, Attr>,
) -> Result<Vec<ValueType>, BuildError> {
    signature::types(&signature.outputs, &with_defaults(signature, attrs), &signature.name)
}

fn with_defaults(signature: &OpDef, attrs: &BTreeMap<String, Attr>) -> BTreeMap<String, Attr> {
    let defaults = signature.attrs.iter().filter_map(|(name, default)| {
        Some((name.clone(), default.clone()?)).filter(|(name, _)| !attrs.contains_key(name))
    });
    defaults.chain(attrs.iter().map(|(name, value)| (name.clone(), value.clone()))).collect()
}

/// Puts the values of attributes into a function. `budget` is how many more values may be copied,
/// and 0 afterwards if they were too many.
pub(super) fn instantiate(
    function: &FunctionDef,
    attrs: &BTreeMap<String, Attr>,
    functions: &BTreeMap<String, FunctionDef>,
    registry: &Registry,
    budget: &mut usize,
) -> Result<Instance, BuildError> {
    let signature = &function.signature;
    let attrs = with_defaults(signature, attrs);
    // What each name in an input stands for, as inputs of a graph.
    let mut values: HashMap<String, Vec<String>> = HashMap::new();
    let mut nodes = Vec::new();
    for arg in &signature.inputs {
        let given = boundary(arg, "_Arg", &arg.name, &attrs, signature, nodes.len())?;
        *budget = budget.saturating_sub(given.len());
        values.insert(arg.name.clone(), given.iter().map(|node| node.name.clone()).collect());
        nodes.extend(given);
    }
    let arguments = 0..nodes.len() as u32;

    for node in &function.nodes {
        *budget = budget.saturating_sub(1 + node.inputs.len());
        if *budget == 0 {
            break;
        }
        let of_node =
            node.attrs.iter().map(|(name, attr)| (name.clone(), substitute(attr, &attrs, budget)));
        let mut of_node: BTreeMap<String, Attr> = of_node.collect();
        if let Some(of) = build::definition(&node.op, functions, registry) {
            of_node = with_defaults(of, &of_node);
            let mut first = 0;
            for output in &of.outputs {
                let mut types = Vec::new();
                signature::add(&output.kind, false, &of_node, &node.name, &mut types)?;
                *budget = budget.saturating_sub(types.len());
                let outputs = first..first + types.len();
                first = outputs.end;
                let outputs = outputs.map(|at| format!("{}:{at}", node.name)).collect();
                values.insert(format!("{}:{}", node.name, output.name), outputs);
            }
        }
        nodes.push(NodeDef {
            name: node.name.clone(),
            op: node.op.clone(),
            inputs: node.inputs.clone(),
            device: node.device.clone(),
            attrs: of_node,
            outputs: node.outputs.clone(),
        });
    }
    for node in &mut nodes {
        node.inputs = translate(&node.inputs, &values, budget);
    }

    let first_result = nodes.len() as u32;
    for (number, result) in signature.outputs.iter().enumerate() {
        let name = format!("{}_RetVal", result.name);
        let taken = boundary(result, "_Retval", &name, &attrs, signature, number)?;
        let given = function.returns.get(&result.name).map(std::slice::from_ref);
        let given = translate(given.unwrap_or_default(), &values, budget);
        for (at, mut node) in taken.into_iter().enumerate() {
            // A result without a value is an error of the number of inputs.
            node.inputs = given.get(at).cloned().into_iter().collect();
            nodes.push(node);
        }
    }
    let results = Vec::from_iter(first_result..nodes.len() as u32);
    let graph = build::resolve(nodes, functions, registry)?;
    Ok(Instance { graph, arguments: arguments.collect(), results })
}

/// Returns the nodes for the values of an argument or a result; several have numbers in their
/// names.
fn boundary(
    arg: &ArgDef,
    op: &str,
    name: &str,
    attrs: &BTreeMap<String, Attr>,
    signature: &OpDef,
    first: usize,
) -> Result<Vec<NodeDef>, BuildError> {
    let mut types = Vec::new();
    signature::add(&arg.kind, arg.reference, attrs, &signature.name, &mut types)?;
    let is_list = matches!(arg.kind, ArgKind::TypeListAttr(_) | ArgKind::Repeated(..));
    let node = |(at, of): (usize, ValueType)| NodeDef {
        name: if is_list { format!("{name}_{at}") } else { name.to_owned() },
        op: op.to_owned(),
        attrs: BTreeMap::from([
            ("T".to_owned(), Attr::Type(of)),
            ("index".to_owned(), Attr::Int((first + at) as i64)),
        ]),
        outputs: Some(if op == "_Arg" { vec![of] } else { Vec::new() }),
        ..NodeDef::default()
    };
    Ok(types.into_iter().enumerate().map(node).collect())
}

/// Replaces the names of values in a function by those in its graph. Unknown ones stay.
fn translate(
    inputs: &[String],
    values: &HashMap<String, Vec<String>>,
    budget: &mut usize,
) -> Vec<String> {
    let mut translated = Vec::with_capacity(inputs.len());
    for input in inputs {
        if let Some(all) = values.get(input) {
            *budget = budget.saturating_sub(all.len());
            if *budget > 0 {
                translated.extend(all.iter().cloned());
            }
            continue;
        }
        let one = input
            .rsplit_once(':')
            .and_then(|(name, number)| values.get(name)?.get(number.parse::<usize>().ok()?));
        translated.push(one.unwrap_or(input).clone());
    }
    translated
}

/// Returns an attribute with the values of the function's where it refers to them.
fn substitute(attr: &Attr, attrs: &BTreeMap<String, Attr>, budget: &mut usize) -> Attr {
    let given = match attr {
        Attr::Placeholder(name) => attrs.get(name).unwrap_or(attr),
        Attr::Function(name, inner) => {
            let inner =
                inner.iter().map(|(name, attr)| (name.clone(), substitute(attr, attrs, budget)));
            return Attr::Function(name.clone(), inner.collect());
        }
        _ => attr,
    };
    *budget = budget.saturating_sub(count(given));
    if *budget > 0 { given.clone() } else { Attr::Bool(false) }
}

/// Returns how many values an attribute holds.
fn count(attr: &Attr) -> usize {
    match attr {
        Attr::List(items) => 1 + items.iter().map(count).sum::<usize>(),
        Attr::Function(_, inner) => 1 + inner.values().map(count).sum::<usize>(),
        _ => 1,
    }
}
