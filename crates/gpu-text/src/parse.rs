//! The entry point: bytes to a document.

use crate::detect::{self, Recognized};
use crate::document::{Document, Kind};
use crate::of_kind::of_kind;
use crate::paste;
use crate::placement;
use crate::text::Text;
use crate::{csv, sections};

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
    Kind::NAMED.map(|(name, _)| name).join(", ")
}

/// Parses a text. Of several outputs in it, the first of the detected kind is the document and the
/// rest are its [`others`](Document::others); with a hint, the whole text is one output.
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
        (Some(Recognized { kind, fields }), None) => {
            let document = of_kind(&text, kind, fields.as_deref());
            Ok(with_others(document, sections::of(&text)))
        }
        (Some(Recognized { kind, .. }), Some(fields)) => Ok(of_kind(&text, kind, Some(fields))),
        (None, Some(fields)) => Ok(of_kind(&text, csv::kind_of_fields(fields), Some(fields))),
        (None, None) => Err(Unrecognized { what: describe(bytes, &text) }),
    }
}

/// Adds the other outputs of a text to a document of the whole text, which has read the lines of
/// its kind everywhere. If a second report of all devices follows, it is the first report alone.
fn with_others(mut document: Document, mut parts: Vec<Document>) -> Document {
    let is_own = |part: &Document| part.kind == document.kind;
    // A web page can tear one table apart; each report names the driver once.
    let is_report = |part: &Document| {
        let of_all = matches!(part.kind, Kind::Table | Kind::Q | Kind::Xml);
        of_all && is_own(part) && part.driver_version.is_some()
    };
    if parts.iter().filter(|part| is_report(part)).count() > 1 {
        let first = parts.iter().position(is_report).map(|first| parts.remove(first));
        document = first.unwrap_or(document);
    } else {
        parts.retain(|part| !is_own(part));
    }
    // TensorFlow prints placements in the log of its start.
    if parts.iter().any(|part| part.kind == Kind::Placement) {
        document.unread.retain(|unread| !placement::is_row(&unread.text));
    }
    Document { others: parts, ..document }
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
        "empty text"
    } else if bytes.iter().take(64 << 10).any(|byte| *byte == 0) {
        "a binary file"
    } else {
        "the text"
    }
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
        assert!(unknown(b"").starts_with("empty text is not recognised"));
        assert!(unknown(b" \n\n").starts_with("empty text is not recognised"));
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
    fn every_output_of_a_text_is_kept_apart() {
        let table = |version: &str, pid: &str| {
            format!(
                "+-----------------------------------------------------------------+\n\
                 | NVIDIA-SMI {version}       Driver Version: {version}                    |\n\
                 |    0      {pid}      C   ...bin/python                      2248MiB |\n\
                 +-----------------------------------------------------------------+\n"
            )
        };
        let reset =
            "$ sudo nvidia-smi --gpu-reset\nUnable to reset this GPU because it's being used\n";
        let fuser = "$ sudo fuser -v /dev/nvidia*\n/dev/nvidia0:   ann  7 F...m x\n";
        let parsed = |text: &str| parse(text.as_bytes(), &Hint::default()).unwrap();
        let pids = |document: &Document| -> Vec<_> {
            document.processes.iter().flatten().filter_map(|process| process.pid).collect()
        };

        let document = parsed(&[&table("400.1", "4631"), reset, fuser].concat());
        assert_eq!((document.kind, pids(&document)), (Kind::Table, vec![4631]));
        let others: Vec<Kind> = document.others.iter().map(|other| other.kind).collect();
        assert_eq!(others, [Kind::Error, Kind::Fuser]);
        assert_eq!(document.others[1].holders.len(), 1);

        let document = parsed(&[&*table("400.1", "4631"), &table("400.2", "77"), fuser].concat());
        assert_eq!(
            (document.driver_version.as_deref(), pids(&document)),
            (Some("400.1"), vec![4631])
        );
        let second = &document.others[0];
        assert_eq!((second.driver_version.as_deref(), pids(second)), (Some("400.2"), vec![77]));
        assert_eq!(document.others[1].kind, Kind::Fuser);

        let one = parsed(&table("400.1", "4631"));
        assert_eq!(serde_json::to_value(&one).unwrap().get("others"), None);
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
            [(1, "not a line of this kind"), (3, "not a line of this kind")]
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
            kind in prop::sample::select(Kind::NAMED.map(|(_, kind)| kind).to_vec()),
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
