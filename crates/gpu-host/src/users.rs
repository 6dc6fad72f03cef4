//! Names of users.

use gpu_core::{Absent, Reading};
use nix::unistd::{Uid, User};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// Resolves user names, and queries the system for each only once: it may have to contact a
/// directory server.
#[derive(Default)]
pub(crate) struct Users(Mutex<HashMap<u32, Reading<String>>>);

impl Users {
    /// Returns the name of a user; `NotFound` for a UID without one.
    pub(crate) fn name(&self, uid: u32) -> Reading<String> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.entry(uid).or_insert_with(|| user_name(uid)).clone()
    }
}

/// Returns the name of a user; `NotFound` for a UID without one.
pub fn user_name(uid: u32) -> Reading<String> {
    match User::from_uid(Uid::from_raw(uid)) {
        Ok(Some(user)) => Ok(user.name),
        Ok(None) => Err(Absent::NotFound),
        Err(_) => Err(Absent::Failed),
    }
}

/// Returns whether this machine has an account with this name or UID.
pub fn has_account(user: &str) -> bool {
    let numbered = || user.parse().is_ok_and(|uid| user_name(uid).is_ok());
    matches!(User::from_name(user), Ok(Some(_))) || numbered()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_name_is_looked_up_by_uid() {
        let users = Users::default();
        assert_eq!(users.name(0).as_deref(), Ok("root"));
        assert_eq!(users.name(4_000_000_007), Err(Absent::NotFound));
        assert_eq!(users.name(0).as_deref(), Ok("root"));
    }

    #[test]
    fn account_exists_by_name_but_not_by_unknown_uid() {
        let asked = ["root", "0", "4000000007", "no such user", ""];
        assert_eq!(asked.map(has_account), [true, true, false, false, false]);
    }
}
