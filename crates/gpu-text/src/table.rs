//! The table that bare `nvidia-smi` prints.
//!
//! It is read by its structure, whatever the driver: rules tell where rows begin and end, headings
//! tell which of the three tables (devices, MIG devices, processes) a row belongs to, and a row is
//! what its first words are. So a table that lost its beginning, its end or some of its borders
//! still gives what is left of it. Tables that follow each other in one text, as `watch` leaves
//! them, all count, in their order.

mod cell;
mod device;
mod header;
mod line;
mod mig;
mod process;

use crate::document::{Document, Kind, keep};
use crate::text::Text;
use line::{Frame, Line, Row};
use process::{Entry, Layout};

/// Reads a text with tables.
pub(crate) fn parse(text: &Text) -> Document {
    let mut reader = Reader {
        document: Document::new(Kind::Table),
        frame: Frame::default(),
        section: Section::Devices,
        ruled: false,
        expected: DeviceRow::First,
    };
    line::for_each_line(text, |number, line, last| reader.line(number, line, last));
    reader.document
}

struct Reader {
    document: Document,
    frame: Frame,
    section: Section,
    /// The double rule above the rows of this section was seen.
    ruled: bool,
    expected: DeviceRow,
}

/// The table that a row belongs to.
#[derive(Clone, Copy)]
enum Section {
    Devices,
    Mig,
    Processes { layout: Option<Layout>, rows: bool },
}

/// The row of a device that comes next.
#[derive(Clone, Copy)]
enum DeviceRow {
    First,
    Second,
    Third,
}

impl Reader {
    fn line(&mut self, number: usize, line: &str, last: bool) {
        match self.frame.read(line, last) {
            Line::Rule => self.rule(),
            Line::DoubleRule => {
                self.ruled = true;
                self.expected = DeviceRow::First;
            }
            Line::Row(row) if row.text.trim().is_empty() => {}
            Line::Row(row) => self.row(number, row, line),
        }
    }

    /// A single rule ends a device, and a table of processes below its headings.
    fn rule(&mut self) {
        self.expected = DeviceRow::First;
        if let Section::Processes { rows, .. } = self.section
            && (self.ruled || rows)
        {
            if !rows {
                self.document.processes.get_or_insert_default();
            }
            self.enter(Section::Devices);
        }
    }

    fn enter(&mut self, section: Section) {
        self.section = section;
        self.ruled = false;
        self.expected = DeviceRow::First;
    }

    fn row(&mut self, number: usize, row: Row<'_>, line: &str) {
        if header::begins(row) {
            self.enter(Section::Devices);
            header::read(row, &mut self.document);
        } else if let Some(section) = heading(row) {
            self.enter(section);
        } else {
            let read = match self.section {
                Section::Devices => self.device_row(row),
                Section::Mig => self.mig_row(row),
                Section::Processes { layout, .. } => self.process_row(row, layout),
            };
            if !read {
                self.document.note_unread(number, line, "a row that is cut or mangled");
            }
        }
    }

    fn device_row(&mut self, row: Row<'_>) -> bool {
        let gpu = device::first(row, self.ruled);
        if let Some(gpu) = gpu.filter(|_| row.is_bordered()) {
            let kept = keep(&mut self.document.gpus, gpu);
            self.expected = if kept { DeviceRow::Second } else { DeviceRow::First };
            return kept;
        }
        if matches!(process::row(row, None), Entry::Process(_)) {
            // Rules and headings between devices and processes are lost.
            self.expected = DeviceRow::First;
            return self.process_row(row, None);
        }
        let empty = row.cells().next().is_none_or(|cell| cell.trim().is_empty());
        match (self.expected, self.document.gpus.last_mut()) {
            (DeviceRow::Second, Some(gpu)) if !empty => {
                if device::second(row, gpu) {
                    self.expected = DeviceRow::Third;
                }
                true
            }
            (DeviceRow::Third, Some(gpu)) if empty => {
                device::third(row, gpu);
                self.expected = DeviceRow::First;
                true
            }
            _ if !row.is_bordered() => true,
            _ => {
                header::read(row, &mut self.document);
                // Where the headings are cut off, rows of the other tables stand here.
                let mig = mig::row(row).filter(|mig| mig.memory_total_mib.is_ok());
                if let Some(mig) = mig {
                    return keep(&mut self.document.mig_devices, mig);
                }
                let digit = row.text.trim_start().starts_with(|c: char| c.is_ascii_digit());
                self.process_row(row, None) || !(self.ruled && digit)
            }
        }
    }

    fn mig_row(&mut self, row: Row<'_>) -> bool {
        let digit = row.text.trim_start().starts_with(|c: char| c.is_ascii_digit());
        match mig::row(row) {
            Some(mig) => keep(&mut self.document.mig_devices, mig),
            None => !digit,
        }
    }

    fn process_row(&mut self, row: Row<'_>, layout: Option<Layout>) -> bool {
        let entry = process::row(row, layout);
        let counts = matches!(entry, Entry::Process(_) | Entry::NotSupported | Entry::NoneFound);
        if let Section::Processes { rows, .. } = &mut self.section {
            *rows |= counts;
        }
        match entry {
            Entry::Process(process) => {
                keep(self.document.processes.get_or_insert_default(), process)
            }
            Entry::NoneFound => {
                self.document.processes.get_or_insert_default();
                true
            }
            Entry::NotSupported => true,
            Entry::Unreadable => false,
            Entry::Other => layout.is_some(),
        }
    }
}

/// Tells which table a heading begins.
fn heading(row: Row<'_>) -> Option<Section> {
    let mut words = row.text.split([' ', '\t', ':']).filter(|word| !word.is_empty());
    match [words.next()?, words.next().unwrap_or_default()] {
        _ if !row.is_bordered() => None,
        ["MIG", "devices"] => Some(Section::Mig),
        ["Processes", _] | ["Compute", "processes"] => {
            Some(Section::Processes { layout: None, rows: false })
        }
        ["GPU", _] => {
            let layout = process::layout(row)?;
            Some(Section::Processes { layout: Some(layout), rows: false })
        }
        _ => None,
    }
}
