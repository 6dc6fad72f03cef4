//! A bar that shows a fraction.

const WIDTH: u64 = 12;

/// Returns a bar for `part` of `whole`, in eighths of a column: `██▎░░░░░░░░░`.
///
/// A part above 0 fills at least an eighth, and one below `whole` leaves at least an eighth empty.
pub fn bar(part: u64, whole: u64) -> String {
    const EIGHTHS: [char; 7] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let all = u128::from(WIDTH * 8);
    let exact = (u128::from(part) * all).checked_div(u128::from(whole)).unwrap_or(0);
    let eighths = match (part, part >= whole) {
        (0, _) => 0,
        (_, true) => all,
        _ => exact.clamp(1, all - 1),
    };
    let (full, rest) = ((eighths / 8) as usize, (eighths % 8) as usize);
    let mut bar = "█".repeat(full);
    bar.extend(rest.checked_sub(1).and_then(|index| EIGHTHS.get(index)));
    let drawn = full + usize::from(rest > 0);
    bar + &"░".repeat(WIDTH as usize - drawn)
}

#[cfg(test)]
mod tests {
    use super::bar;

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
}
