//! `ZE_AFFINITY_MASK` and `ONEAPI_DEVICE_SELECTOR`: Intel's devices.
//!
//! The first applies to all programs on Level Zero and Intel's OpenCL, the second to SYCL and OpenMP
//! programs within what it leaves, with new numbers from 0. Both name a set: programs always see the
//! devices in the same order. The grammars are those of `execution_environment.cpp` of
//! compute-runtime and of intel/llvm's `EnvironmentVariables.md`.
//!
//! Programs count cards or tiles, by [`HIERARCHY`]. The tiles of a card are its
//! [partitions](DeviceState::partitions). A backend has to number Intel's devices in the order of
//! their PCI addresses. What is written counts cards, so it holds even if the tiles
//! of a card are not known.

mod selector;

use super::number::number;
use super::parts::{Part, parts, positions};
use super::{Form, GivenList, Grammar, Named, Resolved, Visibility, devices_of};
use crate::error::{Error, ErrorKind, Result};
use crate::id::DeviceUuid;
use crate::snapshot::DeviceState;

/// The variable of all Level Zero programs. An empty list is all devices.
pub const VISIBLE: &str = "ZE_AFFINITY_MASK";

/// The variable that sets whether programs count cards (`COMPOSITE`) or tiles (`FLAT`, the default,
/// and `COMBINED`).
pub const HIERARCHY: &str = "ZE_FLAT_DEVICE_HIERARCHY";

/// Its value for cards.
const CARDS: &str = "COMPOSITE";

/// The variable that sets the order, and its value for that of PCI addresses. By default, GPUs
/// that are part of the processor come last.
const ORDER: (&str, &str) = ("ZE_ENABLE_PCI_ID_DEVICE_ORDER", "1");

/// The variable of SYCL programs. An empty text is all devices.
pub const SELECTOR: &str = "ONEAPI_DEVICE_SELECTOR";

/// The value of [`VISIBLE`] with which programs see no device: a number that none has.
const NONE: &str = "4294967295";

/// How programs on Level Zero see devices.
pub const LEVEL_ZERO: Visibility = Visibility {
    vendor: "intel",
    variable: VISIBLE,
    order: Some(ORDER),
    isolates_partitions: false,
};

/// The grammar of Intel's variables.
#[derive(Clone, Copy, Debug)]
pub struct LevelZero;

impl Grammar for LevelZero {
    fn visibility(&self) -> Visibility {
        LEVEL_ZERO
    }

    /// Counts tiles, the default.
    fn resolve(
        &self,
        value: &str,
        order: Option<&str>,
        devices: &[DeviceState],
    ) -> Result<Resolved> {
        let numbered = Numbered::new(devices, order, None)?;
        Ok(numbered.resolved(numbered.masked(value)))
    }

    /// Writes numbers in any form; those of cards, and `card.tile` for a tile. Programs see the
    /// devices in the order of their addresses.
    fn write(&self, keys: &[DeviceUuid], _: Form, devices: &[DeviceState]) -> Result<String> {
        positions(keys, &parts(devices))?;
        let entry = |key: &DeviceUuid| {
            devices.iter().enumerate().find_map(|(card, device)| {
                if device.id().has_key(key) {
                    return Some(card.to_string());
                }
                let mut tiles = device.partitions.iter().flatten();
                let tile = tiles.position(|tile| tile.uuid.as_ref() == Ok(key))?;
                Some(format!("{card}.{tile}"))
            })
        };
        let entries: Vec<String> = keys.iter().filter_map(entry).collect();
        Ok(if entries.is_empty() { NONE.to_owned() } else { entries.join(",") })
    }

    fn is_set(&self, variable: &dyn Fn(&str) -> Option<String>) -> bool {
        [VISIBLE, SELECTOR].into_iter().filter_map(variable).any(|value| !value.is_empty())
    }

    fn lists(
        &self,
        variable: &dyn Fn(&str) -> Option<String>,
        machine: &[DeviceState],
    ) -> Vec<GivenList> {
        let devices = devices_of(LEVEL_ZERO, machine);
        let set = |name| variable(name).filter(|value| !value.is_empty());
        let (mask, selector) = (set(VISIBLE), set(SELECTOR));
        let mut lists = Vec::new();
        if devices.is_empty() {
            return lists;
        }
        let (order, hierarchy) = (variable(ORDER.0), variable(HIERARCHY));
        let numbered = || Numbered::new(&devices, order.as_deref(), hierarchy.as_deref());
        let masked = |numbered: &Numbered<'_>| numbered.masked(mask.as_deref().unwrap_or_default());
        if let Some(value) = mask.clone() {
            let resolved = numbered().map(|numbered| numbered.resolved(masked(&numbered)));
            lists.push(GivenList { variable: VISIBLE, value, resolved });
        }
        if let Some(value) = selector {
            let resolved = numbered().and_then(|numbered| {
                let roots = numbered.roots(&masked(&numbered).tiles);
                Ok(numbered.resolved(selector::select(&value, &roots)?))
            });
            lists.push(GivenList { variable: SELECTOR, value, resolved });
        }
        lists
    }

