//! An amount of memory as a program printed it.

use gpu_core::Bytes;

/// A printed amount, with its size in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Figure {
    /// The text with its unit, as printed.
    pub text: String,
    /// The bytes; `None` if the number does not fit in 64 bits.
    pub bytes: Option<Bytes>,
    /// The maximum error of the printed figure: half a unit of its last digit.
    pub slack: Bytes,
}

/// The maximum length of a number.
const MAX_DIGITS: usize = 40;

/// The largest power of ten by which a last digit is scaled.
const MAX_DECIMALS: usize = 12;

impl Figure {
    /// Returns an exact amount.
    pub(super) fn of_bytes(text: impl Into<String>, bytes: u64) -> Self {
        Figure { text: text.into(), bytes: Some(Bytes(bytes)), slack: Bytes(0) }
    }

    /// Parses the amount at the start of a text, `6.37 GiB` or `957.03MiB`, and returns the rest.
    pub(super) fn at_start(text: &str) -> Option<(Figure, &str)> {
        let bare = text.trim_start();
        let digits = number_length(bare)?;
        let (number, rest) = bare.split_at(digits);
        let glued = rest.trim_start_matches(' ');
        let blank = rest.len() - glued.len();
        let unit_length = glued.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(glued.len());
        let unit = &glued[..unit_length];
        let scale = scale(unit)?;
        let separator = if blank > 0 { " " } else { "" };
        let shown = [number, separator, unit].concat();
        let (bytes, slack) = value(number, scale);
        Some((Figure { text: shown, bytes, slack }, &glued[unit_length..]))
    }

    /// Parses the amount at the start of a text, or a bare number of bytes.
    pub(super) fn or_count(text: &str) -> Option<(Figure, &str)> {
        // A single letter after a blank starts the next word of the log: `7 E tensorflow/…`.
        let has_unit = |(figure, _): &(Figure, &str)| {
            figure.text.rsplit_once(' ').is_none_or(|(_, unit)| unit.len() > 1)
        };
        Figure::at_start(text).filter(has_unit).or_else(|| {
            let (bytes, rest) = integer(text)?;
            Some((Figure::of_bytes(format!("{bytes} bytes"), bytes), rest))
        })
    }

    /// Parses a number with the unit given by the text around it: `19.77` of `19.77/22.05 GiB`.
    pub(super) fn in_unit<'a>(text: &'a str, unit: &str) -> Option<(Figure, &'a str)> {
        let bare = text.trim_start();
        let (number, rest) = bare.split_at(number_length(bare)?);
        let (bytes, slack) = value(number, scale(unit)?);
        Some((Figure { text: format!("{number} {unit}"), bytes, slack }, rest))
    }

    /// Parses an amount of a program that counts in powers of ten: 1 MB is 1,000,000 bytes.
    pub(super) fn in_powers_of_ten(text: &str) -> Option<(Figure, &str)> {
        let (figure, rest) = Figure::at_start(text)?;
        let (number, unit) = figure.text.split_once(' ')?;
        let scale = match unit {
            "KB" | "kB" => 1_000,
            "MB" => 1_000_000,
            "GB" => 1_000_000_000,
            _ => return Some((figure, rest)),
        };
        let (bytes, slack) = value(number, scale);
        Some((Figure { bytes, slack, ..figure }, rest))
    }

    /// Parses the amount at the end of a text.
    pub(super) fn at_end(text: &str) -> Option<Figure> {
        let text = text.trim_end();
        let last = text.rfind(' ').map_or(0, |at| at + 1);
        let before = text[..last].trim_end();
        let first = before.rfind(' ').map_or(0, |at| at + 1);
        let whole = |at: usize| {
            let bare = text[at..].trim_start_matches(['(', '[', '"', '\'']);
            Figure::at_start(bare).and_then(|(figure, rest)| rest.is_empty().then_some(figure))
        };
        whole(last).or_else(|| whole(first))
    }
}

/// Parses the whole number at the start of a text, ignoring commas between its digits.
pub(super) fn integer(text: &str) -> Option<(u64, &str)> {
    let bare = text.trim_start();
    let digits = number_length(bare)?;
    let (number, rest) = bare.split_at(digits);
    let number: String = number.chars().filter(|c| *c != ',').collect();
    Some((number.parse().ok()?, rest))
}

/// Returns the length of the number at the start of a text: digits, with a point and commas.
fn number_length(text: &str) -> Option<usize> {
    if !text.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let end = text.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | ',')));
    let end = text[..end.unwrap_or(text.len())].trim_end_matches(['.', ',']).len();
    (end <= MAX_DIGITS).then_some(end)
}

/// Returns a unit in bytes, as a power of two: all these programs mean that, even by `GB` or a bare
/// `G`.
fn scale(unit: &str) -> Option<u64> {
    Some(match unit {
        "B" | "b" | "byte" | "bytes" | "Bytes" => 1,
        "KiB" | "Ki" | "KB" | "kB" | "K" | "k" => 1 << 10,
        "MiB" | "Mi" | "MB" | "M" | "Mb" => 1 << 20,
        "GiB" | "Gi" | "GB" | "G" | "Gb" => 1 << 30,
        "TiB" | "TB" | "T" => 1 << 40,
        "PiB" | "PB" | "P" => 1 << 50,
        "EiB" | "EB" | "E" => 1 << 60,
        _ => return None,
    })
}

