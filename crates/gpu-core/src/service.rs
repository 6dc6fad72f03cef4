//! Services that hold devices for all users, recognised by name.

/// The kernel keeps this many bytes of a process's name (`TASK_COMM_LEN` minus the terminating
/// zero).
const KERNEL_NAME: usize = 15;

/// The name that the kernel keeps of `nvidia-cuda-mps-control` and `nvidia-cuda-mps-server`.
const MPS: &str = "nvidia-cuda-mps";

/// The first ordinary UID (`UID_MIN` of login.defs).
pub const FIRST_USER: u32 = 1000;

/// The kind of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SystemService {
    /// A display server or compositor.
    Display,
    /// A daemon of the driver: persistence, MPS, DCGM, fabric manager.
    Daemon,
}

impl SystemService {
    /// Returns the service that a process's name matches. A name is no evidence: any process can
    /// take it.
    pub fn named(name: &str) -> Option<Self> {
        match kernel_name(name) {
            "nvidia-persiste" // nvidia-persistenced
            | MPS
            | "nv-hostengine" // DCGM
            | "dcgm-exporter"
            | "nv-fabricmanage" // nv-fabricmanager
            | "nvidia-powerd"
            | "nvidia-gridd"
            | "nvidia-vgpu-mgr"
            | "nvidia-imex"
            | "nvidia-device-p" // nvidia-device-plugin of Kubernetes
            => Some(SystemService::Daemon),
            "Xorg" | "X" | "Xwayland" | "gnome-shell" | "mutter" | "kwin_x11" | "kwin_wayland"
            | "plasmashell" | "sway" | "weston" | "Hyprland" | "gdm-x-session" | "sddm-greeter"
            | "lightdm" | "cinnamon" | "compiz" | "xfwm4" | "marco" | "muffin" | "cosmic-comp"
            | "niri" => Some(SystemService::Display),
            _ => None,
        }
    }
}

/// A systemd service that a process belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceUnit<'a> {
    /// Its name, such as `vllm.service`, of the characters that systemd allows.
    pub name: &'a str,
    /// A user's service manager started it, not the system's.
    pub by_user: bool,
}

/// Returns the systemd service to which a cgroup path belongs: the outermost unit, or below the
/// service manager of a user the next one. Above a unit of this machine there are only slices:
/// whatever runs in a unit, a container, a pod or a job may create cgroups of any name below it.
///
/// Returns `None` for a service whose processes users start themselves (a login, a scheduler, a
/// container runtime, a service manager), because stopping it would end the work of others. The
/// processes of a login session are in a scope, so they belong to no service either.
pub fn service_of(cgroup: &str) -> Option<ServiceUnit<'_>> {
    // From within a cgroup namespace, a path outside it begins with '..'.
    let is_slice = |part: &&str| part.is_empty() || *part == ".." || part.ends_with(".slice");
    let is_unit = |part: &&str| part.ends_with(".service") || part.ends_with(".scope");
    let mut parts = cgroup.split('/').skip_while(is_slice);
    let first = parts.next()?;
    let by_user = is_user_manager(first);
    let unit = if by_user { parts.find(is_unit)? } else { first };
    let name = unit.strip_suffix(".service")?;
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || ":_.@-\\".contains(c);
    if !name.chars().all(is_allowed) {
        return None;
    }
    let template = name.split('@').next().unwrap_or(name);
    let is_carrier = template.starts_with("systemd-")
        || matches!(
            template,
            "ssh"
                | "sshd"
                | "dropbear"
                | "getty"
                | "serial-getty"
                | "console-getty"
                | "cron"
                | "crond"
                | "cronie"
                | "atd"
                | "dbus"
                | "dbus-broker"
                | "init"
                | "rc-local"
                | "slurmd"
                | "slurmstepd"
                | "pbs_mom"
                | "pbs"
                | "sge_execd"
                | "condor"
                | "munge"
                | "docker"
                | "containerd"
                | "crio"
                | "podman"
                | "kubelet"
                | "k3s"
                | "k3s-agent"
                | "lxc"
                | "lxcfs"
                | "snapd"
                | "gdm"
                | "gdm3"
                | "sddm"
                | "lightdm"
                | "display-manager"
                | "tmux"
                | "screen"
                | "emacs"
                | "code-server"
                | "jupyterhub"
                | "gnome-terminal-server"
                | "konsole"
        );
    (!template.is_empty() && !is_carrier).then_some(ServiceUnit { name: unit, by_user })
}

