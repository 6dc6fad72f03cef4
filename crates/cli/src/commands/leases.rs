//! `gpuws leases`: leases and waiting claims.

use crate::args::{Global, LeasesArgs};
use crate::claim_request::{self, reasons};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::lease_keepers;
use crate::queue_status::{owner, user};
use crate::source;
use crate::terminal::{Align, Line, Screen, Table};
use crate::wording;
use crate::wording::shell_word;
use gpu_core::{DeviceId, DeviceUuid, LeaseEntry, Origin, Timestamp};
use gpu_host::FileLeaseStore;
use gpu_report::json;
use gpu_report::wording::claims::{self, asked, ordinal};
use gpu_steward::{LeaseKeepers, Listed, Listing, Ports, Queued, listing};

/// The columns of the table. A narrow terminal omits those in [`LEFT_OUT`].
const COLUMNS: [(&str, Align); 6] = [
    ("user", Align::Left),
    ("GPUs", Align::Left),
    ("share", Align::Right),
    ("since", Align::Right),
    ("process", Align::Right),
    ("command", Align::Left),
];
const LEFT_OUT: [usize; 2] = [2, 4];
const NARROW: usize = 60;

pub(crate) fn run(
    args: &LeasesArgs,
    global: &Global,
    screen: &mut Screen,
) -> Result<Exit, Failure> {
    let source = source::open(global)?;
    let locks = source.lease_store(args.claims.as_deref())?;
    let ports = Ports {
        backend: &*source.backend,
        host: &*source.host,
        clock: &*source.clock,
        journal: &claim_request::no_journal(),
        locks: &locks,
    };
    let listing = listing(&ports)?;
    match global.json {
        true => screen.json(&json::Leases::of(&listing, &user))?,
        false => {
            // The suggested commands use the same directory.
            let dir = args.claims.as_ref().map_or(String::new(), |dir| {
                format!(" --claims {}", shell_word(&dir.to_string_lossy()))
            });
            show(screen, global, &listing, &dir)?;
            if !global.quiet && global.sim.is_none() {
                to_release(screen, &listing, &locks, &dir)?;
            }
        }
    }
    Ok(Exit::Done)
}

/// Prints a line for each lease that its user can release: its devices and the command.
fn to_release(
    screen: &mut Screen,
    listing: &Listing,
    locks: &FileLeaseStore,
    dir: &str,
) -> Result<(), Failure> {
    let leases: Vec<LeaseEntry> =
        listing.leases.iter().map(|leased| leased.entry.clone()).collect();
    // Only advice, so an error is ignored.
    let keepers = lease_keepers::of(&leases, locks).unwrap_or_default();
    let mut is_first = true;
    for (Listed { entry, devices, .. }, keepers) in listing.leases.iter().zip(keepers) {
        if !matches!(keepers, LeaseKeepers::Holders(_)) {
            continue;
        }
        if std::mem::take(&mut is_first) {
            screen.print(&Line::new())?;
        }
        let line = Line::new().plain(format_args!("{}: held by your claim.   ", named(devices)));
        screen.print(&line.accent(format_args!("gpuws claim --release {}{dir}", entry.id)))?;
    }
    Ok(())
}

/// Formats `GPUs 0 and 3`, only those that are visible here.
fn named(devices: &[(DeviceUuid, Option<DeviceId>)]) -> String {
    let mut seen: Vec<&DeviceId> = devices.iter().filter_map(|(_, id)| id.as_ref()).collect();
    seen.sort_unstable_by_key(|id| id.index);
    match seen.is_empty() {
        true => wording::count(devices.len(), "GPU not visible here", "GPUs not visible here"),
        false => claims::named(&seen),
    }
}

