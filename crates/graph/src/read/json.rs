//! The JSON form of gpuws: a graph, its operations and kernels, and the devices.

mod attr;
mod form;

use super::error::{Location, ReadError, Reason};
use super::{Document, Form, Limits};
use crate::def::{ArgDef, ArgKind, Attr, FunctionDef, GraphDef, NodeDef, OpDef};
use crate::device::Device;
use crate::dtype::ValueType;
use crate::registry::{Kernel, Registry};
use std::collections::BTreeMap;

/// The newest version of the form.
const SCHEMA: u64 = 1;

/// The memory that a byte of the file may need; a list of one-digit numbers needs the most.
const MEMORY_PER_BYTE: u64 = 128;

/// Reads a document.
pub(super) fn read(file: &[u8], limits: &Limits) -> Result<Document, ReadError> {
    let failed = |location, reason| ReadError { form: Some(Form::Json), location, reason };
    let whole = |text: String| failed(Location::Whole, Reason::malformed(text));
    let limit = limits.bytes.min(limits.memory / MEMORY_PER_BYTE);
    if file.len() as u64 > limit {
        return Err(failed(Location::Whole, Reason::Limit { what: "bytes", limit }));
    }
    let file = file.strip_prefix(b"\xef\xbb\xbf").unwrap_or(file);
    let document: form::Document = serde_json::from_slice(file).map_err(|error| {
        let location = Location::Line { line: error.line() as u64, column: error.column() as u64 };
        let text = error.to_string();
        let end = text.rfind(" at line ").unwrap_or(text.len());
        failed(location, Reason::malformed(text.get(..end).unwrap_or_default()))
    })?;
    if document.schema.is_some_and(|schema| schema != SCHEMA) {
        return Err(whole(format!("'schema' is not {SCHEMA}")));
    }
    let in_functions = document.functions.iter().map(|function| function.nodes.len());
    if (in_functions.sum::<usize>() + document.nodes.len()) as u64 > limits.nodes {
        let reason = Reason::Limit { what: "nodes", limit: limits.nodes };
        return Err(failed(Location::Whole, reason));
    }
    let mut registry = Registry::default();
    let lists = !document.ops.is_empty() || !document.kernels.is_empty();
    for op in document.ops {
        registry.add_op(operation(op).map_err(whole)?);
    }
    for kernel in document.kernels {
        registry.add_kernel(self::kernel(kernel));
    }
    let functions = document.functions.into_iter().map(function).collect::<Result<_, _>>();
    let graph = GraphDef {
        nodes: document.nodes.into_iter().map(node).collect(),
        functions: functions.map_err(whole)?,
    };
    let mut devices = None;
    for (names, is_local) in [(document.devices, true), (document.remote_devices, false)] {
        for name in names.into_iter().flatten() {
            let device = device(&name, is_local);
            let device = device.ok_or_else(|| whole(format!("malformed device '{name}'")))?;
            devices.get_or_insert_with(Vec::new).push(device);
        }
    }
    let registry = lists.then_some(registry);
    Ok(Document { registry, devices, ..Document::of(Form::Json, graph) })
}

/// Returns a device; a missing job, replica or task defaults to that of a single process.
fn device(name: &str, is_local: bool) -> Option<Device> {
    Some(Device { is_local, ..Device::local(name)? })
}

fn node(node: form::Node) -> NodeDef {
    let mut attrs = node.attrs;
    if !node.colocate_with.is_empty() {
        let groups = node.colocate_with.iter().map(|name| Attr::Text(format!("loc:@{name}")));
        let mut classes = attrs.get("_class").map(Attr::items).unwrap_or_default().to_vec();
        classes.extend(groups);
        attrs.insert("_class".to_owned(), Attr::List(classes));
    }
    match node.nanos {
        Some(form::Nanos::Everywhere(nanos)) => {
            attrs.insert("_nanos".to_owned(), whole(nanos));
        }
        Some(form::Nanos::ByType(nanos)) => {
            let named = |(kind, nanos)| (format!("_nanos_{kind}"), whole(nanos));
            attrs.extend(nanos.into_iter().map(named));
        }
        None => {}
    }
    let outputs = node.outputs.map(|outputs| {
        if outputs.iter().any(|output| output.bytes.is_some()) {
            let bytes = outputs.iter().map(|output| output.bytes.map_or(Attr::Int(-1), whole));
            attrs.insert("_output_bytes".to_owned(), Attr::List(bytes.collect()));
        }
        if outputs.iter().any(|output| output.shape.is_some()) {
            let shapes = outputs.iter().map(|output| Attr::Shape(output.shape.clone()));
            attrs.insert("_output_shapes".to_owned(), Attr::List(shapes.collect()));
        }
        outputs.into_iter().map(|output| output.of.0).collect()
    });
    NodeDef {
        name: node.name,
        op: node.op,
        inputs: node.inputs,
        device: node.device,
        attrs,
        outputs,
    }
}

/// Converts a number to an attribute.
fn whole(number: u64) -> Attr {
    Attr::Int(i64::try_from(number).unwrap_or(i64::MAX))
}

fn function(function: form::Function) -> Result<FunctionDef, String> {
    Ok(FunctionDef {
        signature: operation(form::Op {
            name: function.name,
            inputs: function.inputs,
            outputs: function.outputs,
            attrs: function.attrs,
            stateful: function.stateful,
        })?,
        nodes: function.nodes.into_iter().map(node).collect(),
        returns: function.returns,
    })
}

fn operation(op: form::Op) -> Result<OpDef, String> {
    let form::Op { name, inputs, outputs, attrs, stateful } = op;
    let failed = |reason| format!("operation '{name}': {reason}");
    let inputs = inputs.into_iter().map(argument).collect::<Result<_, _>>().map_err(failed)?;
    let outputs = outputs.into_iter().map(argument).collect::<Result<_, _>>().map_err(failed)?;
    Ok(OpDef { name, inputs, outputs, attrs, stateful })
}

fn argument(argument: form::Argument) -> Result<ArgDef, String> {
    let form::Argument { name, of, type_attr, type_list_attr, number_attr, reference } = argument;
    let kind = match (of, type_attr, type_list_attr) {
        (Some(of), None, None) => ArgKind::Type(of.0.dtype),
        (None, Some(attr), None) => ArgKind::TypeAttr(attr),
        (None, None, Some(attr)) => ArgKind::TypeListAttr(attr),
        _ => {
            return Err(format!(
                "argument '{name}' needs one of 'type', 'type_attr' and 'type_list_attr'"
            ));
        }
    };
    let kind = match number_attr {
        Some(count) => ArgKind::Repeated(count, Box::new(kind)),
        None => kind,
    };
    let reference = reference || of.is_some_and(|of| of.0.reference);
    Ok(ArgDef { name, kind, reference })
}

fn kernel(kernel: form::Kernel) -> Kernel {
    let types = |types: Vec<form::Type>| types.into_iter().map(|of| of.0.dtype).collect();
    let constraints = kernel.constraints.into_iter();
    Kernel {
        op: kernel.op,
        device_type: kernel.device,
        priority: kernel.priority,
        constraints: constraints.map(|(name, allowed)| (name, types(allowed))).collect(),
        host_memory: kernel.host_memory,
        nanos: kernel.nanos,
    }
}
