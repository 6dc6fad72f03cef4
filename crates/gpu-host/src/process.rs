//! The data of one process in `/proc/PID`.

use crate::executable;
use crate::fault;
use crate::proc_dir::{ProcDir, number};
use crate::users::Users;
use crate::workload::find_workload;
use gpu_core::{
    Absent, Bytes, Pid, ProcessInfo, ProcessKey, ProcessState, Reading, StartTime, SystemService,
    Timestamp, Uids, Workload,
};
use procfs::process::{Stat, StatFlags};
use procfs::{FromBufRead, FromRead, ProcessCGroups};
use rustix::io::{Errno, Result};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// The maximum number of bytes of a command line to read.
const COMMAND_LINE_LIMIT: usize = 4 << 10;

/// The maximum number of bytes of `cgroup` to read: twelve hierarchies with paths of 4 KiB, and
/// more.
const CGROUP_LIMIT: usize = 64 << 10;

/// Reads one process, including its command line.
///
/// # Errors
/// As [`read_known`].
pub(crate) fn read(
    dir: &ProcDir,
    booted_at: Reading<Timestamp>,
    users: &Users,
) -> Result<ProcessInfo> {
    let info = read_known(dir, booted_at, users)?;
    Ok(ProcessInfo { command_line: command_line(dir), ..info })
}

/// Reads what a list of processes shows: three files less, two with the job.
///
/// # Errors
/// As [`read_known`].
pub(crate) fn read_outline(
    dir: &ProcDir,
    booted_at: Reading<Timestamp>,
    users: &Users,
    with_job: bool,
) -> Result<ProcessInfo> {
    let stat = read_stat(dir)?;
    if SystemService::named(&stat.comm).is_some() {
        return read(dir, booted_at, users);
    }
    if is_later_thread(&stat) {
        return Err(Errno::SRCH);
    }
    let uid = dir.user().map_err(fault::absent);
    let (cgroup, workload) = if with_job { job(dir) } else { (Err(Absent::NotRecorded), None) };
    Ok(ProcessInfo {
        uid,
        user: uid.and_then(|uid| users.name(uid)),
        command_line: command_line(dir),
        cgroup,
        workload,
        ..from_stat(stat, booted_at)?
    })
}

/// Updates a known process from its `stat`. Returns whether it is still the same process and the
/// same program; if not, it stays unchanged.
///
/// # Errors
/// As [`read_known`].
pub(crate) fn read_again(stat: &[u8], known: &mut Arc<ProcessInfo>) -> Result<bool> {
    let stat = parse_stat(stat)?;
    let is_same = known.key.start == Some(since_boot(&stat)) && known.name == stat.comm;
    let now = Changing::of(&stat);
    if is_same && now != Changing::of_known(known) {
        now.add_to(Arc::make_mut(known));
    }
    Ok(is_same)
}

/// Reads only the data that the kernel itself has about one process, not the memory of the process:
/// that contains the command line, and a process can block its reader indefinitely.
///
/// # Errors
/// `ENOENT` or `ESRCH` when it does not exist (any more), `EACCES` or `EPERM` when even `stat` is
/// not readable (`hidepid`), `EINVAL` when that is malformed.
pub(crate) fn read_known(
    dir: &ProcDir,
    booted_at: Reading<Timestamp>,
    users: &Users,
) -> Result<ProcessInfo> {
    let stat = read_stat(dir)?;
    let status = read_status(dir);
    if status.as_ref().is_ok_and(|status| status.process != status.thread) {
        // A thread ID: it has a directory, but is not a process.
        return Err(Errno::SRCH);
    }
    let uid = status.as_ref().map_err(|absent| *absent).and_then(|status| status.uids);
    let uid = uid.map(|uids| uids.effective);
    let (cgroup, workload) = job(dir);
    Ok(ProcessInfo {
        uid,
        user: uid.and_then(|uid| users.name(uid)),
        executable: if is_kernel_thread(&stat) {
            Err(Absent::NotFound)
        } else {
            executable::read(dir, &stat.comm).map(Box::new)
        },
        ignores_hangup: status
            .as_ref()
            .map_err(|absent| *absent)
            .and_then(|status| status.ignores_hangup),
        tracer: status.as_ref().map_err(|absent| *absent).and_then(|status| status.tracer),
        namespace_pids: status.and_then(|status| status.namespace_pids),
        cgroup,
        workload,
        ..from_stat(stat, booted_at)?
    })
}

