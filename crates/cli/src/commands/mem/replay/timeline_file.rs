//! The timeline of a replayed job as a file.

use super::bounded;
use crate::commands::mem::ReplayArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use gpu_allocator_policy::PolicyConfig;
use gpu_host::output::Part;
use gpu_memory_trace::{Job, Replays, Timeline, page};
use std::io::Write;
use std::path::Path;

/// A timeline whose file was created.
pub(super) struct Drawing<'a> {
    path: &'a Path,
    form: Form,
    part: Part,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// The first allocator on one device.
    Svg,
    /// All allocators on all devices.
    Page,
}

impl<'a> Drawing<'a> {
    /// Creates the file before the replay starts.
    ///
    /// # Errors
    /// When the extension is neither SVG nor HTML, or the file cannot be written.
    pub(super) fn begin(path: &'a Path) -> Result<Self, Failure> {
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        let form = match ending.to_ascii_lowercase().as_str() {
            "svg" => Form::Svg,
            "html" | "htm" => Form::Page,
            _ => {
                return Err(Failure::new(Exit::Usage, format!("draw '{}'", path.display()))
                    .with_source("the file name must end in .svg or .html"));
            }
        };
        Ok(Drawing { path, form, part: Part::create(path)? })
    }

    /// Draws the timeline and renames the file to its final name.
    ///
    /// # Errors
    /// When the format cannot show all devices, or the file cannot be written.
    pub(super) fn finish(
        mut self,
        job: &Job,
        all: &[Replays<'_>],
        policies: &[(String, PolicyConfig)],
        args: &ReplayArgs,
    ) -> Result<(), Failure> {
        let what = || format!("draw '{}'", self.path.display());
        if self.form == Form::Svg && all.len() > 1 {
            return Err(Failure::new(Exit::Usage, what())
                .with_source(format!("the job ran on {} devices", all.len()))
                .with_hint("select one with --device or write a .html file"));
        }
        let shown = if self.form == Form::Svg { &policies[..1] } else { policies };
        let mut timelines = Vec::new();
        for replays in all {
            for (title, policy) in shown {
                let (limited, device) = bounded(policy, args);
                let on_device = &replays.job;
                let stacks = &job.recording.stacks;
                let drawn =
                    Timeline::new(on_device.trace, stacks, &on_device.workload, &limited, device);
                let mut timeline =
                    drawn.map_err(|error| Failure::new(Exit::Usage, what()).with_source(error))?;
                timeline.name = super::jobs::file_name(&args.file);
                timeline.allocator.clone_from(title);
                timelines.push(timeline);
            }
        }
        let text = match (self.form, &timelines[..]) {
            (Form::Svg, [timeline, ..]) => timeline.svg(),
            _ => page(&timelines),
        };
        self.part
            .file
            .write_all(text.as_bytes())
            .map_err(|error| Failure::io(format!("write '{}'", self.path.display()), error))?;
        Ok(self.part.finish(self.path)?)
    }
}
