//! The driver's error messages in the kernel log.

use crate::xid::{self, SXID, XID};
use gpu_core::{DriverErrorCode, DriverMessage, PciBusId, Pid, Timestamp, acts};

/// The module's prefix for its lines of the kernel log.
const PREFIX: &str = "NVRM: ";
/// The prefix of the lines about an NVSwitch; the number of the switch follows.
const SWITCH_PREFIX: &str = "nvidia-nvswitch";
/// The words with which every message about a vanished device ends.
const OFF_BUS: &str = "fallen off the bus";
/// The maximum length of the part in parentheses, `PCI:00000000:01:00 GPU-I:05 GPU-CI:00`.
const MAX_ADDRESS: usize = 64;

/// The beginnings of the driver's records, for a reader that has only the kernel's own text.
pub(crate) const PREFIXES: &[&str] = &[PREFIX, SWITCH_PREFIX];

/// Parses a line of the kernel log, with any prefix of `dmesg`, syslog or the journal. A
/// message that the driver wrote as several lines is one text with line ends.
///
/// Returns `None` for any other line. Only the first `NVRM: ` of a line starts a message, so a
/// process whose name imitates one cannot add a second. What precedes it is not checked: a
/// caller that knows where the kernel's own text begins must pass only that.
///
/// It reads each form since about 2010 (`_nv_log_error` and `krcReportXid` of
/// open-gpu-kernel-modules): the address with and without `PCI:`, PID and name or neither,
/// and the MIG instances; and SXids (`nvswitch_log_error`). The text is read once.
pub fn parse_message(line: &str, at: Timestamp) -> Option<DriverMessage> {
    let Some(start) = line.find(PREFIX) else { return sxid(line, at) };
    let message = &line[start + PREFIX.len()..];
    if let Some(rest) = message.strip_prefix("Xid (") {
        numbered(XID, rest, at)
    } else if let Some(rest) = message.strip_prefix("GPU ") {
        let (position, text) = rest.split_once(": ")?;
        let is_lost = text.strip_prefix("GPU has ").is_some_and(|t| t.starts_with(OFF_BUS));
        is_lost.then(|| off_bus(position, text, at))?
    } else {
        // The address is in the first of three lines, the verdict in the last.
        let rest = message.strip_prefix("The NVIDIA GPU ")?;
        let position = rest.split_whitespace().next()?;
        off_bus(position, &rest[rest.find(OFF_BUS)?..], at)
    }
}

fn off_bus(position: &str, text: &str, at: Timestamp) -> Option<DriverMessage> {
    let code = DriverErrorCode { list: xid::OFF_BUS.into(), number: None };
    Some(message(at, address(position)?, code, text))
}

/// Parses `nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 …`.
fn sxid(line: &str, at: Timestamp) -> Option<DriverMessage> {
    let start = line.find(SWITCH_PREFIX)? + SWITCH_PREFIX.len();
    let (switch, rest) = digits(&line[start..]);
    let rest = rest.strip_prefix(": SXid (").filter(|_| !switch.is_empty())?;
    numbered(SXID, rest, at)
}

/// Parses the rest of a message after `Xid (`.
fn numbered(list: &'static str, rest: &str, at: Timestamp) -> Option<DriverMessage> {
    let end = rest.bytes().take(MAX_ADDRESS).position(|byte| byte == b')')?;
    let (position, rest) = (&rest[..end], rest[end + 1..].strip_prefix(':')?);
    let mut words = position.split_whitespace();
    let bus = address(words.next()?)?;
    let instance = |key: &str| {
        let mut words = position.split_whitespace();
        words.find_map(|word| word.strip_prefix(key)?.parse().ok())
    };
    let (number, rest) = digits(rest.trim_start());
    let code = DriverErrorCode { list: list.into(), number: Some(number.parse().ok()?) };
    if rest.starts_with(|c: char| c.is_alphanumeric()) {
        return None;
    }
    let (pid, process, text) = process(after_comma(rest));
    Some(DriverMessage {
        pid,
        process,
        gpu_instance: instance("GPU-I:"),
        compute_instance: instance("GPU-CI:"),
        ..message(at, bus, code, text)
    })
}

