//! Rows of the table of processes.

use super::line::Row;
use crate::document::Process;
use crate::field;
use gpu_core::{Absent, Reading};

/// The columns of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// GPU, PID, name, memory: until driver 340.
    Plain,
    /// With the type: until 445.
    Typed,
    /// With type and MIG instances.
    Instances,
}

/// The kind of a row.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Entry {
    /// A process.
    Process(Process),
    /// The device does not report its processes, for any reason.
    NotSupported,
    /// There are none.
    NoneFound,
    /// A row that starts like a process but is incomplete.
    Unreadable,
    /// A heading, or an unrelated row.
    Other,
}

/// Parses the line that names the columns.
pub(super) fn layout(row: Row<'_>) -> Option<Layout> {
    let has = |name: &str| row.text.split_whitespace().any(|word| word == name);
    if !has("GPU") || !has("PID") {
        return None;
    }
    Some(match (has("GI"), has("Type")) {
        (true, _) => Layout::Instances,
        (false, true) => Layout::Typed,
        (false, false) => Layout::Plain,
    })
}

/// Parses a row. Without a layout, for example because the headings are missing, a row is a process
/// only if its type and memory identify it.
pub(super) fn row(row: Row<'_>, layout: Option<Layout>) -> Entry {
    let mut rest = Rest(row.text.trim_start());
    let lower = rest.0.get(..80).unwrap_or(rest.0).to_ascii_lowercase();
    if lower.starts_with("no running") && lower.contains("process") {
        return Entry::NoneFound;
    }
    let Some(Ok(gpu_index)) =
        rest.word().map(|word| field::number(word.trim_end_matches(['\\', '.'])))
    else {
        return Entry::Other;
    };
    let instances = match layout {
        Some(layout) => layout == Layout::Instances,
        None => rest.has_instances(),
    };
    let mut process = Process { gpu_index: Some(gpu_index), ..Process::default() };
    if rest.is_reason() {
        return Entry::NotSupported;
    }
    if instances {
        process.gpu_instance_id = rest.word().and_then(|word| field::number(word).ok());
        process.compute_instance_id = rest.word().and_then(|word| field::number(word).ok());
        if rest.is_reason() {
            return Entry::NotSupported;
        }
    }
    // If nothing follows the number, not even a border, it may be truncated.
    let pid = rest.word().and_then(|word| field::number(word).ok());
    process.pid = pid.filter(|_| !rest.0.is_empty() || row.closed);
    if process.pid.is_none() {
        return Entry::Unreadable;
    }
    if layout != Some(Layout::Plain) && rest.begins_with_type() {
        let type_ = rest.word().filter(|_| !rest.0.is_empty() || row.closed);
        process.type_ = type_.and_then(field::text);
    }
    let (name, memory) = name_and_memory(rest.0, row.closed);
    process.name = name.map(str::to_owned);
    process.memory_mib = memory;
    let reported = process.memory_mib != Err(Absent::NotRecorded);
    let certain = match layout {
        Some(_) => row.is_bordered() || reported,
        None => process.type_.is_some() && reported,
    };
    if certain { Entry::Process(process) } else { Entry::Other }
}

/// The rest of a row, without leading blanks.
struct Rest<'a>(&'a str);

