//! Turns pasted or redirected bytes into lines that a parser can rely on.
//!
//! Everything that a terminal, a mailer, a web page or Windows adds is removed here, so that
//! parsers need not handle it: byte order marks and UTF-16, escape sequences (the cursor movements
//! that `watch` prints in place of blanks are executed), carriage returns, `<br>` and `<p>`, quote
//! marks, control characters. XML is preserved: no other tag changes, and no entity except
//! `&nbsp;`.

use crate::work_meter;
use std::borrow::Cow;
use std::iter::Peekable;
use std::str::Chars;

/// The maximum number of bytes of a text that are read, and the maximum length of the cleaned text.
pub(crate) const MAX_BYTES: usize = 64 << 20;

/// The maximum number of cells that one escape sequence may move or fill.
const MAX_MOVE: usize = 500;

/// A cleaned text: lines end with `\n` where the original's did, and with `\r` where a carriage
/// return, a `<br>` or a cursor movement broke one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Text {
    clean: String,
    cut: bool,
    first_line: usize,
}

/// Cleans `bytes`. Drops the part after [`MAX_BYTES`], and [`Text::is_cut`] then returns true.
pub(crate) fn clean(bytes: &[u8]) -> Text {
    clean_within(bytes, MAX_BYTES)
}

fn clean_within(bytes: &[u8], bound: usize) -> Text {
    cleaned(bytes, bound, |text| text)
}

/// Cleans `bytes`, decoded and passed through `plain`.
pub(crate) fn cleaned(
    bytes: &[u8],
    bound: usize,
    plain: impl FnOnce(Cow<'_, str>) -> Cow<'_, str>,
) -> Text {
    let head = bytes.get(..bound).unwrap_or(bytes);
    let decoded = plain(decode(head));
    let mut cleaner = Cleaner {
        out: String::with_capacity(decoded.len()),
        line: 0,
        counted: (0, 0),
        bound,
        cut: false,
    };
    cleaner.run(&without_comment_sign(&decoded));
    Text { cut: cleaner.cut || bytes.len() > bound, clean: cleaner.out, first_line: 1 }
}

impl Text {
    /// Returns the text as a part of a longer one, numbered from this line.
    pub(crate) fn numbered_from(self, first_line: usize) -> Self {
        Text { first_line, ..self }
    }

    /// Returns the whole text, with `\n` or `\r` at the end of each line.
    pub(crate) fn as_str(&self) -> &str {
        &self.clean
    }

    /// Returns whether the text was longer than [`MAX_BYTES`] and its end was not read.
    pub(crate) fn is_cut(&self) -> bool {
        self.cut
    }

    /// Returns the number of the last line if it has no line end: the text may be cut in the middle
    /// of a word.
    pub(crate) fn open_line(&self) -> Option<usize> {
        if self.clean.ends_with(['\n', '\r']) {
            return None;
        }
        self.lines().last().map(|(number, _)| number)
    }

    /// Iterates over the lines with their number in the original, from 1; the parts of a line that
    /// was split share its number.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (usize, &str)> + Clone {
        let mut number = self.first_line;
        self.clean.split_inclusive(['\n', '\r']).map(move |line| {
            let mine = number;
            work_meter::add(line.len());
            number += usize::from(line.ends_with('\n'));
            (mine, line.trim_end_matches(['\n', '\r']))
        })
    }
}

/// Splits a text before the lines at `starts`: ascending indexes into [`Text::lines`]. The lines of
/// the parts keep their numbers.
pub(crate) fn split(text: &Text, starts: &[usize]) -> Vec<Text> {
    let mut starts = starts.iter().copied().filter(|start| *start > 0).peekable();
    let part = |first_line| Text { clean: String::new(), cut: false, first_line };
    let mut parts = vec![part(text.first_line)];
    let ends = text.clean.split_inclusive(['\n', '\r']);
    for (at, ((number, _), line)) in text.lines().zip(ends).enumerate() {
        if starts.next_if_eq(&at).is_some() {
            parts.push(part(number));
        }
        if let Some(part) = parts.last_mut() {
            part.clean.push_str(line);
        }
    }
    if let Some(last) = parts.last_mut() {
        last.cut = text.cut;
    }
    parts
}

