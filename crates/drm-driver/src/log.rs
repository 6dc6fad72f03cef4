//! The error messages in the kernel log.
//!
//! A record begins with the driver and the address that `dev_err` prints, then the marks of the
//! layer that reports: `amdgpu: `, `[drm] *ERROR* `, `GT0: `. amdgpu before Linux 6.3 prints many
//! messages without an address (`[drm:amdgpu_job_timedout [amdgpu]] *ERROR* …`): they name no device
//! and are left out.

use crate::error;
use gpu_core::{DriverErrorCode, DriverMessage, PciBusId, Pid, Timestamp, acts};

/// The beginnings of the records of each driver, by its name in sysfs.
pub const PREFIXES: [(&str, &[&str]); 3] =
    [("amdgpu", &["amdgpu "]), ("i915", &["i915 "]), ("xe", &["xe "])];

/// The length of an address with a domain of four digits.
const ADDRESS: usize = "0000:03:00.0".len();

/// The most marks before a message.
const MAX_MARKS: usize = 8;

/// The messages: how they begin after their marks, and the code. The first that fits counts.
const MESSAGES: &[(&str, &str)] = &[
    ("ring ", "ring-timeout"),
    ("process ", "process"),
    ("in process ", "process"),
    ("page fault ", "page-fault"),
    ("no-retry page fault ", "page-fault"),
    ("retry page fault ", "page-fault"),
    ("gpu fault detected: ", "page-fault"),
    ("gpu reset begin!", "gpu-reset"),
    ("gpu recovery disabled", "reset-off"),
    ("gpu recovery failed", "reset-failed"),
    ("vram is lost due to gpu reset", "memory-lost"),
    ("device lost from bus", "device-lost"),
    ("fatal error during gpu init", "start-failed"),
    ("smu: i'm not done with your previous command", "firmware-timeout"),
    ("smu: no response ", "firmware-timeout"),
    ("direct firmware load for ", "firmware-missing"),
    ("failed to load firmware ", "firmware-missing"),
    ("ras poison is consumed", "ras-poison"),
    ("ras controller interrupt triggered by nbif error", "ras-link"),
    ("uncorrectable hardware errors ", "ras-uncorrected"),
    ("new uncorrectable hardware errors ", "ras-uncorrected"),
    ("correctable hardware errors ", "ras-corrected"),
    ("new correctable hardware errors ", "ras-corrected"),
    ("saved bad pages ", "bad-pages"),
    ("ras records:", "worn-out"),
    ("bad page threshold reached", "worn-out"),
    ("gpu hang: ecode ", "gpu-hang"),
    ("resetting chip for ", "gpu-reset"),
    ("resetting ", "engine-reset"),
    ("failed to reset chip", "reset-failed"),
    ("engine reset failed", "reset-failed"),
    ("engine reset: ", "engine-reset"),
    ("guc engine reset ", "engine-reset"),
    ("engine memory cat error ", "engine-fault"),
    ("timedout job: ", "job-timeout"),
    ("reset started", "gpu-reset"),
    ("reset done", "gpu-reset-done"),
    ("reset failed", "reset-failed"),
    ("device wedged, but recovered", "recovered"),
    ("device wedged", "wedged"),
    ("critical: xe has declared device ", "wedged"),
    ("xe device coredump has been created", "core-dump"),
];

/// Parses a record of the kernel log; `None` for any other. Only its beginning decides which message
/// it is, so a process with the name of a message cannot add one.
pub fn parse_message(text: &str, at: Timestamp) -> Option<DriverMessage> {
    let (driver, rest) = text.split_once(' ')?;
    PREFIXES.iter().find(|(name, _)| *name == driver)?;
    let (bus, rest) = rest.split_once(": ")?;
    let bus: PciBusId = bus.parse().ok()?;
    let text = bounded(without_marks(rest), DriverMessage::MAX_TEXT);
    let (list, pid, process) = match named_first(&text) {
        Some((name, pid)) => ("context-reset", Some(pid), Some(name)),
        None => {
            let list = code(&text)?;
            let named = process(&text);
            (list, named.map(|(_, pid)| pid), named.map(|(name, _)| name))
        }
    };
    let code = DriverErrorCode { list: list.into(), number: None };
    let known =
        |name: &str| Some(bounded(name, DriverMessage::MAX_NAME)).filter(|name| !name.is_empty());
    Some(DriverMessage {
        at,
        elapsed: None,
        is_local: false,
        bus: PciBusId { function: 0, ..bus },
        error: error(&code)?,
        code,
        // PID 0 stands for an unknown process.
        pid: pid.filter(|pid| *pid != 0).map(Pid),
        process: process.and_then(known),
        gpu_instance: None,
        compute_instance: None,
        text,
    })
}

