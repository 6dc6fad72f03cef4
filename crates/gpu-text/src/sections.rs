//! Splits a paste of several outputs.

use crate::detect::{self, Recognized};
use crate::document::{Document, ErrorCode, Kind};
use crate::of_kind::of_kind;
use crate::text::{self, Text};
use crate::{command, failure, paste};

/// The maximum number of parts of a paste; the last part keeps the rest.
const MAX_SECTIONS: usize = 1000;

/// Parses a paste of several consecutive outputs, possibly with shell prompts between them, into
/// one document each, in order. Skips text of no known kind.
pub fn sections(bytes: &[u8]) -> Vec<Document> {
    of(&paste::clean(bytes))
}

/// Parses each output of a text.
pub(crate) fn of(text: &Text) -> Vec<Document> {
    let parts = text::split(text, &starts(text));
    parts.iter().filter_map(read).collect()
}

fn read(part: &Text) -> Option<Document> {
    let Recognized { kind, fields } = detect::recognize(part)?;
    Some(of_kind(part, kind, fields.as_deref()))
}

/// The part that is being parsed.
#[derive(Default)]
struct Part {
    /// Its kind, once a line identifies it, and the index of that line.
    kind: Option<(Kind, usize)>,
    /// The line that ends it if it is JSON.
    json_end: Option<&'static str>,
    /// Whether it has ended: the next line belongs to another part.
    ended: bool,
}

/// Returns the indexes of the lines that start a part: a shell prompt, a line of another kind,
/// another output of the same kind.
fn starts(text: &Text) -> Vec<usize> {
    let mut starts = Vec::new();
    let mut part = Part::default();
    let mut before = "";
    let mut lines = text.lines().enumerate();
    while let Some((at, (_, line))) = lines.next() {
        if starts.len() == MAX_SECTIONS {
            break;
        }
        let (line, whole) = (line.trim(), line);
        if line.is_empty() {
            // This line starts no part; it only becomes the previous line of the next one.
            before = line;
            continue;
        }
        let kind = detect::of_line(line, lines.clone().map(|(_, (_, line))| line)).or_else(|| {
            // A complaint after a row belongs to the same tool; after a blank line, to another.
            let complains = part.kind.is_none() || before.is_empty() || is_border(before);
            let may = complains && !detect::is_short_word(line);
            (may && is_failure(line)).then_some(Kind::Error)
        });
        let start = match (part.kind, kind) {
            _ if part.ended => Some(at),
            // Everything up to its end is XML or JSON.
            (Some((Kind::Xml, _)), _) => None,
            _ if part.json_end.is_some() => None,
            // MIG lists and the tables of other tools have the same borders and rows.
            (Some((Kind::Mig | Kind::Other, _)), Some(Kind::Table))
                if !line.contains("NVIDIA-SMI ") =>
            {
                None
            }
            (_, None) if detect::is_short_word(line) => None,
            (_, None) => command::is_between(line).then_some(at),
            (None, Some(_)) => None,
            (Some((current, _)), Some(kind)) if kind != current => Some(at),
            (Some((_, since)), Some(kind)) => {
                title(line, before, kind, at).filter(|start| *start > since)
            }
        };
        if let Some(start) = start {
            starts.push(start);
            part = Part::default();
        }
        part.kind = part.kind.or(kind.map(|kind| (kind, start.unwrap_or(at))));
        let starts_json =
            part.json_end.is_none() && matches!(kind, Some(Kind::Gpustat | Kind::Other));
        if starts_json {
            part.json_end = json_end(line);
        }
        part.ended = line.ends_with("</nvidia_smi_log>")
            || part
                .json_end
                .is_some_and(|end| whole.trim_end() == end || starts_json && line.ends_with(end));
        before = line;
    }
    starts
}

/// Returns the line that ends the JSON that a line starts; `None` if it starts none. A row of gpustat
/// starts with an index in brackets.
fn json_end(line: &str) -> Option<&'static str> {
    match line.as_bytes() {
        [b'{', ..] => Some("}"),
        [b'['] | [b'[', b'{' | b' ' | b'\t', ..] => Some("]"),
        _ => None,
    }
}

/// Returns the first line of the output whose title `line` is at index `at`; `None` if it is not a
/// title.
fn title(line: &str, before: &str, kind: Kind, at: usize) -> Option<usize> {
    match kind {
        // The upper border is above the title.
        Kind::Table if line.contains("NVIDIA-SMI") => {
            Some(at.saturating_sub(usize::from(before.starts_with('+'))))
        }
        Kind::Q if detect::is_q_title(line) => Some(at),
        // The title, or the border above it.
        Kind::Mig if !before.starts_with('+') => Some(at),
        _ => None,
    }
}

/// Returns whether a line is the lower border of a table, after which another text may follow.
fn is_border(line: &str) -> bool {
    line.starts_with('+') && line.ends_with("-+")
}

