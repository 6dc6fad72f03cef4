//! The hosts to query, from a list, a file or Slurm.

use crate::HostName;
use crate::child::{Ending, Limits, Stream, run, wait};
use gpu_core::{Clock, Error, ErrorKind, Result};
use rustix::fs::{Mode, OFlags};
use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The maximum number of hosts per command.
pub const MOST: usize = 4096;

/// The maximum size of a hosts file, and of the output of `sinfo`, in bytes.
const LIST_LIMIT: u64 = 1 << 20;

/// Returns the hosts from lists and from a source: a file, or Slurm if the name is `slurm`, which
/// requires the program `sinfo`. Duplicates are dropped; the order is kept.
///
/// # Errors
/// As for [`listed`], [`in_file`] and [`of_slurm`], and those of `sinfo`.
pub fn named<'a, E: From<Error>>(
    lists: impl Iterator<Item = &'a str>,
    source: Option<&Path>,
    sinfo: impl FnOnce() -> Result<PathBuf, E>,
    deadline: Duration,
    clock: &dyn Clock,
) -> Result<Vec<HostName>, E> {
    let more = match source {
        None => return Ok(listed(lists)?),
        Some(path) if path == Path::new("slurm") => of_slurm(&sinfo()?, deadline, clock)?,
        Some(path) => in_file(path, deadline, clock)?,
    };
    let mut lists = lists.peekable();
    let first = if lists.peek().is_some() { listed(lists)? } else { Vec::new() };
    Ok(distinct(first.iter().chain(&more).map(HostName::as_str))?)
}

/// Returns the hosts from comma-separated lists. Duplicates are dropped; the order is kept.
///
/// # Errors
/// `Invalid` for an invalid name, no host, or more than [`MOST`].
pub fn listed<'a>(lists: impl IntoIterator<Item = &'a str>) -> Result<Vec<HostName>> {
    distinct(lists.into_iter().flat_map(|list| list.split(',')).map(str::trim))
}

/// Returns the hosts from a file: names separated by spaces, commas or newlines; `#` starts a
/// comment. A pipe, such as `<(…)` of a shell, is read to its end.
///
/// # Errors
/// `Io` when the file cannot be read, `TimedOut` when a pipe does not end within `deadline`,
/// `Invalid` as for [`listed`], and for a file of more than 1 MiB or one that is not text.
pub fn in_file(path: &Path, deadline: Duration, clock: &dyn Clock) -> Result<Vec<HostName>> {
    let what = || format!("read the hosts in '{}'", path.display());
    let failed = |error: io::Error| {
        let kind = match error.kind() {
            io::ErrorKind::InvalidData => ErrorKind::Invalid,
            io::ErrorKind::TimedOut => ErrorKind::TimedOut,
            _ => ErrorKind::Io,
        };
        let failed = Error::new(kind, what());
        match error.kind() {
            io::ErrorKind::NotFound => {
                failed.with_source("no such file; only 'slurm' means the nodes of the cluster")
            }
            _ => failed.with_source(error),
        }
    };
    let text = text_of(path, deadline, clock).map_err(failed)?;
    let names = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    let names = names.flat_map(|line| line.split([',', ' ', '\t'])).filter(|name| !name.is_empty());
    let mut names = names.peekable();
    if names.peek().is_none() {
        return Err(Error::new(ErrorKind::Invalid, what()).with_source("it lists no host"));
    }
    distinct(names).map_err(|error| Error::new(ErrorKind::Invalid, what()).with_source(error))
}

/// Reads a file. If it is a pipe, waits for the writer until the deadline at most.
fn text_of(path: &Path, deadline: Duration, clock: &dyn Clock) -> io::Result<String> {
    let invalid = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let mut stream = Stream::new(rustix::fs::open(path, flags, Mode::empty())?)?;
    let end = clock.monotonic().saturating_add(deadline);
    // Before a pipe has a writer, poll(2) waits for one, but read(2) reports its end.
    while let Some(file) = stream.poll() {
        let left = end.saturating_sub(clock.monotonic());
        if left.is_zero() {
            let why = format!("its writer does not finish within {} s", deadline.as_secs_f64());
            return Err(io::Error::new(io::ErrorKind::TimedOut, why));
        }
        let mut files = [file];
        wait(&mut files, left)?;
        if files[0].revents().is_empty() {
            continue;
        }
        let fits = stream.read(|kept, piece| {
            kept.extend_from_slice(piece);
            kept.len() as u64 <= LIST_LIMIT
        })?;
        if !fits {
            return Err(invalid("it is larger than 1 MiB"));
        }
    }
    String::from_utf8(stream.kept).map_err(|_| invalid("it is not UTF-8"))
}

