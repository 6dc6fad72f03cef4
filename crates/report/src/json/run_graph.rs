//! `gpuws place graph --run --json`.

use super::Version;
use gpu_executor::{Data, Fetched, ProgramError, Ran};
use serde::Serialize;
use std::collections::BTreeMap;

/// The largest number of elements of a value that is printed.
const MAX_ELEMENTS: usize = 1 << 20;

/// A graph that was run.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RanGraph<'a> {
    /// Version of this object's format.
    pub schema: Version,
    /// Path of the graph.
    pub file: &'a str,
    /// Name of the simulated machine whose GPUs are used. Null if the devices were named, or are
    /// those of a real machine.
    pub machine: Option<&'a str>,
    /// Number of operations that run at the same time.
    pub inter_op_threads: usize,
    /// Number of threads that share the work of one operation.
    pub intra_op_threads: usize,
    /// The values, in the order in which they were requested. Empty for a run in virtual time.
    pub values: Vec<Value<'a>>,
    /// Number of nodes of each operation without a kernel here. If there are any, the run was in
    /// virtual time.
    pub unsupported: &'a BTreeMap<String, usize>,
    /// Estimated end of the last operation, in nanoseconds, in virtual time. Null if the values
    /// were computed.
    pub makespan_ns: Option<u64>,
    /// Parts of the file that the graph omits, and how the graph was replicated.
    pub notes: &'a [String],
}

/// A value of a run.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Value<'a> {
    /// Name of the value, such as c:0; name of the operation if it has no output.
    pub name: &'a str,
    /// Element type, such as DT_FLOAT. Null for an operation without output.
    pub dtype: Option<String>,
    /// Size of each dimension. Null for an operation without output.
    pub shape: Option<&'a [usize]>,
    /// The elements, with the last index fastest. Null for an operation without output, and for a
    /// value of more than 1048576 elements.
    pub elements: Option<Vec<Element>>,
}

/// An element of a value.
#[derive(Clone, Copy, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Element {
    /// A number of the type float.
    Single(f32),
    /// A number of the type double.
    Double(f64),
    /// A whole number.
    Whole(i64),
    /// A number that JSON does not have.
    Special(Special),
}

/// A number that JSON does not have, as protobuf writes it in JSON.
#[derive(Clone, Copy, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Special {
    /// Not a number.
    NaN,
    /// Above all numbers.
    Infinity,
    /// Below all numbers.
    #[serde(rename = "-Infinity")]
    MinusInfinity,
}

impl<'a> RanGraph<'a> {
    /// Returns the result of a run with these numbers of threads.
    pub fn of(
        file: &'a str,
        machine: Option<&'a str>,
        [inter_op_threads, intra_op_threads]: [usize; 2],
        ran: &'a Ran,
        notes: &'a [String],
    ) -> Self {
        let is_virtual = !ran.unsupported.is_empty();
        RanGraph {
            schema: Version,
            file,
            machine,
            inter_op_threads,
            intra_op_threads,
            values: ran.values.iter().map(Value::of).collect(),
            unsupported: &ran.unsupported,
            makespan_ns: is_virtual.then(|| ran.trace.makespan_nanos()),
            notes,
        }
    }
}

/// Returns the lines for a value: its name, type and shape unless `is_bare`, and its elements.
pub fn lines(fetched: &Fetched, is_bare: bool) -> Vec<String> {
    let Fetched { name, tensor } = fetched;
    let Some(tensor) = tensor else { return vec![format!("{name} has run")] };
    let head = format!("{name}  {} {:?}", tensor.dtype(), tensor.shape());
    let text = tensor.to_string();
    let head = (!is_bare).then_some(head);
    head.into_iter().chain(text.lines().map(str::to_owned)).collect()
}

/// Returns why a run was in virtual time.
pub fn why_virtual(ran: &Ran) -> String {
    let error = ProgramError::Unsupported(ran.unsupported.clone());
    format!("no kernel here can {error}: the run is in virtual time, without values")
}

impl<'a> Value<'a> {
    /// Returns a value that a run has fetched.
    fn of(fetched: &'a Fetched) -> Self {
        let tensor = fetched.tensor.as_deref();
        let printed = tensor.filter(|tensor| tensor.len() <= MAX_ELEMENTS);
        Value {
            name: &fetched.name,
            dtype: tensor.map(|tensor| tensor.dtype().to_string()),
            shape: tensor.map(|tensor| tensor.shape()),
            elements: printed.map(|tensor| match tensor.data() {
                Data::Float(of) => of.iter().map(|x| special(*x, Element::Single(*x))).collect(),
                Data::Double(of) => of.iter().map(|x| special(*x, Element::Double(*x))).collect(),
                Data::Int32(of) => of.iter().map(|x| Element::Whole((*x).into())).collect(),
                Data::Int64(of) => of.iter().map(|x| Element::Whole(*x)).collect(),
            }),
        }
    }
}

/// Returns an element, or what stands for it if it is not a number of JSON.
fn special(x: impl Into<f64>, element: Element) -> Element {
    match x.into() {
        x if x.is_finite() => element,
        x if x.is_nan() => Element::Special(Special::NaN),
        x if x > 0.0 => Element::Special(Special::Infinity),
        _ => Element::Special(Special::MinusInfinity),
    }
}
