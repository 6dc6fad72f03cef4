//! One client of a DRM driver, from the text of `/proc/PID/fdinfo/FD`.
//!
//! The keys are those of the kernel's `Documentation/gpu/drm-usage-stats.rst`. amdgpu of Linux 5.14
//! to 5.18 prints `vram mem:` instead; its percentages are not read, for their window is unknown.

use gpu_core::{Absent, Bytes, DeviceProcessKind, PciBusId, Percent, Reading, plausible};
use std::collections::BTreeMap;
use std::time::Duration;

/// The most regions, and the most engines, that are read: amdgpu has nine of each.
const MAX_NAMED: usize = 16;

/// The longest name of a driver, a region or an engine, in bytes.
const MAX_NAME: usize = 32;

/// A client of a DRM driver: what a program gets when it opens a device file. Copies of the
/// descriptor, in this or another process, are the same client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// The kernel driver, such as `amdgpu`, `i915` or `xe`.
    pub driver: Reading<String>,
    /// The PCI address of the device; absent for other devices.
    pub bus: Reading<PciBusId>,
    /// The number of the client, unique on its device; absent before Linux 5.19.
    pub id: Reading<u64>,
    /// The memory of the client by region, such as `vram`, `vram0` or `local0`; at most 16.
    pub regions: BTreeMap<String, Region>,
    /// The engines by name, such as `gfx`, `render` or `rcs`; at most 16. Without engines, the use
    /// is unknown: i915 with GuC submission prints none before Linux 6.5, and compute through user
    /// queues (ROCm) moves no counter of amdgpu.
    pub engines: BTreeMap<String, Engine>,
}

/// The memory of a client in one region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// All that the client has requested, even if it is not in the region.
    pub total: Reading<Bytes>,
    /// The part of `total` in buffers with more than one handle. Each of their clients reports them
    /// in full.
    pub shared: Reading<Bytes>,
    /// What is in the region.
    pub resident: Reading<Bytes>,
    /// The part that the driver may discard.
    pub purgeable: Reading<Bytes>,
}

/// What a region consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RegionKind {
    /// Memory of the device.
    Vram,
    /// Memory of the host that the device has mapped.
    Gtt,
    /// Memory of the host.
    System,
    /// Anything else, such as `stolen` or `doorbell`.
    Other,
}

/// How long a client has used the engines with one name. The counters only have a meaning as the
/// difference of two readings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Engine {
    /// The time of use, in nanoseconds.
    pub nanos: Reading<u64>,
    /// The cycles of use.
    pub cycles: Reading<u64>,
    /// The cycles that have passed on the device.
    pub total_cycles: Reading<u64>,
    /// How many engines have this name; 1 if the kernel does not print it.
    pub capacity: Reading<u64>,
}

/// The memory that clients use on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientMemory {
    /// What is resident.
    pub resident: Reading<Bytes>,
    /// The part that no other client has: at least `resident` − `shared`. The often used `total` −
    /// `shared` includes memory that is not resident.
    pub private: Reading<Bytes>,
}

const NO_BYTES: Reading<Bytes> = Err(Absent::NotSupported);
const NO_COUNT: Reading<u64> = Err(Absent::NotSupported);
const NO_REGION: Region =
    Region { total: NO_BYTES, shared: NO_BYTES, resident: NO_BYTES, purgeable: NO_BYTES };
const NO_ENGINE: Engine =
    Engine { nanos: NO_COUNT, cycles: NO_COUNT, total_cycles: NO_COUNT, capacity: Ok(1) };

type Counter = fn(&mut Engine) -> &mut Reading<u64>;
type Amount = fn(&mut Region) -> &mut Reading<Bytes>;

/// The counters of engines with their units. A prefix comes after the longer ones that start with
/// it.
const COUNTERS: [(&str, &str, Counter); 4] = [
    ("drm-engine-capacity-", "", |engine| &mut engine.capacity),
    ("drm-engine-", "ns", |engine| &mut engine.nanos),
    ("drm-total-cycles-", "", |engine| &mut engine.total_cycles),
    ("drm-cycles-", "", |engine| &mut engine.cycles),
];

/// The amounts of memory. `drm-memory-` is the old name of `drm-resident-`.
const AMOUNTS: [(&str, Amount); 5] = [
    ("drm-total-", |region| &mut region.total),
    ("drm-shared-", |region| &mut region.shared),
    ("drm-resident-", |region| &mut region.resident),
    ("drm-memory-", |region| &mut region.resident),
    ("drm-purgeable-", |region| &mut region.purgeable),
];

/// Keys that only amdgpu has, and their meaning: those of Linux 5.14 to 5.18, and what it has
/// requested, which is the total (`amdgpu_fdinfo.c`).
const AMDGPU_KEYS: [(&str, &str); 5] = [
    ("vram mem", "drm-memory-vram"),
    ("gtt mem", "drm-memory-gtt"),
    ("cpu mem", "drm-memory-cpu"),
    ("amd-requested-vram", "drm-total-vram"),
    ("amd-requested-gtt", "drm-total-gtt"),
];

