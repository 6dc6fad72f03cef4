//! Values of arguments.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use gpu_core::Pid;

pub(crate) fn pid(text: &str) -> Result<Pid, &'static str> {
    text.parse().map(Pid).map_err(|_| "not a PID; pgrep finds the PIDs of a name")
}

/// Returns a parser that maps each of these names to its value.
pub(crate) fn named<T: Copy + Send + Sync + 'static>(
    names: &'static [(&'static str, T)],
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(names.iter().map(|(name, _)| *name)).try_map(|given| {
        let known = names.iter().find(|(name, _)| *name == given);
        known.map(|(_, value)| *value).ok_or("unknown name")
    })
}
