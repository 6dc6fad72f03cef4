//! A bar that shows a fraction.

const WIDTH: u16 = 12;

/// Returns a bar of 12 columns for `part` of `whole`: `██▎░░░░░░░░░`.
pub fn bar(part: u64, whole: u64) -> String {
    bar_of(part, whole, WIDTH)
}

/// Returns a bar of `width` columns for `part` of `whole`, in eighths of a column.
///
/// A part above 0 fills at least an eighth, and one below `whole` leaves at least an eighth empty.
pub fn bar_of(part: u64, whole: u64, width: u16) -> String {
    const EIGHTHS: [char; 7] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let all = u128::from(width) * 8;
    let exact = (u128::from(part) * all).checked_div(u128::from(whole)).unwrap_or(0);
    let eighths = match (part, part >= whole) {
        (0, _) => 0,
        (_, true) => all,
        _ => exact.min(all.saturating_sub(1)).max(1).min(all),
    };
    let (full, rest) = ((eighths / 8) as usize, (eighths % 8) as usize);
    let mut bar = "█".repeat(full);
    bar.extend(rest.checked_sub(1).and_then(|index| EIGHTHS.get(index)));
    let drawn = full + usize::from(rest > 0);
    bar + &"░".repeat(usize::from(width).saturating_sub(drawn))
}

#[cfg(test)]
mod tests {
    use super::{bar, bar_of};

    #[test]
    fn bar_distinguishes_empty_and_full_from_nearly() {
        for (part, whole, drawn) in [
            (0, 80, "░░░░░░░░░░░░"),
            (1, 1_000_000, "▏░░░░░░░░░░░"),
            (40, 80, "██████░░░░░░"),
            (14, 99, "█▋░░░░░░░░░░"),
            (999_999, 1_000_000, "███████████▉"),
            (80, 80, "████████████"),
            (90, 80, "████████████"),
            (u64::MAX - 1, u64::MAX, "███████████▉"),
            (0, 0, "░░░░░░░░░░░░"),
        ] {
            assert_eq!(bar(part, whole), drawn, "{part} of {whole}");
        }
    }

    #[test]
    fn bar_has_the_requested_width() {
        for width in [0, 1, 5, 200] {
            for (part, whole) in [(0, 9), (1, 9), (8, 9), (9, 9), (9, 0)] {
                let drawn = bar_of(part, whole, width);
                assert_eq!(drawn.chars().count(), usize::from(width), "{part} of {whole}");
            }
        }
    }
}
