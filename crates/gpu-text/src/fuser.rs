//! psmisc's `fuser`: the table of `-v`, and the plain form `/dev/nvidia0:  123m 456`.
//!
//! Column positions are ignored, because pastes shift them: in a row of the table, the PID is
//! before five access letters, the user before the PID, and the command last.

use crate::document::{Document, Holder, Kind};
use crate::failure;
use crate::text::Text;
use gpu_core::Access;

/// The maximum length of a file name.
const MAX_NAME: usize = 512;

/// Parses the output.
pub(crate) fn parse(text: &Text) -> Document {
    let mut document = Document::new(Kind::Fuser);
    let mut file: Option<String> = None;
    for (number, line) in text.lines() {
        let line = line.trim();
        if line.is_empty() || is_header(line) {
            continue;
        }
        let (name, rest) = split_file(line);
        let is_new_file = name.is_some();
        if let Some(name) = name {
            file = Some(name.to_owned());
        }
        let holders = match read_row(rest) {
            Some(holder) => vec![holder],
            None if is_new_file => read_plain(rest),
            None => Vec::new(),
        };
        // A file name alone has its rows below; a file name followed by text that is not a row is
        // something else.
        let read = !holders.is_empty() || (is_new_file && rest.is_empty());
        if document.holders.len() + holders.len() > Document::MAX_ROWS {
            document.note_unread(number, line, "row limit exceeded");
        } else if read {
            let of_file = |holder| Holder { device: file.clone(), ..holder };
            document.holders.extend(holders.into_iter().map(of_file));
        } else if let Some(pid) = unreadable(line) {
            document.unreadable_pids.insert(pid);
        } else if !is_chatter(line) && !failure::note(&mut document, line) {
            document.note_unread(number, line, "not a row of fuser");
        }
    }
    document
}

/// Returns whether a line is the header of `fuser -v`.
pub(crate) fn is_header(line: &str) -> bool {
    let mut words = line.split_whitespace();
    words.next() == Some("USER")
        && words.next() == Some("PID")
        && words.next().is_some_and(|word| "ACCESS".starts_with(word))
}

/// Returns whether a line is a row of `fuser`.
pub(crate) fn is_row(line: &str) -> bool {
    let (name, rest) = split_file(line.trim());
    read_row(rest).is_some() || (name.is_some() && !read_plain(rest).is_empty())
}

/// Splits `/dev/nvidia0:   rest`; later rows of the same file omit it.
fn split_file(line: &str) -> (Option<&str>, &str) {
    let is_name = |name: &str| {
        !name.is_empty()
            && name.len() <= MAX_NAME
            && (name.starts_with(['/', '.'])
                || name.split_once('/').is_some_and(|(port, kind)| {
                    port.bytes().all(|b| b.is_ascii_digit()) && matches!(kind, "tcp" | "udp")
                }))
    };
    // The name itself may contain colons and blanks: it ends at the first colon before a blank.
    let ends = line.match_indices(':').map(|(end, _)| (&line[..end], &line[end + 1..]));
    let mut ends = ends.filter(|(_, rest)| rest.is_empty() || rest.starts_with([' ', '\t']));
    match ends.next() {
        Some((name, rest)) if is_name(name) => (Some(name), rest.trim()),
        _ => (None, line),
    }
}

/// Parses `USER PID ACCESS COMMAND` or `USER kernel mount PATH`; the user may be cut off.
fn read_row(row: &str) -> Option<Holder> {
    let words: Vec<&str> = row.split_whitespace().take(64).collect();
    let at = words.windows(2).position(|pair| {
        is_pid(pair[0]) && is_access(pair[1])
            || pair[0] == "kernel" && matches!(pair[1], "mount" | "swap" | "loop" | "knfsd")
    })?;
    let (user, rest) = words.split_at(at);
    let (pid, access) = (rest.first()?, rest.get(1)?);
    let user = user.join(" ");
    let command = rest.get(2..).unwrap_or_default().join(" ");
    // With `-u`, the row repeats the user before the command.
    let repeated = command.strip_prefix('(').and_then(|rest| rest.strip_prefix(user.as_str()));
    let bare = repeated.and_then(|rest| rest.strip_prefix(')')).filter(|_| !user.is_empty());
    let command = bare.map(str::to_owned).unwrap_or(command);
    Some(Holder {
        user: (!user.is_empty()).then_some(user),
        pid: pid.parse().ok(),
        access: Some((*access).to_owned()),
        command: (!command.is_empty()).then_some(command),
        ..Holder::default()
    })
}

