//! The table that bare `nvidia-smi` prints.
//!
//! It is parsed by its structure, whatever the driver: rules show where rows start and end,
//! headings show which of the three tables (devices, MIG devices, processes) a row belongs to, and
//! the first words of a row identify it. Therefore a table without its start, its end or some of
//! its borders still yields the rest. All consecutive tables in a text, as from `watch`, count in
//! order.

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

/// Parses a text with tables.
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
    /// Whether the double rule above the rows of this section has been read.
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

/// The expected next row of a device.
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

    /// Handles a single rule, which ends a device, or the process table if its headings were read.
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
            self.document.lists_mig |= matches!(section, Section::Mig);
            self.enter(section);
        } else {
            let read = match self.section {
                Section::Devices => self.device_row(row),
                Section::Mig => self.mig_row(row),
                Section::Processes { layout, .. } => self.process_row(row, layout),
            };
            if !read {
                self.document.note_unread(number, line, "truncated or malformed row");
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
            // Rules and headings between devices and processes are missing.
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
                // If the headings are missing, rows of the other tables are read here.
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

/// Returns the table that a heading starts.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::clean;
    use gpu_core::Absent;

    const HEAD: &str = "\
Mon Jan  1 00:00:00 2024
+-----------------------------------------------------------------------------+
| NVIDIA-SMI 515.1        Driver Version: 515.1        CUDA Version: 11.7     |
|-------------------------------+----------------------+----------------------+
| GPU  Name        Persistence-M| Bus-Id        Disp.A | Volatile Uncorr. ECC |
| Fan  Temp  Perf  Pwr:Usage/Cap|         Memory-Usage | GPU-Util  Compute M. |
|                               |                      |               MIG M. |
|===============================+======================+======================|
";
    const DEVICES: &str = "\
|   0  Example 9000        On   | 00000000:0A:00.0 Off |                   On |
| N/A   31C    P0    44W / 300W |     45MiB / 81920MiB |     N/A      Default |
|                               |                      |              Enabled |
+-------------------------------+----------------------+----------------------+
|   1  Example 9000        Off  | 00000000:0B:00.0 Off |                    0 |
|ERR!   32C    P0    45W / 300W |      7MiB / 81920MiB |      3%      Default |
|                               |                      |             Disabled |
+-------------------------------+----------------------+----------------------+

";
    const MIG: &str = "\
+-----------------------------------------------------------------------------+
| MIG devices:                                                                |
+------------------+----------------------+-----------+-----------------------+
| GPU  GI  CI  MIG |         Memory-Usage |        Vol|         Shared        |
|      ID  ID  Dev |           BAR1-Usage | SM     Unc| CE  ENC  DEC  OFA  JPG|
|                  |                      |        ECC|                       |
|==================+======================+===========+=======================|
|  0    7   0   0  |      6MiB /  9728MiB | 14      0 |  1   0    0    0    0 |
|                  |      0MiB / 16383MiB |           |                       |
+------------------+----------------------+-----------+-----------------------+
|  0   13   1   1  |     16MiB /  9728MiB | 14      0 |  1   0    0    0    0 |
|                  |      0MiB / 16383MiB |           |                       |
+------------------+----------------------+-----------+-----------------------+

";
    const PROCESSES: &str = "\
+-----------------------------------------------------------------------------+
| Processes:                                                                  |
|  GPU   GI   CI        PID   Type   Process name                  GPU Memory |
|        ID   ID                                                   Usage      |
|=============================================================================|
";
    const ROW: &str = "\
|    0   13    1      16798      C   ...bin/a | 00000000:0C:00.0 Off   74MiB |
";
    const END: &str = "\
+-----------------------------------------------------------------------------+
";

    fn read(text: &str) -> Document {
        parse(&clean(text.as_bytes()))
    }

    #[test]
    fn three_tables_of_one_run_are_parsed() {
        let document = read(&[HEAD, DEVICES, MIG, PROCESSES, ROW, END].concat());
        assert_eq!(document.driver_version.as_deref(), Some("515.1"));
        assert_eq!(document.gpus.len(), 2);
        let [first, second] = document.gpus.as_slice() else { unreachable!() };
        assert_eq!((first.persistence, first.mig_enabled), (Ok(true), Ok(true)));
        assert_eq!((second.persistence, second.mig_enabled), (Ok(false), Ok(false)));
        assert_eq!(
            (first.memory_used_mib, first.utilization_percent),
            (Ok(45), Err(Absent::NotSupported))
        );
        let migs: Vec<_> =
            document.mig_devices.iter().map(|m| (m.gpu_instance_id, m.memory_used_mib)).collect();
        assert_eq!(migs, [(Some(7), Ok(6)), (Some(13), Ok(16))]);
        // A process with a device-like name is not a device.
        let [process] = document.processes.as_deref().unwrap() else { panic!("one process") };
        assert_eq!(process.name.as_deref(), Some("...bin/a | 00000000:0C:00.0 Off"));
        assert_eq!((process.pid, process.gpu_instance_id), (Some(16_798), Some(13)));
        assert_eq!(document.unread, []);
    }

    #[test]
    fn empty_missing_and_truncated_process_tables_differ() {
        let none =
            "|  No running processes found                                                 |\n";
        let refused =
            "|    0            Not Supported                                               |\n";
        let devices = [HEAD, DEVICES].concat();
        let processes = |parts: &[&str]| read(&(devices.clone() + &parts.concat())).processes;
        assert_eq!(processes(&[]), None);
        assert_eq!(processes(&[PROCESSES, none, END]), Some(Vec::new()));
        assert_eq!(processes(&[PROCESSES, none]), Some(Vec::new()));
        assert_eq!(processes(&[PROCESSES, END]), Some(Vec::new()));
        assert_eq!(processes(&[PROCESSES]), None);
        assert_eq!(processes(&[PROCESSES, refused, END]), None);
        assert_eq!(processes(&[PROCESSES, refused, ROW, END]).map(|p| p.len()), Some(1));
    }

    #[test]
    fn tables_without_beginning_are_parsed() {
        let document = read(&[DEVICES, MIG, PROCESSES, ROW, END].concat());
        assert_eq!((document.gpus.len(), document.mig_devices.len()), (2, 2));
        assert_eq!(document.driver_version, None);
        let row = ROW.replace(" | 00000000:0C:00.0 Off", "");
        let rows = [DEVICES.replace('+', " ").replace("-----", "").as_str(), &row].concat();
        let document = read(&rows);
        assert_eq!(document.gpus.len(), 2);
        assert_eq!(document.processes.map(|p| p.len()), Some(1));
        let mig: String = MIG.lines().skip(7).map(|line| format!("{line}\n")).collect();
        assert_eq!(read(&mig).mig_devices.len(), 2);
    }

    #[test]
    fn consecutive_tables_are_all_parsed() {
        let one = [HEAD, DEVICES, PROCESSES, ROW, END].concat();
        let document = read(&[one.as_str(), &one].concat());
        assert_eq!(document.gpus.len(), 4);
        assert_eq!(document.processes.map(|p| p.len()), Some(2));
        let cut = [HEAD, DEVICES, PROCESSES].concat();
        assert_eq!(read(&[cut.as_str(), &one].concat()).gpus.len(), 4);
    }

    #[test]
    fn truncated_row_is_unread() {
        let document = read(&[HEAD, "|   0  Example 90\n"].concat());
        assert_eq!(document.gpus, []);
        let [unread] = document.unread.as_slice() else { panic!("{:?}", document.unread) };
        assert_eq!((unread.line, unread.text.as_str()), (9, "|   0  Example 90"));
        let document = read(&[PROCESSES, "|    0   N/A  N/A      167"].concat());
        assert_eq!((document.processes, document.unread.len()), (None, 1));
    }

    #[test]
    fn text_around_table_is_skipped() {
        let text = [
            "me@host:~$ dmesg | grep 0000:0a\n[ 1.5] nvidia 0000:0a:00.0: enabled\n",
            "0 1 00000000:0A:00.0 x\nme@host:~$ nvidia-smi\n",
            HEAD,
            DEVICES,
            "me@host:~$ kill 3 100% 4C\nWARNING: infoROM is corrupted at gpu 0000:0A:00.0\n",
        ]
        .concat();
        let document = read(&text);
        assert_eq!(document.gpus, read(&[HEAD, DEVICES].concat()).gpus);
        assert_eq!(document.processes, None);
    }

    #[test]
    fn headings_need_a_border_and_their_words() {
        let section = |text: &str| {
            let row = Row { text, opened: true, closed: true, last: false };
            match heading(row)? {
                Section::Devices => Some("devices"),
                Section::Mig => Some("mig"),
                Section::Processes { .. } => Some("processes"),
            }
        };
        for (text, want) in [
            (" MIG devices: ", Some("mig")),
            (" MIG mode ", None),
            (" Processes: ", Some("processes")),
            (" Compute processes: ", Some("processes")),
            (" Compute mode ", None),
            (" GPU  PID ", Some("processes")),
            (" GPU  Name ", None),
            (" PID  Type ", None),
            (" ", None),
        ] {
            assert_eq!(section(text), want, "{text}");
        }
        let bare = Row { text: "Processes", opened: false, closed: false, last: false };
        assert!(heading(bare).is_none());
    }

    #[test]
    fn mangled_rows_are_unread_in_their_table() {
        let unread = |parts: &[&str]| {
            let document = read(&parts.concat());
            (document.unread.len(), document.mig_devices.len(), document.processes.map(|p| p.len()))
        };
        let mig: String = MIG.lines().take(7).map(|line| format!("{line}\n")).collect();
        assert_eq!(unread(&[&mig, "|  0    7   x  | a |\n"]), (1, 0, None));
        assert_eq!(unread(&[&mig, "|  words | a |\n"]), (0, 0, None));
        assert_eq!(unread(&[HEAD, "|  words  | a |\n"]), (0, 0, None));
        assert_eq!(unread(&[PROCESSES, "|    0   words  |\n"]), (1, 0, None));
        assert_eq!(unread(&[PROCESSES, "|  words only |\n", ROW]), (0, 0, Some(1)));
    }
}
