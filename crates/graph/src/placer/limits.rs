//! What the body of a function demands, as its calls need it.

use super::kinds::KindList;
use super::name::Name;

/// The groups in which a body puts arguments and results, and what it demands of each.
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
