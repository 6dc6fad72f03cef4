//! Protobuf's text form.
//!
//! The grammar is that of protobuf's text format specification: messages in `{}` or `<>`, lists in
//! `[]`, strings that continue in the next string, numbers in three bases, comments, and separators
//! that may be left out. Fields are read in place; no tree is built.

mod scan;

use super::Form;
use super::error::{Location, ReadError, Reason};
use super::limit::{Budget, Limits};
use super::message::{Fields, Message};
use crate::dtype::ValueType;
use scan::Scan;

/// A file in protobuf's text form.
#[derive(Debug)]
pub(super) struct Text<'a> {
    scan: Scan<'a>,
    form: Form,
    /// The messages around this position; the first is the file.
    levels: Vec<Level>,
    budget: Budget,
}

#[derive(Clone, Copy, Debug)]
struct Level {
    /// The token that ends the message; none for the file.
    closer: Option<u8>,
    /// The field that contains the list around this position.
    list: Option<u32>,
}

impl<'a> Text<'a> {
    /// Starts at the first field of a file.
    ///
    /// # Errors
    /// If the file is too large.
    pub(super) fn new(file: &'a [u8], form: Form, limits: &Limits) -> Result<Self, ReadError> {
        let failed = |reason| ReadError { form: Some(form), location: Location::Whole, reason };
        let budget = Budget::new(file, limits).map_err(failed)?;
        let levels = vec![Level { closer: None, list: None }];
        Ok(Text { scan: Scan::new(file), form, levels, budget })
    }

    fn found<T>(&self, result: Result<T, String>) -> Result<T, ReadError> {
        result.map_err(|reason| self.error(Reason::malformed(reason)))
    }

    fn expected<T>(&self, what: &str) -> Result<T, ReadError> {
        let found = match self.scan.peek() {
            Some(byte) if byte.is_ascii_graphic() => format!("'{}'", char::from(byte)),
            Some(byte) => format!("byte {byte}"),
            None => "the end".to_owned(),
        };
        self.found(Err(format!("expected {what}, found {found}")))
    }

    fn level(&self) -> Level {
        self.levels.last().copied().unwrap_or(Level { closer: None, list: None })
    }

    fn set_list(&mut self, list: Option<u32>) {
        if let Some(level) = self.levels.last_mut() {
            level.list = list;
        }
    }

    /// Moves to the next item of the list around this position, or past the list.
    fn item(&mut self, field: u32) -> Result<Option<u32>, ReadError> {
        self.scan.blanks();
        if self.scan.eat(b',') {
            self.scan.blanks();
            return Ok(Some(field));
        }
        if !self.scan.eat(b']') {
            return self.expected("',' or ']'");
        }
        self.set_list(None);
        self.separator();
        Ok(None)
    }

    /// Takes the name of a field; `None` for the name of an extension.
    fn name(&mut self) -> Result<Option<&'a str>, ReadError> {
        if self.scan.eat(b'[') {
            let name = self.scan.extension();
            return self.found(name).map(|()| None);
        }
        match self.scan.word() {
            Some(name) => Ok(Some(name)),
            None => self.expected("the name of a field"),
        }
    }

    /// Skips a value.
    fn step_over(&mut self) -> Result<(), ReadError> {
        self.scan.blanks();
        match self.scan.peek() {
            Some(b'{' | b'<' | b'[') => {
                let depth = self.budget.depth().saturating_sub(self.levels.len());
                let stepped = self.scan.nested(depth);
                self.found(stepped)
            }
            Some(b'"' | b'\'') => {
                let string = self.scan.string(false);
                self.found(string).map(drop)
            }
            _ => {
                let scalar = self.scan.scalar();
                self.found(scalar).map(drop)
            }
        }
    }

    fn string(&mut self) -> Result<Vec<u8>, ReadError> {
        self.scan.blanks();
        if !matches!(self.scan.peek(), Some(b'"' | b'\'')) {
            return self.expected("a string");
        }
        let string = self.scan.string(true);
        self.found(string)
    }
}