impl Client {
    /// Reads the text of one descriptor, in time linear in its length; `None` if the descriptor is
    /// not a DRM client. A number that is malformed or impossible is `Implausible`.
    ///
    /// A program chooses `drm-client-name`, which the kernel prints after the identity and before
    /// the numbers. So the first line with an identity counts, and the last one with a number.
    pub fn parse(text: &[u8]) -> Option<Client> {
        let mut client = Client {
            driver: Err(Absent::NotSupported),
            bus: Err(Absent::NotSupported),
            id: NO_COUNT,
            regions: BTreeMap::new(),
            engines: BTreeMap::new(),
        };
        for line in text.split(|byte| *byte == b'\n') {
            let line = str::from_utf8(line).ok().and_then(|line| line.split_once(':'));
            if let Some((key, value)) = line {
                client.read(key, value.trim());
            }
        }
        let empty = client.regions.is_empty() && client.engines.is_empty();
        (!empty || client.driver.is_ok() || client.id.is_ok()).then_some(client)
    }

    fn read(&mut self, key: &str, value: &str) {
        let amdgpu = AMDGPU_KEYS.iter().find(|(own, _)| *own == key);
        if amdgpu.is_some() {
            keep_first(&mut self.driver, Ok("amdgpu".to_owned()));
        }
        let key = amdgpu.map_or(key, |(_, key)| key);
        match key {
            "drm-driver" if is_name(value) => keep_first(&mut self.driver, Ok(value.to_owned())),
            "drm-pdev" | "pdev" => {
                keep_first(&mut self.bus, value.parse().map_err(|_| Absent::Implausible));
            }
            "drm-client-id" => keep_first(&mut self.id, count(value, "")),
            _ => self.read_named(key, value),
        }
    }

    fn read_named(&mut self, key: &str, value: &str) {
        for (prefix, unit, counter) in COUNTERS {
            if let Some(name) = key.strip_prefix(prefix) {
                let engine = entry(&mut self.engines, name, NO_ENGINE);
                return engine.into_iter().for_each(|engine| *counter(engine) = count(value, unit));
            }
        }
        for (prefix, amount) in AMOUNTS {
            if let Some(name) = key.strip_prefix(prefix) {
                let region = entry(&mut self.regions, name, NO_REGION);
                return region.into_iter().for_each(|region| *amount(region) = bytes(value));
            }
        }
    }

    /// Returns whether it is a client of a GPU of AMD or Intel, and not of another accelerator such
    /// as an NPU (`amdxdna_accel_driver`).
    pub fn is_gpu(&self) -> bool {
        self.driver.as_deref().is_ok_and(|driver| matches!(driver, "amdgpu" | "i915" | "xe"))
    }

    /// Returns the memory of the client on its device. A device that is integrated into the
    /// processor uses memory of the host: amdgpu then counts `vram` and `gtt` alike, i915 and xe
    /// `system` and `gtt`. Otherwise only regions in the memory of the device count.
    pub fn memory(&self, integrated: bool) -> ClientMemory {
        let kinds: &[RegionKind] = match (self.driver.as_deref(), integrated) {
            (Ok("amdgpu"), true) => &[RegionKind::Vram, RegionKind::Gtt],
            (Ok("i915" | "xe"), true) => &[RegionKind::System, RegionKind::Gtt],
            (Ok("amdgpu" | "i915" | "xe"), false) => &[RegionKind::Vram],
            _ => &[],
        };
        let counted = self.regions.iter().filter(|(name, _)| kinds.contains(&region_kind(name)));
        let counted: Vec<&Region> = counted.map(|(_, region)| region).collect();
        if counted.is_empty() {
            return ClientMemory { resident: NO_BYTES, private: NO_BYTES };
        }
        let private = |region: &&Region| Ok(region.resident?.saturating_sub(region.shared?));
        ClientMemory {
            resident: counted.iter().map(|region| region.resident).sum(),
            private: counted.iter().map(private).sum(),
        }
    }

    /// Returns how it has used its device so far; `computes`: its process uses KFD, which moves no
    /// counter of amdgpu.
    pub(crate) fn kind(&self, computes: bool) -> DeviceProcessKind {
        let has_used = |names: &[&str]| {
            let used = |engine: &Engine| engine.nanos.or(engine.cycles).is_ok_and(|used| used > 0);
            self.engines.iter().any(|(name, engine)| names.contains(&name.as_str()) && used(engine))
        };
        match (computes || has_used(&["compute", "ccs"]), has_used(&["gfx", "render", "rcs"])) {
            (true, true) => DeviceProcessKind::ComputeAndGraphics,
            (true, false) => DeviceProcessKind::Compute,
            (false, true) => DeviceProcessKind::Graphics,
            (false, false) => DeviceProcessKind::Unknown,
        }
    }

