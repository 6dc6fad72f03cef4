//! `--host --json` of `gpuws status`, `gpuws doctor` and `gpuws leases`.

use super::Version;
use gpu_fleet::{HostName, NoAnswer};
use serde::Serialize;
use serde_json::value::RawValue;

/// The answers of several hosts.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Hosts<'a> {
    /// Version of this object's format.
    pub schema: Version,
    /// Number of hosts that answered.
    pub answered_count: usize,
    /// The hosts, in the order in which they were named.
    pub hosts: Vec<Host<'a>>,
}

/// A host and its answer.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Host<'a> {
    /// Name of the host, as passed to ssh.
    pub host: &'a str,
    /// The object that the same command printed on the host: gpuws status --json, gpuws doctor
    /// --json or gpuws leases --json. Null if the host did not answer.
    #[cfg_attr(feature = "schema", schemars(with = "Option<serde_json::Value>"))]
    pub answer: Option<&'a RawValue>,
    /// Exit code of gpuws on the host. Null if the host did not answer.
    pub exit_code: Option<i32>,
    /// Why the host did not answer. Null if it did.
    pub error: Option<HostError<'a>>,
}

/// Why a host did not answer.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HostError<'a> {
    /// Kind of the failure.
    pub kind: HostErrorKind,
    /// The failure, as a sentence fragment.
    pub what: String,
    /// What to do about it. Null if there is no general remedy.
    pub remedy: Option<&'a str>,
}

/// A kind of failure of a host.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum HostErrorKind {
    /// ssh cannot connect or log in.
    Unreachable,
    /// gpuws is not installed there.
    NoProgram,
    /// No answer in time.
    TimedOut,
    /// The answer is too long.
    TooMuch,
    /// The answer is not an object of gpuws, or ends early.
    Unreadable,
    /// gpuws there is newer, and its answer has another schema.
    Newer,
    /// gpuws failed there.
    Failed,
    /// ssh cannot be started on this machine.
    NoSsh,
}

impl<'a> Host<'a> {
    /// Returns the object for a host.
    pub(crate) fn of(host: &'a HostName, said: Result<(&'a RawValue, i32), &'a NoAnswer>) -> Self {
        Host {
            host: host.as_str(),
            answer: said.ok().map(|(object, _)| object),
            exit_code: said.ok().map(|(_, code)| code),
            error: said.err().map(|why| HostError {
                kind: HostErrorKind::of(why),
                what: why.to_string(),
                remedy: why.remedy(),
            }),
        }
    }
}

impl HostErrorKind {
    fn of(why: &NoAnswer) -> Self {
        match why {
            NoAnswer::Unreachable(_) => HostErrorKind::Unreachable,
            NoAnswer::NoProgram => HostErrorKind::NoProgram,
            NoAnswer::TimedOut(_) => HostErrorKind::TimedOut,
            NoAnswer::TooMuch => HostErrorKind::TooMuch,
            NoAnswer::Unreadable(_) => HostErrorKind::Unreadable,
            NoAnswer::Newer(_) => HostErrorKind::Newer,
            NoAnswer::Failed(..) => HostErrorKind::Failed,
            NoAnswer::NoSsh(_) => HostErrorKind::NoSsh,
        }
    }
}
