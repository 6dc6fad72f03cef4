//! `gpuws record`: saves the state of this machine to a file for `--sim`, or its history.

mod args;
mod history;

pub(crate) use args::RecordArgs;

use crate::args::Global;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::source;
use crate::terminal::{self, Line, Screen};
use crate::wording;
use gpu_host::output::Part;
use gpu_report::{Blind, json};
use gpu_sim::{Anonymizer, RecordingWriter};

pub(crate) fn run(
    args: &RecordArgs,
    global: &Global,
    screen: &mut Screen,
) -> Result<Exit, Failure> {
    if let Some(duration) = args.duration {
        Failure::unless_built("gpuws record --for")?;
        return history::run(args, duration, global, screen);
    }
    let source = source::open(global)?;
    let part = Part::create(&args.path)?;
    let topology = source.backend.topology().map_err(|error| error.kind().absent());
    let mut writer = RecordingWriter::new(&part.file, !args.names, topology)?;
    let mut anonymizer = Anonymizer::default();
    let mut first = None;
    let mut sample_count = 0;
    let mut blind = Blind::default();
    // The data that a replay needs for the same diagnosis as the machine.
    let observation = gpu_reaper::full_observation();
    for snapshot in source.snapshots(observation, args.count, args.every()) {
        let offset = snapshot.taken_at.since(*first.get_or_insert(snapshot.taken_at));
        let snapshot = if args.names { snapshot } else { anonymizer.anonymize(&snapshot) };
        writer.add(offset, &snapshot)?;
        sample_count += 1;
        blind.add(&snapshot);
    }
    part.finish(&args.path)?;
    let sim = wording::path_word(&args.path);
    let shown =
        report(args, global, screen, sample_count, "", &format!("gpuws --sim {sim} doctor"));
    blind.text().iter().for_each(|text| terminal::warn(text));
    shown
}

/// Reports what was recorded, its size, and how to replay it.
fn report(
    args: &RecordArgs,
    global: &Global,
    screen: &mut Screen,
    sample_count: usize,
    size: &str,
    again: &str,
) -> Result<Exit, Failure> {
    let path = args.path.display().to_string();
    if global.json {
        screen.json(&json::RecordedFile::of(&path, sample_count, args.names))?;
    } else if !global.quiet {
        let written = format!("{} written to {path}{size}", samples(sample_count));
        screen.print(&Line::new().plain(written))?;
        if !args.names {
            let left_out = "without process names and command lines; user names replaced by \
                            anon-1, …";
            screen.print(&Line::new().plain(left_out))?;
        }
        screen.print(&Line::new().plain("replay it: ").accent(again))?;
    }
    Ok(Exit::Done)
}

fn samples(count: usize) -> String {
    wording::count(count, "sample", "samples")
}

/// Reports how many samples of a history are missing.
pub(super) fn missing(count: usize) -> Exit {
    if count == 0 {
        return Exit::Done;
    }
    terminal::warn(&format!("{} could not be written", samples(count)));
    Exit::Remains
}
