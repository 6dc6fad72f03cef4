//! The errors that the memories of an AMD card report (RAS).

use crate::{Card, Tree};
use gpu_core::{Absent, ErrorsByPlace, MemoryErrors, MemoryHealth, Reading};

/// The ending of the files of blocks such as `umc` (device memory), `gfx` and `sdma`.
const COUNTS: &str = "_err_count";

/// Corrected and uncorrected errors since the driver was loaded.
type Counts = (u64, u64);

/// Reads the errors of each block. The driver asks the hardware for them.
///
/// # Errors
/// `NotSupported` for a card without RAS, `Asleep`; `Implausible` if a file is none of the driver's.
fn blocks(tree: &dyn Tree, card: &Card) -> Reading<Vec<(String, Counts)>> {
    card.awake(tree)?;
    let dir = format!("{}/ras", card.dir);
    let names = tree.names(&dir)?.into_iter().filter(|name| name.ends_with(COUNTS));
    let read = |name: String| {
        let text = tree.text(&format!("{dir}/{name}"))?;
        let block = name.trim_end_matches(COUNTS).to_owned();
        Ok((block, counts(&text).ok_or(Absent::Implausible)?))
    };
    let blocks: Vec<_> = names.map(read).collect::<Reading<_>>()?;
    if blocks.is_empty() { Err(Absent::NotSupported) } else { Ok(blocks) }
}

/// Parses `ue: 0` and `ce: 3`, each in a line; newer drivers print more.
fn counts(text: &str) -> Option<Counts> {
    let value = |key: &str| {
        text.lines().find_map(|line| line.trim().strip_prefix(key)?.trim().parse().ok())
    };
    Some((value("ce:")?, value("ue:")?))
}

/// Returns the errors of all blocks.
pub(crate) fn memory(tree: &dyn Tree, card: &Card) -> MemoryHealth {
    let blocks = blocks(tree, card);
    let sum = |of: fn(&Counts) -> u64| {
        let blocks = blocks.as_ref().map_err(|reason| *reason)?;
        Ok(blocks.iter().map(|(_, counts)| of(counts)).fold(0, u64::saturating_add))
    };
    MemoryHealth {
        corrected: sum(|counts| counts.0),
        uncorrected: sum(|counts| counts.1),
        ..MemoryHealth::default()
    }
}

/// Returns the errors of the device memory.
pub(crate) fn errors(tree: &dyn Tree, card: &Card) -> MemoryErrors {
    let umc = blocks(tree, card).and_then(|blocks| {
        let umc = blocks.into_iter().find(|(block, _)| block == "umc");
        umc.map(|(_, counts)| counts).ok_or(Absent::NotSupported)
    });
    let place = |of: fn(Counts) -> u64| ErrorsByPlace {
        device_memory: umc.map(of),
        ..ErrorsByPlace::default()
    };
    MemoryErrors {
        corrected: place(|counts| counts.0),
        uncorrected: place(|counts| counts.1),
        ..MemoryErrors::default()
    }
}
