//! `ONEAPI_DEVICE_SELECTOR`: backends and devices, accepted and then discarded.

use super::{Choice, SELECTOR};
use crate::error::{Error, ErrorKind, Result};

/// The backends; a program fails at any other.
const BACKENDS: [&str; 8] =
    ["*", LEVEL_ZERO, OPENCL, "cuda", "hip", "native_cpu", "esimd_emulator", "offload"];
/// The backends through which programs see Intel's GPUs.
const LEVEL_ZERO: &str = "level_zero";
const OPENCL: &str = "opencl";

/// The devices of a backend that a filter accepts or discards.
struct Term<'a> {
    is_discard: bool,
    backend: &'a str,
    devices: Devices,
}

enum Devices {
    /// GPUs: all of them, or one; all tiles, or one.
    Gpus { root: Option<usize>, tile: Option<usize> },
    /// Those of another type.
    Others,
}

/// Returns the tiles that a SYCL program sees of these devices, each a list of tiles.
///
/// # Errors
/// `Invalid` for a number of an OpenCL device, because OpenCL also counts CPUs.
pub(super) fn select(value: &str, roots: &[Vec<usize>]) -> Result<Choice> {
    let value = value.to_ascii_lowercase();
    let mut terms: Vec<Term<'_>> = Vec::new();
    let (mut accepts, mut discards) = (false, false);
    for filter in value.split(';').filter(|filter| !filter.is_empty()) {
        let is_discard = filter.starts_with('!');
        // A program fails at a filter that accepts after one that discards.
        let Some(parsed) = parse(filter).filter(|_| is_discard || !discards) else {
            return Ok(Choice::failed(filter));
        };
        (accepts, discards) = (accepts || !is_discard, discards || is_discard);
        terms.extend(parsed);
    }
    let mut tiles: Vec<usize> = Vec::new();
    for backend in [LEVEL_ZERO, OPENCL] {
        let mut seen = if accepts { Vec::new() } else { roots.concat() };
        for term in terms.iter().filter(|term| ["*", backend].contains(&term.backend)) {
            let named = match term.devices {
                Devices::Others => continue,
                Devices::Gpus { root: None, .. } => roots.concat(),
                Devices::Gpus { root: Some(_), .. } if backend == OPENCL => {
                    if term.backend == OPENCL {
                        return Err(Error::new(ErrorKind::Invalid, format!("resolve {SELECTOR}"))
                            .with_source("the numbers of OpenCL's devices are unknown"));
                    }
                    // Any of them may be that one.
                    if term.is_discard { roots.concat() } else { continue }
                }
                Devices::Gpus { root: Some(root), tile } => {
                    let root = roots.get(root).map_or(&[][..], Vec::as_slice);
                    tile.map_or(root, |tile| root.get(tile..=tile).unwrap_or_default()).to_vec()
                }
            };
            if term.is_discard {
                seen.retain(|tile| !named.contains(tile));
            } else {
                seen.extend(named);
            }
        }
        tiles.extend(seen);
    }
    Ok(Choice { tiles, failed_at: None })
}

/// Parses `backend:device,device` or the same after `!`. `None` if a program fails at it.
fn parse(filter: &str) -> Option<Vec<Term<'_>>> {
    let (is_discard, term) = match filter.strip_prefix('!') {
        Some(term) => (true, term),
        None => (false, filter),
    };
    let (backend, list) = term.split_once(':').filter(|(backend, _)| BACKENDS.contains(backend))?;
    let entries = list.split(',').filter(|entry| !entry.is_empty());
    entries.map(|entry| Some(Term { is_discard, backend, devices: devices(entry)? })).collect()
}

/// Parses `*`, a type, `N`, `N.M`, `N.*`, `*.*` or one of these with a third level.
fn devices(entry: &str) -> Option<Devices> {
    /// `*` or a number; a number within `*` is not permitted.
    fn level(text: &str, within_all: bool) -> Option<Option<usize>> {
        let number = || text.parse().ok().filter(|_| !within_all).map(Some);
        if text == "*" { Some(None) } else { number() }
    }
    let mut levels = entry.splitn(4, '.');
    let [root, tile, engine, more] = [(); 4].map(|()| levels.next());
    match (root?, tile) {
        ("gpu", None) => return Some(Devices::Gpus { root: None, tile: None }),
        ("cpu" | "fpga" | "acc", None) => return Some(Devices::Others),
        _ => {}
    }
    let root = level(root?, false)?;
    let tile = tile.map_or(Some(None), |tile| level(tile, root.is_none()))?;
    engine.map_or(Some(None), |engine| level(engine, tile.is_none()))?;
    more.is_none().then_some(Devices::Gpus { root, tile })
}

/// Replaces numbers by `*`, for a program that sees other devices than before; removes the filters
/// that discard devices by number.
pub(super) fn without_numbers(value: &str) -> String {
    let has_number =
        |list: &str| list.split(',').any(|entry| entry.starts_with(|c: char| c.is_ascii_digit()));
    let mut filters = Vec::new();
    for filter in value.split(';').filter(|filter| !filter.is_empty()) {
        match filter.split_once(':') {
            Some((backend, list)) if has_number(list) => {
                filters.extend((!backend.starts_with('!')).then(|| format!("{backend}:*")));
            }
            _ => filters.push(filter.to_owned()),
        }
    }
    if filters.is_empty() { "*:*".to_owned() } else { filters.join(";") }
}
