//! Words that a terminal broke at its right edge.
//!
//! Such a break leaves no mark; only the two pieces reveal it. They are joined if together they
//! form a word of the messages and neither piece is such a word, or if they form a number before a
//! unit.

use super::engines;
use super::figure::Figure;

/// The minimum width of a terminal; a shorter line ends normally.
pub(super) const LEAST_WIDTH: usize = 40;

/// Words of the messages, without the figures.
const WORDS: &str = "memory Tried tried allocate allocated allocating total capacity capacty which free \
    Process process Including non-PyTorch PyTorch has use this This out CUDA HIP GPU reserved already \
    cached unallocated private pools allowed Allocator BFCAllocator Chunks chunks totalling size region \
    InUse Total Limit MaxInUse bytes pool GiB MiB KiB rounded device \
    in is of by with and available";

/// Returns whether a line continues the word at the end of the text before it.
pub(super) fn is_within_word(before: &str, line: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_alphabetic() || c == '-';
    let head = &before[before.trim_end_matches(is_letter).len()..];
    let tail = &line[..line.len() - line.trim_start_matches(is_letter).len()];
    if !head.is_empty() && !tail.is_empty() {
        let is_word =
            |word: &str| engines::is_word(word) || WORDS.split(' ').any(|known| known == word);
        let whole = [head, tail].concat();
        return whole.len() <= 16 && is_word(&whole) && !(is_word(head) && is_word(tail));
    }
    is_within_number(before, line)
}

/// A number continues if a unit follows it and only both pieces together contain its point, if it
/// is a PID, or if the words before it precede a number in a message.
fn is_within_number(before: &str, line: &str) -> bool {
    let is_digit = |c: char| c.is_ascii_digit() || c == '.';
    let head = &before[before.trim_end_matches(is_digit).len()..];
    let tail = &line[..line.len() - line.trim_start_matches(is_digit).len()];
    if head.is_empty() || tail.is_empty() || head.len() + tail.len() > 24 {
        return false;
    }
    let number = [head, tail].concat();
    let is_number = number.matches('.').count() == 1 && !number.starts_with('.');
    let rest = &line[tail.len()..];
    let words_before = before[..before.len() - head.len()].trim_end();
    let is_process = words_before.ends_with("Process") && rest.starts_with(" has ");
    let is_count = || {
        let digits = number.trim_end_matches('.');
        let ends = digits.len() < number.len() || rest.starts_with([')', ',', ' ']);
        ends && digits.bytes().all(|byte| byte.is_ascii_digit())
            && engines::expects_number(&before[..before.len() - head.len()])
    };
    let has_unit =
        || Figure::at_start(line).is_some() || Figure::at_start(&format!("0{line}")).is_some();
    is_process || (is_number && has_unit()) || is_count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_broken_words_and_numbers_are_joined() {
        for (before, line) in [
            ("GPU 0 ha", "s a total"),
            ("a total capa", "city of"),
            ("no", "n-PyTorch memory"),
            ("of which 1.2", "5 GiB is free"),
            ("of which 1", ".25 GiB is free"),
            ("of which 1.", "25 GiB is free"),
            ("of which 1.25 G", "iB is free"),
            ("by PyTorch but unallocate", "d."),
            ("Process 47", "11 has 2.00 GiB"),
            ("estimated maximum model length is 34", "736. Try"),
            ("be stored in KV cache (73", "44). Try"),
            ("larg", "er than the"),
        ] {
            assert!(is_within_word(before, line), "{before}|{line}");
        }
        for (before, line) in [
            ("GPU 0 has", "a total"),
            ("GPU", "0 has a total"),
            ("total", "capacity of 8"),
            ("non-PyTorch", "memory"),
            ("of size 1879048960", "2024-01-01 10:00:00.1: I x"),
            ("PeakReserved: 0", "12 Chunks of size 256"),
            ("is", "free"),
            ("model length is 34736", "2025-01-01 10:00:00"),
            ("a length of 34", "736. Try"),
            ("", "x"),
            ("x", ""),
        ] {
            assert!(!is_within_word(before, line), "{before}|{line}");
        }
    }

    #[test]
    fn number_is_joined_only_before_its_unit_or_after_process() {
        for (before, line, is) in [
            ("Process 47", "11 has 2.00 GiB", true),
            ("Process 47", "11 had 2.00 GiB", false),
            ("Prozess 47", "11 has 2.00 GiB", false),
            ("of 1.5", "2 GiB", true),
            ("of 1.5", "2 words", false),
            ("of 1.5", "2.5 GiB", false),
            ("of 15", "2 GiB", false),
            ("of .", "5 GiB", false),
            ("of 1", ".5 GiB", true),
            ("of 1.25", " GiB", false),
            ("of 1.12345678901234567890", "12 GiB", true),
            ("of 1.12345678901234567890", "123 GiB", false),
            ("Alloca", "tor", true),
            ("Totall", "y", false),
            ("Chunks", "is", false),
            ("non", "-PyTorch", true),
        ] {
            assert_eq!(is_within_word(before, line), is, "{before}|{line}");
        }
    }
}
