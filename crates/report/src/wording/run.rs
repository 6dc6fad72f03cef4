//! Text of a run, mainly at its end.

use gpu_core::{Bytes, Fault, JobExit, ProcessInfo};
use gpu_reaper::{Action, Outcome, is_stuck};
use gpu_steward::{DeviceUse, RunReport};
use std::time::Duration;

/// Returns a warning that the run has no audit log, with the remedy of an ordinary user: the path
/// of root's log is fixed.
pub fn unlogged(why: &Fault, is_root: bool) -> String {
    let remedy = if is_root { "" } else { "; set XDG_STATE_HOME to a directory that you own" };
    format!("warning: this run has no audit log: failed to {why}{remedy}")
}

/// Returns a message for each device on which the job used more than its share.
pub fn above(report: &RunReport, share: Option<Bytes>) -> Vec<String> {
    let Some(share) = share else { return Vec::new() };
    let above = report.devices.iter().filter_map(|used| {
        let peak = used.peak.ok().filter(|peak| *peak > share)?;
        let index = used.device.index;
        Some(format!(
            "used {:.1} GiB of its {:.1} GiB share of GPU {index}",
            peak.gib(),
            share.gib()
        ))
    });
    above.collect()
}

/// Formats `done in 2 h 11 min · peak 37.4, 36.9 GiB · 4.37 GPU-hours · 2 processes left behind
/// were ended`.
pub fn summary(report: &RunReport, share: Option<Bytes>) -> String {
    let head = match (report.limit_hit, report.ending) {
        (true, _) => "time limit reached after".to_owned(),
        (false, JobExit::Code(0)) => "done in".to_owned(),
        (false, JobExit::Code(code)) => format!("exited with {code} after"),
        (false, JobExit::Signal(signal)) => format!("terminated by signal {signal} after"),
    };
    let mut parts = vec![format!("{head} {}", lasted(report.elapsed))];
    let peak = |used: &DeviceUse| match used.peak {
        Ok(bytes) => format!("{:.1}", bytes.gib()),
        Err(_) => "?".to_owned(),
    };
    // A program that ended before the first sample has no peaks.
    if report.devices.iter().any(|used| used.peak.is_ok()) {
        let peaks: Vec<String> = report.devices.iter().map(peak).collect();
        let share = share.filter(|_| !above(report, share).is_empty());
        let of = share.map_or(String::new(), |share| format!(" of {:.1}", share.gib()));
        parts.push(format!("peak {}{of} GiB", peaks.join(", ")));
    }
    parts.push(device_time(report.device_time()));
    let ended = |action: &&Action| matches!(action.outcome, Outcome::Ended { .. });
    let ended = report.left_behind.iter().filter(ended).count();
    if ended > 0 {
        let left = super::count(ended, "process", "processes");
        let back = match report.memory_back {
            Ok(true) => ", memory freed",
            _ => "",
        };
        let were = if ended == 1 { "was" } else { "were" };
        // A job that was ended as a whole left no process behind.
        let which = if report.limit_hit || report.abandoned { "of it" } else { "left behind" };
        parts.push(format!("{left} {which} {were} ended{back}"));
    }
    parts.join(" · ")
}

/// Formats `4711 python is still running`, with the reason if SIGKILL cannot end it, or with the
/// known facts if its descriptors are unreadable.
pub fn still_there(left: &ProcessInfo, report: &RunReport) -> String {
    let who = super::process(left.key.pid, &left.name);
    let is_unlisted = report.unlisted.iter().any(|unlisted| unlisted.key == left.key);
    match (is_stuck(left), is_unlisted) {
        (true, _) => format!("{who} is still running, frozen or in uninterruptible sleep"),
        (_, true) => format!(
            "{who} is still running; its descriptors are unreadable and the driver lists it on \
                no GPU"
        ),
        _ => format!("{who} is still running"),
    }
}

/// Formats a duration: `42.1 s`, `2 h 11 min`.
fn lasted(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..60 => format!("{:.1} s", time.as_secs_f64()),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}

