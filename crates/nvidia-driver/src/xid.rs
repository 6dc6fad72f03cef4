//! The meaning of Xids and SXids, the error numbers of NVIDIA's driver.
//!
//! Sources: NVIDIA, "Analyzing Xid Errors with the Xid Catalog" (the sheet of October 2025, Ampere
//! and newer) and "XID Errors" for cause and remedy, as leptonai/gpud and facebookresearch/gcm
//! reproduce them; `nverror.h` of open-gpu-kernel-modules for the names of newer numbers; NVIDIA,
//! "GPU Debug Guidelines" for the remedies of memory errors; NVIDIA, "Fabric Manager User Guide",
//! appendix of NVSwitch errors. Which errors keep a device from being handed out is a rule of this
//! project, by the checks of DCGM and of Kubernetes device plugins.

use crate::recovery::recovery_action;
use gpu_core::{
    DriverError, DriverErrorCode, FaultClass, RecoveryAction, Relation, Remedy, Severity,
};

/// The list of errors of GPUs.
pub const XID: &str = "xid";
/// The list of errors of NVSwitches.
pub const SXID: &str = "sxid";
/// The code of a message that a GPU has left the bus, without a number.
pub(crate) const OFF_BUS: &str = "fallen-off-bus";

/// Returns the error with a code, in a message with this text; `None` for a code of no list here.
///
/// A device that fell off the bus without a number is treated like Xid 79.
pub(crate) fn error(code: &DriverErrorCode, text: &str) -> Option<DriverError> {
    Some(match (&*code.list, code.number) {
        (XID, Some(number)) => of_gpu(number, text),
        (SXID, Some(number)) => of_switch(number, text),
        (OFF_BUS, None) => of_gpu(79, text),
        _ => return None,
    })
}

