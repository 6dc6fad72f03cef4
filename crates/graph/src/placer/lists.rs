//! Lists of strings and resources, which only the CPU can hold.
//!
//! The type of a variant does not show its content. Like TensorFlow's `colocation_graph.cc`, this
//! looks for the operation that made or changed the list.

use super::colocation::Colocation;
use super::context::Context;
use crate::def::Attr;
use crate::dtype::{Dtype, ValueType};
use crate::node::Node;

/// Operations on lists of tensors.
const LIST_OPS: &[&str] = &[
    "EmptyTensorList",
    "TensorListConcat",
    "TensorListConcatLists",
    "TensorListConcatV2",
    "TensorListFromTensor",
    "TensorListGather",
    "TensorListGetItem",
    "TensorListPopBack",
    "TensorListPushBack",
    "TensorListPushBackBatch",
    "TensorListReserve",
    "TensorListScatter",
    "TensorListScatterIntoExistingList",
    "TensorListScatterV2",
    "TensorListSetItem",
    "TensorListSplit",
    "TensorListStack",
];

const VARIANT: ValueType = ValueType::of(Dtype::VARIANT);

/// Returns the type of the elements of a list that a node makes or uses; unknown for lists of
/// lists.
fn element(node: &Node) -> Option<Dtype> {
    let element = node.attrs.get("element_dtype").and_then(Attr::as_type)?.dtype;
    (element != Dtype::VARIANT && LIST_OPS.contains(&&*node.op)).then_some(element)
}

/// Restricts nodes that use lists of strings or resources to the CPU.
pub(super) fn restrict(colocation: &mut Colocation<'_>, cx: &mut Context<'_>) {
    let nodes = &colocation.body.nodes;
    let mut elements = vec![None; nodes.len()];
    let mut restricted = Vec::new();
    for at in &colocation.body.order {
        let node = &nodes[*at as usize];
        let variants = node.inputs.iter().filter(|source| {
            nodes[source.node.index()].outputs.get(source.output as usize) == Some(&VARIANT)
        });
        let mut variants = variants.peekable();
        let uses = variants.peek().is_some();
        let held = variants.filter_map(|source| elements[source.node.index()]).next();
        let of = element(node).or(held);
        elements[*at as usize] = of;
        if uses && matches!(of, Some(Dtype::STRING | Dtype::RESOURCE)) {
            restricted.push(*at);
        }
    }
    for at in restricted {
        let root = colocation.groups.root(at);
        let member = colocation.groups.get_mut(root);
        member.kinds = cx.kinds.only(member.kinds, "CPU", &mut cx.names).unwrap_or(member.kinds);
    }
}