/// Returns where a record of one of the drivers would begin in a line.
pub fn start_in(line: &str) -> Option<usize> {
    let begins = |at: usize, name: &str| {
        let address = line.get(at + name.len()..).and_then(|rest| rest.get(..ADDRESS));
        let is_word = !line[..at].ends_with(|before: char| before.is_alphanumeric());
        is_word && address.is_some_and(|address| address.parse::<PciBusId>().is_ok())
    };
    let prefixes = PREFIXES.iter().flat_map(|(_, prefixes)| *prefixes);
    let starts = prefixes.filter_map(|prefix| {
        let mut found = line.match_indices(prefix).map(|(at, _)| at);
        found.find(|at| begins(*at, prefix))
    });
    starts.min()
}

/// Returns the code of a message.
fn code(text: &str) -> Option<&'static str> {
    let begins =
        |begin: &str| text.get(..begin.len()).is_some_and(|own| own.eq_ignore_ascii_case(begin));
    if begins("GPU reset(") || begins("GPU reset end") {
        let is_done = text.contains("succeeded") || text.ends_with("ret = 0");
        return Some(if is_done { "gpu-reset-done" } else { "reset-failed" });
    }
    let (_, code) = MESSAGES.iter().find(|(begin, _)| begins(begin))?;
    match *code {
        "ring-timeout" if text.contains(" reset succe") => Some("engine-reset"),
        "ring-timeout" if !text.contains(" timeout") => None,
        code => Some(code),
    }
}

/// Removes what the layers of the drivers put before their messages, and the count of errors.
fn without_marks(text: &str) -> &str {
    let mut rest = text.trim_start();
    for _ in 0..MAX_MARKS {
        let Some(after) = after_mark(rest) else { break };
        rest = after.trim_start();
    }
    rest
}

fn after_mark(text: &str) -> Option<&str> {
    if let Some(after) = text.strip_prefix("amdgpu: ").or(text.strip_prefix("*ERROR* ")) {
        return Some(after);
    }
    // `[drm]`, `[drm:amdgpu_job_timedout [amdgpu]]`, `[gfxhub0]`.
    if let Some(inner) = text.strip_prefix('[') {
        let is_mark = ["drm", "gfxhub", "mmhub"].iter().any(|mark| inner.starts_with(mark));
        let (mark, after) = inner.split_once("] ")?;
        return (is_mark && (!mark.contains(' ') || mark.ends_with(']'))).then_some(after);
    }
    // `GT0: `, `Tile0: `, `socket: 0, `, `die: 0, `, and a number of errors.
    let words = ["GT", "Tile", "GUC: ", "socket: ", "adapter: ", "die: ", ""];
    let (word, rest) = words.iter().find_map(|word| Some((*word, text.strip_prefix(word)?)))?;
    let after = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    let end = if word.ends_with(": ") {
        ", "
    } else if word.is_empty() {
        " "
    } else {
        ": "
    };
    match (word, after.len() < rest.len()) {
        ("GUC: ", _) => Some(rest),
        (_, true) => after.strip_prefix(end),
        _ => None,
    }
}

/// Returns the process at the beginning of `NAME[PID] context reset due to GPU hang`.
fn named_first(text: &str) -> Option<(&str, u32)> {
    let (name, pid) = text.strip_suffix("] context reset due to GPU hang")?.rsplit_once('[')?;
    Some((name, pid.parse().ok()?))
}

/// Returns the process in a message: `process NAME pid N thread NAME pid N` of amdgpu,
/// `in NAME [PID]` of Intel's drivers. A name that makes it ambiguous gives none.
fn process(text: &str) -> Option<(&str, u32)> {
    let at = ["Process information: process ", "for process ", "in process ", "Process "];
    if let Some((_, rest)) = at.iter().find_map(|start| text.split_once(start)) {
        let (process, thread) = rest.split_once(" thread ")?;
        let (name, pid) = process.rsplit_once(" pid ")?;
        return (!thread.contains(" thread ")).then_some((name, pid.parse().ok()?));
    }
    let (_, rest) = text.split_once(" in ")?;
    let (name, pid) = rest.rsplit_once(" [")?;
    Some((name, pid.split_once(']')?.0.parse().ok()?))
}

/// Returns the first characters of hostile text: blanks in place of line ends and tabs, and no
/// other character that could act on a terminal.
fn bounded(text: &str, most: usize) -> String {
    let blanks = text.chars().map(|c| if matches!(c, '\n' | '\r' | '\t') { ' ' } else { c });
    let kept: String = blanks.filter(|c| !acts(*c)).take(most).collect();
    kept.trim().to_owned()
}

#[cfg(test)]
mod tests;
