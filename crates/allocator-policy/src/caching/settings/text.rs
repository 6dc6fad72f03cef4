//! Parses the text of settings.

use super::{INTERVALS, SettingError};
use gpu_core::Bytes;

/// The maximum number of characters of a name or value in an error.
const MAX_SHOWN: usize = 1 << 10;

/// The maximum number of characters of an unknown name that are compared.
const COMPARED: usize = 64;

/// Splits text at the commas outside brackets, and each part at its first colon.
pub(super) fn pairs(text: &str) -> Result<Vec<(&str, &str)>, SettingError> {
    let mut depth = 0u32;
    let parts = text.split(|letter| {
        match letter {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        letter == ',' && depth == 0
    });
    let parts = parts.map(str::trim).filter(|part| !part.is_empty());
    let pair = |part: &'_ str| SettingError::Form { rest: plain(part) };
    parts
        .map(|part| {
            let (key, value) = part.split_once(':').ok_or_else(|| pair(part))?;
            Ok((key.trim(), value.trim()))
        })
        .collect()
}

pub(super) fn truth(value: &str) -> Option<bool> {
    match value {
        "True" => Some(true),
        "False" => Some(false),
        _ => None,
    }
}

pub(super) fn number(value: &str) -> Option<f64> {
    value.parse().ok().filter(|number: &f64| number.is_finite())
}

pub(super) fn mebibytes(value: &str) -> Option<Bytes> {
    value.parse().ok().map(Bytes::from_mib)
}

/// Parses an effective size of at least `least`; the inner `None` means that no size is set.
pub(super) fn in_force(value: &str, least: Bytes) -> Option<Option<Bytes>> {
    match value.parse::<i128>().ok()? {
        -1 => Some(None),
        size => {
            let size = u64::try_from(size).ok().map(Bytes).filter(|size| *size >= least)?;
            Some(Some(size).filter(|size| size.0 < u64::MAX))
        }
    }
}

/// Parses the divisions: one number for all sizes, or a list. The first interval of a list also
/// applies to smaller sizes, and `>` to all sizes above the last.
pub(super) fn divisions(value: &str) -> Option<[u64; INTERVALS]> {
    let mut all = [0; INTERVALS];
    let Some(list) = value.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) else {
        let parts: u64 = value.parse().ok().filter(|parts: &u64| parts.is_power_of_two())?;
        return Some([parts; INTERVALS]);
    };
    let mut last = None;
    for item in list.split(',').map(str::trim).filter(|item| !item.is_empty()) {
        let (from, parts) = item.split_once(':')?;
        let parts: u64 = parts.trim().parse().ok()?;
        if parts != 0 && !parts.is_power_of_two() {
            return None;
        }
        if from.trim() == ">" {
            all[last.map_or(1, |last| last + 1)..].fill(parts);
            continue;
        }
        let from: u64 = from.trim().parse().ok().filter(|from: &u64| from.is_power_of_two())?;
        let index = (from.ilog2() as usize).min(INTERVALS - 1);
        if last.is_none() {
            all[..index].fill(parts);
        }
        all[index] = parts;
        last = Some(index);
    }
    Some(all)
}

/// Shortens external text and removes its control characters.
pub(super) fn plain(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(MAX_SHOWN).collect()
}

/// Returns a similar known name.
pub(crate) fn nearest<'a>(unknown: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let unknown: String = unknown.chars().take(COMPARED).collect();
    let known = known.map(|name| (strsim::levenshtein(&unknown, name), name));
    let near = known.filter(|(distance, name)| *distance <= name.len() / 3);
    near.min().map(|(_, name)| name)
}
