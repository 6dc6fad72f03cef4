//! Why a graph cannot be placed.

/// The kind of obstacle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PlaceErrorKind {
    /// There are no devices.
    NoDevices,
    /// The name of a requested device is malformed.
    MalformedRequest,
    /// The device of an earlier placement is malformed or does not exist.
    UnknownAssigned,
    /// The device of an earlier placement has no kernel for the node.
    AssignedWithoutKernel,
    /// No device has a kernel for an operation.
    NoKernel,
    /// A reference or resource connects groups with different devices.
    IncompatibleEdge,
    /// Nodes that must be colocated cannot be.
    CannotColocate,
    /// No device satisfies the request and supports the node and those colocated with it.
    Unsatisfiable,
    /// A function calls itself.
    RecursiveFunction,
    /// A node calls a function that does not exist or cannot be built, or functions that are nested
    /// too deeply or too large.
    Function,
}

/// A graph cannot be placed. The message is TensorFlow's, which users know.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct PlaceError {
    /// The kind of obstacle.
    pub kind: PlaceErrorKind,
    /// The node, if the error concerns one.
    pub node: Option<String>,
    /// The message; it has many lines if it shows groups of colocated nodes.
    pub message: String,
}

impl PlaceError {
    pub(super) fn new(kind: PlaceErrorKind, message: String) -> PlaceError {
        PlaceError { kind, node: None, message }
    }

    /// Appends the name of the node that the error concerns.
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
