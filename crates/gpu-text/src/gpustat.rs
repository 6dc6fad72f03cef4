//! The listing of gpustat.
//!
//! A row is `[0] NAME | 50°C,  73 % | 12894 / 24564 MB | ann(12874M) bob:python/77(4M)`. Options
//! add the fan speed before the utilization, the power after it, and the command and PID of each
//! process; without processes the last column is missing.

use crate::document::{Document, Gpu, Kind, Process, keep};
use crate::field;
use crate::text::Text;
use gpu_core::{Absent, Reading};

/// Parses the rows.
pub(crate) fn parse(text: &Text) -> Document {
    let mut document = Document::new(Kind::Gpustat);
    for (number, line) in text.lines() {
        if line.trim().is_empty() || is_heading(line) {
            continue;
        }
        let Some(row) = row(line) else {
            document.note_unread(number, line, "not a row of gpustat");
            continue;
        };
        let (gpu, processes) = row;
        let index = gpu.index;
        if !keep(&mut document.gpus, gpu) {
            document.note_unread(number, line, "row limit exceeded");
            continue;
        }
        let Some(processes) = processes else { continue };
        document.processes.get_or_insert_default();
        document.listing.get_or_insert_default().extend(index);
        for word in processes.split_whitespace() {
            let process = user_of(word).map(|process| Process { gpu_index: index, ..process });
            let kept = document.processes.as_mut().zip(process);
            if !kept.is_some_and(|(kept, process)| keep(kept, process)) {
                document.note_unread(
                    number,
                    word,
                    "not a process of gpustat, or process limit exceeded",
                );
            }
        }
    }
    document
}

/// Returns whether a line is a row.
pub(crate) fn is_row(line: &str) -> bool {
    row(line).is_some()
}

/// Returns whether a line is the heading: the host, the time and the version of the driver.
fn is_heading(line: &str) -> bool {
    let mut words = line.split_whitespace().rev().take(2);
    let is_version = |word: &str| word.contains('.') && field::is_version(word);
    let is_year = |word: &str| word.len() == 4 && word.bytes().all(|b| b.is_ascii_digit());
    match (words.next(), words.next()) {
        (Some(last), Some(before)) => is_year(last) || is_version(last) && is_year(before),
        _ => false,
    }
}

/// Parses a row: the device, and the text of its processes if the row has that column.
fn row(line: &str) -> Option<(Gpu, Option<&str>)> {
    let (index, rest) = line.trim().strip_prefix('[')?.split_once(']')?;
    let index: u32 = index.parse().ok()?;
    let mut cells = rest.split('|').map(str::trim);
    let (name, state, memory) = (cells.next()?, cells.next()?, cells.next()?);
    let (used, total) = memory.split_once('/')?;
    let total = total.trim().strip_suffix("MB")?;
    let mib = |cell: &str| match cell.trim().trim_matches('?') {
        "" => Err(Absent::NotSupported),
        cell => field::mib(cell),
    };
    let mut gpu = Gpu {
        index: Some(index),
        name: field::text(name),
        memory_used_mib: mib(used),
        memory_total_mib: mib(total),
        ..Gpu::default()
    };
    for part in state.split(',').map(str::trim) {
        // The fan speed precedes the utilization.
        if let Some(percent) = part.split('(').next().and_then(|p| p.trim().strip_suffix('%')) {
            gpu.utilization_percent = known(percent, field::percent);
        } else if let Some(watts) = part.strip_suffix('W') {
            let (draw, limit) = watts.split_once('/').unwrap_or((watts, ""));
            gpu.power_draw_w = known(draw, field::watts);
            gpu.power_limit_w = known(limit, field::watts);
        } else if let Some(degrees) = part.strip_suffix('C') {
            let degrees = degrees.trim_end_matches(['°', '\'', '\u{b4}', '?']);
            gpu.temperature_c = known(degrees, field::celsius);
        }
    }
    // `(null)` and `(Not Supported)` mean that the driver lists no processes.
    let processes = cells.next().filter(|cell| !cell.starts_with('('));
    Some((gpu, processes))
}

fn known<T>(cell: &str, read: fn(&str) -> Reading<T>) -> Reading<T> {
    match cell.trim() {
        "" | "??" | "?" => Err(Absent::NotSupported),
        cell => read(cell),
    }
}

