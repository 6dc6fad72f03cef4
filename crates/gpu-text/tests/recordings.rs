//! Parses nvidia-smi output of a machine back: complete, truncated, decorated or damaged.

mod machine;

use gpu_core::Absent;
use gpu_text::{Document, Hint, Kind, parse};
use machine::{Form, Machine, log, table, xml};
use proptest::prelude::*;
use serde_json::Value;

const FORMS: [Form; 4] = [Form::Old, Form::Typed, Form::Narrow, Form::Wide];
const KINDS: [Kind; 3] = [Kind::Table, Kind::Q, Kind::Xml];

fn read(text: impl AsRef<[u8]>, kind: Kind) -> Document {
    let hint = Hint { kind: Some(kind), ..Hint::default() };
    parse(text.as_ref(), &hint).expect("a text of a given kind is always parsed")
}

/// The output for one machine in all formats.
fn texts(machine: &Machine) -> Vec<(Kind, String)> {
    let mut texts: Vec<_> =
        FORMS.into_iter().map(|form| (Kind::Table, table(machine, form))).collect();
    texts.extend([(Kind::Q, log(machine)), (Kind::Xml, xml(machine))]);
    texts
}

/// Asserts that a document describes the machine.
fn assert_is(document: &Document, machine: &Machine, form: Option<Form>, what: &str) {
    let old = form == Some(Form::Old);
    assert_eq!(document.gpus.len(), machine.cards.len(), "{what}");
    for (index, (gpu, card)) in document.gpus.iter().zip(&machine.cards).enumerate() {
        let none = Err(Absent::NotSupported);
        assert_eq!(gpu.index, u32::try_from(index).ok(), "{what}");
        assert_eq!(gpu.name.as_deref(), Some(card.name.as_str()), "{what}");
        assert_eq!(gpu.bus_id, Some(card.bus_id(form.unwrap_or(Form::Wide))), "{what}");
        let memory = card.memory.map(|(used, total)| (Ok(used.into()), Ok(total.into())));
        let memory = memory.unwrap_or((none, none));
        assert_eq!((gpu.memory_used_mib, gpu.memory_total_mib), memory, "{what}");
        assert_eq!(
            gpu.utilization_percent,
            card.utilization.map_or(none, |v| Ok(v.into())),
            "{what}"
        );
        let none = Err(Absent::NotSupported);
        assert_eq!(gpu.temperature_c, card.temperature.map_or(none, |v| Ok(v.into())), "{what}");
        let none = Err(Absent::NotSupported);
        assert_eq!(gpu.power_draw_w, card.draw.map_or(none, |v| Ok(v.into())), "{what}");
        assert_eq!(gpu.power_limit_w, card.limit.map_or(none, |v| Ok(v.into())), "{what}");
        if !old {
            assert_eq!(gpu.persistence, Ok(card.persistence), "{what}");
        }
        if let Some(form) = form {
            let none = Err(Absent::NotSupported);
            assert_eq!(gpu.display_active, card.display.map_or(none, Ok), "{what}");
            if matches!(form, Form::Narrow | Form::Wide) {
                assert_eq!(gpu.mig_enabled, card.mig.map_or(none, Ok), "{what}");
            }
        }
    }
    let processes = document.processes.as_ref().expect(what);
    assert_eq!(processes.len(), machine.processes.len(), "{what}");
    for (process, made) in processes.iter().zip(&machine.processes) {
        assert_eq!(process.gpu_index, u32::try_from(made.card).ok(), "{what}");
        assert_eq!(process.pid, Some(made.pid), "{what}");
        assert_eq!(process.type_.as_deref(), Some(made.kind).filter(|_| !old), "{what}");
        assert_eq!(process.name.as_deref(), Some(made.name.as_str()), "{what}");
        let memory = made.memory.map_or(Err(Absent::NotSupported), |mib| Ok(mib.into()));
        assert_eq!(process.memory_mib, memory, "{what}");
    }
}

/// Returns where the document of a partial text disagrees with that of the whole text.
fn disagreement(part: &Value, whole: &Value, at: &str) -> Option<String> {
    match (part, whole) {
        (Value::Null, _) => None,
        (Value::Array(part), Value::Array(whole)) if part.len() <= whole.len() => part
            .iter()
            .zip(whole)
            .enumerate()
            .find_map(|(i, (part, whole))| disagreement(part, whole, &format!("{at}[{i}]"))),
        (Value::Object(part), Value::Object(whole)) => part
            .iter()
            .filter(|(key, _)| *key != "unread")
            .find_map(|(key, part)| disagreement(part, &whole[key], &format!("{at}.{key}"))),
        // A process name may be truncated, because nothing is identified by it.
        (Value::String(part), Value::String(whole)) if at.starts_with(".processes") => {
            (!(whole.starts_with(part) && at.ends_with(".name")) && part != whole)
                .then(|| format!("{at}: {part} instead of {whole}"))
        }
        _ => (part != whole).then(|| format!("{at}: {part} instead of {whole}")),
    }
}

fn json(document: &Document) -> Value {
    serde_json::to_value(document).expect("a document is plain data")
}

