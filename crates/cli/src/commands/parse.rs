//! `gpuws parse`: converts the output of other tools to JSON.

use crate::args::named;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::Screen;
use clap::Args;
use clap::builder::TypedValueParser;
use gpu_text::{ErrorCode, Hint, Kind};
use std::io::Read;
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub(crate) struct ParseArgs {
    /// Kind of the text; default: detected.
    #[arg(long, value_parser = kind())]
    pub(crate) kind: Option<Kind>,
    /// Fields, in order, of CSV without a header line.
    #[arg(long, value_name = "A,B,…", value_delimiter = ',')]
    pub(crate) fields: Vec<String>,
    /// The file; `-` is standard input.
    pub(crate) file: PathBuf,
}

fn kind() -> impl TypedValueParser<Value = Kind> {
    named(&Kind::NAMED)
}

/// The maximum input size in bytes, a hundred times the output of the largest machines.
const MAX: u64 = 64 << 20;

pub(crate) fn run(args: &ParseArgs, screen: &mut Screen) -> Result<Exit, Failure> {
    let bytes = read(&args.file)?;
    let fields = (!args.fields.is_empty()).then(|| args.fields.clone());
    let hint = Hint { kind: args.kind, fields };
    let what = || format!("read '{}'", args.file.display());
    let document = gpu_text::parse(&bytes, &hint).map_err(|error| {
        let failure = Failure::new(Exit::Usage, what()).with_source(error);
        failure.with_hint(if is_about_memory(&bytes) { EXPLAIN } else { "gpuws parse --help" })
    })?;
    // A log with an out-of-memory message is also classified as the error text of a tool.
    let is_failure = document.errors.iter().all(|code| *code == ErrorCode::Other);
    if args.kind.is_none() && document.kind == Kind::Error && is_failure {
        refuse_out_of_memory(&what(), &bytes)?;
    }
    screen.json(&document)?;
    Ok(Exit::Done)
}

/// The hint for a log with out-of-memory messages.
const EXPLAIN: &str = "use gpuws mem explain for the cause and remedies";

/// Refuses a log with an out-of-memory message: another command explains it.
pub(super) fn refuse_out_of_memory(what: &str, bytes: &[u8]) -> Result<(), Failure> {
    let why = "it is a log with an out-of-memory message";
    if is_about_memory(bytes) {
        Err(Failure::new(Exit::Usage, what).with_source(why).with_hint(EXPLAIN))
    } else {
        Ok(())
    }
}

fn is_about_memory(bytes: &[u8]) -> bool {
    !gpu_text::oom::read(bytes).events.is_empty()
}

/// Reads a file, or standard input for `-`, of at most [`MAX`] bytes.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    read_up_to(path, MAX)
}

/// Reads a file, or standard input for `-`, of at most `most` bytes.
pub(crate) fn read_up_to(path: &Path, most: u64) -> Result<Vec<u8>, Failure> {
    let what = || format!("read '{}'", path.display());
    let mut bytes = Vec::new();
    let mut length = 0;
    let read = if path.as_os_str() == "-" {
        std::io::stdin().lock().take(most + 1).read_to_end(&mut bytes)
    } else {
        gpu_host::input::open(path).and_then(|file| {
            // Do not read a file that is too long; files in /proc report length 0.
            length = std::fs::metadata(path)?.len();
            let room = if length > most { 0 } else { most + 1 };
            file.take(room).read_to_end(&mut bytes)
        })
    };
    read.map_err(|error| Failure::io(what(), error))?;
    if length.max(bytes.len() as u64) > most {
        let limit = format!("it is larger than {} MiB", most >> 20);
        return Err(Failure::new(Exit::Usage, what()).with_source(limit));
    }
    Ok(bytes)
}
