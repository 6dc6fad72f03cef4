//! The clocks of a card.

use crate::Tree;
use crate::card::{Card, CardDriver, numbered};
use crate::hwmon::{Quantity, Sensors};
use crate::values::{Link, megatransfers};
use gpu_core::{Absent, Reading, plausible};

/// The clocks of amdgpu with levels: graphics, memory, fabric, system, video (two) and link. Each
/// card has some of them.
pub const DPM_CLOCKS: [&str; 7] = ["sclk", "mclk", "fclk", "socclk", "vclk", "dclk", "pcie"];

/// A level of a clock of amdgpu, as printed. Levels are not always in the order of their clocks: the
/// clock in use can be a level of its own, also with 0 MHz.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// Its number; `None` is deep sleep. Numbers need not start at 0.
    pub number: Option<u32>,
    /// The clock in MHz; of links only on newer cards.
    pub mhz: Reading<u32>,
    /// Speed and lanes of a level of `pcie`.
    pub link: Reading<Link>,
    /// Whether it is in use. Several levels can be, or none.
    pub is_current: bool,
}

/// Reads the levels of one of [`DPM_CLOCKS`].
///
/// # Errors
/// As [`Tree::text`](trait.Tree.html#method.text), `Asleep`, and `Implausible` if there is no level
/// in the file.
pub fn levels(tree: &dyn Tree, card: &Card, clock: &str) -> Reading<Vec<Level>> {
    card.awake(tree)?;
    let text = tree.text(&format!("{}/pp_dpm_{clock}", card.dir))?;
    let levels: Vec<_> = text.lines().filter_map(level).collect();
    if levels.is_empty() { Err(Absent::Implausible) } else { Ok(levels) }
}

/// Parses `2: 900Mhz *`, `S: 500Mhz` or `1: 8.0GT/s, x16 619Mhz *`; `None` if it is anything else.
fn level(line: &str) -> Option<Level> {
    let (number, values) = line.split_once(':')?;
    let number = if number == "S" { None } else { Some(number.trim().parse().ok()?) };
    let clock = values.trim().trim_end_matches('*');
    let is_current = clock.len() < values.trim().len();
    let (mut mhz, mut speed, mut lanes) = (Err(Absent::NotSupported), None, None);
    for word in clock.split_whitespace() {
        if let Some(digits) = word.strip_suffix("Mhz") {
            mhz = plausible::megahertz(digits.parse().ok()?);
        } else if let Some(digits) = word.strip_suffix("GT/s,") {
            speed = Some(megatransfers(digits).ok()?);
        } else {
            lanes = Some(word.strip_prefix('x')?.parse().ok()?);
        }
    }
    let link = speed.zip(lanes).map(|(megatransfers, lanes)| Link { megatransfers, lanes });
    let link = link.ok_or(Absent::NotSupported);
    (mhz.is_ok() || link.is_ok()).then_some(Level { number, mhz, link, is_current })
}

/// Returns a clock of an AMD card in MHz, `sclk` (graphics) or `mclk` (memory): that of its sensor,
/// else of its level in use. A graphics clock of 0 is real: the engine is off (GFXOFF).
///
/// # Errors
/// `NotSupported`, `Asleep` and other reasons, as of [`levels`]; `Implausible` if levels with
/// different clocks are in use.
pub fn current_clock(tree: &dyn Tree, card: &Card, sensors: &Sensors, clock: &str) -> Reading<u32> {
    // The only sensor of radeon is that of the graphics clock, and has no label.
    let labels: &[&str] = if clock == "sclk" { &["sclk", ""] } else { &[clock] };
    let sensor = sensors.labelled(Quantity::Frequency, labels);
    if let Ok(hertz) = sensor.and_then(|sensor| sensor.value("input")) {
        let mhz = u32::try_from(hertz / 1_000_000).map_err(|_| Absent::Implausible);
        return mhz.and_then(plausible::megahertz);
    }
    let levels = levels(tree, card, clock)?;
    let mut current = levels.iter().filter(|level| level.is_current).map(|level| level.mhz);
    let clock = current.next().unwrap_or(Err(Absent::NotSupported))?;
    if current.all(|other| other == Ok(clock)) { Ok(clock) } else { Err(Absent::Implausible) }
}

/// A graphics or media unit (GT) of an Intel GPU, with its own clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gt {
    /// The tile that it is in; 0 with i915.
    pub tile: u32,
    /// Its number.
    pub gt: u32,
    /// Its name, such as `gt0-rc` (graphics) or `gt1-mc` (media); only xe has it.
    pub name: Reading<String>,
    /// The frequencies in MHz by the driver's name; [`mhz`](Gt::mhz) returns one.
    pub frequencies: Vec<(&'static str, Reading<u32>)>,
    /// Time in the sleep state (RC6) since the driver was loaded, in milliseconds. The unit was busy
    /// for at most the rest.
    pub idle_ms: Reading<u64>,
    /// What reduces the clock, in the kernel's words, such as `pl1` or `thermal`; empty if nothing
    /// does.
    pub throttle: Reading<Vec<String>>,
}