/// Renders the output of a machine as a terminal, a mailer or a log would.
fn decorated(text: &str) -> Vec<(&'static str, String)> {
    let each = |f: &dyn Fn(&str) -> String| -> String {
        text.lines().map(|line| f(line) + "\n").collect()
    };
    vec![
        ("CR LF", each(&|line| format!("{line}\r"))),
        ("quoted", each(&|line| format!("> {line}"))),
        ("indented", each(&|line| format!("    {line}"))),
        ("comment", each(&|line| format!("# {line}"))),
        ("log", each(&|line| format!("2024-01-01T00:00:00Z host app[7]: {line}"))),
        ("coloured", text.replace("N/A", "\x1b[1;31mN/A\x1b[0m")),
        ("trimmed", each(&|line| line.trim_end().to_owned())),
        ("double spaced", text.replace('\n', "\n\n")),
        ("no last line end", text.trim_end().to_owned()),
        ("prompts", format!("me@host:~$ nvidia-smi\n{text}me@host:~$ ls -l\ntotal 0\n")),
    ]
}

fn utf16(text: &str) -> Vec<u8> {
    format!("\u{feff}{text}").encode_utf16().flat_map(u16::to_le_bytes).collect()
}

/// Breaks lines as a terminal of `width` columns does.
fn wrapped(text: &str, width: usize) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let chars: Vec<char> = line.chars().collect();
        for piece in chars.chunks(width) {
            out.extend(piece);
            out.push('\n');
        }
    }
    out
}

proptest! {
    // One case parses dozens of texts.
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn every_output_form_round_trips(machine in machine::machine()) {
        for form in FORMS {
            let document = read(table(&machine, form), Kind::Table);
            assert_is(&document, &machine, Some(form), &format!("{form:?}"));
            prop_assert!(document.driver_version.is_some());
            prop_assert_eq!(document.unread, []);
        }
        for (kind, text) in [(Kind::Q, log(&machine)), (Kind::Xml, xml(&machine))] {
            let document = read(text, kind);
            assert_is(&document, &machine, None, kind.name());
            prop_assert_eq!(document.cuda_version.as_deref(), Some("12.4"));
            prop_assert_eq!(document.unread, []);
        }
    }

    #[test]
    fn decoration_does_not_change_result(machine in machine::machine()) {
        for (kind, text) in texts(&machine) {
            let plain = read(&text, kind);
            for (what, text) in decorated(&text) {
                let document = read(&text, kind);
                prop_assert_eq!(&document.gpus, &plain.gpus, "{} {}", what, kind.name());
                prop_assert_eq!(&document.processes, &plain.processes, "{} {}", what, kind.name());
            }
            prop_assert_eq!(&read(utf16(&text), kind), &plain);
        }
    }

    #[test]
    fn terminal_wrapped_table_is_joined(
        machine in machine::machine(),
        width in prop::sample::select(vec![40usize, 60, 70]),
    ) {
        for form in FORMS {
            let text = table(&machine, form);
            let document = read(wrapped(&text, width), Kind::Table);
            assert_is(&document, &machine, Some(form), &format!("{form:?} at {width}"));
        }
    }

    #[test]
    fn damaged_text_never_panics_and_rows_are_bounded(
        machine in machine::machine(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0u8..4), 1..20),
    ) {
        for (kind, text) in texts(&machine) {
            let mut bytes = text.into_bytes();
            for (at, byte, how) in &damage {
                let at = at.index(bytes.len());
                match how {
                    0 => bytes[at] = *byte,
                    1 => bytes.insert(at, *byte),
                    2 => drop(bytes.drain(at..(at + usize::from(*byte)).min(bytes.len()))),
                    _ => bytes.insert(at, b'\n'),
                }
                if bytes.is_empty() {
                    bytes.push(b'|');
                }
            }
            assert_bounded(&read(&bytes, kind), bytes.len());
        }
    }

    #[test]
    fn noise_never_panics(
        bytes in prop::collection::vec(any::<u8>(), 0..400),
        marks in "([|+<>/:=\\[\\]\r\n \x1b0-9a-c-]|GPU |N/A|MiB|No running|<gpu>|Processes|ID ){0,80}",
    ) {
        for kind in KINDS {
            assert_bounded(&read(&bytes, kind), bytes.len());
            assert_bounded(&read(&marks, kind), marks.len());
        }
    }
}

proptest! {
    // One case parses hundreds of texts.
    #![proptest_config(ProptestConfig::with_cases(4))]

    #[test]
    fn truncated_text_yields_no_new_facts(
        machine in machine::machine(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 40),
    ) {
        for (kind, text) in texts(&machine) {
            let whole = json(&read(&text, kind));
            for cut in &cuts {
                let part = &text.as_bytes()[..cut.index(text.len())];
                let found = disagreement(&json(&read(part, kind)), &whole, "");
                prop_assert_eq!(found, None, "{}", String::from_utf8_lossy(part));
            }
        }
    }

    #[test]
    fn text_truncated_at_line_end_keeps_earlier_devices(machine in machine::machine()) {
        for (kind, text) in texts(&machine) {
            let mut part = String::new();
            let mut before = 0;
            for line in text.lines() {
                part.push_str(line);
                part.push('\n');
                let now = read(&part, kind).gpus.len();
                prop_assert!(now == before || now == before + 1);
                before = now;
            }
            prop_assert_eq!(before, machine.cards.len());
        }
    }
}

/// The shortest device and the shortest process take five bytes each (`<gpu>`, `<pid>`).
fn assert_bounded(document: &Document, bytes: usize) {
    let processes = document.processes.as_ref().map_or(0, Vec::len);
    let rows = document.gpus.len() + processes + document.mig_devices.len();
    assert!(rows <= bytes / 5, "{rows} rows from {bytes} bytes");
    assert!(document.unread.len() <= Document::MAX_UNREAD);
}
