//! TensorFlow's simple placer: chooses the device of each operation by kernels, requests and
//! colocation.
//!
//! The order of the decisions is part of the result, so it follows TensorFlow's `placer.cc` and
//! `colocation_graph.cc`: groups are merged along references and resources, then by the bodies of
//! functions, then by `_class`; nodes are placed in two passes, those that only generate a value in
//! the second.

mod body;
mod colocation;
mod context;
mod error;
mod function;
mod inspect;
mod kinds;
mod limits;
mod lists;
mod member;
mod message;
mod name;
mod pass;
mod placement;

pub use error::{PlaceError, PlaceErrorKind};
pub use placement::{Placement, Reason, Warning};

use crate::device::DeviceSet;
use crate::graph::Graph;
use crate::registry::Registry;
use body::Body;
use colocation::Colocation;
use context::Context;

/// The options of a placement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Whether an unsatisfiable request is dropped with a warning instead of being an error. A
    /// session of TensorFlow 1 does not drop it, unless `allow_soft_placement` is set; TensorFlow 2
    /// does.
    pub soft: bool,
    /// The full name of the device that is preferred to all others, if any. The registry describes
    /// the kernels of its process.
    pub default_device: Option<String>,
    /// Whether to insert identities first around calls of functions that return resources, as
    /// TensorFlow's `isolate_placer_inspection_required_ops_pass.cc` does.
    pub isolate_calls: bool,
}

impl Default for Options {
    /// Soft placement without a default device.
    fn default() -> Options {
        Options { soft: true, default_device: None, isolate_calls: true }
    }
}

/// Places each node of a graph on a device.
///
/// # Errors
/// If nodes that must be colocated cannot be, if no device supports a node, or if no device
/// satisfies its request and soft placement is off or does not help.
pub fn place(
    graph: &Graph,
    registry: &Registry,
    devices: &DeviceSet,
    options: &Options,
) -> Result<Placement, PlaceError> {
    if devices.is_empty() {
        let message = "No devices are registered".to_owned();
        return Err(PlaceError::new(PlaceErrorKind::NoDevices, message));
    }
    let mut cx = Context::new(registry, devices, &graph.functions, options);
    let order = graph.order().into_iter().map(|id| id.0).collect();
    let inspected = cx.inspected(graph.nodes())?;
    let body = Body::new(graph.nodes(), order, inspected, cx.isolate, &mut cx.identities)?;
    let colocation = Colocation::new(body, &[], &mut cx)?;
    pass::run(colocation, &mut cx)
}
