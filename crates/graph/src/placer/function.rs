//! The bodies of functions, as graphs with a node for each argument and each result.

use crate::build::budget::{Budget, count, length};
use crate::build::{self, BuildError, signature};
use crate::def::{ArgDef, ArgKind, Attr, FunctionDef, NodeDef, OpDef};
use crate::dtype::{Dtype, ValueType};
use crate::graph::Graph;
use crate::registry::Registry;
use std::collections::{BTreeMap, HashMap};

/// A function with its attributes substituted.
#[derive(Debug)]
pub(super) struct Instance {
    pub(super) graph: Graph,
    /// The indices of the nodes for the arguments, in their order.
    pub(super) arguments: Vec<u32>,
    /// The indices of the nodes for the results, in their order.
    pub(super) results: Vec<u32>,
}

/// The largest number of nodes, inputs, outputs and values of attributes in the bodies of one
/// placement: functions that pass each other nested attributes can double them on every level.
pub(super) const MOST_VALUES: usize = 1_000_000;

/// Returns whether a function returns a resource.
pub(super) fn returns_resource(
    signature: &OpDef,
    attrs: &BTreeMap<String, Attr>,
) -> Result<bool, BuildError> {
    let attr = |name: &str| attrs.get(name).or_else(|| signature.attrs.get(name)?.as_ref());
    let mut found = false;
    for result in &signature.outputs {
        let (kind, reference) = (&result.kind, result.reference);
        signature::each(kind, reference, &attr, &signature.name, &mut |of, count| {
            found |= of == ValueType::of(Dtype::RESOURCE) && count > 0;
            Ok(())
        })?;
    }
    Ok(found)
}

/// Substitutes the values of attributes in a function.
///
/// # Errors
/// [`BuildError::TooLarge`] if it has more values than the budget.
pub(super) fn instantiate(
    function: &FunctionDef,
    attrs: &BTreeMap<String, Attr>,
    functions: &BTreeMap<String, FunctionDef>,
    registry: &Registry,
    budget: &mut Budget,
) -> Result<Instance, BuildError> {
    let signature = &function.signature;
    let mut attrs = attrs.clone();
    build::add_defaults(&mut attrs, signature, budget)?;
    // The meaning of each name in an input, as inputs of a graph.
    let mut values: HashMap<String, Vec<String>> = HashMap::new();
    let mut nodes = Vec::new();
    for arg in &signature.inputs {
        let given = boundary(arg, "_Arg", &arg.name, &attrs, signature, nodes.len(), budget)?;
        values.insert(arg.name.clone(), given.iter().map(|node| node.name.clone()).collect());
        nodes.extend(given);
    }
    let arguments = 0..nodes.len() as u32;

    for node in &function.nodes {
        let texts = node.inputs.iter().chain([&node.name, &node.op, &node.device]);
        let stated = node.outputs.as_ref().map_or(0, Vec::len);
        budget.take(1 + node.inputs.len() + stated + texts.map(|of| length(of)).sum::<usize>())?;
        let mut of_node = all_substituted(&node.attrs, &attrs, budget)?;
        if let Some(of) = build::definition(&node.op, functions, registry) {
            build::add_defaults(&mut of_node, of, budget)?;
            let mut first = 0;
            for output in &of.outputs {
                let mut types = Vec::new();
                signature::add(&output.kind, false, &of_node, &node.name, budget, &mut types)?;
                budget.take(types.len() * length(&node.name) + length(&output.name))?;
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
        node.inputs = translate(&node.inputs, &values, budget)?;
    }

    let first_result = nodes.len() as u32;
    for (number, result) in signature.outputs.iter().enumerate() {
        let name = format!("{}_RetVal", result.name);
        let taken = boundary(result, "_Retval", &name, &attrs, signature, number, budget)?;
        let given = function.returns.get(&result.name).map(std::slice::from_ref);
        let given = translate(given.unwrap_or_default(), &values, budget)?;
        for (at, mut node) in taken.into_iter().enumerate() {
            // A result without a value is reported as a wrong number of inputs.
            node.inputs = given.get(at).cloned().into_iter().collect();
            nodes.push(node);
        }
    }
    let results = Vec::from_iter(first_result..nodes.len() as u32);
    let graph = build::resolve(nodes, functions, registry)?;
    Ok(Instance { graph, arguments: arguments.collect(), results })
}

/// Returns the nodes for the values of an argument or a result; with several values, the names
/// contain numbers.
fn boundary(
    arg: &ArgDef,
    op: &str,
    name: &str,
    attrs: &BTreeMap<String, Attr>,
    signature: &OpDef,
    first: usize,
    budget: &mut Budget,
) -> Result<Vec<NodeDef>, BuildError> {
    let mut types = Vec::new();
    signature::add(&arg.kind, arg.reference, attrs, &signature.name, budget, &mut types)?;
    budget.take(types.len() * length(name))?;
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

/// Replaces the names of values in a function by those in its graph. Unknown names remain.
fn translate(
    inputs: &[String],
    values: &HashMap<String, Vec<String>>,
    budget: &mut Budget,
) -> Result<Vec<String>, BuildError> {
    let mut translated = Vec::with_capacity(inputs.len());
    for input in inputs {
        if let Some(all) = values.get(input) {
            let longest = all.last().map_or(0, |name| length(name));
            budget.take(all.len() * (1 + longest))?;
            translated.extend(all.iter().cloned());
            continue;
        }
        let one = input
            .rsplit_once(':')
            .and_then(|(name, number)| values.get(name)?.get(number.parse::<usize>().ok()?));
        translated.push(one.unwrap_or(input).clone());
    }
    Ok(translated)
}

/// Returns attributes with references to the function's attributes substituted.
fn all_substituted(
    of: &BTreeMap<String, Attr>,
    attrs: &BTreeMap<String, Attr>,
    budget: &mut Budget,
) -> Result<BTreeMap<String, Attr>, BuildError> {
    let each = of.iter().map(|(name, attr)| {
        budget.take(length(name))?;
        Ok((name.clone(), substituted(attr, attrs, budget)?))
    });
    each.collect()
}

/// Returns an attribute with references to the function's attributes substituted.
fn substituted(
    attr: &Attr,
    attrs: &BTreeMap<String, Attr>,
    budget: &mut Budget,
) -> Result<Attr, BuildError> {
    let given = match attr {
        Attr::Placeholder(name) => attrs.get(name).unwrap_or(attr),
        Attr::Function(name, inner) => {
            budget.take(1 + length(name))?;
            let inner = all_substituted(inner, attrs, budget)?;
            return Ok(Attr::Function(name.clone(), inner));
        }
        _ => attr,
    };
    budget.take(count(given))?;
    Ok(given.clone())
}
