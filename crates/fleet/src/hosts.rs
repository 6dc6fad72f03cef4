//! The hosts to ask: from a list, a file, or Slurm.

use crate::HostName;
use crate::child::{Ending, Limits, run};
use gpu_core::{Clock, Error, ErrorKind, Result};
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The most hosts of one command.
pub const MOST: usize = 4096;

/// The largest file of hosts, and the longest answer of `sinfo`, in bytes.
const LIST_LIMIT: u64 = 1 << 20;

/// Returns the hosts of some lists and of a source: a file, or Slurm for the name `slurm`, which
/// needs the program `sinfo`. Each host once, in order.
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
        Some(path) => in_file(path)?,
    };
    let mut lists = lists.peekable();
    let first = if lists.peek().is_some() { listed(lists)? } else { Vec::new() };
    Ok(distinct(first.iter().chain(&more).map(HostName::as_str))?)
}

/// Returns the hosts of some lists, which are separated by commas; each host once, in order.
///
/// # Errors
/// `Invalid` for an invalid name, no host, or more than [`MOST`].
pub fn listed<'a>(lists: impl IntoIterator<Item = &'a str>) -> Result<Vec<HostName>> {
    distinct(lists.into_iter().flat_map(|list| list.split(',')).map(str::trim))
}

/// Returns the hosts of a file: names separated by blanks, commas or lines; `#` begins a comment.
///
/// # Errors
/// `Io` when the file cannot be read, `Invalid` as for [`listed`], and for a file of more than
/// 1 MiB or one that is not text.
pub fn in_file(path: &Path) -> Result<Vec<HostName>> {
    let what = || format!("read the hosts in '{}'", path.display());
    let failed = |error: io::Error| {
        let kind = match error.kind() {
            io::ErrorKind::InvalidData => ErrorKind::Invalid,
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
    let mut text = String::new();
    let file = File::open(path).map_err(failed)?;
    file.take(LIST_LIMIT + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > LIST_LIMIT {
        return Err(failed(io::Error::new(io::ErrorKind::InvalidData, "it is larger than 1 MiB")));
    }
    let names = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    let names = names.flat_map(|line| line.split([',', ' ', '\t'])).filter(|name| !name.is_empty());
    distinct(names).map_err(|error| Error::new(ErrorKind::Invalid, what()).with_source(error))
}

/// Returns the nodes of the Slurm cluster: `sinfo -h -N -o %N`, within `deadline`. `sinfo` is the
/// program, by its path or by its name in `PATH`.
///
/// # Errors
/// `Unsupported` when there is no `sinfo`, `TimedOut` when Slurm does not answer in time, `Io`
/// when it fails, `Invalid` as for [`listed`].
pub fn of_slurm(sinfo: &Path, deadline: Duration, clock: &dyn Clock) -> Result<Vec<HostName>> {
    let what = "ask Slurm for its nodes (sinfo -h -N -o %N)";
    let because =
        |kind, why: &str| Err(Error::new(kind, what).with_source(io::Error::other(why.to_owned())));
    let mut command = Command::new(sinfo);
    command.args(["-h", "-N", "-o", "%N"]);
    let limits = Limits { time: deadline, output: LIST_LIMIT, budget: None };
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
            return Err(Error::new(ErrorKind::Invalid, format!("ask more than {MOST} hosts")));
        }
    }
    match hosts.is_empty() {
        true => Err(Error::new(ErrorKind::Invalid, "find the name of a host")),
        false => Ok(hosts),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(hosts: Result<Vec<HostName>>) -> Vec<String> {
        hosts.unwrap().iter().map(ToString::to_string).collect()
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
        assert_eq!(names(in_file(&path)), ["gpu01", "gpu02", "gpu03"]);
        for (text, kind) in [
            ("".to_owned(), ErrorKind::Invalid),
            ("# nothing\n".to_owned(), ErrorKind::Invalid),
            ("gpu01\n-oProxyCommand=x\n".to_owned(), ErrorKind::Invalid),
            ("a\n".repeat(600_000), ErrorKind::Invalid),
        ] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(in_file(&path).unwrap_err().kind(), kind);
        }
        std::fs::write(&path, b"\xff\xfe").unwrap();
        assert_eq!(in_file(&path).unwrap_err().kind(), ErrorKind::Invalid);
        assert_eq!(in_file(&dir.path().join("none")).unwrap_err().kind(), ErrorKind::Io);
    }
}
