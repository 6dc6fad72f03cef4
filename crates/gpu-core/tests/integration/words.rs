//! The words for plain data.

use crate::fixture::*;
use gpu_core::*;

#[test]
fn reasons_of_absence_have_words() {
    for (absent, words) in [
        (Absent::NotSupported, "not supported"),
        (Absent::NotPermitted, "not permitted"),
        (Absent::NotFound, "not found"),
        (Absent::TooOld, "driver too old"),
        (Absent::Deprecated, "deprecated"),
        (Absent::Failed, "device error"),
        (Absent::NoAnswer, "no answer"),
        (Absent::DeviceLost, "device lost"),
        (Absent::NotRecorded, "not recorded"),
        (Absent::Implausible, "implausible"),
    ] {
        assert_eq!(absent.to_string(), words);
    }
}

#[test]
fn identifiers_are_written_as_tools_write_them() {
    assert_eq!(uuid("GPU-7").to_string(), "GPU-7");
    assert_eq!(device_id(3).to_string(), "GPU 3");
    assert_eq!(Pid(4711).to_string(), "4711");
    assert_eq!(process(4711, 1).key.to_string(), "4711");
    assert_eq!(LeaseId::parse("1-a3f").unwrap().to_string(), "1-a3f");
    assert_eq!(String::from(LeaseId::parse("1-a3f").unwrap()), "1-a3f");
    let bus = PciBusId { domain: 0x10, bus: 0xa4, device: 31, function: 7 };
    assert_eq!(bus.to_string(), "00000010:A4:1F.7");
    assert_eq!(String::from(bus), bus.to_string());
    assert_eq!(format!("{:?}", Access::OPEN | Access::ROOT), "fr...");
}

#[test]
fn kinds_are_written_as_users_know_them() {
    assert_eq!(Signal::Term.to_string(), "SIGTERM");
    assert_eq!(Signal::Kill.to_string(), "SIGKILL");
    assert_eq!(Origin::Live.to_string(), "this machine");
    assert_eq!(Origin::Simulated("p100".into()).to_string(), "simulated machine p100");
    assert_eq!(Origin::Pasted.to_string(), "pasted text");
    assert_eq!(WorkloadKind::Container.to_string(), "container");
    assert_eq!(WorkloadKind::Pod.to_string(), "pod");
    assert_eq!(WorkloadKind::SlurmJob.to_string(), "Slurm job");
    assert_eq!(Celsius(-3).to_string(), "-3°C");
    assert_eq!(Percent::new(7).unwrap().to_string(), "7 %");
    let fault = Error::new(ErrorKind::Io, "read a file").fault();
    assert_eq!(fault.to_string(), "read a file");
    for (link, words) in [
        (Link::Itself, "X"),
        (Link::NvLink(12), "NV12"),
        (Link::Pix, "PIX"),
        (Link::Pxb, "PXB"),
        (Link::Phb, "PHB"),
        (Link::Node, "NODE"),
        (Link::Sys, "SYS"),
        (Link::Unknown, "?"),
    ] {
        assert_eq!(link.to_string(), words);
    }
}

#[test]
fn shell_reports_signal_as_code_above_128() {
    assert_eq!(JobExit::Code(3).code(), 3);
    assert_eq!(JobExit::Signal(15).code(), 143);
}

#[test]
fn amounts_are_written_in_the_unit_below_them() {
    for (bytes, text) in [
        (1, "1 bytes"),
        ((1 << 10) - 1, "1023 bytes"),
        (1 << 10, "1 KiB"),
        (1 << 20, "1 MiB"),
        (1 << 30, "1 GiB"),
    ] {
        assert_eq!(amount(Bytes(bytes)), text);
    }
    assert_eq!(Bytes(3 << 29).gib(), 1.5);
    let mut sum = Bytes(1);
    sum += Bytes(2);
    assert_eq!(sum, Bytes(3));
}

#[test]
fn printable_text_is_borrowed_and_acting_characters_escaped() {
    for text in ["plain ~", "µ", ""] {
        assert!(matches!(clean(text), std::borrow::Cow::Borrowed(_)), "{text}");
    }
    for acting in ['\u{ad}', '\u{600}', '\u{61c}', '\u{200f}', '\u{feff}', '\u{e007f}', '\x7f'] {
        assert!(acts(acting), "{acting:?}");
        assert!(clean(&format!("a{acting}µ")).contains('\\'), "{acting:?}");
    }
    assert!(!acts('a') && !acts(' ') && !acts('训'));
}

#[test]
fn timestamps_subtract_to_durations() {
    assert_eq!(Timestamp(1500).since(Timestamp(500)).as_millis(), 1000);
    assert_eq!(Timestamp(500).since(Timestamp(1500)).as_millis(), 0);
    // The last and the first moments of civil months and years.
    for (millis, text) in [
        (1_767_225_599_999, "2025-12-31T23:59:59.999Z"),
        (1_767_225_600_000, "2026-01-01T00:00:00.000Z"),
        (1_772_323_199_000, "2026-02-28T23:59:59.000Z"),
        (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        (4_107_456_000_000, "2100-02-28T00:00:00.000Z"),
        (13_574_563_200_000, "2400-02-29T00:00:00.000Z"),
    ] {
        assert_eq!(Timestamp(millis).to_string(), text);
    }
}