/// Decodes UTF-8, or UTF-16 with a byte order mark, as redirected by Windows PowerShell.
fn decode(bytes: &[u8]) -> Cow<'_, str> {
    let utf16 = |rest: &[u8], unit: fn([u8; 2]) -> u16| {
        let units = rest.chunks_exact(2).map(|pair| unit([pair[0], pair[1]]));
        char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
    };
    match bytes {
        [0xff, 0xfe, rest @ ..] => Cow::Owned(utf16(rest, u16::from_le_bytes)),
        [0xfe, 0xff, rest @ ..] => Cow::Owned(utf16(rest, u16::from_be_bytes)),
        _ => String::from_utf8_lossy(without_cut_character(bytes)),
    }
}

/// Drops the last character if the text ends in the middle of it.
fn without_cut_character(bytes: &[u8]) -> &[u8] {
    (1..=3)
        .filter_map(|length| bytes.split_at_checked(bytes.len().checked_sub(length)?))
        .find(|(_, last)| std::str::from_utf8(last).is_err_and(|e| e.error_len().is_none()))
        .map_or(bytes, |(whole, _)| whole)
}

/// Removes the mark that makes every line a comment, as in notes and scripts.
///
/// The headings of `nvidia-smi dmon` and `pmon` start with the same mark; a text that has only such
/// headings keeps it.
fn without_comment_sign(text: &str) -> Cow<'_, str> {
    const HEADINGS: [&str; 6] = ["gpu", "Idx", "Date", "Time", "YYYYMMDD", "HH:MM:SS"];
    let lines = || text.lines().filter(|line| !line.trim().is_empty());
    let all = lines().nth(1).is_some() && lines().all(|line| line.starts_with('#'));
    let heading = |line: &str| {
        line.trim_start_matches('#').split_whitespace().next().is_none_or(|w| HEADINGS.contains(&w))
    };
    if !all || lines().all(heading) {
        return Cow::Borrowed(text);
    }
    let bare = |line: &str| {
        let rest = line.strip_prefix('#').unwrap_or(line);
        rest.strip_prefix(' ').unwrap_or(rest).to_owned()
    };
    Cow::Owned(text.split_inclusive('\n').map(bare).collect())
}

struct Cleaner {
    out: String,
    /// The byte offset of the last line.
    line: usize,
    /// The byte offset up to which the characters of the line were counted, and their number.
    counted: (usize, usize),
    bound: usize,
    cut: bool,
}

