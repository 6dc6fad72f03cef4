//! The answer of a host, or the reason why there is none.

use crate::child::{Ending, Ran};
use crate::{HostMessage, HostName};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;
use std::time::Duration;

/// The supported schema version of the objects.
pub const SCHEMA: u64 = 1;

/// The exit codes of a shell that cannot find a program, and of ssh for its own failures.
const NOT_FOUND: i32 = 127;
const OF_SSH: i32 = 255;

/// The result of querying a host.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The host.
    pub host: HostName,
    /// The output of gpuws there.
    pub answer: Result<Reply, NoAnswer>,
}

/// The output of gpuws on a host.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The object as text, because parsed values would take a hundred times as much memory. It has
    /// `"schema": 1` and is nested at most 128 levels deep; its content is not checked further.
    pub object: Box<RawValue>,
    /// The exit code of gpuws there.
    pub exit_code: i32,
}

impl PartialEq for Reply {
    fn eq(&self, other: &Self) -> bool {
        (self.object.get(), self.exit_code) == (other.object.get(), other.exit_code)
    }
}

/// Why a host has no answer. Text from the host has at most 200 characters and is not escaped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoAnswer {
    /// ssh cannot connect or log in, with its last message.
    Unreachable(String),
    /// gpuws is not in the `PATH` of a command on the host.
    NoProgram,
    /// No answer within this time.
    TimedOut(Duration),
    /// The answer exceeds the limit of a host, or all answers together exceed theirs.
    TooMuch,
    /// The answer is not a gpuws object, or ends early, with the reason.
    Unreadable(String),
    /// The answer has this newer schema version.
    Newer(u64),
    /// gpuws failed there, with its exit code and its message.
    Failed(i32, HostMessage),
    /// ssh cannot be started here, with the reason.
    NoSsh(String),
}

impl NoAnswer {
    /// Returns the remedy, which may be a hint from the host; `None` if there is none.
    pub fn remedy(&self) -> Option<&str> {
        Some(match self {
            NoAnswer::Unreachable(why) if why.contains("Could not resolve") => {
                "check the host name; ~/.ssh/config may have an alias for it"
            }
            NoAnswer::Unreachable(why)
                if ["Permission denied", "erification failed", "uthentication"]
                    .iter()
                    .any(|login| why.contains(login)) =>
            {
                "connect once with ssh to see its prompts"
            }
            NoAnswer::Unreachable(_) => "check that the host is up and accepts ssh connections",
            NoAnswer::NoProgram => "install gpuws there, in the PATH of: ssh HOST command -v gpuws",
            NoAnswer::TimedOut(_) => "allow more time with --deadline",
            NoAnswer::Newer(_) => "use the newer gpuws here too",
            NoAnswer::NoSsh(_) => "install OpenSSH (openssh-client)",
            NoAnswer::Failed(_, message) => return message.hint.as_deref(),
            NoAnswer::TooMuch | NoAnswer::Unreadable(_) => return None,
        })
    }
}

impl fmt::Display for NoAnswer {
    /// Writes the problem as a sentence fragment.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoAnswer::Unreachable(why) => write!(f, "unreachable: {why}"),
            NoAnswer::NoProgram => f.write_str("gpuws not found"),
            NoAnswer::TimedOut(time) => write!(f, "no answer within {} s", time.as_secs_f64()),
            NoAnswer::TooMuch => f.write_str("its answer is too long"),
            NoAnswer::Unreadable(why) => write!(f, "its answer cannot be read: {why}"),
            NoAnswer::Newer(schema) => {
                write!(f, "its gpuws is newer: schema {schema}, expected {SCHEMA}")
            }
            NoAnswer::Failed(code, message) => {
                write!(f, "gpuws exited with {code}")?;
                match &*message.error {
                    "" => Ok(()),
                    error => write!(f, ": {error}"),
                }
            }
            NoAnswer::NoSsh(why) => write!(f, "ssh cannot be started: {why}"),
        }
    }
}

/// Returns the output of a finished ssh, or the reason why it is not an answer.
pub(crate) fn understood(ran: &Ran, allowed: Duration) -> Result<Reply, NoAnswer> {
    let code = match &ran.ending {
        Ending::TimedOut => return Err(NoAnswer::TimedOut(allowed)),
        Ending::TooMuch => return Err(NoAnswer::TooMuch),
        // Only a local signal can end ssh.
        Ending::Exited(status) => status.code().unwrap_or(OF_SSH),
    };
    let why = match object(&ran.stdout) {
        Ok(object) => return Ok(Reply { object, exit_code: code }),
        Err(newer @ NoAnswer::Newer(_)) => return Err(newer),
        Err(why) => why,
    };
    Err(match code {
        0 => why,
        NOT_FOUND => NoAnswer::NoProgram,
        OF_SSH => NoAnswer::Unreachable(ran.last_words()),
        code => NoAnswer::Failed(code, ran.message()),
    })
}