/// Returns the error of a GPU: that of its number, corrected by the text where the driver states the
/// remedy or the cause there.
///
/// 154 carries the driver's own remedy. The text of 144 to 150 says whether the error is fatal,
/// which requires a reset. Drivers from 570.123 on name the cause of a 45.
fn of_gpu(number: u32, text: &str) -> DriverError {
    use FaultClass::{Hardware, Link, Lost, Memory, Notice, Program, Unresponsive};
    use Remedy::{Reboot, Reset, RestartProgram as Restart, Support};
    let (what, class, remedy) = match number {
        8 => ("the GPU stopped processing a channel", Hardware, Restart),
        11 | 25 | 32 => ("invalid commands in a push buffer", Program, Restart),
        13 => ("exception of the graphics engine", Program, Restart),
        31 => ("invalid memory access (MMU fault)", Program, Restart),
        37 => ("unknown method in the context switch firmware", Hardware, Remedy::None),
        38 => ("watchdog of the context switch firmware", Hardware, Remedy::None),
        39..=41 | 70..=72 | 75..=77 | 85 | 126..=135 => {
            ("error of a copy engine", Hardware, Restart)
        }
        43 => ("a program failed and lost its channel", Program, Remedy::None),
        44 => ("fault during a context switch", Hardware, Remedy::None),
        45 => ("channels removed after another error or a kill", Program, Remedy::None),
        46 => ("the GPU stopped processing", Hardware, Reset),
        48 => ("uncorrectable memory error (double-bit ECC)", Memory, Reset),
        54 => ("auxiliary power is not connected", Hardware, Support),
        56 => ("error of the display engine", Hardware, Support),
        57 => ("training of the memory interface failed", Memory, Support),
        58 => ("error of the memory interface", Memory, Support),
        60 => ("error of the security engine", Hardware, Restart),
        61 => ("breakpoint of the power management firmware", Hardware, Support),
        62 => ("the power management firmware halted", Hardware, Reset),
        63 => ("bad memory is replaced at the next reset", Memory, Remedy::None),
        64 => ("bad memory could not be replaced", Memory, Reset),
        65 | 73 | 142 => ("error of a video encoder", Hardware, Support),
        66 | 67 => ("illegal access by the driver", Hardware, Remedy::None),
        68 | 82..=84 | 86 | 88 | 89 | 96..=105 | 139 => {
            ("error of a video, image or optical flow engine", Hardware, Restart)
        }
        69 => ("error of the graphics class", Program, Restart),
        74 => ("NVLink error", Link, Support),
        78 => ("a virtual GPU failed to start", Hardware, Support),
        79 => ("the GPU has fallen off the bus", Lost, Reboot),
        80 => ("corrupted commands in a push buffer", Hardware, Restart),
        81 => ("error of the VGA subsystem", Hardware, Support),
        90 => ("error of the L2 cache", Memory, Support),
        92 => ("high rate of corrected memory errors", Memory, Remedy::None),
        93 => ("the InfoROM nears its limit of writes", Notice, Remedy::None),
        94 => ("contained memory error", Memory, Restart),
        95 => ("uncontained memory error", Memory, Reset),
        106 | 107 => ("test of the SMBus", Notice, Remedy::None),
        108 | 137 => ("illegal access to the memory of a peer", Program, Remedy::None),
        109 => ("timeout of a context switch", Hardware, Reset),
        110 => ("security fault", Hardware, Reset),
        111..=118 => ("error of the display engine", Hardware, Support),
        119 => ("the GSP firmware did not answer in time", Unresponsive, Reset),
        120 => ("the GSP firmware failed", Unresponsive, Reset),
        121 => ("corrected error of the link between chips", Link, Remedy::None),
        122 => ("the firmware storage could not be read", Hardware, Support),
        123 => ("the firmware storage could not be written", Hardware, Reset),
        124 => ("the firmware storage could not be erased", Hardware, Support),
        125 => ("error in the file system of the InfoROM", Hardware, Support),
        136 => ("training of a link failed", Link, Reset),
        138 => ("error of the deep learning accelerator", Hardware, Support),
        140 => ("unrecovered ECC error", Memory, Reset),
        141 => ("error of the fast path of CUDA", Hardware, Remedy::None),
        143 => ("the GPU failed to initialise", Unresponsive, Reset),
        144..=150 => ("NVLink error", Link, Support),
        151 => ("key rotation of confidential computing failed", Hardware, Support),
        152 | 153 => ("error of the deep learning accelerator", Hardware, Remedy::None),
        154 => ("the recovery action of the GPU changed", Notice, Remedy::None),
        155 => ("NVLink error, set by software", Link, Reset),
        156 => ("a part of the GPU is retired at the next reset", Hardware, Reset),
        157 => ("a part of the GPU could not be retired", Hardware, Remedy::None),
        158 => ("fatal timeout of the GPU", Unresponsive, Reset),
        159 => ("error on the link to the CPU", Link, Support),
        160 => ("a memory channel is retired", Memory, Remedy::None),
        161 => ("a memory channel could not be retired", Memory, Remedy::None),
        162..=165 => ("notice of power smoothing", Notice, Remedy::None),
        166 | 170 => ("event of NVLink security", Link, Remedy::None),
        167 => ("fatal PCIe timeout", Link, Remedy::None),
        168 => ("less memory than usual for protected regions", Memory, Remedy::None),
        169 => ("the security engine halted", Hardware, Remedy::None),
        171 => ("uncorrectable error in DRAM", Memory, Remedy::None),
        172 => ("uncorrectable error in SRAM", Memory, Remedy::None),
        173 => ("fatal error of the link between chips", Link, Remedy::None),
        174 => ("silent kill (undocumented)", Hardware, Remedy::None),
        175 => ("error of the memory subsystem", Memory, Remedy::None),
        176 => ("correctable PCIe error", Link, Remedy::None),
        _ => (DriverError::UNKNOWN, Hardware, Remedy::None),
    };
    let has = |word: &str| text.split_whitespace().any(|own| own == word);
    let severity = match number {
        64 | 74 | 79 | 95 | 119 | 120 | 140 | 143 | 158 => Severity::Fatal,
        48 => Severity::FatalUnlessContained,
        94 => Severity::Contained,
        144..=150 if has("Fatal") => Severity::Fatal,
        144..=150 if has("Nonfatal") => Severity::NotFatal,
        _ => Severity::Unstated,
    };
    let (what, remedy) = match (number, severity) {
        (144..=150, Severity::Fatal) => (what, Reset),
        (144..=150, Severity::NotFatal) => (what, Remedy::None),
        (154, _) => match recovery(text) {
            Some(RecoveryAction::Reset | RecoveryAction::DrainAndReset) => {
                ("the recovery action of the GPU changed to reset", Reset)
            }
            Some(RecoveryAction::Reboot) => {
                ("the recovery action of the GPU changed to reboot", Reboot)
            }
            _ => (what, remedy),
        },
        _ => (what, remedy),
    };
    let relation = match number {
        43 => Relation::CauseOrEffect,
        45 => Relation::Cleanup,
        154 => Relation::Request,
        _ if class == Notice => Relation::Alone,
        _ => Relation::Cause,
    };
    let cause = named_cause(text).map(|number| Box::new(of_gpu(number, "")));
    let code = DriverErrorCode { list: XID.into(), number: Some(number) };
    let name = format!("Xid {number}");
    DriverError { code, name, text: what.into(), class, severity, remedy, relation, cause }
}

