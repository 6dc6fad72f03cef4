//! `gpuws record`: this machine as one file that `--sim` replays.

use crate::args::{Global, RecordArgs};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::source::Source;
use crate::terminal::{Line, Screen};
use crate::words;
use gpu_sim::{Anonymizer, RecordingWriter};
use serde::Serialize;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;

pub(crate) fn run(
    args: &RecordArgs,
    global: &Global,
    screen: &mut Screen,
) -> Result<Exit, Failure> {
    let file = args.file.display();
    if args.file.exists() {
        return Err(Failure::new(Exit::Usage, format!("write '{file}'"))
            .with_source("it exists")
            .with_hint("name a file that does not exist yet; nothing was written"));
    }
    let source = Source::open(global)?;
    let looks = source.looks(&args.looks);
    let topology = source.backend.topology().map_err(|error| error.kind().absent());
    let mut writer = RecordingWriter::new(Vec::new(), !args.names, topology)?;
    let mut anonymizer = Anonymizer::default();
    let first = looks.first().map(|look| look.taken_at);
    for look in &looks {
        let offset = look.taken_at.since(first.unwrap_or(look.taken_at));
        if args.names {
            writer.add(offset, look)?;
        } else {
            writer.add(offset, &anonymizer.anonymize(look))?;
        }
    }
    let bytes = writer.into_inner();
    write_whole(&args.file, &bytes)?;
    if global.json {
        screen.json(&Recorded {
            schema: 1,
            file: file.to_string(),
            look_count: looks.len(),
            names: args.names,
        })?;
        return Ok(Exit::Done);
    }
    let looks = words::count(looks.len(), "look", "looks");
    if global.quiet {
        return Ok(Exit::Done);
    }
    let left_out = if args.names { "" } else { ", without names and command lines" };
    screen.print(&Line::new().plain(format!("{looks} written to {file}{left_out}")))?;
    screen.print(&Line::new().plain("replay it: ").accent(format!("gpuws --sim {file} doctor")))?;
    Ok(Exit::Done)
}

/// What is printed with `--json`.
#[derive(Serialize)]
struct Recorded {
    schema: u32,
    file: String,
    look_count: usize,
    /// Names and command lines are in it.
    names: bool,
}

/// Writes under a temporary name, then renames: the file is there whole or not at all.
fn write_whole(path: &std::path::Path, bytes: &[u8]) -> Result<(), Failure> {
    let mut name = path.file_name().map(ToOwned::to_owned).unwrap_or_default();
    name.push(format!(".{}.part", std::process::id()));
    let part: PathBuf = path.with_file_name(name);
    let failed = |error| Failure::io(format!("write '{}'", path.display()), error);
    let written =
        OpenOptions::new().write(true).create_new(true).open(&part).and_then(|mut file| {
            file.write_all(bytes)?;
            file.sync_all()?;
            // A link fails where the name exists by now; a rename would replace it.
            std::fs::hard_link(&part, path)
        });
    // The part is of no use, whether the link to it was made or not.
    let _ = std::fs::remove_file(&part);
    written.map_err(failed)
}