fn is_pid(word: &str) -> bool {
    word.bytes().all(|b| b.is_ascii_digit()) && word.parse::<u32>().is_ok()
}

fn is_access(word: &str) -> bool {
    word.len() == 5 && Access::from_letters(word).is_some()
}

/// Parses the plain form, `123m 456 789ce(user)`: PIDs, each with its access letters (none for a
/// plain open file). Empty if any word has another form.
fn read_plain(rest: &str) -> Vec<Holder> {
    let read = |word: &str| {
        let (word, user) = match word.strip_suffix(')').and_then(|word| word.split_once('(')) {
            Some((word, user)) => (word, Some(user.to_owned())),
            None => (word, None),
        };
        let letters = word.trim_start_matches(|c: char| c.is_ascii_digit());
        let pid = word.strip_suffix(letters)?.parse().ok()?;
        Access::from_letters(letters).filter(|_| !letters.contains('.'))?;
        let access = (!letters.is_empty()).then(|| letters.to_owned());
        Some(Holder { user, pid: Some(pid), access, ..Holder::default() })
    };
    let holders: Option<Vec<Holder>> = rest.split_whitespace().map(read).collect();
    holders.unwrap_or_default()
}

/// Returns the process that fuser reports as unreadable, as in `Cannot stat file /proc/1234/fd/5:
/// Permission denied`.
fn unreadable(line: &str) -> Option<u32> {
    let rest = line.strip_prefix("Cannot ")?.split_once("/proc/")?.1;
    let (pid, rest) = rest.split_once('/')?;
    let pid = pid.parse().ok()?;
    rest.contains("Permission denied").then_some(pid)
}

