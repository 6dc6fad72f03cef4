//! The types of the arguments and results of an operation, given the attributes of a node.

use super::{Budget, BuildError};
use crate::def::{ArgDef, ArgKind, Attr};
use crate::dtype::ValueType;
use std::collections::BTreeMap;

/// The largest number of values that one argument may have. TensorFlow has no bound; here a file
/// must not be able to require more memory than it has bytes.
pub(super) const MOST_VALUES: usize = 65_536;

/// Returns the types of arguments, one for each value, and takes their number from the budget.
pub(crate) fn types(
    args: &[ArgDef],
    attrs: &BTreeMap<String, Attr>,
    node: &str,
    budget: &mut Budget,
) -> Result<Vec<ValueType>, BuildError> {
    let mut all = Vec::with_capacity(args.len());
    for arg in args {
        add(&arg.kind, arg.reference, attrs, node, budget, &mut all)?;
    }
    Ok(all)
}

/// Adds the types of the values of one argument, and takes their number from the budget.
pub(crate) fn add(
    kind: &ArgKind,
    reference: bool,
    attrs: &BTreeMap<String, Attr>,
    node: &str,
    budget: &mut Budget,
    all: &mut Vec<ValueType>,
) -> Result<(), BuildError> {
    each(kind, reference, &|name| attrs.get(name), node, &mut |of, count| {
        budget.take(count)?;
        all.extend(std::iter::repeat_n(of, count));
        Ok(())
    })
}

/// Calls a function with the types of the values of one argument, each with the number of
/// consecutive values of this type.
pub(crate) fn each<'a>(
    kind: &ArgKind,
    reference: bool,
    attr: &dyn Fn(&str) -> Option<&'a Attr>,
    node: &str,
    found: &mut dyn FnMut(ValueType, usize) -> Result<(), BuildError>,
) -> Result<(), BuildError> {
    let get = |name: &str| {
        let missing = || BuildError::MissingAttr { node: node.to_owned(), attr: name.to_owned() };
        attr(name).ok_or_else(missing)
    };
    let invalid =
        |name: &str| BuildError::InvalidAttr { node: node.to_owned(), attr: name.to_owned() };
    let value = |of: ValueType| ValueType { reference: reference || of.reference, ..of };
    match kind {
        ArgKind::Type(dtype) => found(value(ValueType::of(*dtype)), 1),
        ArgKind::TypeAttr(name) => {
            let of = get(name)?.as_type().ok_or_else(|| invalid(name))?;
            found(value(of), 1)
        }
        ArgKind::TypeListAttr(name) => {
            for item in get(name)?.items() {
                found(value(item.as_type().ok_or_else(|| invalid(name))?), 1)?;
            }
            Ok(())
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
            found(value(of), count)
        }
    }
}
