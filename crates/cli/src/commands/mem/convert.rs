//! `gpuws mem convert`: converts a recording of any format to JSON Lines.

use super::ConvertArgs;
use super::recording;
use crate::args::Global;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::{Line, Screen};
use crate::wording;
use gpu_host::output::Part;
use gpu_report::json::Converted;
use std::io::BufWriter;

pub(crate) fn run(
    args: &ConvertArgs,
    global: &Global,
    screen: &mut Screen,
) -> Result<Exit, Failure> {
    let Some(output) = &args.output else {
        let recording = recording::read(&args.file, &args.reading)?;
        let mut lines = Vec::new();
        recording.write(&mut lines).map_err(|error| Failure::io("write the recording", error))?;
        screen.raw(&lines)?;
        return Ok(Exit::Done);
    };
    let part = Part::create(output)?;
    let recording = recording::read(&args.file, &args.reading)?;
    let written = recording.write(BufWriter::new(&part.file));
    written.map_err(|error| Failure::io(format!("write '{}'", output.display()), error))?;
    part.finish(output)?;
    let file = output.display().to_string();
    let converted = Converted::of(&file, &recording);
    if global.json {
        screen.json(&converted)?;
        return Ok(Exit::Done);
    }
    if global.quiet {
        return Ok(Exit::Done);
    }
    for device in converted.devices {
        let events = wording::count(device.event_count, "event", "events");
        let held = match device.segment_count {
            Some(segments) => wording::count(segments, "segment", "segments"),
            None => "segments not recorded".to_owned(),
        };
        screen.print(&Line::new().plain(format!("device {}: {events}, {held}", device.index)))?;
    }
    screen.print(&Line::new().plain(format!("written to {file}")))?;
    Ok(Exit::Done)
}
