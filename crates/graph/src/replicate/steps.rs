//! The operations of a reduction.

use crate::def::{ArgDef, ArgKind, Attr, OpDef};
use crate::dtype::Dtype;
use crate::registry::{Kernel, Registry};

/// Splits a value into `N` chunks of equal size; if it does not divide, the first ones are an
/// element longer.
pub const SPLIT: &str = "ReduceSplit";
/// Copies a chunk to the device of the node.
pub const COPY: &str = "ReduceCopy";
/// Adds two chunks.
pub const ADD: &str = "ReduceAdd";
/// Joins `N` chunks in the shape of the first input.
pub const JOIN: &str = "ReduceJoin";
/// Multiplies a value with the attribute `factor`.
pub const SCALE: &str = "ReduceScale";

/// Adds the operations of reductions to a registry, with a kernel for every type of device.
pub fn register(registry: &mut Registry) {
    let one = || ArgKind::TypeAttr("T".to_owned());
    let many = || ArgKind::Repeated("N".to_owned(), Box::new(one()));
    let arg =
        |(name, kind): (&str, ArgKind)| ArgDef { name: name.to_owned(), kind, reference: false };
    let ops = [
        (SPLIT, vec![("value", one())], vec![("chunks", many())]),
        (COPY, vec![("chunk", one())], vec![("copy", one())]),
        (ADD, vec![("x", one()), ("y", one())], vec![("sum", one())]),
        (JOIN, vec![("like", one()), ("chunks", many())], vec![("value", one())]),
        (SCALE, vec![("value", one())], vec![("scaled", one())]),
    ];
    for (name, inputs, outputs) in ops {
        let mut attrs =
            vec![("T".to_owned(), Some(Attr::Type(crate::ValueType::of(Dtype::FLOAT))))];
        if matches!(name, SPLIT | JOIN) {
            attrs.push(("N".to_owned(), None));
        }
        if name == SCALE {
            attrs.push(("factor".to_owned(), None));
        }
        registry.add_op(OpDef {
            name: name.to_owned(),
            inputs: inputs.into_iter().map(arg).collect(),
            outputs: outputs.into_iter().map(arg).collect(),
            attrs: attrs.into_iter().collect(),
            stateful: false,
        });
        let (op, device_type) = (name.to_owned(), "DEFAULT".to_owned());
        registry.add_kernel(Kernel { op, device_type, ..Kernel::default() });
    }
}
