//! The other values of a card.

use crate::{Card, CardDriver, Tree};
use gpu_core::{Absent, Bytes, MemoryInfo, Percent, Reading, plausible};

/// A PCI Express link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Speed of a lane, in megatransfers per second: 16,000 is PCI Express 4.0.
    pub megatransfers: u32,
    /// Number of lanes.
    pub lanes: u32,
}

/// The values of a card, each with the reason if there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Values {
    /// Runtime power management: `active`, `suspended`, … A suspended card sleeps; only the other
    /// values that can be read without waking it are known then.
    pub runtime_status: Reading<String>,
    /// PCI power state: `D0` to `D3cold`.
    pub power_state: Reading<String>,
    /// Device memory; in an APU the part of the host's memory that the BIOS gives to the GPU. It
    /// includes what the kernel and the firmware use. Of the whole chip, also if it is partitioned.
    pub vram: MemoryInfo,
    /// The part of [`vram`](Values::vram) that the CPU can address.
    pub visible_vram: MemoryInfo,
    /// Memory of the host that the GPU can use.
    pub gtt: MemoryInfo,
    /// Manufacturer of the memory; AMD writes `unknown` for some.
    pub vram_vendor: Reading<String>,
    /// Load of the graphics and compute engine, according to the firmware.
    pub busy: Reading<Percent>,
    /// Load of the memory controller. Not of APUs.
    pub memory_busy: Reading<Percent>,
    /// Load of the video engine. Only of some APUs.
    pub vcn_busy: Reading<Percent>,
    /// AMD's ID of the chip, which all its partitions share. KFD and ROCm have the same; Intel has
    /// none.
    pub unique_id: Reading<u64>,
    /// Serial number of the board.
    pub serial: Reading<String>,
    /// Version of the video BIOS.
    pub vbios: Reading<String>,
    /// The performance level: `auto`, `manual`, …
    pub performance_level: Reading<String>,
    /// The link in use. Not of Intel's cards: they have a bridge, and their files describe the link
    /// to it (2.5 GT/s × 1). Integrated ones have none.
    pub link: Reading<Link>,
    /// The fastest link that the card supports.
    pub max_link: Reading<Link>,
    /// Number of packets replayed on the link.
    pub replays: Reading<u64>,
    /// The NUMA node of the host that it is near to.
    pub numa_node: Reading<u32>,
    /// How the chip is partitioned: `SPX` (whole), `DPX`, `TPX`, `QPX` or `CPX`.
    pub compute_partition: Reading<String>,
    /// How the memory is partitioned: `NPS1` (whole) to `NPS8`.
    pub memory_partition: Reading<String>,
}

/// Reads the values of a card.
///
/// It reads no file that blocks (`pcie_bw`) or clears a counter (`xgmi_error`), and none that wakes a
/// sleeping card: such a value is `Asleep`. The driver keeps the amounts of memory, the IDs and the
/// state of power management itself. Newer kernels wake a card to read its link.
pub fn values(tree: &dyn Tree, card: &Card) -> Values {
    let dir = card.dir.as_str();
    let awake = card.awake(tree);
    let text = |file: &str| tree.text(&format!("{dir}/{file}"));
    let awake_text = |file: &str| awake.and_then(|()| text(file));
    let percent = |file: &str| {
        awake.and_then(|()| tree.number(&format!("{dir}/{file}"))).and_then(plausible::percent)
    };
    let has_own_link = matches!(card.driver, CardDriver::Amdgpu | CardDriver::Radeon);
    let link = |which: &str| {
        if !has_own_link {
            return Err(Absent::NotSupported);
        }
        let speed = awake_text(&format!("{which}_link_speed"))?;
        parse_link(&speed, &awake_text(&format!("{which}_link_width"))?)
    };
    let numa_node: Reading<i32> = tree.number(&format!("{dir}/numa_node"));
    Values {
        runtime_status: text("power/runtime_status"),
        power_state: text("power_state"),
        vram: memory(tree, dir, "vram"),
        visible_vram: memory(tree, dir, "vis_vram"),
        gtt: memory(tree, dir, "gtt"),
        vram_vendor: text("mem_info_vram_vendor"),
        busy: percent("gpu_busy_percent"),
        memory_busy: percent("mem_busy_percent"),
        vcn_busy: percent("vcn_busy_percent"),
        unique_id: text("unique_id").and_then(|id| unique_id(&id).ok_or(Absent::Implausible)),
        serial: text("serial_number"),
        vbios: text("vbios_version"),
        performance_level: awake_text("power_dpm_force_performance_level"),
        link: link("current"),
        max_link: link("max"),
        replays: awake.and_then(|()| tree.number(&format!("{dir}/pcie_replay_count"))),
        // −1: the machine has one node, or does not say.
        numa_node: numa_node.and_then(|node| u32::try_from(node).map_err(|_| Absent::NotSupported)),
        compute_partition: awake_text("current_compute_partition"),
        memory_partition: awake_text("current_memory_partition"),
    }
}

/// Returns the fastest link that the PCI device in a directory supports.
///
/// # Errors
/// `NotSupported` if it has no link.
pub(crate) fn fastest_link(tree: &dyn Tree, dir: &str) -> Reading<Link> {
    let text = |what: &str| tree.text(&format!("{dir}/max_link_{what}"));
    parse_link(&text("speed")?, &text("width")?)
}

/// Parses the 16 digits of an ID.
fn unique_id(digits: &str) -> Option<u64> {
    u64::from_str_radix(digits, 16).ok().filter(|_| digits.len() == 16)
}

/// Reads an amount of memory, which does not wake the card.
fn memory(tree: &dyn Tree, dir: &str, kind: &str) -> MemoryInfo {
    let amount = |which| tree.number(&format!("{dir}/mem_info_{kind}_{which}")).map(Bytes);
    let reported = MemoryInfo {
        total: amount("total"),
        used: amount("used"),
        reserved: Err(Absent::NotSupported),
    };
    plausible::memory_of(reported)
}

/// Parses `16.0 GT/s PCIe` and `16`; a device without a link has `Unknown` and `0`.
fn parse_link(speed: &str, lanes: &str) -> Reading<Link> {
    let lanes = lanes.parse().map_err(|_| Absent::Implausible)?;
    match speed.split_once(" GT/s") {
        Some((speed, _)) if lanes > 0 => Ok(Link { megatransfers: megatransfers(speed)?, lanes }),
        _ => Err(Absent::NotSupported),
    }
}

/// Parses the speed of a lane in gigatransfers per second, such as `2.5`.
pub(crate) fn megatransfers(gigatransfers: &str) -> Reading<u32> {
    let speed: f64 = gigatransfers.parse().map_err(|_| Absent::Implausible)?;
    // No range contains NaN. PCI Express 7.0 has 128.
    if (0.1..=1_000.0).contains(&speed) {
        Ok((speed * 1_000.0).round() as u32)
    } else {
        Err(Absent::Implausible)
    }
}
