//! One snapshot of a machine with its leases.

use gpu_core::{Fault, LeaseEntry, MergedLeases, Snapshot, Timestamp};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::sync::Arc;

/// The state of a machine at one moment: its snapshot and the leases on its devices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame {
    /// The snapshot.
    pub snapshot: Snapshot,
    /// The leases, or why they are unknown.
    #[serde(with = "leases")]
    pub leases: Result<Vec<LeaseEntry>, Fault>,
}

impl Frame {
    /// Returns a frame. Leases that a reader has merged are recorded with their devices in the
    /// snapshot, and with their number.
    pub fn new(snapshot: Snapshot, leases: Result<&[LeaseEntry], &Fault>) -> Self {
        let whole = snapshot.devices.iter().filter_map(|device| device.id().uuid.as_ref().ok());
        let parts = snapshot.devices.iter().flat_map(|device| device.partitions.iter().flatten());
        let parts = parts.filter_map(|part| part.uuid.as_ref().ok());
        let all: Vec<_> = whole.chain(parts).collect();
        let named = |lease: &LeaseEntry| lease.naming(all.iter().copied());
        let leases = leases.map(|leases| leases.iter().map(named).collect());
        Frame { leases: leases.map_err(Clone::clone), snapshot }
    }

    /// Returns the time of its snapshot.
    pub fn time(&self) -> Timestamp {
        self.snapshot.taken_at
    }
}

/// Leases with their owners, and how many leases each stands for. A lease file does not name its
/// owner, because the owner is that of the file; a merged lease has no file.
mod leases {
    use super::*;

    #[derive(Serialize)]
    struct Owned<'a> {
        owner: u32,
        #[serde(skip_serializing_if = "Option::is_none")]
        merged_count: Option<u32>,
        lease: &'a LeaseEntry,
    }

    #[derive(Deserialize)]
    struct Read {
        owner: u32,
        #[serde(default)]
        merged_count: Option<u32>,
        lease: LeaseEntry,
    }

    pub(super) fn serialize<S: Serializer>(
        leases: &Result<Vec<LeaseEntry>, Fault>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let owned = leases.as_ref().map(|leases| {
            let owned = leases.iter().map(|lease| Owned {
                owner: lease.owner,
                merged_count: lease.merged.as_ref().map(|merged| merged.count),
                lease,
            });
            owned.collect::<Vec<_>>()
        });
        owned.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Result<Vec<LeaseEntry>, Fault>, D::Error> {
        let leases = Result::<Vec<Read>, Fault>::deserialize(deserializer)?;
        let whole = |read: Read| LeaseEntry {
            owner: read.owner,
            merged: read.merged_count.map(|count| Arc::new(MergedLeases::of_count(count))),
            ..read.lease
        };
        Ok(leases.map(|leases| leases.into_iter().map(whole).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Reader, Retention, Writer};
    use gpu_core::{
        Claim, DeviceId, DeviceInfo, DeviceState, DeviceUuid, ErrorKind, LeaseId, Origin, Pid,
        ProcessKey,
    };
    use std::fs::File;

    #[test]
    fn merged_leases_are_recorded_with_their_visible_devices() {
        let uuid = |name: &str| DeviceUuid(name.to_owned());
        let mut merged = MergedLeases::of_count(300);
        let names = (0..1000).map(|number| format!("GPU-{number}"));
        names.for_each(|name| merged.add(&name, &mut 1000));
        merged.tidy();
        let lease = LeaseEntry {
            id: LeaseId::parse("more-of-1000").unwrap(),
            ticket: 1,
            owner: 1000,
            root: ProcessKey { pid: Pid(0), start: None },
            within: Vec::new(),
            claim: Claim::whole(1000),
            devices: Vec::new(),
            parts_of: Vec::new(),
            merged: Some(Arc::new(merged)),
            command: "300 more leases of this user".to_owned(),
            since: Timestamp(1),
        };
        let alone = LeaseEntry { merged: None, devices: vec![uuid("GPU-x")], ..lease.clone() };
        let mut snapshot = Snapshot::empty(Origin::Live, Timestamp(5));
        for name in ["GPU-7", "GPU-other"] {
            let unread = Fault { kind: ErrorKind::Io, text: "read it".to_owned() };
            let id = DeviceId { uuid: Ok(uuid(name)), ..DeviceId::from_index(0) };
            snapshot.devices.push(DeviceState {
                info: DeviceInfo::unknown(id),
                sample: Err(unread.clone()),
                processes: Err(unread.clone()),
                partitions: Err(unread.clone()),
                details: Err(unread),
            });
        }
        let frame = Frame::new(snapshot, Ok(&[lease, alone.clone()]));
        let dir = tempfile::tempdir().unwrap();
        let open = || File::open(dir.path()).unwrap();
        Writer::open(open(), Retention::default()).unwrap().add(&frame).unwrap();
        let read = Reader::open(open()).unwrap().frame(0).unwrap();
        assert_eq!(read, frame);
        let [lease, other] = &read.leases.unwrap()[..] else { panic!("{frame:?}") };
        assert_eq!(
            (lease.owner, lease.count(), &lease.devices[..]),
            (1000, 300, &[uuid("GPU-7")][..])
        );
        assert_eq!(other, &alone);
        // A frame of an older gpuws.
        let text = serde_json::to_string(&frame).unwrap();
        let old: Frame = serde_json::from_str(&text.replace("\"merged_count\":300,", "")).unwrap();
        assert_eq!(old.leases.unwrap()[0].count(), 1);
    }
}
