//! `gpuws mem explain`: what a message about memory that ran out says, why it came, what to set.

use crate::args::{ExplainArgs, Global};
use crate::commands::parse;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::json;
use crate::terminal::Screen;

pub(crate) fn run(
    args: &ExplainArgs,
    _global: &Global,
    screen: &mut Screen,
) -> Result<Exit, Failure> {
    let bytes = parse::read(&args.file)?;
    let report = gpu_text::oom::read(&bytes);
    screen.json(&json::Explained::of(&report))?;
    Ok(if report.events.is_empty() { Exit::Remains } else { Exit::Done })
}