/// Returns the nodes of the Slurm cluster: `sinfo -h -N -o %N`, within `deadline`. `sinfo` is the
/// program, by its path or by its name in `PATH`.
///
/// # Errors
/// `Unsupported` when there is no `sinfo`, `TimedOut` when Slurm does not answer in time, `Io`
/// when it fails, `Invalid` as for [`listed`].
pub fn of_slurm(sinfo: &Path, deadline: Duration, clock: &dyn Clock) -> Result<Vec<HostName>> {
    let what = "query Slurm for its nodes (sinfo -h -N -o %N)";
    let because =
        |kind, why: &str| Err(Error::new(kind, what).with_source(io::Error::other(why.to_owned())));
    let mut command = Command::new(sinfo);
    command.args(["-h", "-N", "-o", "%N"]);
    let limits = Limits { time: deadline, output: LIST_LIMIT, budget: None, stops: None };
    let ran = run(&mut command, &limits, clock).map_err(|error| {
        let kind = match error.kind() {
            io::ErrorKind::NotFound => ErrorKind::Unsupported,
            _ => ErrorKind::Io,
        };
        Error::new(kind, what).with_source(error)
    })?;
    match ran.ending {
        Ending::Exited(status) if status.success() => {
            let text = String::from_utf8_lossy(&ran.stdout);
            distinct(text.split_whitespace())
                .map_err(|error| Error::new(ErrorKind::Invalid, what).with_source(error))
        }
        Ending::Exited(_) => because(ErrorKind::Io, &ran.last_words()),
        Ending::TimedOut => because(ErrorKind::TimedOut, "the controller does not answer"),
        Ending::TooMuch => because(ErrorKind::Invalid, "its answer is larger than 1 MiB"),
    }
}

fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> Result<Vec<HostName>> {
    let (mut hosts, mut known) = (Vec::new(), HashSet::new());
    for name in names {
        let host: HostName = name.parse()?;
        if known.insert(host.clone()) {
            hosts.push(host);
        }
        if hosts.len() > MOST {
            return Err(Error::new(ErrorKind::Invalid, format!("query more than {MOST} hosts")));
        }
    }
    if hosts.is_empty() {
        Err(Error::new(ErrorKind::Invalid, "find a host name"))
    } else {
        Ok(hosts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsRawFd;

    fn names(hosts: Result<Vec<HostName>>) -> Vec<String> {
        hosts.unwrap().iter().map(ToString::to_string).collect()
    }

    /// A clock that counts from its creation.
    struct RealClock(std::time::Instant);

    impl Clock for RealClock {
        fn wall(&self) -> gpu_core::Timestamp {
            gpu_core::Timestamp(0)
        }

        fn monotonic(&self) -> Duration {
            self.0.elapsed()
        }

        fn sleep(&self, _: Duration) {}
    }

    #[expect(clippy::disallowed_methods, reason = "a pipe has a real deadline")]
    fn read_within(path: &Path, deadline: Duration) -> Result<Vec<HostName>> {
        in_file(path, deadline, &RealClock(std::time::Instant::now()))
    }

    fn read(path: &Path) -> Result<Vec<HostName>> {
        read_within(path, Duration::from_secs(60))
    }

    #[test]
    fn each_host_is_listed_once_and_in_order() {
        assert_eq!(names(listed(["b,a", "b", " c "])), ["b", "a", "c"]);
        assert!(listed(["a,,b"]).is_err());
        assert!(listed(["a", "-v"]).is_err());
        let many: Vec<String> = (0..=MOST).map(|n| format!("n{n}")).collect();
        assert!(listed(many.iter().map(String::as_str)).is_err());
        assert_eq!(listed(many[1..].iter().map(String::as_str)).unwrap().len(), MOST);
    }

    #[test]
    fn file_has_comments_and_a_bound() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hosts");
        std::fs::write(&path, "# lab\ngpu01 gpu02 # two\n\n\tgpu03,gpu01\n").unwrap();
        assert_eq!(names(read(&path)), ["gpu01", "gpu02", "gpu03"]);
        for (text, kind) in [
            ("".to_owned(), ErrorKind::Invalid),
            ("# nothing\n".to_owned(), ErrorKind::Invalid),
            ("gpu01\n-oProxyCommand=x\n".to_owned(), ErrorKind::Invalid),
            ("a\n".repeat(600_000), ErrorKind::Invalid),
        ] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(read(&path).unwrap_err().kind(), kind);
        }
        std::fs::write(&path, b"\xff\xfe").unwrap();
        assert_eq!(read(&path).unwrap_err().kind(), ErrorKind::Invalid);
        let missing = read(&dir.path().join("none")).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::Io);
        assert!(missing.fault().text.contains("only 'slurm' means the nodes"), "{missing}");
    }

    /// Writes a program in place of sinfo.
    fn sinfo(dir: &Path, script: &str) -> PathBuf {
        let path = dir.join("sinfo");
        let options = "[ \"$*\" = '-h -N -o %N' ] || exit 9";
        std::fs::write(&path, format!("#!/bin/sh\n{options}\n{script}\n")).unwrap();
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&path, executable).unwrap();
        // The kernel refuses to run a file that a child of another thread still has open.
        while Command::new(&path).output().is_err() {}
        path
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a program has a real deadline")]
    fn nodes_of_slurm_are_those_that_sinfo_prints() {
        let dir = tempfile::tempdir().unwrap();
        let clock = RealClock(std::time::Instant::now());
        let nodes = |path: &Path| of_slurm(path, Duration::from_secs(60), &clock);
        let two = sinfo(dir.path(), "echo gpu01; echo gpu02; echo gpu01");
        assert_eq!(names(nodes(&two)), ["gpu01", "gpu02"]);
        let slurm = Some(Path::new("slurm"));
        let find = || Ok::<_, Error>(two.clone());
        let minute = Duration::from_secs(60);
        let both = named(["a,gpu02"].into_iter(), slurm, find, minute, &clock);
        assert_eq!(names(both), ["a", "gpu02", "gpu01"], "the list comes first");
        let none = || -> Result<PathBuf> { panic!("a file needs no sinfo") };
        let file = dir.path().join("hosts");
        std::fs::write(&file, "b\n").unwrap();
        let read = named([].into_iter(), Some(&file), none, minute, &clock);
        assert_eq!(names(read), ["b"]);
        for (script, kind, why) in [
            ("echo gpu01; echo 'no controller' >&2; exit 1", ErrorKind::Io, "no controller"),
            ("echo -oProxyCommand=x", ErrorKind::Invalid, "an option"),
            ("exec yes", ErrorKind::Invalid, "larger than 1 MiB"),
        ] {
            let error = nodes(&sinfo(dir.path(), script)).unwrap_err();
            assert_eq!(error.kind(), kind, "{script}");
            assert!(error.fault().text.contains(why), "{}", error.fault().text);
        }
        assert_eq!(nodes(&dir.path().join("none")).unwrap_err().kind(), ErrorKind::Unsupported);
    }

    #[test]
    fn reads_pipe_to_its_end_within_deadline() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        let (kind, mode) = (rustix::fs::FileType::Fifo, Mode::RUSR | Mode::WUSR);
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, kind, mode, 0).unwrap();
        let late = |deadline| read_within(&fifo, deadline).unwrap_err().kind();
        let short = Duration::from_millis(100);
        assert_eq!(late(short), ErrorKind::TimedOut, "nobody writes");
        std::thread::scope(|scope| {
            scope.spawn(|| std::fs::write(&fifo, "gpu01\ngpu02\n").unwrap());
            assert_eq!(names(read(&fifo)), ["gpu01", "gpu02"]);
        });
        // Like a shell's `<(…)`: the writer may exit before the file is opened.
        for (text, expected) in [("gpu01\n", Ok(1)), ("", Err(ErrorKind::Invalid))] {
            let (reader, mut writer) = io::pipe().unwrap();
            writer.write_all(text.as_bytes()).unwrap();
            let path = PathBuf::from(format!("/dev/fd/{}", reader.as_raw_fd()));
            assert_eq!(read_within(&path, short).unwrap_err().kind(), ErrorKind::TimedOut);
            drop(writer);
            let (reader, mut writer) = io::pipe().unwrap();
            writer.write_all(text.as_bytes()).unwrap();
            drop(writer);
            let path = PathBuf::from(format!("/dev/fd/{}", reader.as_raw_fd()));
            let hosts = read(&path).map(|hosts| hosts.len()).map_err(|error| error.kind());
            assert_eq!(hosts, expected);
        }
    }
}
