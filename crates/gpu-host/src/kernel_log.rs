//! The driver's messages in the kernel log of this boot, from `/dev/kmsg`.
//!
//! Each read returns a record, `priority,sequence,microseconds,flags;text`, with characters other
//! than printable ASCII as `\xNN`; lines that start with a blank are its properties
//! (Documentation/ABI/testing/dev-kmsg of the kernel). The journal, which also has earlier boots,
//! is not read: reading its format requires its own library or program.

use crate::{fault, timer};
use gpu_core::{Absent, DriverMessage, Error, ErrorKind, KernelDriver, Result, Timestamp};
use rustix::fd::OwnedFd;
use rustix::fs::{FileType, Mode, OFlags, fstat, major, minor, open};
use rustix::io::{Errno, read};
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The file below the root of device files.
const NAME: &str = "kmsg";

/// The device number of `/dev/kmsg` (Documentation/admin-guide/devices.txt).
const DEVICE: (u32, u32) = (1, 11);

/// Longer than any record: 8 KiB in all kernels so far.
const RECORD: usize = 16 << 10;

/// The maximum number of records to read: twice those of the largest usual buffer, 16 MiB.
const MAX_RECORDS: usize = 1 << 19;

/// The maximum time for reading: another process may write as fast as this one reads.
const MAX_TIME: Duration = Duration::from_secs(3);

/// The maximum number of messages to keep, the latest ones.
const MAX_MESSAGES: usize = 10_000;

/// The facility of the kernel's own records. A program that writes to the file cannot choose it:
/// `devkmsg_write` replaces it by that of user programs.
const KERNEL: u32 = 0;

/// Returns the messages of these drivers in the log below `dev`; `booted` is the wall clock at boot.
pub(crate) fn driver_messages(
    dev: &Path,
    booted: Timestamp,
    drivers: &[Arc<dyn KernelDriver>],
) -> Result<Vec<DriverMessage>> {
    read_within(MAX_TIME, dev, booted, drivers)
}

fn read_within(
    time: Duration,
    dev: &Path,
    booted: Timestamp,
    drivers: &[Arc<dyn KernelDriver>],
) -> Result<Vec<DriverMessage>> {
    let path = dev.join(NAME);
    let what = || format!("read the kernel log '{}'", path.display());
    let file = log(&path).map_err(|errno| denied(what(), errno))?;
    if !is_log(&file).map_err(|errno| fault::file(what(), errno))? {
        let other = Error::new(Absent::NotFound, what());
        return Err(other.with_source("it is not the kernel's device"));
    }
    let mut messages = VecDeque::new();
    let mut record = vec![0; RECORD];
    let end = timer::now() + time;
    for _ in 0..MAX_RECORDS {
        match read(&file, &mut record) {
            Ok(0) | Err(Errno::AGAIN) => return Ok(messages.into()),
            Ok(length) => {
                for line in record[..length].split(|byte| *byte == b'\n') {
                    messages.extend(message(line, booted, drivers));
                }
            }
            // Records were overwritten before they were read, or one exceeds the buffer; the next
            // read continues after them.
            Err(Errno::PIPE | Errno::INVAL | Errno::INTR) => {}
            Err(errno) => return Err(fault::file(what(), errno)),
        }
        while messages.len() > MAX_MESSAGES {
            messages.pop_front();
        }
        if timer::now() > end {
            break;
        }
    }
    Err(Error::new(ErrorKind::TimedOut, what()).with_source("it grows faster than it is read"))
}

fn log(path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY;
    open(path, flags | OFlags::CLOEXEC, Mode::empty())
}

/// Returns whether a file is the kernel's log, or a file of a machine that a test created. In a
/// container, the path may be another device, such as `/dev/null`.
fn is_log(file: &OwnedFd) -> rustix::io::Result<bool> {
    let stat = fstat(file)?;
    Ok(match FileType::from_raw_mode(stat.st_mode) {
        FileType::CharacterDevice => (major(stat.st_rdev), minor(stat.st_rdev)) == DEVICE,
        kind => matches!(kind, FileType::RegularFile | FileType::Fifo),
    })
}

fn denied(what: String, errno: Errno) -> Error {
    match errno {
        Errno::ACCESS | Errno::PERM => Error::new(Absent::NotPermitted, what).with_source(
            "it requires CAP_SYSLOG where kernel.dmesg_restrict is 1; members of the groups adm \
             and systemd-journal can read the same messages with 'journalctl -k'",
        ),
        Errno::NOENT | Errno::NXIO | Errno::NODEV | Errno::NOTDIR => {
            Error::new(Absent::NotFound, what).with_source(errno)
        }
        // In a container, the path may be a link to its console.
        Errno::LOOP => Error::new(Absent::NotFound, what).with_source("it is a symbolic link"),
        _ => fault::file(what, errno),
    }
}

