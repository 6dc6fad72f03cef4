//! The meaning of Xids, the driver's error numbers.
//!
//! Sources: NVIDIA, "Analyzing Xid Errors with the Xid Catalog" (the sheet of October 2025, Ampere
//! and newer) and "XID Errors" for cause and remedy, as leptonai/gpud and facebookresearch/gcm
//! reproduce them; `nverror.h` of open-gpu-kernel-modules for the names of newer numbers; NVIDIA,
//! "GPU Debug Guidelines" for the remedies of memory errors. Which errors keep a device from being
//! handed out is a rule of this project, by the checks of DCGM and of Kubernetes device plugins.

use gpu_core::{DriverMessage, DriverMessageKind};

/// The part that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum XidClass {
    /// In most cases, the program of the process that the message names. Its owner can fix it, and
    /// the device works unless programs of several users fail there.
    Application,
    /// Memory of the device.
    Memory,
    /// NVLink, the link between CPU and GPU, or PCIe.
    Link,
    /// The device or its firmware no longer answers, or never did. Calls of the driver about it may
    /// hang.
    Lost,
    /// Another part of the device, its firmware or the driver.
    Hardware,
    /// No part: the message is a notice.
    Informational,
}

/// The first remedy. If the error returns, the next one is support in most cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum XidAction {
    /// None is necessary, or NVIDIA names none.
    None,
    /// Restart the program that failed.
    RestartApplication,
    /// Reset the device, after all its holders have released it.
    Reset,
    /// Reboot the machine.
    Reboot,
    /// Have the hardware or its installation examined.
    Support,
}

/// The meaning of an Xid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XidMeaning {
    /// The error, as a sentence fragment.
    pub text: &'static str,
    /// The part that fails.
    pub class: XidClass,
    /// The first remedy.
    pub action: XidAction,
    /// Whether the device should not be handed out until the remedy. For 48 only if 94 does not
    /// come with it: see [`withholds`].
    pub withhold: bool,
}

