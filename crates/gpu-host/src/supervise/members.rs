//! Who is of a job.

use super::tree::{Places, listed_below};
use crate::proc_dir::ProcRoot;
use crate::process::{booted_at, read_known};
use crate::users::Users;
use crate::{fault, host};
use gpu_core::{ProcessInfo, ProcessKey, Result};
use rustix::io::Errno;
use std::collections::HashSet;

/// Returns the descendants of this process that live, without those children that are its own.
/// Who is hidden from the caller (`hidepid`, proc(5)) cannot be told.
///
/// # Errors
/// `Io` when the list of processes cannot be read.
pub(crate) fn members(
    root: &ProcRoot,
    users: &Users,
    is_own: impl Fn(&ProcessKey) -> bool,
) -> Result<Vec<ProcessInfo>> {
    let failed = |errno| fault::file("look for what is left of the job", errno);
    let own = std::process::id();
    let places = Places::settled(root, own).map_err(failed)?;
    let text = root.read("stat", host::STAT_LIMIT).map_err(fault::absent);
    let booted_at = text.and_then(|text| booted_at(&text));
    let mut members = Vec::new();
    let mut below: Vec<_> = places.below(own).into_iter().cloned().collect();
    let known: HashSet<_> = below.iter().map(|place| place.key).collect();
    below.extend(listed_below(root, own).into_iter().filter(|place| !known.contains(&place.key)));
    for place in below {
        if place.has_ended || is_own(&place.key) {
            continue;
        }
        let info = root.process(place.key.pid.0).and_then(|dir| read_known(&dir, booted_at, users));
        match info {
            Ok(info) if info.key == place.key => members.push(info),
            Ok(_) | Err(Errno::NOENT | Errno::SRCH) => {}
            Err(errno) => return Err(failed(errno)),
        }
    }
    members.sort_unstable_by_key(|member| member.key.pid);
    Ok(members)
}
