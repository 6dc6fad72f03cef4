//! The two or three rows of a device.

use super::cell;
use super::line::Row;
use crate::document::Gpu;
use crate::field;
use gpu_core::{Absent, ComputeMode, DeviceDetails, PciBusId, Reading};

/// The word after a name: persistence mode, or the driver model on Windows.
const MODES: [&str; 10] =
    ["On", "Off", "Enabled", "Disabled", "N/A", "[N/A]", "ERR!", "WDDM", "TCC", "MCDM"];

/// Parses `|   0  Tesla K80           Off  | 0000:05:00.0     Off |                    0 |`.
///
/// A row is a device if it has an index and a complete PCI address. If `ruled` shows that device
/// rows follow, `N/A` or `ERR!` may replace the address, as on Jetson boards.
pub(super) fn first(row: Row<'_>, ruled: bool) -> Option<Gpu> {
    let text = row.text.trim_start();
    let (index, rest) =
        text.split_at_checked(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))?;
    let index = index.parse().ok()?;
    // The oldest drivers print a dot after the index, which Markdown escapes.
    let rest = rest.trim_start_matches(['\\', '.']);
    if !rest.starts_with([' ', '\t']) || rest.trim_start().starts_with('%') {
        return None;
    }
    let (name, bus_id, after) = split_at_address(rest)
        .map(|(name, address, after)| (name, Some(address), after))
        .or_else(|| if ruled { split_without_address(rest) } else { None })?;
    let (name, persistence) = name_and_mode(name);
    let mut cells = after.split('|');
    let display = cells.next().and_then(|cell| cell.split_whitespace().next());
    // `Volatile Uncorr. ECC`; without its last bar, the row is truncated.
    let uncorrected = cells.next().filter(|_| row.closed);
    let mut details = DeviceDetails::default();
    if let Some(Ok(count)) = uncorrected.map(|cell| cell.trim().parse()) {
        details.memory_health.get_or_insert_default().uncorrected = Ok(count);
    }
    Some(Gpu {
        details,
        index: Some(index),
        name: field::text(name),
        bus_id: bus_id.map(str::to_owned),
        display_active: switch(display),
        persistence,
        ..Gpu::default()
    })
}

/// Splits at the first word that is a PCI address.
fn split_at_address(text: &str) -> Option<(&str, &str, &str)> {
    let mut from = 0;
    for word in text.split([' ', '\t', '|']) {
        let to = from + word.len();
        if word.contains(':') && word.parse::<PciBusId>().is_ok() {
            return Some((text.get(..from)?, word, text.get(to..)?));
        }
        from = to + 1;
    }
    None
}

/// Splits a row whose second cell has the reason for a missing address; both cells must be
/// complete.
fn split_without_address(text: &str) -> Option<(&str, Option<&str>, &str)> {
    let (name, rest) = text.split_once('|')?;
    let (second, _) = rest.split_once('|')?;
    let address = second.split_whitespace().next()?;
    field::absent(address)?;
    let (_, after) = rest.split_once(address)?;
    (!name.trim().is_empty()).then_some((name, None, after))
}

fn name_and_mode(cell: &str) -> (&str, Reading<bool>) {
    let cell = cell.trim_matches(|c: char| c.is_whitespace() || c == '|');
    match cell.rsplit_once([' ', '\t']) {
        Some((name, mode)) if MODES.contains(&mode) => (name, switch(Some(mode))),
        _ => (cell, Err(Absent::NotRecorded)),
    }
}

/// Parses On or Off; any other word is truncated or has another meaning.
fn switch(word: Option<&str>) -> Reading<bool> {
    match field::switch(word.unwrap_or_default()) {
        Err(Absent::Implausible) => Err(Absent::NotRecorded),
        reading => reading,
    }
}

