//! The ways to remove the blockers of a reset.

use crate::finding::Advice;
use crate::role::Role;
use gpu_core::{Pid, ProcessInfo, ProcessState, is_mps_program, kernel_name};

/// The way to make a process release a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// The driver lists it, but it is not visible: diagnose the device of this index.
    Diagnose(u32),
    /// It is in uninterruptible sleep, which no signal ends: read the kernel log.
    ReadKernelLog,
    /// It uses the memory of the device of this index and does not compute: reap it.
    Reap(u32, Pid),
    /// The same, and it belongs to a service, a job or a container: end that.
    EndWhole(Advice),
    /// It computes on the device of this index, or may do so: its owner decides.
    AskOwner(u32),
    /// It belongs to MPS: send its control daemon the command to quit. The value is the daemon's
    /// user, if not root.
    QuitMps(Option<u32>),
    /// It is a display server: end the graphical session.
    EndGraphicalSession,
    /// It belongs to the service of this name: stop the service.
    StopService(String),
    /// It only monitors the device: end it.
    EndMonitor(Pid),
    /// It is a daemon of an unknown service: find the service.
    FindService(Pid),
}

/// Returns the way to make a process release the devices, by its role. A name alone never leads to
/// stopping a service, because any process can take a name.
pub(super) fn way(
    process: Option<&ProcessInfo>,
    parent: Option<&ProcessInfo>,
    role: Role,
    gpu: u32,
    may_compute: bool,
) -> Way {
    let Some(process) = process else { return Way::Diagnose(gpu) };
    let pid = process.key.pid;
    if process.state == Ok(ProcessState::Uninterruptible) {
        return Way::ReadKernelLog;
    }
    let unit = process.service().filter(|unit| !unit.by_user).map(|unit| unit.name.to_owned());
    let usual = || usual_unit(&process.name).filter(|_| role == Role::Daemon).map(str::to_owned);
    match role {
        Role::MemoryUser if may_compute => Way::AskOwner(gpu),
        Role::MemoryUser => match Advice::to_end_process(process) {
            Advice::ReapProcess(pid) => Way::Reap(gpu, pid),
            whole => Way::EndWhole(whole),
        },
        Role::Daemon if is_mps_program(&process.name) => Way::QuitMps(mps_user(process, parent)),
        Role::Display => Way::EndGraphicalSession,
        _ => match unit.or_else(usual) {
            Some(unit) => Way::StopService(unit),
            None if role == Role::Monitor => Way::EndMonitor(pid),
            None => Way::FindService(pid),
        },
    }
}

/// Returns the UID of the user whose MPS a process belongs to; `None` for root's. Root's daemon
/// runs each server under the UID of its client, so the parent distinguishes such a server from the
/// user's own. Any other process of this name is treated as the user's own, which needs only that
/// user's permissions.
fn mps_user(process: &ProcessInfo, parent: Option<&ProcessInfo>) -> Option<u32> {
    let of_root = |parent: &ProcessInfo| is_mps_program(&parent.name) && parent.uid == Ok(0);
    let uid = process.uid.ok().filter(|uid| *uid != 0)?;
    (!parent.is_some_and(of_root)).then_some(uid)
}

/// Returns the service under which NVIDIA's packages install a daemon.
fn usual_unit(name: &str) -> Option<&'static str> {
    [
        ("nvidia-persistenced", "nvidia-persistenced.service"),
        ("nv-hostengine", "nvidia-dcgm.service"),
        ("nv-fabricmanager", "nvidia-fabricmanager.service"),
        ("nvidia-powerd", "nvidia-powerd.service"),
        ("nvidia-imex", "nvidia-imex.service"),
    ]
    .into_iter()
    .find(|(daemon, _)| kernel_name(daemon) == kernel_name(name))
    .map(|(_, unit)| unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_role_has_way() {
        let mut process = ProcessInfo::from_name(Pid(7), "python");
        let of = |process: &ProcessInfo, role| way(Some(process), None, role, 2, false);
        assert_eq!(of(&process, Role::MemoryUser), Way::Reap(2, Pid(7)));
        assert_eq!(way(Some(&process), None, Role::MemoryUser, 2, true), Way::AskOwner(2));
        assert_eq!(way(Some(&process), None, Role::Monitor, 2, true), Way::EndMonitor(Pid(7)));
        assert_eq!(of(&process, Role::Monitor), Way::EndMonitor(Pid(7)));
        assert_eq!(of(&process, Role::Daemon), Way::FindService(Pid(7)));
        assert_eq!(of(&process, Role::Display), Way::EndGraphicalSession);
        process.name = "nv-hostengine".into();
        let dcgm = Way::StopService("nvidia-dcgm.service".into());
        assert_eq!(of(&process, Role::Daemon), dcgm);
        let mps = ProcessInfo { name: "nvidia-cuda-mps".into(), uid: Ok(0), ..process.clone() };
        assert_eq!(of(&mps, Role::Daemon), Way::QuitMps(None));
        process.cgroup = Ok("/system.slice/my-dcgm.service".into());
        assert_eq!(of(&process, Role::Monitor), Way::StopService("my-dcgm.service".into()));
        process.cgroup = Ok("/user.slice/user-7.slice/user@7.service/a/app.service".into());
        process.user = Ok("eve".into());
        process.name = "nvtop".into();
        let unit = Advice::StopUnit { unit: "app.service".into(), user: Some("eve".into()) };
        assert_eq!(of(&process, Role::MemoryUser), Way::EndWhole(unit));
        process.cgroup = Ok("/system.slice/ssh.service".into());
        assert_eq!(of(&process, Role::Monitor), Way::EndMonitor(Pid(7)), "others log in by it");
        assert_eq!(of(&process, Role::Monitor), Way::EndMonitor(Pid(7)));
        assert_eq!(way(None, None, Role::MemoryUser, 2, false), Way::Diagnose(2));
    }

    #[test]
    fn mps_server_running_as_user_belongs_to_mps() {
        let of =
            |name: &str, uid| ProcessInfo { uid: Ok(uid), ..ProcessInfo::from_name(Pid(8), name) };
        let server = of("nvidia-cuda-mps", 1001);
        assert_eq!(mps_user(&server, Some(&of("nvidia-cuda-mps", 0))), None);
        for parent in [of("nvidia-cuda-mps", 1001), of("systemd", 0)] {
            assert_eq!(mps_user(&server, Some(&parent)), Some(1001), "{parent:?}");
        }
    }

    #[test]
    fn uninterruptible_process_gets_no_kill_advice() {
        let mut process = ProcessInfo::from_name(Pid(7), "python");
        for state in [ProcessState::Uninterruptible, ProcessState::Sleeping] {
            process.state = Ok(state);
            let stuck = state == ProcessState::Uninterruptible;
            for role in [Role::MemoryUser, Role::Monitor, Role::Daemon, Role::Display] {
                let way = way(Some(&process), None, role, 2, false);
                assert_eq!(way == Way::ReadKernelLog, stuck, "{role:?}");
            }
        }
    }
}
