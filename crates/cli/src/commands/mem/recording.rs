//! Reading of memory recordings.

use super::ReadingArgs;
use crate::commands::parse;
use crate::exit::Exit;
use crate::failure::Failure;
use gpu_memory_trace::trace::{Limits, Problem, Recording, TraceError, dumped};
use gpu_text::oom;
use std::path::Path;

/// Reads a recording of any format; `-` is standard input.
///
/// # Errors
/// When the file cannot be read or is not a recording; with a hint.
pub(super) fn read(path: &Path, args: &ReadingArgs) -> Result<Recording, Failure> {
    let limits = Limits { memory: args.read_limit.map(|limit| limit.0), ..Limits::default() };
    let bytes = parse::read_up_to(path, limits.bytes)?;
    let refused = |error: TraceError| {
        let remedy = error.remedy();
        let what = format!("read '{}'", path.display());
        Failure::new(Exit::Usage, what).with_source(error).with_hint(remedy)
    };
    match Recording::read_within(&bytes, limits) {
        Err(error) if error.problem() == &Problem::UnknownFormat => {
            let recording = dumped(&oom::read(&bytes)).ok_or_else(|| refused(error))?;
            recording.check().map_err(refused)?;
            Ok(recording)
        }
        read => read.map_err(refused),
    }
}
