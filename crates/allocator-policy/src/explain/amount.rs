//! Amounts in the words of people.

use gpu_core::Bytes;

/// Writes an amount with the unit that suits it: `5.96 GiB`, `256 MiB`, `12.5 KiB`, `0`.
pub fn amount(bytes: Bytes) -> String {
    let Bytes(count) = bytes;
    let shown = |unit: u32, name: &str| {
        let value = count as f64 / (1u64 << unit) as f64;
        let text = format!("{value:.2}");
        let text = if text.contains('.') {
            text.trim_end_matches('0').trim_end_matches('.')
        } else {
            &text
        };
        format!("{text} {name}")
    };
    match count {
        0 => "0".to_owned(),
        1..0x400 => format!("{count} bytes"),
        0x400..0x10_0000 => shown(10, "KiB"),
        0x10_0000..0x4000_0000 => shown(20, "MiB"),
        _ => shown(30, "GiB"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amount_picks_suitable_unit() {
        for (bytes, text) in [
            (0, "0"),
            (7, "7 bytes"),
            (12_800, "12.5 KiB"),
            (256 << 20, "256 MiB"),
            (6_399_500_000, "5.96 GiB"),
            (80 << 30, "80 GiB"),
        ] {
            assert_eq!(amount(Bytes(bytes)), text);
        }
    }
}
