//! A host name that ssh cannot mistake for anything else.

use gpu_core::{Error, ErrorKind, Result, clean};
use std::fmt;
use std::str::FromStr;

/// The maximum length: a user, `@`, and a domain name (RFC 1035 allows 255 bytes).
const MAX_LENGTH: usize = 320;

/// A host as ssh names it: `gpu01`, `alice@gpu01.lab`, an alias from `ssh_config`, or an IP
/// address.
///
/// It contains only letters, digits, `.`, `_`, `-` and `:`, and neither the user nor the host
/// starts with `-`. So ssh never takes it for an option, and a `ProxyCommand` or `Match exec` in
/// the configuration can use it safely.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostName(String);

impl HostName {
    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for HostName {
    type Err = Error;

    /// # Errors
    /// `Invalid` when the text is not the name of a host.
    fn from_str(text: &str) -> Result<Self> {
        let refused = |why: &'static str| {
            let shown: String = text.chars().take(80).collect();
            let what = format!("use '{}' as the name of a host", clean(&shown));
            Err(Error::new(ErrorKind::Invalid, what).with_source(std::io::Error::other(why)))
        };
        let (user, host) = match text.split_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, text),
        };
        let parts = || user.into_iter().chain([host]);
        if parts().any(str::is_empty) {
            return refused("it is empty");
        }
        if parts().any(|part| part.starts_with('-')) {
            return refused("ssh would treat it as an option");
        }
        let fits = |c: char| c.is_ascii_alphanumeric() || "._-:".contains(c);
        if !parts().all(|part| part.chars().all(fits)) {
            return refused("use only letters, digits and ._-:, after an optional USER@");
        }
        if text.len() > MAX_LENGTH {
            return refused("it is too long");
        }
        Ok(HostName(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_addresses_are_accepted() {
        for name in ["a", "gpu01.lab.example", "alice@gpu-01", "192.0.2.7", "fe80::1", "my_alias"] {
            assert_eq!(name.parse::<HostName>().unwrap().to_string(), name);
        }
    }

    #[test]
    fn rejects_options_commands_and_control_characters() {
        let long = "a".repeat(400);
        for name in [
            "",
            "@",
            "@a",
            "a@",
            "-oProxyCommand=touch /tmp/x",
            "-v",
            "root@-oProxyCommand=x",
            "-l@a",
            "a b",
            "a;reboot",
            "a$(reboot)",
            "`reboot`",
            "a\nb",
            "a\u{1b}[2J",
            "a%h",
            "ssh://a",
            "a/b",
            "gpu[01-04]",
            "gpü",
            "a@b@c",
            long.as_str(),
        ] {
            let error = name.parse::<HostName>().expect_err(name);
            assert_eq!(error.kind(), ErrorKind::Invalid, "{name}");
            assert!(!error.to_string().contains(['\n', '\u{1b}']), "{error}");
        }
    }
}
