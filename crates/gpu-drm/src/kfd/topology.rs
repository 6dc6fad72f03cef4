//! The nodes: CPUs, GPUs and their partitions.

use super::{KFD, MAX_NODES, numbers};
use crate::Tree;
use gpu_core::{Absent, Bytes, DeviceUuid, MemoryInfo, PciBusId, Reading, plausible};
use std::collections::BTreeMap;

/// The nodes of a machine: its CPUs and, for each GPU or partition of one, a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KfdTopology {
    /// Changes when a node appears or disappears.
    pub generation: Reading<u64>,
    /// The nodes, by number. ROCm numbers GPUs in this order.
    pub nodes: Vec<KfdNode>,
}

/// A node. A copied machine may have two with the same `gpu_id`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KfdNode {
    /// Its number, to which links refer.
    pub number: u32,
    /// Whether it is a GPU or a partition of one.
    pub is_gpu: bool,
    /// The ID in the file names of a process; 0 for a CPU.
    pub gpu_id: Reading<u32>,
    /// The PCI address of the whole GPU; absent for a CPU.
    pub bus: Reading<PciBusId>,
    /// The number of the partition within the GPU; 0 also if it is not partitioned.
    pub partition: Reading<u32>,
    /// The minor number of the render node.
    pub render_minor: Reading<u32>,
    /// PCI vendor ID.
    pub vendor: Reading<u16>,
    /// PCI device ID.
    pub device: Reading<u16>,
    /// The XGMI hive; absent if it is in none.
    pub hive: Reading<u64>,
    /// The serial number of the chip, which its partitions share; absent if the chip has none.
    pub unique_id: Reading<u64>,
    /// Number of compute dies (XCC).
    pub xcc_count: Reading<u32>,
    /// Number of SIMD units; absent for a CPU.
    pub simd_count: Reading<u32>,
    /// The instruction set, as major × 10000 + minor × 100 + stepping: 90402 is gfx942.
    pub gfx_target: Reading<u32>,
    /// Memory banks.
    pub banks: Reading<Vec<KfdBank>>,
    /// Links over XGMI, and to the CPU.
    pub io_links: Reading<Vec<KfdLink>>,
    /// PCIe links to other GPUs whose memory is completely addressable.
    pub p2p_links: Reading<Vec<KfdLink>>,
}

/// A memory bank of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KfdBank {
    /// 0: host memory; 1 and 2: memory of the GPU that the CPU can and cannot address. The bank of
    /// an APU is memory that it borrows from the host (GTT).
    pub heap: Reading<u32>,
    /// All of it.
    pub size: Reading<Bytes>,
    /// The used part, which only a few drivers print.
    pub used: Reading<Bytes>,
}

/// A link from a node to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KfdLink {
    /// [`PCIE`](Self::PCIE), [`XGMI`](Self::XGMI) or another number of `hsakmttypes.h`.
    pub kind: Reading<u32>,
    /// The number of the other node.
    pub to: Reading<u32>,
    /// The distance; only equal kinds compare.
    pub weight: Reading<u32>,
    /// The lowest bandwidth, in MB/s.
    pub min_bandwidth: Reading<u32>,
    /// The highest bandwidth, in MB/s.
    pub max_bandwidth: Reading<u32>,
}

impl KfdLink {
    /// The kind of a PCIe link.
    pub const PCIE: u32 = 2;
    /// The kind of an XGMI link.
    pub const XGMI: u32 = 11;
}

/// Returns the topology.
///
/// # Errors
/// `NotSupported` without KFD; `Implausible` for more than 512 nodes.
pub fn topology(tree: &dyn Tree) -> Reading<KfdTopology> {
    let numbers = numbers(tree, &format!("{KFD}/topology/nodes"), MAX_NODES)?;
    let nodes = numbers.into_iter().map(|number| node(tree, number)).collect();
    Ok(KfdTopology { generation: tree.number(&format!("{KFD}/topology/generation_id")), nodes })
}

fn node(tree: &dyn Tree, number: u32) -> KfdNode {
    let dir = format!("{KFD}/topology/nodes/{number}");
    let properties = Properties::read(tree, &dir);
    let gpu_id = tree.number(&format!("{dir}/gpu_id"));
    let simd_count = properties.nonzero("simd_count");
    let is_gpu = match gpu_id {
        Ok(id) => id != 0,
        // The device cgroup closes only GPUs.
        Err(Absent::NotPermitted) => true,
        Err(_) => simd_count.is_ok(),
    };
    let location: Reading<u32> = properties.nonzero("location_id");
    let links = |kind| {
        let links = each(tree, &format!("{dir}/{kind}"))?;
        let link = |(properties, _): (Properties, String)| KfdLink {
            kind: properties.value("type"),
            to: properties.value("node_to"),
            weight: properties.value("weight"),
            min_bandwidth: properties.nonzero("min_bandwidth"),
            max_bandwidth: properties.nonzero("max_bandwidth"),
        };
        Ok(links.into_iter().map(link).collect())
    };
    let bank = |(properties, dir): (Properties, String)| KfdBank {
        heap: properties.value("heap_type"),
        size: properties.value("size_in_bytes").map(Bytes).and_then(plausible::memory),
        used: tree.number(&format!("{dir}/used_memory")).map(Bytes).and_then(plausible::memory),
    };
    KfdNode {
        number,
        is_gpu,
        gpu_id,
        bus: location.and_then(|location| address(&properties, location)),
        partition: location.map(|location| (location >> 28) | (location & FUNCTION)),
        render_minor: properties.nonzero("drm_render_minor"),
        vendor: properties.nonzero("vendor_id"),
        device: properties.nonzero("device_id"),
        hive: properties.nonzero("hive_id"),
        unique_id: properties.nonzero("unique_id"),
        xcc_count: properties.nonzero("num_xcc"),
        simd_count,
        gfx_target: properties.nonzero("gfx_target_version"),
        banks: each(tree, &format!("{dir}/mem_banks"))
            .map(|banks| banks.into_iter().map(bank).collect()),
        io_links: links("io_links"),
        p2p_links: links("p2p_links"),
    }
}

