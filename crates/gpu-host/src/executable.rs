//! The executable of a process.

use crate::fault;
use crate::file_index::file_id;
use crate::file_stat::FileStat;
use crate::proc_dir::{ProcDir, identify};
use gpu_core::{Absent, Executable, Reading, SystemService, in_system_dir};
use rustix::fs::CWD;

/// The kernel's suffix to the path of a deleted file.
const DELETED: &str = " (deleted)";

/// Mode bits that let the group or others write.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Reads the executable of a process with the name `name`.
///
/// Whether the caller finds the same file at the same path is checked only if the name is that of a
/// display server or daemon, which needs this evidence, and only below system directories, so that
/// no process can lead the caller to a file server that does not answer.
pub(crate) fn read(dir: &ProcDir, name: &str) -> Reading<Executable> {
    let link = dir.link("exe").map_err(fault::absent)?;
    let link = String::from_utf8_lossy(&link).into_owned();
    let file = dir.identify("exe").map_err(fault::absent)?;
    let deleted = file.links == 0;
    let path = link.strip_suffix(DELETED).filter(|_| deleted).unwrap_or(&link);
    let seen_by_caller = match SystemService::named(name) {
        Some(_) if in_system_dir(path) => {
            Ok(shares(dir, "user") && (shares(dir, "mnt") || (!deleted && is_at(path, &file))))
        }
        Some(_) => Ok(false),
        None => Err(Absent::NotRecorded),
    };
    Ok(Executable {
        path: path.to_owned(),
        file: file_id(&file),
        owner: file.owner,
        writable_by_others: file.mode & WRITABLE_BY_OTHERS != 0,
        seen_by_caller,
    })
}

/// Returns whether a process is in the caller's namespace of this kind. In the same mount
/// namespace, equal paths mean equal files; in the same user namespace, changing the target of
/// `exe` (`PR_SET_MM_MAP`) requires rights here.
fn shares(dir: &ProcDir, kind: &str) -> bool {
    let namespace = |process: &str| dir.identify(format!("{process}/ns/{kind}"));
    let both = namespace(".").and_then(|theirs| Ok((theirs, namespace("../self")?)));
    both.is_ok_and(|(theirs, own)| file_id(&theirs) == file_id(&own))
}

/// Returns whether the caller finds a file at a path.
fn is_at(path: &str, file: &FileStat) -> bool {
    identify(CWD, path).is_ok_and(|found| file_id(&found) == file_id(file))
}
