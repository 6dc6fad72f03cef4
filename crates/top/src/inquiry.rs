//! Data that is read only when the user asks for it: the environment of a process, leases and
//! claims.
//!
//! Each question is answered on its own thread, because a process can block the reader of its
//! environment, and must block only that one.

use gpu_core::{Environment, ProcessKey};
use gpu_steward::Listing;
use std::collections::BTreeMap;

/// A question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inquiry {
    /// The environment of a process.
    Environment(ProcessKey),
    /// All leases and all waiting claims.
    Leases,
}

/// The answer to an [`Inquiry`], or why there is none, as a sentence.
#[derive(Clone, Debug)]
pub enum Answer {
    /// The environment of a process.
    Environment(ProcessKey, Result<Environment, String>),
    /// All leases and all waiting claims.
    Leases(Result<Leases, String>),
}

/// Leases and waiting claims.
#[derive(Clone, Debug)]
pub struct Leases {
    /// The leases and claims.
    pub listing: Box<Listing>,
    /// The names of their owners by UID.
    pub names: BTreeMap<u32, String>,
}

impl Leases {
    /// Returns leases and claims with the names of their owners; `user_name` returns the name of a
    /// user by UID.
    pub fn of(listing: Listing, user_name: &dyn Fn(u32) -> String) -> Self {
        let claims = listing.queue.iter().map(|queued| queued.entry.owner);
        let owners = listing.leases.iter().map(|leased| leased.entry.owner).chain(claims);
        let names = owners.map(|uid| (uid, user_name(uid))).collect();
        Leases { listing: Box::new(listing), names }
    }
}

/// Answers questions of the view.
pub trait Inspector: Send + Sync {
    /// Answers a question; it may take long.
    fn answer(&self, inquiry: Inquiry) -> Answer;
}

/// Parts of the names of variables with values that are shown only on request.
const SECRET: [&str; 10] =
    ["TOKEN", "KEY", "SECRET", "PASS", "PWD", "CREDENTIAL", "AUTH", "COOKIE", "PRIVATE", "DSN"];
/// Variables with names that only look secret.
const HARMLESS: [&str; 2] = ["PWD", "OLDPWD"];

/// Returns whether a variable may be a secret: by its name, or because its value is an address with
/// a password (`https://user:password@host`).
pub(crate) fn is_secret(name: &str, value: &str) -> bool {
    let name = name.to_ascii_uppercase();
    let by_name = SECRET.iter().any(|part| name.contains(part)) && !HARMLESS.contains(&&*name);
    let address = value.split_once("://").and_then(|(_, rest)| rest.split_once('@'));
    by_name || address.is_some_and(|(user, _)| user.contains(':') && !user.contains('/'))
}

#[cfg(test)]
mod tests {
    use super::is_secret;

    #[test]
    fn possible_secrets_are_recognised_by_name_and_value() {
        for name in
            ["HF_TOKEN", "aws_secret_access_key", "WANDB_API_KEY", "PGPASSWORD", "MYSQL_PWD"]
        {
            assert!(is_secret(name, "x"), "{name}");
        }
        for name in ["PATH", "PWD", "OLDPWD", "CUDA_VISIBLE_DEVICES", "LANG", "RANK"] {
            assert!(!is_secret(name, "x"), "{name}");
        }
        assert!(is_secret("PROXY", "http://bob:hunter2@proxy:3128"));
        assert!(!is_secret("PROXY", "http://proxy:3128/a@b"));
        assert!(!is_secret("REPO", "ssh://git@host/x"));
    }
}