/// Returns a message without a process, with the explanation of its error.
fn message(at: Timestamp, bus: PciBusId, code: DriverErrorCode, text: &str) -> DriverMessage {
    let text = bounded(text, DriverMessage::MAX_TEXT);
    let error = xid::error(&code, &text).unwrap_or_default();
    DriverMessage {
        at,
        elapsed: None,
        is_local: false,
        bus,
        code,
        pid: None,
        process: None,
        gpu_instance: None,
        compute_instance: None,
        text,
        error,
    }
}

/// Splits off `pid=1234, name=python, `. The driver writes the name only after the PID, and
/// `'<unknown>'` for an unknown one.
fn process(rest: &str) -> (Option<Pid>, Option<String>, &str) {
    let Some(value) = rest.strip_prefix("pid=") else { return (None, None, rest) };
    let (number, after) = digits(value);
    // PID 0 is the idle task, which an interrupt met.
    let pid = number.parse().ok().filter(|pid| *pid != 0).map(Pid);
    let rest = match value.strip_prefix("'<unknown>'").or(value.strip_prefix("<unknown>")) {
        Some(after) => after_comma(after),
        None if number.is_empty() => return (None, None, rest),
        None => after_comma(after),
    };
    let Some(value) = rest.strip_prefix("name=") else { return (pid, None, rest) };
    let whole = value.strip_suffix(',').unwrap_or(value);
    let (name, text) = value.split_once(", ").unwrap_or((whole, ""));
    let name = bounded(name, DriverMessage::MAX_NAME);
    let known = !name.is_empty() && name != "<unknown>";
    (pid, known.then_some(name), text)
}

fn after_comma(rest: &str) -> &str {
    rest.strip_prefix(',').unwrap_or(rest).trim_start()
}