fn is_failure(line: &str) -> bool {
    failure::codes(line).iter().any(|code| *code != ErrorCode::Other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn kinds(paste: &str) -> Vec<Kind> {
        sections(paste.as_bytes()).iter().map(|document| document.kind).collect()
    }

    const BORDER: &str = "+-----------------------------------------------------------------+\n";
    const TABLE: &str = "| NVIDIA-SMI 400.1       Driver Version: 400.1                    |\n";
    const FUSER: &str = "/dev/nvidia0:   ann  7 F...m x\n";
    const LIST: &str = "GPU 0: Test K80 (UUID: GPU-1)\n";

    #[test]
    fn outputs_without_prompts_are_split() {
        let table = format!("Tue Nov 21\n{BORDER}{TABLE}{BORDER}");
        assert_eq!(kinds(&format!("{table}{FUSER}")), [Kind::Table, Kind::Fuser]);
        assert_eq!(
            kinds(&format!("{table}\n{table}{LIST}")),
            [Kind::Table, Kind::Table, Kind::List]
        );
        let log = "==============NVSMI LOG==============\n    Minor Number      : 0\n";
        assert_eq!(kinds(&format!("{log}{log}{FUSER}")), [Kind::Q, Kind::Q, Kind::Fuser]);
    }

    #[test]
    fn outputs_between_prompts_are_split() {
        let paste = format!(
            "ann@box:~$ nvidia-smi -L\n{LIST}ann@box:~$ nvidia-smi --query-gpu=index,memory.used \
             --format=csv,noheader\n0, 7 MiB\nann@box:~$ sudo nvidia-smi --gpu-reset\n\
             Unable to reset this GPU because it's being used\nann@box:~$ sudo fuser -v /dev/nvidia*\n\
             {FUSER}ann@box:~$"
        );
        assert_eq!(kinds(&paste), [Kind::List, Kind::QueryGpu, Kind::Error, Kind::Fuser]);
        let documents = sections(paste.as_bytes());
        assert_eq!(documents[1].gpus[0].memory_used_mib, Ok(7));
        assert_eq!(documents[2].errors, [ErrorCode::ResetRefused]);
    }

    #[test]
    fn xml_is_one_section() {
        let xml = "<?xml version=\"1.0\" ?>\n<nvidia_smi_log>\n<gpu id=\"0:1:2.0\">\n$ x\n\n\
                   No devices were found\n</gpu>\n</nvidia_smi_log>\n";
        assert_eq!(kinds(&format!("{xml}{LIST}{xml}")), [Kind::Xml, Kind::List, Kind::Xml]);
    }

    #[test]
    fn prose_is_dropped_and_error_messages_are_kept() {
        let prose = "Hello, I have a problem with my GPU, an error.\n\n";
        let failed = "\nNo devices were found\n\n";
        assert_eq!(
            kinds(&format!("{prose}{LIST}{failed}{FUSER}")),
            [Kind::List, Kind::Error, Kind::Fuser]
        );
        assert_eq!(kinds("just words\n"), []);
    }

    #[test]
    fn failure_directly_below_table_is_kept() {
        let lost = "Unable to determine the device handle for GPU 0000:0A:00.0: GPU is lost.\n";
        let documents = sections(format!("{BORDER}{TABLE}{BORDER}{lost}").as_bytes());
        let kinds: Vec<Kind> = documents.iter().map(|document| document.kind).collect();
        assert_eq!(kinds, [Kind::Table, Kind::Error]);
        assert_eq!(documents[1].errors, [ErrorCode::DeviceHandle]);
    }

    #[test]
    fn line_numbers_are_kept() {
        let documents = sections(format!("{LIST}\n{FUSER}what is this\n").as_bytes());
        assert_eq!(documents[1].unread[0].line, 4);
    }

    #[test]
    fn unrelated_outputs_and_rows_start_no_section() {
        let log = "==============NVSMI LOG==============\n    Minor Number      : 0\n";
        let titles = format!("{TABLE}{TABLE}");
        assert_eq!(kinds(&titles), [Kind::Table, Kind::Table]);
        let documents = sections(format!("{BORDER}{TABLE}{BORDER}{BORDER}{TABLE}").as_bytes());
        assert_eq!(documents.len(), 2);
        assert_eq!(kinds(&format!("{LIST}{LIST}No devices were found\n")), [Kind::List]);
        assert_eq!(kinds(&format!("{LIST}\nNo devices were found\n")), [Kind::List, Kind::Error]);
        assert_eq!(kinds(&format!("No devices were found\n{LIST}")), [Kind::Error, Kind::List]);
        assert_eq!(kinds(&format!("{log}{LIST}{log}")), [Kind::Q, Kind::List, Kind::Q]);
        let many = "$ nvidia-smi -L\nGPU 0: K (UUID: GPU-a)\n".repeat(MAX_SECTIONS + 5);
        assert_eq!(sections(many.as_bytes()).len(), MAX_SECTIONS);
    }

    proptest! {
        #[test]
        fn arbitrary_paste_is_split(
            parts in prop::collection::vec(
                prop::sample::select(vec![BORDER, TABLE, FUSER, LIST, "$ nvidia-smi\n", "x\n", "\n",
                    "# gpu  pwr\n", "0 1\n", "index, name\n", "0, x\n", "No devices were found\n",
                    "<?xml ?>\n", "</nvidia_smi_log>\n", "\tGPU0\tGPU1\n", "GPU0\tX\tOK\n"]),
                0..30,
            ),
        ) {
            let paste = parts.concat();
            let documents = sections(paste.as_bytes());
            prop_assert_eq!(&documents, &sections(paste.as_bytes()));
            let holders: usize = documents.iter().map(|document| document.holders.len()).sum();
            let in_xml = paste.contains("<?xml");
            prop_assert!(in_xml || holders == parts.iter().filter(|part| **part == FUSER).count());
            prop_assert!(documents.len() <= parts.len());
        }
    }
}