impl Cleaner {
    fn run(&mut self, text: &str) {
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            if self.out.len() >= self.bound {
                self.cut = true;
                return;
            }
            match c {
                '\n' => self.end_line(c),
                '\t' => self.out.push(c),
                '\r' if matches!(chars.peek(), Some('\n' | '\r')) => {}
                '\r' | '\u{85}' | '\u{2028}' | '\u{2029}' => self.end_line('\r'),
                '\x1b' => self.escape(&mut chars),
                '\u{9b}' => self.control_sequence(&mut chars),
                '\u{a0}' => self.out.push(' '),
                '\u{feff}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' => {}
                '<' if self.tag(&mut chars) => {}
                '&' if skip(&mut chars, "nbsp;") => self.out.push(' '),
                '>' if self.line == self.out.len() && quotes(&mut chars) => {}
                c if c.is_control() => {}
                c => self.out.push(c),
            }
        }
    }

    fn end_line(&mut self, end: char) {
        self.out.push(end);
        self.line = self.out.len();
    }

    /// Handles the line breaks of a web page; any other tag is left to the caller.
    fn tag(&mut self, chars: &mut Peekable<Chars<'_>>) -> bool {
        const BREAKS: [&str; 5] = ["br>", "br/>", "br />", "BR>", "BR/>"];
        const NOTHING: [&str; 8] = ["p>", "/p>", "P>", "/P>", "pre>", "/pre>", "code>", "/code>"];
        if BREAKS.iter().any(|tag| skip(chars, tag)) {
            self.end_line('\r');
            return true;
        }
        NOTHING.iter().any(|tag| skip(chars, tag))
    }

    /// Handles the text after an escape character.
    fn escape(&mut self, chars: &mut Peekable<Chars<'_>>) {
        match chars.peek() {
            Some('[') => {
                chars.next();
                self.control_sequence(chars);
            }
            Some(']' | 'P' | 'X' | '^' | '_') => {
                // A string, up to BEL or ESC \; an unterminated one ends with its line.
                while let Some(c) = chars.next_if(|c| !matches!(c, '\n' | '\r')) {
                    if c == '\x07' || (c == '\x1b' && chars.next_if_eq(&'\\').is_some()) {
                        break;
                    }
                }
            }
            _ => {
                while chars.next_if(|c| matches!(c, ' '..='/')).is_some() {}
                chars.next_if(|c| matches!(c, '0'..='~'));
            }
        }
    }

    /// Handles a control sequence after its introducer; executes movements to the right and
    /// repetitions; a movement to another line becomes a line break.
    fn control_sequence(&mut self, chars: &mut Peekable<Chars<'_>>) {
        let mut parameters = [None::<usize>; 2];
        let mut at = 0;
        while let Some(c) = chars.next_if(|c| matches!(c, ' '..='?')) {
            match c.to_digit(10) {
                Some(digit) => {
                    if let Some(value) = parameters.get_mut(at) {
                        let digits = value.unwrap_or(0).saturating_mul(10);
                        *value = Some(digits.saturating_add(digit as usize));
                    }
                }
                None => at += usize::from(c == ';'),
            }
        }
        let [first, second] = parameters.map(|p| p.unwrap_or(1).clamp(1, MAX_MOVE));
        match chars.next_if(|c| matches!(c, '@'..='~')) {
            Some('C') => self.repeat(' ', first),
            Some('b') => {
                let last = self.out.chars().next_back().filter(|c| !c.is_control());
                self.repeat(last.unwrap_or(' '), first);
            }
            Some('G') => self.pad_to(first),
            Some('H' | 'f') => {
                self.break_line();
                self.pad_to(second);
            }
            Some('B' | 'E' | 'd') => self.break_line(),
            _ => {}
        }
    }

    fn break_line(&mut self) {
        if self.line < self.out.len() {
            self.end_line('\r');
        }
    }

    /// Fills the line up to the cell before `column`, from 1.
    fn pad_to(&mut self, column: usize) {
        let (to, before) = match self.counted {
            (to, count) if to >= self.line => (to, count),
            _ => (self.line, 0),
        };
        let new = self.out.get(to..).unwrap_or_default();
        work_meter::add(new.len());
        let length = before + new.chars().count();
        self.counted = (self.out.len(), length);
        self.repeat(' ', column.saturating_sub(1).saturating_sub(length));
    }

    fn repeat(&mut self, c: char, times: usize) {
        self.out.extend(std::iter::repeat_n(c, times));
    }
}

/// Takes `word` if it comes next.
fn skip(chars: &mut Peekable<Chars<'_>>, word: &str) -> bool {
    let mut ahead = chars.clone();
    let found = word.chars().all(|c| ahead.next() == Some(c));
    if found {
        *chars = ahead;
    }
    found
}

