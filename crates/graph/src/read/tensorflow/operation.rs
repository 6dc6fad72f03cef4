//! Operations (`OpList`) and kernels (`KernelList`).

use super::super::error::{ReadError, Reason};
use super::super::message::Kind::{Length, Varint};
use super::super::message::{Fields, Message};
use super::{item, text, value};
use crate::def::{ArgDef, ArgKind, Attr, OpDef};
use crate::dtype::ValueType;
use crate::registry::Kernel;

const OPS: Fields = &[(1, "op", Length)];
const OP: Fields = &[
    (1, "name", Length),
    (2, "input_arg", Length),
    (3, "output_arg", Length),
    (4, "attr", Length),
    (5, "summary", Length),
    (6, "description", Length),
    (8, "deprecation", Length),
    (16, "is_aggregate", Varint),
    (17, "is_stateful", Varint),
    (18, "is_commutative", Varint),
    (19, "allows_uninitialized_input", Varint),
    (20, "control_output", Length),
    (21, "is_distributed_communication", Varint),
];
const ARGUMENT: Fields = &[
    (1, "name", Length),
    (2, "description", Length),
    (3, "type", Varint),
    (4, "type_attr", Length),
    (5, "number_attr", Length),
    (6, "type_list_attr", Length),
    (7, "handle_data", Length),
    (16, "is_ref", Varint),
    (17, "experimental_full_type", Length),
];
const ATTRIBUTE: Fields = &[
    (1, "name", Length),
    (2, "type", Length),
    (3, "default_value", Length),
    (4, "description", Length),
    (5, "has_minimum", Varint),
    (6, "minimum", Varint),
    (7, "allowed_values", Length),
];
const KERNELS: Fields = &[(1, "kernel", Length)];
const KERNEL: Fields = &[
    (1, "op", Length),
    (2, "device_type", Length),
    (3, "constraint", Length),
    (4, "host_memory_arg", Length),
    (5, "label", Length),
    (6, "priority", Varint),
];
const CONSTRAINT: Fields = &[(1, "name", Length), (2, "allowed_values", Length)];

/// Reads an `OpList`.
pub(in super::super) fn ops<M: Message>(m: &mut M) -> Result<Vec<OpDef>, ReadError> {
    let mut ops = Vec::new();
    while m.next(OPS)?.is_some() {
        m.charge(|budget| budget.op())?;
        m.enter()?;
        let op = op(m)?;
        if op.name.is_empty() {
            return Err(m.error(Reason::malformed("an operation has no name")));
        }
        ops.push(op);
    }
    Ok(ops)
}

/// Reads a `KernelList`. Kernels with a label are left out: they run only if a node requests them.
pub(in super::super) fn kernels<M: Message>(m: &mut M) -> Result<Vec<Kernel>, ReadError> {
    let mut kernels = Vec::new();
    while m.next(KERNELS)?.is_some() {
        m.charge(|budget| budget.kernel())?;
        let (kernel, label) = kernel(m)?;
        if kernel.op.is_empty() || kernel.device_type.is_empty() {
            return Err(m.error(Reason::malformed("a kernel has no operation or no device type")));
        }
        if label.is_empty() {
            kernels.push(kernel);
        }
    }
    Ok(kernels)
}

/// Reads the rest of an `OpDef`.
pub(super) fn op<M: Message>(m: &mut M) -> Result<OpDef, ReadError> {
    let mut op = OpDef::default();
    while let Some(field) = m.next(OP)? {
        match field {
            1 => op.name = text(m)?,
            2 => op.inputs.push(argument(m)?),
            3 => op.outputs.push(argument(m)?),
            4 => {
                let (name, default) = attribute(m)?;
                m.charge(|budget| budget.attribute("", op.attrs.len()))?;
                op.attrs.insert(name, default);
            }
            17 => op.stateful = m.flag()?,
            _ => m.skip()?,
        }
    }
    Ok(op)
}

fn argument<M: Message>(m: &mut M) -> Result<ArgDef, ReadError> {
    m.charge(|budget| budget.argument())?;
    m.enter()?;
    let (mut name, mut reference) = (String::new(), false);
    let (mut of, mut count) = (None, None);
    while let Some(field) = m.next(ARGUMENT)? {
        match field {
            1 => name = text(m)?,
            // Some files write a missing type as zero.
            3 => of = m.dtype()?.ok().map(|of| ArgKind::Type(of.dtype)).or(of),
            4 => of = Some(text(m)?).filter(|name| !name.is_empty()).map(ArgKind::TypeAttr).or(of),
            5 => count = Some(text(m)?).filter(|name| !name.is_empty()),
            6 => {
                let list = Some(text(m)?).filter(|name| !name.is_empty());
                of = list.map(ArgKind::TypeListAttr).or(of);
            }
            16 => reference = m.flag()?,
            _ => m.skip()?,
        }
    }
    let Some(of) = of else {
        return Err(m.error(Reason::malformed(format!("argument '{name}' has no type"))));
    };
    let kind = match count {
        Some(count) => ArgKind::Repeated(count, Box::new(of)),
        None => of,
    };
    Ok(ArgDef { name, kind, reference })
}

fn attribute<M: Message>(m: &mut M) -> Result<(String, Option<Attr>), ReadError> {
    m.enter()?;
    let (mut name, mut default) = (String::new(), None);
    while let Some(field) = m.next(ATTRIBUTE)? {
        match field {
            1 => name = text(m)?,
            3 => default = value(m)?,
            _ => m.skip()?,
        }
    }
    Ok((name, default))
}

fn kernel<M: Message>(m: &mut M) -> Result<(Kernel, String), ReadError> {
    m.enter()?;
    let (mut kernel, mut label) = (Kernel::default(), String::new());
    while let Some(field) = m.next(KERNEL)? {
        match field {
            1 => kernel.op = text(m)?,
            2 => kernel.device_type = text(m)?,
            3 => {
                m.enter()?;
                let (mut name, mut allowed) = (String::new(), None);
                while let Some(field) = m.next(CONSTRAINT)? {
                    match field {
                        1 => name = text(m)?,
                        _ => allowed = value(m)?,
                    }
                }
                let types = allowed.iter().flat_map(Attr::items).filter_map(Attr::as_type);
                let types: Vec<_> = types.map(|of: ValueType| of.dtype).collect();
                // Constraints on numbers or flags are dropped: any value is accepted.
                if !types.is_empty() {
                    m.charge(|budget| budget.attribute("", kernel.constraints.len()))?;
                    kernel.constraints.insert(name, types);
                }
            }
            4 => kernel.host_memory.push(item(m)?),
            5 => label = text(m)?,
            _ => {
                let priority = m.int()?;
                kernel.priority = i32::try_from(priority).map_err(|_| {
                    m.error(Reason::malformed(format!("priority {priority} is out of range")))
                })?;
            }
        }
    }
    Ok((kernel, label))
}
