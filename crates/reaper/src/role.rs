//! The role of a holder.

use gpu_core::{
    Absent, Bytes, DeviceProcess, DeviceProcessKind, FIRST_USER, FileRole, Holder, MemoryUse,
    ProcessInfo, Reading, SystemService, is_mps_program,
};
use serde::Serialize;

/// Role of a process on a device, from its files, its user and its executable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Uses device memory.
    MemoryUser,
    /// Has the device open and uses none of its memory.
    Monitor,
    /// A display server or compositor.
    Display,
    /// A daemon of the driver: persistence, MPS, DCGM, fabric manager.
    Daemon,
}

/// How much memory of a device all possibly forged display servers and daemons together can use
/// while the device still counts as free: room for some sixty 4K frame buffers, but too little for
/// a job that is worth hiding.
pub(crate) const DAEMON_MEMORY: Bytes = Bytes(2 << 30);

impl Role {
    /// Returns the role of `process` on a device whose memory it uses as `memory` says.
    ///
    /// A process chooses its name, so a name alone gives no protection. The name of a display
    /// server or daemon counts only if the executable matches too. A process of an ordinary user
    /// needs more: only root can have installed that executable, and a display server must hold
    /// what only a display server needs (modeset, render nodes, a graphics context). Among the
    /// daemons, only MPS runs as an ordinary user.
    ///
    /// If the executable is unknown, as on a simulated machine, the owner decides. In doubt, the
    /// result is the role that is never signalled.
    pub fn of(
        process: Option<&ProcessInfo>,
        holder: Option<&Holder>,
        listed: Option<&DeviceProcess>,
        memory: MemoryUse,
    ) -> Role {
        let draws = || {
            holder
                .is_some_and(|holder| holder.has(FileRole::Display) || holder.has(FileRole::Render))
                || listed.is_some_and(|listed| listed.kind == DeviceProcessKind::Graphics)
        };
        match process.and_then(service) {
            Some(SystemService::Daemon) => return Role::Daemon,
            Some(SystemService::Display) if process.is_none_or(|p| !is_ordinary(p)) || draws() => {
                return Role::Display;
            }
            Some(SystemService::Display) | None => {}
        }
        if listed.is_some() || memory != MemoryUse::None { Role::MemoryUser } else { Role::Monitor }
    }

    /// Returns the role that a process claims by its name, unless it belongs to an ordinary user
    /// and runs a program of another name.
    ///
    /// Without a request by PID, no process of such a name is ended, and no group or container that
    /// contains one.
    pub(crate) fn claimed(process: &ProcessInfo) -> Option<Role> {
        Role::claimed_by(process, process.uid)
    }

    /// Returns the same for a process that belongs to this user, whatever its effective user: a
    /// user can start a setuid program under any name.
    pub(crate) fn claimed_by(process: &ProcessInfo, user: Reading<u32>) -> Option<Role> {
        let named = SystemService::named(&process.name)?;
        let is_ordinary = user.is_ok_and(|uid| uid >= FIRST_USER);
        if is_ordinary && runs(process, named) == Some(false) {
            return None;
        }
        Some(match named {
            SystemService::Display => Role::Display,
            SystemService::Daemon => Role::Daemon,
        })
    }

    /// Returns whether a process of this role may be a user's own work: it makes a device busy if
    /// the memory of all such processes exceeds [`DAEMON_MEMORY`].
    ///
    /// Users can load their own code into a display server or MPS server that they run, and the
    /// memory of an MPS server may belong to its clients. Root in a container can give any program
    /// any name.
    pub(crate) fn is_unverified(self, process: Option<&ProcessInfo>) -> bool {
        let believed = || {
            process.is_some_and(|process| {
                let contained = process.workload.is_some()
                    || process.namespace_pids.as_ref().is_ok_and(|pids| pids.len() > 1);
                let hidden = matches!(process.executable, Err(Absent::NotPermitted));
                !is_ordinary(process) && !is_mps_program(&process.name) && !contained && !hidden
            })
        };
        matches!(self, Role::Display | Role::Daemon) && !believed()
    }