/// Returns whether a line is a prompt or a result of `fuser -k`.
fn is_chatter(line: &str) -> bool {
    let is = |start: &str| line.strip_prefix(start).is_some_and(|rest| rest.contains("(y/N)"));
    is("Kill process ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::clean;
    use proptest::prelude::*;

    fn of(text: &str) -> Document {
        parse(&clean(text.as_bytes()))
    }

    fn rows(document: &Document) -> Vec<(&str, &str, u32, &str, &str)> {
        let text = |text: &'_ Option<String>| text.clone().unwrap_or_default().leak() as &str;
        let row = |h: &Holder| {
            let pid = h.pid.unwrap_or(0);
            (text(&h.device), text(&h.user), pid, text(&h.access), text(&h.command))
        };
        document.holders.iter().map(row).collect()
    }

    #[test]
    fn verbose_table_with_mounts_is_parsed() {
        let document = of("                     USER        PID ACCESS COMMAND\n\
             /dev/nvidia0:        root     kernel mount /dev/nvidia0\n\
             \x20                    ann         7 F...m (ann)my tool\n\n\
             /dev/nvidia-uvm-tools: bob 12 f.... x\n/dev/nvi");
        assert_eq!(
            rows(&document),
            [
                ("/dev/nvidia0", "root", 0, "mount", "/dev/nvidia0"),
                ("/dev/nvidia0", "ann", 7, "F...m", "my tool"),
                ("/dev/nvidia-uvm-tools", "bob", 12, "f....", "x"),
            ]
        );
        assert_eq!(document.unread.len(), 1);
    }

    #[test]
    fn wrapped_name_and_missing_columns_are_parsed() {
        let document = of("/some/long name: x:\n    7 ....m tool\n    ann 8 .rce.\n");
        assert_eq!(
            rows(&document),
            [
                ("/some/long name", "", 7, "....m", "tool"),
                ("/some/long name", "ann", 8, ".rce.", "")
            ]
        );
    }

    #[test]
    fn plain_form_is_parsed() {
        let document = of("/dev/nvidia0:        51m  52\n22/tcp: 53(root) 54ce(ann)\n");
        assert_eq!(
            rows(&document),
            [
                ("/dev/nvidia0", "", 51, "m", ""),
                ("/dev/nvidia0", "", 52, "", ""),
                ("22/tcp", "root", 53, "", ""),
                ("22/tcp", "ann", 54, "ce", ""),
            ]
        );
        assert_eq!(document.holders[1].access, None);
    }

    #[test]
    fn warnings_are_counted_or_kept() {
        let document = of("Cannot stat file /proc/77/fd/5: Permission denied\n\
             Kill process 77 ? (y/N) n\nSpecified filename /dev/nvidia9 does not exist.\n");
        assert_eq!(Vec::from_iter(document.unreadable_pids), [77]);
        assert_eq!(document.unread.len(), 1);
    }

    #[test]
    fn lines_of_other_tools_are_not_rows() {
        for line in ["0: GPU", "GPU 0: x (UUID: y)", "/usr/bin/x 1 2", "http://x: 1", "7 F...m"] {
            assert_eq!(is_row(line), line == "7 F...m", "{line}");
        }
    }

    #[test]
    fn rows_are_distinguished_from_other_lines() {
        for (line, is) in [
            ("root kernel swap /dev/nvidia0", true),
            ("root kernel loop /x", true),
            ("root kernel knfsd /x", true),
            ("root kernel module /x", false),
            ("ann 4294967295 f.... x", true),
            ("ann 4294967296 f.... x", false),
            ("ann 7 f... x", false),
            ("./model.bin: 7", true),
            ("/dev/nvidia0:\t7m", true),
            ("/dev/nvidia0:7m", false),
            ("8080/udp: 7", true),
            ("8080/sctp: 7", false),
            ("a/tcp: 7", false),
            ("/dev/nvidia0: 7f....", false),
            ("/dev/nvidia0: 7x", false),
            ("/dev/nvidia0:", false),
            (": 7", false),
        ] {
            assert_eq!(is_row(line), is, "{line}");
        }
        let name = |length: usize| format!("/{}: 7", "a".repeat(length - 1));
        assert!(is_row(&name(MAX_NAME)) && !is_row(&name(MAX_NAME + 1)));
        for (line, is) in [
            ("USER PID ACCESS COMMAND", true),
            ("USER PID ACC", true),
            ("USER PID COMMAND", false),
            ("USER NAME ACCESS", false),
            ("PID PID ACCESS", false),
        ] {
            assert_eq!(is_header(line), is, "{line}");
        }
    }

    #[test]
    fn only_own_user_is_removed_from_command() {
        let document =
            of("/dev/nvidia0: ann 7 F...m (bob)tool\n  8 F...m ()tool\n  ann 9 f.... (ann)\n");
        let commands: Vec<_> =
            document.holders.iter().map(|holder| holder.command.as_deref()).collect();
        assert_eq!(commands, [Some("(bob)tool"), Some("()tool"), None]);
    }

    #[test]
    fn only_denied_processes_are_counted_as_unreadable() {
        let document = of("Cannot open /proc/7/fd: Permission denied\n\
             Cannot open /proc/8/fd: No such file\n\
             Cannot stat /home/ann: Permission denied\n\
             Could not kill process 9: Operation not permitted\n\
             Kill process 9 ? (y/N)\nKill process 9 at once\n");
        assert_eq!(Vec::from_iter(document.unreadable_pids), [7]);
        let unread: Vec<_> = document.unread.iter().map(|unread| unread.line).collect();
        assert_eq!(unread, [2, 3, 4, 6]);
    }

    #[test]
    fn processes_past_the_limit_are_unread() {
        let of_count = |count: usize| of(&format!("/dev/nvidia0: {}", "7 ".repeat(count)));
        let most = of_count(Document::MAX_ROWS);
        assert_eq!((most.holders.len(), most.unread.len()), (Document::MAX_ROWS, 0));
        let more = of_count(Document::MAX_ROWS + 1);
        assert_eq!((more.holders.len(), more.unread[0].why), (0, "row limit exceeded"));
    }

    const PIECES: &[&str] =
        &["/dev/nvidia0:", "7", "314", "F...m", "ann", " ", "m", "kernel", "mount", "x", "\n"];

    proptest! {
        #[test]
        fn every_line_is_parsed_or_unread(pieces in prop::collection::vec(prop::sample::select(PIECES), 0..100)) {
            let text = pieces.concat();
            let document = of(&text);
            let filled = text.lines().filter(|line| !line.trim().is_empty()).count();
            let words: usize = text.lines().map(|line| line.split_whitespace().count()).sum();
            prop_assert!(document.unread.len() <= filled);
            prop_assert!(document.holders.len() <= words);
        }

        #[test]
        fn printed_rows_round_trip(
            user in "[a-z]{1,9}", pid in 1u32..4_000_000, command in "[a-z(][a-zA-Z0-9_/.-]{0,14}",
            letters in "[.fF][.r][.c][.e][.m]",
        ) {
            let document = of(&format!("/dev/nvidia0:        {user:<9} {pid:>7} {letters} {command}\n"));
            let want = ("/dev/nvidia0", user.as_str(), pid, letters.as_str(), command.as_str());
            prop_assert_eq!(rows(&document), [want]);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..500)) {
            parse(&clean(&bytes));
        }
    }
}
