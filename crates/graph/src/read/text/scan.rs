//! The tokens of protobuf's text form.

use std::ops::Neg;
use std::str::FromStr;

/// A text and a place in it. Errors are fragments; the caller knows the place.
#[derive(Debug)]
pub(super) struct Scan<'a> {
    file: &'a [u8],
    at: usize,
}

impl<'a> Scan<'a> {
    pub(super) fn new(file: &'a [u8]) -> Scan<'a> {
        Scan { file, at: 0 }
    }

    pub(super) fn file(&self) -> &'a [u8] {
        self.file
    }

    pub(super) fn at(&self) -> usize {
        self.at
    }

    pub(super) fn back_to(&mut self, at: usize) {
        self.at = at;
    }

    pub(super) fn peek(&self) -> Option<u8> {
        self.file.get(self.at).copied()
    }

    pub(super) fn advance(&mut self) {
        self.at = (self.at + 1).min(self.file.len());
    }

    pub(super) fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        if found {
            self.advance();
        }
        found
    }

    /// Skips blanks and comments.
    pub(super) fn blanks(&mut self) {
        while let Some(byte) = self.peek() {
            match byte {
                b' ' | b'\t' | b'\r' | b'\n' | 0x0b | 0x0c => self.advance(),
                b'#' => drop(self.taken(|byte| byte != b'\n')),
                _ => break,
            }
        }
    }

    fn taken(&mut self, takes: impl Fn(u8) -> bool) -> &'a [u8] {
        let rest = self.file.get(self.at..).unwrap_or_default();
        let length = rest.iter().position(|byte| !takes(*byte)).unwrap_or(rest.len());
        self.at += length;
        rest.get(..length).unwrap_or_default()
    }

    /// Takes a name; `None` if there is none.
    pub(super) fn word(&mut self) -> Option<&'a str> {
        match self.peek() {
            Some(b'a'..=b'z' | b'A'..=b'Z' | b'_') => {
                let word = self.taken(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
                std::str::from_utf8(word).ok()
            }
            _ => None,
        }
    }

    /// Takes the name of an extension and the bracket after it.
    pub(super) fn extension(&mut self) -> Result<(), String> {
        self.taken(|byte| byte.is_ascii_alphanumeric() || b"._/-%~ ".contains(&byte));
        if self.eat(b']') { Ok(()) } else { Err("expected the name of an extension".to_owned()) }
    }

    /// Takes a number or a name, with its sign.
    pub(super) fn scalar(&mut self) -> Result<&'a str, String> {
        let start = self.at;
        if self.eat(b'-') {
            self.blanks();
        }
        while let Some(byte) = self.peek() {
            let exponent = matches!(byte, b'+' | b'-')
                && self
                    .at
                    .checked_sub(1)
                    .and_then(|at| self.file.get(at))
                    .is_some_and(|before| matches!(before, b'e' | b'E'))
                && self.file.get(start).is_some_and(|first| !first.is_ascii_alphabetic());
            if !byte.is_ascii_alphanumeric() && !matches!(byte, b'_' | b'.') && !exponent {
                break;
            }
            self.advance();
        }
        let scalar = self.file.get(start..self.at).unwrap_or_default();
        match std::str::from_utf8(scalar) {
            Ok(scalar) if !scalar.is_empty() => Ok(scalar),
            _ => Err("expected a value".to_owned()),
        }
    }

    pub(super) fn int(&mut self) -> Result<i64, String> {
        self.blanks();
        let start = self.at;
        let token = self.scalar()?;
        let (negative, digits) = match token.strip_prefix('-') {
            Some(digits) => (true, digits.trim_start()),
            None => (false, token),
        };
        let hexadecimal = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"));
        let (digits, radix) = match hexadecimal {
            Some(digits) => (digits, 16),
            None if digits.len() > 1 && digits.starts_with('0') => (digits, 8),
            None => (digits, 10),
        };
        let number = u64::from_str_radix(digits, radix).ok().map(i128::from);
        let number = number.map(|number| if negative { -number } else { number });
        let number = number.filter(|_| !digits.starts_with('+'));
        let valid = number.and_then(|number| i64::try_from(number).ok());
        valid.ok_or_else(|| {
            self.at = start;
            format!("expected a whole number of 64 bits, found '{token}'")
        })
    }

    pub(super) fn float<F: FromStr + Neg<Output = F>>(&mut self) -> Result<F, String> {
        self.blanks();
        let start = self.at;
        let token = self.scalar()?;
        let digits = token.strip_prefix('-').unwrap_or(token).trim_start();
        let number = match digits.strip_suffix(['f', 'F']) {
            // `inf` also ends in `f`.
            Some(number)
                if digits.starts_with(|first: char| first.is_ascii_digit() || first == '.') =>
            {
                number.parse::<F>()
            }
            _ => digits.parse(),
        };
        let number = number.map_err(|_| {
            self.at = start;
            format!("expected a number, found '{token}'")
        })?;
        Ok(if token.starts_with('-') { -number } else { number })
    }

    /// Takes consecutive strings and returns their bytes, if they are wanted.
    pub(super) fn string(&mut self, wanted: bool) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::new();
        while let Some(quote @ (b'"' | b'\'')) = self.peek() {
            self.advance();
            loop {
                let plain = self.taken(|byte| byte != quote && byte != b'\\' && byte != b'\n');
                if wanted {
                    bytes.extend_from_slice(plain);
                }
                match self.peek() {
                    Some(b'\\') => {
                        self.advance();
                        let escaped = self.escaped()?;
                        if wanted {
                            escaped.push_to(&mut bytes);
                        }
                    }
                    Some(byte) if byte == quote => {
                        self.advance();
                        break;
                    }
                    _ => return Err("expected the end of a string".to_owned()),
                }
            }
            self.blanks();
        }
        Ok(bytes)
    }

    fn escaped(&mut self) -> Result<Escaped, String> {
        let kind = self.peek().ok_or("expected an escape sequence")?;
        self.advance();
        Ok(Escaped::Byte(match kind {
            b'a' => 7,
            b'b' => 8,
            b't' => 9,
            b'n' => 10,
            b'v' => 11,
            b'f' => 12,
            b'r' => 13,
            b'\\' | b'\'' | b'"' | b'?' => kind,
            b'0'..=b'7' => {
                self.at -= 1;
                let number = self.digits(8, 1, 3)?;
                u8::try_from(number).map_err(|_| "an escaped byte above 255")?
            }
            b'x' | b'X' => u8::try_from(self.digits(16, 1, 2)?).unwrap_or_default(),
            b'u' | b'U' => {
                let digits = if kind == b'u' { 4 } else { 8 };
                let number = self.digits(16, digits, digits)?;
                let char = char::from_u32(number).ok_or("an invalid escaped character")?;
                return Ok(Escaped::Char(char));
            }
            _ => return Err("unknown escape sequence".to_owned()),
        }))
    }

    fn digits(&mut self, radix: u32, least: usize, most: usize) -> Result<u32, String> {
        let mut number = 0;
        for index in 0..most {
            match self.peek().and_then(|byte| char::from(byte).to_digit(radix)) {
                Some(digit) => number = number * radix + digit,
                None if index < least => return Err("expected a digit".to_owned()),
                None => break,
            }
            self.advance();
        }
        Ok(number)
    }

    /// Skips a message or a list.
    pub(super) fn nested(&mut self, depth: usize) -> Result<(), String> {
        let mut closers = Vec::new();
        loop {
            self.blanks();
            let byte = self.peek().ok_or("expected the end of a message")?;
            match byte {
                b'{' => closers.push(b'}'),
                b'<' => closers.push(b'>'),
                b'[' => closers.push(b']'),
                b'}' | b'>' | b']' => match closers.pop() {
                    Some(closer) if closer == byte => {}
                    _ => return Err(format!("unexpected '{}'", char::from(byte))),
                },
                b'"' | b'\'' => {
                    self.string(false)?;
                    continue;
                }
                _ => {}
            }
            self.advance();
            if closers.is_empty() {
                return Ok(());
            }
            // A list is a separate level here, unlike where its messages are read.
            if closers.len() > depth.saturating_mul(2) {
                return Err("messages nest too deep".to_owned());
            }
        }
    }
}

enum Escaped {
    Byte(u8),
    Char(char),
}

impl Escaped {
    fn push_to(&self, bytes: &mut Vec<u8>) {
        match self {
            Escaped::Byte(byte) => bytes.push(*byte),
            Escaped::Char(char) => {
                bytes.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipped_messages_may_nest_twice_as_deep_as_read_ones() {
        let skipped = |text: &str| {
            let mut scan = Scan::new(text.as_bytes());
            scan.nested(2).map(|()| scan.at())
        };
        // A bracket in a text or a comment is none.
        assert_eq!(skipped("{ a: '}' b <[{ # }\n}]> } c"), Ok(24));
        let refused = |text: &str| skipped(text).unwrap_err();
        assert_eq!(refused("{{{{{}}}}}"), "messages nest too deep");
        assert_eq!(refused("{ a <} >"), "unexpected '}'");
        assert_eq!(refused("{ a < >"), "expected the end of a message");
    }
}
