//! JSON that is safe to print on a terminal.

use gpu_core::acts;
use serde::Serialize;
use serde_json::ser::{CharEscape, CompactFormatter, Formatter, PrettyFormatter, Serializer};
use std::io::{self, Write};

/// Writes an object as indented JSON with a final newline. Characters that can control a terminal
/// are escaped, which does not change the JSON value.
///
/// # Errors
/// If the object cannot be serialized, or the output cannot be written.
pub fn write(out: &mut dyn Write, object: &impl Serialize) -> io::Result<()> {
    // Buffered, so that a reader never sees part of an object that fails to serialize.
    let mut bytes = Vec::new();
    let harmless = Escaped { inner: PrettyFormatter::new(), escapes: acts, line_end: "\n" };
    object.serialize(&mut Serializer::with_formatter(&mut bytes, harmless))?;
    bytes.push(b'\n');
    out.write_all(&bytes)
}

/// Writes an object as Python's `json.dump(…, indent=4)` does, with non-ASCII characters escaped.
///
/// # Errors
/// If the object cannot be serialized, or the output cannot be written.
pub fn write_as_python(out: &mut dyn Write, object: &impl Serialize) -> io::Result<()> {
    let mut bytes = Vec::new();
    let inner = PrettyFormatter::with_indent(b"    ");
    let ascii = Escaped { inner, escapes: is_not_printed, line_end: "\n" };
    object.serialize(&mut Serializer::with_formatter(&mut bytes, ascii))?;
    bytes.push(b'\n');
    out.write_all(&bytes)
}

/// Returns an object as one line of printable ASCII, for a log.
///
/// # Errors
/// If the object cannot be serialized.
pub fn one_line(object: &impl Serialize) -> serde_json::Result<String> {
    let mut bytes = Vec::new();
    let ascii = Escaped { inner: CompactFormatter, escapes: is_not_printed, line_end: "" };
    object.serialize(&mut Serializer::with_formatter(&mut bytes, ascii))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn is_not_printed(character: char) -> bool {
    !matches!(character, ' '..='~')
}

/// A formatter that escapes some characters in all strings.
struct Escaped<F> {
    inner: F,
    escapes: fn(char) -> bool,
    /// The replacement for a line end in raw JSON.
    line_end: &'static str,
}

impl<F: Formatter> Formatter for Escaped<F> {
    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        out: &mut W,
        text: &str,
    ) -> io::Result<()> {
        let mut rest = text;
        while let Some(at) = rest.find(self.escapes) {
            let (shown, harmful) = rest.split_at(at);
            out.write_all(shown.as_bytes())?;
            let mut characters = harmful.chars();
            if let Some(character) = characters.next() {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    write!(out, "\\u{unit:04x}")?;
                }
            }
            rest = characters.as_str();
        }
        out.write_all(rest.as_bytes())
    }

    /// Writes raw JSON with the same escapes: it has these characters only in its strings, and
    /// blanks only between its tokens.
    fn write_raw_fragment<W: ?Sized + Write>(
        &mut self,
        out: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        for line in fragment.split_inclusive('\n') {
            for piece in line.split(['\n', '\r', '\t']) {
                self.write_string_fragment(out, piece)?;
            }
            out.write_all(if line.ends_with('\n') { self.line_end } else { "" }.as_bytes())?;
        }
        Ok(())
    }

    fn write_char_escape<W: ?Sized + Write>(
        &mut self,
        out: &mut W,
        escape: CharEscape,
    ) -> io::Result<()> {
        self.inner.write_char_escape(out, escape)
    }
    fn begin_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.inner.begin_array(out)
    }
    fn end_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.inner.end_array(out)
    }
    fn begin_array_value<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.inner.begin_array_value(out, first)
    }
    fn end_array_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.inner.end_array_value(out)
    }
    fn begin_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.inner.begin_object(out)
    }
    fn end_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.inner.end_object(out)
    }
    fn begin_object_key<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.inner.begin_object_key(out, first)
    }
    fn begin_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.inner.begin_object_value(out)
    }
    fn end_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.inner.end_object_value(out)
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn python_style_json_escapes_non_ascii() {
        let mut out = Vec::new();
        super::write_as_python(&mut out, &["é\u{e0041}\x1b\n\"".to_owned()]).unwrap();
        let written = String::from_utf8(out).unwrap();
        assert_eq!(written, "[\n    \"\\u00e9\\udb40\\udc41\\u001b\\n\\\"\"\n]\n");
        assert_eq!(super::one_line(&["é"]).unwrap(), "[\"\\u00e9\"]");
    }

    #[test]
    fn escaped_json_round_trips() {
        let text = "a\"\\\n\x1b\u{7f}\u{9b}\u{202e}\u{e0041}é";
        let mut out = Vec::new();
        super::write(&mut out, &[text]).unwrap();
        let written = String::from_utf8(out).unwrap();
        assert_eq!(
            written,
            "[\n  \"a\\\"\\\\\\n\\u001b\\u007f\\u009b\\u202e\\udb40\\udc41é\"\n]\n"
        );
        assert_eq!(serde_json::from_str::<Vec<String>>(&written).unwrap(), [text]);
    }

    #[test]
    fn json_of_others_is_escaped_and_stays_itself() {
        let text = "{\r\n\t\"a\u{9b}\u{202e}\": [\r1,\n \"\\n\u{7f}é\"]\t}";
        let raw: &serde_json::value::RawValue = serde_json::from_str(text).unwrap();
        let mut out = Vec::new();
        super::write(&mut out, &[raw]).unwrap();
        let written = String::from_utf8(out).unwrap();
        assert_eq!(written, "[\n  {\n\"a\\u009b\\u202e\": [1,\n \"\\n\\u007fé\"]}\n]\n");
        let line = super::one_line(&raw).unwrap();
        assert_eq!(line, "{\"a\\u009b\\u202e\": [1, \"\\n\\u007f\\u00e9\"]}");
        for written in [&written[1..written.len() - 2], &line] {
            let value: serde_json::Value = serde_json::from_str(written).unwrap();
            assert_eq!(value, serde_json::from_str::<serde_json::Value>(text).unwrap());
        }
    }
}