impl<'a> Rest<'a> {
    /// Takes a word and the blanks after it. At the very end, one blank is kept, so an empty rest
    /// means that the row ends within the word.
    fn word(&mut self) -> Option<&'a str> {
        let trimmed = self.0.trim_start();
        let end = trimmed.find(char::is_whitespace).unwrap_or(trimmed.len());
        let (word, after) = trimmed.split_at(end);
        let next = after.trim_start();
        self.0 = if next.is_empty() { after } else { next };
        (!word.is_empty()).then_some(word)
    }

    /// Returns whether only the reason for missing processes remains: `Not Supported`.
    fn is_reason(&self) -> bool {
        let rest = self.0.trim();
        let rest = rest.strip_prefix("ERROR: ").unwrap_or(rest);
        rest.contains(' ') && field::absent(rest).is_some()
    }

    /// Returns whether two instance columns and a number come next.
    fn has_instances(&self) -> bool {
        let mut words = self.0.split_whitespace();
        let mut id = || words.next().is_some_and(|w| field::number(w) != Err(Absent::Implausible));
        id() && id() && words.next().is_some_and(|word| field::number(word).is_ok())
    }

    /// Returns whether a type comes next: `C`, `G`, `C+G`, `M+C`, or the reason for its absence.
    fn begins_with_type(&self) -> bool {
        let Some(word) = self.0.split_whitespace().next() else { return false };
        let letter = |part: &str| matches!(part.as_bytes(), [b'A'..=b'Z']);
        // In a truncated row, the second letter may be missing.
        let whole = word.strip_suffix('+').unwrap_or(word);
        whole.split('+').all(letter) || matches!(word, "N/A" | "-")
    }
}

/// Splits the memory from the end; a truncated row may lack it.
fn name_and_memory(text: &str, closed: bool) -> (Option<&str>, Reading<u64>) {
    let text = text.trim();
    let (name, memory) = split_memory(text).unwrap_or_else(|| {
        let name = if closed { text } else { without_cut_memory(text) };
        (name, Err(Absent::NotRecorded))
    });
    let name = name.trim();
    let none = name.is_empty() || matches!(name, "N/A" | "[N/A]" | "ERR!" | "-");
    ((!none).then_some(name), memory)
}

/// Returns the name of a truncated row, without the start of the memory: a distant word, or a
/// number.
fn without_cut_memory(text: &str) -> &str {
    let name = text.split("  ").next().unwrap_or(text);
    let is_cut = |last: &str| {
        matches!(last, "N" | "N/")
            || last.trim_end_matches(['M', 'i']).bytes().all(|b| b.is_ascii_digit())
    };
    match name.rsplit_once(' ') {
        Some((before, last)) if is_cut(last) => before,
        _ => name,
    }
}

