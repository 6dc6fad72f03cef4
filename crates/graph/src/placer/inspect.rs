//! The requirements of a function's body for the nodes around a call.
//!
//! The rules are those of TensorFlow's `inspecting_placer.cc`.

use super::body::{Body, Edge};
use super::colocation::Colocation;
use super::context::Context;
use super::error::{PlaceError, PlaceErrorKind};
use super::function;
use super::limits::{Limit, Limits};
use super::lists;
use super::member::{Groups, Member};
use crate::build::BuildError;
use crate::dtype::Dtype;
use crate::node::Node;
use std::collections::HashMap;
use std::rc::Rc;

/// The deepest nesting of calls. TensorFlow is limited only by its stack.
const MOST_NESTED: usize = 64;

/// A call that is being inspected.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    /// The function that contains the call; empty for the graph.
    pub(super) caller: String,
    pub(super) node: String,
    pub(super) function: String,
}

impl<'g> Colocation<'g> {
    /// Determines the groups of a body. `stack` contains the functions that are being inspected.
    pub(super) fn new(
        body: Body<'g>,
        stack: &[Frame],
        cx: &mut Context<'_>,
    ) -> Result<Colocation<'g>, PlaceError> {
        let mut colocation = Colocation {
            groups: Groups::default(),
            warnings: Vec::new(),
            device_numbers: HashMap::new(),
            body,
        };
        colocation.add_members(cx)?;
        let calls = colocation.follow_edges(cx)?;
        lists::restrict(&mut colocation, cx);
        for (call, leaving) in &calls {
            apply(&mut colocation, (*call, leaving), stack, cx)?;
        }
        colocation.follow_classes(cx)?;
        colocation.drop_xla(cx);
        Ok(colocation)
    }
}

/// Applies the requirements of a called function to the nodes around the call; the edges `leaving`
/// it lead to them.
fn apply(
    colocation: &mut Colocation<'_>,
    (call, leaving): (u32, &[Edge]),
    stack: &[Frame],
    cx: &mut Context<'_>,
) -> Result<(), PlaceError> {
    let node = colocation.body.node(call);
    let limits = limits(node, stack, cx)?;
    if (limits.arguments.len(), limits.results.len()) != (node.inputs.len(), node.outputs.len()) {
        let message = format!(
            "Cannot apply input/output device constraints to node {}: its function has {} \
             arguments and {} results",
            node.name,
            limits.arguments.len(),
            limits.results.len()
        );
        return Err(PlaceError::new(PlaceErrorKind::Function, message).at(&node.name));
    }
    // For each group its nodes, each with whether it gets a resource from the call.
    let mut around: Vec<Vec<(u32, bool)>> = vec![Vec::new(); limits.groups.len()];
    for (source, group) in node.inputs.iter().zip(&limits.arguments) {
        around[*group].push((source.node.0, false));
    }
    for edge in leaving {
        let of = node.outputs[edge.output as usize];
        let is_resource = of.dtype == Dtype::RESOURCE && !of.reference;
        around[limits.results[edge.output as usize]].push((edge.to, is_resource));
    }
    for nodes in &around {
        let Some(((first, _), others)) = nodes.split_first() else { continue };
        for (other, is_resource) in others {
            if *is_resource {
                let edge = Edge { from: *first, output: 0, to: *other, input: 0 };
                colocation.bind(edge, cx)?;
            } else {
                colocation.unite(*first, *other, cx)?;
            }
        }
    }
    for (nodes, limit) in around.iter().zip(&limits.groups) {
        let Some((first, _)) = nodes.first() else { continue };
        let root = colocation.groups.root(*first);
        let member = colocation.groups.get_mut(root);
        let requested = member.requested.merged(&limit.requested, cx.soft);
        let resource = member.resource.merged(&limit.resource, false);
        let names = requested.and_then(|requested| Ok((requested, resource?)));
        let (requested, resource) = names.map_err(|names| {
            PlaceError::new(PlaceErrorKind::CannotColocate, cx.incompatible(&names))
        })?;
        if requested != member.requested && member.requested_by.is_none() {
            member.requested_by = Some(call);
        }
        member.requested = requested;
        member.resource = resource;
        // As in TensorFlow, the lack of a common type is not an error here, but where the node is
        // placed.
        member.kinds = cx.kinds.merge(member.kinds, limit.kinds).unwrap_or(member.kinds);
    }
    Ok(())
}

