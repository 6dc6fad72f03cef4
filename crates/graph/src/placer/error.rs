//! Why a graph cannot be placed.

/// What kind of obstacle it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PlaceErrorKind {
    /// There are no devices.
    NoDevices,
    /// The name of a requested device is malformed.
    MalformedRequest,
    /// The device that a node was placed on before is malformed or not there.
    UnknownAssigned,
    /// The device that a node was placed on before has no kernel for it.
    AssignedWithoutKernel,
    /// No device has a kernel for an operation.
    NoKernel,
    /// A reference or resource connects groups whose devices differ.
    IncompatibleEdge,
    /// Nodes that must be colocated cannot be.
    CannotColocate,
    /// No device is as requested and supports the node and those colocated with it.
    Unsatisfiable,
    /// A function calls itself.
    RecursiveFunction,
    /// A node calls a function that is not there or that cannot be built, or functions that are
    /// nested too deep or too large.
    Function,
}

/// A graph cannot be placed. The message is the one that people know from TensorFlow.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct PlaceError {
    /// What kind of obstacle it is.
    pub kind: PlaceErrorKind,
    /// The node, if it is about one.
    pub node: Option<String>,
    /// The message, of many lines where groups of colocated nodes are shown.
    pub message: String,
}

impl PlaceError {
    pub(super) fn new(kind: PlaceErrorKind, message: String) -> PlaceError {
        PlaceError { kind, node: None, message }
    }

    /// Names the node that the error is about at the end of the message.
    pub(super) fn at(mut self, node: &str) -> PlaceError {
        let shown = if self.message.contains("{{node ") {
            node.to_owned()
        } else {
            format!("{{{{node {node}}}}}")
        };
        self.message = format!("{}\n\t [[{shown}]]", self.message);
        self.node = Some(node.to_owned());
        self
    }
}