/// Parses `| N/A   41C    P0    63W / 149W |      0MiB / 11441MiB |      0%      Default |` into
/// `gpu`; returns whether the row could be that.
pub(super) fn second(row: Row<'_>, gpu: &mut Gpu) -> bool {
    let cells: Vec<&str> = row.cells().take(4).collect();
    let [state, memory, utilization] = match cells.as_slice() {
        [only] => match split_unbarred(only) {
            Some(parts) => parts,
            None if row.is_bordered() => [only, "", ""],
            None => return false,
        },
        [state, memory, rest @ ..] => [*state, *memory, rest.first().copied().unwrap_or("")],
        [] => return false,
    };
    let words = cell::words(state);
    let (before, [draw, limit]) = cell::pair(&words).unwrap_or((&words, [None, None]));
    if let [fan, _, _] = before {
        let fan = cell::value(Some(fan), &["%"], field::percent);
        let fan = fan.map(|percent| u32::try_from(percent).unwrap_or(u32::MAX));
        gpu.details.thermal.get_or_insert_default().fan_speed = fan;
    }
    // Fan, temperature, performance state; the fan may be missing.
    let degrees = before.iter().find(|word| word.ends_with('C')).or(before.get(1));
    gpu.temperature_c = cell::value(degrees.copied(), &["C"], field::celsius);
    gpu.power_draw_w = cell::value(draw, &["W"], field::watts);
    gpu.power_limit_w = cell::value(limit, &["W"], field::watts);
    [gpu.memory_used_mib, gpu.memory_total_mib] = cell::memory_pair(memory);
    let percent = cell::words(utilization).first().copied();
    gpu.utilization_percent = cell::value(percent, &["%"], field::percent);
    if cell::words(utilization).contains(&"Prohibited") {
        let modes = gpu.details.modes.get_or_insert_default();
        modes.compute_mode = Ok(ComputeMode::Prohibited);
    }
    true
}

/// Splits a row that lost its inner borders: around its second cell, the memory pair.
fn split_unbarred(text: &str) -> Option<[&str; 3]> {
    let words = cell::words(text);
    let mut slashes = words.iter().enumerate().filter(|(_, word)| **word == "/").skip(1);
    let (slash, _) = slashes.next()?;
    let start = |at: usize| {
        let word = words.get(at)?;
        (word.as_ptr() as usize).checked_sub(text.as_ptr() as usize)
    };
    let (state, rest) = text.split_at_checked(start(slash.checked_sub(1)?)?)?;
    let end = start(slash + 2).and_then(|end| end.checked_sub(state.len())).unwrap_or(rest.len());
    let (memory, utilization) = rest.split_at_checked(end)?;
    Some([state, memory, utilization])
}

