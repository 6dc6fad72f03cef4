//! The text of an entry.

use super::names::{self, MERGED};
use gpu_core::{
    Bytes, Claim, DeviceUuid, Error, ErrorKind, LeaseEntry, LeaseId, OuterLease, Pid, ProcessKey,
    QueuePlace, Result, Share, Timestamp,
};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::HashSet;

/// The size up to which entries of others are read ...
pub(super) const READ_LIMIT: usize = 32 << 10;
/// ... and the size up to which they are written.
const WRITE_LIMIT: usize = 8 << 10;
/// The limits of a user's entries except for the [first](super::living): the size, and the number of
/// names of devices, repeated ones included. gpuws writes no larger entry: the largest machines have
/// 16 GPUs of 7 MIG devices each.
pub(super) const SMALL: Limits = Limits { bytes: WRITE_LIMIT, names: 112 };
/// The limits of the first entries.
pub(super) const LARGE: Limits = Limits { bytes: READ_LIMIT, names: 2048 };
/// The maximum number of different devices, also of a request.
const DEVICES: usize = 512;
/// A UUID of NVML has 40 bytes, an old name of a MIG device a few more.
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

/// The maximum size and number of names of a file that is an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    pub(super) bytes: usize,
    names: usize,
}

/// The fields of every format, without a copy of them.
#[derive(Deserialize)]
pub(super) struct Outline<'t> {
    schema: u32,
    #[serde(borrow)]
    id: Cow<'t, str>,
    #[serde(default)]
    ticket: u64,
    #[serde(borrow, default)]
    devices: Vec<&'t str>,
}

/// Fields that a future format may change: if one is unreadable, the entry keeps its devices.
#[derive(Default, Deserialize)]
struct Within {
    within: Vec<OuterLease>,
}

/// Returns the file content of an entry.
///
/// # Errors
/// `Invalid` when it is longer than readers accept, or nested too deeply.
pub(super) fn write(entry: &LeaseEntry) -> Result<Vec<u8>> {
    let mut entry = entry.clone();
    truncate(&mut entry.command);
    let (id, names) = (entry.id.clone(), entry.devices.len());
    if entry.within.len() > DEPTH {
        let what = format!("write lease {id}: nested deeper than {DEPTH} levels");
        return Err(Error::new(ErrorKind::Invalid, what));
    }
    let mut text = serde_json::to_vec(&Text { schema: SCHEMA, entry }).map_err(|error| {
        Error::new(ErrorKind::Invalid, format!("write lease {id}")).with_source(error)
    })?;
    text.push(b'\n');
    if text.len() > SMALL.bytes || names > SMALL.names {
        let Limits { bytes, names: most } = SMALL;
        let what = format!(
            "write lease {id}: it lists more than {most} devices, or needs more than {bytes} bytes"
        );
        return Err(Error::new(ErrorKind::Invalid, what));
    }
    Ok(text)
}

/// The request of a place in the queue as version 1 of the format has it: its fields, names and order
/// never change, and fields that are added to [`Claim`] are not in it. So programs of all versions
/// compute the same class for a place, whether they know all fields of its claim or not.
#[derive(Serialize)]
struct ClassFields<'e> {
    count: u32,
    share: Share,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    among: &'e [DeviceUuid],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    except: &'e [DeviceUuid],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    required: &'e [DeviceUuid],
    #[serde(skip_serializing_if = "Option::is_none")]
    free_memory_bytes: Option<Bytes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    compute_capability: Option<(u32, u32)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    vendor: Option<&'e str>,
    accept_used: bool,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    visible_minors: &'e [u32],
}

/// Returns the place in the queue of an entry. Its class is a hash (FNV-1a) of the JSON of
/// [`ClassFields`] and the outer leases, which need not be strong: it is compared only among places of
/// one user.
pub(super) fn place_of(entry: &LeaseEntry) -> QueuePlace {
    let claim = &entry.claim;
    let fields = ClassFields {
        count: claim.count,
        share: claim.share,
        among: &claim.among,
        except: &claim.except,
        required: &claim.required,
        free_memory_bytes: claim.free_memory,
        compute_capability: claim.compute_capability,
        vendor: claim.vendor.as_deref(),
        accept_used: claim.accept_used,
        visible_minors: &claim.visible_minors,
    };
    // Plain data can always be serialized.
    let text = serde_json::to_vec(&(fields, &entry.within)).unwrap_or_default();
    let class = text.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    QueuePlace { ticket: entry.ticket, id: entry.id.clone(), owner: entry.owner, class }
}

