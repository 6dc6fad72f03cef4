//! The filter that the user types, which selects rows.

use crate::rows::Row;

/// A filter, parsed from text. Words are separated by spaces, and all must match: `user=NAME`
/// matches the beginning of the owner, `gpu=0,2-3` the device, and any other word a part of the
/// PID, the owner, the note, the job or the command, in upper or lower case. In the tree, such a
/// word also selects the rows below a launcher with this command or PID.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    text: String,
    words: Vec<Word>,
    incomplete: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Word {
    User(Vec<String>),
    Gpu(Vec<(u32, u32)>),
    Text(String),
}

/// The most characters of a filter; more are ignored.
const MOST: usize = 256;

impl Filter {
    /// Parses a filter; every text is valid.
    pub fn new(text: &str) -> Self {
        let text: String = text.chars().filter(|c| !gpu_core::acts(*c)).take(MOST).collect();
        let (mut words, mut incomplete) = (Vec::new(), None);
        for word in text.split_whitespace() {
            match Word::parse(word) {
                Some(word) => words.push(word),
                None => incomplete = Some(word.to_owned()),
            }
        }
        Filter { text, words, incomplete }
    }

    /// Returns the last incomplete word, such as `gpu=` or `gpu=x`, which selects no row.
    pub fn incomplete(&self) -> Option<&str> {
        self.incomplete.as_deref()
    }

    /// Returns the text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns whether every row is shown.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Returns whether a row is shown. `launchers` are the rows above it that use no device.
    pub fn shows(&self, row: &Row, launchers: &[&Row]) -> bool {
        let is_below = |word: &Word| match word {
            Word::Text(text) => launchers.iter().any(|row| is_called(row, text)),
            Word::User(_) | Word::Gpu(_) => false,
        };
        self.words.iter().all(|word| word.matches(row) || is_below(word))
    }
}

impl Word {
    /// Returns the condition of a word; `None` for a word that is incomplete, such as `gpu=`, or
    /// that can select no device, such as `gpu=x` or `gpu=2-1`.
    fn parse(word: &str) -> Option<Self> {
        if let Some(names) = word.strip_prefix("user=") {
            let names: Vec<String> = parts(names).map(str::to_owned).collect();
            return (!names.is_empty()).then_some(Word::User(names));
        }
        if let Some(list) = word.strip_prefix("gpu=") {
            let range = |part: &str| {
                let (first, last) = part.split_once('-').unwrap_or((part, part));
                let first = first.parse().ok()?;
                let last = if last.is_empty() { first } else { last.parse().ok()? };
                (first <= last).then_some((first, last))
            };
            let ranges: Option<Vec<(u32, u32)>> = parts(list).map(range).collect();
            return ranges.filter(|ranges| !ranges.is_empty()).map(Word::Gpu);
        }
        Some(Word::Text(word.to_lowercase()))
    }

    fn matches(&self, row: &Row) -> bool {
        match self {
            Word::User(names) => names.iter().any(|name| row.user.starts_with(name.as_str())),
            Word::Gpu(ranges) => {
                let is_in =
                    |gpu| ranges.iter().any(|(first, last)| (*first..=*last).contains(&gpu));
                row.key.gpu.is_some_and(is_in)
            }
            Word::Text(text) => {
                let has = |field: &str| field.to_lowercase().contains(text.as_str());
                has(&row.command)
                    || has(&row.user)
                    || has(row.note())
                    || has(&row.job)
                    || row.pid().is_some_and(|pid| pid.to_string().contains(text.as_str()))
            }
        }
    }
}

/// Returns whether a process has this PID or a command with this text, which is in lower case.
fn is_called(row: &Row, text: &str) -> bool {
    row.command.to_lowercase().contains(text)
        || row.pid().is_some_and(|pid| pid.to_string() == text)
}

fn parts(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').filter(|part| !part.is_empty())
}
