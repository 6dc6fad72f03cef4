//! Figures, counts and names, as the command line prints them.

use gpu_core::{Bytes, Partition, Pid, Snapshot, Timestamp};
use std::borrow::Cow;
use std::fmt;
use std::path::Path;
use std::time::Duration;

/// Formats a duration in one unit, rounded down: `3 h`, `2 d`, `40 s`.
pub fn age(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..86_400 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// Formats the time of day in UTC, or the date if it differs from the date of `now`.
pub fn started(at: Timestamp, now: Timestamp) -> String {
    let (at, now) = (at.to_string(), now.to_string());
    let (date, time) = at.split_at(10);
    if now.starts_with(date) {
        format!("{} UTC", time.get(1..6).unwrap_or_default())
    } else {
        date.to_owned()
    }
}

/// Formats gibibytes with one decimal, as `{:.1}` does: a view formats many of them each second.
fn tenths(bytes: Bytes) -> impl fmt::Display {
    let (exact, half) = (u128::from(bytes.0) * 10, 1 << 29);
    let (tenths, rest) = (exact >> 30, exact & ((1 << 30) - 1));
    // A tie goes to the even neighbour.
    let tenths = tenths + u128::from(rest > half || rest == half && tenths % 2 == 1);
    fmt::from_fn(move |f| write!(f, "{}.{}", tenths / 10, tenths % 10))
}

/// Formats memory in at most 9 columns: `71.0 GiB`, `10 MiB`, rounded up below 1 GiB.
pub fn memory(bytes: Bytes) -> Cow<'static, str> {
    match bytes.0 {
        0 => Cow::Borrowed("0"),
        1..0x4000_0000 => format!("{} MiB", bytes.0.div_ceil(1 << 20)).into(),
        _ => format!("{} GiB", tenths(bytes)).into(),
    }
}

/// Formats the used memory of a whole: `71.0/80.0 GiB`, `10 MiB/80.0 GiB`; each part padded to at
/// least the given width.
pub fn used_of(used: Bytes, total: Bytes, (used_width, total_width): (usize, usize)) -> String {
    let used = memory(used);
    let used = used.strip_suffix(" GiB").unwrap_or(&used);
    let total = tenths(total).to_string();
    format!("{used:>used_width$}/{total:>total_width$} GiB")
}

/// Formats the size of a file in KiB or MiB.
pub fn size(bytes: u64) -> String {
    match bytes >> 20 {
        0 => format!("{} KiB", bytes.div_ceil(1024)),
        _ => format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20)),
    }
}

/// Formats a count: `2 processes`, `1 process`.
pub fn count(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// Formats the number of findings in a snapshot that reads less than `gpuws doctor`: `5+ findings`.
pub fn findings_at_least(number: u64) -> String {
    format!("{number}+ findings")
}

/// Formats how much of a machine is free: `4 GPUs, 1 free`, `1 GPU, 0 free, 1 MIG device free`.
pub fn free(now: &Snapshot, gpus: usize, free: usize, parts: usize) -> String {
    let all = now.devices.iter().flat_map(|device| device.partitions.iter().flatten());
    let (one, many) = match all.clone().count() > 0 && !all.clone().any(Partition::is_mig) {
        true => ("partition", "partitions"),
        false => ("MIG device", "MIG devices"),
    };
    let gpus = count(gpus, "GPU", "GPUs");
    match parts {
        0 => format!("{gpus}, {free} free"),
        parts => format!("{gpus}, {free} free, {} free", count(parts, one, many)),
    }
}

/// Formats how many findings are only possible, and the command that shows them: `2 possible
/// findings: gpuws doctor`.
pub fn possible(number: usize, doctor: &str) -> String {
    format!("{}: {doctor}", count(number, "possible finding", "possible findings"))
}

/// Formats a number with a comma between thousands: `2,120`.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev();
    let groups: Vec<_> = groups.map(String::from_utf8_lossy).collect();
    groups.join(",")
}

/// Formats a process: `100562 t2t-decoder`.
pub fn process(pid: Pid, name: &str) -> String {
    format!("{pid} {name}")
}

/// Quotes a word for a shell if necessary.
pub fn shell_word(word: &str) -> String {
    let harmless = |c: char| c.is_alphanumeric() || "/._:,-".contains(c);
    if !word.is_empty() && word.chars().all(harmless) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Returns a path as a word of a shell command that is not an option: `./-f` for `-f`.
pub fn path_word(path: &Path) -> String {
    let path = path.to_string_lossy();
    let is_option = path.starts_with('-') && path != "-";
    shell_word(&if is_option { format!("./{path}") } else { path.into_owned() })
}

/// Returns the names of devices as a table shows them: `GPU:0` if all belong to one process, or
/// else the full names.
pub fn short_names<'a>(names: impl Iterator<Item = &'a str> + Clone) -> Vec<&'a str> {
    // Version 0 of TensorFlow has `/gpu:0` in place of `/device:GPU:0`.
    let split = |name: &'a str| name.rsplit_once("/device:").or_else(|| name.rsplit_once('/'));
    let parts = names.clone().map(split);
    let mut processes = parts.clone().map(|parts| parts.map(|(process, _)| process));
    let first = processes.next().flatten();
    if first.is_some() && processes.all(|process| process == first) {
        parts.map(|parts| parts.map_or("", |(_, short)| short)).collect()
    } else {
        names.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenths_are_those_of_a_float() {
        let sizes = [0, 1, 1 << 20, 1 << 29, 1 << 30, 80 << 30, u64::MAX >> 20];
        let quarters = (0..200).map(|quarter| quarter << 28);
        for bytes in sizes.into_iter().chain(quarters).map(Bytes) {
            assert_eq!(tenths(bytes).to_string(), format!("{:.1}", bytes.gib()), "{bytes:?}");
        }
    }

    #[test]
    fn age_uses_single_unit() {
        for (seconds, shown) in
            [(0, "0 s"), (59, "59 s"), (61, "1 min"), (7199, "1 h"), (200_000, "2 d")]
        {
            assert_eq!(age(Duration::from_secs(seconds)), shown);
        }
    }

    #[test]
    fn start_is_shown_as_time_today_and_date_otherwise() {
        let now = Timestamp(1_795_223_083_000);
        assert_eq!(started(Timestamp(now.0 - 60_000), now), "01:03 UTC");
        assert_eq!(started(Timestamp(0), now), "1970-01-01");
    }

    #[test]
    fn devices_of_several_processes_keep_their_full_names() {
        let name = |task, device| format!("/job:a/replica:0/task:{task}/device:{device}");
        let shown = |names: &[String]| -> Vec<String> {
            short_names(names.iter().map(String::as_str)).into_iter().map(str::to_owned).collect()
        };
        assert_eq!(shown(&[name(0, "CPU:0"), name(0, "GPU:0")]), ["CPU:0", "GPU:0"]);
        let two = [name(0, "GPU:0"), name(1, "GPU:0")];
        assert_eq!(shown(&two), two);
        assert_eq!(shown(&["odd".to_owned()]), ["odd"]);
        assert_eq!(shown(&[]), [""; 0]);
    }
}