    /// Returns the share of each engine that the client has used since an `earlier` reading, if
    /// `elapsed` has passed between the two: of the cycles of the device if the driver counts them
    /// (xe), else of the time.
    ///
    /// # Errors
    /// `NotFound` if the readings do not certainly belong to the same client. For one engine, the
    /// reason why a counter is absent, or `NotRecorded` if no time has passed.
    pub fn usage_since(
        &self,
        earlier: &Client,
        elapsed: Duration,
    ) -> Reading<BTreeMap<&str, Reading<Percent>>> {
        if self.id.is_err() || (self.bus, self.id) != (earlier.bus, earlier.id) {
            return Err(Absent::NotFound);
        }
        // amdgpu prints only engines that have been used.
        let unused = Engine { nanos: Ok(0), ..NO_ENGINE };
        let unused = (self.driver.as_deref() == Ok("amdgpu")).then_some(&unused);
        let usage = self.engines.iter().map(|(name, engine)| {
            let before = earlier.engines.get(name).or(unused).ok_or(Absent::NotRecorded);
            (name.as_str(), before.and_then(|before| engine.share_since(before, elapsed)))
        });
        Ok(usage.collect())
    }

    /// Raises each counter to that of an earlier reading of the same client. A counter may step
    /// back for a while; until it has caught up, the larger value counts
    /// (drm-usage-stats.rst). Call it before the reading becomes the `earlier` one.
    pub fn catch_up(&mut self, earlier: &Client) {
        let raise = |later: &mut Reading<u64>, earlier: Reading<u64>| {
            *later = later.map(|count| count.max(earlier.unwrap_or(0)));
        };
        for (name, engine) in &mut self.engines {
            if let Some(before) = earlier.engines.get(name) {
                raise(&mut engine.nanos, before.nanos);
                raise(&mut engine.cycles, before.cycles);
            }
        }
    }
}

impl Engine {
    fn share_since(&self, earlier: &Engine, elapsed: Duration) -> Reading<Percent> {
        let grown = |later: Reading<u64>, earlier: Reading<u64>| {
            Ok::<u128, Absent>(u128::from(later?.saturating_sub(earlier?)))
        };
        let (used, passed) = if self.total_cycles.is_ok() {
            let passed = grown(self.total_cycles, earlier.total_cycles)?;
            (grown(self.cycles, earlier.cycles)?, passed)
        } else {
            (grown(self.nanos, earlier.nanos)?, elapsed.as_nanos())
        };
        let available = passed.saturating_mul(u128::from(self.capacity?));
        let share = (used.min(available).saturating_mul(100)).checked_div(available);
        let share = share.and_then(|share| u64::try_from(share).ok());
        share.ok_or(Absent::NotRecorded).and_then(plausible::percent)
    }
}

/// Returns the kind of a region by its name.
pub fn region_kind(name: &str) -> RegionKind {
    match name.trim_end_matches(|c: char| c.is_ascii_digit()) {
        "vram" | "local" => RegionKind::Vram,
        "gtt" => RegionKind::Gtt,
        "system" | "cpu" => RegionKind::System,
        _ => RegionKind::Other,
    }
}

fn is_name(name: &str) -> bool {
    (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic())
}

fn entry<'a, T>(named: &'a mut BTreeMap<String, T>, name: &str, new: T) -> Option<&'a mut T> {
    let fits = named.len() < MAX_NAMED || named.contains_key(name);
    (fits && is_name(name)).then(|| named.entry(name.to_owned()).or_insert(new))
}

fn keep_first<T>(slot: &mut Reading<T>, value: Reading<T>) {
    if matches!(slot, Err(Absent::NotSupported)) {
        *slot = value;
    }
}

/// Splits a whole number and its unit.
fn number(text: &str) -> Reading<(u64, &str)> {
    let (digits, unit) = text.split_once(' ').unwrap_or((text, ""));
    digits.parse().map(|number| (number, unit)).map_err(|_| Absent::Implausible)
}

fn count(text: &str, unit: &str) -> Reading<u64> {
    let (count, found) = number(text)?;
    if found == unit { Ok(count) } else { Err(Absent::Implausible) }
}

/// Parses an amount of memory. The kernel divides it by 1024 as often as it can, and `kB` of
/// Linux 5.14 means 1024 bytes too.
fn bytes(text: &str) -> Reading<Bytes> {
    let (number, unit) = number(text)?;
    let factor = match unit {
        "" => 1,
        "KiB" | "kB" => 1 << 10,
        "MiB" => 1 << 20,
        _ => return Err(Absent::Implausible),
    };
    plausible::memory(Bytes(number.saturating_mul(factor)))
}
