//! Values of the policy file.

use gpu_core::{Bytes, Selector};
use gpu_reaper::{Confidence, FindingKind, Ignored, Protect};
use jiff::{Span, SpanRelativeTo};
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;
use std::time::Duration;
use strsim::osa_distance;

/// The maximum length in characters of the part of an unknown name that is compared.
const MAX_COMPARED: usize = 64;

/// A value written as text in the file, such as `10m`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Text<T>(pub(super) T);

impl<'de, T: Word> Deserialize<'de> for Text<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor<T>(PhantomData<T>);
        impl<T: Word> serde::de::Visitor<'_> for Visitor<T> {
            type Value = Text<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(T::EXPECTED)
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Text<T>, E> {
                T::read(text).map(Text).map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Visitor(PhantomData))
    }
}

/// A number of processes.
pub(super) struct Count(pub(super) usize);

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Count;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of processes, 0 or more")
            }
            fn visit_i64<E: Error>(self, number: i64) -> Result<Count, E> {
                let unexpected = serde::de::Unexpected::Signed(number);
                let count = number.try_into().map(Count);
                count.map_err(|_| E::invalid_value(unexpected, &self))
            }
        }
        deserializer.deserialize_i64(Visitor)
    }
}

/// A value that the file writes as text.
pub(super) trait Word: Sized {
    /// Describes the expected text.
    const EXPECTED: &'static str;
    /// Parses the text.
    fn read(text: &str) -> Result<Self, String>;
}

impl Word for Duration {
    const EXPECTED: &'static str = "a duration in quotes, such as \"10m\"";

    fn read(text: &str) -> Result<Self, String> {
        const YEAR: Duration = Duration::from_secs(366 * 86_400);
        let span: Option<Span> = text.parse().ok();
        let time = span.and_then(|span| span.to_duration(SpanRelativeTo::days_are_24_hours()).ok());
        let time = time.and_then(|time| Duration::try_from(time).ok());
        time.filter(|time| *time <= YEAR).ok_or_else(|| {
            format!("'{text}' is not a duration of at most a year; expected e.g. 90s, 10m or 2h")
        })
    }
}

impl Word for Bytes {
    const EXPECTED: &'static str = "an amount of memory in quotes, such as \"4GiB\"";

    fn read(text: &str) -> Result<Self, String> {
        text.parse().map_err(|why| format!("'{text}' is not an amount of memory: {why}"))
    }
}

impl Word for FindingKind {
    const EXPECTED: &'static str = "a kind of finding, such as \"ghost\"";

    fn read(text: &str) -> Result<Self, String> {
        let kind = FindingKind::ALL.into_iter().find(|kind| kind.name() == text);
        kind.ok_or_else(|| {
            let names = FindingKind::ALL.map(FindingKind::name);
            format!("'{text}' is not a kind of finding; {}", hint(text, &names))
        })
    }
}

impl Word for Confidence {
    const EXPECTED: &'static str = "a confidence: \"possible\", \"likely\" or \"high\"";

    fn read(text: &str) -> Result<Self, String> {
        let names = ["possible", "likely", "high"];
        Confidence::from_str(text)
            .map_err(|_| format!("'{text}' is not a confidence; {}", hint(text, &names)))
    }
}

impl Word for Ignored {
    const EXPECTED: &'static str = "a kind of finding, alone or with a GPU: \"nvlink-down:3\"";

    fn read(text: &str) -> Result<Self, String> {
        if let Some((kind, _)) = text.split_once(':') {
            FindingKind::read(kind)?;
        } else {
            FindingKind::read(text)?;
        }
        text.parse()
    }
}

impl Word for Selector {
    const EXPECTED: &'static str = "a GPU: its index, UUID or PCI bus ID, in quotes";

    fn read(text: &str) -> Result<Self, String> {
        Selector::single(text).map_err(|why| format!("'{text}' is not a GPU: {why}"))
    }
}

impl Word for Protect {
    const EXPECTED: &'static str = "a process name, or \"user:NAME\"";

    fn read(text: &str) -> Result<Self, String> {
        match text.strip_prefix("user:") {
            Some("") => Err("'user:' lacks a user name".to_owned()),
            Some(user) => Ok(Protect::User(user.to_owned())),
            None if text.is_empty() => Err("a process name is empty".to_owned()),
            None if text.parse::<u32>().is_ok() => {
                Err(format!("'{text}' is a PID, which another process may reuse"))
            }
            None => Ok(Protect::Name(text.to_owned())),
        }
    }
}

/// Rewords a message of the parser; an unknown name gets a suggestion.
pub(super) fn plain(message: &str) -> String {
    let message = message.lines().next().unwrap_or_default();
    let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    match (message.strip_prefix("unknown field "), quoted.split_first()) {
        (Some(_), Some((unknown, known))) => {
            format!("unknown key '{unknown}'; {}", hint(unknown, known))
        }
        _ => message.replace("missing field", "missing key").replace('`', "'"),
    }
}

/// Suggests the closest known name, or lists them all.
pub(super) fn hint(unknown: &str, known: &[&str]) -> String {
    let unknown: String = unknown.chars().take(MAX_COMPARED).collect();
    let distances = known.iter().map(|name| (osa_distance(&unknown, name), *name));
    let near = distances.filter(|(far, name)| *far <= name.len().max(unknown.len()) / 2).min();
    match near {
        Some((_, name)) => format!("did you mean '{name}'?"),
        None => format!("expected one of {}", known.join(", ")),
    }
}
