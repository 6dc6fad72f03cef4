//! `gpuws top`: the devices and their users on the whole screen.

mod args;
mod end;
mod inspect;
mod replay;
mod settings;

pub(crate) use args::TopArgs;

use crate::args::Global;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::selector::chosen;
use crate::source::{self, Source};
use crate::terminal::{self, Screen};
use crate::users::user;
use end::Reaper;
use gpu_core::{DeviceId, Groups, Observer};
use gpu_host::SystemClock;
use gpu_machine::LeaseReader;
use gpu_reaper::{Past, diagnose_outlines_after};
use gpu_report::ProcessFilter;
use gpu_top::frame::observation;
use gpu_top::{Ended, Ender, Frame, Frames, Inspector, Machine, Top, Waits, end_by};
use inspect::Asked;
use std::io::{self, IsTerminal};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The destination of messages about waits while the screen is taken over.
static WAITS: OnceLock<Waits> = OnceLock::new();

pub(crate) fn run(args: &TopArgs, global: &Global, screen: &mut Screen) -> Result<Exit, Failure> {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Err(Failure::new(Exit::Usage, "show the screen")
            .with_source("standard input and output are not both a terminal")
            .with_hint("gpuws status prints the same as text, also with -l or --replay"));
    }
    let config = settings::config()?;
    if args.hosts.are_given() {
        let options = settings::settings(args, &config, String::new(), screen).options;
        return super::hosts::top(args, global, options);
    }
    let filter = ProcessFilter { users: args.user.clone(), ..ProcessFilter::default() };
    let (settings, machine) = match super::replay::dir(&args.replay, global)? {
        Some(path) => {
            let (played, at) = replay::open(path, args, filter)?;
            let frames = Frames::Recording(Box::new(played), at, args.speed);
            let settings = settings::settings(args, &config, String::new(), screen);
            (settings, Machine { frames, ender: None, inspector: None })
        }
        None => {
            let source = Arc::new(source::open_to_watch(global, true, show_stall)?);
            let sim = source::sim_option(&source.backend.origin(), global);
            let settings = settings::settings(args, &config, sim, screen);
            let is_read_only = args.read_only || config.read_only.unwrap_or(false);
            let ender: Option<Box<dyn Ender>> =
                (!is_read_only).then(|| Box::new(Reaper(source.clone())) as _);
            let inspector: Option<Arc<dyn Inspector>> = Some(Arc::new(Asked(source.clone())));
            let frames = live_frames(source, args, settings.interval, filter)?;
            (settings, Machine { frames, ender, inspector })
        }
    };
    let top = Top::new();
    WAITS.get_or_init(|| top.waits());
    let left = top.run(settings, Arc::new(SystemClock::new()), machine);
    let left = left.map_err(|error| Failure::io("use the terminal", error))?;
    super::reap::show(screen, left.record)?;
    if let Ended::Signal(signal) = left.ended {
        end_by(signal);
    }
    Ok(Exit::Done)
}

/// Returns the function that takes snapshots of a machine.
fn live_frames(
    source: Arc<Source>,
    args: &TopArgs,
    interval: Duration,
    filter: ProcessFilter,
) -> Result<Frames, Failure> {
    let asked = &args.only.devices;
    let all = asked.is_empty();
    let mut observer = Observer::new().with_rare_details();
    let shown =
        if all { vec![] } else { chosen(&source.observe(&mut observer, observation()), asked)? };
    let (mut past, mut leases) = (Past::every(interval), LeaseReader::default());
    // A simulated machine has its own clock; the first snapshot is at its start.
    let mut pause = Duration::ZERO;
    let interval = if source.is_simulated() { interval } else { Duration::ZERO };
    Ok(Frames::Live(Box::new(move |shows_more| {
        source.clock.sleep(std::mem::replace(&mut pause, interval));
        let leased = leases.read(&source);
        observer.read_always(if shows_more { gpu_top::more::groups() } else { Groups::NONE });
        let mut snapshot = source.observe(&mut observer, observation());
        let load = shows_more.then(|| source.host.load());
        past.add(&snapshot);
        let mut diagnosis = diagnose_outlines_after(&past, &mut snapshot, &*source.host);
        leased.excuse(&snapshot, &mut diagnosis);
        let shown = |id: &DeviceId| all || shown.contains(&id.index);
        let frame = Frame::of(snapshot, diagnosis, leased, shown, &filter, &user);
        frame.read_at(source.clock.monotonic()).load(load)
    })))
}

/// Shows what a snapshot waits for: on the screen once it is taken over.
fn show_stall(text: &str) {
    WAITS.get().map_or_else(|| terminal::progress(text), |waits| waits.stalled(text));
}
