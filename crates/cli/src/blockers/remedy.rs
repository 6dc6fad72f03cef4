//! How each process is got out of the way.

use crate::args::shell_word;
use gpu_core::{ProcessInfo, ProcessState, kernel_name};
use gpu_reaper::Role;

/// Returns the command that gets a process out of the way, as its role allows: a name alone, which
/// anybody can take, has nobody stop a service.
pub(super) fn way(
    process: Option<&ProcessInfo>,
    parent: Option<&ProcessInfo>,
    role: Role,
    gpu: u32,
    sim: &str,
) -> (String, &'static str) {
    let Some(process) = process else {
        return (
            format!("gpuws {sim}doctor --gpu {gpu}"),
            "NVML lists it but no such process is visible; for details",
        );
    };
    let pid = process.key.pid;
    if process.state == Ok(ProcessState::Uninterruptible) {
        return (
            "sudo dmesg | tail -40".to_owned(),
            "shows what it waits for: state D (uninterruptible sleep); not even SIGKILL ends it \
                before the wait does",
        );
    }
    let unit = process.cgroup.as_deref().ok().and_then(system_unit);
    let usual = || usual_unit(&process.name).filter(|_| role == Role::Daemon).map(str::to_owned);
    match role {
        Role::MemoryUser => (
            format!("gpuws {sim}reap --gpu {gpu} --pid {pid} --yes"),
            "ends it and verifies that its memory was freed",
        ),
        Role::Daemon if is_mps(process) => mps_quit_command(process, parent),
        Role::Display => (
            "sudo systemctl isolate multi-user.target".to_owned(),
            "ends the graphical session; all users should log out first",
        ),
        _ => match unit.or_else(usual) {
            Some(unit) => (
                format!("sudo systemctl stop {}", shell_word(&unit)),
                "stops its service; start it again after the reset",
            ),
            None if role == Role::Monitor => {
                (format!("kill {pid}"), "a monitor; it does not compute, so no work is lost")
            }
            None => (format!("systemctl status {pid}"), "shows its service; stop that"),
        },
    }
}

/// MPS's control daemon or a server of it, by the name.
fn is_mps(process: &ProcessInfo) -> bool {
    kernel_name(&process.name) == kernel_name("nvidia-cuda-mps-server")
}

/// Returns the command that ends MPS. Root's daemon runs a server as the user whom it serves, so that
/// such a server is told from a program of that user's by its parent; whatever else calls itself so
/// is left to what that user may do.
fn mps_quit_command(process: &ProcessInfo, parent: Option<&ProcessInfo>) -> (String, &'static str) {
    let of_root = |parent: &ProcessInfo| is_mps(parent) && parent.uid == Ok(0);
    match process.uid {
        Ok(uid) if uid != 0 && !parent.is_some_and(of_root) => (
            format!("echo quit | sudo -u '#{uid}' nvidia-cuda-mps-control"),
            "stops that user's MPS server, if it is one",
        ),
        _ => ("echo quit | sudo nvidia-cuda-mps-control".to_owned(), "stops the MPS server"),
    }
}

/// Returns the service of the system that a cgroup path belongs to.
fn system_unit(cgroup: &str) -> Option<String> {
    let mut parts = cgroup.trim_start_matches('/').split('/');
    let unit = (parts.next() == Some("system.slice")).then(|| parts.next())??;
    unit.ends_with(".service").then(|| unit.to_owned())
}

/// The services under which NVIDIA's packages install their daemons.
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
    use gpu_core::Pid;

    #[test]
    fn each_role_has_release_command() {
        let mut process = ProcessInfo::from_name(Pid(7), "python");
        let command = |process: &ProcessInfo, role| way(Some(process), None, role, 2, "").0;
        assert_eq!(command(&process, Role::MemoryUser), "gpuws reap --gpu 2 --pid 7 --yes");
        assert_eq!(command(&process, Role::Monitor), "kill 7");
        assert_eq!(command(&process, Role::Daemon), "systemctl status 7");
        assert!(command(&process, Role::Display).contains("multi-user.target"));
        process.name = "nv-hostengine".into();
        assert_eq!(command(&process, Role::Daemon), "sudo systemctl stop nvidia-dcgm.service");
        process.cgroup = Ok("/system.slice/my dcgm.service".into());
        assert_eq!(command(&process, Role::Monitor), "sudo systemctl stop 'my dcgm.service'");
        process.cgroup = Ok("/user.slice/user-1000.slice/app.service".into());
        process.name = "nvtop".into();
        assert_eq!(command(&process, Role::Monitor), "kill 7");
        assert!(way(None, None, Role::MemoryUser, 2, "--sim a ").0.contains("doctor --gpu 2"));
    }

    #[test]
    fn mps_server_running_as_user_belongs_to_mps() {
        let of =
            |name: &str, uid| ProcessInfo { uid: Ok(uid), ..ProcessInfo::from_name(Pid(8), name) };
        let server = of("nvidia-cuda-mps", 1001);
        let quit = |parent: &ProcessInfo| mps_quit_command(&server, Some(parent)).0;
        assert_eq!(quit(&of("nvidia-cuda-mps", 0)), "echo quit | sudo nvidia-cuda-mps-control");
        for parent in [of("nvidia-cuda-mps", 1001), of("systemd", 0)] {
            assert!(quit(&parent).contains("sudo -u '#1001' "), "{parent:?}");
        }
    }

    #[test]
    fn uninterruptible_process_gets_no_kill_advice() {
        let mut process = ProcessInfo::from_name(Pid(7), "python");
        for state in [ProcessState::Uninterruptible, ProcessState::Sleeping] {
            process.state = Ok(state);
            let stuck = state == ProcessState::Uninterruptible;
            for role in [Role::MemoryUser, Role::Monitor, Role::Daemon, Role::Display] {
                let (command, about) = way(Some(&process), None, role, 2, "");
                assert_eq!(command.contains("dmesg"), stuck, "{role:?}");
                assert_eq!(about.contains("not even SIGKILL"), stuck, "{role:?}");
            }
        }
    }
}