/// Returns the meaning of an Xid by its number alone; `None` for a number that the source does not
/// explain.
///
/// An unknown number is an error too: newer drivers have newer numbers. Callers show it as it is.
pub fn meaning(code: u32) -> Option<XidMeaning> {
    use XidAction::{Reboot, Reset, RestartApplication as Restart, Support};
    use XidClass::{Application, Hardware, Informational, Link, Lost, Memory};
    let (text, class, action) = match code {
        8 => ("the GPU stopped processing a channel", Hardware, Restart),
        11 | 25 | 32 => ("invalid commands in a push buffer", Application, Restart),
        13 => ("exception of the graphics engine", Application, Restart),
        31 => ("invalid memory access (MMU fault)", Application, Restart),
        37 => ("unknown method in the context switch firmware", Hardware, XidAction::None),
        38 => ("watchdog of the context switch firmware", Hardware, XidAction::None),
        39..=41 | 70..=72 | 75..=77 | 85 | 126..=135 => {
            ("error of a copy engine", Hardware, Restart)
        }
        43 => ("a program failed and lost its channel", Application, XidAction::None),
        44 => ("fault during a context switch", Hardware, XidAction::None),
        45 => ("channels removed after another error or a kill", Application, XidAction::None),
        46 => ("the GPU stopped processing", Hardware, Reset),
        48 => ("uncorrectable memory error (double-bit ECC)", Memory, Reset),
        54 => ("auxiliary power is not connected", Hardware, Support),
        56 => ("error of the display engine", Hardware, Support),
        57 => ("training of the memory interface failed", Memory, Support),
        58 => ("error of the memory interface", Memory, Support),
        60 => ("error of the security engine", Hardware, Restart),
        61 => ("breakpoint of the power management firmware", Hardware, Support),
        62 => ("the power management firmware halted", Hardware, Reset),
        63 => ("bad memory is replaced at the next reset", Memory, XidAction::None),
        64 => ("bad memory could not be replaced", Memory, Reset),
        65 | 73 | 142 => ("error of a video encoder", Hardware, Support),
        66 | 67 => ("illegal access by the driver", Hardware, XidAction::None),
        68 | 82..=84 | 86 | 88 | 89 | 96..=105 | 139 => {
            ("error of a video, image or optical flow engine", Hardware, Restart)
        }
        69 => ("error of the graphics class", Application, Restart),
        74 => ("NVLink error", Link, Support),
        78 => ("a virtual GPU failed to start", Hardware, Support),
        79 => ("the GPU has fallen off the bus", Lost, Reboot),
        80 => ("corrupted commands in a push buffer", Hardware, Restart),
        81 => ("error of the VGA subsystem", Hardware, Support),
        90 => ("error of the L2 cache", Memory, Support),
        92 => ("high rate of corrected memory errors", Memory, XidAction::None),
        93 => ("the InfoROM nears its limit of writes", Informational, XidAction::None),
        94 => ("contained memory error", Memory, Restart),
        95 => ("uncontained memory error", Memory, Reset),
        106 | 107 => ("test of the SMBus", Informational, XidAction::None),
        108 | 137 => ("illegal access to the memory of a peer", Application, XidAction::None),
        109 => ("timeout of a context switch", Hardware, Reset),
        110 => ("security fault", Hardware, Reset),
        111..=118 => ("error of the display engine", Hardware, Support),
        119 => ("the GSP firmware did not answer in time", Lost, Reset),
        120 => ("the GSP firmware failed", Lost, Reset),
        121 => ("corrected error of the link between chips", Link, XidAction::None),
        122 => ("the firmware storage could not be read", Hardware, Support),
        123 => ("the firmware storage could not be written", Hardware, Reset),
        124 => ("the firmware storage could not be erased", Hardware, Support),
        125 => ("error in the file system of the InfoROM", Hardware, Support),
        136 => ("training of a link failed", Link, Reset),
        138 => ("error of the deep learning accelerator", Hardware, Support),
        140 => ("unrecovered ECC error", Memory, Reset),
        141 => ("error of the fast path of CUDA", Hardware, XidAction::None),
        143 => ("the GPU failed to initialise", Lost, Reset),
        144..=150 => ("NVLink error", Link, Support),
        151 => ("key rotation of confidential computing failed", Hardware, Support),
        152 | 153 => ("error of the deep learning accelerator", Hardware, XidAction::None),
        154 => ("the recovery action of the GPU changed", Informational, XidAction::None),
        155 => ("NVLink error, set by software", Link, Reset),
        156 => ("a part of the GPU is retired at the next reset", Hardware, Reset),
        157 => ("a part of the GPU could not be retired", Hardware, XidAction::None),
        158 => ("fatal timeout of the GPU", Lost, Reset),
        159 => ("error on the link to the CPU", Link, Support),
        160 => ("a memory channel is retired", Memory, XidAction::None),
        161 => ("a memory channel could not be retired", Memory, XidAction::None),
        162..=165 => ("notice of power smoothing", Informational, XidAction::None),
        166 | 170 => ("event of NVLink security", Link, XidAction::None),
        167 => ("fatal PCIe timeout", Link, XidAction::None),
        168 => ("less memory than usual for protected regions", Memory, XidAction::None),
        169 => ("the security engine halted", Hardware, XidAction::None),
        171 => ("uncorrectable error in DRAM", Memory, XidAction::None),
        172 => ("uncorrectable error in SRAM", Memory, XidAction::None),
        173 => ("fatal error of the link between chips", Link, XidAction::None),
        174 => ("silent kill (undocumented)", Hardware, XidAction::None),
        175 => ("error of the memory subsystem", Memory, XidAction::None),
        176 => ("correctable PCIe error", Link, XidAction::None),
        _ => return None,
    };
    let withhold = matches!(code, 48 | 64 | 74 | 79 | 95 | 119 | 120 | 140 | 143 | 158);
    Some(XidMeaning { text, class, action, withhold })
}

