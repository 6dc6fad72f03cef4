//! Readers of graphs, operations and kernels from files.
//!
//! A file is hostile: it is read within [`Limits`], in one pass, and unneeded data, such as the
//! contents of tensors, is not copied. docs/graph-formats.md describes the forms.

mod detect;
mod error;
mod json;
mod limit;
mod message;
mod onnx;
mod tensorflow;
mod text;
mod wire;

pub use detect::detect;
pub use error::{Location, ReadError, Reason};
pub use limit::Limits;

#[cfg(test)]
mod tests;

use crate::def::{GraphDef, OpDef};
use crate::device::Device;
use crate::registry::{Kernel, Registry};
use std::fmt;
use text::Text;
use wire::Wire;

/// The forms of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// The JSON form of gpuws: a graph, operations, kernels and devices.
    Json,
    /// TensorFlow's `GraphDef` in protobuf's text form (`.pbtxt`).
    GraphText,
    /// TensorFlow's `GraphDef` in protobuf's binary form (`.pb`).
    GraphBinary,
    /// TensorFlow's `MetaGraphDef` in binary form (`.meta`).
    MetaGraph,
    /// TensorFlow's `SavedModel` in binary form (`saved_model.pb`).
    SavedModel,
    /// An ONNX model (`.onnx`).
    Onnx,
    /// TensorFlow's `OpList` in either form.
    Ops,
    /// TensorFlow's `KernelList` in either form.
    Kernels,
}

impl Form {
    /// Returns the name of this form, with an article.
    pub fn name(self) -> &'static str {
        match self {
            Form::Json => "the graph in JSON",
            Form::GraphText => "the GraphDef in text form",
            Form::GraphBinary => "the GraphDef",
            Form::MetaGraph => "the MetaGraphDef",
            Form::SavedModel => "the SavedModel",
            Form::Onnx => "the ONNX model",
            Form::Ops => "the list of operations",
            Form::Kernels => "the list of kernels",
        }
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a file contains.
#[derive(Clone, Debug)]
pub struct Document {
    /// The form of the file.
    pub form: Form,
    /// The graph.
    pub graph: GraphDef,
    /// The operations and kernels, if the file lists any.
    pub registry: Option<Registry>,
    /// The devices, if the file lists them.
    pub devices: Option<Vec<Device>>,
    /// Notes on content of the file that the graph lacks.
    pub notes: Vec<String>,
}

impl Document {
    fn of(form: Form, graph: GraphDef) -> Document {
        Document { form, graph, registry: None, devices: None, notes: Vec::new() }
    }
}

/// Reads a graph from a file of any form.
///
/// # Errors
/// If the form is unknown, the content is malformed, or a limit is exceeded.
pub fn graph(file: &[u8], limits: &Limits) -> Result<Document, ReadError> {
    graph_as(detect(file)?, file, limits)
}

/// Reads a graph from a file of a known form.
///
/// # Errors
/// If the content is malformed, the form has no graph, or a limit is exceeded.
pub fn graph_as(form: Form, file: &[u8], limits: &Limits) -> Result<Document, ReadError> {
    let graph = match form {
        Form::Json => return json::read(file, limits),
        Form::Onnx => return onnx::read(file, limits),
        Form::GraphText => tensorflow::graph(&mut Text::new(file, form, limits)?)?,
        Form::GraphBinary => tensorflow::graph(&mut Wire::new(file, form, limits)?)?,
        Form::MetaGraph => tensorflow::meta_graph(&mut Wire::new(file, form, limits)?)?,
        Form::SavedModel => tensorflow::saved_model(&mut Wire::new(file, form, limits)?)?,
        Form::Ops | Form::Kernels => {
            let reason = Reason::malformed("it has no graph");
            return Err(ReadError { form: Some(form), location: Location::Whole, reason });
        }
    };
    Ok(Document::of(form, graph))
}

/// Reads TensorFlow's `OpList`, in text or in binary form.
///
/// # Errors
/// If the content is malformed, or a limit is exceeded.
pub fn ops(file: &[u8], limits: &Limits) -> Result<Vec<OpDef>, ReadError> {
    if detect::is_binary_list(file) {
        tensorflow::ops(&mut Wire::new(file, Form::Ops, limits)?)
    } else {
        tensorflow::ops(&mut Text::new(file, Form::Ops, limits)?)
    }
}

/// Reads TensorFlow's `KernelList`, in text or in binary form. Kernels with a label are left out,
/// because a node must request the label; constraints on numbers and flags are dropped.
///
/// # Errors
/// If the content is malformed, or a limit is exceeded.
pub fn kernels(file: &[u8], limits: &Limits) -> Result<Vec<Kernel>, ReadError> {
    if detect::is_binary_list(file) {
        tensorflow::kernels(&mut Wire::new(file, Form::Kernels, limits)?)
    } else {
        tensorflow::kernels(&mut Text::new(file, Form::Kernels, limits)?)
    }
}
