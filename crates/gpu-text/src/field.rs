//! A printed cell, as a value or the reason for its absence.
//!
//! This module alone knows the many ways in which nvidia-smi reports a missing value (`N/A`,
//! `ERR!`, `[Not Supported]`, the texts of NVML's return codes in brackets) and the units that it
//! appends to numbers.

use gpu_core::{Absent, Reading};

/// The lowercase texts of missing values, without brackets.
///
/// The longer texts are those of NVML's return codes, which nvidia-smi prints in a cell whose query
/// failed.
const REASONS: [(&str, Absent); 41] = [
    ("n/a", Absent::NotSupported),
    ("-", Absent::NotSupported),
    ("--", Absent::NotSupported),
    ("none", Absent::NotSupported),
    ("not supported", Absent::NotSupported),
    ("not available", Absent::NotSupported),
    ("not applicable", Absent::NotSupported),
    ("not available in wddm driver model", Absent::NotSupported),
    ("not available in tcc driver model", Absent::NotSupported),
    ("no data", Absent::NotSupported),
    ("requested functionality has been deprecated", Absent::NotSupported),
    ("deprecated", Absent::NotSupported),
    ("insufficient permissions", Absent::NotPermitted),
    ("insufficient permission", Absent::NotPermitted),
    ("no permission", Absent::NotPermitted),
    ("no permissions", Absent::NotPermitted),
    ("permission denied", Absent::NotPermitted),
    ("gpu access blocked by the operating system", Absent::NotPermitted),
    ("not found", Absent::NotFound),
    ("function not found", Absent::TooOld),
    ("argument version mismatch", Absent::TooOld),
    ("gpu is lost", Absent::DeviceLost),
    ("gpu lost", Absent::DeviceLost),
    ("lost", Absent::DeviceLost),
    ("gpu requires reset", Absent::DeviceLost),
    ("gpu requires restart", Absent::DeviceLost),
    ("requires reset", Absent::DeviceLost),
    ("reset required", Absent::DeviceLost),
    ("gpu reset required", Absent::DeviceLost),
    ("err!", Absent::Failed),
    ("err", Absent::Failed),
    ("error", Absent::Failed),
    ("unknown error", Absent::Failed),
    ("unknown", Absent::Failed),
    ("timeout", Absent::Failed),
    ("invalid argument", Absent::Failed),
    ("driver not loaded", Absent::Failed),
    ("insufficient external power", Absent::Failed),
    ("interrupt request issue", Absent::Failed),
    ("corrupted inforom", Absent::Failed),
    ("in use by another client", Absent::Failed),
];

/// Returns why a cell has no value; `None` when it has one.
///
/// An unknown text in brackets is an error text too, because nvidia-smi uses brackets only in place
/// of a value.
pub(crate) fn absent(cell: &str) -> Option<Absent> {
    let cell = cell.trim();
    if cell.is_empty() {
        return Some(Absent::NotRecorded);
    }
    let bracketed = cell.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let bare = bracketed.unwrap_or(cell).trim();
    REASONS
        .iter()
        .find(|(text, _)| text.eq_ignore_ascii_case(bare))
        .map(|(_, reason)| *reason)
        .or(bracketed.map(|_| Absent::Failed))
}

/// Parses a cell of plain text; `None` if it is empty or has the reason for a missing value.
pub(crate) fn text(cell: &str) -> Option<String> {
    absent(cell).is_none().then(|| cell.trim().to_owned())
}

/// The maximum length of an identifier: NVML's longest identifier buffer,
/// `NVML_DEVICE_UUID_V2_BUFFER_SIZE`, has 96 bytes.
const MAX_IDENTIFIER: usize = 96;

/// Like [`text`], for a cell that names a device. Each following process gets a copy of the name,
/// so overlong text is rejected.
pub(crate) fn identifier(cell: &str) -> Option<String> {
    text(cell).filter(|name| name.len() <= MAX_IDENTIFIER)
}

/// Returns a line without a remark added after it and separated by blanks: `… 117.40 W    # busy`,
/// `… ← this one`, `… <-- here`.
pub(crate) fn without_remark(line: &str) -> &str {
    let remark = ["  #", "\t#", " \u{2190}", " <-", " <=", "  //"];
    let end = remark.iter().filter_map(|mark| line.find(mark)).min();
    match end {
        Some(end) if !line[..end].trim().is_empty() => line[..end].trim_end(),
        _ => line,
    }
}

/// Parses a number and the unit after it, with or without a blank; the unit is empty if there is
/// none.
fn quantity(cell: &str) -> Reading<(f64, &str)> {
    if let Some(reason) = absent(cell) {
        return Err(reason);
    }
    let cell = cell.trim();
    let end = cell
        .find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '-' | '+')))
        .unwrap_or(cell.len());
    let (number, unit) = cell.split_at(end);
    let number: Option<f64> = number.parse().ok().filter(|number: &f64| number.is_finite());
    Ok((number.ok_or(Absent::Implausible)?, unit.trim()))
}

