//! The failure texts of whole tools.
//!
//! nvidia-smi's messages have no numbers, so they are recognised by phrases that are the same in
//! all its versions. A passage that merely sounds like a failure and mentions GPUs or the driver is
//! [`ErrorCode::Other`].

mod phrases;
mod quoted;
mod vocabulary;

pub(crate) use vocabulary::{SHORTEST, codes};

use crate::command;
use crate::document::{
    DeviceFailure, Document, ErrorCode, Gpu, Kind, NamedDevice, ReportedFailure,
};
use crate::kernel_log;
use crate::text::Text;
use quoted::reported;
use vocabulary::MAX_PASSAGE;

/// The maximum number of words in which the name of a device is searched, and the maximum number of
/// such failure texts.
const MAX_WORDS: usize = 100;
const MAX_DEVICE_FAILURES: usize = 256;

/// Records in `document` the failure that `line` reports; returns whether it reports one. A kernel
/// log message is not a failure of a tool.
pub(crate) fn note(document: &mut Document, line: &str) -> bool {
    note_shown(document, line, |_| line)
}

/// As [`note`], with the line to show for a failure.
fn note_shown<'a>(
    document: &mut Document,
    line: &str,
    shown: impl Fn(ErrorCode) -> &'a str,
) -> bool {
    if kernel_log::is_row(line, std::iter::empty()) {
        return false;
    }
    let codes = codes(line);
    let found = !codes.is_empty();
    for code in codes {
        document.note_error(code, shown(code));
        let of_device =
            [ErrorCode::DeviceHandle, ErrorCode::MigPending, ErrorCode::NvlinksInactive];
        // A listing names the device in the previous row.
        let above = document.gpus.last().and_then(|gpu| gpu.index).map(NamedDevice::Index);
        if of_device.contains(&code)
            && document.device_failures.len() < MAX_DEVICE_FAILURES
            && let Some((device, index)) = named_device(line).or(above.map(|above| (above, None)))
        {
            let enables_mig = !line.to_lowercase().contains("disable");
            document.device_failures.push(DeviceFailure { code, device, index, enables_mig });
        }
    }
    found
}

/// Returns the failures that the snapshot attributes to no device: their text names no device, or
/// one whose figures come from another time.
pub fn unattributed(documents: &[Document]) -> Vec<ReportedFailure> {
    let has_figures = |device: NamedDevice| {
        let is_it = |gpu: &&Gpu| match device {
            NamedDevice::Bus(bus) => gpu.bus_id.as_ref().is_some_and(|id| id.parse() == Ok(bus)),
            NamedDevice::Index(index) => gpu.index == Some(index),
        };
        let gpus = documents.iter().flat_map(|document| &document.gpus);
        gpus.filter(is_it).any(|gpu| gpu.memory_used_mib.is_ok())
    };
    let of = |document: &Document| {
        let named = |code: &ErrorCode| {
            let mut of_code = document.device_failures.iter().filter(|it| it.code == *code);
            of_code.any(|it| *code != ErrorCode::DeviceHandle || !has_figures(it.device))
        };
        let reported = document.errors.iter().zip(&document.error_lines);
        let others = reported.filter(|(code, _)| !named(code));
        let failures =
            others.map(|(code, line)| ReportedFailure { code: *code, line: line.clone() });
        failures.collect::<Vec<_>>()
    };
    documents.iter().flat_map(of).collect()
}

/// Returns the device that a failure text names: by its PCI address, with the index before it, or
/// as `GPU 3` or `GPU3`.
fn named_device(text: &str) -> Option<(NamedDevice, Option<u32>)> {
    let mut index = None;
    let mut before = "";
    for word in text.split_whitespace().take(MAX_WORDS) {
        // `00000000:3B:00.0:In use by another client`
        let bare = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        let address = bare.find(":In").map_or(bare, |end| &bare[..end]);
        if address.contains(':')
            && let Ok(bus) = address.parse()
        {
            return Some((NamedDevice::Bus(bus), index));
        }
        let number = match bare.get(..3) {
            Some(gpu) if gpu.eq_ignore_ascii_case("gpu") => &bare[3..],
            _ if before.eq_ignore_ascii_case("gpu") => bare,
            _ => "",
        };
        index = index.or_else(|| number.parse().ok());
        before = bare;
    }
    index.map(|index| (NamedDevice::Index(index), None))
}

