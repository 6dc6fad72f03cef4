//! The checks before each signal.

use crate::guard::Guard;
use crate::login::{is_login, is_no_login_parent};
use crate::plan::{Membership, Target};
use crate::ports::Ports;
use crate::report::Outcome;
use crate::role::Role;
use crate::tree::descends;
use gpu_core::{
    Absent, DeviceFile, DeviceInfo, DeviceKey, Error, FileRole, HeldFile, Holder, ProcessFault,
    ProcessHandle, ProcessInfo,
};
use std::sync::Arc;

/// The maximum number of consecutive re-parentings of a process while its parent is looked up.
const ADOPTIONS: usize = 8;

/// Why a signal is not sent.
pub(crate) enum Objection {
    /// The outcome of the target.
    Outcome(Outcome),
    /// It could not be determined.
    Unknown(Error),
}

impl From<Error> for Objection {
    fn from(error: Error) -> Self {
        Objection::Unknown(error)
    }
}

impl From<Outcome> for Objection {
    fn from(outcome: Outcome) -> Self {
        Objection::Outcome(outcome)
    }
}

/// Re-checks a target against its plan, on the opened process and fresh data.
pub(crate) struct Check<'a> {
    pub(crate) ports: Ports<'a>,
    pub(crate) guard: &'a Guard,
    pub(crate) files: &'a [DeviceFile],
    /// Holders that are login sessions are spared too.
    pub(crate) spares_logins: bool,
}

