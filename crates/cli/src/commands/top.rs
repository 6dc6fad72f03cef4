//! `gpuws top`: the devices and their users on the whole screen.

use crate::args::{Global, TopArgs};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::queue_status::user;
use crate::source::{self, Source};
use crate::{local_time, terminal};
use gpu_core::selector::indexes;
use gpu_core::{DeviceId, HolderSearch, Observation, Observer, ProcessDetail, Snapshot};
use gpu_host::SystemClock;
use gpu_report::ProcessFilter;
use gpu_top::{Ended, Frame, Options, Settings, Top, Waits, end_by};
use std::io::{self, IsTerminal};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Where messages about waits go while the screen is taken.
static WAITS: OnceLock<Waits> = OnceLock::new();

pub(crate) fn run(args: &TopArgs, global: &Global, colour: bool) -> Result<Exit, Failure> {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Err(Failure::new(Exit::Usage, "show the screen")
            .with_source("standard input and output are not both a terminal")
            .with_hint("gpuws status -l repeats the same as text, also into a pipe"));
    }
    let mut observer = Observer::new().with_rare_details();
    let source = source::open_to_watch(global, tell)?;
    let options = Options {
        ascii: args.ascii || terminal::is_ascii(),
        colour,
        zone: local_time::zone(),
        sim: source::sim_option(&source.backend.origin(), global),
    };
    let settings = Settings { interval: args.delay, mouse: !args.no_mouse, options };
    let asked = &args.only.devices;
    let all = asked.is_empty();
    let shown =
        if all { vec![] } else { indexes(&snapshot(&source, &mut observer).devices, asked)? };
    let filter = ProcessFilter { users: args.user.clone(), ..ProcessFilter::default() };
    // A simulated machine has its own clock; the first look is at its start.
    let mut pause = Duration::ZERO;
    let interval = if source.is_simulated() { args.delay } else { Duration::ZERO };
    let look = move || {
        source.clock.sleep(std::mem::replace(&mut pause, interval));
        let leased = source.leases();
        let mut snapshot = snapshot(&source, &mut observer);
        let diagnosis = gpu_reaper::diagnose_outlines(&mut snapshot, &*source.host);
        let shown = |id: &DeviceId| all || shown.contains(&id.index);
        Frame::of(snapshot, diagnosis, &leased, shown, &filter, &user)
    };
    let top = Top::new();
    WAITS.get_or_init(|| top.waits());
    let ended = top.run(settings, Arc::new(SystemClock::new()), look);
    if let Ended::Signal(signal) = ended.map_err(|error| Failure::io("use the terminal", error))? {
        end_by(signal);
    }
    Ok(Exit::Done)
}

/// Shows what a look waits for: on the screen once it is taken.
fn tell(text: &str) {
    WAITS.get().map_or_else(|| terminal::progress(text), |waits| waits.stalled(text));
}

/// Takes a snapshot of what the screen shows: no more of a process than a list shows, unless it is
/// suspected.
fn snapshot(source: &Source, observer: &mut Observer) -> Snapshot {
    let observation = Observation {
        groups: gpu_reaper::defect_groups(),
        holders: HolderSearch::wanted(false),
        processes: ProcessDetail::Outline,
        driver_messages: false,
    };
    source.observe(observer, observation)
}
