//! TensorFlow's simple placer: the device of each operation, decided by kernels, requests and what
//! must be colocated.
//!
//! The order of the decisions is part of the result, so it is that of TensorFlow's `placer.cc` and
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

/// How a graph is placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Whether a request that cannot be satisfied gives way, with a warning, instead of being an
    /// error. A session of TensorFlow 1 does not, unless `allow_soft_placement` is set; TensorFlow 2
    /// does.
    pub soft: bool,
    /// The full name of the device that is preferred to all others, if any. Its process is the one
    /// whose kernels the registry describes.
    pub default_device: Option<String>,
    /// Whether calls of functions that return resources get identities around them first, as in
    /// TensorFlow's `isolate_placer_inspection_required_ops_pass.cc`.
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
/// If nodes that must be colocated cannot be, or if no device supports a node, or is as it
/// requests and soft placement is off or does not help.
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