impl Check<'_> {
    /// Verifies that the target is still the planned process of the planned user, that nothing
    /// protects it, and that the reason for the plan still holds: it holds a device and uses its
    /// memory, or it is a member of the scope that no role protects. Members of the caller's own
    /// tree only have to be still in it, whatever they execute or hold.
    ///
    /// # Errors
    /// The outcome of the target instead, or why it could not be determined.
    pub(crate) fn may_signal(
        &self,
        target: &Target,
        handle: &dyn ProcessHandle,
    ) -> Result<(), Objection> {
        let now = handle.info()?;
        let is_of_user = match target.membership.user() {
            // A setuid program may change its effective user.
            Some(user) => handle.uids()?.may_be_signalled_by(user),
            None => same_user(&now, &target.process),
        };
        if !now.key.definitely_same(&target.key) || !is_of_user {
            return Err(Outcome::NotTheSame.into());
        }
        if self.guard.forbids(&now).is_some() {
            return Err(Outcome::Protected.into());
        }
        if !target.membership.covers(&now) {
            return Err(Outcome::LetGo.into());
        }
        match &target.membership {
            Membership::Descends(root) => {
                if descends(&now, root, self.ports.host) {
                    Ok(())
                } else {
                    Err(Outcome::LetGo.into())
                }
            }
            Membership::Group(_) | Membership::Cgroup(_) | Membership::Job(_) => {
                same_program(&now, &target.process)?;
                self.is_no_protected_member(&now, handle, target)
            }
            Membership::Holds(files) => {
                same_program(&now, &target.process)?;
                if self.spares_logins {
                    self.is_no_login(&now, handle, target)?;
                }
                self.uses_memory(&now, handle, files)
            }
        }
    }

    fn is_no_protected_member(
        &self,
        now: &ProcessInfo,
        handle: &dyn ProcessHandle,
        target: &Target,
    ) -> Result<(), Objection> {
        let user = target.membership.user().map_or(now.uid, Ok);
        if let Some(role) = Role::claimed_by(now, user) {
            return Err(Outcome::RoleForbids { role }.into());
        }
        self.is_no_login(now, handle, target)
    }

    fn is_no_login(
        &self,
        now: &ProcessInfo,
        handle: &dyn ProcessHandle,
        target: &Target,
    ) -> Result<(), Objection> {
        let parent = self.parent(now, handle)?;
        if is_login(now, parent.as_ref(), target.membership.cgroup()) {
            Err(Outcome::LoginSession.into())
        } else {
            Ok(())
        }
    }

    /// Returns the parent of a process; `None` if it has no parent that could be a login service.
    ///
    /// # Errors
    /// `NotPermitted` if it is not visible. The kernel re-parents a process when its parent ends,
    /// so a parent that stays the same and cannot be found is hidden (`hidepid`).
    fn parent(
        &self,
        now: &ProcessInfo,
        handle: &dyn ProcessHandle,
    ) -> Result<Option<ProcessInfo>, Error> {
        let hidden = || {
            let what = format!("read the parent of process {}", now.key.pid);
            Error::new(ProcessFault::NotPermitted, what)
        };
        let mut parent = match now.parent {
            Ok(parent) => parent,
            // A recorded machine; a live one always reports it.
            Err(Absent::NotRecorded) => return Ok(None),
            Err(_) => return Err(hidden()),
        };
        for _ in 0..ADOPTIONS {
            match self.ports.host.process(parent) {
                Ok(info) => return Ok(Some(info)),
                Err(_) if is_no_login_parent(parent) => return Ok(None),
                Err(error) if error.kind() != ProcessFault::Gone.into() => return Err(hidden()),
                Err(_) => {}
            }
            let next = handle.info()?.parent.map_err(|_| hidden())?;
            if next == parent {
                return Err(hidden());
            }
            parent = next;
        }
        Err(hidden())
    }

    /// Verifies that a process still has one of the planned devices and uses device memory: it may
    /// have become a monitor, or taken a role that is never signalled.
    fn uses_memory(
        &self,
        now: &ProcessInfo,
        handle: &dyn ProcessHandle,
        files: &[Arc<str>],
    ) -> Result<(), Objection> {
        let held = handle.held(self.files)?;
        let holder = Holder { process: now.key, held, through_thread: None };
        let is_planned = |held: &HeldFile| files.contains(&held.path);
        if !holder.held.iter().any(is_planned) {
            return Err(Outcome::LetGo.into());
        }
        let role = Role::of(Some(now), Some(&holder), None, holder.any_memory_use());
        if matches!(role, Role::Display | Role::Daemon) {
            return Err(Outcome::RoleForbids { role }.into());
        }
        if role.may_be_signalled() {
            return Ok(());
        }
        let computes = holder.held.iter().filter(|held| held.role == FileRole::Compute);
        let held: Vec<DeviceKey> = computes.filter_map(|held| held.device).collect();
        if !self.is_listed(now, &held)? {
            return Err(Outcome::RoleForbids { role: Role::Monitor }.into());
        }
        // The driver takes milliseconds to answer.
        if handle.held(self.files)?.iter().any(is_planned) {
            Ok(())
        } else {
            Err(Outcome::LetGo.into())
        }
    }

    /// Returns whether the driver lists a process on one of these devices now: it then uses their
    /// memory, whatever files it has mapped.
    fn is_listed(&self, process: &ProcessInfo, held: &[DeviceKey]) -> Result<bool, Error> {
        // In a separate PID namespace, the driver's PIDs name other processes.
        if self.ports.host.sees_host_pids() == Ok(false) {
            return Ok(false);
        }
        let devices = self.ports.backend.devices()?;
        let is_held = |device: &&DeviceInfo| held.iter().any(|key| device.id.owns(*key));
        for device in devices.iter().filter(is_held) {
            let listed = self.ports.backend.processes(&device.id)?;
            if listed.iter().any(|listed| listed.pid == process.key.pid) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Returns whether the user is the same; an unknown user equals neither a known nor another unknown
/// one.
fn same_user(now: &ProcessInfo, planned: &ProcessInfo) -> bool {
    now.uid.is_ok() && now.uid == planned.uid
}

/// Verifies that a process has the executable that it had when the plan was made. A zombie with
/// live threads shows none and has not executed another: that would have made it a normal process
/// again.
fn same_program(now: &ProcessInfo, planned: &ProcessInfo) -> Result<(), Objection> {
    match (&planned.executable, &now.executable) {
        (Ok(planned), Ok(now)) if planned.file == now.file => Ok(()),
        (Err(_), Err(_)) | (Ok(_), Err(Absent::NotFound)) => Ok(()),
        (Ok(_), Err(absent)) => {
            let what = format!("read the executable of process {}: {absent}", now.key.pid);
            let fault = match absent {
                Absent::NotPermitted => ProcessFault::NotPermitted.into(),
                absent => gpu_core::ErrorKind::Field(*absent),
            };
            Err(Error::new(fault, what).into())
        }
        _ => Err(Outcome::AnotherProgram.into()),
    }
}
