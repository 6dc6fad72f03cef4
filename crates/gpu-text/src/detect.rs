//! Detects the kind of a text.
//!
//! Each kind has lines that are unique to it, such as a header or a row with a distinct shape. The
//! first such line decides. CSV without a header has none; it is identified by the command line
//! above it or by the caller. Messages of the kernel log may stand in any other output, so they
//! decide only if nothing else does. A text of no other kind is a failure text if it reports an
//! error.

use crate::command::{self, Command};
use crate::document::Kind;
use crate::text::Text;
use crate::{
    csv, failure, fuser, gpustat, gpustat_json, kernel_log, list, lsof, mig_list, monitor, other,
    placement, tensorflow, topology,
};

/// The detected kind of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Recognized {
    pub(crate) kind: Kind,
    /// The fields in the command line above.
    pub(crate) fields: Option<Vec<String>>,
}

/// Detects the kind of a text.
pub(crate) fn recognize(text: &Text) -> Option<Recognized> {
    let (mut command, mut is_log) = (None, false);
    let mut lines = text.lines();
    while let Some((_, line)) = lines.next() {
        match of_line(line, lines.clone().map(|(_, line)| line)) {
            Some(Kind::KernelLog) => is_log = true,
            Some(kind) => return Some(Recognized { kind, fields: None }),
            None => {}
        }
        if command.is_none() && !is_short_word(line) {
            command = command::read(line);
        }
    }
    by_command(text, command.as_ref()).or_else(|| {
        let kind = if is_log { Kind::KernelLog } else { Kind::Error };
        (is_log || failure::is_failure(text)).then_some(Recognized { kind, fields: None })
    })
}

/// Detects CSV without a header by the command above it: some line has a cell per field.
fn by_command(text: &Text, command: Option<&Command>) -> Option<Recognized> {
    let fields = command?.fields.as_ref()?;
    let has_cells = |line: &str| {
        !line.trim().is_empty()
            && command::read(line).is_none()
            && line.split(',').count() == fields.len()
    };
    let kind = command?.kind?;
    let is_plain = |line: &str| fields.len() > 1 || failure::codes(line).is_empty();
    text.lines()
        .any(|(_, line)| has_cells(line) && is_plain(line))
        .then(|| Recognized { kind, fields: Some(fields.clone()) })
}

/// Returns the only kind that has lines like this one; `following` has the lines after it.
pub(crate) fn of_line<'a>(
    line: &str,
    following: impl Iterator<Item = &'a str> + Clone,
) -> Option<Kind> {
    let line = line.trim();
    if line.is_empty() {
        return None;
    }
    if is_short_word(line) && !line.starts_with("GPU") {
        // No field has a name shorter than three characters.
        return if line.len() < 3 { None } else { csv::kind_of_header(line) };
    }
    // The rows of fuser and lsof come first: their commands may look like anything else.
    if fuser::is_header(line) || fuser::is_row(line) {
        Some(Kind::Fuser)
    } else if lsof::is_header(line) || lsof::is_row(line) {
        Some(Kind::Lsof)
    } else if is_xml(line) {
        Some(Kind::Xml)
    } else if mig_list::is_start(line, following.clone()) {
        Some(Kind::Mig)
    } else if gpustat::is_row(line) || gpustat_json::is_start(line, following.clone()) {
        Some(Kind::Gpustat)
    } else if other::is_start(line, following.clone()) {
        Some(Kind::Other)
    } else if is_table(line) {
        Some(Kind::Table)
    } else if is_q(line) {
        Some(Kind::Q)
    } else if list::is_row(line) {
        Some(Kind::List)
    } else if tensorflow::is_row(line) {
        Some(Kind::Topo)
    } else if placement::is_row(line) {
        Some(Kind::Placement)
    } else {
        monitor::kind_of_header(line)
            .or_else(|| csv::kind_of_header(line))
            .or_else(|| topology::kind_of_header(line, following.clone()))
            .or_else(|| kernel_log::is_row(line, following).then_some(Kind::KernelLog))
    }
}

