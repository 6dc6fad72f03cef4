//! The entry point: bytes to a document.

use crate::command;
use crate::detect::{self, Recognized};
use crate::document::{Document, Kind};
use crate::paste;
use crate::text::Text;
use crate::{
    csv, failure, fuser, gpustat, gpustat_json, kernel_log, list, lsof, mig_list, monitor, q,
    table, tensorflow, topology, xml,
};

/// What the caller knows about a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hint {
    /// Its kind; without it, the kind is detected.
    pub kind: Option<Kind>,
    /// The fields of CSV output without a header line, as passed to `--query-gpu`.
    pub fields: Option<Vec<String>>,
}

/// The text is of no known kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{what} is not recognised ({}); set --kind, and --fields for CSV without a header",
    known()
)]
pub struct Unrecognized {
    what: &'static str,
}

fn known() -> String {
    let names: Vec<&str> = Kind::ALL.iter().map(|kind| kind.name()).collect();
    names.join(", ")
}

/// Parses a text of one kind.
///
/// # Errors
/// [`Unrecognized`] when the hint has no kind and no line of the text identifies it.
pub fn parse(bytes: &[u8], hint: &Hint) -> Result<Document, Unrecognized> {
    if hint.kind.is_none() && is_binary(bytes) {
        return Err(Unrecognized { what: "a binary file" });
    }
    let text = paste::clean(bytes);
    if let Some(kind) = hint.kind {
        return Ok(of_kind(&text, kind, hint.fields.as_deref()));
    }
    // Rows of CSV can look like a failure: if the caller passes fields, they are rows.
    let recognized = detect::recognize(&text)
        .filter(|recognized| hint.fields.is_none() || recognized.kind != Kind::Error);
    match (recognized, &hint.fields) {
        (Some(Recognized { kind, fields }), reported) => {
            Ok(of_kind(&text, kind, reported.as_deref().or(fields.as_deref())))
        }
        (None, Some(fields)) => Ok(of_kind(&text, csv::kind_of_fields(fields), Some(fields))),
        (None, None) => Err(Unrecognized { what: describe(bytes, &text) }),
    }
}

/// Returns whether a file is binary, such as a program or an archive: more than a twentieth of its
/// start is zero bytes. A recognisable text in such a file is just one string among others. A crash
/// leaves runs of zeros in a log too, but those are short compared to the log.
fn is_binary(bytes: &[u8]) -> bool {
    let beginning = &bytes[..bytes.len().min(64 << 10)];
    let is_utf16 = beginning.starts_with(&[0xff, 0xfe]) || beginning.starts_with(&[0xfe, 0xff]);
    let zeros = beginning.iter().filter(|byte| **byte == 0).count();
    !is_utf16 && zeros > beginning.len() / 20
}

/// Describes an unrecognised text in one word or phrase.
fn describe(bytes: &[u8], text: &Text) -> &'static str {
    if text.lines().all(|(_, line)| line.trim().is_empty()) {
        "an empty text"
    } else if bytes.iter().take(64 << 10).any(|byte| *byte == 0) {
        "a binary file"
    } else {
        "the text"
    }
}

/// Parses a text of a known kind; `fields` has the columns if it has no header.
pub(crate) fn of_kind(text: &Text, kind: Kind, fields: Option<&[String]>) -> Document {
    let mut document = match kind {
        Kind::Table => table::parse(text),
        Kind::Q => q::parse(text),
        Kind::Xml => xml::parse(text),
        Kind::QueryGpu | Kind::QueryApps => csv::parse(text, kind, fields),
        Kind::List => list::parse(text),
        Kind::Pmon | Kind::Dmon => monitor::parse(text, kind, fields),
        Kind::Topo if text.lines().any(|(_, line)| tensorflow::is_row(line)) => {
            tensorflow::parse(text)
        }
        Kind::Topo | Kind::P2p => topology::parse(text, kind),
        Kind::Mig => mig_list::parse(text),
        Kind::Gpustat => gpustat_json::parse(text).unwrap_or_else(|| gpustat::parse(text)),
        Kind::Fuser => fuser::parse(text),
        Kind::Lsof => lsof::parse(text),
        Kind::KernelLog => kernel_log::parse(text),
        Kind::Error => failure::parse(text),
    };
    text.lines().for_each(|(_, line)| document.times.take_line(line));
    if !matches!(kind, Kind::KernelLog | Kind::Xml) {
        kernel_log::take_unread(text, &mut document);
    }
    // Shell output around the text is not part of it.
    document.unread.retain(|unread| !command::is_between(&unread.text));
    if text.is_cut() {
        let last = text.lines().map(|(number, _)| number).last().unwrap_or(0);
        document.note_unread(last, "", "the text exceeds the size limit");
    }
    if is_silent(&document) {
        for (number, line) in text.lines().filter(|(_, line)| !line.trim().is_empty()) {
            document.note_unread(number, line, "nothing of this kind");
        }
    }
    document
}

