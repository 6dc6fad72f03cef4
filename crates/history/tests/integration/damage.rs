//! Truncations and bit flips in the files of a history: every frame that they do not hit is read,
//! and they are reported.
//!
//! The affected frames are determined from the documented format alone: a frame needs its entry,
//! its data, and the frames that it is compared with.

use crate::round_trip::{reader, writer};
use crate::world::{Random, World};
use gpu_history::{Damage, DamageKind, Frame};
use std::fs;
use std::ops::Range;
use tempfile::TempDir;

const TRIALS: u64 = 1000;
const RECORD: usize = 32;
const FILES: [&str; 2] = ["data_2026-11-24", "index_2026-11-24"];

/// A history of three runs: with a copied key frame, without one, and a single frame.
struct History {
    frames: Vec<Frame>,
    dir: TempDir,
    files: [Vec<u8>; 2],
    entries: Vec<Entry>,
}

struct Entry {
    data: Range<usize>,
    position: usize,
    is_copy: bool,
    /// The number of its frame.
    frame: Option<usize>,
}

impl History {
    fn new() -> Self {
        let mut world = World::new(7, 1, 2);
        let frames: Vec<Frame> = (0..151).map(|_| world.frame()).collect();
        let dir = crate::round_trip::dir();
        for run in [0..110, 110..150, 150..151] {
            let mut writer = writer(&dir);
            frames[run].iter().for_each(|frame| writer.add(frame).unwrap());
        }
        let files = FILES.map(|name| fs::read(dir.path().join(name)).unwrap());
        let mut next = 0;
        let entries = files[1][RECORD..].chunks_exact(RECORD).map(|entry| {
            let number = |from: usize, to: usize| {
                entry[from..to].iter().rev().fold(0, |sum, byte| sum << 8 | usize::from(*byte))
            };
            let (start, is_copy) = (number(8, 16), number(22, 24) & 2 != 0);
            let frame = (!is_copy).then(|| {
                next += 1;
                next - 1
            });
            let data = start..start + number(16, 20);
            Entry { data, position: number(20, 22), is_copy, frame }
        });
        let entries: Vec<Entry> = entries.collect();
        assert_eq!(entries.len(), frames.len() + 1, "one key frame is stored twice");
        History { frames, dir, files, entries }
    }

    /// Returns which frames can be read if these bytes of the files have changed.
    fn readable(&self, changed: &[Vec<Range<usize>>; 2]) -> Vec<bool> {
        let is_hit = |file: usize, range: &Range<usize>| {
            changed[file].iter().any(|hit| hit.start < range.end && range.start < hit.end)
        };
        let intact: Vec<bool> = (0..self.entries.len())
            .map(|at| {
                let entry = (at + 1) * RECORD..(at + 2) * RECORD;
                !is_hit(0, &self.entries[at].data) && !is_hit(1, &entry)
            })
            .collect();
        let mut readable = vec![false; self.frames.len()];
        let mut chunk = Vec::new();
        for (at, entry) in self.entries.iter().enumerate() {
            let Some(frame) = entry.frame else { continue };
            if entry.position == 0 {
                let copies = self.entries[at + 1..]
                    .iter()
                    .take_while(|entry| entry.position != 0 || entry.is_copy);
                let copy = copies.clone().position(|entry| entry.is_copy).map(|copy| at + 1 + copy);
                // The frame itself is known only through its own entry.
                let has_entry = !is_hit(1, &((at + 1) * RECORD..(at + 2) * RECORD));
                let key = intact[at] || copy.is_some_and(|copy| intact[copy]);
                readable[frame] = has_entry && key;
                chunk = vec![key];
                continue;
            }
            let lowest_bit = entry.position & entry.position.wrapping_neg();
            let base = if entry.position % 32 == 0 { 0 } else { entry.position - lowest_bit };
            readable[frame] = intact[at] && chunk[base];
            chunk.push(readable[frame]);
        }
        readable
    }
}

/// Changes the files, and returns which bytes changed; a truncation changes all bytes from there
/// on.
fn change(files: &mut [Vec<u8>; 2], random: &mut Random) -> [Vec<Range<usize>>; 2] {
    let mut changed = [Vec::new(), Vec::new()];
    for _ in 0..1 + random.below(3) {
        let file = random.below(2) as usize;
        let bytes = &mut files[file];
        if bytes.is_empty() {
            continue;
        }
        let at = random.below(bytes.len() as u64) as usize;
        match random.below(4) {
            0 => {
                bytes.truncate(at);
                changed[file].push(at..usize::MAX);
            }
            1 => {
                // A block of a disk.
                let block = at / 512 * 512..(at / 512 * 512 + 512).min(bytes.len());
                bytes[block.clone()].fill(0);
                changed[file].push(block);
            }
            _ => {
                bytes[at] ^= 1 << random.below(8);
                changed[file].push(at..at + 1);
            }
        }
    }
    changed
}