fn whole(value: f64) -> Reading<u64> {
    // Above 2^53, a float cannot represent every whole number.
    if (0.0..=9_007_199_254_740_992.0).contains(&value) {
        Ok(value.round() as u64)
    } else {
        Err(Absent::Implausible)
    }
}

/// Parses a number with one of `units` (in any case) or without a unit.
fn number_in(cell: &str, units: &[&str]) -> Reading<f64> {
    let (number, unit) = quantity(cell)?;
    if unit.is_empty() || units.iter().any(|known| known.eq_ignore_ascii_case(unit)) {
        Ok(number)
    } else {
        Err(Absent::Implausible)
    }
}

/// Parses memory in MiB, rounded; a number without a unit is MiB. `MB` counts as MiB, because
/// drivers before 331 print MiB as `MB`.
pub(crate) fn mib(cell: &str) -> Reading<u64> {
    let (number, unit) = quantity(cell)?;
    let factor = match unit.to_ascii_lowercase().as_str() {
        "" | "mib" | "mb" | "m" => 1.0,
        "kib" | "kb" | "k" => 1.0 / 1024.0,
        "gib" | "gb" | "g" => 1024.0,
        "tib" | "tb" | "t" => 1024.0 * 1024.0,
        "b" | "bytes" => 1.0 / (1024.0 * 1024.0),
        _ => return Err(Absent::Implausible),
    };
    whole(number * factor)
}

/// Parses a percentage as printed; a value above 100 is kept.
pub(crate) fn percent(cell: &str) -> Reading<u64> {
    whole(number_in(cell, &["%"])?)
}

/// Parses degrees Celsius.
pub(crate) fn celsius(cell: &str) -> Reading<i64> {
    let degrees = number_in(cell, &["C", "°C", "degC"])?;
    if degrees.abs() < 10_000.0 { Ok(degrees.round() as i64) } else { Err(Absent::Implausible) }
}

/// Parses watts; milliwatts are converted to watts.
pub(crate) fn watts(cell: &str) -> Reading<f64> {
    let (number, unit) = quantity(cell)?;
    match unit.to_ascii_lowercase().as_str() {
        "" | "w" | "watts" => Ok(number),
        "mw" => Ok(number / 1000.0),
        _ => Err(Absent::Implausible),
    }
}

/// Returns whether a word is a version: numbers separated by points.
pub(crate) fn is_version(word: &str) -> bool {
    word.split('.').all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
}

/// Parses a whole number, such as an index or a PID.
pub(crate) fn number(cell: &str) -> Reading<u32> {
    match absent(cell) {
        Some(reason) => Err(reason),
        None => cell.trim().parse().map_err(|_| Absent::Implausible),
    }
}

