//! Login sessions, which every scope excludes.
//!
//! Slurm's `pam_slurm_adopt` puts a login into the cgroup of a job, and a container's own `sshd`
//! puts one into that of the container: an interactive shell is then in that cgroup. The evidence
//! is data from the kernel. The audit session and login ID (`/proc/PID/loginuid`) are no evidence:
//! everything started by a daemon that was restarted from a login shell has them too.

use gpu_core::{Pid, ProcessInfo, is_login_program};

/// Returns whether a process belongs to a login session, from its data and that of its parent.
///
/// It does if its parent is a login service (`sshd`, `login`), if it leads a session with a
/// controlling terminal or as a login shell, or if its cgroup is in a session of systemd within
/// `scope`, the cgroup of a container or job. The leader of a session in a separate PID namespace
/// has the terminal of that container (`docker run -t`), not of a login.
pub(crate) fn is_login(
    process: &ProcessInfo,
    parent: Option<&ProcessInfo>,
    scope: Option<&str>,
) -> bool {
    let leads = process.session == Ok(process.key.pid);
    let contained = process.namespace_pids.as_ref().is_ok_and(|pids| pids.len() > 1);
    let interactive = process.has_terminal == Ok(true) || is_login_shell(process);
    parent.is_some_and(accepts_logins)
        || (leads && interactive && !contained)
        || scope.is_some_and(|scope| is_in_login_scope(process, scope))
}

/// Returns whether an invisible parent is not a login service, by its PID: process 1 adopts
/// orphans, and 0 means that it has no parent in this PID namespace.
pub(crate) fn is_no_login_parent(pid: Pid) -> bool {
    pid.0 <= 1
}

/// Returns whether a process is a login service: by its name, and if known by its executable, which
/// must belong to root.
fn accepts_logins(process: &ProcessInfo) -> bool {
    is_login_program(&process.name)
        && process
            .executable
            .as_ref()
            .map_or(true, |program| program.is_roots() && is_login_program(program.name()))
}

/// Returns whether a process was started as a login shell (`-bash`).
fn is_login_shell(process: &ProcessInfo) -> bool {
    let first = process.command_line.as_ref().ok().and_then(|line| line.first());
    first.is_some_and(|first| first.starts_with('-'))
}

/// Returns whether a process is in a systemd `session-N.scope` below a cgroup.
fn is_in_login_scope(process: &ProcessInfo, scope: &str) -> bool {
    let below = process.cgroup.as_ref().ok().and_then(|path| path.strip_prefix(scope));
    below.is_some_and(|below| {
        below.split('/').any(|part| part.starts_with("session-") && part.ends_with(".scope"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_core::{Executable, FileId};

    fn process(name: &str) -> ProcessInfo {
        ProcessInfo { session: Ok(Pid(1)), ..ProcessInfo::from_name(Pid(9), name) }
    }

    fn running(name: &str, path: &str, owner: u32) -> ProcessInfo {
        let program = Executable {
            path: path.into(),
            file: FileId::Inode { dev: 1, ino: 2 },
            owner,
            writable_by_others: false,
            seen_by_caller: Ok(false),
        };
        ProcessInfo { executable: Ok(Box::new(program)), ..process(name) }
    }

    #[test]
    fn child_of_a_login_program_is_a_login() {
        let child = process("bash");
        assert!(is_login(&child, Some(&process("sshd")), None));
        assert!(is_login(&child, Some(&running("sshd-session", "/usr/lib/sshd-session", 0)), None));
        assert!(!is_login(&child, Some(&process("slurmstepd")), None));
        assert!(!is_login(&child, Some(&running("sshd", "/home/user/sshd", 1000)), None));
        assert!(!is_login(&child, Some(&running("sshd", "/usr/bin/sleep", 0)), None));
        assert!(!is_login(&child, None, None));
    }

    #[test]
    fn session_leader_with_terminal_is_a_login_outside_containers() {
        let leader = ProcessInfo { session: Ok(Pid(9)), ..process("bash") };
        assert!(!is_login(&leader, None, None), "a batch script leads a session");
        let at_terminal = ProcessInfo { has_terminal: Ok(true), ..leader.clone() };
        assert!(is_login(&at_terminal, None, None));
        let line = Ok(["-bash".to_owned()].into());
        assert!(is_login(&ProcessInfo { command_line: line, ..leader }, None, None));
        let own = ProcessInfo { namespace_pids: Ok(vec![Pid(9)]), ..at_terminal.clone() };
        assert!(is_login(&own, None, None), "it is in the caller's namespace");
        let worker = ProcessInfo { session: Ok(Pid(1)), ..at_terminal.clone() };
        assert!(!is_login(&worker, None, None));
        let inside = ProcessInfo { namespace_pids: Ok(vec![Pid(9), Pid(1)]), ..at_terminal };
        assert!(!is_login(&inside, None, None));
    }

    #[test]
    fn session_scope_inside_container_is_a_login() {
        let cgroup = "/lxc.payload.gpu/user.slice/user-0.slice/session-3.scope".to_owned();
        let process = ProcessInfo { cgroup: Ok(cgroup), ..process("python") };
        assert!(is_login(&process, None, Some("/lxc.payload.gpu")));
        assert!(!is_login(&process, None, None), "a process group lies in the user's session");
        for other in ["session-3.service", "run-3.scope"] {
            let cgroup = Ok(format!("/lxc.payload.gpu/user.slice/{other}"));
            let process = ProcessInfo { cgroup, ..process.clone() };
            assert!(!is_login(&process, None, Some("/lxc.payload.gpu")), "{other}");
        }
    }
}
