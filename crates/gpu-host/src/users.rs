//! Names of users.

use crate::SystemClock;
use gpu_core::{Absent, Clock, MergedLeases, Reading};
use nix::unistd::{Uid, User};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How long to cache an answer: a UID may get a new account, and an account may get a name.
const NAMED: Duration = Duration::from_secs(600);
const UNNAMED: Duration = Duration::from_secs(30);

/// Resolves user names for display, and caches the answers for a while: the system may have to
/// contact a directory server for each.
pub(crate) struct Users {
    clock: SystemClock,
    known: Mutex<HashMap<u32, (Duration, Reading<String>)>>,
}

impl Default for Users {
    fn default() -> Self {
        Users { clock: SystemClock::new(), known: Mutex::default() }
    }
}

impl Users {
    /// Returns the name of a user; `NotFound` for a UID without one.
    pub(crate) fn name(&self, uid: u32) -> Reading<String> {
        self.name_at(uid, self.clock.monotonic(), user_name)
    }

    fn name_at(
        &self,
        uid: u32,
        now: Duration,
        find: impl Fn(u32) -> Reading<String>,
    ) -> Reading<String> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, name)) = known.get(&uid).filter(|(until, _)| now < *until) {
            return name.clone();
        }
        let name = find(uid);
        let lasts = if name.is_ok() { NAMED } else { UNNAMED };
        known.insert(uid, (now + lasts, name.clone()));
        name
    }
}

/// Returns the name of a user, or `user` and the UID.
pub fn user_label(uid: u32) -> String {
    user_name(uid).unwrap_or_else(|_| format!("user {uid}"))
}

/// Returns the name of a user; `NotFound` for a UID without one, and "several users" for the owner
/// of their merged leases, which is not a UID ([`MergedLeases::SEVERAL_USERS`]).
pub fn user_name(uid: u32) -> Reading<String> {
    if uid == MergedLeases::SEVERAL_USERS {
        return Ok("several users".to_owned());
    }
    match User::from_uid(Uid::from_raw(uid)) {
        Ok(Some(user)) => Ok(user.name),
        Ok(None) => Err(Absent::NotFound),
        Err(_) => Err(Absent::Failed),
    }
}

/// Returns the UID of an account by its name; `NotFound` if there is none.
pub(crate) fn account(name: &str) -> Reading<u32> {
    match User::from_name(name) {
        Ok(Some(user)) => Ok(user.uid.as_raw()),
        Ok(None) => Err(Absent::NotFound),
        Err(_) => Err(Absent::Failed),
    }
}

/// Returns whether this machine has an account with this name or UID.
pub fn has_account(user: &str) -> bool {
    let is_named = |uid| uid != MergedLeases::SEVERAL_USERS && user_name(uid).is_ok();
    account(user).is_ok() || user.parse().is_ok_and(is_named)
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
    fn cached_user_name_expires() {
        let users = Users::default();
        let named = |_| Ok("alice".to_owned());
        let failed = |_| Err(Absent::Failed);
        let at = |seconds, find: &dyn Fn(u32) -> Reading<String>| {
            users.name_at(1001, Duration::from_secs(seconds), find)
        };
        assert_eq!(at(0, &failed), Err(Absent::Failed));
        assert_eq!(at(29, &named), Err(Absent::Failed));
        assert_eq!(at(30, &named).as_deref(), Ok("alice"));
        assert_eq!(at(629, &failed).as_deref(), Ok("alice"));
        assert_eq!(at(630, &failed), Err(Absent::Failed));
    }

    #[test]
    fn account_exists_by_name_but_not_by_unknown_uid() {
        let asked = ["root", "0", "4000000007", "4294967295", "no such user", ""];
        assert_eq!(asked.map(has_account), [true, true, false, false, false, false]);
        assert_eq!(user_name(MergedLeases::SEVERAL_USERS).as_deref(), Ok("several users"));
    }
}
