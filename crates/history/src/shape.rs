//! A value as a shape and a list of numbers.
//!
//! The shape contains the structure of the value: structs and their fields, lists and their
//! lengths. The numbers are everything that changes from one snapshot to the next: integers,
//! booleans, the names of enum variants and the texts, the latter two as positions in a table of
//! [`Texts`]. So two snapshots of a machine mostly differ in a few numbers, and their shapes are
//! equal.
//!
//! The shape is divided into *rows*, one for each struct in a list and for each entry of a map, so
//! that snapshots with different processes still have most rows in common. The identity of a row (a
//! PID, a start time, the key of a map) is part of its shape.

use crate::varint;

/// The fields whose numbers identify a row: they belong to its shape.
pub(crate) const IDENTITY: [&str; 2] = ["pid", "start_ticks"];

/// The most bytes that a shape may have.
pub(crate) const MAX_SHAPE: usize = 16 << 20;
/// The most numbers that a value may have.
pub(crate) const MAX_NUMBERS: usize = 2 << 20;
/// The most rows that a shape may have.
pub(crate) const MAX_ROWS: usize = 1 << 20;
/// The maximum nesting depth of structs and lists.
pub(crate) const MAX_DEPTH: usize = 64;

/// An element of a shape: one byte, and for some of them a varint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Token {
    /// No value.
    Null = 0,
    /// A number: 0 or 1.
    Bool = 1,
    /// A number: an integer plus the number of reasons in [`REASONS`], or such a reason.
    Reading = 2,
    /// A number: an integer that is too large for a reading.
    Large = 3,
    /// A number: a negative integer as zigzag.
    Negative = 4,
    /// A number: the bits of a floating-point value.
    Float = 5,
    /// A number: the position of a text.
    Text = 6,
    /// A number: the position of the name of an enum variant without content.
    Variant = 7,
    /// An integer that identifies the row, in the varint.
    Identity = 8,
    /// A list; its length is the varint.
    List = 9,
    /// A map; its number of entries, each a key and a value, is the varint.
    Map = 10,
    /// A struct; its number of fields, each a name and a value, is the varint.
    Struct = 11,
    /// The name of a field or a key, by its position among the texts.
    Name = 12,
    /// An enum variant with content, by the position of its name; the content follows.
    Content = 13,
}

impl Token {
    const ALL: [Token; 14] = [
        Token::Null,
        Token::Bool,
        Token::Reading,
        Token::Large,
        Token::Negative,
        Token::Float,
        Token::Text,
        Token::Variant,
        Token::Identity,
        Token::List,
        Token::Map,
        Token::Struct,
        Token::Name,
        Token::Content,
    ];

    /// Returns whether it stands for one of the numbers.
    fn has_number(self) -> bool {
        (Token::Bool as u8..=Token::Variant as u8).contains(&(self as u8))
    }

    /// Returns whether a varint follows.
    fn has_varint(self) -> bool {
        self as u8 >= Token::Identity as u8
    }

    /// Takes a token and its varint, 0 if it has none, off the start of a shape.
    pub(crate) fn take(shape: &mut &[u8]) -> Option<(Token, u64)> {
        let (&first, rest) = shape.split_first()?;
        let token = *Token::ALL.get(usize::from(first))?;
        *shape = rest;
        let value = if token.has_varint() { varint::take(shape)? } else { 0 };
        Some((token, value))
    }
}

/// The reasons for which a reading is absent, by the number that stands for them.
pub(crate) const REASONS: [&str; 16] = [
    "not-supported",
    "not-permitted",
    "not-found",
    "too-old",
    "deprecated",
    "failed",
    "no-answer",
    "device-lost",
    "not-recorded",
    "implausible",
    "asleep",
    // Reserved for later reasons.
    "",
    "",
    "",
    "",
    "",
];

/// The ends of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// In the shape, in bytes.
    pub(crate) shape: u32,
    /// In the numbers.
    pub(crate) numbers: u32,
}

/// A value in this form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flat {
    pub(crate) shape: Vec<u8>,
    pub(crate) rows: Vec<Row>,
    pub(crate) numbers: Vec<u64>,
    /// For each number the field that it belongs to, by the position of its name, plus one; 0 if
    /// no field is named in its row.
    pub(crate) columns: Vec<u32>,
}