fn device_time(time: Duration) -> String {
    match time.as_secs() {
        0..3600 => format!("{:.1} GPU-seconds", time.as_secs_f64()),
        _ => format!("{:.2} GPU-hours", time.as_secs_f64() / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_core::{Absent, DeviceId, LeaseId, Pid, ProcessState};

    /// Returns the report of a command that used no device and left no process behind.
    fn report() -> RunReport {
        RunReport {
            lease: LeaseId::parse("1-a").unwrap(),
            ending: JobExit::Code(0),
            limit_hit: false,
            abandoned: false,
            devices: Vec::new(),
            elapsed: Duration::ZERO,
            left_behind: Vec::new(),
            still_there: Vec::new(),
            remaining: Vec::new(),
            unlisted: Vec::new(),
            lease_stays: false,
            memory_back: Ok(true),
            stopped: None,
            unwritten: None,
        }
    }

    #[test]
    fn summary_line_begins_with_the_end_of_the_command() {
        let action = |pid: u32, outcome| Action {
            pid: Pid(pid),
            name: "worker".to_owned(),
            outcome,
            signals: Vec::new(),
        };
        let one = vec![action(1, Outcome::Ended { after_ms: 10 }), action(2, Outcome::AlreadyGone)];
        let unknown = DeviceUse {
            device: DeviceId::from_index(0),
            peak: Err(Absent::NotSupported),
            held_for: Duration::from_secs(3599),
        };
        let known = DeviceUse { peak: Ok(Bytes::from_mib(512)), ..unknown.clone() };
        for (report, text) in [
            (report(), "done in 0.0 s · 0.0 GPU-seconds"),
            (
                RunReport {
                    ending: JobExit::Code(3),
                    elapsed: Duration::from_secs(60),
                    ..report()
                },
                "exited with 3 after 1 min 0 s · 0.0 GPU-seconds",
            ),
            (
                RunReport {
                    ending: JobExit::Signal(9),
                    elapsed: Duration::from_millis(59_940),
                    devices: vec![unknown.clone()],
                    ..report()
                },
                "terminated by signal 9 after 59.9 s · 3599.0 GPU-seconds",
            ),
            (
                RunReport {
                    limit_hit: true,
                    elapsed: Duration::from_secs(3600),
                    devices: vec![known, DeviceUse { held_for: Duration::from_secs(1), ..unknown }],
                    ..report()
                },
                "time limit reached after 1 h 0 min · peak 0.5, ? GiB · 1.00 GPU-hours",
            ),
            (
                RunReport { left_behind: one.clone(), memory_back: Ok(false), ..report() },
                "done in 0.0 s · 0.0 GPU-seconds · 1 process left behind was ended",
            ),
            (
                RunReport { left_behind: one, abandoned: true, ..report() },
                "done in 0.0 s · 0.0 GPU-seconds · 1 process of it was ended, memory freed",
            ),
        ] {
            assert_eq!(summary(&report, None), text);
        }
    }

    #[test]
    fn running_process_is_shown_with_its_obstacle() {
        let process = |pid: u32, state| ProcessInfo {
            state: Ok(state),
            ..ProcessInfo::from_name(Pid(pid), "worker")
        };
        let unlisted = process(3, ProcessState::Sleeping);
        let report = RunReport { unlisted: vec![unlisted.clone()], ..report() };
        for (left, why) in [
            (process(2, ProcessState::Sleeping), ""),
            (process(2, ProcessState::Uninterruptible), ", frozen or in uninterruptible sleep"),
            (unlisted, "; its descriptors are unreadable and the driver lists it on no GPU"),
        ] {
            let pid = left.key.pid;
            let text = format!("{pid} worker is still running{why}");
            assert_eq!(still_there(&left, &report), text);
        }
    }

    #[test]
    fn summary_line_reports_usage_and_cleanup() {
        let used = |index, mib| DeviceUse {
            device: DeviceId::from_index(index),
            peak: Ok(Bytes::from_mib(mib)),
            held_for: Duration::from_secs(7_866),
        };
        let ended = |pid| Action {
            pid: Pid(pid),
            name: "worker".to_owned(),
            outcome: Outcome::Ended { after_ms: 10 },
            signals: Vec::new(),
        };
        let report = RunReport {
            devices: vec![used(4, 38_298), used(5, 37_786)],
            elapsed: Duration::from_secs(7_860),
            left_behind: vec![ended(1), ended(2)],
            ..report()
        };
        assert_eq!(
            summary(&report, None),
            "done in 2 h 11 min · peak 37.4, 36.9 GiB · 4.37 GPU-hours · \
             2 processes left behind were ended, memory freed"
        );
        let share = Some(Bytes::from_mib(37_888));
        assert!(summary(&report, share).contains(" · peak 37.4, 36.9 of 37.0 GiB · "));
        assert_eq!(above(&report, share), ["used 37.4 GiB of its 37.0 GiB share of GPU 4"]);
        assert_eq!(above(&report, Some(Bytes::from_mib(38_298))), [""; 0]);
        let limited = RunReport { limit_hit: true, ending: JobExit::Signal(15), ..report };
        assert!(summary(&limited, None).ends_with("2 processes of it were ended, memory freed"));
    }
}