/// Returns whether only programs print such a line. People do not write it in prose, so it counts
/// in a text of any length.
fn is_of_log(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::LostAccess
            | ErrorCode::Blocked
            | ErrorCode::ContainerRuntime
            | ErrorCode::DriverOutOfMemory
            | ErrorCode::InitFailed
            | ErrorCode::RebootRequired
            | ErrorCode::HostMemory
            | ErrorCode::MemoryNotReturned
            | ErrorCode::DeviceBusy
            | ErrorCode::NoCudaDevice
            | ErrorCode::NoSuchDevice
            | ErrorCode::DriverTooOld
            | ErrorCode::NoKernelImage
            | ErrorCode::MemoryAccess
            | ErrorCode::LaunchTimeout
            | ErrorCode::EccError
            | ErrorCode::FabricNotReady
            | ErrorCode::ForkedProcess
            | ErrorCode::MpsUnavailable
            | ErrorCode::NcclError
            | ErrorCode::CudaUnknown
            | ErrorCode::CudaMismatch
            | ErrorCode::GpuHung
            | ErrorCode::NoFreeGpu
    )
}

/// Returns whether a text is a failure: a log with a line that only programs print, or a short text
/// that consists mostly of complaints.
pub(crate) fn is_failure(text: &Text) -> bool {
    const MAX_LINES: usize = 60;
    let is_logged = |line| codes(&reported(line)).into_iter().any(is_of_log);
    if text.lines().any(|(_, line)| is_logged(line)) {
        return true;
    }
    let filled = text.lines().filter(|(_, line)| !line.trim().is_empty());
    if filled.take(MAX_LINES + 1).count() > MAX_LINES {
        return false;
    }
    let (mut complaining, mut all, mut known) = (0, 0, false);
    for passage in passages(text) {
        let lines = passage.lines.iter().filter(|(_, line)| !command::is_between(line)).count();
        all += lines;
        let codes = codes(&passage.joined);
        complaining += if codes.is_empty() { 0 } else { lines };
        known |= codes.iter().any(|code| *code != ErrorCode::Other);
    }
    // Prose contains complaints too, but in fewer of its lines.
    complaining > 0 && complaining * if known { 4 } else { 2 } >= all
}

/// Parses a failure text.
pub(crate) fn parse(text: &Text) -> Document {
    let mut document = Document::new(Kind::Error);
    for passage in passages(text) {
        // A phrase may be wrapped, so that no line has it.
        let shown = |code| {
            let mut lines = passage.lines.iter().map(|(_, line)| *line);
            lines.find(|line| codes(line).contains(&code)).unwrap_or(&passage.joined)
        };
        if !note_shown(&mut document, &passage.joined, shown) {
            for (number, line) in passage.lines {
                document.note_unread(number, line, "reports no failure");
            }
        }
    }
    document
}

/// Consecutive lines without a blank one between them, and the failures they report together:
/// terminals and mailers wrap messages in the middle of a phrase.
struct Passage<'a> {
    joined: String,
    lines: Vec<(usize, &'a str)>,
}

