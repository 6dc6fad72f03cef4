//! A moment of a history in place of the machine.

use super::{Shown, StatusArgs};
use super::{only, show_view};
use crate::args::Global;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::{Screen, warn};
use crate::users::user;
use gpu_history::Frame;
use gpu_report::{ProcessFilter, View, replay};
use gpu_steward::DeviceLeases;

/// Shows the last of these frames; the others provide evidence of lasting conditions.
pub(super) fn show(
    args: &StatusArgs,
    global: &Global,
    mut frames: Vec<Frame>,
    screen: &mut Screen,
) -> Result<Exit, Failure> {
    if !args.repeat.is_once() || args.shown.mine {
        return Err(Failure::new(Exit::Usage, "replay a history")
            .with_source("-l and --mine apply to this machine")
            .with_hint("--user selects the processes of a user"));
    }
    let past = replay::watched(&frames);
    let Some(Frame { snapshot: whole, leases }) = frames.pop() else { return Ok(Exit::Done) };
    let leased = DeviceLeases::recorded(leases);
    let mut diagnosis = gpu_reaper::diagnose_after(&past, &whole);
    leased.excuse(&whole, &mut diagnosis);
    let snapshot = only(&whole, &args.only.devices)?;
    let mut view = View::of(&whole, &snapshot, &diagnosis, leased, &user);
    let Shown { user: users, pid: pids, .. } = args.shown.clone();
    view.has_titles = !global.quiet;
    (view.columns, view.filter) = (args.columns.as_ref(), ProcessFilter { users, uid: None, pids });
    if let Some(user) = view.filter.absent_user(&whole) {
        warn(&format!("--user {user}: no process at this time belongs to them"));
    }
    if global.json {
        screen.json(&view.json(false))?
    } else {
        let at = args.replay.at.map(|_| whole.taken_at);
        let doctor = args.replay.replay.as_deref().map(|dir| replay::doctor(dir, at));
        show_view(screen, global, &view, &doctor.unwrap_or_default())?;
    }
    Ok(Exit::Done)
}