/// Returns whether a parser found no data of its kind and no statement that there is none.
fn is_silent(document: &Document) -> bool {
    let Document { gpus, processes, mig_devices, columns, rows, topology, holders, .. } = document;
    let found = gpus.is_empty() && processes.is_none() && mig_devices.is_empty();
    found
        && columns.is_empty()
        && rows.is_empty()
        && topology.is_none()
        && holders.is_empty()
        && document.errors.is_empty()
        && document.driver_messages.is_empty()
        && document.driver_version.is_none()
        && document.unread.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn unknown(bytes: &[u8]) -> String {
        parse(bytes, &Hint::default()).unwrap_err().to_string()
    }

    #[test]
    fn unknown_text_error_suggests_options() {
        assert!(unknown(b"").starts_with("an empty text is not recognised"));
        assert!(unknown(b" \n\n").starts_with("an empty text is not recognised"));
        assert!(unknown(b"\x7fELF\0\0\0\0").starts_with("a binary file is not recognised"));
        let message = unknown(b"0, 7 MiB\n");
        assert!(message.starts_with("the text is not recognised"), "{message}");
        assert!(message.contains("query_apps") && message.contains("--fields"), "{message}");
    }

    #[test]
    fn query_kind_is_inferred_from_fields() {
        for (fields, kind) in
            [(["index", "memory.used"], Kind::QueryGpu), (["pid", "used_memory"], Kind::QueryApps)]
        {
            let fields = Some(fields.map(str::to_owned).to_vec());
            for row in ["0, 7 MiB\n", "0, [Unknown Error]\n"] {
                let hint = Hint { kind: None, fields: fields.clone() };
                let document = parse(row.as_bytes(), &hint).unwrap();
                assert_eq!((document.kind, document.unread), (kind, vec![]), "{row}");
            }
        }
    }

    #[test]
    fn shell_prompts_are_not_unread() {
        let text = "ann@box:~$ nvidia-smi -L\nGPU 0: Test K80 (UUID: GPU-1)\nann@box:~$\nwhat\n";
        let document = parse(text.as_bytes(), &Hint::default()).unwrap();
        let unread: Vec<_> = document.unread.iter().map(|unread| unread.text.as_str()).collect();
        assert_eq!(unread, ["what"]);
    }

    #[test]
    fn text_of_other_kind_is_entirely_unread() {
        let unread = |kind, text: &str| {
            let document =
                parse(text.as_bytes(), &Hint { kind: Some(kind), fields: None }).unwrap();
            document.unread.iter().map(|unread| (unread.line, unread.why)).collect::<Vec<_>>()
        };
        assert_eq!(
            unread(Kind::Xml, "a\n\nb\n"),
            [(1, "nothing of this kind"), (3, "nothing of this kind")]
        );
        for (kind, text) in [
            (Kind::Table, "| NVIDIA-SMI 400.1  Driver Version: 400.1 |\n"),
            (Kind::Xml, "<gpu><processes>None</processes></gpu>\n"),
            (Kind::Xml, "<gpu></gpu>\n"),
            (Kind::QueryApps, "pid\n"),
            (Kind::QueryGpu, "index\n"),
            (Kind::Topo, "\tGPU0\n"),
            (Kind::Fuser, "/dev/nvidia0: 7\n"),
            (Kind::List, "No devices were found\n"),
            (Kind::List, "MIG 1g.5gb Device 0: (UUID: MIG-a)\n"),
            (Kind::Pmon, "# gpu pid\n"),
            (Kind::KernelLog, "NVRM: Xid (PCI:0000:3b:00): 79, x\n"),
        ] {
            assert_eq!(unread(kind, text), [], "{text}");
        }
    }

    #[test]
    fn binary_file_is_not_text() {
        let with_zeros = |zeros: usize, rest: usize| {
            let bytes = ["\0".repeat(zeros), "No devices were found\n".repeat(rest)].concat();
            parse(bytes.as_bytes(), &Hint::default()).is_ok()
        };
        assert!(with_zeros(1, 1) && with_zeros(11, 10));
        assert!(!with_zeros(2, 1) && !with_zeros(13, 10));
        for bytes in [&b"\xff\xfeG\0P\0U\0"[..], b"\xfe\xff\0G\0P\0U"] {
            assert_eq!(unknown(bytes).split(' ').next(), Some("a"), "the text has zeros");
            let hint = Hint { kind: Some(Kind::List), fields: None };
            assert_eq!(parse(bytes, &hint).unwrap().unread[0].text, "GPU");
        }
    }

    #[test]
    fn reported_fields_replace_those_of_command() {
        let text = "$ nvidia-smi --query-gpu=index,memory.used --format=csv,noheader\n3, 7 MiB\n";
        let used = |fields: Option<[&str; 2]>| {
            let fields = fields.map(|fields| fields.map(str::to_owned).to_vec());
            let document = parse(text.as_bytes(), &Hint { kind: None, fields }).unwrap();
            (document.gpus[0].index, document.gpus[0].memory_total_mib.ok())
        };
        assert_eq!(used(None), (Some(3), None));
        assert_eq!(used(Some(["index", "memory.total"])), (Some(3), Some(7)));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_give_deterministic_bounded_document(
            bytes in prop::collection::vec(any::<u8>(), 0..300),
            kind in prop::sample::select(Kind::ALL.to_vec()),
        ) {
            let hint = Hint { kind: Some(kind), fields: None };
            let document = parse(&bytes, &hint).unwrap();
            prop_assert_eq!(document.kind, kind);
            let lines = bytes.split(|byte| matches!(byte, b'\n' | b'\r')).count();
            prop_assert!(document.gpus.len() + document.holders.len() <= bytes.len().max(lines));
            prop_assert_eq!(parse(&bytes, &hint), Ok(document));
        }
    }
}
