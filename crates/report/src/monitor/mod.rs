//! The streams of `nvidia-smi dmon` and `nvidia-smi pmon`: rows of devices and of processes, below
//! a header that is repeated. A value that the driver does not report is `-`.

mod devices;
mod processes;

pub use devices::Dmon;
pub use processes::Pmon;

pub use crate::release::Release;

use gpu_core::{DeviceState, Groups, Pid, ProcessInfo, Reading};

/// The number of rows after which the header is repeated.
const PAGE: usize = 24;

/// The data of the rows at one moment.
pub struct Sample<'a> {
    /// The devices to print.
    pub devices: &'a [DeviceState],
    /// The lookup of a process by PID.
    pub process: &'a dyn Fn(Pid) -> Reading<ProcessInfo>,
    /// The release of nvidia-smi whose format the rows have.
    pub release: Release,
}

/// The content of a stream.
pub trait Rows {
    /// Returns the groups of details that the columns need.
    fn groups(&self) -> Groups;

    /// Returns the lines of names and of units.
    fn head(&self) -> [String; 2];

    /// Returns a row for each device or process.
    fn rows(&self, sample: &Sample<'_>) -> Vec<String>;
}

/// The position in a stream.
#[derive(Clone, Copy, Debug, Default)]
pub struct Page {
    /// Rows since the header.
    printed: Option<usize>,
}

impl Page {
    /// Returns the rows of a sample, below a header if one is due: at the start, and when these
    /// rows and those since the last header exceed 24.
    pub fn lines(&mut self, rows: &dyn Rows, sample: &Sample<'_>) -> Vec<String> {
        let lines = rows.rows(sample);
        let printed = self.printed.map(|printed| printed + lines.len());
        if let Some(printed) = printed.filter(|printed| *printed <= PAGE) {
            self.printed = Some(printed);
            return lines;
        }
        self.printed = Some(lines.len());
        rows.head().into_iter().chain(lines).collect()
    }
}

/// Parses a selection of groups of columns by their letters; returns each once.
///
/// # Errors
/// The first unknown letter, or an error if there is no letter.
fn letters(text: &str, known: &str) -> Result<Vec<char>, String> {
    let all = known.chars().map(String::from).collect::<Vec<_>>().join(", ");
    match text.chars().find(|letter| !known.contains(*letter)) {
        Some(letter) => Err(format!("unknown group '{letter}'; expected {all}")),
        None if text.is_empty() => Err(format!("no group is named; expected {all}")),
        None => {
            let mut letters: Vec<char> = Vec::new();
            text.chars().for_each(|letter| {
                if !letters.contains(&letter) {
                    letters.push(letter);
                }
            });
            Ok(letters)
        }
    }
}

/// Returns the text of a cell.
fn cell(reading: Reading<impl ToString>) -> String {
    reading.map_or_else(|_| "-".to_owned(), |value| value.to_string())
}
