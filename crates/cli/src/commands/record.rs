//! `gpuws record`: this machine as one file that `--sim` replays.

use crate::args::{Global, RecordArgs};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::source;
use crate::terminal::{Line, Screen};
use crate::wording;
use gpu_host::output::Part;
use gpu_report::json;
use gpu_sim::{Anonymizer, RecordingWriter};

pub(crate) fn run(
    args: &RecordArgs,
    global: &Global,
    screen: &mut Screen,
) -> Result<Exit, Failure> {
    let file = args.file.display();
    let source = source::open(global)?;
    let part = Part::beside(&args.file)?;
    let topology = source.backend.topology().map_err(|error| error.kind().absent());
    let mut writer = RecordingWriter::new(&part.file, !args.names, topology)?;
    let mut anonymizer = Anonymizer::default();
    let mut first = None;
    let mut look_count = 0;
    for look in source.looks(args.looks.looks, args.looks.pause()) {
        let offset = look.taken_at.since(*first.get_or_insert(look.taken_at));
        let look = if args.names { look } else { anonymizer.anonymize(&look) };
        writer.add(offset, &look)?;
        look_count += 1;
    }
    part.finish(&args.file)?;
    if global.json {
        screen.json(&json::RecordedFile::of(&file.to_string(), look_count, args.names))?;
        return Ok(Exit::Done);
    }
    let looks = wording::count(look_count, "look", "looks");
    if global.quiet {
        return Ok(Exit::Done);
    }
    let left_out = if args.names { "" } else { ", without names and command lines" };
    screen.print(&Line::new().plain(format!("{looks} written to {file}{left_out}")))?;
    screen.print(&Line::new().plain("replay it: ").accent(format!("gpuws --sim {file} doctor")))?;
    Ok(Exit::Done)
}