impl Flat {
    /// Returns the start of a row.
    fn start(&self, row: usize) -> Row {
        match row {
            0 => Row { shape: 0, numbers: 0 },
            _ => self.rows[row - 1],
        }
    }

    /// Returns the shape of a row.
    pub(crate) fn shape_of(&self, row: usize) -> &[u8] {
        &self.shape[self.start(row).shape as usize..self.rows[row].shape as usize]
    }

    /// Returns the range of numbers that belong to a row.
    pub(crate) fn numbers_of(&self, row: usize) -> std::ops::Range<usize> {
        self.start(row).numbers as usize..self.rows[row].numbers as usize
    }

    /// Ends the current row, unless it is empty.
    pub(crate) fn end_row(&mut self) {
        let start = self.rows.last().map_or(0, |row| row.shape as usize);
        if self.shape.len() > start {
            self.rows
                .push(Row { shape: self.shape.len() as u32, numbers: self.numbers.len() as u32 });
        }
    }

    /// Finds the columns of all rows, which contain texts up to `texts`.
    pub(crate) fn find_columns(&mut self, texts: usize) -> Option<()> {
        let mut columns = Vec::with_capacity(self.numbers.len());
        for row in 0..self.rows.len() {
            columns_of(self.shape_of(row), texts, &mut columns)?;
            if columns.len() != self.rows[row].numbers as usize {
                return None;
            }
        }
        self.columns = columns;
        Some(())
    }

    /// Adds a row with this shape, without its numbers so far, and returns their count.
    ///
    /// `None`: the shape is malformed, or the value is too large.
    pub(crate) fn add_row(&mut self, shape: &[u8], texts: usize) -> Option<usize> {
        let before = self.columns.len();
        columns_of(shape, texts, &mut self.columns)?;
        self.shape.extend_from_slice(shape);
        let row = Row { shape: self.shape.len() as u32, numbers: self.columns.len() as u32 };
        self.rows.push(row);
        self.is_bounded().then(|| self.columns.len() - before)
    }

    /// Adds these rows of another value, without their numbers so far; `None` if the value becomes
    /// too large.
    pub(crate) fn add_rows_of(&mut self, other: &Flat, rows: std::ops::Range<usize>) -> Option<()> {
        let (start, end) = (other.start(rows.start), *other.rows.get(rows.end.checked_sub(1)?)?);
        let (shape, numbers) = (self.shape.len() as u32, self.columns.len() as u32);
        self.rows.extend(other.rows[rows].iter().map(|row| Row {
            shape: row.shape - start.shape + shape,
            numbers: row.numbers - start.numbers + numbers,
        }));
        self.shape.extend_from_slice(&other.shape[start.shape as usize..end.shape as usize]);
        let columns = &other.columns[start.numbers as usize..end.numbers as usize];
        self.columns.extend_from_slice(columns);
        self.is_bounded().then_some(())
    }

    /// Returns how many bytes it has, its numbers included.
    pub(crate) fn bytes(&self) -> usize {
        self.shape.len() + self.columns.len() * size_of::<u64>()
    }

    fn is_bounded(&self) -> bool {
        self.shape.len() <= MAX_SHAPE
            && self.columns.len() <= MAX_NUMBERS
            && self.rows.len() <= MAX_ROWS
    }

    /// Returns whether it is too large for a reader.
    pub(crate) fn is_too_large(&self) -> bool {
        !self.is_bounded()
    }
}

/// Appends the columns of the numbers in the shape of a row; `None` if it is malformed.
fn columns_of(mut shape: &[u8], texts: usize, columns: &mut Vec<u32>) -> Option<()> {
    let mut column = 0;
    while !shape.is_empty() {
        let (token, value) = Token::take(&mut shape)?;
        if matches!(token, Token::Name | Token::Content) && value >= texts as u64 {
            return None;
        }
        if token == Token::Name {
            column = u32::try_from(value).ok()?.checked_add(1)?;
        }
        if token.has_number() {
            columns.push(column);
        }
    }
    Some(())
}