/// Returns whether a line is one short word, of letters and digits alone. Such a line may name a
/// field or a device; it is never a command, a prompt or a failure.
pub(crate) fn is_short_word(line: &str) -> bool {
    line.len() < failure::SHORTEST && line.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

fn is_xml(line: &str) -> bool {
    let Some(rest) = line.strip_prefix('<') else { return false };
    if ["?xml", "!DOCTYPE", "nvidia_smi_log", "gpu id="].iter().any(|start| rest.starts_with(start))
    {
        return true;
    }
    // In the middle of a truncated document: `<name>value</name>`.
    let Some((name, rest)) = rest.split_once('>') else { return false };
    rest.strip_suffix('>')
        .and_then(|rest| rest.rsplit_once("</"))
        .is_some_and(|(_, end)| end == name)
        && name.contains('_')
}

/// Returns whether a line belongs to nvidia-smi's table: its title, its borders, or a row between
/// bars with a typical word.
fn is_table(line: &str) -> bool {
    const WORDS: [&str; 15] = [
        "MiB",
        "MB /",
        "N/A",
        "ERR!",
        "Default",
        "Disabled",
        "Enabled",
        "E. Process",
        "GPU  Name",
        "Fan  Temp",
        "Processes:",
        "PID   Type",
        "No running",
        "Off |",
        "On |",
    ];
    let title = line
        .split_once("NVIDIA-SMI ")
        .is_some_and(|(_, version)| version.trim_start().starts_with(|c: char| c.is_ascii_digit()));
    let is_bar = |c: char| matches!(c, '|' | '+');
    let border = line.len() >= 40
        && line.starts_with(is_bar)
        && line.chars().all(|c| is_bar(c) || matches!(c, '-' | '=' | ' '))
        && (line.contains("----------") || line.contains("=========="));
    let row = line.len() >= 30
        && line.starts_with('|')
        && line.ends_with('|')
        && line.contains("  ")
        && WORDS.iter().any(|word| line.contains(word));
    title || border || row
}

/// Returns whether a line is the title of `-q`.
pub(crate) fn is_q_title(line: &str) -> bool {
    line.contains("NVSMI LOG") && line.contains("==")
}

/// Returns whether a line belongs to `-q`: its title, or a key that only it has.
fn is_q(line: &str) -> bool {
    const KEYS: [&str; 30] = [
        "Attached GPUs",
        "Product Name",
        "Product Brand",
        "Product Architecture",
        "Persistence Mode",
        "Display Mode",
        "Display Active",
        "Display Attached",
        "Driver Version",
        "CUDA Version",
        "KMD Version",
        "CUDA UMD Version",
        "GPU UUID",
        "Minor Number",
        "VBIOS Version",
        "Bus Id",
        "Performance State",
        "Compute Mode",
        "Fan Speed",
        "Process ID",
        "Used GPU Memory",
        "GPU Current Temp",
        "Power Draw",
        "Average Power Draw",
        "Enforced Power Limit",
        "GPU instance ID",
        "GPU Virtualization Mode",
        "Accounting Mode",
        "Serial Number",
        "Timestamp",
    ];
    const SECTIONS: [&str; 4] =
        ["FB Memory Usage", "BAR1 Memory Usage", "GPU Power Readings", "Clocks Throttle Reasons"];
    if is_q_title(line) || SECTIONS.contains(&line) {
        return true;
    }
    // The colon is separate: `Minor Number                          : 0`.
    line.split_once(" : ")
        .or_else(|| line.split_once(" :"))
        .is_some_and(|(key, _)| KEYS.contains(&key.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::clean;
    use proptest::prelude::*;

    fn kind(text: &str) -> Option<Kind> {
        recognize(&clean(text.as_bytes())).map(|recognized| recognized.kind)
    }

    #[test]
    fn each_kind_is_detected_by_one_line() {
        for (text, want) in [
            ("Tue\n+-----------------------------+--------------+\n| NVIDIA-SMI 1", Kind::Table),
            ("|   0  Test K80           On   | 00000000:00:1E.0 Off |", Kind::Table),
            ("|    0      4631      C   ...bin/python  2248MiB |", Kind::Table),
            ("\n==============NVSMI LOG==============\n", Kind::Q),
            ("        FB Memory Usage\n            Total : 1 MiB\n", Kind::Q),
            ("    Minor Number                          : 0", Kind::Q),
            ("<?xml version=\"1.0\" ?>", Kind::Xml),
            ("\t\t<product_name>Test K80</product_name>", Kind::Xml),
            ("index, memory.used [MiB]\n0, 1 MiB", Kind::QueryGpu),
            ("pid, used_memory\n", Kind::QueryApps),
            ("GPU 0: Test K80 (UUID: GPU-1)", Kind::List),
            ("# gpu   pid  type\n# Idx     #   C/G\n", Kind::Pmon),
            ("# gpu   pwr  temp\n# Idx     W     C\n", Kind::Dmon),
            ("\tGPU0\tCPU Affinity\nGPU0\tX\t0-3\n", Kind::Topo),
            ("x.cc:1] Found device 0 with properties: ", Kind::Topo),
            ("\tGPU0\tGPU1\n GPU0\tX\tOK\n", Kind::P2p),
            ("[0] Test K80 | 40°C,  5 % |  7 / 11441 MB |", Kind::Gpustat),
            ("| GPU instances:                          |", Kind::Mig),
            ("/dev/nvidia0:  ann 7 F...m x", Kind::Fuser),
            ("             USER        PID ACCESS COMMAND", Kind::Fuser),
            ("COMMAND PID USER FD TYPE DEVICE SIZE/OFF NODE NAME", Kind::Lsof),
            ("x 7 ann mem CHR 195,0 5 /dev/nvidia0", Kind::Lsof),
            ("[1.5] NVRM: Xid (PCI:0000:3b:00): 79, x", Kind::KernelLog),
            ("a: (Add): /job:b/replica:0/task:0/device:CPU:0", Kind::Placement),
            ("No devices were found", Kind::Error),
            ("$ nvidia-smi --query-gpu=index,name --format=csv,noheader\n0, Test", Kind::QueryGpu),
            ("$ nvidia-smi --query-gpu=index --format=csv\nNo devices were found", Kind::Error),
        ] {
            assert_eq!(kind(text), Some(want), "{text}");
        }
    }

    #[test]
    fn unrelated_text_has_no_kind() {
        for text in [
            "",
            "\n \n",
            "hello",
            "| a | b |",
            "| a longer row of | prose about a GPU | in Markdown |",
            "# gpu memory and other facts",
            "One paragraph.\n\nAnother one.\n\nIt failed on the GPU.",
            "+---+---+",
            "0, Test K80, 83",
            "Key : value",
            "<html><b>x</b></html>",
            "a: 1 2",
            "the error is mine",
        ] {
            assert_eq!(kind(text), None, "{text}");
        }
    }

    #[test]
    fn rows_of_tables_and_logs_are_distinguished_from_similar_lines() {
        let line = "-".repeat(38);
        for (text, want) in [
            (format!("+{line}+"), Some(Kind::Table)),
            (format!("|{}|", "=".repeat(38)), Some(Kind::Table)),
            (format!("+{}+", "-".repeat(37)), None),
            (format!("+{}x+", "-".repeat(37)), None),
            (format!("-{line}-"), None),
            (format!("+{}+", "- ".repeat(19)), None),
            (format!("| {:<27}|", "7MiB  x"), Some(Kind::Table)),
            (format!("| {:<26}|", "7MiB  x"), None),
            (format!("| {:<27}|", "7Mib  x"), None),
            (format!("| {} |", "MiB x ".repeat(5).trim()), None),
            (format!("| {:<27}-", "7MiB  x"), None),
            (format!("- {:<27}|", "7MiB  x"), None),
            ("a NVIDIA-SMI 500.1 b".to_owned(), Some(Kind::Table)),
            ("the NVIDIA-SMI tool".to_owned(), None),
            ("== NVSMI LOG ==".to_owned(), Some(Kind::Q)),
            ("NVSMI LOG".to_owned(), None),
            ("== LOG ==".to_owned(), None),
            ("Clocks Throttle Reasons".to_owned(), Some(Kind::Q)),
            ("Minor Number :".to_owned(), Some(Kind::Q)),
            ("Minor Numbers : 1".to_owned(), None),
            ("Minor Number: 1".to_owned(), None),
            ("<!DOCTYPE x".to_owned(), Some(Kind::Xml)),
            ("<nvidia_smi_log>".to_owned(), Some(Kind::Xml)),
            ("<gpu id=\"0\">".to_owned(), Some(Kind::Xml)),
            ("<a_b>1</a_b>".to_owned(), Some(Kind::Xml)),
            ("<ab>1</ab>".to_owned(), None),
            ("<a_b>1</a_c>".to_owned(), None),
            ("<a_b>1</a_b".to_owned(), None),
        ] {
            assert_eq!(kind(&text), want, "{text}");
        }
    }

    #[test]
    fn rows_without_header_belong_to_query_above() {
        let of = |rows: &str| {
            kind(&format!("$ nvidia-smi --query-gpu=index,name --format=csv,noheader\n{rows}"))
        };
        assert_eq!(of("0, x"), Some(Kind::QueryGpu));
        assert_eq!(of("0, x, y"), None);
        assert_eq!(of(""), None);
        let of = |rows: &str| {
            kind(&format!("$ nvidia-smi --query-apps=pid --format=csv,noheader\n{rows}"))
        };
        assert_eq!(of("7"), Some(Kind::QueryApps));
        assert_eq!(of("\n \n$ lsof"), None);
    }

    proptest! {
        #[test]
        fn short_word_is_field_or_unrecognized(word in "[A-Za-z0-9]{1,6}") {
            prop_assert!(is_short_word(&word));
            let is_between = word == "fuser" || word == "lsof";
            prop_assert!(is_between || !command::is_between(&word));
            prop_assert!(failure::codes(&word).is_empty());
            prop_assert!(!kernel_log::is_row(&word, std::iter::empty()));
            prop_assert!(monitor::kind_of_header(&word).is_none() && !tensorflow::is_row(&word));
            prop_assert!(!gpustat::is_row(&word));
            prop_assert!(!mig_list::is_start(&word, std::iter::empty()));
            prop_assert!(!is_table(&word) && !is_q(&word) && !list::is_row(&word));
            prop_assert!(!fuser::is_row(&word) && !lsof::is_row(&word) && !is_xml(&word));
        }

        #[test]
        fn detection_is_deterministic(bytes in prop::collection::vec(any::<u8>(), 0..500)) {
            let text = clean(&bytes);
            prop_assert_eq!(recognize(&text), recognize(&text));
        }
    }
}