/// Returns the place in the queue of a file with this name, after its kind, and this owner; `None`
/// if the file has no place.
pub(super) fn waiter(name: &str, owner: u32, text: &[u8]) -> Option<LeaseEntry> {
    let text: Text =
        serde_json::from_slice(text).ok().filter(|text: &Text| text.schema == SCHEMA)?;
    let mut entry = LeaseEntry { owner, ..text.entry };
    truncate(&mut entry.command);
    let is_named = names::place(owner, name).is_some_and(|place| place == place_of(&entry));
    (is_named && entry.devices.is_empty() && has_short_lists(&entry)).then_some(entry)
}

impl<'t> Outline<'t> {
    /// Returns the outline of the lease or attempt in a file with this name, after its kind; `None`
    /// if the file is not an entry.
    ///
    /// The outline alone determines whether a file is an entry, so all readers agree, however much
    /// of it they keep.
    pub(super) fn of(name: &str, text: &'t [u8], limits: Limits) -> Option<Self> {
        if text.len() > limits.bytes {
            return None;
        }
        // One check of the whole text is cheaper than a check of each name.
        let outline: Outline<'t> = serde_json::from_str(str::from_utf8(text).ok()?).ok()?;
        // Without an early end, the compiler checks the bytes of a chunk at once.
        let are_graphic =
            |bytes: &[u8]| bytes.iter().fold(true, |all, byte| all & byte.is_ascii_graphic());
        let is_plain = |name: &&str| {
            let (chunks, rest) = name.as_bytes().as_chunks::<16>();
            name.len() <= DEVICE_NAME
                && chunks.iter().all(|chunk| are_graphic(chunk))
                && are_graphic(rest)
        };
        let names = &outline.devices;
        let valid = outline.schema >= SCHEMA
            && outline.id == name
            && !name.starts_with(MERGED)
            && LeaseId::parse(name).is_some()
            && (1..=limits.names).contains(&names.len())
            && names.iter().all(is_plain);
        valid.then_some(outline)
    }

    /// Returns its devices; some may be named several times.
    pub(super) fn devices(&self) -> &[&'t str] {
        &self.devices
    }

    /// Returns its place in the order of arrival.
    pub(super) fn ticket(&self) -> u64 {
        self.ticket
    }

    /// Returns the whole entry of this text and owner; `None` if it has too many devices, so that
    /// readers merge it.
    ///
    /// An entry from a newer gpuws counts as a lease on the whole of its devices, within its outer
    /// leases, or within none if it has another format for them. An entry with other unreadable
    /// fields counts in the same way.
    pub(super) fn entry(&self, owner: u32, text: &[u8]) -> Option<LeaseEntry> {
        let mut seen = HashSet::new();
        let keys = self.devices.iter().map(|name| DeviceUuid::named(name));
        let devices: Vec<DeviceUuid> = keys.filter(|key| seen.insert(key.clone())).collect();
        if devices.len() > DEVICES {
            return None;
        }
        let known = serde_json::from_slice::<Text>(text).ok();
        let known = known.filter(|text| text.schema == SCHEMA && has_short_lists(&text.entry));
        let mut entry = match known {
            Some(text) => text.entry,
            None => self.unknown(&devices, text)?,
        };
        truncate(&mut entry.command);
        Some(LeaseEntry { owner, devices, ..entry })
    }

    fn unknown(&self, devices: &[DeviceUuid], text: &[u8]) -> Option<LeaseEntry> {
        let Within { mut within } = serde_json::from_slice(text).unwrap_or_default();
        if within.len() > DEPTH {
            within.clear();
        }
        Some(LeaseEntry {
            id: LeaseId::parse(&self.id)?,
            ticket: self.ticket,
            owner: 0,
            root: ProcessKey { pid: Pid(0), start: None },
            within,
            claim: Claim::whole(u32::try_from(devices.len()).ok()?),
            devices: Vec::new(),
            parts_of: Vec::new(),
            merged: None,
            command: "a newer gpuws".to_owned(),
            since: Timestamp(0),
        })
    }
}

fn has_short_lists(entry: &LeaseEntry) -> bool {
    let claim = &entry.claim;
    [&claim.among, &claim.except, &claim.required, &entry.parts_of]
        .iter()
        .all(|devices| devices.len() <= DEVICES)
        && claim.visible_minors.len() <= DEVICES
        && entry.within.len() <= DEPTH
}