/// Returns the requirements of the function that a node calls.
fn limits(node: &Node, stack: &[Frame], cx: &mut Context<'_>) -> Result<Rc<Limits>, PlaceError> {
    let fail = |message: String| PlaceError::new(PlaceErrorKind::Function, message).at(&node.name);
    let (function, attrs) = cx.called(node)?;
    let name = &function.signature.name;
    let is_running = stack.iter().any(|frame| frame.function == *name);
    if is_running {
        return Err(recursion(node, name, stack));
    }
    let key = (name.clone(), format!("{attrs:?}"));
    if let Some(known) = cx.limits.get(&key) {
        return Ok(known.clone());
    }
    if stack.len() >= MOST_NESTED {
        return Err(fail(format!("Functions are nested more than {MOST_NESTED} deep")));
    }
    let instance =
        function::instantiate(function, attrs, cx.functions, cx.registry, &mut cx.budget);
    let instance = instance.map_err(|error| match error {
        BuildError::TooLarge => fail("The bodies of functions are too large".to_owned()),
        error => fail(format!("function {name}: {error}")),
    })?;

    let nodes = instance.graph.nodes();
    let order = instance.graph.order().into_iter().map(|id| id.0).collect();
    let body = Body::new(nodes, order, cx.inspected(nodes)?, true, &mut cx.identities)?;
    let mut stack = stack.to_vec();
    let caller = stack.last().map(|frame| frame.function.clone()).unwrap_or_default();
    stack.push(Frame { caller, node: node.name.to_string(), function: name.clone() });
    let mut colocation = Colocation::new(body, &stack, cx)?;

    let mut numbers = HashMap::new();
    let mut groups = Vec::new();
    let mut group = |at: &u32| {
        let root = colocation.groups.root(*at);
        *numbers.entry(root).or_insert_with(|| {
            let Member { requested, resource, kinds, .. } = *colocation.groups.get(root);
            groups.push(Limit { requested, resource, kinds });
            groups.len() - 1
        })
    };
    let arguments = instance.arguments.iter().map(&mut group).collect();
    let results = instance.results.iter().map(&mut group).collect();
    let limits = Rc::new(Limits { arguments, results, groups });
    cx.limits.insert(key, limits.clone());
    Ok(limits)
}

fn recursion(node: &Node, function: &str, stack: &[Frame]) -> PlaceError {
    let within = stack.last().map_or("", |frame| &frame.function);
    let mut message = format!(
        "Recursive function calls are not supported. Node {{{{node {}}}}} inside the body of \
         {{{{function_node {within}}}}} calls function {{{{function_node {function}}}}} which is \
         already present in the call stack:\n  ",
        node.name
    );
    let lines = stack.iter().flat_map(|frame| {
        let contains = if frame.caller.is_empty() {
            format!("Graph contains node {{{{node {}}}}}", frame.node)
        } else {
            let caller = &frame.caller;
            format!(
                "Function {{{{function_node {caller}}}}} contains node {{{{node {}}}}}",
                frame.node
            )
        };
        let calls = format!(
            "Node {{{{node {}}}}} calls function {{{{function_node {}}}}}",
            frame.node, frame.function
        );
        [contains, calls]
    });
    message += &super::message::join(lines, "\n  ");
    PlaceError {
        node: Some(node.name.to_string()),
        ..PlaceError::new(PlaceErrorKind::RecursiveFunction, message)
    }
}
