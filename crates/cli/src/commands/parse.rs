//! `gpuws parse`: what another tool printed, as JSON.

use crate::args::ParseArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::Screen;
use gpu_text::Hint;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The most that is read: what the largest machines print is a hundredth of it.
const MOST: u64 = 64 << 20;

pub(crate) fn run(args: &ParseArgs, screen: &mut Screen) -> Result<Exit, Failure> {
    let bytes = read(&args.file)?;
    let fields = (!args.fields.is_empty()).then(|| args.fields.clone());
    let hint = Hint { kind: args.kind, fields };
    let document = gpu_text::parse(&bytes, &hint).map_err(|error| {
        let what = format!("read '{}'", args.file.display());
        let failure = Failure::new(Exit::Usage, what).with_source(error);
        match gpu_text::oom::read(&bytes).events.is_empty() {
            true => failure.with_hint("gpuws parse --help"),
            false => failure.with_hint("it speaks of memory that ran out: gpuws mem explain"),
        }
    })?;
    screen.json(&document)?;
    Ok(Exit::Done)
}

/// Reads a file, or standard input for `-`, and refuses more than [`MOST`].
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    read_up_to(path, MOST)
}

/// Reads a file, or standard input for `-`, and refuses more than so many bytes.
pub(crate) fn read_up_to(path: &Path, most: u64) -> Result<Vec<u8>, Failure> {
    let what = || format!("read '{}'", path.display());
    let mut bytes = Vec::new();
    let read = if path.as_os_str() == "-" {
        std::io::stdin().lock().take(most + 1).read_to_end(&mut bytes)
    } else {
        File::open(path).and_then(|file| file.take(most + 1).read_to_end(&mut bytes))
    };
    read.map_err(|error| Failure::io(what(), error))?;
    if bytes.len() as u64 > most {
        let limit = format!("it is larger than {} MiB", most >> 20);
        return Err(Failure::new(Exit::Usage, what()).with_source(limit));
    }
    Ok(bytes)
}
