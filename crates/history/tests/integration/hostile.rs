//! Histories that no recorder wrote.

use crate::round_trip::{dir, reader, recorded};
use crate::world::{Random, START, World};
use gpu_core::Timestamp;
use gpu_history::{Frame, Reader};
use std::fs::{self, File, OpenOptions};
use std::path::Path;

const INDEX: &str = "index_2026-11-24";
const DATA: &str = "data_2026-11-24";

/// Returns a record of 32 bytes with its checksum.
fn sealed(parts: &[&[u8]]) -> Vec<u8> {
    let mut record = parts.concat();
    record.resize(28, 0);
    record.extend(crc32fast::hash(&record).to_le_bytes());
    record
}

fn header(kind: &str) -> Vec<u8> {
    let version = 1_u32.to_le_bytes();
    sealed(&[kind.as_bytes(), &version, &[0; 4], &START.0.to_le_bytes()])
}

fn entry(time: u64, offset: u64, length: u32, position: u16, crc: u32) -> Vec<u8> {
    let (time, offset) = (time.to_le_bytes(), offset.to_le_bytes());
    let (length, position) = (length.to_le_bytes(), position.to_le_bytes());
    sealed(&[&time, &offset, &length, &position, &[0; 2], &crc.to_le_bytes()])
}

/// Returns the checksum of the data of a key frame.
fn crc(data: &[u8]) -> u32 {
    crc32fast::hash(&[&[0; 4], data].concat())
}

fn write(dir: &Path, index: &[u8], data: &[u8]) {
    fs::write(dir.join(INDEX), [&header("gpuwsidx")[..], index].concat()).unwrap();
    fs::write(dir.join(DATA), [&header("gpuwsdat")[..], data].concat()).unwrap();
}

/// Reads every readable frame.
fn read(reader: &mut Reader) -> Vec<Frame> {
    let all = (0..reader.len()).filter_map(|number| reader.frame(number)).collect();
    reader.check();
    reader.at(Timestamp(u64::MAX));
    all
}

#[test]
fn random_frames_with_correct_checksums_are_malformed() {
    let dir = dir();
    let mut random = Random(1);
    for trial in 0..2000 {
        let count = random.below(80);
        let data: Vec<u8> = (0..count).map(|_| random.next() as u8).collect();
        write(dir.path(), &entry(START.0, 32, count as u32, 0, crc(&data)), &data);
        assert!(read(&mut reader(&dir)).is_empty(), "{trial}");
        assert_eq!(reader(&dir).frame(0), None);
    }
}

#[test]
fn changed_frames_with_correct_checksums_are_read_or_malformed() {
    let whole = recorded(&[World::new(5, 2, 3).frame()]);
    let data = fs::read(whole.path().join(DATA)).unwrap()[32..].to_vec();
    let dir = dir();
    let mut random = Random(2);
    let (mut read_frames, mut malformed) = (0, 0);
    for _ in 0..2000 {
        let mut data = data.clone();
        for _ in 0..1 + random.below(3) {
            let at = random.below(data.len() as u64) as usize;
            data[at] = random.next() as u8;
        }
        write(dir.path(), &entry(START.0, 32, data.len() as u32, 0, crc(&data)), &data);
        match read(&mut reader(&dir)).len() {
            0 => malformed += 1,
            _ => read_frames += 1,
        }
    }
    // Most changes affect the numbers, and some of these stay valid.
    assert!(read_frames > 0 && malformed > 0, "{read_frames} {malformed}");
}

#[test]
fn random_files_are_damaged() {
    let dir = dir();
    let mut random = Random(3);
    for _ in 0..300 {
        for name in [INDEX, DATA] {
            let count = random.below(300);
            let bytes: Vec<u8> = (0..count).map(|_| random.next() as u8).collect();
            fs::write(dir.path().join(name), bytes).unwrap();
        }
        let mut reader = reader(&dir);
        assert!(read(&mut reader).is_empty());
        assert!(!reader.damage().is_empty());
    }
}

#[test]
fn hostile_lengths_are_not_allocated() {
    let dir = dir();
    // A sparse file of 4 TiB, in which every entry has data.
    let lengths = [(32, u32::MAX), (u64::MAX, 1), (u64::MAX - 7, 8), (1 << 50, 9), (32, 33 << 20)];
    let entries = lengths.map(|(offset, length)| entry(START.0, offset, length, 0, 0)).concat();
    write(dir.path(), &entries, &[]);
    let data = OpenOptions::new().write(true).open(dir.path().join(DATA)).unwrap();
    data.set_len(4 << 40).unwrap();
    let mut reader = reader(&dir);
    assert_eq!(reader.len(), lengths.len());
    assert!(read(&mut reader).is_empty());

    // A frame of a few bytes that claims to have a structure of 32 MiB minus one, or 2^62 bytes.
    for claim in [&[0xff, 0xff, 0xff, 0x1f][..], &[0xff; 8], &[0xff; 10]] {
        let data = [&[0][..], claim, &[1; 20]].concat();
        write(dir.path(), &entry(START.0, 32, data.len() as u32, 0, crc(&data)), &data);
        assert!(read(&mut crate::round_trip::reader(&dir)).is_empty());
    }
}

#[test]
fn any_order_of_positions_is_read_without_panic() {
    let dir = dir();
    let mut random = Random(4);
    for _ in 0..200 {
        let entries: Vec<u8> = (0..random.below(200))
            .flat_map(|_| {
                let position = (random.next() as u16) >> random.below(16);
                entry(START.0 + random.below(1000), 32, 4, position, crc(b"abcd"))
            })
            .collect();
        write(dir.path(), &entries, b"abcd");
        assert!(read(&mut reader(&dir)).is_empty());
    }
}

#[test]
fn only_regular_files_are_read() {
    let dir = dir();
    fs::create_dir(dir.path().join(INDEX)).unwrap();
    let fifo = dir.path().join(DATA);
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    let reader = Reader::open(File::open(dir.path()).unwrap()).unwrap();
    assert!(reader.is_empty());
}