/// Returns a process with the data of `stat` alone.
fn from_stat(stat: Stat, booted_at: Reading<Timestamp>) -> Result<ProcessInfo> {
    let pid = pid(stat.pid)?;
    let mut info = ProcessInfo {
        key: ProcessKey { pid, start: Some(since_boot(&stat)) },
        started_at: booted_at.map(|boot| started_at(&stat, boot)),
        kernel_thread: is_kernel_thread(&stat),
        ..ProcessInfo::from_name(pid, String::new())
    };
    Changing::of(&stat).add_to(&mut info);
    Ok(ProcessInfo { name: stat.comm, ..info })
}

/// The data that changes while a process runs.
#[derive(PartialEq, Eq)]
struct Changing {
    parent: Reading<Pid>,
    group: Reading<Pid>,
    session: Reading<Pid>,
    has_terminal: Reading<bool>,
    state: Reading<ProcessState>,
    live_threads: Reading<u32>,
    cpu_time: Reading<Duration>,
    resident: Reading<Bytes>,
}

impl Changing {
    fn of(stat: &Stat) -> Self {
        let state = state(stat.state);
        Changing {
            parent: pid(stat.ppid).map_err(fault::absent),
            group: pid(stat.pgrp).map_err(fault::absent),
            session: pid(stat.session).map_err(fault::absent),
            has_terminal: Ok(stat.tty_nr != 0),
            state: Ok(state),
            live_threads: live_threads(stat, state),
            cpu_time: Ok(ticks(stat.utime.saturating_add(stat.stime))),
            resident: Ok(Bytes(stat.rss.saturating_mul(procfs::page_size()))),
        }
    }

    fn of_known(info: &ProcessInfo) -> Self {
        Changing {
            parent: info.parent,
            group: info.group,
            session: info.session,
            has_terminal: info.has_terminal,
            state: info.state,
            live_threads: info.live_threads,
            cpu_time: info.cpu_time,
            resident: info.resident,
        }
    }

    fn add_to(&self, info: &mut ProcessInfo) {
        info.parent = self.parent;
        info.group = self.group;
        info.session = self.session;
        info.has_terminal = self.has_terminal;
        info.state = self.state;
        info.live_threads = self.live_threads;
        info.cpu_time = self.cpu_time;
        info.resident = self.resident;
    }
}

/// Returns whether `stat` is that of a thread other than the first: a thread ID has a directory
/// too. Only the first thread has an exit signal (`thread_group_leader` of the kernel).
fn is_later_thread(stat: &Stat) -> bool {
    stat.exit_signal.is_some_and(|signal| signal < 0)
}

/// Reads the start time of a process, which identifies it permanently together with its PID.
pub(crate) fn read_key(dir: &ProcDir) -> Result<ProcessKey> {
    let stat = read_stat(dir)?;
    Ok(ProcessKey { pid: pid(stat.pid)?, start: Some(since_boot(&stat)) })
}

/// Reads the PID of a process's parent, zero if that is outside the namespace.
pub(crate) fn read_parent(dir: &ProcDir) -> Result<u32> {
    Ok(pid(read_stat(dir)?.ppid)?.0)
}

/// The position of a process in the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TreeEntry {
    pub(crate) key: ProcessKey,
    /// Its parent's PID, zero if that is outside the namespace.
    pub(crate) parent: u32,
    pub(crate) group: u32,
    pub(crate) session: u32,
    /// It has ended, with all its threads, and was not reaped.
    pub(crate) has_ended: bool,
}

impl TreeEntry {
    /// Returns the part that must not change while a tree is read: its identity, its parent, and
    /// whether it could have children.
    pub(crate) fn identity(&self) -> (ProcessKey, u32, bool) {
        (self.key, self.parent, self.has_ended)
    }
}