/// Returns the driver's message in a line of a record, if it is one of the kernel.
fn message(
    line: &[u8],
    booted: Timestamp,
    drivers: &[Arc<dyn KernelDriver>],
) -> Option<DriverMessage> {
    let start = line.iter().position(|byte| *byte == b';')?;
    let header = std::str::from_utf8(&line[..start]).ok()?;
    let text = &line[start + 1..];
    let begins = |prefix: &&str| text.starts_with(prefix.as_bytes());
    let driver = drivers.iter().find(|driver| driver.log_prefixes().iter().any(begins))?;
    let mut fields = header.split(',');
    let priority: u32 = fields.next()?.parse().ok()?;
    let micros: u64 = fields.nth(1)?.parse().ok()?;
    // The lower three bits are the level.
    (priority >> 3 == KERNEL).then_some(())?;
    let at = booted.0.saturating_add(micros / 1000).saturating_add(suspended().as_millis() as u64);
    driver.log_message(&unescaped(text), Timestamp(at))
}

/// Returns how long the machine was suspended since boot, in whole seconds like the time of boot:
/// records do not count that time. A record from before a suspend therefore seems later than it
/// was, as with `dmesg -T`.
fn suspended() -> Duration {
    let asleep = timer::since_boot().saturating_sub(timer::now());
    Duration::from_secs(asleep.as_secs())
}

