//! What a host answered, or why it did not.

use crate::child::{Ending, Ran};
use crate::{HostMessage, HostName};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;
use std::time::Duration;

/// The version of the objects that are understood.
pub const SCHEMA: u64 = 1;

/// The exit codes of a shell for a program that it did not find, and of ssh for its own failures.
const NOT_FOUND: i32 = 127;
const OF_SSH: i32 = 255;

/// What was learnt from a host.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The host.
    pub host: HostName,
    /// What gpuws printed there.
    pub answer: Result<Reply, NoAnswer>,
}

/// What gpuws printed on a host.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The object, as text: its values would take a hundred times the memory of theirs. It has
    /// `"schema": 1` and is nested at most 128 deep; nothing else was checked.
    pub object: Box<RawValue>,
    /// The exit code of gpuws there.
    pub exit_code: i32,
}

impl PartialEq for Reply {
    fn eq(&self, other: &Self) -> bool {
        (self.object.get(), self.exit_code) == (other.object.get(), other.exit_code)
    }
}

/// Why a host has no answer. Text of the host is at most 200 characters and not escaped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoAnswer {
    /// ssh cannot connect or log in, with its last message.
    Unreachable(String),
    /// gpuws is not in the `PATH` of a command on the host.
    NoProgram,
    /// No answer within this time.
    TimedOut(Duration),
    /// The answer is longer than a host may send, or all answers together are.
    TooMuch,
    /// The answer is not an object of gpuws, or ends early, with the reason.
    Unreadable(String),
    /// The answer has this newer schema.
    Newer(u64),
    /// gpuws failed there, with its exit code and its message.
    Failed(i32, HostMessage),
    /// ssh cannot be started here, with the reason.
    NoSsh(String),
}

impl NoAnswer {
    /// Returns the remedy, a hint of the host included; `None` if there is none.
    pub fn remedy(&self) -> Option<&str> {
        Some(match self {
            NoAnswer::Unreachable(why) if why.contains("Could not resolve") => {
                "check the name of the host; ~/.ssh/config may have an alias for it"
            }
            NoAnswer::Unreachable(why)
                if ["Permission denied", "erification failed", "uthentication"]
                    .iter()
                    .any(|login| why.contains(login)) =>
            {
                "connect once with ssh and see what it asks"
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
    /// Writes what is wrong, as a sentence fragment.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoAnswer::Unreachable(why) => write!(f, "unreachable: {why}"),
            NoAnswer::NoProgram => f.write_str("no gpuws there"),
            NoAnswer::TimedOut(time) => write!(f, "no answer within {} s", time.as_secs_f64()),
            NoAnswer::TooMuch => f.write_str("its answer is too long"),
            NoAnswer::Unreadable(why) => write!(f, "its answer cannot be read: {why}"),
            NoAnswer::Newer(schema) => {
                write!(f, "its gpuws is newer: schema {schema}, and {SCHEMA} is understood")
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

/// Returns what a finished ssh has printed, or why that is no answer.
pub(crate) fn understood(ran: &Ran, allowed: Duration) -> Result<Reply, NoAnswer> {
    let code = match &ran.ending {
        Ending::TimedOut => return Err(NoAnswer::TimedOut(allowed)),
        Ending::TooMuch => return Err(NoAnswer::TooMuch),
        // A signal ends ssh only from here.
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

/// Parses an object of gpuws. The login scripts of the host may have printed lines before it.
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
    let no_json = |error: serde_json::Error| match error.is_eof() {
        true => unreadable("the JSON ends early"),
        false => unreadable(&format!("no JSON at line {}", error.line())),
    };
    serde_json::from_slice::<Sound>(text).map_err(no_json)?;
    match serde_json::from_slice::<Versioned>(text) {
        Ok(Versioned { schema: SCHEMA }) => serde_json::from_slice(text).map_err(no_json),
        Ok(Versioned { schema }) if schema > SCHEMA => Err(NoAnswer::Newer(schema)),
        _ => Err(unreadable("it has no schema, so it is not from gpuws")),
    }
}

/// What every object of gpuws has.
#[derive(serde::Deserialize)]
struct Versioned {
    schema: u64,
}

/// JSON of which nothing is kept. Who prints it must be able to read it: other than `IgnoredAny` and
/// `RawValue`, it has a bound on its depth, and only numbers and characters that exist.
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
    fn object_follows_lines_of_login_scripts() {
        let text = b"Welcome\nto the lab\n{\n \"schema\": 1, \"gpus\": []\n}\n";
        assert_eq!(object(text).unwrap().get(), "{\n \"schema\": 1, \"gpus\": []\n}");
    }

    #[test]
    fn what_is_not_an_object_of_gpuws_is_told() {
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
            let told = object(text.as_bytes()).unwrap_err();
            assert_eq!(
                told,
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
