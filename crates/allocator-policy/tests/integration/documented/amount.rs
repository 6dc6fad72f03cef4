//! Bytes in the notation of the document.

const UNITS: [(&str, u64); 4] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// Formats bytes exactly, as in `2 MiB + 512 B`.
pub(crate) fn amount(bytes: u64) -> String {
    let mut left = bytes;
    let mut parts = Vec::new();
    for (unit, size) in UNITS {
        if left >= size {
            parts.push(format!("{} {unit}", left / size));
            left %= size;
        }
    }
    if parts.is_empty() { "0".to_owned() } else { parts.join(" + ") }
}

/// Parses bytes, as in `2.5 MiB`.
pub(crate) fn bytes(text: &str) -> u64 {
    let (number, unit) = text.split_once(' ').expect("a number and a unit");
    let size = UNITS.iter().find(|(name, _)| *name == unit).expect("a unit").1;
    (number.parse::<f64>().expect("a number") * size as f64) as u64
}