    /// Keeps the backends and types of an inherited [`SELECTOR`], without its numbers.
    fn variables(
        &self,
        keys: &[DeviceUuid],
        form: Form,
        devices: &[DeviceState],
        inherited: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Vec<(&'static str, String)>> {
        if keys.is_empty() && devices.is_empty() {
            return Ok(Vec::new());
        }
        let mask = (VISIBLE, self.write(keys, form, devices)?);
        let fixed = [ORDER, (HIERARCHY, CARDS)].map(|(name, value)| (name, value.to_owned()));
        let selector = inherited(SELECTOR).filter(|value| !value.is_empty());
        let selector = selector.map(|value| (SELECTOR, selector::without_numbers(&value)));
        Ok([mask].into_iter().chain(fixed).chain(selector).collect())
    }
}

/// Tiles that a list names, by position, and the entry at which a program fails.
struct Choice {
    tiles: Vec<usize>,
    failed_at: Option<String>,
}

impl Choice {
    /// A program that fails sees nothing.
    fn failed(at: &str) -> Self {
        /// How much of an entry is kept.
        const LONGEST: usize = 96;
        Choice { tiles: Vec::new(), failed_at: Some(at.chars().take(LONGEST).collect()) }
    }
}

/// The devices as programs count them.
struct Numbered<'a> {
    /// The tiles of all cards; a card with one tile is a tile.
    parts: Vec<Part<'a>>,
    /// The cards in the order of programs, each with the positions of its tiles.
    cards: Vec<Vec<usize>>,
    /// Whether programs count cards.
    by_card: bool,
}

impl<'a> Numbered<'a> {
    /// Orders the devices as programs do, by the values of the variables for that.
    fn new(
        devices: &'a [DeviceState],
        order: Option<&str>,
        hierarchy: Option<&str>,
    ) -> Result<Self> {
        let parts = parts(devices);
        let mut tiles = 0..parts.len();
        let of = |device: &DeviceState| {
            let count = device.partitions.iter().flatten().count().max(1);
            tiles.by_ref().take(count).collect()
        };
        let mut cards: Vec<Vec<usize>> = devices.iter().map(of).collect();
        let by_address = order.and_then(number).is_some_and(|(number, _)| number != 0);
        if !by_address && cards.len() > 1 {
            let kind = |tiles: &Vec<usize>| {
                let sample = parts[*tiles.first()?].device.sample.as_ref().ok()?;
                Some(sample.source.kind.is_integrated())
            };
            if cards.iter().any(|card| kind(card).is_none()) {
                return Err(Error::new(ErrorKind::Invalid, format!("resolve {VISIBLE}"))
                    .with_source(format!(
                        "the order of the GPUs is unknown unless {}={} is set",
                        ORDER.0, ORDER.1
                    )));
            }
            cards.sort_by_key(kind);
        }
        Ok(Numbered { parts, cards, by_card: hierarchy == Some(CARDS) })
    }

    /// Returns what programs count as devices, each with its tiles, if they see these tiles.
    fn roots(&self, visible: &[usize]) -> Vec<Vec<usize>> {
        let tiles = |card: &Vec<usize>| -> Vec<usize> {
            card.iter().filter(|tile| visible.contains(tile)).copied().collect()
        };
        let cards = self.cards.iter().map(tiles).filter(|tiles| !tiles.is_empty());
        if self.by_card {
            cards.collect()
        } else {
            cards.flatten().map(|tile| vec![tile]).collect()
        }
    }

    /// Reads [`VISIBLE`]. A number that no device has names none. A program fails at a text that is
    /// no number.
    fn masked(&self, value: &str) -> Choice {
        let all: Vec<usize> = (0..self.parts.len()).collect();
        if value.is_empty() || value == "default" {
            return Choice { tiles: all, failed_at: None };
        }
        let roots = self.roots(&all);
        let mut tiles = Vec::new();
        for entry in value.split(',') {
            let mut numbers = entry.splitn(4, '.').map(|text| match text.trim_ascii_start() {
                // A negative number wraps to one that no device has.
                text if text.starts_with('-') => number(&text[1..]).map(|_| usize::MAX),
                text => number(text).map(|(number, _)| number),
            });
            let [root, tile, engine, more] = [(); 4].map(|()| numbers.next());
            let (Some(Some(root)), None) = (root, more) else { return Choice::failed(entry) };
            let root = roots.get(root).map_or(&[][..], Vec::as_slice);
            match (tile, engine) {
                (None, _) => tiles.extend(root),
                (Some(None), _) => return Choice::failed(entry),
                // Ignored where programs count tiles, and for a part of a tile by newer drivers.
                (Some(Some(tile)), None) if self.by_card => tiles.extend(root.get(tile)),
                _ => {}
            }
        }
        Choice { tiles, failed_at: None }
    }

    /// Returns the devices, in the order of programs: cards, or tiles where programs count these or
    /// see a part of a card.
    fn resolved(&self, choice: Choice) -> Resolved {
        let mut devices = Vec::new();
        for root in self.roots(&choice.tiles) {
            let Some(first) = root.first().map(|tile| &self.parts[*tile]) else { continue };
            let is_whole = self.by_card && self.cards.contains(&root);
            match Named::whole(first.device).filter(|_| is_whole) {
                Some(card) => devices.push(card),
                None => {
                    devices.extend(root.iter().filter_map(|tile| self.parts[*tile].named.clone()))
                }
            }
        }
        Resolved { devices, ended_at: choice.failed_at }
    }
}

#[cfg(test)]
mod tests;
