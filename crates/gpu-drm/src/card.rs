//! The GPUs of a machine and their DRM nodes.

use crate::Tree;
use gpu_core::{Absent, PciBusId, Reading};
use std::collections::BTreeMap;

/// The directory of the DRM nodes.
const DRM: &str = "sys/class/drm";

/// The most cards, more than the kernel has minor numbers for (64, 128 from Linux 6.8 on).
const MAX_CARDS: usize = 256;

/// A GPU of AMD or Intel.
///
/// The kernel assigns the numbers of its nodes separately, and they change from boot to boot: only
/// the PCI address is stable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Card {
    /// N of its node `/dev/dri/cardN`, which is also the minor number (major 226).
    pub card: Option<u32>,
    /// N of its node `/dev/dri/renderDN`, which is also the minor number (major 226). That of a
    /// partitioned chip is its partition 0.
    pub render: Option<u32>,
    /// The directory of the PCI device, such as `sys/class/drm/card0/device`.
    pub dir: String,
    /// The PCI address.
    pub bus: PciBusId,
    /// The driver. The chip does not determine it: i915 and xe take the same ones.
    pub driver: CardDriver,
    /// What identifies the product.
    pub ids: PciIds,
}

/// A kernel driver. This crate reads its files. It does not read those of nouveau and NVIDIA's driver,
/// because NVML has the values of NVIDIA's GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CardDriver {
    /// AMD.
    Amdgpu,
    /// AMD, old chips.
    Radeon,
    /// Intel.
    I915,
    /// Intel, new chips.
    Xe,
}

impl CardDriver {
    /// Every driver.
    pub const ALL: [CardDriver; 4] =
        [CardDriver::Amdgpu, CardDriver::Radeon, CardDriver::I915, CardDriver::Xe];

    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            CardDriver::Amdgpu => "amdgpu",
            CardDriver::Radeon => "radeon",
            CardDriver::I915 => "i915",
            CardDriver::Xe => "xe",
        }
    }
}

/// The PCI IDs of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PciIds {
    /// Vendor, such as 0x1002, and device.
    pub device: Reading<(u16, u16)>,
    /// Vendor and device of the board.
    pub subsystem: Reading<(u16, u16)>,
    /// Revision.
    pub revision: Reading<u8>,
    /// Class, subclass and programming interface, such as 0x030000.
    pub class: Reading<u32>,
}

impl Card {
    /// Returns `Ok` unless the card sleeps. Most values must not be read then, because the read
    /// wakes the card, or fails from Linux 6.15.
    ///
    /// # Errors
    /// `Asleep`.
    pub fn awake(&self, tree: &dyn Tree) -> Reading<()> {
        let status = tree.text(&format!("{}/power/runtime_status", self.dir));
        // Without the file, the kernel does not suspend devices.
        match status.as_deref() {
            Ok("suspended" | "suspending") => Err(Absent::Asleep),
            _ => Ok(()),
        }
    }
}

/// Returns the GPUs of AMD and Intel, in the order of their PCI addresses.
///
/// Connectors (`card1-DP-1`), the nodes of partitions, and devices of other drivers are left out. So
/// are nodes that describe no PCI device.
///
/// # Errors
/// As [`Tree::names`]: `NotSupported` on a machine without DRM; `Implausible` for more than 256 cards.
pub fn cards(tree: &dyn Tree) -> Reading<Vec<Card>> {
    let mut cards = BTreeMap::new();
    for (prefix, is_render) in [("card", false), ("renderD", true)] {
        for number in numbered(tree, DRM, prefix)? {
            let dir = format!("{DRM}/{prefix}{number}/device");
            let Some(found) = card_in(tree, dir) else { continue };
            if cards.len() >= MAX_CARDS && !cards.contains_key(&found.bus) {
                return Err(Absent::Implausible);
            }
            let card = cards.entry(found.bus).or_insert(found);
            let node = if is_render { &mut card.render } else { &mut card.card };
            *node = Some(number);
        }
    }
    Ok(cards.into_values().collect())
}

/// Returns the minor numbers of the render nodes of AMD's partitions, except partition 0, which has
/// the node of the [`Card`].
///
/// Their devices are platform devices, `amdgpu_xcp_K` or `amdgpu_xcp.K`. sysfs does not show the
/// chip of such a node; KFD does, by the render minor.
///
/// # Errors
/// As [`Tree::names`]: `NotSupported` on a machine without DRM.
pub fn partition_nodes(tree: &dyn Tree) -> Reading<Vec<u32>> {
    let is_partition = |minor: &u32| {
        let uevent = tree.text(&format!("{DRM}/renderD{minor}/device/uevent"));
        let alias = uevent.as_ref().map(|uevent| property(uevent, "MODALIAS"));
        matches!(alias, Ok(Ok(alias)) if alias.starts_with("platform:amdgpu_xcp"))
    };
    Ok(numbered(tree, DRM, "renderD")?.into_iter().filter(is_partition).collect())
}

/// Reads the PCI device in a directory; `None` if it is none of ours.
fn card_in(tree: &dyn Tree, dir: String) -> Option<Card> {
    let uevent = tree.text(&format!("{dir}/uevent")).unwrap_or_default();
    let known = |key| property(&uevent, key).map(str::to_owned);
    let bus = known("PCI_SLOT_NAME").or_else(|_| tree.target(&dir)).ok()?.parse().ok()?;
    let driver = known("DRIVER").or_else(|_| tree.target(&format!("{dir}/driver"))).ok()?;
    let driver = CardDriver::ALL.into_iter().find(|known| known.name() == driver)?;
    let ids = PciIds {
        device: property(&uevent, "PCI_ID").and_then(pair),
        subsystem: property(&uevent, "PCI_SUBSYS_ID").and_then(pair),
        revision: tree.number(&format!("{dir}/revision")),
        class: property(&uevent, "PCI_CLASS")
            .and_then(|class| u32::from_str_radix(class, 16).map_err(|_| Absent::Implausible)),
    };
    Some(Card { card: None, render: None, dir, bus, driver, ids })
}

/// Returns a value from the text of a `uevent` file. Its lines are `KEY=VALUE`.
fn property<'a>(uevent: &'a str, key: &str) -> Reading<&'a str> {
    let value = |line: &'a str| line.strip_prefix(key)?.strip_prefix('=');
    uevent.lines().find_map(value).ok_or(Absent::NotSupported)
}

/// Parses `1002:687F`.
fn pair(text: &str) -> Reading<(u16, u16)> {
    let parse = |hex| u16::from_str_radix(hex, 16).ok();
    let pair = text.split_once(':').and_then(|(a, b)| Some((parse(a)?, parse(b)?)));
    pair.ok_or(Absent::Implausible)
}

/// Returns N of each name `PREFIX` + N in a directory, in ascending order.
///
/// # Errors
/// As [`Tree::names`].
pub(crate) fn numbered(tree: &dyn Tree, dir: &str, prefix: &str) -> Reading<Vec<u32>> {
    let number = |name: String| name.strip_prefix(prefix)?.parse().ok();
    let mut numbers: Vec<_> = tree.names(dir)?.into_iter().filter_map(number).collect();
    numbers.sort_unstable();
    // The kernel does not write `+1` or `01`.
    numbers.dedup();
    Ok(numbers)
}