/// Splits a text after the digits at its start.
fn digits(text: &str) -> (&str, &str) {
    let end = text.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

/// Parses an address as the driver prints it: `PCI:0000:01:00`, `0000:01:00`, `0000:01:00.0`.
fn address(word: &str) -> Option<PciBusId> {
    let word = word.strip_prefix("PCI:").unwrap_or(word);
    let bus = match word.contains('.') {
        true => word.parse::<PciBusId>(),
        false => format!("{word}.0").parse(),
    };
    bus.ok().map(|bus| PciBusId { function: 0, ..bus })
}

/// Returns the first characters of hostile text: blanks in place of line ends and tabs, and no
/// other character that could act on a terminal.
fn bounded(text: &str, most: usize) -> String {
    let blanks = text.chars().map(|c| if matches!(c, '\n' | '\r' | '\t') { ' ' } else { c });
    let kept: String = blanks.filter(|c| !acts(*c)).take(most).collect();
    kept.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const AT: Timestamp = Timestamp(7);

    fn parsed(line: &str) -> Option<DriverMessage> {
        parse_message(line, AT)
    }

    fn xid(number: u32) -> DriverErrorCode {
        DriverErrorCode { list: XID.into(), number: Some(number) }
    }

    fn sxid(number: u32) -> DriverErrorCode {
        DriverErrorCode { list: SXID.into(), number: Some(number) }
    }

    fn off_bus() -> DriverErrorCode {
        DriverErrorCode { list: xid::OFF_BUS.into(), number: None }
    }

    /// A message of the GPU at bus 0x3b, without process and instances.
    fn message(code: DriverErrorCode, text: &str) -> DriverMessage {
        super::message(AT, PciBusId { domain: 0, bus: 0x3b, device: 0, function: 0 }, code, text)
    }

    #[test]
    fn each_form_of_driver_is_parsed() {
        let of = |pid, name: &str, code, text| DriverMessage {
            pid: Some(Pid(pid)),
            process: (!name.is_empty()).then(|| name.to_owned()),
            ..message(xid(code), text)
        };
        let in_mig = |gpu, compute, text| DriverMessage {
            gpu_instance: Some(gpu),
            compute_instance: compute,
            ..of(901, "train", 43, text)
        };
        let wide = PciBusId { domain: 0x1_0002, bus: 0xa1, device: 0x1f, function: 0 };
        for (line, want) in [
            ("NVRM: Xid (0000:3b:00): 14, Channel 00000007", message(xid(14), "Channel 00000007")),
            (
                "NVRM: Xid (PCI:0000:3b:00): 43, Ch 00000011, engmask 00000301",
                message(xid(43), "Ch 00000011, engmask 00000301"),
            ),
            (
                "NVRM: Xid (PCI:0000:3b:00): 31, pid=812, Ch 0000000a, intr 00000000.",
                of(812, "", 31, "Ch 0000000a, intr 00000000."),
            ),
            (
                "NVRM: Xid (PCI:0000:3b:00): 79, pid=812, name=python3, GPU has fallen off the bus.",
                of(812, "python3", 79, "GPU has fallen off the bus."),
            ),
            (
                "NVRM: Xid (PCI:0000:3b:00): 62, pid='<unknown>', name=<unknown>, 2b1c 01d8",
                message(xid(62), "2b1c 01d8"),
            ),
            (
                "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
                message(xid(79), "GPU has fallen off the bus."),
            ),
            (
                "NVRM: Xid (PCI:0000:3b:00): 45, pid=812, name=nccl-test, Ch 00000009 caused by previous Xid 31",
                of(812, "nccl-test", 45, "Ch 00000009 caused by previous Xid 31"),
            ),
            (
                "NVRM: Xid (PCI:0000:3b:00 GPU-I:05): 43, pid=901, name=train, Ch 1",
                in_mig(5, None, "Ch 1"),
            ),
            (
                "NVRM: Xid (PCI:0000:3b:00 GPU-I:11 GPU-CI:00): 43, pid=901, name=train, Ch 1",
                in_mig(11, Some(0), "Ch 1"),
            ),
            (
                "NVRM: Xid (PCI:0000:3b:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 11 (0x02 0x00)",
                message(xid(149), "NETIR_LINK_EVT Fatal XC0 i0 Link 11 (0x02 0x00)"),
            ),
            (
                "NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 (None) to 0x2",
                message(xid(154), "GPU recovery action changed from 0x0 (None) to 0x2"),
            ),
            ("NVRM: Xid (PCI:0000:3b:00): 119, pid=0, ", message(xid(119), "")),
            ("NVRM: Xid (PCI:0000:3b:00): 43, pid=9, name=a,", of(9, "a", 43, "")),
            ("NVRM: Xid (PCI:0000:3b:00): 43, pid=9, name=a", of(9, "a", 43, "")),
            ("NVRM: Xid (PCI:0000:3b:00): 92", message(xid(92), "")),
            ("NVRM: Xid (PCI:0000:3b:00): 4294967295 x", message(xid(u32::MAX), "x")),
            (
                "NVRM: Xid (PCI:10002:a1:1f): 48, DBE",
                DriverMessage { bus: wide, ..message(xid(48), "DBE") },
            ),
            ("NVRM: Xid (PCI:0000:3b:00): 43, pid=x, y", message(xid(43), "pid=x, y")),
            (
                "nvidia-nvswitch3: SXid (PCI:0000:3b:00.0): 12028, Non-fatal, Link 32 egress",
                message(sxid(12028), "Non-fatal, Link 32 egress"),
            ),
            (
                "[ 9.1] nvidia-nvswitch0: SXid (PCI:0000:3b:00.0): 20034, Data {0x1, 0x2}",
                message(sxid(20034), "Data {0x1, 0x2}"),
            ),
            (
                "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.",
                message(off_bus(), "GPU has fallen off the bus."),
            ),
            (
                "NVRM: GPU 0000:3b:00.1: GPU has fallen off the bus.",
                message(off_bus(), "GPU has fallen off the bus."),
            ),
            (
                "NVRM: The NVIDIA GPU 0000:3b:00.0\nNVRM: (PCI ID: 10de:2330) installed in this \
                 system has\nNVRM: fallen off the bus and is not responding to commands.",
                message(off_bus(), "fallen off the bus and is not responding to commands."),
            ),
        ] {
            assert_eq!(parsed(line), Some(want), "{line}");
        }
    }

    #[test]
    fn prefix_of_log_is_skipped() {
        let want = message(xid(13), "Graphics Exception");
        for prefix in [
            "[12345.678901] ",
            "[12345.678901][ T1946] ",
            "[    7.1] [    C3] ",
            "[Mon Mar  3 10:00:00 2025] ",
            "<3>[   12.5] ",
            "Mar  3 10:00:00 node7 kernel: [12345.6] ",
            "2025-03-03T10:00:00,123456+00:00 ",
            "2025-03-03T10:00:00+0100 node7 kernel: ",
            "kern  :err   : [   12.5] ",
        ] {
            let line = format!("{prefix}NVRM: Xid (PCI:0000:3b:00): 13, Graphics Exception\n");
            assert_eq!(parsed(&line).as_ref(), Some(&want), "{line}");
        }
    }

    #[test]
    fn name_of_process_cannot_forge_message() {
        let of = |name: &str| {
            let line = format!("NVRM: Xid (PCI:0000:3b:00): 43, pid=9, name={name}, Ch 1");
            let message = parsed(&line).unwrap();
            assert_eq!((message.bus.bus, message.code, message.pid), (0x3b, xid(43), Some(Pid(9))));
            (message.process.unwrap_or_default(), message.text)
        };
        let pair = |name: &str, text: &str| (name.to_owned(), text.to_owned());
        assert_eq!(of("a b) c"), pair("a b) c", "Ch 1"));
        assert_eq!(of("a,b=("), pair("a,b=(", "Ch 1"));
        assert_eq!(of("a, b"), pair("a", "b, Ch 1"));
        assert_eq!(of("a, pid=1, name=b"), pair("a", "pid=1, name=b, Ch 1"));
        let forged = "NVRM: Xid (PCI:0000:af:00): 79";
        assert_eq!(of(forged), pair(forged, "Ch 1"));
        assert_eq!(of("\x1b[2J\u{202e}x\ty"), pair("[2Jx y", "Ch 1"));
        assert_eq!(of("x\nNVRM: Xid (0:1:0): 79"), pair("x NVRM: Xid (0:1:0): 79", "Ch 1"));
        assert_eq!(of(&"é".repeat(200)).0.chars().count(), DriverMessage::MAX_NAME);
        let client = "NVRM: API mismatch: the client 'NVRM: Xid (PCI:0000:af:00): 79' (pid 7)";
        assert_eq!(parsed(client), None);
    }

    #[test]
    fn other_lines_are_no_messages() {
        for line in [
            "",
            "NVRM:",
            "NVRM: ",
            "Xid (PCI:0000:3b:00): 79, x",
            "NVRM: Xid",
            "NVRM: Xid (",
            "NVRM: Xid ()",
            "NVRM: Xid (): 79",
            "NVRM: Xid (PCI:0000:3b:00)",
            "NVRM: Xid (PCI:0000:3b:00) 79",
            "NVRM: Xid (PCI:0000:3b:00): ",
            "NVRM: Xid (PCI:0000:3b:00): x",
            "NVRM: Xid (PCI:0000:3b:00): 0x4f",
            "NVRM: Xid (PCI:0000:3b:00): 4294967296, x",
            "NVRM: Xid (PCI:0000:3b:20): 79, x",
            "NVRM: Xid (PCI:3b): 79, x",
            "NVRM: GPU at PCI:0000:3b:00: GPU-00000000-0000-0000-0000-000000000000",
            "NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x26:0xffff:1290)",
            "NVRM: GPU x: GPU has fallen off the bus.",
            "NVRM: The NVIDIA GPU 0000:3b:00.0 (PCI ID: 10de:0fc6)\nNVRM: is not supported",
            "nvidia-nvswitch: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32",
            "nvidia-nvswitch3: Xid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32",
            "NVRM: x nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32",
        ] {
            assert_eq!(parsed(line), None, "{line}");
        }
        let late = format!("NVRM: Xid (PCI:0000:3b:00{}): 79", " ".repeat(MAX_ADDRESS));
        assert_eq!(parsed(&late), None);
    }

    #[test]
    fn text_is_bounded() {
        let long = format!("NVRM: Xid (PCI:0000:3b:00): 13, {}", "é\x07".repeat(4000));
        let text = parsed(&long).unwrap().text;
        assert_eq!(text, "é".repeat(DriverMessage::MAX_TEXT));
    }

    #[test]
    fn repeated_beginnings_are_read_once() {
        // Quadratic work on two million of them would not end.
        for piece in ["NVRM: Xid (", "NVRM: Xid (PCI:0000:3b:00): 1, pid=", "NVRM: The NVIDIA GPU "]
        {
            parsed(&piece.repeat(2 << 20));
        }
    }

    const PIECES: &[&str] = &[
        "NVRM: ",
        "Xid (",
        "PCI:0000:3b:00",
        " GPU-I:05",
        " GPU-CI:00",
        "): ",
        "79",
        ", ",
        "pid=",
        "pid='<unknown>'",
        "name=",
        "name=<unknown>",
        "GPU 0000:3b:00.0: GPU has ",
        "The NVIDIA GPU ",
        "fallen off the bus",
        "a",
        "(",
        ")",
        "é",
        "\n",
        "\x1b",
        " ",
    ];

    proptest! {
        #[test]
        fn every_text_is_parsed(pieces in prop::collection::vec(prop::sample::select(PIECES), 0..40)) {
            let line = pieces.concat();
            if let Some(message) = parsed(&line) {
                let name = message.process.as_deref().unwrap_or_default();
                prop_assert!(!message.text.contains(acts) && !name.contains(acts));
                prop_assert!(message.process.is_none() || message.pid.is_some() || line.contains("<unknown>"));
                prop_assert!(message.bus.to_string().starts_with("00000000:3B:00"));
            }
        }

        #[test]
        fn arbitrary_text_never_panics(text in any::<String>()) {
            for start in ["", "NVRM: ", "NVRM: Xid (", "NVRM: Xid (PCI:0000:3b:00): 1, pid=9, name="] {
                parsed(&format!("{start}{text}"));
            }
        }

        #[test]
        fn printed_message_round_trips(
            bus in 0_u8..=255, device in 0_u8..32, domain in 0_u32..0x2_0000, code in any::<u32>(),
            pid in 1_u32..4_000_000, name in "[!-~]{1,15}", text in "[!-~]([ -~]{0,60}[!-~])?",
        ) {
            prop_assume!(name != "<unknown>");
            let line = format!(
                "NVRM: Xid (PCI:{domain:04x}:{bus:02x}:{device:02x}): {code}, pid={pid}, name={name}, {text}"
            );
            let found = parsed(&line).unwrap();
            prop_assert_eq!(found.bus, PciBusId { domain, bus, device, function: 0 });
            prop_assert_eq!((found.code, found.pid), (xid(code), Some(Pid(pid))));
            prop_assert_eq!((found.process, found.text), (Some(name), text));
        }
    }
}