fn truncate(command: &mut String) {
    command.truncate(command.floor_char_boundary(COMMAND));
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_core::StartTime;

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
            merged: None,
            command: "python".into(),
            since: Timestamp(1_795_223_083_000),
        }
    }

    fn lease(name: &str, owner: u32, text: &[u8]) -> Option<LeaseEntry> {
        Outline::of(name, text, LARGE)?.entry(owner, text)
    }

    #[test]
    fn entry_round_trips_and_belongs_to_file_owner() {
        let text = write(&entry()).unwrap();
        let read = lease("3f09c2", 1001, &text).unwrap();
        assert_eq!(read, LeaseEntry { owner: 1001, ..entry() });
        let text = String::from_utf8(text).unwrap();
        assert!(text.starts_with("{\"schema\":1,") && text.ends_with("}\n"), "{text}");
        assert!(!text.contains("1000"), "whose it is is not written: {text}");
    }

    /// Places that version 0.1.0 (8167d385) wrote, with every field of a claim and an outer lease.
    const PLACES: [(&str, &str); 2] = [
        (
            "0000255bd9f0935e-4c9c470711bc6110-3b481e0b8e1c",
            r#"{"schema":1,"id":"3b481e0b8e1c","ticket":41076428673886,"root":{"pid":3528,"start_ticks":4107638},"claim":{"count":2,"share":{"memory_bytes":1073741824},"among":["GPU-db1c930b-e146-b6e1-ab8f-e40c7d02d6a7","GPU-db1c920b-e146-b52e-ab8f-e30c7d02d4f4","GPU-db1c910b-e146-b37b-ab8f-e60c7d02da0d"],"except":["GPU-db1c930b-e146-b6e1-ab8f-e40c7d02d6a7"],"required":["GPU-db1c920b-e146-b52e-ab8f-e30c7d02d4f4"],"free_memory_bytes":2147483648,"compute_capability":[6,1],"accept_used":true,"visible_minors":[0,1,2,3]},"command":"true","since_unix_ms":1795909757672}"#,
        ),
        (
            "0000255bce81ddf9-3313e1e1df753da5-badc08b8fb52",
            r#"{"schema":1,"id":"badc08b8fb52","ticket":41076236869113,"root":{"pid":3513,"start_ticks":4107612},"within":[{"id":"b8d4340cdc02","owner":0}],"claim":{"count":1,"share":"whole","among":["GPU-db1c930b-e146-b6e1-ab8f-e40c7d02d6a7"],"accept_used":false,"visible_minors":[0,1,2,3]},"command":"true","since_unix_ms":1795909757480}"#,
        ),
    ];

    #[test]
    fn class_of_place_never_changes() {
        for (name, text) in PLACES {
            let entry = waiter(name, 7, text.as_bytes()).expect(name);
            assert_eq!(names::of_place(&place_of(&entry)), name);
            // An unknown field has no effect.
            let more = text.replace("\"count\":", "\"time_limit_ms\":5,\"count\":");
            assert_ne!(more, text);
            assert_eq!(waiter(name, 7, more.as_bytes()), Some(entry));
            let other = text.replace("\"count\":", "\"count\":1");
            assert_eq!(waiter(name, 7, other.as_bytes()), None, "the class is that of its request");
        }
    }

    #[test]
    fn devices_without_uuid_have_one_key() {
        let text = write(&entry()).unwrap();
        let text = String::from_utf8(text).unwrap();
        let held = |names: &str| {
            let text = text.replace("\"GPU-1\"", names);
            lease("3f09c2", 0, text.as_bytes()).map(|lease| lease.devices)
        };
        let keys = |keys: &[&str]| {
            Some(keys.iter().map(|key| DeviceUuid((*key).to_owned())).collect::<Vec<_>>())
        };
        let spellings = r#""pci:0000:0A:1F.1","pci:00000000:0a:1f.1","pci:0000:0a:1f.1/2""#;
        assert_eq!(held(spellings), keys(&["pci:0000:0a:1f.1", "pci:0000:0a:1f.1/2"]));
        // Like an unknown UUID, a name that is not a key holds no device, and the others still
        // count.
        assert_eq!(held(r#""pci:x","GPU-2""#), keys(&["pci:x", "GPU-2"]));
        assert_eq!(held(r#""pci:\u00e9""#), None);
    }

    #[test]
    fn invalid_entry_is_ignored() {
        let text = write(&entry()).unwrap();
        let lease = |id, text: &[u8]| lease(id, 0, text);
        assert_eq!(lease("other", &text), None, "an entry under another's name");
        assert_eq!(waiter("3f09c2", 0, &text), None, "a waiting claim has no devices");
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
        let read = lease("ab", 5, text).unwrap();
        assert_eq!((read.owner, read.claim), (5, Claim::whole(2)));
        assert_eq!((read.devices.len(), read.within), (2, Vec::new()));
        let text =
            br#"{"schema":2,"id":"ab","devices":["GPU-1"],"within":[{"id":"cd","owner":5}]}"#;
        let read = lease("ab", 5, text).unwrap();
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
            let read = lease("ab", 5, text.as_bytes());
            let read = read.unwrap_or_else(|| panic!("its devices are given away: {text}"));
            assert_eq!((read.claim, read.devices.len()), (Claim::whole(2), 2), "{text}");
            assert_eq!(read.within, [], "{text}");
        }
    }

    #[test]
    fn long_text_is_truncated_and_long_lists_are_rejected() {
        let long = LeaseEntry { command: "é".repeat(500), ..entry() };
        let read = lease("3f09c2", 0, &write(&long).unwrap()).unwrap();
        assert_eq!(read.command, "é".repeat(COMMAND / 2));
        let many = LeaseEntry { devices: vec![DeviceUuid("GPU-1".into()); 3000], ..entry() };
        assert_eq!(write(&many).unwrap_err().kind(), ErrorKind::Invalid);
        let deep = LeaseEntry { within: vec![outer("outer"); DEPTH + 1], ..entry() };
        assert_eq!(write(&deep).unwrap_err().kind(), ErrorKind::Invalid);
    }

    /// Returns a text with these names of devices.
    fn naming(devices: &[String]) -> Vec<u8> {
        let text = serde_json::json!({ "schema": 1, "id": "ab", "devices": devices });
        text.to_string().into_bytes()
    }

    #[test]
    fn repeated_device_counts_once() {
        let text = naming(&vec!["GPU-1".to_owned(); 500]);
        let read = lease("ab", 5, &text).unwrap();
        assert_eq!((read.devices, read.claim), (entry().devices, Claim::whole(1)));
    }

    #[test]
    fn entry_with_unreadable_details_holds_its_devices() {
        let text = br#"{"schema":1,"id":"ab","devices":["GPU-1"],"claim":{"count":"x"}}"#;
        let read = lease("ab", 5, text).unwrap();
        assert_eq!((read.devices, read.claim), (entry().devices, Claim::whole(1)));
    }

    /// Otherwise, a lease beyond the first of its user would not count.
    #[test]
    fn largest_entries_of_gpuws_are_within_the_small_limits() {
        let uuid = |number| DeviceUuid(format!("MIG-{number:08x}-0000-0000-0000-000000000000"));
        let write =
            |count| write(&LeaseEntry { devices: (0..count).map(uuid).collect(), ..entry() });
        let most = (1..).take_while(|count| write(*count).is_ok()).last().unwrap();
        assert_eq!(most, SMALL.names);
        let text = write(most).unwrap();
        let outline = Outline::of("3f09c2", &text, SMALL).expect("it is an entry");
        assert_eq!(outline.devices().len(), most);
    }

    #[test]
    fn limits_depend_on_text_alone() {
        let names = |count| (0..count).map(|number| format!("GPU-{number}")).collect::<Vec<_>>();
        let is_entry = |text: &[u8], limits| Outline::of("ab", text, limits).is_some();
        for (count, small, large) in [(112, true, true), (113, false, true), (2049, false, false)] {
            let text = naming(&names(count));
            assert_eq!(is_entry(&text, SMALL), small, "{count}");
            assert_eq!(is_entry(&text, LARGE), large, "{count}");
        }
        let mut long = naming(&names(1));
        long.resize(SMALL.bytes + 1, b' ');
        assert!(!is_entry(&long, SMALL) && is_entry(&long, LARGE));
        assert_eq!(lease("ab", 0, &naming(&names(513))), None, "too many to be kept unmerged");
        let text = String::from_utf8(naming(&names(1))).unwrap().replace("ab", "more-1");
        assert!(Outline::of("more-1", text.as_bytes(), LARGE).is_none(), "this ID is the reader's");
    }
}