/// Returns the bytes, and half a unit of the last digit in bytes.
fn value(number: &str, scale: u64) -> (Option<Bytes>, Bytes) {
    let plain: String = number.chars().filter(|c| *c != ',').collect();
    if scale == 1
        && let Ok(bytes) = plain.parse()
    {
        return (Some(Bytes(bytes)), Bytes(0));
    }
    let decimals = plain.split_once('.').map_or(0, |(_, part)| part.len().min(MAX_DECIMALS));
    let slack = scale as f64 / 2.0 / 10f64.powi(decimals as i32);
    let bytes = plain.parse::<f64>().ok().map(|number| (number * scale as f64).round());
    // 2^64 as a float is the first value that does not fit.
    let bytes = bytes.filter(|bytes| *bytes < u64::MAX as f64);
    (bytes.map(|bytes| Bytes(bytes as u64)), Bytes(slack.ceil() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes(text: &str) -> Option<u64> {
        Figure::at_start(text)?.0.bytes.map(|bytes| bytes.0)
    }

    #[test]
    fn all_units_are_powers_of_two() {
        for (text, want) in [
            ("6.50 GiB", 6_979_321_856),
            ("957.5MiB", 1_004_011_520),
            ("15.5G", 16_642_998_272),
            ("1.5 GB", 1_610_612_736),
            ("0 bytes", 0),
            ("0B", 0),
            ("1024.00 KiB", 1 << 20),
            ("33762398024 bytes", 33_762_398_024),
            ("25,600,000 bytes", 25_600_000),
            ("18446744073709551615 bytes", u64::MAX),
            ("2.500000GB memory", 2_684_354_560),
        ] {
            assert_eq!(bytes(text), Some(want), "{text}");
        }
    }

    #[test]
    fn invalid_amount_is_none_and_absurd_amount_keeps_text() {
        for text in ["", "GiB", "7", "7 parsecs", "x7 GiB", "- MiB", ". GiB"] {
            assert_eq!(Figure::at_start(text), None, "{text}");
        }
        let (absurd, rest) = Figure::at_start("17179869184.00 GiB memory").unwrap();
        assert_eq!((absurd.text.as_str(), absurd.bytes), ("17179869184.00 GiB", None));
        assert_eq!(rest, " memory");
    }

    #[test]
    fn amount_is_found_before_position() {
        let end = |text| Figure::at_end(text).map(|figure| figure.text);
        assert_eq!(end("of which 2.93 GiB "), Some("2.93 GiB".into()));
        assert_eq!(end("(3.78 GiB"), Some("3.78 GiB".into()));
        assert_eq!(end("total of 957.03MiB"), Some("957.03MiB".into()));
        assert_eq!(end("no amount"), None);
        assert_eq!(end("7 GiB of"), None);
    }

    #[test]
    fn slack_is_half_of_last_digit() {
        let slack = |text| Figure::at_start(text).unwrap().0.slack.0;
        assert_eq!(slack("6.37 GiB"), 5_368_710);
        assert_eq!(slack("12.50 MiB"), 5_243);
        assert_eq!(slack("7 MiB"), 524_288);
        assert_eq!(slack("256 bytes"), 0);
    }

    #[test]
    fn every_unit_is_known() {
        for (shift, units) in [
            (0, &["B", "b", "byte", "bytes", "Bytes"][..]),
            (10, &["KiB", "KB", "kB", "K", "k"]),
            (20, &["MiB", "MB", "M", "Mb"]),
            (30, &["GiB", "GB", "G", "Gb"]),
            (40, &["TiB", "TB", "T"]),
            (50, &["PiB", "PB", "P"]),
            (60, &["EiB", "EB", "E"]),
        ] {
            for unit in units {
                assert_eq!(bytes(&format!("2 {unit}")), Some(2 << shift), "{unit}");
            }
        }
        assert_eq!(bytes("15.99 EB"), Some(18_435_214_858_663_483_392));
        assert_eq!(Figure::at_start("16 EB").unwrap().0.bytes, None);
    }

    #[test]
    fn amount_is_shown_with_one_blank_and_rest_follows() {
        for (text, shown, rest) in [
            ("  7   GiB free", "7 GiB", " free"),
            ("7GiB, free", "7GiB", ", free"),
            ("1,024.5 MiB.", "1,024.5 MiB", "."),
            ("7 B8", "7 B", "8"),
        ] {
            let (figure, after) = Figure::at_start(text).unwrap();
            assert_eq!((figure.text.as_str(), after), (shown, rest), "{text}");
        }
        let (count, rest) = Figure::or_count("7 E tensorflow").unwrap();
        assert_eq!((count.text.as_str(), rest), ("7 bytes", " E tensorflow"));
        assert_eq!(Figure::or_count("7E").unwrap().0.text, "7E");
        assert_eq!(Figure::or_count("7 GB").unwrap().0.text, "7 GB");
        assert_eq!(integer("1,024, 2"), Some((1024, ", 2")));
        assert_eq!(integer("1.5"), None);
        let digits = |length: usize| format!("{} GiB", "1".repeat(length));
        assert!(Figure::at_start(&digits(MAX_DIGITS)).is_some());
        assert!(Figure::at_start(&digits(MAX_DIGITS + 1)).is_none());
        assert_eq!(Figure::at_end("[7 MiB").unwrap().text, "7 MiB");
        assert_eq!(Figure::at_end("is \"7MiB").unwrap().text, "7MiB");
        assert_eq!(Figure::at_end("7 MiB)"), None);
    }

    proptest! {
        #[test]
        fn printed_value_is_within_slack(bytes in 0u64..1 << 50) {
            let text = format!("{:.2} GiB", bytes as f64 / (1u64 << 30) as f64);
            let (figure, _) = Figure::at_start(&text).unwrap();
            prop_assert!(figure.bytes.unwrap().0.abs_diff(bytes) <= figure.slack.0 + 1);
        }

        #[test]
        fn arbitrary_text_never_panics(text in "\\PC{0,40}") {
            let (_, _) = (Figure::at_start(&text), Figure::at_end(&text));
            let _ = integer(&text);
        }
    }
}