/// Returns whether a part of a cgroup path is the service manager of a user.
pub(crate) fn is_user_manager(part: &str) -> bool {
    part.starts_with("user@") && part.ends_with(".service")
}

/// Returns whether a name is that of a login service.
pub fn is_login_program(name: &str) -> bool {
    matches!(
        kernel_name(name),
        "sshd" | "sshd-session" | "sshd-auth" | "dropbear" | "login" | "in.telnetd"
            | "gdm-session-wor" // gdm-session-worker
            | "sddm-helper"
    )
}

/// Returns whether a name is that of MPS's control daemon or server. A name is no evidence.
pub fn is_mps_program(name: &str) -> bool {
    kernel_name(name) == MPS
}

/// Returns the part of a name that the kernel keeps: its first 15 bytes.
pub fn kernel_name(name: &str) -> &str {
    let mut end = name.len().min(KERNEL_NAME);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    &name[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_is_the_outermost_unit() {
        for (path, service) in [
            ("/system.slice/vllm.service", Some("vllm.service")),
            ("/system.slice/system-triton.slice/triton@0.service/worker", Some("triton@0.service")),
            (
                "/user.slice/user-1000.slice/user@1000.service/app.slice/ollama.service",
                Some("ollama.service"),
            ),
            ("/user.slice/user-1000.slice/user@1000.service/app.slice/app.scope", None),
            ("/user.slice/user-1000.slice/user@1000.service", None),
            ("/user.slice/user-1000.slice/session-3.scope", None),
            ("/system.slice/ssh.service", None),
            ("/system.slice/slurmd.service", None),
            ("/system.slice/docker.service", None),
            ("/system.slice/.service", None),
            // A program in a container may create cgroups of any name there.
            ("/system.slice/docker-4c01.scope/nvidia-persistenced.service", None),
            ("/lxc.payload.c1/system.slice/vllm.service", None),
            ("/docker/4c01/system.slice/vllm.service", None),
            ("/kubepods/burstable/pod1/4c01/vllm.service", None),
            ("/slurm/uid_1001/job_7/system.slice/vllm.service", None),
            ("/docker/4c01/user@1.service/app.slice/x.service", None),
            ("/../../system.slice/vllm.service", Some("vllm.service")),
            ("/vllm.service", Some("vllm.service")),
            ("/system.slice/vllm.service/ssh.service", Some("vllm.service")),
            ("/system.slice/vllm.service/user@1.service/x.service", Some("vllm.service")),
            ("/user.slice/user-1.slice/user@1.service/app.slice/*.service", None),
            ("/", None),
        ] {
            assert_eq!(service_of(path).map(|unit| unit.name), service, "{path}");
        }
    }

    #[test]
    fn user_service_is_distinguished_from_system_service() {
        let by_user = |path| service_of(path).unwrap().by_user;
        assert!(by_user("/user.slice/user-1.slice/user@1.service/app.slice/a.service"));
        assert!(!by_user("/system.slice/a.service/user@1.service/b.service"));
    }

    #[test]
    fn service_names_match_full_and_truncated() {
        for name in ["nvidia-persistenced", "nvidia-persiste", "nvidia-cuda-mps-server"] {
            assert_eq!(SystemService::named(name), Some(SystemService::Daemon), "{name}");
        }
        assert_eq!(SystemService::named("Xorg"), Some(SystemService::Display));
        assert_eq!(SystemService::named("python"), None);
        assert_eq!(kernel_name("ééééééééé"), "ééééééé");
    }
}
