//! Services that hold devices for all users, recognised by name.

/// The kernel keeps this many bytes of a process's name (`TASK_COMM_LEN` less its end).
const KERNEL_NAME: usize = 15;

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
            | "nvidia-cuda-mps" // nvidia-cuda-mps-control and -server
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

/// Returns whether a name is that of a login service.
pub fn is_login_program(name: &str) -> bool {
    matches!(
        kernel_name(name),
        "sshd" | "sshd-session" | "sshd-auth" | "dropbear" | "login" | "in.telnetd"
            | "gdm-session-wor" // gdm-session-worker
            | "sddm-helper"
    )
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
    fn service_names_match_full_and_truncated() {
        for name in ["nvidia-persistenced", "nvidia-persiste", "nvidia-cuda-mps-server"] {
            assert_eq!(SystemService::named(name), Some(SystemService::Daemon), "{name}");
        }
        assert_eq!(SystemService::named("Xorg"), Some(SystemService::Display));
        assert_eq!(SystemService::named("python"), None);
        assert_eq!(kernel_name("ééééééééé"), "ééééééé");
    }
}
