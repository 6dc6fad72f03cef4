//! Builds a graph: resolves names to indices, and determines the types of outputs.

pub(crate) mod budget;
pub(crate) mod cycle;
pub(crate) mod signature;

use crate::def::{Attr, FunctionDef, GraphDef, NodeDef, OpDef};
use crate::dtype::ValueType;
use crate::graph::Graph;
use crate::node::{Node, NodeId, Source};
use crate::registry::Registry;
use budget::Budget;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// Why a graph cannot be built. The texts are those of TensorFlow, which users know.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The name of a node is empty or has characters other than letters, digits and `._\/>-`.
    #[error("Node '{node}': Node name contains invalid characters")]
    InvalidName {
        /// The node.
        node: String,
    },
    /// Two nodes have the same name.
    #[error("Node '{node}' is not unique")]
    DuplicateNode {
        /// The name.
        node: String,
    },
    /// Two functions have the same name.
    #[error("Function '{function}' is not unique")]
    DuplicateFunction {
        /// The name.
        function: String,
    },
    /// An operation has no definition, and the node does not state its outputs.
    #[error(
        "Op type not registered '{op}', which node '{node}' needs. Make sure that the operation is \
         in the registry, or that the graph contains the function"
    )]
    UnknownOp {
        /// The node.
        node: String,
        /// Its operation.
        op: String,
    },
    /// An input names no node.
    #[error("Node '{node}': Unknown input node '{input}'")]
    UnknownInput {
        /// The node.
        node: String,
        /// The input as written.
        input: String,
    },
    /// An input names an output that its node does not have.
    #[error(
        "Node '{node}': Connecting to invalid output {output} of source node {from} which has \
         {outputs} outputs."
    )]
    InvalidOutput {
        /// The node.
        node: String,
        /// The node that the input names.
        from: String,
        /// The output that the input names.
        output: u32,
        /// How many outputs that node has.
        outputs: usize,
    },
    /// A data input follows a control input.
    #[error("Node '{node}': Control dependencies must come after regular dependencies")]
    ControlBeforeInput {
        /// The node.
        node: String,
    },
    /// The number of inputs differs from the number of arguments.
    #[error("Node '{node}': expected inputs '{expected}' do not match {found} inputs specified")]
    InputCount {
        /// The node.
        node: String,
        /// The types of the arguments.
        expected: String,
        /// The number of inputs.
        found: usize,
    },
    /// The type of an input differs from that of the argument.
    #[error(
        "Input {input} of node {node} was passed {found} from {from} incompatible with expected \
         {expected}."
    )]
    InputType {
        /// The node.
        node: String,
        /// The index of the input.
        input: usize,
        /// The source of the input, as `node:output`.
        from: String,
        /// Its type.
        found: String,
        /// The type of the argument.
        expected: String,
    },
    /// An attribute that determines types is missing.
    #[error("No attr named '{attr}' in NodeDef of node '{node}'")]
    MissingAttr {
        /// The node.
        node: String,
        /// The attribute.
        attr: String,
    },
    /// An attribute that determines types has a value of another kind, or a number that is too
    /// large.
    #[error("AttrValue of '{attr}' of node '{node}' cannot determine the type of an argument")]
    InvalidAttr {
        /// The node.
        node: String,
        /// The attribute.
        attr: String,
    },
    /// Nodes form a cycle.
    #[error(
        "{waiting} nodes in a cycle{}",
        cycle.iter().map(|name| format!(", name={name}")).collect::<String>()
    )]
    Cycle {
        /// How many nodes are in the cycle or depend on one that is.
        waiting: usize,
        /// The names of a cycle; each node is an input of the next, and the last of the first.
        cycle: Vec<String>,
    },
    /// There are more nodes than can be numbered, more than 16,777,216 outputs, or as many default
    /// values of attributes, where each 64 bytes of a text count as one; or a node has fewer inputs
    /// than arguments, and more than 65,536 arguments.
    #[error("the graph has too many nodes or values")]
    TooLarge,
}

/// The largest number of outputs of all nodes, and of values in the default attributes that they
/// get: an attribute of a few bytes can require many.
pub(crate) const MOST_VALUES: usize = 1 << 24;

impl Graph {
    /// Resolves the names of a graph and determines the types of its outputs.
    ///
    /// # Errors
    /// For the first invalid node of the file, and then for a cycle that no `NextIteration` closes.
    pub fn build(def: GraphDef, registry: &Registry) -> Result<Graph, BuildError> {
        let mut functions = BTreeMap::new();
        for function in def.functions {
            let name = function.signature.name.clone();
            if functions.insert(name.clone(), function).is_some() {
                return Err(BuildError::DuplicateFunction { function: name });
            }
        }
        let mut graph = resolve(def.nodes, &functions, registry)?;
        graph.functions = functions;
        Ok(graph)
    }
}