/// Takes the rest of a mail's quote marks, `> ` or `>> `, after the first `>` of a line.
fn quotes(chars: &mut Peekable<Chars<'_>>) -> bool {
    let mut ahead = chars.clone();
    loop {
        let blank = ahead.next_if_eq(&' ').is_some();
        if ahead.next_if_eq(&'>').is_some() {
            continue;
        }
        if !blank {
            return false;
        }
        *chars = ahead;
        return true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lines(bytes: &[u8]) -> Vec<(usize, String)> {
        clean(bytes).lines().map(|(n, l)| (n, l.to_owned())).collect()
    }

    fn only(bytes: &[u8]) -> String {
        let text = clean(bytes);
        assert_eq!(text.lines().count(), 1, "{text:?}");
        text.as_str().to_owned()
    }

    #[test]
    fn all_line_endings_are_accepted() {
        let want = [(1, "a".to_owned()), (2, String::new()), (3, "b".to_owned())];
        assert_eq!(lines(b"a\n\nb\n"), want);
        assert_eq!(lines(b"a\r\n\r\nb"), want);
        assert_eq!(lines(b""), []);
    }

    #[test]
    fn split_parts_keep_line_numbers() {
        let whole = clean(b"a\n\nb\rc\nd");
        let parts = split(&whole, &[0, 2, 4]);
        let lines: Vec<Vec<_>> = parts.iter().map(|part| part.lines().collect()).collect();
        assert_eq!(lines, [vec![(1, "a"), (2, "")], vec![(3, "b"), (3, "c")], vec![(4, "d")]]);
        assert_eq!(split(&whole, &[]), [whole]);
    }

    #[test]
    fn carriage_return_progress_keeps_line_number() {
        let want = [(1, "10%"), (1, "20%"), (2, "end")].map(|(n, l)| (n, l.to_owned()));
        assert_eq!(lines(b"10%\r20%\nend"), want);
    }

    #[test]
    fn escape_sequences_are_removed() {
        assert_eq!(only(b"\x1b[01;31m\x1b[KERR!\x1b[m\x1b[K |"), "ERR! |");
        assert_eq!(only(b"\x1b]0;a title\x07x\x1b]8;;http://a\x1b\\y"), "xy");
        assert_eq!(only(b"\x1b(Bx\x1b=\x1b>y\x08"), "xy");
        assert_eq!(lines(b"\x1b]0;no end\nx"), [(1, String::new()), (2, "x".to_owned())]);
    }

    #[test]
    fn cursor_movements_are_applied() {
        assert_eq!(only(b"| 0\x1b[4CName\x1b[3b |"), "| 0    Nameeee |");
        assert_eq!(only(b"ab\x1b[6Gc"), "ab   c");
        assert_eq!(
            lines(b"a\x1b[2;3Hb\x1b[3dc"),
            [(1, "a"), (1, "  b"), (1, "c")].map(|(n, l)| (n, l.to_owned()))
        );
    }

    #[test]
    fn byte_order_marks_and_utf16_are_decoded() {
        assert_eq!(only(b"\xef\xbb\xbfGPU"), "GPU");
        assert_eq!(only(b"\xff\xfeG\0P\0U\0"), "GPU");
        assert_eq!(only(b"\xfe\xff\0G\0P\0U"), "GPU");
        assert_eq!(only(b"a\xffb"), "a\u{fffd}b");
        assert_eq!(only(b"a\xff"), "a\u{fffd}");
        assert_eq!(only(b"a\xf0\x9f\x98"), "a");
        assert_eq!(only("a\u{1f600}".as_bytes()), "a\u{1f600}");
        assert_eq!(only("a\u{a0}\u{200b}b&nbsp;c\tD".as_bytes()), "a b c\tD");
    }

    #[test]
    fn html_breaks_become_lines_and_xml_is_kept() {
        assert_eq!(lines(b"<p>a<br>b</p>"), [(1, "a".to_owned()), (1, "b".to_owned())]);
        let xml = "<pci><process_info>a &gt; b</process_info></pci>";
        assert_eq!(only(xml.as_bytes()), xml);
    }

    #[test]
    fn comment_prefix_on_every_line_is_removed_but_headers_keep_theirs() {
        let text = |bytes: &str| clean(bytes.as_bytes()).as_str().to_owned();
        assert_eq!(text("# a\n#\n#  b\n"), "a\n\n b\n");
        assert_eq!(text("# a\nb\n"), "# a\nb\n");
        assert_eq!(text("# gpu  pwr\n# Idx  W\n"), "# gpu  pwr\n# Idx  W\n");
        assert_eq!(text("# # gpu  pwr\n#   0   35\n"), "# gpu  pwr\n  0   35\n");
        assert_eq!(text("# one line\n"), "# one line\n");
    }

    #[test]
    fn mail_quotes_are_removed_but_other_angle_brackets_kept() {
        assert_eq!(only(b"> > | 0 |"), "| 0 |");
        assert_eq!(only(b">> | 0 |"), "| 0 |");
        assert_eq!(only(b">x"), ">x");
        assert_eq!(only(b"a > b"), "a > b");
    }

    #[test]
    fn oversized_text_is_truncated_and_marked() {
        let text = clean_within(b"abcdef", 5);
        assert_eq!((text.as_str(), text.is_cut()), ("abcde", true));
        assert!(!clean_within(b"abcde", 5).is_cut());
        let grown = clean_within(&b"\x1b[500C".repeat(100), 1000);
        assert!(grown.is_cut() && grown.as_str().len() < 1000 + MAX_MOVE);
    }

    #[test]
    fn every_escape_sequence_has_its_effect() {
        for (bytes, want) in [
            ("a\x1b[2Cb", "a  b"),
            ("a\x1b[Cb", "a b"),
            ("a\x1b[0Cb", "a b"),
            ("ab\x1b[2bc", "abbbc"),
            ("\x1b[2bc", "  c"),
            ("\u{9b}3Ca", "   a"),
            ("a\x1b[3Gb", "a b"),
            ("abc\x1b[2Gd", "abcd"),
            ("é\x1b[3Gb\x1b[5Gc", "é b c"),
            ("\x1b[1;3Hb", "  b"),
            ("\x1b[1;3fb", "  b"),
            ("\x1b[9;9;9Hb", "        b"),
            ("\x1b[?25lb", "b"),
            ("\x1bPx\x1b\\a", "a"),
            ("\x1bXx\x07a", "a"),
            ("\x1b^x\x07a", "a"),
            ("\x1b_x\x1bx\x07a", "a"),
            ("\x1b#8a", "a"),
            ("\x1b Fa", "a"),
            ("a\u{200b}\u{200f}\u{202a}\u{202e}\u{feff}b", "ab"),
            ("a\u{7f}\x08b", "ab"),
            ("&nbsp;&nbsq;", " &nbsq;"),
            ("<P>a</pre><code>b</CODE>", "ab</CODE>"),
            (">>> a", "a"),
            ("> >a", "> >a"),
            ("a> b", "a> b"),
        ] {
            assert_eq!(only(bytes.as_bytes()), want, "{bytes:?}");
        }
        for bytes in [
            "a\x1b[Bb",
            "a\x1b[Eb",
            "a\x1b[db",
            "a\x1b[Hb",
            "a<br>b",
            "a<BR/>b",
            "a<br />b",
            "a\rb",
            "a\u{85}b",
            "a\u{2028}b",
            "a\u{2029}b",
        ] {
            assert_eq!(
                lines(bytes.as_bytes()),
                [(1, "a".to_owned()), (1, "b".to_owned())],
                "{bytes:?}"
            );
        }
        assert_eq!(only(b"\x1b[Ba"), "a", "an empty line is not ended");
        let far = only(b"\x1b[9999Ca");
        assert_eq!(far.len(), MAX_MOVE + 1);
        assert_eq!(lines(b"ab\x1b[2;2Hc\n\x1b[3Gd").last(), Some(&(2, "  d".to_owned())));
    }

    #[test]
    fn open_line_is_one_without_an_end() {
        let open = |bytes: &[u8]| clean(bytes).open_line();
        assert_eq!(
            (open(b"a\nb"), open(b"a\nb\n"), open(b"a\r"), open(b"")),
            (Some(2), None, None, None)
        );
    }

    proptest! {
        #[test]
        fn cleaned_text_has_no_control_characters(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let text = clean(&bytes);
            prop_assert!(text.lines().all(|(_, l)| l.chars().all(|c| c == '\t' || !c.is_control())));
            let newlines = bytes.iter().filter(|b| **b == b'\n').count();
            if !bytes.starts_with(b"\xff\xfe") && !bytes.starts_with(b"\xfe\xff") {
                prop_assert!(text.lines().all(|(n, _)| (1..=newlines + 1).contains(&n)));
            }
        }

        #[test]
        fn plain_lines_are_unchanged(plain in "[ -;=?-~]{1,40}(\n[ -;=?-~]{1,40}){0,5}") {
            prop_assume!(!plain.contains("&nbsp;"));
            let text = clean(plain.as_bytes());
            prop_assert_eq!(text.as_str(), plain.as_str());
        }
    }
}
