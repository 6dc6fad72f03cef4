//! Looks up programs, and starts them.

use super::program_fault::ProgramFault;
use crate::trusted_file::TrustedFile;
use gpu_core::{Error, ErrorKind, Launch, ProcessFault, Result};
use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

/// The default search path: the value of confstr(3) for `_CS_PATH`.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// The interpreter for a script without one, as in execvp(3).
const SHELL: &str = "/bin/sh";

/// Returns the file of a program as execvp(3) finds it: a name with a slash is a path, any other is
/// searched for in the directories of `path`, the value of `PATH`.
///
/// # Errors
/// `Process(Gone)` when there is none, `Process(NotPermitted)` when there is a file that may not be
/// run, `Io` when a system call failed for another reason; with a [`ProgramFault`].
pub fn find_program(program: &OsStr, path: Option<&OsStr>) -> Result<PathBuf> {
    let fault = match program.as_bytes() {
        b"" => ProgramFault::NotFound(None),
        name if name.contains(&b'/') => match runs(Path::new(program)) {
            Ok(()) => return Ok(PathBuf::from(program)),
            Err(fault) => fault,
        },
        _ => match search(program, path.unwrap_or(OsStr::new(DEFAULT_PATH))) {
            Ok(file) => return Ok(file),
            Err(fault) => fault,
        },
    };
    Err(failed(format!("find program '{}'", program.to_string_lossy()), fault))
}

/// Searches for a program in the directories of `path`. If there are several faults, it returns the
/// fault of a file, which explains most.
fn search(program: &OsStr, path: &OsStr) -> Result<PathBuf, ProgramFault> {
    let (mut of_file, mut of_call, mut of_dir) = (None, None, None);
    // An empty entry is the current directory; joining alone would produce a bare name.
    for dir in path.as_bytes().split(|byte| *byte == b':') {
        let dir = Path::new(OsStr::from_bytes(if dir.is_empty() { b"." } else { dir }));
        let file = dir.join(program);
        match runs(&file) {
            Ok(()) => return Ok(file),
            Err(ProgramFault::NotFound(_)) => {}
            Err(ProgramFault::Unreachable(_)) => of_dir = of_dir.or(Some(dir.to_owned())),
            Err(fault @ ProgramFault::Call(..)) => of_call = of_call.or(Some(fault)),
            Err(fault) => of_file = of_file.or(Some(fault)),
        }
    }
    Err(of_file.or(of_call).unwrap_or(ProgramFault::NotFound(of_dir)))
}

/// Returns an error with the kind that a shell would report: the program does not exist, or it
/// exists and cannot be run.
fn failed(what: String, fault: ProgramFault) -> Error {
    let kind = match fault {
        ProgramFault::NotFound(_) => ProcessFault::Gone.into(),
        ProgramFault::Call(..) => ErrorKind::Io,
        _ => ProcessFault::NotPermitted.into(),
    };
    Error::new(kind, what).with_source(fault)
}

/// Returns what to start for the name of a program: for root, the file that [`find_program`] finds,
/// without links, if no other user can change or exchange it; for others, the name.
///
/// # Errors
/// For root: as [`find_program`], and `Invalid` when another user can change the file or exchange
/// it.
pub fn find_trusted_program(name: &str, path: Option<&OsStr>) -> Result<PathBuf> {
    if !rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from(name));
    }
    let found = find_program(name.as_ref(), path)?;
    let found = std::path::absolute(found).map_err(|error| {
        Error::new(ErrorKind::Io, format!("find program '{name}'")).with_source(error)
    })?;
    TrustedFile::program(&found)
}

/// Returns whether a file may be executed, or why not.
fn runs(file: &Path) -> Result<(), ProgramFault> {
    let found = std::fs::metadata(file).map_err(|error| match errno(&error) {
        Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG => ProgramFault::NotFound(None),
        Errno::ACCESS => ProgramFault::Unreachable(file.to_owned()),
        errno => ProgramFault::Call("statx", errno),
    })?;
    if found.is_dir() {
        return Err(ProgramFault::IsDirectory);
    }
    if !found.is_file() {
        return Err(ProgramFault::NotRegular);
    }
    accessat(CWD, file, Access::EXEC_OK, AtFlags::EACCESS).map_err(|errno| match errno {
        Errno::NOENT => ProgramFault::NotFound(None),
        Errno::ACCESS => ProgramFault::of_file(file, &found),
        errno => ProgramFault::Call("faccessat2", errno),
    })
}

