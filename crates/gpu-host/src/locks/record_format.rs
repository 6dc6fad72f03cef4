//! The text of an entry.

use super::names;
use gpu_core::{
    Claim, DeviceUuid, EntryKind, Error, ErrorKind, LeaseEntry, LeaseId, OuterLease, Pid,
    ProcessKey, QueuePlace, Result, Timestamp,
};
use serde::{Deserialize, Serialize};

/// Entries of others are read up to this size ...
pub(super) const READ_LIMIT: usize = 32 << 10;
/// ... and written up to this size.
const WRITE_LIMIT: usize = 16 << 10;
/// The largest machines have 16 GPUs of 7 MIG devices each.
const DEVICES: usize = 512;
/// A UUID of NVML has 40 bytes, an old name of a MIG device some more.
const DEVICE_NAME: usize = 128;
const COMMAND: usize = 256;
/// The maximum depth of leases within leases.
const DEPTH: usize = 64;

/// The format that is written; a higher number is read only as far as necessary.
const SCHEMA: u32 = 1;

#[derive(Serialize, Deserialize)]
struct Text {
    schema: u32,
    #[serde(flatten)]
    entry: LeaseEntry,
}

/// The fields of every future format.
#[derive(Deserialize)]
struct Newer {
    schema: u32,
    id: LeaseId,
    #[serde(default)]
    ticket: u64,
    #[serde(default)]
    devices: Vec<DeviceUuid>,
}

/// Fields that a future format may change: an unreadable one removes no device from the entry.
#[derive(Default, Deserialize)]
struct NewerWithin {
    within: Vec<OuterLease>,
}

/// Returns the file content of an entry.
///
/// # Errors
/// `Invalid` when it is longer than readers accept, or nested too deeply.
pub(super) fn write(entry: &LeaseEntry) -> Result<Vec<u8>> {
    let mut entry = entry.clone();
    truncate(&mut entry.command);
    let id = entry.id.clone();
    if entry.within.len() > DEPTH {
        let what = format!("write lease {id}: nested deeper than {DEPTH} levels");
        return Err(Error::new(ErrorKind::Invalid, what));
    }
    let mut text = serde_json::to_vec(&Text { schema: SCHEMA, entry }).map_err(|error| {
        Error::new(ErrorKind::Invalid, format!("write lease {id}")).with_source(error)
    })?;
    text.push(b'\n');
    if text.len() > WRITE_LIMIT {
        let what = format!("write lease {id} in {WRITE_LIMIT} bytes: it names too many devices");
        return Err(Error::new(ErrorKind::Invalid, what));
    }
    Ok(text)
}

/// Returns the place in the queue of an entry. Its class is a hash of the request (FNV-1a), which
/// need not be strong: it is compared only among places of one user.
pub(super) fn place_of(entry: &LeaseEntry) -> QueuePlace {
    // Plain data can always be serialized.
    let text = serde_json::to_vec(&(&entry.claim, &entry.within)).unwrap_or_default();
    let class = text.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    QueuePlace { ticket: entry.ticket, id: entry.id.clone(), owner: entry.owner, class }
}

/// Returns the entry of a file with this name, after its kind, and this owner; `None` if it is
/// none.
///
/// An entry from a newer gpuws counts as a lease on the whole of its devices, within its outer
/// leases; within none if it expresses them in another way.
pub(super) fn parse(kind: EntryKind, name: &str, owner: u32, text: &[u8]) -> Option<LeaseEntry> {
    let mut entry = match serde_json::from_slice::<Text>(text) {
        Ok(text) if text.schema == SCHEMA => text.entry,
        _ => newer(text)?,
    };
    truncate(&mut entry.command);
    entry.owner = owner;
    let plain = |device: &DeviceUuid| {
        device.0.len() <= DEVICE_NAME && device.0.bytes().all(|byte| byte.is_ascii_graphic())
    };
    let is_named = match kind {
        EntryKind::Waiter => {
            names::place(owner, name).is_some_and(|place| place == place_of(&entry))
        }
        EntryKind::Attempt | EntryKind::Lease => entry.id.as_str() == name,
    };
    let valid = is_named
        && entry.devices.len() <= DEVICES
        && [&entry.claim.among, &entry.claim.except, &entry.claim.required, &entry.parts_of]
            .iter()
            .all(|devices| devices.len() <= DEVICES)
        && entry.claim.visible_minors.len() <= DEVICES
        && entry.within.len() <= DEPTH
        && entry.devices.iter().all(plain)
        && entry.devices.is_empty() == (kind == EntryKind::Waiter);
    valid.then_some(entry)
}

fn newer(text: &[u8]) -> Option<LeaseEntry> {
    let newer: Newer = serde_json::from_slice(text).ok()?;
    let NewerWithin { mut within } = serde_json::from_slice(text).unwrap_or_default();
    if within.len() > DEPTH {
        within.clear();
    }
    let count = u32::try_from(newer.devices.len()).ok()?;
    (newer.schema > SCHEMA).then(|| LeaseEntry {
        id: newer.id,
        ticket: newer.ticket,
        owner: 0,
        root: ProcessKey { pid: Pid(0), start: None },
        within,
        claim: Claim::whole(count),
        devices: newer.devices,
        parts_of: Vec::new(),
        command: "a newer gpuws".to_owned(),
        since: Timestamp(0),
    })
}