/// Reads the name and the user of an otherwise unreadable process.
pub(crate) fn read_name(dir: &ProcDir, users: &Users) -> (Reading<String>, Reading<String>) {
    let name = read_stat(dir).map(|stat| stat.comm).map_err(fault::absent);
    let user = read_status(dir).and_then(|status| users.name(status.uids?.effective));
    (name, user)
}

/// Reads the position of a process.
pub(crate) fn read_entry(dir: &ProcDir) -> Result<TreeEntry> {
    let stat = read_stat(dir)?;
    let state = state(stat.state);
    Ok(TreeEntry {
        key: ProcessKey { pid: pid(stat.pid)?, start: Some(since_boot(&stat)) },
        parent: pid(stat.ppid)?.0,
        group: pid(stat.pgrp)?.0,
        session: pid(stat.session)?.0,
        has_ended: state == ProcessState::Zombie && live_threads(&stat, state) == Ok(0),
    })
}

/// Returns whether a process certainly has no file at all: a kernel thread, or a zombie that only
/// waits for its parent.
pub(crate) fn is_bare(dir: &ProcDir) -> bool {
    read_stat(dir).is_ok_and(|stat| {
        is_kernel_thread(&stat) || live_threads(&stat, state(stat.state)) == Ok(0)
    })
}

fn read_stat(dir: &ProcDir) -> Result<Stat> {
    parse_stat(&dir.read_status("stat")?)
}

fn parse_stat(text: &[u8]) -> Result<Stat> {
    // The parser relies on digits and a space before the name in parentheses, and a space and a
    // letter after it; a directory that imitates /proc may lack them.
    let open = text.iter().position(|byte| *byte == b'(');
    let close = text.iter().rposition(|byte| *byte == b')');
    let spaced = open.zip(close).is_some_and(|(open, close)| {
        let before = text[..open].strip_suffix(b" ");
        let after = text[close..].strip_prefix(b") ");
        open < close
            && before.is_some_and(|pid| !pid.is_empty() && pid.iter().all(u8::is_ascii_digit))
            && after.is_some_and(|rest| rest.first().is_some_and(u8::is_ascii_alphabetic))
    });
    if text.is_empty() {
        return Err(Errno::SRCH);
    }
    if !spaced {
        return Err(Errno::INVAL);
    }
    Stat::from_read(text).map_err(|_| Errno::INVAL)
}

/// The lines of `status` that are used here (proc_pid_status(5)). They are parsed by hand: a table
/// of all sixty lines, as procfs makes it, takes a third of the time to read a process.
struct Status {
    /// `Tgid` and `Pid`: two numbers for a thread other than the first.
    process: u32,
    thread: u32,
    /// From `Uid`.
    uids: Reading<Uids>,
    /// From `TracerPid`; `NotFound` if no process traces it.
    tracer: Reading<Pid>,
    /// `NSpid`; `NotSupported` before Linux 4.1.
    namespace_pids: Reading<Vec<Pid>>,
    /// Whether bit 0 of `SigIgn`, that of SIGHUP, is set.
    ignores_hangup: Reading<bool>,
}