fn show(screen: &mut Screen, global: &Global, listing: &Listing, dir: &str) -> Result<(), Failure> {
    let snapshot = &listing.scene.snapshot;
    if snapshot.origin != Origin::Live {
        screen.print(&Line::new().accent(&snapshot.origin))?;
    }
    if listing.leases.is_empty() && listing.queue.is_empty() {
        screen.print(&Line::new().plain("no leases and no waiting claims"))?;
        if !global.quiet {
            let line = Line::new().plain("to claim GPUs:   ");
            let within = claim_request::within(global);
            let run = format_args!("{within}gpuws run -n 1{dir} -- COMMAND");
            screen.print(&line.accent(run))?;
        }
        return Ok(());
    }
    let now = snapshot.taken_at;
    if !listing.leases.is_empty() {
        let is_narrow = screen.room(0) < NARROW;
        let shown = |column: usize| !(is_narrow && LEFT_OUT.contains(&column));
        let columns: Vec<_> = (0..).zip(COLUMNS).filter(|(column, _)| shown(*column)).collect();
        let heads: Vec<_> = columns.into_iter().map(|(_, head)| head).collect();
        let mut table = Table::new(&heads);
        for leased in &listing.leases {
            let cells = (0..).zip(row(leased, now)).filter(|(column, _)| shown(*column));
            table.row(cells.map(|(_, cell)| cell));
        }
        screen.print_all(table.lines(screen.room(0)))?;
    }
    if !listing.queue.is_empty() {
        if !listing.leases.is_empty() {
            screen.print(&Line::new())?;
        }
        screen.print(&Line::new().plain(format_args!(
            "{} waiting",
            wording::count(listing.queue.len(), "claim", "claims")
        )))?;
        listing.queue.iter().try_for_each(|queued| waits(screen, queued, now))?;
    }
    Ok(())
}

fn row(leased: &Listed, now: Timestamp) -> [Line; 6] {
    let entry = &leased.entry;
    let known = leased.devices.iter().filter_map(|(_, id)| Some(id.as_ref()?.index));
    let mut indexes: Vec<u32> = known.collect();
    indexes.sort_unstable();
    let unseen = leased.devices.len() - indexes.len();
    let mut devices = wording::ranges(&indexes);
    if unseen > 0 {
        let and = if devices.is_empty() { "" } else { " and " };
        devices.push_str(&format!("{and}{unseen} not visible here"));
    }
    let share = match entry.claim.memory() {
        Some(bytes) => Line::new().plain(bytes),
        None => Line::new().dim("whole"),
    };
    let process = match &leased.root {
        Some(root) => Line::new().plain(root.key.pid),
        None => Line::new().dim(format_args!("{} ?", entry.root.pid)),
    };
    [
        Line::new().plain(owner(entry)),
        Line::new().plain(devices),
        share,
        Line::new().plain(wording::age(now.since(entry.since))),
        process,
        command(entry),
    ]
}

fn command(entry: &LeaseEntry) -> Line {
    let line = Line::new().plain(&entry.command);
    match entry.within.first() {
        Some(parent) => line.dim(format_args!("  within {}", parent.id)),
        None => line,
    }
}

/// Prints `1st  bob  2 GPUs  40 s  python train.py`, then the reasons why it waits. A stopped claim
/// has no position, because others pass it.
fn waits(screen: &mut Screen, queued: &Queued, now: Timestamp) -> Result<(), Failure> {
    let entry = &queued.entry;
    let place = match queued.is_stopped {
        true => "stopped".to_owned(),
        false => ordinal(queued.ahead + 1),
    };
    let line = Line::new()
        .plain(format_args!("  {place}  "))
        .plain(owner(entry))
        .plain(format_args!("  {}  ", asked(&entry.claim)))
        .dim(wording::age(now.since(entry.since)))
        .plain("  ")
        .plain(&entry.command);
    let room = screen.room(0);
    screen.print(&line.cut(room))?;
    let lacks = queued.lacks.as_ref().map_or(Vec::new(), |lacks| reasons(lacks.passed(), None));
    lacks.iter().try_for_each(|reason| wording::flow(screen, Line::new().dim("       "), reason))
}