/// Returns the meaning of a message: that of its number, corrected by its text where the driver
/// states the remedy there; `None` for an unknown number, and for an error of an NVSwitch.
///
/// A device that fell off the bus without an Xid is treated like 79. 154 carries the driver's own
/// remedy. The text of 144 to 150 says whether the error is fatal, which requires a reset.
pub fn meaning_of(message: &DriverMessage) -> Option<XidMeaning> {
    let code = match message.kind {
        DriverMessageKind::FallenOffBus => 79,
        DriverMessageKind::Xid(code) => code,
        DriverMessageKind::SXid(_) => return None,
    };
    let known = meaning(code)?;
    let has = |word: &str| message.text.split_whitespace().any(|own| own == word);
    Some(match code {
        154 => XidMeaning { action: recovery(&message.text).unwrap_or(known.action), ..known },
        144..=150 if has("Fatal") => XidMeaning { action: XidAction::Reset, ..known },
        144..=150 if has("Nonfatal") => XidMeaning { action: XidAction::None, ..known },
        _ => known,
    })
}

/// Returns the remedy in the text of Xid 154, `… changed from 0x0 (None) to 0x1 (…)`. The number
/// decides, because drivers change the words (`nvmlDeviceGpuRecoveryAction_t`); `None` for a number
/// that requests another action, such as recovery of an IMEX domain.
fn recovery(text: &str) -> Option<XidAction> {
    let number = text.rsplit_once(" to 0x")?.1;
    let end = number.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(number.len());
    match u32::from_str_radix(&number[..end], 16).ok()? {
        0 => Some(XidAction::None),
        // 4: no new work, then a reset.
        1 | 4 => Some(XidAction::Reset),
        2 => Some(XidAction::Reboot),
        _ => None,
    }
}

