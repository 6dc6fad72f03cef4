//! The error messages of the drivers of NVIDIA, of its NVSwitches, of AMD and of Intel in the kernel
//! log, as `dmesg`, `journalctl -k` and syslog print it.
//!
//! [`parse_message`] reads a message; this module finds it in a line, reads the time
//! before it, and joins messages of three lines. It skips all other lines of the kernel.

use crate::document::{Document, DriverMessage, ErrorCode, Kind, keep};
use crate::driver_line::{DRIVER, start_in};
use crate::failure;
use crate::log_prefix;
use crate::stamp::{self, Stamp, TextTimes};
use crate::text::Text;
use crate::work_meter;
use gpu_core::Timestamp;
use gpu_nvidia_driver::{SXID, XID, parse_message};
use std::collections::BTreeSet;
use std::time::Duration;

/// The first line of a message of three lines.
const FIRST_OF_THREE: &str = "NVRM: The NVIDIA GPU ";

/// Parses the log.
pub(crate) fn parse(text: &Text) -> Document {
    let mut document = Document::new(Kind::KernelLog);
    let found = read(text, &mut document, |_| true);
    for (number, line) in text.lines() {
        if line.trim().is_empty() || found.contains(&number) {
            continue;
        }
        let mut codes = failure::codes(line);
        codes.retain(|code| *code != ErrorCode::Other);
        if codes.is_empty() && !is_of_kernel(line) {
            document.note_unread(number, line, "not a line of a kernel log");
        }
        codes.into_iter().for_each(|code| document.note_error(code, line));
    }
    document
}

/// Moves messages among the unread lines of another output to the document's messages.
pub(crate) fn take_unread(text: &Text, document: &mut Document) {
    let unread: BTreeSet<usize> = document.unread.iter().map(|unread| unread.line).collect();
    if !unread.is_empty() {
        let found = read(text, document, |line| unread.contains(&line));
        document.unread.retain(|unread| !found.contains(&unread.line));
    }
}

/// Adds the messages that start in these lines to a document, and returns all their lines.
fn read(text: &Text, document: &mut Document, starts: impl Fn(usize) -> bool) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    let mut lines = text.lines();
    // The fields of a journal entry follow the line with its time.
    let mut entry = None;
    while let Some((number, line)) = lines.next() {
        entry = stamp::of_entry(line).or(entry);
        if !starts(number) {
            continue;
        }
        let following = lines.clone();
        let Some((message, more)) = message(line, following.clone().map(|(_, line)| line)) else {
            continue;
        };
        let is_field = line.trim_start().starts_with("MESSAGE=");
        let stamp = stamp::before_message(line).or(entry.filter(|_| is_field));
        if keep(&mut document.driver_messages, row(message, stamp)) {
            found.insert(number);
            found.extend(following.take(more).map(|(number, _)| number));
        } else {
            document.note_unread(number, line, "row limit exceeded");
        }
    }
    found
}

/// Returns whether a message starts in a line; `following` are the lines after it.
pub(crate) fn is_row<'a>(line: &str, following: impl Iterator<Item = &'a str>) -> bool {
    message(line, following).is_some()
}

/// Returns the message that starts in a line, and how many more lines it spans.
fn message<'a>(
    line: &str,
    following: impl Iterator<Item = &'a str>,
) -> Option<(gpu_core::DriverMessage, usize)> {
    work_meter::add(line.len());
    let (before, text) = line.split_at(start_in(line)?);
    let text = log_prefix::after(before, text)?;
    let at = Timestamp(0);
    let other = || gpu_drm_driver::parse_message(text, at);
    if let Some(message) = parse_message(text, at).or_else(other) {
        return Some((message, 0));
    }
    if !text.starts_with(FIRST_OF_THREE) {
        return None;
    }
    let (mut joined, mut more) = (text.to_owned(), 0);
    for line in following.take(2).take_while(|line| line.contains(DRIVER)) {
        joined.extend(["\n", line]);
        more += 1;
    }
    work_meter::add(joined.len());
    Some((parse_message(&joined, at)?, more))
}

/// Returns whether a line has the prefix of a kernel log line.
fn is_of_kernel(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with(['[', '<'])
        || line.starts_with("-- ")
        || line.contains("kernel: ")
        || line
            .find(DRIVER)
            .or_else(|| gpu_drm_driver::start_in(line))
            .is_some_and(|at| log_prefix::after(&line[..at], "").is_some())
        || is_field_of_journal(line)
        || stamp::of_line(line).or_else(|| stamp::of_entry(line)).is_some()
}

