//! The damage of a day, and the frames that it costs.

use crate::chunk;
use crate::damage::{Damage, DamageKind};
use crate::day::FileKind;
use crate::entry::{Entry, SIZE};
use crate::shard::{MAX_CHUNK, Shard, position};
use std::collections::BTreeSet;
use std::ops::Range;

/// Returns all damage of a day, in the order of the index.
pub(crate) fn all(shard: &Shard) -> Vec<Damage> {
    let mut found = not_in_index(shard);
    let (mut reported, mut before) = (BTreeSet::new(), None);
    for at in 0..shard.entries() {
        let what = match shard.entry(at) {
            None => Some(DamageKind::Entry),
            Some(entry) => match base(shard, at, &entry) {
                Some(base) => shard.data(at, base).err(),
                None => Some(DamageKind::Base),
            },
        };
        // Frames that are lost together are reported together.
        let in_row = what.clone().filter(is_in_rows);
        let is_reported = in_row.is_some() && in_row == before;
        before = in_row;
        let Some(what) = what.filter(|_| !is_reported) else { continue };
        let damage = of(shard, at, what);
        if reported.insert(damage.clone()) {
            found.push(damage);
        }
    }
    found
}

/// Returns the data that no entry refers to. Next to a damaged entry, it belongs to that entry.
fn not_in_index(shard: &Shard) -> Vec<Damage> {
    let what = DamageKind::NotInIndex;
    let mut found = Vec::new();
    let (mut end, mut is_known) = (SIZE as u64, true);
    let mut gap = |from: u64, to: u64, is_known: bool| {
        if is_known && from < to {
            let (day, file, what) = (shard.day, FileKind::Data, what.clone());
            found.push(Damage { day, file, offset: from, what, frames: 0 });
        }
    };
    for at in 0..shard.entries() {
        match shard.entry(at) {
            Some(entry) => {
                gap(end, entry.offset, is_known);
                // After a loss of data, a recorder appends before the end of the last entry.
                end = end.max(entry.offset.saturating_add(entry.length.into()));
                is_known = true;
            }
            None => is_known = false,
        }
    }
    gap(end, shard.data_length(), is_known);
    found
}

/// Returns the checksum of the frame that another is compared with; `None` if it is lost.
fn base(shard: &Shard, at: usize, entry: &Entry) -> Option<Option<u32>> {
    if entry.position == 0 {
        return Some(None);
    }
    let path = shard.path(at)?;
    let base = *path.get(path.len().checked_sub(2)?)?.first()?;
    Some(Some(shard.entry(base)?.crc))
}

/// Describes the damage of a frame, given its position in the index.
pub(crate) fn of(shard: &Shard, at: usize, what: DamageKind) -> Damage {
    let day = shard.day;
    let (file, offset, what, frames) = match (what, shard.entry(at)) {
        (what @ DamageKind::Unreadable(_), _) if !shard.has_data() => {
            (FileKind::Data, 0, what, shard.len())
        }
        (DamageKind::Base, Some(_)) => match lost_before(shard, at) {
            Some(lost) => return of(shard, lost, DamageKind::Entry),
            None => (FileKind::Index, position(at as u64), DamageKind::Base, 1),
        },
        (_, None) => {
            let frames = 1 + without_base(shard, at);
            (FileKind::Index, position(at as u64), DamageKind::Entry, frames)
        }
        (what, Some(_)) if is_in_rows(&what) => {
            let row = row(shard, at, &what);
            let entries = row.clone().filter_map(|at| shard.entry(at));
            let own = entries.clone().filter(|entry| !entry.is_copy).count();
            let frames = own + before_lost_copy(shard, row.clone());
            match what {
                DamageKind::Overlap => (FileKind::Index, position(row.start as u64), what, frames),
                _ => {
                    let first = entries.map(|entry| entry.offset).min().unwrap_or(0);
                    (FileKind::Data, first, what, frames)
                }
            }
        }
        (what, Some(entry)) => (FileKind::Data, entry.offset, what, dependent(shard, at, &entry)),
    };
    Damage { day, file, offset, what, frames }
}

/// Returns the next damaged entry before this one in its chunk.
fn lost_before(shard: &Shard, at: usize) -> Option<usize> {
    let mut before = (0..at).rev().take(MAX_CHUNK);
    before.find(|at| shard.entry(*at).is_none())
}

/// Returns how many frames are lost because the damaged entry of their base is missing.
fn without_base(shard: &Shard, at: usize) -> usize {
    let after = (at + 1..shard.entries()).take(MAX_CHUNK);
    let after = after.map_while(|at| Some((at, shard.entry(at)?)));
    let of_chunk = after.take_while(|(_, entry)| entry.is_copy || entry.position != 0);
    of_chunk.filter(|(at, entry)| !entry.is_copy && shard.path(*at).is_none()).count()
}

/// Returns whether consecutive frames are lost together.
pub(crate) fn is_in_rows(what: &DamageKind) -> bool {
    matches!(what, DamageKind::TornFrame | DamageKind::Overlap)
}

/// Returns the entries around this one that are lost together with it.
pub(crate) fn row(shard: &Shard, at: usize, what: &DamageKind) -> Range<usize> {
    let length = shard.data_length();
    let is_lost = |at: &usize| match what {
        DamageKind::Overlap => shard.overlaps(*at),
        _ => shard.entry(*at).is_some_and(|entry| entry.is_beyond(length)),
    };
    let before = (0..at).rev().take_while(is_lost).count();
    let after = (at + 1..shard.entries()).take_while(is_lost).count();
    at - before..at + 1 + after
}

/// Returns how many frames before this row cannot be read because the row has the copy of their key
/// frame, and the key frame itself is lost.
fn before_lost_copy(shard: &Shard, row: Range<usize>) -> usize {
    let mut copies = row.clone().filter_map(|at| shard.entry(at)).take_while(|entry| {
        // The chunk of the frames before it ends with the next key frame.
        entry.is_copy || entry.position != 0
    });
    if !copies.any(|entry| entry.is_copy) {
        return 0;
    }
    let mut count = 0;
    for at in (0..row.start).rev().take(MAX_CHUNK) {
        match shard.entry(at) {
            None => break,
            Some(entry) if entry.is_copy => {}
            Some(entry) if entry.position == 0 => {
                return if shard.data(at, None).is_ok() { 0 } else { count };
            }
            Some(_) => count += 1,
        }
    }
    count
}

/// Returns how many frames cannot be read without the data of this one, itself included.
fn dependent(shard: &Shard, at: usize, entry: &Entry) -> usize {
    if entry.position == 0 {
        let other = other_copy(shard, at, entry);
        if entry.is_copy || other.is_some_and(|other| shard.data(other, None).is_ok()) {
            return 0;
        }
    }
    let after = (at + 1..shard.entries()).take(MAX_CHUNK).filter_map(|at| shard.entry(at));
    let of_chunk = after.take_while(|after| after.is_copy || after.position > entry.position);
    let depends =
        |after: &Entry| !after.is_copy && chunk::path(after.position).contains(&entry.position);
    1 + of_chunk.filter(depends).count()
}

/// Returns the other copy of a key frame.
fn other_copy(shard: &Shard, at: usize, entry: &Entry) -> Option<usize> {
    let mut after = (at + 1..shard.entries())
        .take(MAX_CHUNK)
        .filter_map(|at| Some((at, shard.entry(at)?)))
        .take_while(|(_, after)| after.is_copy || after.position != 0)
        .take(chunk::LENGTH.into());
    after.find(|(_, after)| after.is_copy && after.crc == entry.crc).map(|(at, _)| at)
}
