//! The reason to drain a node.
//!
//! It consists of numbers only: users choose the names of processes, and Slurm shows the reason to
//! administrators.

use gpu_core::{Bytes, Pid};
use std::collections::BTreeSet;

/// The most processes that a reason names for one device, and the most devices.
const NAMED: usize = 8;

const PREFIX: &str = "gpuws: ";

/// The text for a device if the holder scan times out.
const UNCHECKED: &str = "not checked in time";

/// A device that is held although no job has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldDevice {
    /// Its index (NVML), or the number of its file if the driver does not answer.
    pub index: u32,
    /// Its memory in use, if the driver answers.
    pub used: Option<Bytes>,
    /// The processes that hold it; empty if memory is in use without a visible process.
    pub pids: Vec<Pid>,
}

/// Returns the reason to drain a node with these devices, such as
/// `gpuws: GPU 1 15824 MiB held by 4711`; `None` without any.
pub fn reason(held: &[HeldDevice]) -> Option<String> {
    if held.is_empty() {
        return None;
    }
    let parts = held.iter().take(NAMED).map(|device| {
        let used = device.used.map(|used| format!(" {} MiB", used.0 >> 20)).unwrap_or_default();
        let pids: Vec<String> = device.pids.iter().take(NAMED).map(Pid::to_string).collect();
        let holders = if pids.is_empty() { "no process".to_owned() } else { pids.join(", ") };
        format!("GPU {}{used} held by {holders}", device.index)
    });
    Some(format!("{PREFIX}{}", parts.collect::<Vec<_>>().join("; ")))
}

/// Returns the reason to drain a node if the holder scan of these devices times out.
pub(crate) fn unchecked(indices: impl Iterator<Item = u32>) -> String {
    let parts = indices.take(NAMED).map(|index| format!("GPU {index} {UNCHECKED}"));
    format!("{PREFIX}{}", parts.collect::<Vec<_>>().join("; "))
}

/// Adds to a reason what must stay from the previous one: the devices with memory that no process
/// holds. A later scan of processes would not find these.
pub(crate) fn with_lost(reason: &str, before: &str) -> String {
    let known = lost(reason);
    let is_kept = |part: &&str| {
        let part = parts(&format!("{PREFIX}{part}")).unwrap_or_default();
        part.iter().any(|(index, has_holder)| !has_holder && !known.contains(index))
    };
    let is_own = is_own_reason(before);
    let before = before.strip_prefix(PREFIX).filter(|_| is_own).unwrap_or_default();
    let new = reason.strip_prefix(PREFIX).unwrap_or(reason);
    let all = before.split("; ").filter(is_kept).chain([new]);
    format!("{PREFIX}{}", all.collect::<Vec<_>>().join("; "))
}

/// Returns whether gpuws wrote a reason, and it is unchanged.
pub fn is_own_reason(text: &str) -> bool {
    parts(text).is_some()
}

/// Returns the indices of the devices that such a reason names as held by no process.
pub(crate) fn lost(text: &str) -> BTreeSet<u32> {
    let parts = parts(text).unwrap_or_default().into_iter();
    parts.filter(|(_, has_holder)| !has_holder).map(|(index, _)| index).collect()
}

/// Returns the index of each device that a reason names, and whether a process may hold it; `None`
/// if gpuws did not write it.
fn parts(text: &str) -> Option<Vec<(u32, bool)>> {
    let is_number = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    let part = |part: &str| {
        let (device, holders) = match part.strip_suffix(UNCHECKED) {
            Some(device) => (device.strip_suffix(' ')?, "0"),
            None => part.split_once(" held by ")?,
        };
        let words: Vec<&str> = device.split(' ').collect();
        let index = match words[..] {
            ["GPU", index] => index,
            ["GPU", index, used, "MiB"] if is_number(used) => index,
            _ => return None,
        };
        let has_holder = holders != "no process";
        let is_whole = is_number(index) && (!has_holder || holders.split(", ").all(is_number));
        Some((index.parse().ok().filter(|_| is_whole)?, has_holder))
    };
    text.strip_prefix(PREFIX)?.split("; ").map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(index: u32, mib: Option<u64>, pids: &[u32]) -> HeldDevice {
        let pids = pids.iter().copied().map(Pid).collect();
        HeldDevice { index, used: mib.map(Bytes::from_mib), pids }
    }

    #[test]
    fn reason_names_device_memory_and_holders() {
        for (devices, expected) in [
            (vec![held(1, Some(15_824), &[4711])], "gpuws: GPU 1 15824 MiB held by 4711"),
            (
                vec![held(0, None, &[7, 8]), held(3, Some(2), &[])],
                "gpuws: GPU 0 held by 7, 8; GPU 3 2 MiB held by no process",
            ),
        ] {
            assert_eq!(reason(&devices).as_deref(), Some(expected));
            assert!(is_own_reason(expected));
            let without: BTreeSet<u32> = devices
                .iter()
                .filter(|device| device.pids.is_empty())
                .map(|device| device.index)
                .collect();
            assert_eq!(lost(expected), without);
        }
        assert_eq!(reason(&[]), None);
        let unchecked = unchecked([1, 2].into_iter());
        assert_eq!(unchecked, "gpuws: GPU 1 not checked in time; GPU 2 not checked in time");
        assert!(is_own_reason(&unchecked) && lost(&unchecked).is_empty());
        let crowd: Vec<HeldDevice> =
            (0..64).map(|index| held(index, Some(80_000), &[4_000_000; 64])).collect();
        let long = reason(&crowd).unwrap();
        assert!(long.len() < 1024 && is_own_reason(&long), "{long}");
    }

    #[test]
    fn lost_memory_stays_in_the_reason() {
        let new = "gpuws: GPU 1 held by 4711";
        let with = "gpuws: GPU 3 9000 MiB held by no process; GPU 1 held by 4711";
        let lost = "GPU 3 9000 MiB held by no process";
        for (before, expected) in [
            (format!("gpuws: {lost}"), with.to_owned()),
            (format!("gpuws: GPU 0 held by 7; {lost}"), with.to_owned()),
            ("gpuws: GPU 0 held by 7".to_owned(), new.to_owned()),
            ("gpuws: GPU 0 not checked in time".to_owned(), new.to_owned()),
            (format!("{lost}; RMA"), new.to_owned()),
            (String::new(), new.to_owned()),
        ] {
            let reason = with_lost(new, &before);
            assert_eq!(reason, expected, "{before}");
            assert!(is_own_reason(&reason));
        }
        let both = format!("gpuws: {lost}; GPU 3 held by 4711");
        assert_eq!(with_lost("gpuws: GPU 3 held by 4711", &format!("gpuws: {lost}")), both);
        let again = "gpuws: GPU 3 8000 MiB held by no process";
        assert_eq!(with_lost(again, &format!("gpuws: {lost}")), again);
    }

    #[test]
    fn foreign_reason_is_not_own() {
        for text in [
            "Epilog error",
            "gpuws",
            "gpuws: ",
            "gpuws: maintenance",
            "NHC: gpuws: GPU 1 held by 4711",
            "gpuws: GPU 1 held by 4711; RMA ordered",
            "gpuws: GPU 1 held by python",
            "gpuws: GPU 1 held by ",
            "gpuws: GPU x held by 1",
            "gpuws: GPU 1 not checked in time, ask Carol",
            "gpuws: GPU x not checked in time",
            "gpuws: not checked in time",
        ] {
            assert!(!is_own_reason(text), "{text}");
        }
    }
}
