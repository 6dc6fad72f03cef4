//! Processes whose findings are expected.

use super::is_service;
use gpu_core::{Absent, Executable, FileId, ProcessInfo};
use gpu_reaper::FindingKind;

/// Allows findings about processes that meet all given conditions.
///
/// A process can choose its name and command line, so neither is a condition. It cannot choose its
/// owner, the system service that started it, or a program that only root can install.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allowed {
    /// The UID of its owner.
    pub user: Option<u32>,
    /// The unit of the system's service manager.
    pub service: Option<String>,
    /// The path of its executable, which belongs to root.
    pub program: Option<String>,
    /// The file at that path, found by [`Policy::locate`](crate::Policy::locate). In its own mount
    /// namespace, a process can give its executable any path.
    pub file: Option<FileId>,
    /// Only findings of these kinds; all kinds if empty.
    pub kinds: Vec<FindingKind>,
}

impl Allowed {
    /// Returns whether this allows a finding about a process; `None` if unknown.
    pub fn covers(&self, kind: FindingKind, process: Option<&ProcessInfo>) -> Option<bool> {
        if !self.kinds.is_empty() && !self.kinds.contains(&kind) {
            return Some(false);
        }
        let process = process?;
        let user = self.user.map(|user| process.uid.ok().map(|uid| uid == user));
        let service = self.service.as_ref().map(|name| match &process.cgroup {
            Ok(_) => Some(is_service(process) && process.service().is_some_and(|u| u.name == name)),
            Err(_) => None,
        });
        let program = self.program.as_ref().map(|path| match &process.executable {
            Ok(program) => self.is_file(path, program),
            Err(Absent::NotFound) => Some(false),
            Err(_) => None,
        });
        let given: Vec<Option<bool>> = [user, service, program].into_iter().flatten().collect();
        if given.contains(&Some(false)) {
            Some(false)
        } else {
            given.into_iter().collect::<Option<Vec<bool>>>().map(|_| true)
        }
    }

    /// Returns whether this executable is the program; `None` if it may be a version that has since
    /// been replaced.
    fn is_file(&self, path: &str, program: &Executable) -> Option<bool> {
        if program.is_roots() && self.file == Some(program.file) {
            Some(true)
        } else if program.is_roots() && program.path == path {
            None
        } else {
            Some(false)
        }
    }
}
