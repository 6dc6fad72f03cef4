//! The words for leases and waiting claims.

use super::claims::{User, asked, named, ordinal, reasons};
use super::reap::Paragraph;
use super::{age, count, ranges};
use crate::text::{Align, Line, Table};
use gpu_core::{DeviceId, DeviceUuid, LeaseEntry, Timestamp};
use gpu_steward::{LeaseKeepers, Listed, Listing, Queued};
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
/// The most columns of the devices of a lease: scattered devices must not widen the other rows.
const DEVICES: usize = 32;

/// Describes leases and waiting claims within `width` columns; empty if there are none. `user`
/// returns the name of a user by UID.
pub fn listing(listing: &Listing, width: usize, user: User<'_>) -> Vec<Paragraph> {
    let now = listing.context.snapshot.taken_at;
    let mut paragraphs: Vec<Paragraph> = Vec::new();
    if !listing.leases.is_empty() {
        let shown = |column: usize| !(width < NARROW && LEFT_OUT.contains(&column));
        let columns: Vec<_> = (0..).zip(COLUMNS).filter(|(column, _)| shown(*column)).collect();
        let heads: Vec<_> = columns.into_iter().map(|(_, head)| head).collect();
        let mut table = Table::new(&heads);
        for leased in &listing.leases {
            let cells = (0..).zip(row(leased, now, user)).filter(|(column, _)| shown(*column));
            table.row(cells.map(|(_, cell)| cell));
        }
        paragraphs.extend(table.lines(width).into_iter().map(Paragraph::from));
    }
    if !listing.queue.is_empty() {
        if !listing.leases.is_empty() {
            paragraphs.push(Paragraph::default());
        }
        let waiting = count(listing.queue.len(), "claim", "claims");
        paragraphs.push(Line::new().plain(format_args!("{waiting} waiting")).into());
        paragraphs
            .extend(listing.queue.iter().map(|queued| waits(queued, now, user).cut(width).into()));
        paragraphs.extend(lacking(&listing.queue, user));
    }
    paragraphs
}

/// Returns a line for each lease that its user can release, with its devices and the command, after
/// an empty line. `dir` is the option that selects the lease directory.
pub fn to_release(listing: &Listing, keepers: &[LeaseKeepers], dir: &str) -> Vec<Line> {
    let held = listing.leases.iter().zip(keepers);
    let held = held.filter(|(_, keepers)| matches!(keepers, LeaseKeepers::Holders(_)));
    let lines = held.map(|(Listed { entry, devices, .. }, _)| {
        let seen = devices.iter().filter_map(|(_, id)| id.as_ref());
        let mut seen: Vec<&DeviceId> = seen.collect();
        seen.sort_unstable_by_key(|id| id.index);
        let named = match seen[..] {
            [] => count(devices.len(), "GPU not visible here", "GPUs not visible here"),
            _ => named(&seen),
        };
        let line = Line::new().plain(format_args!("{named}: held by your claim.   "));
        line.accent(format_args!("gpuws claim --release {}{dir}", entry.id))
    });
    let lines: Vec<Line> = lines.collect();
    let gap = (!lines.is_empty()).then(Line::new);
    gap.into_iter().chain(lines).collect()
}

/// Returns why the claims wait: each reason once, with the affected claims unless it affects all.
fn lacking(queue: &[Queued], user: User<'_>) -> Vec<Paragraph> {
    let mut by_reason: Vec<(String, Vec<String>)> = Vec::new();
    let mut waiting = 0;
    for queued in queue {
        let Some(lacks) = &queued.lacks else { continue };
        waiting += 1;
        for reason in reasons(lacks.passed(), user, None) {
            match by_reason.iter_mut().find(|(known, _)| *known == reason) {
                Some((_, claims)) => claims.push(described(queued)),
                None => by_reason.push((reason, vec![described(queued)])),
            }
        }
    }
    let paragraph = |(reason, claims): (String, Vec<String>)| Paragraph {
        head: Line::new().dim("       "),
        text: if claims.len() == waiting {
            reason
        } else {
            format!("{}: {reason}", claims.join(", "))
        },
    };
    by_reason.into_iter().map(paragraph).collect()
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
        Line::new().plain(user(entry.owner)),
        Line::new().plain(devices).cut(DEVICES),
        share,
        Line::new().plain(age(now.since(entry.since))),
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

/// Returns the position of a claim in the queue. A stopped claim has none, because others pass it.
fn described(queued: &Queued) -> String {
    match queued.is_stopped {
        true => "stopped".to_owned(),
        false => ordinal(queued.ahead + 1),
    }
}

/// Formats `1st  bob  2 GPUs  40 s  python train.py`.
fn waits(queued: &Queued, now: Timestamp, user: User<'_>) -> Line {
    let entry = &queued.entry;
    Line::new()
        .plain(format_args!("  {}  ", described(queued)))
        .plain(user(entry.owner))
        .plain(format_args!("  {}  ", asked(&entry.claim)))
        .dim(age(now.since(entry.since)))
        .plain("  ")
        .plain(&entry.command)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_core::{Claim, LeaseId, Pid, ProcessKey};
    use gpu_placement::{Bar, Passed, Refusal};
    use gpu_steward::Refused;

    fn queued(ahead: usize, held: &[(usize, u32)]) -> Queued {
        let entry = LeaseEntry {
            id: LeaseId::parse("1-a").unwrap(),
            ticket: 1,
            owner: 1000,
            root: ProcessKey { pid: Pid(1), start: None },
            within: Vec::new(),
            claim: Claim::whole(1),
            devices: Vec::new(),
            parts_of: Vec::new(),
            merged: None,
            command: String::new(),
            since: Timestamp(0),
        };
        let leased = |owner| Passed::Barred(Bar::Leased { owner, lease: entry.id.clone() });
        let passed = held.iter().map(|(device, owner)| (*device, leased(*owner))).collect();
        let lacks = Refused {
            refusal: Refusal::NotNow { free: Vec::new(), passed, could: 1 },
            offered: [0, 1, 2].map(DeviceId::from_index).into(),
            within: None,
        };
        let (within, root, is_stopped) = (None, None, ahead == 9);
        let lacks = (!held.is_empty()).then_some(lacks);
        Queued { entry, within, ahead, is_stopped, root, lacks }
    }

    #[test]
    fn each_reason_is_listed_once() {
        let user = |uid: u32| format!("user {uid}");
        let texts = |queue: &[Queued]| -> Vec<String> {
            lacking(queue, &user).into_iter().map(|paragraph| paragraph.text).collect()
        };
        let both = [(0, 7), (1, 7)];
        let all = [queued(0, &both), queued(1, &both), queued(2, &both), queued(3, &[])];
        assert_eq!(texts(&all), ["GPUs 0 and 1: leased by user 7"]);
        let some = [queued(0, &both), queued(1, &[(2, 8)]), queued(9, &both)];
        assert_eq!(
            texts(&some),
            ["1st, stopped: GPUs 0 and 1: leased by user 7", "2nd: GPU 2: leased by user 8"]
        );
        assert!(texts(&[queued(0, &[])]).is_empty());
    }
}
