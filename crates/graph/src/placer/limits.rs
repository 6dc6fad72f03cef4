//! The requirements of a function's body, in the form that its calls need.

use super::kinds::KindList;
use super::name::Name;

/// The groups of arguments and results in a body, and the requirements for each.
#[derive(Debug)]
pub(super) struct Limits {
    pub(super) arguments: Vec<usize>,
    pub(super) results: Vec<usize>,
    pub(super) groups: Vec<Limit>,
}

#[derive(Debug)]
pub(super) struct Limit {
    pub(super) requested: Name,
    pub(super) resource: Name,
    pub(super) kinds: KindList,
}
