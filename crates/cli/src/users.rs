//! Names of users.

use gpu_core::LeaseEntry;
use gpu_host::user_name;

/// Returns the name of the owner of a lease or a claim.
pub(crate) fn owner(entry: &LeaseEntry) -> String {
    user(entry.owner)
}

/// Returns the name of a user, or its UID.
pub(crate) fn user(uid: u32) -> String {
    user_name(uid).unwrap_or_else(|_| format!("user {uid}"))
}
