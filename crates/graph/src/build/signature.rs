//! The types of the arguments and results of an operation, given the attributes of a node.

use super::BuildError;
use crate::def::Attr;
use crate::dtype::ValueType;
use crate::registry::{ArgDef, ArgKind};
use std::collections::BTreeMap;

/// The largest number of values that one argument may have. TensorFlow has no bound; a file must
/// not be able to demand more memory than it has bytes.
const MOST_VALUES: usize = 65_536;

/// Returns the types of arguments, one for each value.
pub(crate) fn types(
    args: &[ArgDef],
    attrs: &BTreeMap<String, Attr>,
    node: &str,
) -> Result<Vec<ValueType>, BuildError> {
    let mut all = Vec::with_capacity(args.len());
    for arg in args {
        add(&arg.kind, arg.reference, attrs, node, &mut all)?;
    }
    Ok(all)
}

/// Adds the types of the values of one argument.
pub(crate) fn add(
    kind: &ArgKind,
    reference: bool,
    attrs: &BTreeMap<String, Attr>,
    node: &str,
    all: &mut Vec<ValueType>,
) -> Result<(), BuildError> {
    let get = |name: &str| {
        let missing = || BuildError::MissingAttr { node: node.to_owned(), attr: name.to_owned() };
        attrs.get(name).ok_or_else(missing)
    };
    let invalid =
        |name: &str| BuildError::InvalidAttr { node: node.to_owned(), attr: name.to_owned() };
    let value = |of: ValueType| ValueType { reference: reference || of.reference, ..of };
    match kind {
        ArgKind::Type(dtype) => all.push(value(ValueType::of(*dtype))),
        ArgKind::TypeAttr(name) => {
            let of = get(name)?.as_type().ok_or_else(|| invalid(name))?;
            all.push(value(of));
        }
        ArgKind::TypeListAttr(name) => {
            for item in get(name)?.items() {
                all.push(value(item.as_type().ok_or_else(|| invalid(name))?));
            }
        }
        ArgKind::Repeated(name, kind) => {
            let count = get(name)?.as_int().and_then(|count| usize::try_from(count).ok());
            let count = count.filter(|count| *count <= MOST_VALUES).ok_or_else(|| invalid(name))?;
            let of = match &**kind {
                ArgKind::Type(dtype) => ValueType::of(*dtype),
                ArgKind::TypeAttr(name) => get(name)?.as_type().ok_or_else(|| invalid(name))?,
                // A list of lists does not exist.
                ArgKind::TypeListAttr(inner) | ArgKind::Repeated(inner, _) => {
                    return Err(invalid(inner));
                }
            };
            all.extend(std::iter::repeat_n(value(of), count));
        }
    }
    Ok(())
}
