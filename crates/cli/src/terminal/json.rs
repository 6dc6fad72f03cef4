//! JSON that is harmless on a terminal too.

use super::clean::is_harmful;
use serde::Serialize;
use serde_json::ser::{CharEscape, Formatter, PrettyFormatter, Serializer};
use std::io::{self, Write};

/// Writes an object with indentation and a line end. Characters that could act on a terminal are
/// escaped, which changes nothing for who reads the JSON.
pub(super) fn write(out: &mut dyn Write, object: &impl Serialize) -> io::Result<()> {
    // Kept together, so that a reader never sees a part of an object that then fails.
    let mut bytes = Vec::new();
    let harmless = Harmless(PrettyFormatter::new());
    object.serialize(&mut Serializer::with_formatter(&mut bytes, harmless))?;
    bytes.push(b'\n');
    out.write_all(&bytes)
}

struct Harmless(PrettyFormatter<'static>);

impl Formatter for Harmless {
    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        out: &mut W,
        text: &str,
    ) -> io::Result<()> {
        let mut rest = text;
        while let Some(at) = rest.find(is_harmful) {
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

    fn write_char_escape<W: ?Sized + Write>(
        &mut self,
        out: &mut W,
        escape: CharEscape,
    ) -> io::Result<()> {
        self.0.write_char_escape(out, escape)
    }
    fn begin_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.begin_array(out)
    }
    fn end_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_array(out)
    }
    fn begin_array_value<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_array_value(out, first)
    }
    fn end_array_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_array_value(out)
    }
    fn begin_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.begin_object(out)
    }
    fn end_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_object(out)
    }
    fn begin_object_key<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_object_key(out, first)
    }
    fn begin_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.begin_object_value(out)
    }
    fn end_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_object_value(out)
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn harmful_text_is_escaped_and_reads_back_unchanged() {
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
}
