//! The recorder's handling of its files.

use crate::round_trip::{dir, reader, recorded, writer};
use crate::world::{START, World};
use gpu_core::{ErrorKind, Timestamp};
use gpu_history::{DamageKind, Frame, Reader, Retention, Writer};
use rustix::fs::{Mode, OFlags};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::PathBuf;
use std::time::Duration;
use tempfile::TempDir;

const DAY: u64 = 86_400_000;

fn made_frames(seed: u64, count: usize) -> Vec<Frame> {
    let mut world = World::new(seed, 1, 2);
    (0..count).map(|_| world.frame()).collect()
}

fn at(frame: &Frame, time: u64) -> Frame {
    let mut frame = frame.clone();
    frame.snapshot.taken_at = Timestamp(time);
    frame
}

fn names(dir: &TempDir) -> Vec<String> {
    let entries = fs::read_dir(dir.path()).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn file(dir: &TempDir, kind: &str) -> PathBuf {
    dir.path().join(format!("{kind}_2026-11-24"))
}

fn cut(path: &PathBuf, length: u64) {
    OpenOptions::new().write(true).open(path).unwrap().set_len(length).unwrap();
}

#[test]
fn second_recorder_is_refused() {
    let dir = dir();
    let first = writer(&dir);
    let open = || Writer::open(File::open(dir.path()).unwrap(), Retention::default());
    let error = open().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let who = format!("another recorder, process {},", std::process::id());
    assert!(error.fault().text.contains(&who), "{error:?}");
    drop(first);
    open().unwrap();
}

#[test]
fn each_recorder_starts_a_run_of_its_own() {
    let frames = made_frames(1, 90);
    let dir = dir();
    for run in frames.chunks(40) {
        let mut writer = writer(&dir);
        run.iter().for_each(|frame| writer.add(frame).unwrap());
    }
    let mut reader = reader(&dir);
    for (number, frame) in frames.iter().enumerate() {
        assert!(reader.frame(number).as_ref() == Some(frame), "{number}");
        assert_eq!(reader.starts_run(number), number % 40 == 0, "{number}");
        let leading = reader.leading_to(number, 20, Duration::ZERO);
        let start = (number + 1).saturating_sub(20).max(number / 40 * 40);
        assert!(leading == frames[start..=number], "{number}: none from before its run");
    }
}

#[test]
fn day_ends_at_midnight_utc() {
    let frames = made_frames(2, 4);
    let times = [START.0, START.0 + DAY - 1, START.0 + DAY, START.0 + 3 * DAY];
    let frames: Vec<Frame> =
        frames.iter().zip(times).map(|(frame, time)| at(frame, time)).collect();
    let dir = recorded(&frames);
    assert_eq!(
        names(&dir),
        [
            "data_2026-11-24",
            "data_2026-11-25",
            "data_2026-11-27",
            "index_2026-11-24",
            "index_2026-11-25",
            "index_2026-11-27",
            "lock"
        ]
    );
    let mut reader = reader(&dir);
    assert!(reader.from(Timestamp(0)).eq(frames.iter().cloned()));
    for (time, number) in [(0, 0), (DAY - 2, 0), (DAY - 1, 1), (2 * DAY, 2), (9 * DAY, 3)] {
        assert_eq!(reader.position(Timestamp(START.0 + time)), Some(number), "{time}");
    }
    assert_eq!(reader.position(Timestamp(START.0 - 1)), None);
    assert!(!reader.starts_run(2), "the recorder ran on");
}

#[test]
fn clock_set_back_loses_no_frame() {
    let frames = made_frames(3, 5);
    let times = [5000, 9000, 4000, 6000, 0].map(|time| START.0 + time);
    let mut frames: Vec<Frame> =
        frames.iter().zip(times).map(|(frame, time)| at(frame, time)).collect();
    // Even across midnight.
    frames[4].snapshot.taken_at = Timestamp(START.0 - 1000);
    let dir = recorded(&frames);
    let mut reader = reader(&dir);
    assert_eq!(reader.len(), 5);
    for (time, frame) in [(START.0 + 6500, 3), (START.0 + 9500, 1), (START.0 - 1, 4)] {
        assert!(reader.at(Timestamp(time)).as_ref() == Some(&frames[frame]), "{frame}");
    }
    // In the order of the files: the last one, then the others as they were recorded.
    for (time, first) in [(0, 0), (START.0 - 1000, 0), (START.0 - 999, 1), (START.0 + 5001, 2)] {
        assert_eq!(reader.first_since(Timestamp(time)), first, "{time}");
    }
    assert_eq!(reader.first_since(Timestamp(START.0 + 9001)), 5);
}

#[test]
fn growing_history_is_read() {
    let frames = made_frames(4, 150);
    let dir = dir();
    let mut writer = writer(&dir);
    writer.add(&frames[0]).unwrap();
    let mut reader = reader(&dir);
    assert_eq!((reader.len(), reader.refresh().unwrap()), (1, false));
    for (number, frame) in frames.iter().enumerate().skip(1) {
        writer.add(frame).unwrap();
        assert_eq!((reader.refresh().unwrap(), reader.len()), (true, number + 1));
        assert!(reader.frame(number).as_ref() == Some(frame), "{number}");
        assert_eq!(Reader::open(File::open(dir.path()).unwrap()).unwrap().damage(), []);
    }
    writer.add(&at(&frames[0], START.0 + DAY)).unwrap();
    assert!(reader.refresh().unwrap());
    assert_eq!(reader.span(), Some((frames[0].time(), Timestamp(START.0 + DAY))));
    assert_eq!(reader.check(), []);
}

/// Makes one file of a day a second newer than the other.
fn touch(dir: &TempDir, newer: &str, older: &str) {
    let time = fs::metadata(file(dir, older)).unwrap().modified().unwrap();
    let newer = File::options().write(true).open(file(dir, newer)).unwrap();
    newer.set_modified(time + Duration::from_secs(1)).unwrap();
}

#[test]
fn lost_end_of_an_index_is_reported_at_once() {
    let frames = made_frames(15, 30);
    let whole = recorded(&frames);
    touch(&whole, "index", "data");
    assert_eq!(reader(&whole).damage(), []);
    for (left, header) in [(32 * 11, false), (32, false), (0, true)] {
        let dir = recorded(&frames);
        cut(&file(&dir, "index"), left);
        touch(&dir, "index", "data");
        let reader = reader(&dir);
        assert!(reader.len() < frames.len());
        let kinds: Vec<&DamageKind> = reader.damage().iter().map(|damage| &damage.what).collect();
        assert!(kinds.contains(&&DamageKind::NotInIndex), "{kinds:?}");
        assert_eq!(kinds.contains(&&DamageKind::Header), header);
    }
}

#[test]
fn data_without_its_entry_yet_is_no_damage() {
    let dir = recorded(&made_frames(17, 10));
    let mut data = OpenOptions::new().append(true).open(file(&dir, "data")).unwrap();
    data.write_all(&[7; 100]).unwrap();
    touch(&dir, "data", "index");
    assert_eq!(reader(&dir).damage(), []);
    touch(&dir, "index", "data");
    assert_eq!(reader(&dir).damage().len(), 1);
}

#[test]
fn damage_of_a_growing_history_is_counted_once() {
    let frames = made_frames(14, 40);
    let dir = dir();
    let mut writer = writer(&dir);
    writer.add(&frames[0]).unwrap();
    let mut reader = reader(&dir);
    let data = OpenOptions::new().write(true).open(file(&dir, "data")).unwrap();
    data.write_all_at(&[0xa5; 64], 40).unwrap();
    for (number, frame) in frames.iter().enumerate().skip(1) {
        writer.add(frame).unwrap();
        reader.refresh().unwrap();
        let read = reader.frame(number);
        let lost: usize = reader.damage().iter().map(|damage| damage.frames).sum();
        assert!(lost <= number + 1, "{lost} of {} are lost", number + 1);
        assert_eq!(read.is_none(), lost > 0, "{number}: {:?}", reader.damage());
    }
}

#[test]
fn removed_files_are_made_again() {
    let frames = made_frames(12, 40);
    for removed in [&["data", "index"][..], &["index"], &["data"]] {
        let dir = dir();
        let mut writer = writer(&dir);
        frames[..20].iter().for_each(|frame| writer.add(frame).unwrap());
        removed.iter().for_each(|kind| fs::remove_file(file(&dir, kind)).unwrap());
        frames[20..].iter().for_each(|frame| writer.add(frame).unwrap());
        let mut reader = reader(&dir);
        let left: Vec<Frame> = reader.from(Timestamp(0)).collect();
        assert!(left == frames[20..], "{removed:?}: {} frames", left.len());
        let starts: Vec<usize> = (0..reader.len()).filter(|at| reader.starts_run(*at)).collect();
        let begins = reader.len() - 20;
        assert!(starts.contains(&begins), "{removed:?}: a run begins at {starts:?}");
    }
}

#[test]
fn reader_follows_recreated_files() {
    let frames = made_frames(16, 40);
    for removed in [&["data", "index"][..], &["index"], &["data"]] {
        let dir = dir();
        let mut writer = writer(&dir);
        frames[..20].iter().for_each(|frame| writer.add(frame).unwrap());
        let mut reader = reader(&dir);
        assert!(reader.frame(5).as_ref() == Some(&frames[5]));
        removed.iter().for_each(|kind| fs::remove_file(file(&dir, kind)).unwrap());
        for (number, frame) in frames.iter().enumerate().skip(20) {
            writer.add(frame).unwrap();
            assert!(reader.refresh().unwrap(), "{removed:?}, {number}");
            let last = reader.len() - 1;
            assert!(reader.frame(last).as_ref() == Some(frame), "{removed:?}, {number}");
        }
        let reported =
            reader.damage().iter().filter(|damage| damage.what != DamageKind::NotInIndex);
        assert_eq!(reported.count(), 0, "{removed:?}: {:?}", reader.damage());
    }
}

#[test]
fn recorder_retaking_its_lock_begins_a_run() {
    let frames = made_frames(18, 30);
    let dir = dir();
    let mut first = writer(&dir);
    frames[..10].iter().for_each(|frame| first.add(frame).unwrap());
    fs::remove_file(dir.path().join("lock")).unwrap();
    let mut other = writer(&dir);
    frames[10..20].iter().for_each(|frame| other.add(frame).unwrap());
    assert_eq!(first.add(&frames[20]).unwrap_err().kind(), ErrorKind::Invalid);
    drop(other);
    frames[20..].iter().for_each(|frame| first.add(frame).unwrap());
    let mut reader = reader(&dir);
    let read: Vec<Frame> = reader.from(Timestamp(0)).collect();
    assert!(read == frames, "{} frames, {:?}", read.len(), reader.damage());
    let starts: Vec<usize> = (0..reader.len()).filter(|at| reader.starts_run(*at)).collect();
    assert_eq!(starts, [0, 10, 20]);

    // An anonymous recorder has written here, so no names may come after it.
    for name in names(&dir) {
        fs::remove_file(dir.path().join(name)).unwrap();
    }
    drop(Writer::open_anonymous(File::open(dir.path()).unwrap(), Retention::default()).unwrap());
    assert_eq!(first.add(&frames[0]).unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn recorder_of_a_removed_directory_fails_and_keeps_its_lock() {
    let frames = made_frames(13, 3);
    let outer = dir();
    let path = outer.path().join("history");
    let make = || {
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o700)).unwrap();
        Writer::open(File::open(&path).unwrap(), Retention::default()).unwrap()
    };
    let mut lost = make();
    lost.add(&frames[0]).unwrap();
    fs::remove_dir_all(&path).unwrap();
    for frame in &frames[1..] {
        assert_eq!(lost.add(frame).unwrap_err().kind(), ErrorKind::Io);
    }
    let mut next = make();
    fs::remove_file(path.join("lock")).unwrap();
    next.add(&frames[0]).unwrap();
    let other = Writer::open(File::open(&path).unwrap(), Retention::default());
    assert_eq!(other.unwrap_err().kind(), ErrorKind::Invalid, "the lock was taken again");
}

#[test]
fn recorder_continues_after_a_torn_end() {
    let frames = made_frames(5, 60);
    let whole = recorded(&frames[..30]);
    let index = fs::metadata(file(&whole, "index")).unwrap().len();
    let data = fs::metadata(file(&whole, "data")).unwrap().len();
    for (index_cut, data_cut) in [
        (0, 0),
        (1, 0),
        (31, 0),
        (32, 0),
        (0, 1),
        (0, 200),
        (100, 77),
        (index, data),
        (index - 9, 0),
    ] {
        let dir = dir();
        for kind in ["index", "data"] {
            fs::copy(file(&whole, kind), file(&dir, kind)).unwrap();
        }
        cut(&file(&dir, "index"), index - index_cut);
        cut(&file(&dir, "data"), data - data_cut);
        let mut writer = writer(&dir);
        frames[30..].iter().for_each(|frame| writer.add(frame).unwrap());
        let mut reader = reader(&dir);
        let read: Vec<Frame> = reader.from(Timestamp(0)).collect();
        assert!(read.ends_with(&frames[30..]), "{index_cut} {data_cut}");
        let before = &read[..read.len() - 30];
        assert!(frames.starts_with(before), "{index_cut} {data_cut}");
        let is_whole = before.len() == 30;
        assert_eq!(is_whole, (index_cut, data_cut) == (0, 0), "{index_cut} {data_cut}");
        assert_eq!(
            reader.check().is_empty(),
            is_whole || data_cut == data,
            "{:?}",
            reader.damage()
        );
    }
}

#[test]
fn unwritable_frame_is_left_out() {
    let frames = made_frames(6, 6);
    let dir = dir();
    let mut writer = writer(&dir);
    writer.add(&frames[0]).unwrap();
    let mut late = frames[1].clone();
    late.snapshot.taken_at = Timestamp(u64::MAX);
    assert_eq!(writer.add(&late).unwrap_err().kind(), ErrorKind::Invalid);
    // A directory in place of a file of the next day.
    fs::create_dir(dir.path().join("data_2026-11-25")).unwrap();
    assert!(writer.add(&at(&frames[2], START.0 + DAY)).is_err());
    writer.add(&frames[3]).unwrap();
    writer.add(&frames[4]).unwrap();
    let kept = [&frames[0], &frames[3], &frames[4]];
    assert!(reader(&dir).from(Timestamp(0)).eq(kept.into_iter().cloned()));
}

#[test]
fn old_and_large_days_are_removed() {
    let frame = &made_frames(7, 1)[0];
    let record = |retention, days: std::ops::Range<u64>| {
        let dir = dir();
        let mut writer = Writer::open(File::open(dir.path()).unwrap(), retention).unwrap();
        days.for_each(|day| writer.add(&at(frame, START.0 + day * DAY)).unwrap());
        names(&dir).into_iter().filter(|name| name.starts_with("index")).collect::<Vec<_>>()
    };
    let all = record(Retention::default(), 0..4);
    assert_eq!(all.len(), 4);
    let max_age = Some(Duration::from_secs(86_400));
    assert_eq!(record(Retention { max_age, max_bytes: None }, 0..4), all, "not by one look");
    assert_eq!(record(Retention { max_age, max_bytes: None }, 0..5)[..3], all[1..]);
    assert_eq!(record(Retention { max_age: None, max_bytes: Some(0) }, 0..4), all[3..]);
    let max_bytes = Some(1 << 30);
    assert_eq!(record(Retention { max_age: None, max_bytes }, 0..4), all);
}

/// Keeps days for one day.
fn keeping(dir: &TempDir) -> Writer {
    let max_age = Some(Duration::from_secs(86_400));
    let retention = Retention { max_age, max_bytes: None };
    Writer::open(File::open(dir.path()).unwrap(), retention).unwrap()
}

#[test]
fn temporarily_wrong_clock_removes_no_day() {
    let dir = recorded(&made_frames(13, 2));
    let frame = &made_frames(13, 1)[0];
    let (then, now) = (START.0 + 90 * DAY, START.0 + DAY / 2);
    // It is wrong at the start, and later for less than a chunk.
    for time in [vec![then; 100], vec![now; 2], vec![then; 100], vec![now; 2]].concat() {
        keeping(&dir).add(&at(frame, time)).unwrap();
    }
    let mut writer = keeping(&dir);
    for time in [vec![then; 100], vec![now; 2], vec![then; 100], vec![now; 2]].concat() {
        writer.add(&at(frame, time)).unwrap();
    }
    assert!(file(&dir, "index").exists(), "{:?}", names(&dir));
}

#[test]
fn unremovable_day_loses_no_frame_and_is_reported_per_chunk() {
    let (dir, plain) = (dir(), dir());
    // Its index is a directory.
    fs::create_dir(dir.path().join("index_2026-11-20")).unwrap();
    fs::write(dir.path().join("data_2026-11-20"), "").unwrap();
    let frames = made_frames(14, 1100);
    let (mut failing, mut other) = (keeping(&dir), writer(&plain));
    let failed: Vec<usize> = (0..frames.len())
        .filter(|number| {
            other.add(&frames[*number]).unwrap();
            failing.add(&frames[*number]).is_err()
        })
        .collect();
    assert_eq!(failed, [512, 1024]);
    assert_eq!(failing.written(), other.written(), "no frame is without its base");
    let data = |dir: &TempDir| fs::read(file(dir, "data")).unwrap();
    assert!(data(&dir) == data(&plain));
}

#[test]
fn history_without_names_is_never_continued() {
    let open = |dir: &TempDir| File::open(dir.path()).unwrap();
    let (keep, frame) = (Retention::default(), &made_frames(15, 1)[0]);
    let refused = |opened: gpu_core::Result<Writer>| {
        let why = opened.unwrap_err().fault().text;
        assert!(why.contains("each recorder numbers users anew"), "{why}");
    };
    let anonymous = dir();
    Writer::open_anonymous(open(&anonymous), keep).unwrap().add(frame).unwrap();
    refused(Writer::open(open(&anonymous), keep));
    refused(Writer::open_anonymous(open(&anonymous), keep));
    let named = recorded(std::slice::from_ref(frame));
    refused(Writer::open_anonymous(open(&named), keep));
    assert!(Writer::open(open(&named), keep).is_ok());
}

#[test]
fn history_without_names_stays_so_after_its_removal() {
    let frames = made_frames(16, 3);
    let dir = dir();
    let opened = File::open(dir.path()).unwrap();
    let mut writer = Writer::open_anonymous(opened, Retention::default()).unwrap();
    writer.add(&frames[0]).unwrap();
    for name in names(&dir) {
        fs::remove_file(dir.path().join(name)).unwrap();
    }
    writer.add(&frames[1]).unwrap();
    assert_eq!(names(&dir), ["anonymous", "data_2026-11-24", "index_2026-11-24", "lock"]);
    // Without its mark, the rest may be another recorder's, with names.
    for name in ["anonymous", "lock"] {
        fs::remove_file(dir.path().join(name)).unwrap();
    }
    assert_eq!(writer.add(&frames[2]).unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn dir_may_be_open_with_o_path() {
    let (dir, frames) = (dir(), made_frames(12, 2));
    let open = || {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::open(dir.path(), flags, Mode::empty()).unwrap()
    };
    let retention = Retention { max_bytes: Some(1 << 30), max_age: None };
    let mut writer = Writer::open(open(), retention).unwrap();
    frames.iter().for_each(|frame| writer.add(frame).unwrap());
    assert!(Reader::open(open()).unwrap().from(Timestamp(0)).eq(frames));
}

#[test]
fn files_are_for_the_owner_alone() {
    let dir = recorded(&made_frames(8, 1));
    for name in names(&dir) {
        let mode = fs::metadata(dir.path().join(&name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

#[test]
fn dir_writable_by_others_is_refused() {
    for mode in [0o770, 0o707, 0o1777] {
        let dir = dir();
        fs::set_permissions(dir.path(), Permissions::from_mode(mode)).unwrap();
        let error = Writer::open(File::open(dir.path()).unwrap(), Retention::default());
        assert_eq!(error.unwrap_err().kind(), ErrorKind::Invalid, "{mode:o}");
        assert_eq!(names(&dir), [""; 0]);
    }
}

#[test]
fn link_replacing_a_file_is_not_followed() {
    let frames = made_frames(9, 1);
    for name in ["data_2026-11-24", "index_2026-11-24"] {
        let dir = dir();
        let target = dir.path().join("target");
        fs::write(&target, "").unwrap();
        symlink(&target, dir.path().join(name)).unwrap();
        assert!(writer(&dir).add(&frames[0]).is_err());
        assert_eq!(fs::read(&target).unwrap(), b"");
    }
}

#[test]
fn newer_version_is_neither_read_nor_continued() {
    let frames = made_frames(10, 1);
    for kind in ["data", "index"] {
        let dir = recorded(&frames);
        let path = file(&dir, kind);
        let mut bytes = fs::read(&path).unwrap();
        bytes[8] = 2;
        let crc = crc32fast::hash(&bytes[..28]).to_le_bytes();
        bytes[28..32].copy_from_slice(&crc);
        fs::write(&path, &bytes).unwrap();
        let error = Reader::open(File::open(dir.path()).unwrap()).unwrap_err();
        assert!(error.fault().text.contains("format version 2; expected 1"), "{error:?}");
        assert!(writer(&dir).add(&frames[0]).is_err());
        assert_eq!(fs::read(&path).unwrap(), bytes);
    }
}

#[test]
fn missing_files_are_reported() {
    let frames = made_frames(11, 3);
    for (kind, left) in [("data", 3), ("index", 0)] {
        let dir = recorded(&frames);
        fs::remove_file(file(&dir, kind)).unwrap();
        let mut reader = reader(&dir);
        assert_eq!((reader.len(), reader.frame(0)), (left, None));
        let damage = reader.check();
        let missing = damage.iter().find(|damage| matches!(damage.what, DamageKind::Unreadable(_)));
        assert_eq!(missing.map(|missing| missing.frames), Some(left));
        let without_index = damage.iter().any(|damage| damage.what == DamageKind::NotInIndex);
        assert_eq!(without_index, kind == "index");
    }
}
