//! Recorded frames are read back unchanged.

use crate::world::World;
use gpu_core::{Origin, Snapshot, Timestamp};
use gpu_history::{Frame, Reader, Retention, Writer};
use proptest::prelude::*;
use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use tempfile::TempDir;

/// Returns a new directory that others cannot write to.
pub(crate) fn dir() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    dir
}

pub(crate) fn writer(dir: &TempDir) -> Writer {
    Writer::open(File::open(dir.path()).unwrap(), Retention::default()).unwrap()
}

pub(crate) fn reader(dir: &TempDir) -> Reader {
    Reader::open(File::open(dir.path()).unwrap()).unwrap()
}

/// Records these frames, and returns the directory.
pub(crate) fn recorded(frames: &[Frame]) -> TempDir {
    let dir = dir();
    let mut writer = writer(&dir);
    frames.iter().for_each(|frame| writer.add(frame).unwrap());
    writer.sync().unwrap();
    dir
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn recorded_frames_return(
        seed in any::<u64>(), devices in 0..4_u32, each in 0..6_u32, count in 1..140_usize,
    ) {
        let mut world = World::new(seed, devices, each);
        let frames: Vec<Frame> = (0..count).map(|_| world.frame()).collect();
        let dir = recorded(&frames);
        let mut reader = reader(&dir);
        prop_assert_eq!(reader.len(), count);
        for (number, frame) in frames.iter().enumerate() {
            prop_assert!(reader.frame(number).as_ref() == Some(frame), "{}", number);
            prop_assert_eq!(reader.time(number), Some(frame.time()));
        }
        // In any order.
        for _ in 0..20 {
            let number = world.random.below(count as u64) as usize;
            let later = Timestamp(frames[number].time().0 + 999);
            prop_assert!(reader.frame(number).as_ref() == Some(&frames[number]), "{}", number);
            prop_assert!(reader.at(later).as_ref() == Some(&frames[number]), "{}", number);
        }
        prop_assert_eq!(reader.frame(count), None);
        prop_assert_eq!(reader.check(), &[][..]);
    }
}

#[test]
fn frames_of_several_chunks_return() {
    let mut world = World::new(3, 1, 2);
    let frames: Vec<Frame> = (0..1100).map(|_| world.frame()).collect();
    let dir = recorded(&frames);
    let mut reader = reader(&dir);
    let all: Vec<Frame> = reader.from(Timestamp(0)).collect();
    assert!(all == frames);
    let from = frames[1050].time();
    assert!(reader.from(from).eq(frames[1050..].iter().cloned()));
    assert_eq!(reader.span(), Some((frames[0].time(), frames[1099].time())));
    assert_eq!(reader.at(Timestamp(frames[0].time().0 - 1)), None);
    assert_eq!(reader.damage(), []);
}

#[test]
fn history_of_a_replaced_machine_round_trips() {
    let frames = [(1, 2, 9), (2, 0, 0), (3, 8, 1)]
        .map(|(seed, devices, each)| World::new(seed, devices, each).frame());
    let empty = Snapshot::empty(Origin::Simulated(String::new()), frames[0].time());
    let empty = Frame { snapshot: empty, leases: Ok(Vec::new()) };
    let frames: Vec<Frame> = frames.into_iter().chain([empty]).cycle().take(60).collect();
    let dir = recorded(&frames);
    let mut reader = reader(&dir);
    for (number, frame) in frames.iter().enumerate() {
        assert!(reader.frame(number).as_ref() == Some(frame), "{number}");
    }
}

#[test]
fn empty_history_has_no_frame() {
    let dir = dir();
    let mut reader = reader(&dir);
    assert!(reader.is_empty());
    assert_eq!((reader.span(), reader.at(Timestamp(u64::MAX))), (None, None));
    assert_eq!((reader.frame(0), reader.time(0), reader.check()), (None, None, &[][..]));
}