/// Parses `|                               |                      |              Enabled |`.
pub(super) fn third(row: Row<'_>, gpu: &mut Gpu) {
    if let Some((mode, _)) = row.cell(2) {
        gpu.mig_enabled = switch(cell::words(mode).first().copied());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(text: &str) -> Row<'_> {
        Row { text, opened: true, closed: true, last: false }
    }

    fn filled(text: &str) -> Gpu {
        let mut gpu = Gpu::default();
        assert!(second(row(text), &mut gpu));
        gpu
    }

    #[test]
    fn names_modes_and_bus_ids_are_parsed() {
        let gpu = first(row("  10  Tesla K80           Off  | 0000:05:00.0     N/A |   0 "), false);
        let gpu = gpu.unwrap();
        assert_eq!((gpu.index, gpu.name.as_deref()), (Some(10), Some("Tesla K80")));
        assert_eq!(gpu.bus_id.as_deref(), Some("0000:05:00.0"));
        assert_eq!(gpu.persistence, Ok(false));
        assert_eq!(gpu.display_active, Err(Absent::NotSupported));

        let windows = first(row(" 0  GeForce RTX ...  WDDM | 00000000:0C:00.0  On | N/A "), false);
        let windows = windows.unwrap();
        assert_eq!(windows.name.as_deref(), Some("GeForce RTX ..."));
        assert_eq!(windows.persistence, Err(Absent::NotRecorded));
        assert_eq!(windows.display_active, Ok(true));

        let old = first(row(" 0\\.  GeForce GT 620    | 0000:01:00.0  N/A  |  N/A  N/A "), false);
        assert_eq!(old.unwrap().name.as_deref(), Some("GeForce GT 620"));

        let failed = first(row(" 4  ERR!        On  | 00000000:83:00.0 Off |  ERR! "), false);
        assert_eq!(failed.unwrap().name, None);
    }

    #[test]
    fn row_without_bus_id_is_a_device_only_in_device_table() {
        let text = "  0  Orin (nvgpu)     N/A  | N/A              N/A |       N/A ";
        assert_eq!(first(row(text), false), None);
        let gpu = first(row(text), true).unwrap();
        assert_eq!((gpu.name.as_deref(), gpu.bus_id), (Some("Orin (nvgpu)"), None));
        assert_eq!(gpu.persistence, Err(Absent::NotSupported));
    }

    #[test]
    fn row_truncated_before_bus_id_is_not_a_device() {
        let text = "  1  Tesla K80  Off  | 00000000:05:00.0 Off | 0 ";
        for end in 0..text.len() {
            let cut = Row { text: &text[..end], opened: true, closed: false, last: true };
            assert_eq!(first(cut, true).is_some(), end >= 39, "{:?}", cut.text);
        }
    }

    #[test]
    fn second_row_of_every_generation_is_parsed() {
        let gpu = filled(" N/A   41C    P0    63W / 149W |   7MiB / 11441MiB |  81%   E. Process ");
        assert_eq!((gpu.temperature_c, gpu.utilization_percent), (Ok(41), Ok(81)));
        assert_eq!((gpu.power_draw_w, gpu.power_limit_w), (Ok(63.0), Ok(149.0)));
        assert_eq!((gpu.memory_used_mib, gpu.memory_total_mib), (Ok(7), Ok(11_441)));

        let old =
            filled(" 33%   64 C  N/A   N/A /  N/A |  56%  577MB / 1023MB |  N/A      Default ");
        assert_eq!((old.temperature_c, old.memory_used_mib), (Ok(64), Ok(577)));
        assert_eq!(old.utilization_percent, Err(Absent::NotSupported));

        let failed = filled("ERR!  ERR! ERR!    ERR! / 300W |  0MiB / ERR! |   ERR!  Default ");
        assert_eq!(
            (failed.temperature_c, failed.power_draw_w),
            (Err(Absent::Failed), Err(Absent::Failed))
        );
        assert_eq!(
            (failed.power_limit_w, failed.memory_total_mib),
            (Ok(300.0), Err(Absent::Failed))
        );

        let shared =
            filled(" N/A   35C  N/A    1W /  N/A  | Not Supported    |    0%      Default ");
        assert_eq!(shared.memory_total_mib, Err(Absent::NotSupported));
        assert_eq!((shared.power_draw_w, shared.utilization_percent), (Ok(1.0), Ok(0)));

        let bare = filled(" 30% 45C P2 69W / 450W 22273MiB / 24564MiB 0% Default ");
        assert_eq!((bare.memory_used_mib, bare.memory_total_mib), (Ok(22_273), Ok(24_564)));
        assert_eq!((bare.power_limit_w, bare.utilization_percent), (Ok(450.0), Ok(0)));
    }

    #[test]
    fn mig_mode_is_parsed() {
        for (cell, want) in [
            ("  Enabled ", Ok(true)),
            (" Disabled* ", Ok(false)),
            ("  N/A ", Err(Absent::NotSupported)),
            (" ERR! ", Err(Absent::Failed)),
            (" Disab", Err(Absent::NotRecorded)),
        ] {
            let mut gpu = Gpu::default();
            third(row(&format!("      |      |  {cell}")), &mut gpu);
            assert_eq!(gpu.mig_enabled, want);
        }
    }
}
