//! Entries that no honest program would write.

use super::attack::Attacker;
use super::layout::{CONTESTED, DEVICES, device};
use gpu_core::{
    Bytes, Claim, DeviceUuid, EntryKind, LeaseEntry, LeaseId, LeaseStore, Pid, ProcessKey, Share,
    Timestamp,
};
use serde_json::{Value, json};

/// Returns some contested and nonexistent devices.
fn devices(attacker: &mut Attacker) -> Vec<DeviceUuid> {
    let first = if attacker.greedy > 0 { 0 } else { CONTESTED };
    let mut devices: Vec<DeviceUuid> =
        (first..DEVICES).filter(|_| attacker.chance.one_in(2)).map(device).collect();
    if devices.is_empty() {
        devices.push(device(DEVICES - 1));
    }
    if attacker.chance.one_in(8) {
        let strange = ["GPU-99", "MIG-GPU-0/1/0", "GPU-0,GPU-1", "all", "../GPU-0", "gpu-0"];
        devices.push(DeviceUuid((*attacker.chance.of(&strange)).to_owned()));
        devices.push(devices[0].clone());
    }
    devices
}

fn claim(attacker: &mut Attacker, devices: &[DeviceUuid]) -> Claim {
    let mut claim = Claim::whole(*attacker.chance.of(&[0, 1, 1, 2, 3, u32::MAX]));
    // Without named devices it would be a claim for any device, which excludes all of them in turn.
    claim.among = devices.to_vec();
    let shares = [0, 1, 1 << 30, 80 << 30, u64::MAX];
    if attacker.chance.one_in(2) {
        claim.share = Share::Memory(Bytes(*attacker.chance.of(&shares)));
    }
    if attacker.chance.one_in(8) {
        claim.except = devices.to_vec();
    }
    if attacker.chance.one_in(8) {
        claim.required = devices.to_vec();
    }
    claim
}

/// Returns an entry with arbitrary content.
pub(crate) fn entry(attacker: &mut Attacker, kind: EntryKind) -> LeaseEntry {
    let devices = devices(attacker);
    let claim = claim(attacker, &devices);
    let now = attacker.locks.ticket().unwrap_or(0);
    let known = (!attacker.known.is_empty()).then(|| attacker.chance.of(&attacker.known).clone());
    let known_ticket = known.as_ref().map_or(0, |known| known.ticket);
    let ticket = *attacker.chance.of(&[0, 1, now, now, known_ticket, known_ticket, u64::MAX]);
    let within = match &known {
        Some(known) if attacker.chance.one_in(3) => known.nested(),
        _ => Vec::new(),
    };
    let own = ProcessKey { pid: Pid(std::process::id()), start: None };
    let root = known.as_ref().filter(|_| attacker.chance.one_in(2)).map_or(own, |known| known.root);
    let id = LeaseId::parse(&attacker.id()).expect("ids are made as the library makes them");
    LeaseEntry {
        id: if attacker.chance.one_in(3) { known.map_or(id, |known| known.id) } else { id },
        ticket,
        owner: *attacker.chance.of(&attacker.victims),
        root,
        within,
        claim,
        devices: if kind == EntryKind::Waiter { Vec::new() } else { devices },
        parts_of: Vec::new(),
        merged: None,
        command: "\u{1b}[2J attacker".to_owned(),
        since: Timestamp(*attacker.chance.of(&[0, 1, u64::MAX])),
    }
}

/// Returns the text of a file that no honest program would write, and a description.
pub(crate) fn text(attacker: &mut Attacker, id: &str) -> (&'static str, Vec<u8>) {
    let mut entry = entry(attacker, EntryKind::Lease);
    entry.id = LeaseId::parse(id).unwrap_or(entry.id);
    let mut value = serde_json::to_value(&entry).unwrap_or_default();
    value["schema"] = json!(1);
    let mut set = |key: &str, to: Value| {
        value[key] = to;
        value.to_string().into_bytes()
    };
    match attacker.chance.below(16) {
        0 => ("future", set("schema", json!(2))),
        1 => ("far future", set("schema", json!(u32::MAX))),
        2 => ("no schema", set("schema", json!(-1))),
        3 => {
            set("schema", json!(7));
            ("future claim", set("claim", json!({ "colour": "red" })))
        }
        4 => {
            set("schema", json!(7));
            ("future within", set("within", json!([[["x"]]])))
        }
        5 => ("control characters", set("devices", json!(["GPU-6\u{1b}[2J\n"]))),
        6 => ("no devices", set("devices", json!([]))),
        7 => {
            let count = *attacker.chance.of(&[2, 500, 5000]);
            ("repeated devices", set("devices", json!(vec!["GPU-7"; count])))
        }
        8 => ("deep", b"[".repeat(60_000)),
        9 => ("binary", vec![0xff; 300]),
        10 => ("empty", Vec::new()),
        11 => ("other id", set("id", json!("another"))),
        12 => ("no id", set("id", json!("../../x"))),
        13 => {
            let mut text = value.to_string().into_bytes();
            text.truncate(text.len() / 2);
            ("half", text)
        }
        _ => ("plain", value.to_string().into_bytes()),
    }
}

/// Returns the text of a lease with the maximum number of names, nearly all of nonexistent devices.
pub(crate) fn large(attacker: &mut Attacker, id: &str, number: u64) -> Vec<u8> {
    let mut entry = entry(attacker, EntryKind::Lease);
    entry.id = LeaseId::parse(id).unwrap_or(entry.id);
    let name = |other| DeviceUuid(format!("GPU-{number}-{other}-{}", "x".repeat(80)));
    entry.devices.extend((0..60 - entry.devices.len() as u64).map(name));
    entry.claim = Claim::whole(1);
    entry.within = Vec::new();
    let mut value = serde_json::to_value(&entry).unwrap_or_default();
    value["schema"] = json!(1);
    value.to_string().into_bytes()
}

/// Returns the text of an honest entry under another ID: a forgery that would be accepted if
/// copying sufficed.
pub(crate) fn copy(attacker: &mut Attacker, id: &str) -> Option<Vec<u8>> {
    let known = attacker.known.get(attacker.chance.index(attacker.known.len().max(1)))?;
    let entry = LeaseEntry {
        id: LeaseId::parse(id)?,
        devices: if known.devices.is_empty() { vec![device(0)] } else { known.devices.clone() },
        ..known.clone()
    };
    let mut value = serde_json::to_value(&entry).ok()?;
    value["schema"] = json!(1);
    Some(value.to_string().into_bytes())
}
