//! `lsof` of device files, or of whole processes; from the latter, only GPU device files are kept.
//!
//! Rows are identified by their adjacent FD and TYPE words, which have a small vocabulary, so
//! optional columns (TID, TASKCMD, PPID, PGID) and a missing header do not matter.

use crate::document::{Document, Holder, Kind};
use crate::text::Text;
use gpu_core::{Absent, FileRole};
use gpu_nvidia_driver::device_file;

/// Parses the output.
///
/// A row of a file other than a GPU device is unread. If the text has only such rows, the query was
/// about other files, and all rows are kept.
pub(crate) fn parse(text: &Text) -> Document {
    let narrow = text.lines().filter_map(|(_, line)| read(line)).any(|holder| is_gpu(&holder));
    let mut document = Document::new(Kind::Lsof);
    for (number, line) in text.lines() {
        if line.trim().is_empty() || is_header(line) {
            continue;
        }
        let Some(holder) = read(line) else {
            document.note_unread(number, line, "not a row of lsof");
            continue;
        };
        if let (Some(pid), true) = (holder.pid, is_denied(&holder)) {
            document.unreadable_pids.insert(pid);
        } else if narrow && !is_gpu(&holder) {
            document.note_unread(number, line, "not a GPU device file");
        } else if document.holders.len() >= Document::MAX_ROWS {
            document.note_unread(number, line, "row limit exceeded");
        } else {
            document.holders.push(holder);
        }
    }
    document
}

/// Returns whether a line is the header.
pub(crate) fn is_header(line: &str) -> bool {
    let mut words = line.split_whitespace();
    words.next() == Some("COMMAND") && words.next() == Some("PID") && {
        let rest: Vec<&str> = words.take(8).collect();
        rest.contains(&"FD") && rest.contains(&"TYPE")
    }
}

/// Returns whether a line is a row.
pub(crate) fn is_row(line: &str) -> bool {
    read(line).is_some()
}

fn read(line: &str) -> Option<Holder> {
    let words: Vec<&str> = line.split_whitespace().take(64).collect();
    let fd = (2..words.len())
        .find(|at| is_fd(words[*at]) && words.get(at + 1).is_some_and(|word| is_type(word)))
        .or_else(|| (2..words.len()).find(|at| words[*at] == "NOFD"))?;
    let pid = (1..fd).find(|at| words[*at].bytes().all(|b| b.is_ascii_digit()))?;
    let is_open = words[fd] != "NOFD";
    let mut rest = words.get(fd + 1 + usize::from(is_open)..)?.iter().copied().peekable();
    // DEVICE, SIZE/OFF and NODE are numbers, each of which may be blank; NAME is the rest.
    let device = rest.next_if(|word| is_device(word)).map(str::to_owned);
    for _ in 0..2 {
        rest.next_if(|word| is_number(word));
    }
    let name = rest.collect::<Vec<_>>().join(" ");
    Some(Holder {
        device,
        user: (fd - 1 > pid).then(|| words[fd - 1].to_owned()),
        pid: Some(words[pid].parse().ok()?),
        access: None,
        command: Some(words[..pid].join(" ")),
        fd: Some(words[fd].to_owned()),
        name: (!name.is_empty()).then_some(name),
    })
}

/// Returns whether a word belongs to the FD column: a number with its mode and possibly a lock, or
/// one of lsof's names for other entries.
fn is_fd(word: &str) -> bool {
    const NAMES: [&str; 12] =
        ["cwd", "rtd", "txt", "mem", "mmap", "DEL", "ltx", "pd", "tr", "jld", "err", "NOFD"];
    if NAMES.contains(&word) {
        return true;
    }
    let mode = word.trim_start_matches(|c: char| c.is_ascii_digit());
    let digits = word.len() - mode.len();
    let mut letters = mode.chars();
    let is_mode = letters.next().is_none_or(|c| matches!(c, 'r' | 'w' | 'u' | '-'));
    let is_lock = letters.next().is_none_or(|c| "NrRwWuUxX".contains(c));
    (1..=10).contains(&digits) && is_mode && is_lock && letters.next().is_none()
}

/// Returns whether a word belongs to the TYPE column.
fn is_type(word: &str) -> bool {
    const TYPES: [&str; 30] = [
        "CHR", "BLK", "REG", "DIR", "FIFO", "LINK", "unix", "sock", "IPv4", "IPv6", "inet", "raw",
        "rte", "pack", "netlink", "key", "ax25", "a_inode", "unknown", "unknwn", "VREG", "VCHR",
        "VDIR", "PIPE", "KQUEUE", "systm", "PSXSHM", "PSXSEM", "DEL", "0000",
    ];
    TYPES.contains(&word)
}