/// Returns whether a device with these Xids should not be handed out: one of them withholds it,
/// except 48 together with 94, which says that the error was contained.
pub fn withholds(codes: &[u32]) -> bool {
    let is_contained = codes.contains(&94);
    let withholds = |code: u32| meaning(code).is_some_and(|known| known.withhold);
    codes.iter().any(|code| withholds(*code) && !(*code == 48 && is_contained))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_core::Timestamp;

    fn of(line: &str) -> Option<(XidClass, XidAction, bool)> {
        let line = format!("NVRM: {line}");
        let message = gpu_nvidia_driver::parse_message(&line, Timestamp(0)).unwrap();
        meaning_of(&message).map(|known| (known.class, known.action, known.withhold))
    }

    fn xid(code: u32, text: &str) -> Option<(XidClass, XidAction, bool)> {
        of(&format!("Xid (PCI:0000:3b:00): {code}, {text}"))
    }

    #[test]
    fn withheld_devices_follow_the_rule() {
        let withheld: Vec<u32> =
            (0..1000).filter(|code| meaning(*code).is_some_and(|known| known.withhold)).collect();
        assert_eq!(withheld, [48, 64, 74, 79, 95, 119, 120, 140, 143, 158]);
        for (codes, want) in [
            (&[48][..], true),
            (&[48, 94], false),
            (&[94, 48, 79], true),
            (&[63, 94, 13], false),
            (&[999], false),
            (&[], false),
        ] {
            assert_eq!(withholds(codes), want, "{codes:?}");
        }
    }

    /// Returns the numbers with matching meanings, as ranges.
    fn with(is_so: impl Fn(XidMeaning) -> bool) -> String {
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        for code in (0..1000).filter(|code| meaning(*code).is_some_and(&is_so)) {
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
    fn numbers_have_remedy_of_catalog() {
        for (action, codes) in [
            (XidAction::None, "37-38 43-45 63 66-67 92-93 106-108 121 137 141 152-154 157 160-176"),
            (
                XidAction::RestartApplication,
                "8 11 13 25 31-32 39-41 60 68-72 75-77 80 82-86 88-89 94 96-105 126-135 139",
            ),
            (XidAction::Reset, "46 48 62 64 95 109-110 119-120 123 136 140 143 155-156 158"),
            (XidAction::Reboot, "79"),
            (
                XidAction::Support,
                "54 56-58 61 65 73-74 78 81 90 111-118 122 124-125 138 142 144-151 159",
            ),
        ] {
            assert_eq!(with(|known| known.action == action), codes, "{action:?}");
        }
    }

    #[test]
    fn numbers_name_failing_part() {
        for (class, codes) in [
            (XidClass::Application, "11 13 25 31-32 43 45 69 108 137"),
            (XidClass::Memory, "48 57-58 63-64 90 92 94-95 140 160-161 168 171-172 175"),
            (XidClass::Link, "74 121 136 144-150 155 159 166-167 170 173 176"),
            (XidClass::Lost, "79 119-120 143 158"),
            (XidClass::Informational, "93 106-107 154 162-165"),
        ] {
            assert_eq!(with(|known| known.class == class), codes, "{class:?}");
        }
        assert_eq!(with(|_| true), "8 11 13 25 31-32 37-41 43-46 48 54 56-58 60-86 88-90 92-176");
    }

    #[test]
    fn errors_of_programs_accuse_no_device() {
        for code in [13, 31, 43, 45] {
            let known = meaning(code).unwrap();
            assert_eq!((known.class, known.withhold), (XidClass::Application, false), "{code}");
            assert!(matches!(known.action, XidAction::None | XidAction::RestartApplication));
        }
        let contained = meaning(94).unwrap();
        assert_eq!(contained.action, XidAction::RestartApplication);
    }

    #[test]
    fn lost_devices_need_more_than_restart_of_program() {
        for code in 0..1000 {
            let Some(known) = meaning(code) else { continue };
            if known.class == XidClass::Lost || known.withhold {
                let mild = matches!(known.action, XidAction::None | XidAction::RestartApplication);
                assert!(!mild, "{code}");
            }
            if known.class == XidClass::Informational {
                assert_eq!((known.action, known.withhold), (XidAction::None, false), "{code}");
            }
        }
        assert_eq!(meaning(79).unwrap().action, XidAction::Reboot);
    }

    #[test]
    fn only_failed_memory_replacement_needs_reset() {
        let (pending, failed) = (meaning(63).unwrap(), meaning(64).unwrap());
        assert_eq!((pending.class, pending.action), (XidClass::Memory, XidAction::None));
        assert_eq!((failed.class, failed.action), (XidClass::Memory, XidAction::Reset));
    }

    #[test]
    fn unknown_number_has_no_meaning() {
        for code in [0, 1, 14, 59, 87, 91, 177, 9999, u32::MAX] {
            assert_eq!(meaning(code), None, "{code}");
        }
        assert_eq!(xid(999, "Fatal"), None);
    }

    #[test]
    fn texts_are_fragments() {
        for known in (0..1000).filter_map(meaning) {
            assert!(known.text.len() <= 60 && !known.text.ends_with('.'), "{}", known.text);
            assert!(known.text.is_ascii() && known.text.trim() == known.text, "{}", known.text);
        }
    }

    #[test]
    fn device_off_bus_without_number_is_as_with_79() {
        let want = Some((XidClass::Lost, XidAction::Reboot, true));
        assert_eq!(of("GPU 0000:3b:00.0: GPU has fallen off the bus."), want);
        assert_eq!(xid(79, "GPU has fallen off the bus."), want);
    }

    #[test]
    fn driver_states_remedy_of_154_by_number() {
        let text =
            |number: &str| format!("GPU recovery action changed from 0x0 (None) to {number}");
        for (number, action) in [
            ("0x0 (None)", XidAction::None),
            ("0x1 (GPU Reset Required)", XidAction::Reset),
            ("0x1 (PF FLR)", XidAction::Reset),
            ("0x2 (OS Reboot)", XidAction::Reboot),
            ("0x3 (Drain P2P)", XidAction::None),
            ("0x4 (Drain and Reset)", XidAction::Reset),
            ("0x5", XidAction::None),
            ("0x21", XidAction::None),
            ("0xffffffffff", XidAction::None),
            ("", XidAction::None),
        ] {
            let want = Some((XidClass::Informational, action, false));
            assert_eq!(xid(154, &text(number)), want, "{number}");
        }
    }

    #[test]
    fn fatal_nvlink_error_requires_reset() {
        for code in 144..=150 {
            let of = |word: &str| xid(code, &format!("NETIR_LINK_EVT {word} XC0 i0 Link 08"));
            let link = |action| Some((XidClass::Link, action, false));
            assert_eq!(of("Fatal"), link(XidAction::Reset), "{code}");
            assert_eq!(of("Nonfatal"), link(XidAction::None), "{code}");
            assert_eq!(of("?"), link(XidAction::Support), "{code}");
        }
        assert_eq!(xid(74, "Nonfatal"), Some((XidClass::Link, XidAction::Support, true)));
    }
}