impl Status {
    fn parse(text: &[u8]) -> Option<Self> {
        let (mut process, mut thread) = (None, None);
        let mut status = Status {
            process: 0,
            thread: 0,
            uids: Err(Absent::NotFound),
            tracer: Err(Absent::NotFound),
            namespace_pids: Err(Absent::NotSupported),
            ignores_hangup: Err(Absent::NotFound),
        };
        for line in text.split(|byte| *byte == b'\n') {
            let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
            let (key, value) = (&line[..colon], &line[colon + 1..]);
            let mut numbers =
                value.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).map(number);
            match key {
                b"Tgid" => process = numbers.next()?,
                b"Pid" => thread = numbers.next()?,
                b"TracerPid" => match numbers.next()?? {
                    0 => {}
                    pid => status.tracer = Ok(Pid(pid)),
                },
                b"Uid" => {
                    let [real, effective, saved] =
                        [numbers.next()?, numbers.next()?, numbers.next()?];
                    let uids = real.zip(effective).zip(saved);
                    let uids =
                        uids.map(|((real, effective), saved)| Uids { real, effective, saved });
                    status.uids = uids.ok_or(Absent::Failed);
                }
                b"NSpid" => {
                    let pids = numbers.map(|number| number.map(Pid));
                    status.namespace_pids = pids.collect::<Option<_>>().ok_or(Absent::Failed);
                }
                b"SigIgn" => {
                    let mask = std::str::from_utf8(value.trim_ascii()).ok()?;
                    let mask = u64::from_str_radix(mask, 16).map_err(|_| Absent::Failed);
                    status.ignores_hangup = mask.map(|mask| mask & 1 == 1);
                }
                _ => {}
            }
        }
        (status.process, status.thread) = (process?, thread?);
        Some(status)
    }
}

fn read_status(dir: &ProcDir) -> Reading<Status> {
    let text = dir.read_status("status").map_err(fault::absent)?;
    Status::parse(&text).ok_or(Absent::Failed)
}

/// Reads the UIDs of a process.
pub(crate) fn uids(dir: &ProcDir) -> Reading<Uids> {
    read_status(dir)?.uids
}

/// Reads the cgroup of a process, and its workload.
fn job(dir: &ProcDir) -> (Reading<String>, Option<Box<Workload>>) {
    let read = || {
        let text = dir.read_record("cgroup", CGROUP_LIMIT).map_err(fault::absent)?;
        let text = String::from_utf8_lossy(&text);
        ProcessCGroups::from_buf_read(text.as_bytes()).map_err(|_| Absent::Failed)
    };
    match read() {
        Ok(groups) => {
            let (cgroup, workload) = find_workload(&groups.0);
            (cgroup, workload.map(Box::new))
        }
        Err(absent) => (Err(absent), None),
    }
}

/// Reads the arguments; a kernel thread and a zombie have none.
fn command_line(dir: &ProcDir) -> Reading<Arc<[String]>> {
    let text = dir.read_record("cmdline", COMMAND_LINE_LIMIT).map_err(fault::absent)?;
    let Some(text) = text.strip_suffix(b"\0").or(Some(&text[..])).filter(|text| !text.is_empty())
    else {
        return Err(Absent::NotFound);
    };
    let arguments = text.split(|byte| *byte == 0);
    Ok(arguments.map(|argument| String::from_utf8_lossy(argument).into_owned()).collect())
}

fn state(letter: char) -> ProcessState {
    match letter {
        'R' => ProcessState::Running,
        'S' | 'I' => ProcessState::Sleeping,
        'D' => ProcessState::Uninterruptible,
        'T' | 't' => ProcessState::Stopped,
        'Z' => ProcessState::Zombie,
        _ => ProcessState::Other,
    }
}

/// The kernel still counts a zombie first thread until its last companion ends.
fn live_threads(stat: &Stat, state: ProcessState) -> Reading<u32> {
    let threads = u32::try_from(stat.num_threads).map_err(|_| Absent::Implausible)?;
    Ok(threads.saturating_sub(u32::from(state == ProcessState::Zombie)))
}

fn is_kernel_thread(stat: &Stat) -> bool {
    StatFlags::from_bits_truncate(stat.flags).contains(StatFlags::PF_KTHREAD)
}

/// Returns the start time of a process, counted from the boot of the machine whatever the caller's
/// time namespace. The kernel adds that namespace's offset to the value it shows
/// (time_namespaces(7)), so without correction, callers in two time namespaces would see two
/// different processes.
fn since_boot(stat: &Stat) -> StartTime {
    static OFFSET: LazyLock<i64> = LazyLock::new(|| {
        let text = std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
        offset(&text, procfs::ticks_per_second())
    });
    StartTime(stat.starttime.saturating_add_signed(OFFSET.saturating_neg()))
}