/// Parses `ann(12874M)`, `ann:python(12874M)` or `ann:python/4711(12874M)`; a user and a command are
/// both free text.
fn user_of(word: &str) -> Option<Process> {
    let (head, memory) = word.strip_suffix(')')?.rsplit_once('(')?;
    let memory = memory.strip_suffix('M')?;
    let memory_mib = match memory {
        "?" => Err(Absent::NotSupported),
        memory => field::mib(memory),
    };
    if memory_mib == Err(Absent::Implausible) || head.is_empty() {
        return None;
    }
    let (head, pid) = match head.rsplit_once('/') {
        Some((head, pid)) => (head, Some(pid.parse().ok()?)),
        None => (head, None),
    };
    let (user, command) = match head.split_once(':') {
        Some((user, command)) => (Some(user), Some(command)),
        // Without a user, the name is the command.
        None if pid.is_some() => (None, Some(head)),
        None => (Some(head), None),
    };
    Some(Process {
        pid,
        user: user.map(str::to_owned),
        name: command.map(str::to_owned),
        memory_mib,
        ..Process::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::clean;
    use crate::{Hint, sections, snapshot};
    use gpu_core::{Bytes, Timestamp};
    use proptest::prelude::*;

    const LIST: &str = "\
lab7                Tue Mar  4 09:12:33 2025  550.54.14
[0] NVIDIA RTX A6000 | 41°C,  30 %,  12 %,  70 / 300 W |  9100 / 49140 MB | ann:python/4711(8000M) bob(1000M)
[1] NVIDIA RTX A6000 | 29'C,   0 % |     3 / 49140 MB |
[2] NVIDIA RTX A6000 | ??°C,  ?? % |    ?? / ?? MB | (Not Supported)
";

    fn read(text: &str) -> Document {
        parse(&clean(text.as_bytes()))
    }

    #[test]
    fn rows_of_every_option_are_parsed() {
        let document = read(LIST);
        assert_eq!(document.unread, []);
        let [first, second, third] = &document.gpus[..] else { panic!("{document:?}") };
        assert_eq!((first.memory_used_mib, first.memory_total_mib), (Ok(9100), Ok(49_140)));
        assert_eq!((first.utilization_percent, first.temperature_c), (Ok(12), Ok(41)));
        assert_eq!((first.power_draw_w, first.power_limit_w), (Ok(70.0), Ok(300.0)));
        assert_eq!((second.utilization_percent, second.temperature_c), (Ok(0), Ok(29)));
        assert_eq!(third.memory_used_mib, Err(Absent::NotSupported));
        let processes = document.processes.unwrap();
        let [ann, bob] = &processes[..] else { panic!("{processes:?}") };
        assert_eq!(
            (ann.pid, ann.user.as_deref(), ann.name.as_deref()),
            (Some(4711), Some("ann"), Some("python"))
        );
        assert_eq!((bob.pid, bob.user.as_deref(), bob.memory_mib), (None, Some("bob"), Ok(1000)));
        let of = |word: &str| user_of(word).map(|p| (p.user, p.name, p.pid));
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(of("python/52(7M)"), Some((None, some("python"), Some(52))));
        assert_eq!(of("a:b:c(7M)"), Some((some("a"), some("b:c"), None)));
        for word in ["ann", "ann(7)", "(7M)", "ann(xM)", "a/b(7M)"] {
            assert_eq!(of(word), None, "{word}");
        }
    }

    #[test]
    fn listing_is_detected_with_and_without_heading() {
        let rows = LIST.split_once('\n').unwrap().1;
        for text in [LIST, rows, &format!("ann@box:~$ gpustat -cpu\n{LIST}")] {
            let document = crate::parse(text.as_bytes(), &Hint::default()).unwrap();
            assert_eq!((document.kind, document.gpus.len()), (Kind::Gpustat, 3), "{text}");
            assert_eq!(document.unread, [], "{text}");
        }
        for line in
            ["[0] a | b | c", "[x] a | 5 % | 1 / 2 MB", "[0] a | 5 % | 1 / 2 GB |", "[12.5] x"]
        {
            assert!(!is_row(line), "{line}");
        }
    }

    /// Processes without PIDs count as memory users, except where they would make holders with PIDs
    /// look unlisted.
    #[test]
    fn users_without_pids_account_for_memory() {
        let listed = |text: &str| {
            let documents = sections(text.as_bytes());
            let now = snapshot(&documents, Timestamp(0));
            now.devices.iter().map(|device| device.memory_listed()).collect::<Vec<_>>()
        };
        let mib = |mib| Some(Bytes::from_mib(mib));
        assert_eq!(listed(LIST), [mib(9000), mib(0), None]);
        let fuser = "\n/dev/nvidia0:        ann  4711 F...m python\n";
        assert_eq!(listed(&format!("{LIST}{fuser}")), [None, None, None]);
        let now = snapshot(&sections(LIST.as_bytes()), Timestamp(0));
        let known = now.processes.iter().filter(|(_, process)| process.0.is_ok());
        assert_eq!(known.map(|(pid, _)| pid.0).collect::<Vec<_>>(), [4711], "bob has no PID");
        let named = LIST.replace(" bob(1000M)", " bob:sh/78(1000M)");
        assert_eq!(listed(&format!("{named}{fuser}")), [mib(9000), mib(0), None]);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), row in "\\[0\\] [ -~]{0,60}") {
            parse(&clean(&bytes));
            let document = read(&row);
            prop_assert!(document.gpus.len() + document.unread.len() <= 2 + row.len());
        }
    }
}