/// Builds the nodes of a graph or of the body of a function; the graph itself keeps no functions.
pub(crate) fn resolve(
    defs: Vec<NodeDef>,
    functions: &BTreeMap<String, FunctionDef>,
    registry: &Registry,
) -> Result<Graph, BuildError> {
    if u32::try_from(defs.len()).is_err() {
        return Err(BuildError::TooLarge);
    }
    let mut by_name: HashMap<Arc<str>, NodeId> = HashMap::with_capacity(defs.len());
    let mut ops: HashSet<Arc<str>> = HashSet::new();
    let mut nodes = Vec::with_capacity(defs.len());
    let mut inputs = Vec::with_capacity(defs.len());
    let mut outputs_left = Budget::new(MOST_VALUES);
    let mut defaults_left = Budget::new(MOST_VALUES);
    for (at, mut def) in defs.into_iter().enumerate() {
        let name: Arc<str> = def.name.as_str().into();
        if !is_valid_name(&name) {
            return Err(BuildError::InvalidName { node: def.name });
        }
        if by_name.insert(name.clone(), NodeId(at as u32)).is_some() {
            return Err(BuildError::DuplicateNode { node: def.name });
        }
        let op = match ops.get(def.op.as_str()) {
            Some(op) => op.clone(),
            None => {
                let op: Arc<str> = def.op.as_str().into();
                ops.insert(op.clone());
                op
            }
        };
        let of = definition(&op, functions, registry);
        if let Some(of) = of {
            add_defaults(&mut def.attrs, of, &mut defaults_left)?;
        }
        let outputs = match (def.outputs.take(), of) {
            (Some(outputs), _) => {
                outputs_left.take(outputs.len())?;
                outputs
            }
            (None, Some(of)) => {
                signature::types(&of.outputs, &def.attrs, &def.name, &mut outputs_left)?
            }
            (None, None) => return Err(BuildError::UnknownOp { node: def.name, op: def.op }),
        };
        nodes.push(Node {
            name,
            op,
            inputs: Vec::new(),
            controls: Vec::new(),
            outputs,
            requested: def.device,
            assigned: None,
            attrs: def.attrs,
        });
        inputs.push(def.inputs);
    }
    for (at, inputs) in inputs.into_iter().enumerate() {
        let (sources, controls) = connect(&nodes[at].name, &inputs, &by_name, &nodes)?;
        if let Some(of) = definition(&nodes[at].op, functions, registry) {
            check_inputs(&nodes[at], of, &sources, &nodes)?;
        }
        nodes[at].inputs = sources;
        nodes[at].controls = controls;
    }
    cycle::check(&nodes)?;
    Ok(Graph { nodes, by_name, functions: BTreeMap::new() })
}

/// Returns the definition of an operation; a function may be called by its name.
pub(crate) fn definition<'a>(
    op: &str,
    functions: &'a BTreeMap<String, FunctionDef>,
    registry: &'a Registry,
) -> Option<&'a OpDef> {
    registry.op(op).or_else(|| functions.get(op).map(|function| &function.signature))
}

/// Returns whether TensorFlow accepts the name of a node.
fn is_valid_name(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphanumeric() || c == '.' || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || "._\\/>-".contains(c))
}

/// Adds the defaults of missing attributes, and takes their values from the budget.
pub(crate) fn add_defaults(
    attrs: &mut BTreeMap<String, Attr>,
    of: &OpDef,
    budget: &mut Budget,
) -> Result<(), BuildError> {
    for (name, default) in &of.attrs {
        if let (Some(default), false) = (default, attrs.contains_key(name)) {
            budget.take(budget::length(name) + budget::count(default))?;
            attrs.insert(name.clone(), default.clone());
        }
    }
    Ok(())
}

fn connect(
    node: &str,
    inputs: &[String],
    by_name: &HashMap<Arc<str>, NodeId>,
    nodes: &[Node],
) -> Result<(Vec<Source>, Vec<NodeId>), BuildError> {
    let unknown =
        |input: &str| BuildError::UnknownInput { node: node.to_owned(), input: input.to_owned() };
    let mut sources = Vec::new();
    let mut controls = Vec::new();
    let mut seen = HashSet::new();
    for input in inputs {
        if let Some(name) = input.strip_prefix('^') {
            let from = *by_name.get(name).ok_or_else(|| unknown(input))?;
            if seen.insert(from) {
                controls.push(from);
            }
            continue;
        }
        if !seen.is_empty() {
            return Err(BuildError::ControlBeforeInput { node: node.to_owned() });
        }
        let (name, output) = match input.rsplit_once(':') {
            Some((name, output)) => (name, output.parse().map_err(|_| unknown(input))?),
            None => (input.as_str(), 0),
        };
        let from = *by_name.get(name).ok_or_else(|| unknown(input))?;
        let outputs = nodes.get(from.index()).map_or(0, |node| node.outputs.len());
        if output as usize >= outputs {
            return Err(BuildError::InvalidOutput {
                node: node.to_owned(),
                from: name.to_owned(),
                output,
                outputs,
            });
        }
        sources.push(Source { node: from, output });
    }
    Ok((sources, controls))
}

/// Compares the inputs with the arguments. A reference may be passed where a value is expected.
fn check_inputs(
    node: &Node,
    of: &OpDef,
    sources: &[Source],
    nodes: &[Node],
) -> Result<(), BuildError> {
    // If there are more arguments than inputs, the error names them; above this number it does not.
    let mut budget = Budget::new(sources.len().max(signature::MOST_VALUES));
    let expected = signature::types(&of.inputs, &node.attrs, &node.name, &mut budget)?;
    if expected.len() != sources.len() {
        let expected: Vec<String> = expected.iter().map(|of| short_name(*of)).collect();
        return Err(BuildError::InputCount {
            node: node.name.to_string(),
            expected: expected.join(", "),
            found: sources.len(),
        });
    }
    for (at, (source, expected)) in sources.iter().zip(expected).enumerate() {
        let from = &nodes[source.node.index()];
        let found = from.outputs[source.output as usize];
        if found.dtype != expected.dtype || expected.reference && !found.reference {
            return Err(BuildError::InputType {
                node: node.name.to_string(),
                input: at,
                from: format!("{}:{}", from.name, source.output),
                found: short_name(found),
                expected: short_name(expected),
            });
        }
    }
    Ok(())
}

/// Returns the name of a type as TensorFlow writes it in messages: `float`, `int32_ref`.
fn short_name(of: ValueType) -> String {
    of.to_string().trim_start_matches("DT_").to_lowercase()
}

#[cfg(test)]
mod tests;
