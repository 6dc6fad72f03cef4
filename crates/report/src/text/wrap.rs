//! Line wrapping.

use super::line::{Line, Tone};
use unicode_width::UnicodeWidthStr;

/// Returns the head and the pieces, with `between` as the separator, on as many lines of `columns`
/// as needed. Continuation lines are indented by `indent`. Pieces are never split.
pub fn packed(
    head: Line,
    pieces: impl IntoIterator<Item = Line>,
    between: &str,
    indent: usize,
    columns: usize,
) -> Vec<Line> {
    let (mut lines, mut line, mut is_begun) = (Vec::new(), head, false);
    for piece in pieces {
        if is_begun && line.width() + between.width() + piece.width() > columns {
            lines.push(std::mem::replace(&mut line, Line::new().padded_to(indent)));
            is_begun = false;
        }
        line = if is_begun { line.plain(between).line(piece) } else { line.line(piece) };
        is_begun = true;
    }
    lines.push(line);
    lines
}

/// Returns the head and the text, wrapped between words. Continuation lines are aligned with the
/// start of the text.
pub fn wrapped(head: Line, tone: Tone, text: &str, columns: usize) -> Vec<Line> {
    let indent = head.width();
    let words = text.split(' ').map(|word| Line::new().add(tone, word));
    packed(head, words, " ", indent, columns)
}

/// The indentation of text after a long head.
const UNDER: usize = 11;

/// Returns the head and the text, wrapped between words. Continuation lines are aligned with the
/// start of the text after a short head, and indented by 11 columns after a long one.
pub fn flowed(head: Line, text: &str, columns: usize) -> Vec<Line> {
    let indent = if head.width() <= UNDER { head.width() } else { UNDER };
    let columns = columns.max(indent + 24);
    let (mut lines, mut line, mut is_empty) = (Vec::new(), head, true);
    for word in text.split(' ') {
        let wider = line.width() + usize::from(!is_empty) + word.width();
        if wider > columns && line.width() > indent {
            lines.push(std::mem::replace(&mut line, Line::new().padded_to(indent)));
            is_empty = true;
        }
        line = if is_empty { line.plain(word) } else { line.plain(format_args!(" {word}")) };
        is_empty = false;
    }
    lines.push(line);
    lines
}

/// Returns the head and the text on one line if they fit, otherwise the text below the head.
pub fn below(head: Line, text: &str, columns: usize) -> Vec<Line> {
    if head.width() + text.width() <= columns {
        return vec![head.plain(text)];
    }
    let text = flowed(Line::new().padded_to(UNDER), text, columns);
    std::iter::once(head).chain(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(lines: &[Line]) -> Vec<&str> {
        lines.iter().map(Line::text).collect()
    }

    #[test]
    fn overflowing_words_wrap_with_indent() {
        let lines =
            |columns| wrapped(Line::new().plain("a: "), Tone::Dim, "bc def g hijklmn", columns);
        assert_eq!(texts(&lines(usize::MAX)), ["a: bc def g hijklmn"]);
        assert_eq!(texts(&lines(11)), ["a: bc def g", "   hijklmn"]);
        assert_eq!(texts(&lines(9)), ["a: bc def", "   g", "   hijklmn"]);
        assert_eq!(texts(&lines(0)), ["a: bc", "   def", "   g", "   hijklmn"]);
    }

    #[test]
    fn pieces_are_not_split() {
        let pieces = || ["lab 1", "4 GPUs"].map(|piece| Line::new().plain(piece));
        let lines = |columns| packed(Line::new(), pieces(), " · ", 2, columns);
        assert_eq!(texts(&lines(14)), ["lab 1 · 4 GPUs"]);
        assert_eq!(texts(&lines(13)), ["lab 1", "  4 GPUs"]);
        assert_eq!(texts(&packed(Line::new().plain("x"), [], " ", 2, 5)), ["x"]);
    }
}