/// Replaces `\xNN` by that byte.
fn unescaped(text: &[u8]) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        let digits = after.strip_prefix(b"x").and_then(|hex| hex.get(..2)).unwrap_or_default();
        let code = std::str::from_utf8(digits).ok();
        let code = code.filter(|code| code.bytes().all(|byte| byte.is_ascii_hexdigit()));
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(byte) if *first == b'\\' => {
                bytes.push(byte);
                rest = &after[3..];
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_core::Pid;
    use gpu_nvidia_driver::drivers;
    use proptest::prelude::*;
    use rustix::fs::CWD;
    use rustix::fs::{Mode, mkfifoat, symlink};
    use std::fs::File;
    use std::io::Write;

    const BOOTED: Timestamp = Timestamp(1_700_000_000_000);
    const XID: &str =
        "NVRM: Xid (PCI:0000:3b:00): 79, pid=7, name=train, GPU has fallen off the bus.";

    fn of(log: &str) -> Vec<DriverMessage> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(NAME), log).unwrap();
        driver_messages(dir.path(), BOOTED, &drivers()).unwrap()
    }

    fn fault_of(dir: &Path) -> (ErrorKind, String) {
        let fault = driver_messages(dir, BOOTED, &drivers()).unwrap_err().fault();
        (fault.kind, fault.text)
    }

    #[test]
    fn records_of_driver_are_messages_at_their_time() {
        let log = format!(
            "6,1,0,-;Linux version 6.8.0\n\
             4,811,12345678,-,caller=T77;{XID}\n SUBSYSTEM=pci\n DEVICE=+pci:0000:3b:00.0\n\
             3,812,13000000,-;NVRM: The NVIDIA GPU 0000:5e:00.0\\x0aNVRM: (PCI ID: 10de:2330) \
             installed in this system has\\x0aNVRM: fallen off the bus and is not responding to \
             commands.\n\
             3,813,13000001,-;NVRM: Xid (PCI:0000:5e:00): 43, pid=9, name=\\xc3\\xa9\\x1bx\\x5c, Ch 1\n"
        );
        let messages = of(&log);
        let asleep = suspended().as_millis() as u64;
        let at: Vec<u64> = messages.iter().map(|m| m.at.0 - BOOTED.0 - asleep).collect();
        assert_eq!(at, [12_345, 13_000, 13_000]);
        let codes: Vec<_> = messages.iter().map(|message| message.code.to_string()).collect();
        assert_eq!(codes, ["xid-79", "fallen-off-bus", "xid-43"]);
        assert_eq!(messages[0].pid, Some(Pid(7)));
        assert_eq!(messages[2].process.as_deref(), Some("éx\\"));
    }

    #[test]
    fn records_of_programs_are_not_messages() {
        // Facilities 1 (user) to 23 (local7), at the level of an error.
        for facility in 1..24 {
            assert_eq!(of(&format!("{},1,5,-;{XID}\n", facility << 3 | 3)), []);
        }
        for level in 0..8 {
            assert_eq!(of(&format!("{level},1,5,-;{XID}\n")).len(), 1, "{level}");
        }
        for line in [
            format!("4,1,5,-;oom-kill: task_memcg=/user/{XID}"),
            format!(" 4,1,5,-;{XID}"),
            format!("4,1;{XID}"),
            format!("4,1,-,-;{XID}"),
            format!("-4,1,5,-;{XID}"),
            format!(" DEVICE={XID}"),
            XID.to_owned(),
        ] {
            assert_eq!(of(&line), [], "{line}");
        }
    }

    #[test]
    fn open_log_is_read_to_its_end_without_waiting() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(NAME);
        mkfifoat(CWD, &path, Mode::from(0o600)).unwrap();
        assert_eq!(driver_messages(dir.path(), BOOTED, &drivers()).unwrap(), []);
        let mut log = File::options().read(true).write(true).open(&path).unwrap();
        assert_eq!(driver_messages(dir.path(), BOOTED, &drivers()).unwrap(), []);
        log.write_all(format!("4,1,5,-;{XID}\n").as_bytes()).unwrap();
        assert_eq!(driver_messages(dir.path(), BOOTED, &drivers()).unwrap().len(), 1);
    }

    #[test]
    fn log_growing_faster_than_reads_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(NAME), format!("4,1,5,-;{XID}\n")).unwrap();
        let error = read_within(Duration::ZERO, dir.path(), BOOTED, &drivers()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    }

    #[test]
    fn latest_messages_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = String::new();
        for code in 0..MAX_MESSAGES + 5 {
            // No read of a file ends within a line of this length.
            let line = format!("4,1,5,-;NVRM: Xid (PCI:0000:3b:00): {code}, x");
            log += &format!("{line:<511}\n");
        }
        std::fs::write(dir.path().join(NAME), log).unwrap();
        let hour = Duration::from_secs(3600);
        let messages = read_within(hour, dir.path(), BOOTED, &drivers()).unwrap();
        assert_eq!(messages.len(), MAX_MESSAGES);
        let last = &messages.last().unwrap().code;
        assert_eq!(last.number, Some(MAX_MESSAGES as u32 + 4));
    }

    #[test]
    fn missing_log_is_not_found() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(NAME);
        assert_eq!(fault_of(dir.path()).0, Absent::NotFound.into());
        symlink("/dev/null", &path).unwrap();
        let (kind, text) = fault_of(dir.path());
        assert_eq!(kind, Absent::NotFound.into());
        assert!(text.ends_with("it is a symbolic link"), "{text}");
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert_eq!(fault_of(dir.path()).0, Absent::NotFound.into());
    }

    #[test]
    fn other_device_is_not_the_log() {
        let null = open("/dev/null", OFlags::RDONLY, Mode::empty()).unwrap();
        assert!(!is_log(&null).unwrap());
    }

    #[test]
    fn refusal_names_missing_rights() {
        for errno in [Errno::PERM, Errno::ACCESS] {
            let fault = denied("read the kernel log '/dev/kmsg'".to_owned(), errno).fault();
            assert_eq!(fault.kind, Absent::NotPermitted.into());
            for right in ["CAP_SYSLOG", "kernel.dmesg_restrict", "adm", "systemd-journal"] {
                assert!(fault.text.contains(right), "{}", fault.text);
            }
        }
    }

    #[test]
    fn log_of_this_machine_is_read_or_refused() {
        match driver_messages(Path::new("/dev"), BOOTED, &drivers()) {
            Ok(messages) => assert!(messages.len() <= MAX_MESSAGES),
            Err(error) => assert_ne!(error.kind(), ErrorKind::Io, "{}", error.fault()),
        }
    }

    #[test]
    fn only_complete_escapes_are_replaced() {
        for (text, plain) in [
            ("a\\x41\\x0a", "aA\n"),
            ("\\x5cx41", "\\x41"),
            ("\\x4", "\\x4"),
            ("\\x+1", "\\x+1"),
            ("\\y41\\", "\\y41\\"),
            ("x41", "x41"),
            ("\\xff", "\u{fffd}"),
        ] {
            assert_eq!(unescaped(text.as_bytes()), plain);
        }
    }

    proptest! {
        #[test]
        fn arbitrary_record_never_panics(text in prop::collection::vec(any::<u8>(), 0..200)) {
            message(&text, BOOTED, &drivers());
            message(&[b"4,1,5,-;NVRM: ", text.as_slice()].concat(), BOOTED, &drivers());
            message(&[b"4,1,5,-;NVRM: Xid (PCI:0000:3b:00): 1, ", text.as_slice()].concat(), BOOTED, &drivers());
        }
    }
}