/// The bits of `location_id` with the function. Kernels put the number of the partition there, or
/// in the highest four bits; the function of the GPU itself is 0.
const FUNCTION: u32 = 7;

/// Returns the address from `location_id`: bus, device and function, as in PCI.
fn address(properties: &Properties, location: u32) -> Reading<PciBusId> {
    let domain = match properties.value("domain") {
        // Kernels before 5.6 print none, and know one domain.
        Err(Absent::NotSupported) => 0,
        domain => domain?,
    };
    match u16::try_from(location & 0x0fff_ffff).map(u16::to_be_bytes) {
        Ok([bus, low]) => Ok(PciBusId { domain, bus, device: low >> 3, function: 0 }),
        Err(_) => Err(Absent::Implausible),
    }
}

impl KfdTopology {
    /// Returns the GPUs, in the order of their first nodes: each has the nodes of its partitions.
    pub fn chips(&self) -> Vec<Vec<&KfdNode>> {
        let mut chips: Vec<Vec<&KfdNode>> = Vec::new();
        for node in self.nodes.iter().filter(|node| node.is_gpu) {
            match chips.iter_mut().find(|chip| chip[0].is_same_chip(node)) {
                Some(chip) => chip.push(node),
                None => chips.push(vec![node]),
            }
        }
        chips
    }

    /// Returns the nodes of each XGMI hive, by the ID of the hive.
    pub fn hives(&self) -> BTreeMap<u64, Vec<&KfdNode>> {
        let mut hives: BTreeMap<u64, Vec<&KfdNode>> = BTreeMap::new();
        for (hive, node) in self.nodes.iter().filter_map(|node| Some((node.hive.ok()?, node))) {
            hives.entry(hive).or_default().push(node);
        }
        hives
    }
}

impl KfdNode {
    /// Returns whether both are partitions of one GPU.
    pub fn is_same_chip(&self, other: &KfdNode) -> bool {
        self.number == other.number || (self.bus.is_ok() && self.bus == other.bus)
    }

    /// Returns the UUID as ROCm prints it, which the partitions of a GPU share.
    pub fn uuid(&self) -> Reading<DeviceUuid> {
        self.unique_id.map(|id| DeviceUuid(format!("GPU-{id:016x}")))
    }

    /// Returns the memory of its banks, without host memory.
    pub fn memory(&self) -> MemoryInfo {
        let sum = |amount: fn(&KfdBank) -> Reading<Bytes>| {
            let banks = self.banks.as_ref().map_err(|reason| *reason)?;
            let amounts = banks.iter().filter(|bank| bank.heap != Ok(0)).map(amount);
            amounts.reduce(|sum, amount| Ok(sum? + amount?)).unwrap_or(Err(Absent::NotSupported))
        };
        plausible::memory_of(MemoryInfo {
            total: sum(|bank| bank.size),
            used: sum(|bank| bank.used),
            reserved: Err(Absent::NotSupported),
        })
    }

    /// Returns the number of XGMI hops to another node: 0 within a GPU. The weights are those of
    /// `kfd_crat.c`: 15 for each hop, or 13 within a partitioned GPU and 41 (13 + 15 + 13) between
    /// two.
    ///
    /// # Errors
    /// `NotFound` if no XGMI link connects them; `Implausible` for another weight.
    pub fn xgmi_hops(&self, to: &KfdNode) -> Reading<u32> {
        if self.is_same_chip(to) {
            return Ok(0);
        }
        let links = self.io_links.as_ref().map_err(|reason| *reason)?;
        let is_it = |link: &&KfdLink| link.kind == Ok(KfdLink::XGMI) && link.to == Ok(to.number);
        match links.iter().find(is_it).ok_or(Absent::NotFound)?.weight? {
            41 => Ok(1),
            weight if weight > 0 && weight % 15 == 0 => Ok(weight / 15),
            _ => Err(Absent::Implausible),
        }
    }
}

/// Returns each numbered directory in a directory, with its properties.
fn each(tree: &dyn Tree, dir: &str) -> Reading<Vec<(Properties, String)>> {
    let numbers = numbers(tree, dir, MAX_NODES)?;
    let dirs = numbers.into_iter().map(|number| format!("{dir}/{number}"));
    Ok(dirs.map(|dir| (Properties::read(tree, &dir), dir)).collect())
}

/// The text of a file `properties`: lines of a key and a number.
struct Properties(Reading<String>);

impl Properties {
    fn read(tree: &dyn Tree, dir: &str) -> Self {
        Properties(tree.text(&format!("{dir}/properties")))
    }

    /// Returns a number; `NotSupported` if the kernel does not print it.
    fn value<T: TryFrom<u64>>(&self, key: &str) -> Reading<T> {
        let text = self.0.as_ref().map_err(|reason| *reason)?;
        let mut values = text.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
        let value: Option<u64> = values.next().ok_or(Absent::NotSupported)?.parse().ok();
        value.and_then(|value| value.try_into().ok()).ok_or(Absent::Implausible)
    }

    /// Returns a number for which the kernel prints 0 if there is none.
    fn nonzero<T: TryFrom<u64> + PartialEq + Default>(&self, key: &str) -> Reading<T> {
        let value = self.value(key)?;
        if value == T::default() { Err(Absent::NotSupported) } else { Ok(value) }
    }
}