/// Returns the action in the text of Xid 154, `… changed from 0x0 (None) to 0x1 (…)`. The number
/// decides, because drivers change the words.
fn recovery(text: &str) -> Option<RecoveryAction> {
    let number = text.rsplit_once(" to 0x")?.1;
    let end = number.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(number.len());
    Some(recovery_action(u32::from_str_radix(&number[..end], 16).ok()?))
}

/// Returns the number in `… caused by previous Xid 31`.
fn named_cause(text: &str) -> Option<u32> {
    let (_, rest) = text.rsplit_once("caused by previous Xid ")?;
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

/// Returns the error of an NVSwitch. The line itself says whether it is fatal: a fatal one needs a
/// reset of all GPUs and switches together, or a reboot; others are counted and watched. Further
/// lines of an error have its number, and its severity and data as numbers. 20034 is a link that
/// went down, as it does with the GPU at its other end.
fn of_switch(number: u32, text: &str) -> DriverError {
    let (severity, what, remedy) = match text.split_once(", ").unwrap_or((text, "")) {
        ("Fatal", what) => (Severity::Fatal, what, Remedy::Reset),
        ("Non-fatal", what) => (Severity::NotFatal, what, Remedy::None),
        _ => (Severity::Unstated, text, Remedy::None),
    };
    let relation = match number {
        _ if text.starts_with("Data {") || text.starts_with("Severity ") => Relation::Detail,
        20_034 => Relation::EffectOfAny,
        _ => Relation::Alone,
    };
    DriverError {
        code: DriverErrorCode { list: SXID.into(), number: Some(number) },
        name: format!("SXid {number}"),
        text: what.to_owned().into(),
        class: FaultClass::Switch,
        severity,
        remedy,
        relation,
        cause: named_cause(text).map(|number| Box::new(of_gpu(number, ""))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_core::{DriverMessage, Timestamp};

    fn parsed(line: &str) -> DriverError {
        crate::parse_message(line, Timestamp(0)).unwrap().error
    }

    fn xid(code: u32, text: &str) -> (FaultClass, Remedy, Severity) {
        let error = parsed(&format!("NVRM: Xid (PCI:0000:3b:00): {code}, {text}"));
        (error.class, error.remedy, error.severity)
    }

    fn of(number: u32) -> DriverError {
        of_gpu(number, "")
    }

    /// Returns the known numbers with these meanings, as ranges.
    fn with(is_so: impl Fn(DriverError) -> bool) -> String {
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        let is_known = |number: &u32| of(*number).text != DriverError::UNKNOWN;
        for code in (0..1000).filter(is_known).filter(|number| is_so(of(*number))) {
            match ranges.last_mut().filter(|(_, last)| last + 1 == code) {
                Some((_, last)) => *last = code,
                None => ranges.push((code, code)),
            }
        }
        let written = ranges.iter().map(|(first, last)| {
            if first == last { first.to_string() } else { format!("{first}-{last}") }
        });
        written.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn numbers_have_severity_of_rule() {
        for (severity, codes) in [
            (Severity::Fatal, "64 74 79 95 119-120 140 143 158"),
            (Severity::FatalUnlessContained, "48"),
            (Severity::Contained, "94"),
            (Severity::NotFatal, ""),
        ] {
            assert_eq!(with(|known| known.severity == severity), codes, "{severity:?}");
        }
    }

    #[test]
    fn numbers_have_remedy_of_catalog() {
        for (remedy, codes) in [
            (Remedy::None, "37-38 43-45 63 66-67 92-93 106-108 121 137 141 152-154 157 160-176"),
            (
                Remedy::RestartProgram,
                "8 11 13 25 31-32 39-41 60 68-72 75-77 80 82-86 88-89 94 96-105 126-135 139",
            ),
            (Remedy::Reset, "46 48 62 64 95 109-110 119-120 123 136 140 143 155-156 158"),
            (Remedy::Reboot, "79"),
            (
                Remedy::Support,
                "54 56-58 61 65 73-74 78 81 90 111-118 122 124-125 138 142 144-151 159",
            ),
        ] {
            assert_eq!(with(|known| known.remedy == remedy), codes, "{remedy:?}");
        }
    }

    #[test]
    fn numbers_name_failing_part() {
        for (class, codes) in [
            (FaultClass::Program, "11 13 25 31-32 43 45 69 108 137"),
            (FaultClass::Memory, "48 57-58 63-64 90 92 94-95 140 160-161 168 171-172 175"),
            (FaultClass::Link, "74 121 136 144-150 155 159 166-167 170 173 176"),
            (FaultClass::Lost, "79"),
            (FaultClass::Unresponsive, "119-120 143 158"),
            (FaultClass::Notice, "93 106-107 154 162-165"),
        ] {
            assert_eq!(with(|known| known.class == class), codes, "{class:?}");
        }
        assert_eq!(with(|_| true), "8 11 13 25 31-32 37-41 43-46 48 54 56-58 60-86 88-90 92-176");
    }

    #[test]
    fn numbers_that_cause_no_error_are_notices_and_clean_up() {
        for (relation, codes) in [
            (Relation::CauseOrEffect, "43"),
            (Relation::Cleanup, "45"),
            (Relation::Request, "154"),
            (Relation::Alone, "93 106-107 162-165"),
            (Relation::EffectOfAny, ""),
        ] {
            assert_eq!(with(|known| known.relation == relation), codes, "{relation:?}");
        }
    }

    #[test]
    fn errors_of_programs_accuse_no_device() {
        for number in [13, 31, 43, 45, 94] {
            let known = of(number);
            assert!(known.severity <= Severity::Contained, "{number}");
            assert!(known.remedy <= Remedy::RestartProgram, "{number}");
        }
    }

    #[test]
    fn lost_devices_need_more_than_restart_of_program() {
        for known in (0..1000).map(of) {
            let is_lost = matches!(known.class, FaultClass::Lost | FaultClass::Unresponsive);
            if is_lost || known.severity >= Severity::FatalUnlessContained {
                assert!(known.remedy > Remedy::RestartProgram, "{}", known.name);
            }
            if known.class == FaultClass::Notice {
                assert_eq!((known.remedy, known.severity), (Remedy::None, Severity::Unstated));
            }
        }
    }

    #[test]
    fn unknown_number_has_no_explanation() {
        for number in [0, 1, 14, 59, 87, 91, 177, 9999, u32::MAX] {
            let DriverError { code, name, .. } = of(number);
            assert_eq!(of(number), DriverError { code, name, ..DriverError::default() });
        }
        assert_eq!(xid(999, "Fatal"), (FaultClass::Hardware, Remedy::None, Severity::Unstated));
        assert_eq!(of(999).name, "Xid 999");
        let other = DriverErrorCode { list: "ring-timeout".into(), number: None };
        assert_eq!(error(&other, ""), None, "of another driver");
    }

    #[test]
    fn texts_are_fragments() {
        for text in (0..1000).map(|number| of(number).text) {
            assert!(text.len() <= 60 && !text.ends_with('.'), "{text}");
            assert!(text.is_ascii() && text.trim() == text, "{text}");
        }
    }

    #[test]
    fn device_off_bus_without_number_is_as_with_79() {
        let line = parsed("NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.");
        assert_eq!(line, of(79));
        assert_eq!(
            xid(79, "GPU has fallen off the bus."),
            (line.class, line.remedy, line.severity)
        );
    }

    #[test]
    fn driver_states_remedy_of_154_by_number() {
        let text =
            |number: &str| format!("GPU recovery action changed from 0x0 (None) to {number}");
        for (number, remedy) in [
            ("0x0 (None)", Remedy::None),
            ("0x1 (GPU Reset Required)", Remedy::Reset),
            ("0x1 (PF FLR)", Remedy::Reset),
            ("0x2 (OS Reboot)", Remedy::Reboot),
            ("0x3 (Drain P2P)", Remedy::None),
            ("0x4 (Drain and Reset)", Remedy::Reset),
            ("0x5", Remedy::None),
            ("0x21", Remedy::None),
            ("0xffffffffff", Remedy::None),
            ("", Remedy::None),
        ] {
            let want = (FaultClass::Notice, remedy, Severity::Unstated);
            assert_eq!(xid(154, &text(number)), want, "{number}");
        }
    }

    #[test]
    fn fatal_nvlink_error_requires_reset() {
        for code in 144..=150 {
            let of = |word: &str| xid(code, &format!("NETIR_LINK_EVT {word} XC0 i0 Link 08"));
            let link = |remedy, severity| (FaultClass::Link, remedy, severity);
            assert_eq!(of("Fatal"), link(Remedy::Reset, Severity::Fatal), "{code}");
            assert_eq!(of("Nonfatal"), link(Remedy::None, Severity::NotFatal), "{code}");
            assert_eq!(of("?"), link(Remedy::Support, Severity::Unstated), "{code}");
        }
        let nvlink = (FaultClass::Link, Remedy::Support, Severity::Fatal);
        assert_eq!(xid(74, "Nonfatal"), nvlink);
    }

    #[test]
    fn driver_names_cause() {
        let cause = |text: &str| of_gpu(45, text).cause.map(|cause| *cause);
        assert_eq!(cause("Ch 00000009 caused by previous Xid 31"), Some(of(31)));
        assert_eq!(cause("caused by previous Xid 149, caused by previous Xid 79"), Some(of(79)));
        for text in ["", "caused by previous Xid x", "caused by previous Xid 4294967296"] {
            assert_eq!(cause(text), None, "{text}");
        }
    }

    #[test]
    fn line_of_switch_states_severity() {
        let switch = |number: u32, text: &str| {
            let line = format!("nvidia-nvswitch1: SXid (PCI:0000:84:00.0): {number}, {text}");
            let error = parsed(&line);
            assert_eq!(
                (error.class, &*error.name),
                (FaultClass::Switch, &*format!("SXid {number}"))
            );
            (error.severity, error.remedy, error.relation, error.text.into_owned())
        };
        let is =
            |severity, remedy, relation, text: &str| (severity, remedy, relation, text.to_owned());
        use Relation::{Alone, Detail, EffectOfAny};
        use Severity::{Fatal, NotFatal, Unstated};
        for (number, text, want) in [
            (11004, "Fatal, Link 5 ingress", is(Fatal, Remedy::Reset, Alone, "Link 5 ingress")),
            (20034, "Fatal, Link 5 down", is(Fatal, Remedy::Reset, EffectOfAny, "Link 5 down")),
            (12028, "Non-fatal, Link 5", is(NotFatal, Remedy::None, Alone, "Link 5")),
            (12028, "Fatal", is(Fatal, Remedy::Reset, Alone, "")),
            (12028, "Link 5, Fatal", is(Unstated, Remedy::None, Alone, "Link 5, Fatal")),
            (20034, "Data {0x1}", is(Unstated, Remedy::None, Detail, "Data {0x1}")),
            (12028, "Severity 1 x", is(Unstated, Remedy::None, Detail, "Severity 1 x")),
        ] {
            assert_eq!(switch(number, text), want, "{text}");
        }
    }

    #[test]
    fn recorded_message_is_explained_as_parsed() {
        use gpu_core::KernelDriver;
        for line in [
            "NVRM: Xid (PCI:0000:3b:00): 145, RLW_X Fatal XC0 i0 Link 08",
            "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.",
            "nvidia-nvswitch1: SXid (PCI:0000:84:00.0): 20034, Fatal, Link 34",
        ] {
            let parsed = crate::parse_message(line, Timestamp(0)).unwrap();
            let read = DriverMessage { error: DriverError::default(), ..parsed.clone() };
            assert_eq!(crate::NvidiaDriver.explain(&read), Some(parsed.error), "{line}");
        }
    }
}