fn passages(text: &Text) -> impl Iterator<Item = Passage<'_>> {
    let mut lines = text.lines();
    std::iter::from_fn(move || {
        let mut passage = Passage { joined: String::new(), lines: Vec::new() };
        let mut rest = lines.by_ref().skip_while(|(_, line)| line.trim().is_empty());
        passage.lines.push(rest.next()?);
        // The rest of an overlong passage becomes the next passage.
        while passage.joined.len() < MAX_PASSAGE {
            let (_, line) = passage.lines.last()?;
            for word in reported(line).split_whitespace() {
                passage.joined.push_str(word);
                passage.joined.push(' ');
            }
            match lines.next() {
                Some((number, line)) if !line.trim().is_empty() => {
                    passage.lines.push((number, line));
                }
                _ => break,
            }
        }
        Some(passage)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::clean;
    use proptest::prelude::*;

    #[test]
    fn specific_failure_replaces_general_one() {
        for (passage, want) in [
            (
                "nvidia-container-cli: detection error: nvml error: driver/library version mismatch",
                &[ErrorCode::NvmlMismatch][..],
            ),
            (
                "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.8",
                &[ErrorCode::DriverTooOld],
            ),
            ("nvidia-container-cli: mount error: x", &[ErrorCode::ContainerRuntime]),
            (
                "CUDA unknown error - x CUDA_VISIBLE_DEVICES y. Setting the available devices to be \
                 zero.",
                &[ErrorCode::CudaUnknown],
            ),
            ("x. Setting the available devices to be zero.", &[ErrorCode::NoCudaDevice]),
            (
                "NCCL error: unhandled cuda error: an illegal memory access was encountered",
                &[ErrorCode::MemoryAccess],
            ),
            // Two unrelated failures.
            (
                "bash: nvidia-smi: command not found RuntimeError: No CUDA GPUs are available",
                &[ErrorCode::NoCudaDevice, ErrorCode::NoTool],
            ),
            ("\"OOMKilled\": true, \"Dead\": false", &[ErrorCode::HostMemory]),
            ("\"OOMKilled\": false, \"Dead\": false", &[]),
            ("State.OOMKilled=false", &[]),
        ] {
            assert_eq!(codes(passage), want, "{passage}");
        }
    }

    #[test]
    fn error_messages_of_every_version_map_to_code() {
        for (message, want) in [
            (
                "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
                ErrorCode::DriverNotRunning,
            ),
            ("it couldn\u{2019}t communicate with the NVIDIA driver", ErrorCode::DriverNotRunning),
            ("Failed to initialize NVML: Driver Not Loaded", ErrorCode::DriverNotRunning),
            ("Failed to initialize NVML: Driver/library version mismatch", ErrorCode::NvmlMismatch),
            ("No devices were found", ErrorCode::NoDevices),
            (
                "Unable to determine the device handle for gpu 0000:0A:00.0: GPU is lost.",
                ErrorCode::DeviceHandle,
            ),
            (
                "GPU Reset couldn't run because GPU 00000000:0A:00.0 is the primary GPU.",
                ErrorCode::ResetRefused,
            ),
            ("Resetting GPU 00000000:0A:00.0 is not supported.", ErrorCode::ResetRefused),
            (
                "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.",
                ErrorCode::NoLibrary,
            ),
            (
                "Failed to initialize NVML: GPU access blocked by the operating system",
                ErrorCode::Blocked,
            ),
            ("Failed to initialize NVML: Insufficient Permissions", ErrorCode::NotPermitted),
            (
                "The following GPUs could not be reset:\n  GPU 0A: In use by another client",
                ErrorCode::ResetRefused,
            ),
            (
                "Warning: MIG mode is in pending disable state for GPU 0A:00.0:In use by another \
                 client\n0A:00.0 is currently being used by one or more other processes",
                ErrorCode::MigPending,
            ),
            (
                "Unable to retrieve NVLink information as all links are inActive",
                ErrorCode::NvlinksInactive,
            ),
            ("Not supported on the device(s)", ErrorCode::Other),
            ("Failed to initialize NVML: Unknown Error", ErrorCode::LostAccess),
            ("Field \"memory.usd\" is not a valid field to query.", ErrorCode::BadQuery),
            ("bash: nvidia-smi: command not found", ErrorCode::NoTool),
        ] {
            assert_eq!(codes(message), [want], "{message}");
        }
    }

    #[test]
    fn failure_names_its_device() {
        let at = |text: &str, index| Some((NamedDevice::Bus(text.parse().unwrap()), index));
        let bus = |text: &str| at(text, None);
        let index = |index| Some((NamedDevice::Index(index), None));
        for (text, device) in [
            ("the device handle for gpu 0000:0A:00.0: GPU is lost.", bus("0000:0a:00.0")),
            ("the device handle for GPU3: 00000000:3B:00.0: Unknown Error", at("3b:00.0", Some(3))),
            ("pending disable state for GPU 00000000:0A:00.0:In use by", bus("0a:00.0")),
            ("GPU 3 is lost", index(3)),
            ("GPU3: fallen off the bus", index(3)),
            ("a GPU is lost", None),
            ("a GPU at 12:30 is lost", None),
        ] {
            assert_eq!(named_device(text), device, "{text}");
        }
    }

    #[test]
    fn other_text_has_no_error_code() {
        for line in [
            "",
            "0, Tesla K80, 83",
            "the error is mine",
            "Reboot the system or try a reset to make MIG mode effective",
            "| N/A   83C    P0   151W / 149W |",
        ] {
            assert_eq!(codes(line), [], "{line}");
        }
    }

    #[test]
    fn wrapped_message_is_one_message() {
        let words = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.";
        for (at, _) in words.match_indices(' ') {
            let (head, tail) = words.split_at(at);
            let text = clean(format!("{head}\n  {tail}\n").as_bytes());
            assert!(is_failure(&text));
            let document = parse(&text);
            assert_eq!(document.errors, [ErrorCode::DriverNotRunning]);
            assert_eq!(document.unread, []);
        }
    }

    #[test]
    fn one_text_may_contain_several_errors() {
        let text = "Unable to determine the device handle for GPU0: 0000:02:00.0: Unknown Error\n\
                    No devices were found\n\nsome prose\n";
        let document = parse(&clean(text.as_bytes()));
        assert_eq!(document.errors, [ErrorCode::NoDevices, ErrorCode::DeviceHandle]);
        assert_eq!(document.unread.len(), 1);
    }

    #[test]
    fn failure_text_is_short_and_mostly_complains() {
        let is = |text: String| is_failure(&clean(text.as_bytes()));
        let known = "No devices were found\n";
        let vague = "the gpu has failed\n";
        let passages =
            |text: &str, prose: usize| format!("{text}\n{}", "some prose\n\n".repeat(prose));
        assert!(is(passages(known, 3)) && !is(passages(known, 4)));
        assert!(is(passages(vague, 1)) && !is(passages(vague, 2)));
        assert!(!is(String::new()) && !is("some prose\n".to_owned()));
        assert!(is(known.repeat(60)) && !is(known.repeat(61)));
        assert!(is(format!("{known}\n{}", "$ ls\n\n".repeat(9))), "commands are not counted");
    }

    #[test]
    fn long_passage_is_read_in_parts() {
        let filler = format!("{}\n", "word ".repeat(MAX_PASSAGE / 10));
        let text = format!("{}{}No devices were found\n", filler, filler.repeat(3));
        let document = parse(&clean(text.as_bytes()));
        assert_eq!(document.errors, [ErrorCode::NoDevices]);
        assert!(!document.unread.is_empty());
        assert_eq!(codes(&format!("{}no devices were found", "a".repeat(MAX_PASSAGE))), []);
        assert_eq!(codes("\u{130}".repeat(9).as_str()), []);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
            let text = clean(&bytes);
            let document = parse(&text);
            let filled = text.lines().filter(|(_, line)| !line.trim().is_empty()).count();
            prop_assert!(document.unread.len() <= filled);
            prop_assert!(!document.errors.is_empty() || document.unread.len() == filled);
        }
    }
}
