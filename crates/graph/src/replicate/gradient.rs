//! Finds the gradients in a training graph.

use crate::def::GraphDef;

/// The input of a node that applies a gradient to a variable.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Gradient {
    /// The node that applies it, such as an `ApplyGradientDescent`.
    pub update: String,
    /// The index of that input.
    pub input: usize,
}

/// Operations that apply a gradient, without the prefix `Resource`, and the index of the gradient's
/// input, from TensorFlow's `training_ops.cc` and `state_ops.cc`.
const UPDATES: [(&str, usize); 13] = [
    ("ApplyGradientDescent", 2),
    ("ApplyMomentum", 3),
    ("ApplyKerasMomentum", 3),
    ("ApplyAdagrad", 3),
    ("ApplyAdadelta", 6),
    ("ApplyAdam", 9),
    ("ApplyAdaMax", 8),
    ("ApplyFtrl", 3),
    ("ApplyRMSProp", 7),
    ("ApplyCenteredRMSProp", 8),
    ("ApplyProximalGradientDescent", 4),
    ("AssignSub", 1),
    ("AssignSubVariableOp", 1),
];

/// Finds the gradients of a graph by the operations that apply them: `Apply…`, `ResourceApply…` and
/// `AssignSub`.
///
/// `AssignAdd` is excluded, because step counters use it.
pub fn gradients(graph: &GraphDef) -> Vec<Gradient> {
    let of = |op: &str| {
        let bare = op.strip_prefix("Resource").unwrap_or(op);
        UPDATES.iter().find(|(name, _)| *name == bare).map(|(_, input)| *input)
    };
    let found = graph.nodes.iter().filter_map(|node| {
        let input = of(&node.op)?;
        Some(Gradient { update: node.name.clone(), input })
    });
    found.collect()
}