fn truncate(command: &mut String) {
    command.truncate(command.floor_char_boundary(COMMAND));
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_core::{Bytes, Share, StartTime};

    fn outer(id: &str) -> OuterLease {
        OuterLease { id: LeaseId::parse(id).unwrap(), owner: 7 }
    }

    fn entry() -> LeaseEntry {
        let mut claim = Claim::whole(1);
        claim.share = Share::Memory(Bytes::from_mib(6144));
        LeaseEntry {
            id: LeaseId::parse("3f09c2").unwrap(),
            ticket: u64::MAX,
            owner: 1000,
            root: ProcessKey { pid: Pid(7), start: Some(StartTime(3)) },
            within: ["inner", "outer"].map(outer).into(),
            claim,
            devices: vec![DeviceUuid("GPU-1".into())],
            parts_of: Vec::new(),
            command: "python".into(),
            since: Timestamp(1_795_223_083_000),
        }
    }

    #[test]
    fn entry_round_trips_and_belongs_to_file_owner() {
        let text = write(&entry()).unwrap();
        let read = parse(EntryKind::Lease, "3f09c2", 1001, &text).unwrap();
        assert_eq!(read, LeaseEntry { owner: 1001, ..entry() });
        let text = String::from_utf8(text).unwrap();
        assert!(text.starts_with("{\"schema\":1,") && text.ends_with("}\n"), "{text}");
        assert!(!text.contains("1000"), "whose it is is not written: {text}");
    }

    #[test]
    fn invalid_entry_is_ignored() {
        let text = write(&entry()).unwrap();
        let lease = |id, text: &[u8]| parse(EntryKind::Lease, id, 0, text);
        assert_eq!(lease("other", &text), None, "an entry under another's name");
        assert_eq!(parse(EntryKind::Waiter, "3f09c2", 0, &text), None, "who waits has nothing");
        assert_eq!(lease("3f09c2", &text[..text.len() / 2]), None);
        for (from, to) in [
            ("GPU-1", "GPU\\u001b1"),
            ("\"schema\":1", "\"schema\":0"),
            ("[\"GPU-1\"]", "[]"),
            ("3f09c2", "../../x"),
        ] {
            let changed = String::from_utf8(text.clone()).unwrap().replace(from, to);
            assert_eq!(lease("3f09c2", changed.as_bytes()), None, "{changed}");
        }
        for text in ["", "{}", "[[[[", &"[".repeat(60_000)] {
            assert_eq!(lease("3f09c2", text.as_bytes()), None);
        }
    }

    #[test]
    fn newer_schema_entry_claims_whole_devices() {
        let text = br#"{"schema":2,"id":"ab","devices":["GPU-1","GPU-2"],"claim":{"colour":1}}"#;
        let read = parse(EntryKind::Lease, "ab", 5, text).unwrap();
        assert_eq!((read.owner, read.claim), (5, Claim::whole(2)));
        assert_eq!((read.devices.len(), read.within), (2, Vec::new()));
        let text =
            br#"{"schema":2,"id":"ab","devices":["GPU-1"],"within":[{"id":"cd","owner":5}]}"#;
        let read = parse(EntryKind::Lease, "ab", 5, text).unwrap();
        assert_eq!(read.within, [OuterLease { owner: 5, ..outer("cd") }]);
    }

    #[test]
    fn newer_schema_entry_with_unknown_nesting_still_counts() {
        let many = format!("[{}]", vec![r#"{"id":"cd","owner":5}"#; DEPTH + 1].join(","));
        let deep = "[".repeat(300) + &"]".repeat(300);
        let objects = r#"[{"id":"cd"}]"#;
        let shapes = ["7", "null", "{}", objects, r#"["../x"]"#, r#"["cd",7]"#, &many, &deep];
        for within in shapes {
            let text = format!(
                r#"{{"schema":2,"id":"ab","within":{within},"devices":["GPU-1","GPU-2"]}}"#
            );
            let read = parse(EntryKind::Lease, "ab", 5, text.as_bytes());
            let read = read.unwrap_or_else(|| panic!("its devices are given away: {text}"));
            assert_eq!((read.claim, read.devices.len()), (Claim::whole(2), 2), "{text}");
            assert_eq!(read.within, [], "{text}");
        }
    }

    #[test]
    fn long_text_is_truncated_and_long_lists_are_rejected() {
        let long = LeaseEntry { command: "é".repeat(500), ..entry() };
        let read = parse(EntryKind::Lease, "3f09c2", 0, &write(&long).unwrap()).unwrap();
        assert_eq!(read.command, "é".repeat(COMMAND / 2));
        let many = LeaseEntry { devices: vec![DeviceUuid("GPU-1".into()); 3000], ..entry() };
        assert_eq!(write(&many).unwrap_err().kind(), ErrorKind::Invalid);
        let deep = LeaseEntry { within: vec![outer("outer"); DEPTH + 1], ..entry() };
        assert_eq!(write(&deep).unwrap_err().kind(), ErrorKind::Invalid);
    }
}