/// Parses a switch: `Enabled`, `Disabled`, `On`, `Off`, `Yes`, `No`, `Active`.
pub(crate) fn switch(cell: &str) -> Reading<bool> {
    if let Some(reason) = absent(cell) {
        return Err(reason);
    }
    match cell.trim().to_ascii_lowercase().as_str() {
        "enabled" | "enabled*" | "on" | "yes" | "active" | "true" | "1" => Ok(true),
        "disabled" | "disabled*" | "off" | "no" | "not active" | "inactive" | "false" | "0" => {
            Ok(false)
        }
        _ => Err(Absent::Implausible),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_absence_text_has_its_reason() {
        for (cell, reason) in [
            ("", Absent::NotRecorded),
            ("  ", Absent::NotRecorded),
            ("N/A", Absent::NotSupported),
            ("[N/A]", Absent::NotSupported),
            ("[Not Supported]", Absent::NotSupported),
            ("Not Supported", Absent::NotSupported),
            ("-", Absent::NotSupported),
            ("[Insufficient Permissions]", Absent::NotPermitted),
            ("[Not Found]", Absent::NotFound),
            ("[Function Not Found]", Absent::TooOld),
            ("[GPU is lost]", Absent::DeviceLost),
            ("[GPU requires reset]", Absent::DeviceLost),
            ("ERR!", Absent::Failed),
            ("[Unknown Error]", Absent::Failed),
            ("[Some text of a later driver]", Absent::Failed),
            ("fourteen", Absent::Implausible),
            ("12 parsecs", Absent::Implausible),
            ("-5 MiB", Absent::Implausible),
            ("1e99MiB", Absent::Implausible),
        ] {
            assert_eq!(mib(cell), Err(reason), "{cell:?}");
        }
    }

    #[test]
    fn units_may_be_attached_or_separate() {
        assert_eq!(mib("15849MiB"), Ok(15_849));
        assert_eq!(mib(" 2248 MiB "), Ok(2248));
        assert_eq!(mib("4095MB"), Ok(4095));
        assert_eq!(mib("10.92GiB"), Ok(11_182));
        assert_eq!(mib("1048576 KiB"), Ok(1024));
        assert_eq!(mib("7"), Ok(7));
        assert_eq!(percent("97 %"), Ok(97));
        assert_eq!(percent("37100%"), Ok(37_100));
        assert_eq!(celsius("53C"), Ok(53));
        assert_eq!(celsius("-4 C"), Ok(-4));
        assert_eq!(watts("25W"), Ok(25.0));
        assert_eq!(watts("25.31 W"), Ok(25.31));
        assert_eq!(number("0"), Ok(0));
        assert_eq!(number("4294967296"), Err(Absent::Implausible));
    }

    #[test]
    fn trailing_remarks_are_stripped() {
        for (line, bare) in [
            ("0, 100 %, 117.40 W    # busy", "0, 100 %, 117.40 W"),
            ("0 1 2 \u{2190} here", "0 1 2"),
            ("0 1 2 <-- here", "0 1 2"),
            ("0 1 2 <= here", "0 1 2"),
            ("0 1 2\t# here", "0 1 2"),
            ("0 1 2  // here <- there", "0 1 2"),
            ("# gpu  pwr", "# gpu  pwr"),
            ("  # gpu  pwr", "  # gpu  pwr"),
            ("0, C# tool", "0, C# tool"),
        ] {
            assert_eq!(without_remark(line), bare);
        }
    }

    #[test]
    fn switches_and_texts_are_parsed() {
        assert_eq!(switch("Enabled"), Ok(true));
        assert_eq!(switch("Off"), Ok(false));
        assert_eq!(switch("Disabled*"), Ok(false));
        assert_eq!(switch("[N/A]"), Err(Absent::NotSupported));
        assert_eq!(text(" Tesla P100 "), Some("Tesla P100".into()));
        assert_eq!(text("[Unknown Error]"), None);
    }

    #[test]
    fn every_unit_is_converted() {
        for (cell, want) in [
            ("1 TiB", 1 << 20),
            ("2tb", 2 << 20),
            ("3 T", 3 << 20),
            ("1.5 GiB", 1536),
            ("2 gb", 2048),
            ("4G", 4096),
            ("5 MiB", 5),
            ("6M", 6),
            ("2048 KiB", 2),
            ("3072kb", 3),
            ("4096 K", 4),
            ("1048576 B", 1),
            ("2097152 bytes", 2),
            ("0.6 MiB", 1),
            ("9007199254740992", 1 << 53),
        ] {
            assert_eq!(mib(cell), Ok(want), "{cell}");
        }
        assert_eq!(mib("9007199254740994"), Err(Absent::Implausible));
        for (cell, want) in [("1500 mW", 1.5), ("25 Watts", 25.0), ("7 w", 7.0), ("-1", -1.0)] {
            assert_eq!(watts(cell), Ok(want), "{cell}");
        }
        assert_eq!(watts("7 V"), Err(Absent::Implausible));
        for (cell, want) in [("53 degC", 53), ("53°C", 53), ("9999", 9999), ("-9999 c", -9999)] {
            assert_eq!(celsius(cell), Ok(want), "{cell}");
        }
        for cell in ["53 F", "10000", "-10000 C"] {
            assert_eq!(celsius(cell), Err(Absent::Implausible), "{cell}");
        }
        assert_eq!(percent("5 C"), Err(Absent::Implausible));
        assert_eq!(number("N/A"), Err(Absent::NotSupported));
    }

    #[test]
    fn every_switch_word_is_known() {
        for word in ["Enabled", "enabled*", "ON", "Yes", "Active", "True", "1", " on "] {
            assert_eq!(switch(word), Ok(true), "{word}");
        }
        for word in ["Disabled", "off", "No", "Not Active", "Inactive", "False", "0"] {
            assert_eq!(switch(word), Ok(false), "{word}");
        }
        assert_eq!(switch("maybe"), Err(Absent::Implausible));
        assert_eq!(switch(""), Err(Absent::NotRecorded));
    }

    #[test]
    fn identifier_has_at_most_96_bytes() {
        let longest = "a".repeat(96);
        assert_eq!(identifier(&longest), Some(longest.clone()));
        assert_eq!(identifier(&format!("{longest}a")), None);
        assert_eq!(identifier("[N/A]"), None);
    }

    proptest! {
        #[test]
        fn arbitrary_cell_never_panics_or_defaults_to_zero(cell in "\\PC{0,24}") {
            let (memory, share) = (mib(&cell), percent(&cell));
            let _ = (celsius(&cell), watts(&cell), number(&cell), switch(&cell), text(&cell));
            if !cell.contains(|c: char| c.is_ascii_digit()) {
                prop_assert!(memory.is_err() && share.is_err());
            }
        }

        #[test]
        fn whole_mebibytes_round_trip(value in 0u64..1 << 40, glue in prop::sample::select(vec!["", " "])) {
            prop_assert_eq!(mib(&format!("{value}{glue}MiB")), Ok(value));
        }
    }
}