    /// Returns whether a process of this role may ever be signalled.
    pub fn may_be_signalled(self) -> bool {
        matches!(self, Role::MemoryUser)
    }
}

/// Returns the service that a process is: its name and its executable must match.
fn service(process: &ProcessInfo) -> Option<SystemService> {
    let named = SystemService::named(&process.name)?;
    let mps = is_mps_program(&process.name);
    let is_it = match (runs(process, named), is_ordinary(process)) {
        (Some(runs), false) => runs,
        (Some(runs), true) => {
            let installed = process.executable.as_ref().is_ok_and(|program| program.is_installed());
            runs && installed && (named == SystemService::Display || mps)
        }
        (None, false) => true,
        (None, true) => named == SystemService::Display || mps,
    };
    is_it.then_some(named)
}

/// Returns whether the executable of a process has the name of such a service; `None` if unknown.
fn runs(process: &ProcessInfo, service: SystemService) -> Option<bool> {
    let program = process.executable.as_ref().ok()?;
    Some(SystemService::named(program.name()) == Some(service))
}

/// Returns whether a process certainly belongs to an ordinary user.
fn is_ordinary(process: &ProcessInfo) -> bool {
    process.uid.is_ok_and(|uid| uid >= FIRST_USER)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_core::{Access, Executable, FileId, Pid, ProcessKey};
    use gpu_nvidia_driver::held_files;

    fn holder(paths: &[&str]) -> Holder {
        let held = held_files(paths.iter().map(|path| (*path, Access::OPEN_FOR_WRITING)));
        Holder { process: ProcessKey { pid: Pid(9), start: None }, held, through_thread: None }
    }

    /// Returns the role of a process on the devices that it has open.
    fn role_of(process: &ProcessInfo, holder: &Holder) -> Role {
        Role::of(Some(process), Some(holder), None, holder.any_memory_use())
    }

    fn process(name: &str, uid: u32) -> ProcessInfo {
        ProcessInfo { uid: Ok(uid), ..ProcessInfo::from_name(Pid(9), name) }
    }

    #[test]
    fn monitor_opens_only_the_device() {
        let monitor = holder(&["/dev/nvidia0", "/dev/nvidiactl"]);
        assert_eq!(role_of(&process("argusagent", 0), &monitor), Role::Monitor);
        let user = holder(&["/dev/nvidia0", "/dev/nvidia-uvm"]);
        assert_eq!(role_of(&process("decoder", 1000), &user), Role::MemoryUser);
    }

    #[test]
    fn truncated_daemon_names_are_recognised() {
        let held = holder(&["/dev/nvidia0", "/dev/nvidia-uvm"]);
        for name in ["nvidia-persistenced", "nvidia-persiste", "nvidia-cuda-mps-server"] {
            assert_eq!(role_of(&process(name, 0), &held), Role::Daemon, "{name}");
        }
    }

    #[test]
    fn process_named_xorg_without_display_files_is_not_a_display() {
        let computing = holder(&["/dev/nvidia0", "/dev/nvidia-uvm"]);
        let disguised = role_of(&process("Xorg", 1000), &computing);
        assert_eq!(disguised, Role::MemoryUser);
        let drawing = holder(&["/dev/nvidia0", "/dev/nvidia-modeset"]);
        assert_eq!(role_of(&process("Xorg", 1000), &drawing), Role::Display);
        let mut unknown = process("Xorg", 0);
        unknown.uid = Err(gpu_core::Absent::NotPermitted);
        assert_eq!(role_of(&unknown, &computing), Role::Display);
    }

    /// Returns a process of `uid` with the name `name` and the executable `path`, installed by
    /// root.
    fn running(name: &str, uid: u32, path: &str) -> ProcessInfo {
        let program = Executable {
            path: path.into(),
            file: FileId::Inode { dev: 1, ino: 2 },
            owner: 0,
            writable_by_others: false,
            seen_by_caller: Ok(true),
        };
        ProcessInfo { executable: Ok(Box::new(program)), ..process(name, uid) }
    }

    fn change(mut process: ProcessInfo, change: impl Fn(&mut Executable)) -> ProcessInfo {
        change(process.executable.as_mut().unwrap());
        process
    }

    #[test]
    fn name_without_matching_executable_gives_no_protection() {
        let drawing = holder(&["/dev/nvidia0", "/dev/nvidia-uvm", "/dev/nvidia-modeset"]);
        let role = |process: &ProcessInfo| role_of(process, &drawing);
        for (name, program) in [
            ("Xorg", "/usr/bin/python3.11"),
            ("nvidia-persiste", "/usr/bin/python3.11"),
            ("nvidia-cuda-mps", "/home/user/train"),
            // One service under the name of another.
            ("nvidia-cuda-mps", "/usr/lib/xorg/Xorg"),
        ] {
            for uid in [0, 120, 1000] {
                assert_eq!(role(&running(name, uid, program)), Role::MemoryUser, "{name} {uid}");
            }
        }
    }

    #[test]
    fn service_of_user_needs_executable_installed_by_root() {
        let drawing = holder(&["/dev/nvidia0", "/dev/nvidia-uvm", "/dev/dri/renderD128"]);
        let computing = holder(&["/dev/nvidia0", "/dev/nvidia-uvm"]);
        let shell = running("gnome-shell", 1000, "/usr/bin/gnome-shell");
        let mps = running("nvidia-cuda-mps", 1000, "/usr/bin/nvidia-cuda-mps-server");
        let role = |process: &ProcessInfo, holder| role_of(process, holder);
        assert_eq!(role(&shell, &drawing), Role::Display);
        assert_eq!(role(&shell, &computing), Role::MemoryUser, "it draws nothing");
        assert_eq!(role(&mps, &computing), Role::Daemon);
        for (process, holder) in [(shell, &drawing), (mps, &computing)] {
            let forged: [fn(&mut Executable); 4] = [
                |program| program.owner = 1000,
                |program| program.writable_by_others = true,
                |program| program.seen_by_caller = Ok(false),
                |program| program.path = program.path.replace("/usr", "/home/user"),
            ];
            for forge in forged {
                let forged = change(process.clone(), forge);
                assert_eq!(role(&forged, holder), Role::MemoryUser, "{forged:?}");
                // Without a request by PID it is still left alone.
                assert!(Role::claimed(&forged).is_some());
            }
        }
        let persistence = running("nvidia-persiste", 1000, "/usr/bin/nvidia-persistenced");
        assert_eq!(role(&persistence, &computing), Role::MemoryUser, "no daemon of a user");
    }

    #[test]
    fn service_of_root_is_recognised_in_container() {
        let held = holder(&["/dev/nvidia0", "/dev/nvidia-uvm"]);
        let server = change(running("nv-hostengine", 0, "/opt/dcgm/nv-hostengine"), |program| {
            program.seen_by_caller = Ok(false);
        });
        assert_eq!(role_of(&server, &held), Role::Daemon);
    }

    #[test]
    fn forgeable_service_is_unverified() {
        let root = running("Xorg", 0, "/usr/lib/xorg/Xorg");
        assert!(!Role::Display.is_unverified(Some(&root)));
        let contained = ProcessInfo { namespace_pids: Ok(vec![Pid(9), Pid(1)]), ..root.clone() };
        let hidden = ProcessInfo { executable: Err(Absent::NotPermitted), ..root.clone() };
        let user = running("Xorg", 1000, "/usr/lib/xorg/Xorg");
        let mps = running("nvidia-cuda-mps", 0, "/usr/bin/nvidia-cuda-mps-server");
        for (role, process) in [
            (Role::Display, Some(&contained)),
            (Role::Display, Some(&hidden)),
            (Role::Display, Some(&user)),
            (Role::Daemon, Some(&mps)),
            (Role::Daemon, None),
        ] {
            assert!(role.is_unverified(process), "{process:?}");
        }
        assert!(!Role::MemoryUser.is_unverified(Some(&user)), "it makes the device busy itself");
        assert!(!Role::Monitor.is_unverified(Some(&user)));
    }

    #[test]
    fn user_process_with_other_executable_claims_no_role() {
        assert_eq!(Role::claimed(&running("Xorg", 1000, "/usr/bin/python3.11")), None);
        assert_eq!(Role::claimed(&process("Xorg", 1000)), Some(Role::Display));
    }
}