/// Reads from `/proc/self/timens_offsets` by how many ticks the time since boot is ahead of that of
/// the machine; zero on a kernel without time namespaces.
fn offset(text: &str, per_second: u64) -> i64 {
    let boot = text.lines().find_map(|line| line.strip_prefix("boottime"));
    let mut numbers = boot.unwrap_or_default().split_ascii_whitespace();
    let mut number = || numbers.next().and_then(|word| word.parse::<i128>().ok()).unwrap_or(0);
    let nanos = number() * 1_000_000_000 + number();
    let ticks = (nanos * i128::from(per_second)).div_euclid(1_000_000_000);
    i64::try_from(ticks).unwrap_or(0)
}

fn started_at(stat: &Stat, boot: Timestamp) -> Timestamp {
    let millis = u64::try_from(ticks(stat.starttime).as_millis()).unwrap_or(u64::MAX);
    Timestamp(boot.0.saturating_add(millis))
}

/// Converts the clock ticks of `/proc`.
fn ticks(count: u64) -> Duration {
    let per_second = procfs::ticks_per_second().max(1);
    let part = count % per_second * 1000 / per_second;
    Duration::from_secs(count / per_second).saturating_add(Duration::from_millis(part))
}

fn pid(number: i32) -> Result<Pid> {
    u32::try_from(number).map(Pid).map_err(|_| Errno::INVAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Name:\tpython\\n: Uid:\t7\nUmask:\t0022\nState:\tS (sleeping)\nTgid:\t42\n\
        Ngid:\t0\nPid:\t42\nPPid:\t1\nTracerPid:\t0\nUid:\t1000\t1001\t1002\t1003\nGid:\t1\t1\t1\t1\n\
        FDSize:\t256\nGroups:\t4 24\nNStgid:\t42\t7\nNSpid:\t42\t7\nVmPeak:\t   14064 kB\n\
        SigIgn:\t0000000000001001\nSigCgt:\t0000000000000002\n";

    #[test]
    fn status_lines_are_parsed() {
        let status = Status::parse(STATUS.as_bytes()).unwrap();
        assert_eq!((status.process, status.thread), (42, 42));
        assert_eq!(status.uids, Ok(Uids { real: 1000, effective: 1001, saved: 1002 }));
        assert_eq!(status.tracer, Err(Absent::NotFound));
        assert_eq!(status.namespace_pids, Ok(vec![Pid(42), Pid(7)]));
        assert_eq!(status.ignores_hangup, Ok(true));
        let changed = |from: &str, to: &str| {
            assert!(STATUS.contains(from), "{from}");
            Status::parse(STATUS.replacen(from, to, 1).as_bytes())
        };
        assert_eq!(changed("TracerPid:\t0", "TracerPid:\t9").unwrap().tracer, Ok(Pid(9)));
        assert_eq!(changed("1001\nSigC", "1000\nSigC").unwrap().ignores_hangup, Ok(false));
        let old = changed("NSpid:\t42\t7\n", "").unwrap();
        assert_eq!(old.namespace_pids, Err(Absent::NotSupported));
        for (from, to) in [
            ("Tgid:\t42\n", ""),
            ("\nPid:\t42", ""),
            ("\nPid:\t42", "\nPid:\tx"),
            ("TracerPid:\t0", "TracerPid:"),
            ("Uid:\t1000\t1001\t1002\t1003", "Uid:\t1000\t1001"),
        ] {
            assert!(changed(from, to).is_none(), "{from:?} -> {to:?}");
        }
        let strange = changed("1000\t1001", "1000\t-1").unwrap();
        assert_eq!(strange.uids, Err(Absent::Failed));
    }

    #[test]
    fn time_namespace_offset_is_parsed_in_ticks() {
        for (text, ticks) in [
            ("monotonic           0         0\nboottime            0         0\n", 0),
            ("monotonic 7 0\nboottime 1000 0\n", 100_000),
            ("boottime -3 500000000\n", -250),
            ("", 0),
            ("boottime what is this\n", 0),
        ] {
            assert_eq!(offset(text, 100), ticks, "{text}");
        }
    }
}
