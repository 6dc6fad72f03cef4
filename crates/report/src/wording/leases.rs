//! The words for leases and waiting claims.

use super::claims::{User, asked, ordinal, reasons};
use super::reap::Paragraph;
use super::{age, count, ranges};
use crate::text::{Align, Line, Table};
use gpu_core::{DeviceUuid, LeaseEntry, MergedLeases, Timestamp};
use gpu_steward::{Listed, Listing, Queued};
use std::collections::BTreeSet;

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
/// The most columns of the devices of a lease: whoever leases scattered ones widens no other row.
const DEVICES: usize = 32;

/// Describes leases and waiting claims within `width` columns; empty if there are none. `user`
/// returns the name of a user by UID.
pub fn listing(listing: &Listing, width: usize, user: User<'_>) -> Vec<Paragraph> {
    let now = listing.scene.snapshot.taken_at;
    let mut told: Vec<Paragraph> = Vec::new();
    if !listing.leases.is_empty() {
        let shown = |column: usize| !(width < NARROW && LEFT_OUT.contains(&column));
        let columns: Vec<_> = (0..).zip(COLUMNS).filter(|(column, _)| shown(*column)).collect();
        let heads: Vec<_> = columns.into_iter().map(|(_, head)| head).collect();
        let mut table = Table::new(&heads);
        for leased in &listing.leases {
            let cells = (0..).zip(row(leased, now, user)).filter(|(column, _)| shown(*column));
            table.row(cells.map(|(_, cell)| cell));
        }
        told.extend(table.lines(width).into_iter().map(Paragraph::from));
    }
    if !listing.queue.is_empty() {
        if !listing.leases.is_empty() {
            told.push(Paragraph::default());
        }
        let waiting = count(listing.queue.len(), "claim", "claims");
        told.push(Line::new().plain(format_args!("{waiting} waiting")).into());
        for queued in &listing.queue {
            told.push(waits(queued, now, user).cut(width).into());
            let lacks = queued.lacks.as_ref();
            let lacks = lacks.map_or(Vec::new(), |lacks| reasons(lacks.passed(), user, None));
            let head = || Line::new().dim("       ");
            told.extend(lacks.into_iter().map(|text| Paragraph { head: head(), text }));
        }
    }
    told
}

fn row(leased: &Listed, now: Timestamp, user: User<'_>) -> [Line; 6] {
    let entry = &leased.entry;
    let known = leased.devices.iter().filter_map(|(_, id)| Some(id.as_ref()?.index));
    let mut indexes: Vec<u32> = known.collect();
    indexes.sort_unstable();
    indexes.dedup();
    let more = entry.merged.as_ref().map_or(0, |merged| merged.names());
    let named: BTreeSet<&DeviceUuid> = entry.devices.iter().collect();
    let unseen = (named.len() + more).saturating_sub(indexes.len());
    let mut devices = ranges(&indexes);
    if unseen > 0 {
        let and = if devices.is_empty() { "" } else { " and " };
        devices.push_str(&format!("{and}{unseen} not visible here"));
    }
    let share = match entry.claim.memory() {
        Some(bytes) => Line::new().plain(bytes),
        None => Line::new().dim("whole"),
    };
    let process = match &leased.root {
        _ if entry.merged.is_some() => Line::new(),
        Some(root) => Line::new().plain(root.key.pid),
        None => Line::new().dim(format_args!("{} ?", entry.root.pid)),
    };
    [
        Line::new().plain(owner(entry, user)),
        Line::new().plain(devices).cut(DEVICES),
        share,
        Line::new().plain(age(now.since(entry.since))),
        process,
        command(entry),
    ]
}

/// Returns the name of the owner of a lease.
pub(super) fn owner(entry: &LeaseEntry, user: User<'_>) -> String {
    match entry.owner {
        MergedLeases::SEVERAL_USERS => "several users".to_owned(),
        owner => user(owner),
    }
}

fn command(entry: &LeaseEntry) -> Line {
    let line = Line::new().plain(&entry.command);
    match entry.within.first() {
        Some(parent) => line.dim(format_args!("  within {}", parent.id)),
        None => line,
    }
}

/// Formats `1st  bob  2 GPUs  40 s  python train.py`. A stopped claim has no position, because
/// others pass it.
fn waits(queued: &Queued, now: Timestamp, user: User<'_>) -> Line {
    let entry = &queued.entry;
    let place = match queued.is_stopped {
        true => "stopped".to_owned(),
        false => ordinal(queued.ahead + 1),
    };
    Line::new()
        .plain(format_args!("  {place}  "))
        .plain(user(entry.owner))
        .plain(format_args!("  {}  ", asked(&entry.claim)))
        .dim(age(now.since(entry.since)))
        .plain("  ")
        .plain(&entry.command)
}
