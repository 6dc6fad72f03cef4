//! What a holder is there for.

use gpu_core::{
    DeviceFileKind, DeviceProcess, DeviceProcessKind, Holder, ProcessInfo, Servant, kernel_name,
};
use serde::Serialize;

/// What a holder is there for, as far as its files and its name tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// It uses device memory: uvm open, or the device mapped.
    MemoryUser,
    /// It has the device open and uses no memory of it.
    Monitor,
    /// A display server or compositor.
    Display,
    /// A daemon of the driver: persistence, MPS, DCGM, fabric manager.
    Daemon,
}

/// The first ordinary user id (`UID_MIN` of login.defs).
const FIRST_USER: u32 = 1000;

impl Role {
    /// Returns what `process` is there for, on the device with this minor number.
    ///
    /// A name alone can be had by anybody. So a display or daemon name counts unless the process
    /// surely belongs to an ordinary user, and is known to hold nothing that only a display needs
    /// (modeset, render nodes, a graphics context): such a process merely calls itself `Xorg`.
    /// When in doubt the answer is the one that is never signalled.
    pub fn of(
        process: Option<&ProcessInfo>,
        holder: Option<&Holder>,
        listed: Option<&DeviceProcess>,
        minor: Option<u32>,
    ) -> Role {
        let claimed = process.and_then(Role::claimed);
        let ordinary = process.is_some_and(|p| p.uid.is_ok_and(|uid| uid >= FIRST_USER));
        let mps = process.is_some_and(|p| kernel_name(&p.name) == "nvidia-cuda-mps");
        if claimed == Some(Role::Daemon) && (!ordinary || mps) {
            return Role::Daemon;
        }
        let draws = holder.is_some_and(|holder| {
            holder.has(DeviceFileKind::Modeset) || holder.has(DeviceFileKind::Render)
        }) || listed.is_some_and(|listed| listed.kind == DeviceProcessKind::Graphics);
        if claimed == Some(Role::Display) && (!ordinary || draws) {
            return Role::Display;
        }
        if listed.is_some()
            || holder.zip(minor).is_some_and(|(holder, minor)| holder.uses_memory_of(minor))
        {
            Role::MemoryUser
        } else {
            Role::Monitor
        }
    }

    /// Returns the role that a process claims by its name alone.
    ///
    /// Without being asked for by its number nothing of such a name is ended, and no group or
    /// container that has it in it.
    pub(crate) fn claimed(process: &ProcessInfo) -> Option<Role> {
        Servant::named(&process.name).map(|servant| match servant {
            Servant::Display => Role::Display,
            Servant::Daemon => Role::Daemon,
        })
    }

    /// Tells whether a process of this role may ever be signalled.
    pub fn may_be_signalled(self) -> bool {
        matches!(self, Role::MemoryUser)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_core::{Access, HeldFile, Pid, ProcessKey};

    fn holder(paths: &[&str]) -> Holder {
        let held = paths.iter().map(|path| HeldFile {
            path: (*path).into(),
            kind: DeviceFileKind::of_path(path),
            access: Access::OPEN_FOR_WRITING,
            descriptors: vec![3],
        });
        let process = ProcessKey { pid: Pid(9), start: None };
        Holder { process, held: held.collect(), through_thread: None }
    }

    fn process(name: &str, uid: u32) -> ProcessInfo {
        ProcessInfo { uid: Ok(uid), ..ProcessInfo::from_name(Pid(9), name) }
    }

    #[test]
    fn a_monitor_opens_the_device_and_nothing_else() {
        let monitor = holder(&["/dev/nvidia0", "/dev/nvidiactl"]);
        assert_eq!(
            Role::of(Some(&process("argusagent", 0)), Some(&monitor), None, Some(0)),
            Role::Monitor
        );
        let user = holder(&["/dev/nvidia0", "/dev/nvidia-uvm"]);
        assert_eq!(
            Role::of(Some(&process("decoder", 1000)), Some(&user), None, Some(0)),
            Role::MemoryUser
        );
    }

    #[test]
    fn names_cut_by_the_kernel_are_known() {
        let held = holder(&["/dev/nvidia0", "/dev/nvidia-uvm"]);
        for name in ["nvidia-persistenced", "nvidia-persiste", "nvidia-cuda-mps-server"] {
            assert_eq!(
                Role::of(Some(&process(name, 0)), Some(&held), None, Some(0)),
                Role::Daemon,
                "{name}"
            );
        }
    }

    #[test]
    fn whoever_merely_calls_itself_xorg_is_no_display() {
        let computing = holder(&["/dev/nvidia0", "/dev/nvidia-uvm"]);
        let disguised = Role::of(Some(&process("Xorg", 1000)), Some(&computing), None, Some(0));
        assert_eq!(disguised, Role::MemoryUser);
        let drawing = holder(&["/dev/nvidia0", "/dev/nvidia-modeset"]);
        assert_eq!(
            Role::of(Some(&process("Xorg", 1000)), Some(&drawing), None, Some(0)),
            Role::Display
        );
        let mut unknown = process("Xorg", 0);
        unknown.uid = Err(gpu_core::Absent::NotPermitted);
        assert_eq!(Role::of(Some(&unknown), Some(&computing), None, Some(0)), Role::Display);
    }
}