impl Message for Text<'_> {
    fn next(&mut self, fields: Fields) -> Result<Option<u32>, ReadError> {
        loop {
            if let Some(field) = self.level().list
                && let Some(field) = self.item(field)?
            {
                return Ok(Some(field));
            }
            self.scan.blanks();
            let closer = self.level().closer;
            match (self.scan.peek(), closer) {
                (None, None) => return Ok(None),
                (Some(byte), Some(closer)) if byte == closer => {
                    self.scan.eat(closer);
                    self.levels.pop();
                    self.separator();
                    return Ok(None);
                }
                (None, Some(_)) => return self.expected("the end of a message"),
                _ => {}
            }
            let start = self.scan.at();
            let name = self.name()?;
            self.scan.blanks();
            let colon = self.scan.eat(b':');
            self.scan.blanks();
            let Some(name) = name else {
                self.step_over()?;
                self.separator();
                continue;
            };
            let Some((field, ..)) = fields.iter().find(|(_, known, _)| *known == name) else {
                self.scan.back_to(start);
                return self.found(Err(format!("unknown field '{name}'")));
            };
            if !colon && !matches!(self.scan.peek(), Some(b'{' | b'<')) {
                return self.expected("':' or a message");
            }
            if self.scan.eat(b'[') {
                self.scan.blanks();
                if self.scan.eat(b']') {
                    self.separator();
                    continue;
                }
                self.set_list(Some(*field));
            }
            return Ok(Some(*field));
        }
    }

    fn enter(&mut self) -> Result<(), ReadError> {
        self.scan.blanks();
        let closer = match self.scan.peek() {
            Some(b'{') => b'}',
            Some(b'<') => b'>',
            _ => return self.expected("a message"),
        };
        if self.levels.len() > self.budget.depth() {
            let limit = self.budget.depth() as u64;
            return Err(self.error(Reason::Limit { what: "nested messages", limit }));
        }
        self.scan.advance();
        self.levels.push(Level { closer: Some(closer), list: None });
        Ok(())
    }

    fn text(&mut self) -> Result<String, ReadError> {
        let bytes = self.string()?;
        let text = String::from_utf8(bytes).map_err(|_| "text that is not UTF-8".to_owned());
        let text = self.found(text)?;
        self.separator();
        Ok(text)
    }

    fn bytes(&mut self) -> Result<Vec<u8>, ReadError> {
        let bytes = self.string()?;
        self.separator();
        Ok(bytes)
    }

    fn int(&mut self) -> Result<i64, ReadError> {
        let int = self.scan.int();
        let int = self.found(int)?;
        self.separator();
        Ok(int)
    }

    fn float(&mut self) -> Result<f64, ReadError> {
        let float = self.scan.float::<f32>();
        let float = self.found(float)?;
        self.separator();
        Ok(f64::from(float))
    }

    fn double(&mut self) -> Result<f64, ReadError> {
        let double = self.scan.float();
        let double = self.found(double)?;
        self.separator();
        Ok(double)
    }

    fn flag(&mut self) -> Result<bool, ReadError> {
        self.scan.blanks();
        let start = self.scan.at();
        let word = self.scan.scalar();
        let flag = match self.found(word)? {
            "true" | "True" | "t" | "1" => true,
            "false" | "False" | "f" | "0" => false,
            word => {
                self.scan.back_to(start);
                return self.found(Err(format!("expected true or false, found '{word}'")));
            }
        };
        self.separator();
        Ok(flag)
    }

    fn dtype(&mut self) -> Result<Result<ValueType, i64>, ReadError> {
        self.scan.blanks();
        let dtype = match self.scan.peek() {
            Some(b'0'..=b'9' | b'-') => {
                let number = self.scan.int();
                let number = self.found(number)?;
                let known = u32::try_from(number).ok().and_then(ValueType::numbered);
                known.ok_or(number)
            }
            _ => {
                let start = self.scan.at();
                let word = self.scan.scalar();
                match self.found(word)? {
                    "DT_INVALID" => Err(0),
                    name => match ValueType::named(name) {
                        Some(known) => Ok(known),
                        None => {
                            self.scan.back_to(start);
                            return self.found(Err(format!("unknown type '{name}'")));
                        }
                    },
                }
            }
        };
        self.separator();
        Ok(dtype)
    }

    fn skip(&mut self) -> Result<(), ReadError> {
        self.step_over()?;
        self.separator();
        Ok(())
    }

    fn budget(&mut self) -> &mut Budget {
        &mut self.budget
    }

    fn error(&self, reason: Reason) -> ReadError {
        let location = Location::in_text(self.scan.file(), self.scan.at());
        ReadError { form: Some(self.form), location, reason }
    }
}

impl Text<'_> {
    /// Takes the separator that may follow a field.
    fn separator(&mut self) {
        if self.level().list.is_none() {
            // Without a separator, the position stays at the end of the field, for errors about it.
            let end = self.scan.at();
            self.scan.blanks();
            if !self.scan.eat(b',') && !self.scan.eat(b';') {
                self.scan.back_to(end);
            }
        }
    }
}