/// Returns whether a line is a field of `journalctl -o verbose` or `-o export`.
fn is_field_of_journal(line: &str) -> bool {
    let key = line.split_once('=').map(|(key, _)| key);
    key.is_some_and(|key| {
        key.len() > 2 && key.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_')
    })
}

fn row(message: gpu_core::DriverMessage, stamp: Option<Stamp>) -> DriverMessage {
    DriverMessage {
        time_unix_ms: match stamp {
            Some(Stamp::Zoned(at, _)) => u64::try_from(at).ok(),
            _ => None,
        },
        bus_id: message.bus.to_string(),
        xid: message.code.number_in(XID),
        sxid: message.code.number_in(SXID),
        pid: message.pid.map(|pid| pid.0),
        process: message.process.clone(),
        gpu_instance_id: message.gpu_instance,
        compute_instance_id: message.compute_instance,
        text: message.text.clone(),
        stamp,
        message,
    }
}

/// Returns the message of a row with its time; `times` has the times of its text.
pub(crate) fn of_row(row: &DriverMessage, times: TextTimes) -> gpu_core::DriverMessage {
    let at = row.stamp.and_then(|stamp| times.resolve(stamp));
    gpu_core::DriverMessage {
        at: at.unwrap_or(gpu_core::DriverMessage::UNDATED),
        elapsed: match row.stamp {
            Some(Stamp::Boot(since) | Stamp::Yearless(since)) if at.is_none() => {
                u64::try_from(since).ok().map(Duration::from_millis)
            }
            _ => None,
        },
        is_local: at.is_some()
            && matches!(row.stamp, Some(Stamp::Local(_) | Stamp::Yearless(_)))
            && !times.has_zone(),
        ..row.message.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::clean;
    use crate::{Hint, sections};
    use proptest::prelude::*;

    const XID: &str =
        "NVRM: Xid (PCI:0000:3b:00): 79, pid=7, name=train, GPU has fallen off the bus.";
    const THREE: [&str; 3] = [
        "NVRM: The NVIDIA GPU 0000:5e:00.0",
        "NVRM: (PCI ID: 10de:2330) installed in this system has",
        "NVRM: fallen off the bus and is not responding to commands.",
    ];

    fn of(text: &str) -> Document {
        parse(&clean(text.as_bytes()))
    }

    fn codes(document: &Document) -> Vec<Option<u32>> {
        document.driver_messages.iter().map(|message| message.xid).collect()
    }

    #[test]
    fn messages_of_each_tool_are_parsed() {
        let text = format!(
            "[    0.000000] Linux version 6.8.0 (build@host) #1 SMP\n\
             [12345.678901] {XID}\n\
             [12345.7] NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.\n\
             2025-03-03T10:00:00+0100 node7 kernel: {XID}\n\
             Mar  3 10:00:00 node7 kernel: [   12.5] {XID}\n\
             -- Boot 0123 --\n\
             <3>[   12.5] {XID}\n\n{XID}\n"
        );
        let document = of(&text);
        assert_eq!(codes(&document), [Some(79), None, Some(79), Some(79), Some(79), Some(79)]);
        let first = &document.driver_messages[0];
        assert_eq!((first.bus_id.as_str(), first.pid), ("00000000:3B:00.0", Some(7)));
        assert_eq!(first.process.as_deref(), Some("train"));
        let times: Vec<_> = document.driver_messages.iter().map(|m| m.time_unix_ms).collect();
        assert_eq!(times, [None, None, Some(1_740_992_400_000), None, None, None]);
        assert_eq!(document.unread, []);
    }

    #[test]
    fn logs_and_exports_of_other_tools_are_read() {
        let message =
            "NVRM: Xid (PCI:0000:3b:00): 79, pid=7, name=train, GPU has fallen off the bus.";
        let at = Some(1_740_992_400_000);
        for (text, time) in [
            (format!("<3>1 2025-03-03T10:00:00.0+01:00 n7 kernel - - - {message}\n"), at),
            (format!("2025-03-03T09:00:00Z n7 kernel - - - {message}\r\n\r\n"), at),
            (format!("ts=2025-03-03T09:00:00Z level=error host=n7 msg=\"{message}\"\n"), at),
            (
                format!("{{\"@timestamp\":\"2025-03-03T09:00:00Z\",\"message\":\"{message}\"}}\n"),
                at,
            ),
            (
                format!("{{\"Time\":\"2025-03-03T09:00:00Z\",\"short_message\":\"{message}\"}}\n"),
                at,
            ),
            (format!("2025-03-03T09:00:00Z {{job=\"syslog\"}} {message}\n"), at),
            (format!("[\"1740992400000000000\",\"{message}\"],\n"), at),
            (format!("\u{feff}\"2025-03-03T09:00:00Z\",\"n7\",\"{message}\"\r\n"), at),
            (format!("| 2025-03-03 09:00:00 UTC | n7 | {message} | critical |\n"), at),
            (format!("Mon 2025-03-03 09:00:00 UTC n7 kernel: {message}\n"), at),
            (
                format!(
                    "\u{1b}[32m2025-03-03T09:00:00+0000 n7 kernel:\u{1b}[0m \u{1b}[1;31mNVRM\u{1b}[m: {}\n",
                    &message[6..]
                ),
                at,
            ),
            (
                format!(
                    "Mon 2025-03-03 09:00:00.000001 UTC [s=1;i=2;b=3;m=4;t=5;x=6]\n    \
                     _TRANSPORT=kernel\n    PRIORITY=3\n    MESSAGE={message}\n    _BOOT_ID=3\n"
                ),
                at,
            ),
            (
                format!(
                    "__CURSOR=s=1;i=2\n__REALTIME_TIMESTAMP=1740992400000000\n_BOOT_ID=3\n\
                     MESSAGE={message}\nSYSLOG_IDENTIFIER=kernel\n"
                ),
                at,
            ),
            (
                format!("  Warning  XidError  5m (x3 over 9m)  node-problem-detector  {message}\n"),
                None,
            ),
            (format!("5m          Warning   XidError   node/n7   {message}\n"), None),
        ] {
            let document = crate::parse(text.as_bytes(), &Hint::default()).unwrap();
            assert_eq!(
                (document.kind, codes(&document)),
                (Kind::KernelLog, vec![Some(79)]),
                "{text}"
            );
            let found = &document.driver_messages[0];
            assert_eq!(
                (found.time_unix_ms, &found.text[..]),
                (time, "GPU has fallen off the bus."),
                "{text}"
            );
            assert_eq!(document.unread, [], "{text}");
        }
    }

    #[test]
    fn error_of_switch_has_its_own_number() {
        let line =
            "nvidia-nvswitch2: SXid (PCI:0000:84:00.0): 20034, Fatal, Link 34 LTSSM Fault Up";
        for prefix in ["", "kern  :err   : 2025-03-03T10:00:00,5+00:00 ", "[ 12.5] "] {
            let document = crate::parse(format!("{prefix}{line}\n").as_bytes(), &Hint::default());
            let document = document.unwrap();
            let [message] = &document.driver_messages[..] else { panic!("{document:?}") };
            assert_eq!((document.kind, message.xid), (Kind::KernelLog, None), "{prefix}");
            assert_eq!((message.sxid, message.bus_id.as_str()), (Some(20_034), "00000000:84:00.0"));
        }
        assert_eq!(codes(&of(&format!("Name : {line}\n"))), []);
    }

    #[test]
    fn three_lines_are_one_message() {
        let prefixed = |prefix: &str| THREE.map(|line| format!("{prefix}{line}\n")).concat();
        for text in [
            prefixed("[   12.5] "),
            format!("Mar  3 10:00:00 n kernel: {}", prefixed("           ").trim_start()),
        ] {
            let document = of(&text);
            assert_eq!((codes(&document), document.unread.len()), (vec![None], 0), "{text}");
            assert_eq!(document.driver_messages[0].bus_id, "00000000:5E:00.0");
        }
        let cut = of(&format!("{}\n{}\n\n{}\n", THREE[0], THREE[1], THREE[2]));
        assert_eq!(codes(&cut), []);
    }

    #[test]
    fn user_chosen_text_is_not_a_message() {
        for before in
            ["Name                  : ", "Process name : x ", "7, ", "| x ", "name=x ", "we saw "]
        {
            assert_eq!(codes(&of(&format!("{before}{XID}\n"))), [], "{before}");
        }
    }

    #[test]
    fn other_lines_are_unread_and_failures_noted() {
        let document = of(&format!("what is this\n{XID}\n[1.5] NVRM: API mismatch: the client\n"));
        let unread: Vec<_> = document.unread.iter().map(|unread| unread.line).collect();
        assert_eq!((unread, document.errors), (vec![1], vec![ErrorCode::NvmlMismatch]));
    }

    #[test]
    fn other_kernel_lines_are_skipped() {
        for line in [
            "[    1.5] usb 1-1: new device",
            "<6>[    1.5] usb 1-1: new device",
            "-- Boot 0123 --",
            "Mar  3 10:00:00 node7 kernel: usb 1-1: new device",
            "2025-03-03T10:00:00+01:00 usb 1-1: new device",
            "NVRM: loading NVIDIA UNIX x86_64 Kernel Module",
        ] {
            assert_eq!(of(&format!("{line}\n{XID}\n")).unread, [], "{line}");
        }
    }

    #[test]
    fn log_is_detected_alone_and_among_other_outputs() {
        let list = "GPU 0: Test K80 (UUID: GPU-1)\n";
        let read = |text: &str| crate::parse(text.as_bytes(), &Hint::default()).unwrap();
        let alone = read(&format!("[1.5] {XID}\n"));
        assert_eq!((alone.kind, codes(&alone)), (Kind::KernelLog, vec![Some(79)]));
        for text in [format!("{list}{XID}\n"), format!("{XID}\n{list}")] {
            let both = read(&text);
            assert_eq!((both.kind, both.gpus.len(), codes(&both)), (Kind::List, 1, vec![Some(79)]));
            assert_eq!((both.errors, both.unread), (vec![], vec![]));
            let parts = sections(text.as_bytes());
            let messages: usize = parts.iter().map(|part| part.driver_messages.len()).sum();
            assert_eq!((parts.len(), messages), (2, 1), "{text}");
        }
    }

    #[test]
    fn messages_of_other_drivers_are_read() {
        let hang = "i915 0000:03:00.0: [drm] GPU HANG: ecode 12:1:85dffffb, in NVRM: Xid (x [7]";
        let log = format!(
            "[    1.5] amdgpu 0000:0b:00.0: amdgpu: GPU reset begin!\n\
             [    2.5] amdgpu 0000:0b:00.0: amdgpu: SMU is resuming...\n\
             Mar  3 10:00:00 n kernel: {hang}\nxe 0000:0d:00.0: [drm] Tile0 ready\n"
        );
        let document = of(&log);
        let rows = document.driver_messages.iter();
        let found: Vec<_> = rows.map(|row| (row.message.code.to_string(), row.pid)).collect();
        let want = [("gpu-reset", None), ("gpu-hang", Some(7))];
        assert_eq!(found, want.map(|(code, pid)| (code.to_owned(), pid)));
        assert_eq!(document.unread, []);
        let name = format!("Process name : {hang}\n");
        assert_eq!(of(&name).driver_messages, []);
    }

    #[test]
    fn messages_past_the_limit_are_unread() {
        let document = of(&format!("{XID}\n").repeat(Document::MAX_ROWS + 1));
        assert_eq!(document.driver_messages.len(), Document::MAX_ROWS);
        assert_eq!(document.unread[0].why, "row limit exceeded");
    }

    const PIECES: &[&str] = &[
        "NVRM: ",
        "nvidia-nvswitch1: S",
        "Xid (PCI:0000:3b:00): ",
        "79",
        ", ",
        "[1.5] ",
        "The NVIDIA GPU 0:1:0.0",
        "\n",
        "fallen off the bus",
        "2025-03-03T10:00:00Z ",
        "a",
        "é",
        "pid=",
        "name=",
    ];

    proptest! {
        #[test]
        fn every_line_is_parsed_or_skipped(pieces in prop::collection::vec(prop::sample::select(PIECES), 0..100)) {
            let text = pieces.concat();
            let document = of(&text);
            let filled = text.lines().filter(|line| !line.trim().is_empty()).count();
            prop_assert!(document.driver_messages.len() + document.unread.len() <= filled);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..500)) {
            parse(&clean(&bytes));
        }
    }
}