impl Gt {
    /// Returns a frequency in MHz by its name, in either case: `act` (in use, 0 in the sleep state),
    /// `cur` (requested), `min` and `max` (the limits that are set), `rp0` and `rpn` (those of the
    /// hardware), `rpe` (efficient), and others.
    ///
    /// # Errors
    /// `NotSupported` if the driver has no such frequency, or the reason why it has no value.
    pub fn mhz(&self, name: &str) -> Reading<u32> {
        let found = self.frequencies.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map_or(Err(Absent::NotSupported), |(_, mhz)| *mhz)
    }
}

/// The frequencies of i915.
const I915: [&str; 8] = ["act", "cur", "min", "max", "boost", "RP0", "RP1", "RPn"];

/// Those of xe.
const XE: [&str; 8] = ["act", "cur", "min", "max", "rp0", "rpe", "rpa", "rpn"];

/// The most tiles of a GPU and units of a tile, by the layout of the perf events of xe (4 bits).
const MAX_UNITS: usize = 16;

/// Reads the graphics and media units of an Intel GPU.
///
/// # Errors
/// `NotSupported` if there is none, `Asleep`, and as [`Tree::names`].
pub fn gts(tree: &dyn Tree, card: &Card) -> Reading<Vec<Gt>> {
    card.awake(tree)?;
    let gts = match card.driver {
        CardDriver::I915 => i915(tree, card),
        CardDriver::Xe => xe(tree, card)?,
        CardDriver::Amdgpu | CardDriver::Radeon => Vec::new(),
    };
    if gts.is_empty() { Err(Absent::NotSupported) } else { Ok(gts) }
}

/// Reads the units of i915, or the whole GPU as one with kernels that do not show units.
fn i915(tree: &dyn Tree, card: &Card) -> Vec<Gt> {
    let node = card.dir.trim_end_matches("/device");
    let unit = |gt, dir: String, prefix: &str| {
        let mhz = |name| megahertz(tree, &format!("{dir}/{prefix}{name}_freq_mhz"));
        Gt {
            tile: 0,
            gt,
            name: Err(Absent::NotSupported),
            frequencies: I915.map(|name| (name, mhz(name))).into(),
            idle_ms: tree.number(&format!("{dir}/rc6_residency_ms")),
            throttle: throttle(tree, &dir, "throttle_reason_", "throttle_reason_status"),
        }
    };
    let dir = format!("{node}/gt");
    let gts = numbered(tree, &dir, "gt").unwrap_or_default();
    if gts.is_empty() {
        let whole = unit(0, node.to_owned(), "gt_");
        return if whole.mhz("cur").is_ok() { vec![whole] } else { Vec::new() };
    }
    let units = gts.into_iter().take(MAX_UNITS);
    units.map(|gt| unit(gt, format!("{dir}/gt{gt}"), "rps_")).collect()
}

/// Reads the units of xe.
fn xe(tree: &dyn Tree, card: &Card) -> Reading<Vec<Gt>> {
    let mut gts = Vec::new();
    for tile in numbered(tree, &card.dir, "tile")?.into_iter().take(MAX_UNITS) {
        let dir = format!("{}/tile{tile}", card.dir);
        for gt in numbered(tree, &dir, "gt")?.into_iter().take(MAX_UNITS) {
            let dir = format!("{dir}/gt{gt}");
            let mhz = |name| megahertz(tree, &format!("{dir}/freq0/{name}_freq"));
            gts.push(Gt {
                tile,
                gt,
                name: tree.text(&format!("{dir}/gtidle/name")),
                frequencies: XE.map(|name| (name, mhz(name))).into(),
                idle_ms: tree.number(&format!("{dir}/gtidle/idle_residency_ms")),
                throttle: throttle(tree, &format!("{dir}/freq0/throttle"), "reason_", "status"),
            });
        }
    }
    Ok(gts)
}

fn megahertz(tree: &dyn Tree, path: &str) -> Reading<u32> {
    tree.number(path).and_then(plausible::megahertz)
}

/// Reads what reduces a clock: the words in `reasons` (newer kernels of xe), else the names of the
/// files with 1.
fn throttle(tree: &dyn Tree, dir: &str, prefix: &str, status: &str) -> Reading<Vec<String>> {
    if let Ok(reasons) = tree.text(&format!("{dir}/reasons")) {
        let reasons = reasons.split_whitespace().filter(|reason| *reason != "none");
        return Ok(reasons.map(str::to_owned).collect());
    }
    if tree.number::<u8>(&format!("{dir}/{status}"))? == 0 {
        return Ok(Vec::new());
    }
    let names = tree.names(dir)?;
    let reasons = names.iter().filter_map(|name| {
        let reason = name.strip_prefix(prefix).filter(|_| name != status)?;
        let applies = tree.number(&format!("{dir}/{name}")) == Ok(1_u8);
        applies.then(|| reason.to_owned())
    });
    Ok(reasons.collect())
}