/// Parses a gpuws object. The host's login scripts may have printed lines before it.
fn object(text: &[u8]) -> Result<Box<RawValue>, NoAnswer> {
    let unreadable = |why: &str| NoAnswer::Unreadable(why.to_owned());
    let mut lines = text.split_inclusive(|byte| *byte == b'\n');
    let mut before = 0;
    let begins = |line: &[u8]| line.trim_ascii_start().starts_with(b"{");
    for line in lines.by_ref().take_while(|line| !begins(line)) {
        before += line.len();
    }
    let text = &text[before..];
    if text.is_empty() {
        return Err(unreadable("no JSON in it"));
    }
    let no_json = |error: serde_json::Error| {
        if error.is_eof() {
            unreadable("the JSON ends early")
        } else {
            unreadable(&format!("no JSON at line {}", error.line()))
        }
    };
    serde_json::from_slice::<Sound>(text).map_err(no_json)?;
    match serde_json::from_slice::<Versioned>(text) {
        Ok(Versioned { schema: SCHEMA }) => serde_json::from_slice(text).map_err(no_json),
        Ok(Versioned { schema }) if schema > SCHEMA => Err(NoAnswer::Newer(schema)),
        _ => Err(unreadable("it has no schema, so it is not from gpuws")),
    }
}

/// The field that every gpuws object has.
#[derive(serde::Deserialize)]
struct Versioned {
    schema: u64,
}

/// Validates JSON without keeping any of it. A client must be able to parse what it receives:
/// unlike `IgnoredAny` and `RawValue`, this type limits the depth and accepts only valid numbers
/// and characters.
struct Sound;

impl<'de> Deserialize<'de> for Sound {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Sound)
    }
}

impl<'de> Visitor<'de> for Sound {
    type Value = Sound;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Sound, E> {
        Ok(Sound)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Sound, E> {
        Ok(Sound)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Sound, E> {
        Ok(Sound)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Sound, E> {
        Ok(Sound)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Sound, E> {
        Ok(Sound)
    }

    fn visit_str<E>(self, _: &str) -> Result<Sound, E> {
        Ok(Sound)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<Sound, A::Error> {
        while values.next_element::<Sound>()?.is_some() {}
        Ok(Sound)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Sound, A::Error> {
        while entries.next_entry::<Sound, Sound>()?.is_some() {}
        Ok(Sound)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_equal_if_text_and_exit_code_are() {
        let reply = |text: &str, exit_code| Reply {
            object: RawValue::from_string(text.to_owned()).unwrap(),
            exit_code,
        };
        assert_eq!(reply("{}", 0), reply("{}", 0));
        assert_ne!(reply("{}", 0), reply("{}", 3));
        assert_ne!(reply("{}", 0), reply("{ }", 0));
    }

    #[test]
    fn remedy_of_unreachable_host_depends_on_the_reason() {
        for (why, remedy) in [
            ("Could not resolve hostname gpu01: Name or service not known", "check the host name"),
            ("a@gpu01: Permission denied (publickey).", "connect once"),
            ("Host key verification failed.", "connect once"),
            ("connect to host gpu01 port 22: Connection refused", "check that the host is up"),
        ] {
            let found = NoAnswer::Unreachable(why.to_owned());
            assert!(found.remedy().unwrap().starts_with(remedy), "{why}: {:?}", found.remedy());
        }
        assert_eq!(NoAnswer::TooMuch.remedy(), None);
    }

    #[test]
    fn finds_object_after_login_script_output() {
        let text = b"Welcome\nto the lab\n{\n \"schema\": 1, \"gpus\": []\n}\n";
        assert_eq!(object(text).unwrap().get(), "{\n \"schema\": 1, \"gpus\": []\n}");
    }

    #[test]
    fn reports_output_without_gpuws_object() {
        let nested = |depth| "[".repeat(depth) + &"]".repeat(depth);
        let deep = |depth| format!("{{\"schema\": 1, \"a\": {}}}", nested(depth));
        assert!(object(deep(100).as_bytes()).is_ok());
        for (text, why) in [
            ("", "no JSON in it"),
            ("hello\n", "no JSON in it"),
            ("{\"schema\": 1, \"gpus\": [", "the JSON ends early"),
            ("{\"schema\": 1} trailing", "no JSON at line 1"),
            ("{}", "it has no schema, so it is not from gpuws"),
            ("{\"schema\": \"1\"}", "it has no schema, so it is not from gpuws"),
            ("{\"schema\": -1}", "it has no schema, so it is not from gpuws"),
            ("{\"schema\": 1, \"schema\": 1}", "it has no schema, so it is not from gpuws"),
            ("{\"schema\": 1, \"a\": 1e999}", "no JSON at line 1"),
            ("{\"schema\": 1, \"a\": \"\\ud800\"}", "no JSON at line 1"),
            (&deep(100_000), "no JSON at line 1"),
        ] {
            let error = object(text.as_bytes()).unwrap_err();
            assert_eq!(
                error,
                NoAnswer::Unreadable(why.to_owned()),
                "{}",
                &text[..text.len().min(99)]
            );
        }
        assert_eq!(object(b"{\"schema\": 2}").unwrap_err(), NoAnswer::Newer(2));
        assert_eq!(
            object(b"\xff{\"schema\": 1}").unwrap_err(),
            NoAnswer::Unreadable("no JSON in it".to_owned())
        );
    }
}