#[test]
fn undamaged_frames_are_read_and_damage_reported() {
    let history = History::new();
    let mut random = Random(16);
    let mut lost = 0;
    for trial in 0..TRIALS {
        let mut files = history.files.clone();
        let changed = change(&mut files, &mut random);
        for (name, bytes) in FILES.iter().zip(&files) {
            fs::write(history.dir.path().join(name), bytes).unwrap();
        }
        let is_changed = files != history.files;
        let mut reader = reader(&history.dir);
        // A frame is identified by its time: those before it may be lost.
        let mut read = Vec::new();
        for number in 0..reader.len() {
            if let Some(frame) = reader.frame(number) {
                assert_eq!(Some(frame.time()), reader.time(number), "{trial}");
                read.push(frame);
            }
        }
        let expected = history.readable(&changed);
        let expected =
            history.frames.iter().zip(&expected).filter(|(_, is_readable)| **is_readable);
        let expected: Vec<&Frame> = expected.map(|(frame, _)| frame).collect();
        assert!(read.len() == expected.len(), "{trial}: {} {}", read.len(), expected.len());
        assert!(read.iter().eq(expected), "{trial}");
        let found = reader.damage().to_vec();
        let damage = reader.check();
        assert!(found.iter().all(|known| damage.contains(known)), "{trial}");
        assert_eq!(damage.is_empty(), !is_changed, "{trial}: {damage:?}");
        let missing = history.frames.len() - read.len();
        let reported: usize = damage.iter().map(|damage| damage.frames).sum();
        let of_unknown_cost = [DamageKind::NotInIndex, DamageKind::TornEntry];
        // After a damaged last entry, the number of truncated entries is unknown.
        let end = fs::metadata(history.dir.path().join(FILES[1])).map_or(0, |file| file.len());
        let is_last = |damage: &Damage| {
            damage.what == DamageKind::Entry && damage.offset + RECORD as u64 >= end
        };
        let is_bounded =
            !damage.iter().any(|damage| of_unknown_cost.contains(&damage.what) || is_last(damage));
        assert!(reported >= missing || !is_bounded, "{trial}: {reported} of {missing}, {damage:?}");
        lost += missing;
    }
    // The trials are neither harmless nor fatal.
    let all = TRIALS as usize * history.frames.len();
    assert!((all / 20..all / 2).contains(&lost), "{lost} of {all}");
}

#[test]
fn damage_names_position_and_cost() {
    let history = History::new();
    let frame = |position: usize| &history.entries[position + usize::from(position > 63)];
    let damage = |file: usize, at: usize| {
        let mut files = history.files.clone();
        files[file][at] ^= 1;
        for (name, bytes) in FILES.iter().zip(&files) {
            fs::write(history.dir.path().join(name), bytes).unwrap();
        }
        let mut reader = reader(&history.dir);
        let mut lines = reader.check().iter().map(ToString::to_string);
        let line = lines.next().unwrap();
        assert_eq!(lines.next(), None);
        line
    };
    for (position, cost) in
        [(1, "1 sample"), (2, "2 samples"), (16, "16 samples"), (32, "32 samples")]
    {
        let at = frame(position).data.start;
        let expected = format!("data_2026-11-24, byte {at}: damaged sample, {cost} lost");
        assert_eq!(damage(0, at), expected);
        let entry = (position + 1) * RECORD;
        let expected = format!("index_2026-11-24, byte {entry}: damaged entry, {cost} lost");
        assert_eq!(damage(1, entry), expected);
    }
    assert_eq!(damage(0, RECORD), "data_2026-11-24, byte 32: damaged sample, nothing lost");
    assert_eq!(damage(0, 0), "data_2026-11-24, byte 0: damaged header, nothing lost");
    assert_eq!(damage(1, 9), "index_2026-11-24, byte 0: damaged header, nothing lost");
    // The key frame of the second run has no copy yet.
    let key = &history.entries[111];
    let expected =
        format!("data_2026-11-24, byte {}: damaged sample, 40 samples lost", key.data.start);
    assert_eq!(damage(0, key.data.start), expected);
}