/// Returns whether a word belongs to the DEVICE column: `195,255`, `0,12`, `0xffff…`.
fn is_device(word: &str) -> bool {
    device_numbers(word).is_some() || (word.starts_with("0x") && is_number(word))
}

/// Parses the device numbers `195,255`.
pub(crate) fn device_numbers(word: &str) -> Option<(u32, u32)> {
    let (major, minor) = word.split_once(',')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn is_number(word: &str) -> bool {
    let digits = word.strip_prefix("0t").or(word.strip_prefix("0x")).unwrap_or(word);
    !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit())
}

/// Returns whether lsof reports a process as unreadable.
fn is_denied(holder: &Holder) -> bool {
    holder
        .name
        .as_ref()
        .is_some_and(|name| name.starts_with("/proc/") && name.contains("Permission denied"))
}

/// Returns whether a row is about a GPU's device file.
fn is_gpu(holder: &Holder) -> bool {
    // lsof may add a remark to a name, such as `(deleted)`.
    let name = holder.name.as_deref().unwrap_or_default();
    let path = name.split(' ').next().unwrap_or_default();
    // A containerised driver keeps its device nodes in a separate directory.
    path.starts_with('/')
        && path.contains("/dev/")
        && device_file(path, Err(Absent::NotRecorded)).role != FileRole::Other
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::clean;
    use proptest::prelude::*;

    fn of(text: &str) -> Document {
        parse(&clean(text.as_bytes()))
    }

    fn row(holder: &Holder) -> [&str; 5] {
        [&holder.command, &holder.user, &holder.fd, &holder.device, &holder.name]
            .map(|text| text.as_deref().unwrap_or("-"))
    }

    #[test]
    fn rows_with_and_without_size_or_header_are_parsed() {
        let rows = "tool  7 ann  mem    CHR   195,0           506 /dev/nvidia0\n\
                    tool  7 ann   12uW  CHR 195,255      0t0  505 /dev/nvidiactl\n";
        let head = "COMMAND PID USER FD TYPE DEVICE SIZE/OFF NODE NAME\n";
        for text in [rows.to_owned(), format!("{head}{rows}")] {
            let document = of(&text);
            assert_eq!(row(&document.holders[0]), ["tool", "ann", "mem", "195,0", "/dev/nvidia0"]);
            assert_eq!(row(&document.holders[1])[2..], ["12uW", "195,255", "/dev/nvidiactl"]);
            assert_eq!(document.unread, []);
        }
        assert!(is_header(head));
    }

    #[test]
    fn thread_columns_are_parsed() {
        let document = of("COMMAND PID TID TASKCMD USER FD TYPE DEVICE SIZE/OFF NODE NAME\n\
             tool 7        ann 3u CHR 195,0 0t0 5 /dev/nvidia0\n\
             tool 7 8 work ann 3u CHR 195,0 0t0 5 /dev/nvidia0\n");
        assert_eq!(row(&document.holders[0]), row(&document.holders[1]));
        assert_eq!(document.holders[1].pid, Some(7));
    }

    #[test]
    fn full_process_listing_is_reduced_to_device_files() {
        let other = "tool 7 ann 1w REG 8,1 49 93 /var/log/x\n\
                     tool 7 ann 3u unix 0xffff880133d6a100 0t0 56 /tmp/x type=STREAM\n";
        let document = of(&format!("{other}tool 7 ann 4u CHR 195,0 0t0 5 /dev/nvidia0\n"));
        assert_eq!((document.holders.len(), document.unread.len()), (1, 2));
        let document = of(other);
        assert_eq!((document.holders.len(), document.unread.len()), (2, 0));
        assert_eq!(row(&document.holders[1])[3..], ["0xffff880133d6a100", "/tmp/x type=STREAM"]);
    }

    #[test]
    fn warnings_are_kept_and_denials_counted() {
        let document = of("lsof: WARNING: can't stat() fuse.portal file system /run/user/1/doc\n\
             \x20     Output information may be incomplete.\n\
             init  1 root cwd unknown            /proc/1/cwd (readlink: Permission denied)\n\
             init  1 root NOFD                   /proc/1/fd (opendir: Permission denied)\n");
        assert_eq!(Vec::from_iter(document.unreadable_pids), [1]);
        assert_eq!((document.holders.len(), document.unread.len()), (0, 2));
    }

    #[test]
    fn rows_are_recognised_by_descriptor_and_type() {
        for (fd, is) in [
            ("cwd", true),
            ("mmap", true),
            ("0", true),
            ("3r", true),
            ("3w", true),
            ("3-", true),
            ("3uW", true),
            ("1234567890u", true),
            ("12345678901u", false),
            ("3x", false),
            ("3uZ", false),
            ("3uWW", false),
            ("u", false),
            ("FD", false),
        ] {
            assert_eq!(is_row(&format!("x 7 ann {fd} CHR 195,0 0t0 5 /dev/nvidia0")), is, "{fd}");
        }
        for (line, is) in [
            ("x 7 ann 3u REG /x", true),
            ("x 7 ann 3u VCHR 1,2 /x", true),
            ("x 7 ann 3u thing /x", false),
            ("x 7 ann NOFD", true),
            ("x ann 3u CHR /x", false),
            ("7 3u CHR /x", false),
            ("x 7 3u CHR /x", true),
        ] {
            assert_eq!(is_row(line), is, "{line}");
        }
        for (line, is) in [
            ("COMMAND PID USER FD TYPE", true),
            ("COMMAND PID TID TASKCMD USER FD TYPE DEVICE", true),
            ("COMMAND PID USER FD", false),
            ("COMMAND PID USER TYPE", false),
            ("COMMAND USER FD TYPE", false),
            ("NAME PID FD TYPE", false),
        ] {
            assert_eq!(is_header(line), is, "{line}");
        }
    }

    #[test]
    fn optional_columns_may_be_missing() {
        for (line, want) in [
            ("a b 7 3u CHR 195,0 0t0 5 /dev/nvidia0", ["a b", "-", "3u", "195,0", "/dev/nvidia0"]),
            ("x 7 8 t ann 3u CHR 195,0 /dev/nvidia0", ["x", "ann", "3u", "195,0", "/dev/nvidia0"]),
            ("x 7 ann DEL REG 0x3 12 /dev/nvidia0", ["x", "ann", "DEL", "0x3", "/dev/nvidia0"]),
            ("x 7 ann 3u CHR 195,0 0x4 face abc", ["x", "ann", "3u", "195,0", "abc"]),
            ("x 7 ann 3u CHR 0t /x", ["x", "ann", "3u", "-", "0t /x"]),
            ("x 7 ann 3u CHR", ["x", "ann", "3u", "-", "-"]),
        ] {
            assert_eq!(row(&read(line).unwrap()), want, "{line}");
        }
    }

    #[test]
    fn other_files_are_unread_next_to_device_files() {
        let document = of("x 7 ann mem CHR 195,0 5 /dev/nvidia0 (deleted)\n\
             x 7 ann 4u CHR 195,1 5 /run/driver/dev/nvidia1\n\
             x 7 ann 5u CHR 1,3 5 /dev/null\n\
             x 7 ann 6u REG 8,1 5 /home/nvidia0\n\
             x 7 ann 7u CHR 195,2 5 (/dev/nvidia2)\n\
             x 8 ann NOFD /home (opendir: Permission denied)\n\
             x 9 ann NOFD /proc/9/fd (opendir: No such file)\n");
        let kept: Vec<_> = document.holders.iter().map(|holder| holder.fd.as_deref()).collect();
        assert_eq!(kept, [Some("mem"), Some("4u")]);
        assert_eq!((document.unread.len(), document.unreadable_pids.len()), (5, 0));
    }

    const PIECES: &[&str] = &[
        "tool",
        "7",
        "314",
        "ann",
        "mem",
        "3u",
        "CHR",
        "195,0",
        "/dev/nvidia0",
        " ",
        "NOFD",
        "\n",
    ];

    proptest! {
        #[test]
        fn every_line_is_row_or_unread(pieces in prop::collection::vec(prop::sample::select(PIECES), 0..100)) {
            let text = pieces.concat();
            let document = of(&text);
            let filled = text.lines().filter(|line| !line.trim().is_empty()).count();
            prop_assert_eq!(document.holders.len() + document.unread.len(), filled);
        }

        #[test]
        fn printed_rows_round_trip(
            command in "[a-z]{1,9}", pid in 1u32..4_000_000, user in "[a-z]{1,12}", fd in 0u32..4096,
            mode in "[rwu][RWU]?", minor in 0u32..16,
        ) {
            let fd = format!("{fd}{mode}");
            let document = of(&format!(
                "{command:<9} {pid} {user:>8} {fd:>5} CHR 195,{minor} 0t0 32 /dev/nvidia{minor}\n"
            ));
            let (device, name) = (format!("195,{minor}"), format!("/dev/nvidia{minor}"));
            prop_assert_eq!(row(&document.holders[0]), [&command, &user, &fd, &device, &name]);
            prop_assert_eq!(document.holders[0].pid, Some(pid));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..500)) {
            parse(&clean(&bytes));
        }
    }
}
