//! Product names.

use crate::{Card, PciIds, Tree};
use gpu_core::{Absent, Reading};
use std::collections::BTreeMap;

/// The list of libdrm: names of AMD's products by device and revision.
const AMDGPU_IDS: &str = "usr/share/libdrm/amdgpu.ids";

/// The PCI ID repository, where distributions install it.
const PCI_IDS: [&str; 2] = ["usr/share/hwdata/pci.ids", "usr/share/misc/pci.ids"];

/// The repository has 1.5 MB.
const MAX_LIST: usize = 8 << 20;

/// The longest name in bytes; the longest of the repository has about 160.
const MAX_NAME: usize = 256;

/// AMD's vendor ID.
const AMD: u16 = 0x1002;

/// Returns the product name of each card: that of its own `product_name` (most boards have none),
/// else that of libdrm's list, else that of the PCI ID repository. The machine `lists` has the lists.
///
/// # Errors
/// Each name: `NotFound` if it is in no list that this machine has.
pub fn product_names(tree: &dyn Tree, lists: &dyn Tree, cards: &[Card]) -> Vec<Reading<String>> {
    let ids: Vec<_> = cards.iter().map(|card| card.ids).collect();
    let repository = PCI_IDS.iter().map(|path| list(lists, path)).find(|text| !text.is_empty());
    let listed = listed_names(&ids, &list(lists, AMDGPU_IDS), &repository.unwrap_or_default());
    let name = |(card, listed): (&Card, _)| {
        let own = tree.text(&format!("{}/product_name", card.dir));
        own.ok().filter(|name| name.len() <= MAX_NAME).map_or(listed, Ok)
    };
    cards.iter().zip(listed).map(name).collect()
}

/// Returns the product name of each device in the texts of `amdgpu.ids`, which is more precise, and
/// `pci.ids`.
///
/// # Errors
/// Each name: `NotFound` if it is in neither.
pub fn listed_names(ids: &[PciIds], amdgpu_ids: &str, pci_ids: &str) -> Vec<Reading<String>> {
    let revision = |ids: &PciIds| match ids.device {
        Ok((AMD, device)) => Some((device, ids.revision.ok()?)),
        _ => None,
    };
    let mut revisions: BTreeMap<_, _> =
        ids.iter().filter_map(revision).map(|key| (key, None)).collect();
    for line in amdgpu_ids.lines() {
        // `7550,⇥C0,⇥AMD Radeon RX 9070 XT`
        let mut columns = line.splitn(3, ',').map(str::trim);
        let columns = (columns.next(), columns.next(), columns.next());
        let (Some(device), Some(revision), Some(name)) = columns else { continue };
        let key = hex(device).zip(u8::from_str_radix(revision, 16).ok());
        keep(key.and_then(|key| revisions.get_mut(&key)), name);
    }

    let mut devices: BTreeMap<_, _> =
        ids.iter().filter_map(|ids| Some((ids.device.ok()?, None))).collect();
    let mut vendor = None;
    for line in pci_ids.lines() {
        // `1002  Advanced Micro Devices`, below it `⇥7550  Navi 48`, below that boards with two tabs.
        let (id, name) = line.split_once("  ").unwrap_or_default();
        match id.strip_prefix('\t') {
            Some(device) => {
                let key = vendor.zip(hex(device));
                keep(key.and_then(|key| devices.get_mut(&key)), name);
            }
            None if line.starts_with('#') || line.is_empty() => {}
            None => vendor = hex(id),
        }
    }

    let name = |ids: &PciIds| {
        let precise = revision(ids).and_then(|key| *revisions.get(&key)?);
        let name = precise.or_else(|| *devices.get(&ids.device.ok()?)?);
        name.map(str::to_owned).ok_or(Absent::NotFound)
    };
    ids.iter().map(name).collect()
}

/// Keeps the first name of a device.
fn keep<'a>(known: Option<&mut Option<&'a str>>, name: &'a str) {
    let name = name.trim();
    if let Some(known) = known
        && (1..=MAX_NAME).contains(&name.len())
    {
        known.get_or_insert(name);
    }
}

/// Parses the four digits of an ID.
fn hex(digits: &str) -> Option<u16> {
    u16::from_str_radix(digits, 16).ok().filter(|_| digits.len() == 4)
}

/// Reads a list; empty if there is none.
fn list(tree: &dyn Tree, path: &str) -> String {
    let content = tree.read(path, MAX_LIST).unwrap_or_default();
    String::from_utf8_lossy(&content).into_owned()
}