/// Starts a program in its own process group.
///
/// # Errors
/// As [`find_program`]; `Io` for anything else.
pub(crate) fn start(launch: &Launch) -> Result<Child> {
    let own_path = std::env::var_os("PATH");
    let mut path = own_path.filter(|_| !launch.unset.iter().any(|name| name == "PATH"));
    for (_, value) in launch.set.iter().filter(|(name, _)| name == "PATH") {
        path = Some(value.clone());
    }
    let file = find_program(&launch.program, path.as_deref())?;
    let begin = |file: &Path, name: &OsStr, first: Option<&OsString>| {
        let mut command = Command::new(file);
        command.arg0(name).args(first).args(&launch.arguments).process_group(0);
        for name in &launch.unset {
            command.env_remove(name);
        }
        command.envs(launch.set.iter().map(|(name, value)| (name, value))).spawn()
    };
    let child = match begin(&file, &launch.program, None) {
        Err(error) if errno(&error) == Errno::NOEXEC => {
            // A shell would take a name with a leading dash for an option.
            let text = from_here(file.clone());
            begin(Path::new(SHELL), OsStr::new("sh"), Some(&text))
        }
        child => child,
    };
    child.map_err(|error| {
        let what = format!("run '{}'", file.display());
        match errno(&error) {
            // The file exists, so its interpreter does not.
            Errno::NOENT | Errno::NOTDIR => Error::new(ProcessFault::Gone, what).with_source(error),
            Errno::ACCESS | Errno::NOEXEC => failed(what, ProgramFault::Refused),
            // The C library does not say which of the two the kernel refused.
            Errno::PERM => {
                let fault = ProgramFault::Call("clone3 or execve", Errno::PERM);
                Error::new(ProcessFault::NotPermitted, what).with_source(fault)
            }
            _ => Error::new(ErrorKind::Io, what).with_source(error),
        }
    })
}

fn from_here(file: PathBuf) -> OsString {
    let file = file.into_os_string().into_vec();
    if file.starts_with(b"-") {
        OsString::from_vec([&b"./"[..], &file].concat())
    } else {
        OsString::from_vec(file)
    }
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn put(path: &Path, mode: u32) {
        fs::write(path, "echo").unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn kind(result: Result<PathBuf>) -> ErrorKind {
        result.expect_err("there is no such program").kind()
    }

    #[test]
    fn path_lookup_returns_first_executable_or_reports_fault() {
        let made = tempfile::tempdir().unwrap();
        let (one, two) = (made.path().join("one"), made.path().join("two"));
        fs::create_dir_all(one.join("directory")).unwrap();
        fs::create_dir(&two).unwrap();
        put(&one.join("plain"), 0o644);
        put(&one.join("both"), 0o644);
        put(&two.join("both"), 0o755);
        let path = std::env::join_paths([Path::new("/nowhere"), &one, &two]).unwrap();
        let find = |name: &OsStr| find_program(name, Some(&path));
        assert_eq!(find("both".as_ref()).unwrap(), two.join("both"));
        let (gone, refused) = (ProcessFault::Gone.into(), ProcessFault::NotPermitted.into());
        assert_eq!(kind(find("plain".as_ref())), refused);
        assert_eq!(kind(find("directory".as_ref())), refused);
        assert_eq!(kind(find("none".as_ref())), gone);
        assert_eq!(kind(find("".as_ref())), gone);
        assert_eq!(kind(find(one.join("plain").as_ref())), refused);
        assert_eq!(kind(find(one.join("plain/below").as_ref())), gone);
        assert_eq!(find(two.join("both").as_ref()).unwrap(), two.join("both"));
    }

    #[test]
    fn root_starts_no_program_replaceable_by_others() {
        let made = tempfile::tempdir().unwrap();
        let (own, open) = (made.path().join("own"), made.path().join("open"));
        for dir in [&own, &open] {
            fs::create_dir(dir).unwrap();
            put(&dir.join("tool"), 0o755);
        }
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        let find = |dir: &Path| find_trusted_program("tool", Some(dir.as_os_str()));
        if !rustix::process::geteuid().is_root() {
            assert_eq!(find(&open).unwrap(), Path::new("tool"));
            return;
        }
        assert_eq!(find(&own).unwrap().file_name(), Some("tool".as_ref()));
        let refused = find(&open).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid);
        assert!(refused.to_string().contains("open"), "{refused}");
        assert_eq!(kind(find(Path::new("/nowhere"))), ProcessFault::Gone.into());
    }

    #[test]
    fn missing_path_falls_back_to_default() {
        assert!(find_program("sh".as_ref(), None).unwrap().ends_with("bin/sh"));
        assert_eq!(
            kind(find_program("sh".as_ref(), Some("/nowhere".as_ref()))),
            ProcessFault::Gone.into()
        );
    }
}