fn split_memory(text: &str) -> Option<(&str, Reading<u64>)> {
    let last_word = |text| str::rsplit_once(text, char::is_whitespace).unwrap_or(("", text));
    let (name, word) = last_word(text);
    if word.ends_with(']') {
        let (name, reason) = text.split_at_checked(text.rfind('[')?)?;
        return (!name.trim().is_empty()).then(|| (name, field::mib(reason)));
    }
    if matches!(word, "N/A" | "ERR!") {
        return Some((name, field::mib(word)));
    }
    let digits = word.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let (_, unit) = word.split_at_checked(digits.len())?;
    if !matches!(unit, "MiB" | "MB" | "GiB") {
        return None;
    }
    let (name, amount) =
        if digits.is_empty() { last_word(name.trim_end()) } else { (name, digits) };
    let whole = !amount.is_empty() && amount.bytes().all(|b| b.is_ascii_digit());
    whole.then(|| (name, field::mib(&format!("{amount}{unit}"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, layout: Option<Layout>, closed: bool) -> Entry {
        row(Row { text, opened: true, closed, last: !closed }, layout)
    }

    /// GPU, PID, type, name, memory.
    type Reported = (u32, u32, Option<String>, Option<String>, Reading<u64>);

    fn process(text: &str, layout: Option<Layout>, closed: bool) -> Option<Reported> {
        match read(text, layout, closed) {
            Entry::Process(p) => Some((p.gpu_index?, p.pid?, p.type_, p.name, p.memory_mib)),
            _ => None,
        }
    }

    fn reported(
        gpu: u32,
        pid: u32,
        type_: &str,
        name: &str,
        memory: Reading<u64>,
    ) -> Option<Reported> {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Some((gpu, pid, some(type_), some(name), memory))
    }

    #[test]
    fn rows_of_every_generation_are_parsed() {
        let plain = "    0     23380  C  shell                   11876MB  ";
        assert_eq!(
            process(plain, Some(Layout::Plain), true),
            reported(0, 23_380, "", "C  shell", Ok(11_876))
        );
        let typed = "   10     32263    C   ...venv/bin/python3.6 10243MiB ";
        let want = reported(10, 32_263, "C", "...venv/bin/python3.6", Ok(10_243));
        assert_eq!(process(typed, Some(Layout::Typed), true), want);
        assert_eq!(process(typed, None, true), want);
        let new = "    0   N/A  N/A   4194304    C+G   C:\\a b\\c | d.exe      N/A      ";
        let want = reported(0, 4_194_304, "C+G", "C:\\a b\\c | d.exe", Err(Absent::NotSupported));
        assert_eq!(process(new, Some(Layout::Instances), true), want);
        assert_eq!(process(new, None, true), want);
    }

    #[test]
    fn mig_instance_ids_are_parsed() {
        let Entry::Process(p) = read("  0    8    0    16798   C   rpc  74MiB ", None, false)
        else {
            panic!("no process");
        };
        assert_eq!((p.gpu_instance_id, p.compute_instance_id), (Some(8), Some(0)));
    }

    #[test]
    fn placeholder_names_are_kept_but_absences_are_not() {
        let row = "  0   1032  C+G   Insufficient Permissions     N/A      ";
        let want = reported(0, 1032, "C+G", "Insufficient Permissions", Err(Absent::NotSupported));
        assert_eq!(process(row, Some(Layout::Typed), true), want);
        let row = "  0   1032  C   [Not Found]    12 MiB ";
        assert_eq!(
            process(row, Some(Layout::Typed), true),
            reported(0, 1032, "C", "[Not Found]", Ok(12))
        );
        let row = "  0   1032  C   [Not Found]    [Insufficient Permissions] ";
        let want = reported(0, 1032, "C", "[Not Found]", Err(Absent::NotPermitted));
        assert_eq!(process(row, Some(Layout::Typed), true), want);
        let row = "  0   1032  C       7MiB ";
        assert_eq!(process(row, Some(Layout::Typed), true), reported(0, 1032, "C", "", Ok(7)));
    }

    #[test]
    fn other_rows_are_not_processes() {
        assert_eq!(
            read("  0            Not Supported   ", Some(Layout::Plain), true),
            Entry::NotSupported
        );
        assert_eq!(
            read("  0   N/A  N/A   Not Supported ", Some(Layout::Instances), true),
            Entry::NotSupported
        );
        assert_eq!(
            read("  1       Unknown Error   ", Some(Layout::Typed), true),
            Entry::NotSupported
        );
        assert_eq!(read("  No running compute processes found ", None, true), Entry::NoneFound);
        assert_eq!(
            read("        ID   ID             Usage ", Some(Layout::Instances), true),
            Entry::Other
        );
        assert_eq!(read("  0   N/A  N/A   ", Some(Layout::Instances), false), Entry::Unreadable);
    }

    #[test]
    fn truncation_never_shortens_a_number() {
        let row = "    0   N/A  N/A     10073      C   python         4712MiB ";
        for end in 0..row.len() {
            let text = &row[..end];
            if let Some((gpu, pid, type_, name, memory)) =
                process(text, Some(Layout::Instances), false)
            {
                assert_eq!((gpu, pid), (0, 10_073), "{text:?}");
                assert!(memory == Ok(4712) || memory == Err(Absent::NotRecorded), "{text:?}");
                assert!(type_.is_none_or(|t| t == "C"), "{text:?}");
                assert!(name.is_none_or(|name| "python".starts_with(&name)), "{text:?}");
            }
        }
        assert!(process(&row[..27], Some(Layout::Instances), false).is_some());
        let long = "    0   N/A  N/A     10073      C   ...envs/keras/bin/python 1471";
        let want = reported(0, 10_073, "C", "...envs/keras/bin/python", Err(Absent::NotRecorded));
        assert_eq!(process(long, Some(Layout::Instances), false), want);
        let want = reported(0, 10_073, "", "", Err(Absent::NotRecorded));
        assert_eq!(process("  0  N/A  N/A  10073  C+", Some(Layout::Instances), false), want);
    }

    #[test]
    fn only_complete_rows_count_without_header() {
        assert_eq!(read("  3   text of something else ", None, true), Entry::Unreadable);
        assert_eq!(read("  3   77  text of something else ", None, true), Entry::Other);
        assert_eq!(read("  3   77  C  text of something ", None, true), Entry::Other);
    }

    #[test]
    fn layout_comes_from_heading() {
        for (text, want) in [
            (" GPU   PID  Process name   Usage ", Some(Layout::Plain)),
            (" GPU   PID  Type  Process name ", Some(Layout::Typed)),
            (" GPU   GI   CI   PID  Type  Process name ", Some(Layout::Instances)),
            (" GPU   Name ", None),
            (" PID   Name ", None),
        ] {
            assert_eq!(
                layout(Row { text, opened: true, closed: true, last: false }),
                want,
                "{text}"
            );
        }
    }

    #[test]
    fn memory_is_split_from_name() {
        for (text, closed, want) in [
            ("a 5MiB", true, (Some("a"), Ok(5))),
            ("a 5 MiB", true, (Some("a"), Ok(5))),
            ("a 5MB", true, (Some("a"), Ok(5))),
            ("a 5GiB", true, (Some("a"), Ok(5120))),
            ("a 5KiB", true, (Some("a 5KiB"), Err(Absent::NotRecorded))),
            ("a x5MiB", true, (Some("a x5MiB"), Err(Absent::NotRecorded))),
            ("a MiB", true, (Some("a MiB"), Err(Absent::NotRecorded))),
            ("a ERR!", true, (Some("a"), Err(Absent::Failed))),
            ("a N/A", true, (Some("a"), Err(Absent::NotSupported))),
            ("a [N/A]", true, (Some("a"), Err(Absent::NotSupported))),
            ("[Not Found]", true, (Some("[Not Found]"), Err(Absent::NotRecorded))),
            ("- 5MiB", true, (None, Ok(5))),
            ("[N/A] 5MiB", true, (None, Ok(5))),
            ("a 12", true, (Some("a 12"), Err(Absent::NotRecorded))),
            ("a 12", false, (Some("a"), Err(Absent::NotRecorded))),
            ("a 12M", false, (Some("a"), Err(Absent::NotRecorded))),
            ("a 12Mi", false, (Some("a"), Err(Absent::NotRecorded))),
            ("a N", false, (Some("a"), Err(Absent::NotRecorded))),
            ("a N/", false, (Some("a"), Err(Absent::NotRecorded))),
            ("a b", false, (Some("a b"), Err(Absent::NotRecorded))),
            ("a b  c", false, (Some("a b"), Err(Absent::NotRecorded))),
            ("a", false, (Some("a"), Err(Absent::NotRecorded))),
        ] {
            assert_eq!(name_and_memory(text, closed), want, "{text} {closed}");
        }
    }

    #[test]
    fn type_is_one_letter_or_two() {
        let type_of = |word: &str| {
            let text = format!(" 0 7 {word}  x  5MiB ");
            process(&text, Some(Layout::Typed), true).and_then(|(_, _, type_, ..)| type_)
        };
        for (word, want) in [
            ("C", Some("C")),
            ("C+G", Some("C+G")),
            ("M+C", Some("M+C")),
            ("C+", Some("C+")),
            ("c", None),
            ("CG", None),
            ("-", None),
            ("N/A", None),
        ] {
            assert_eq!(type_of(word).as_deref(), want, "{word}");
        }
    }
}
