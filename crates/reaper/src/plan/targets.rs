//! The targets of a plan, and refusals.

use super::{Membership, Refused, Request, Scope, Target};
use crate::detect::DetectContext;
use crate::guard::{Guard, Refusal};
use crate::login::{is_login, is_no_login_parent};
use crate::role::Role;
use gpu_core::{
    Absent, DeviceState, FileRole, HeldFile, Holder, Pid, ProcessInfo, ProcessKey, ProcessState,
};
use std::sync::Arc;

/// The criteria for each candidate.
pub(super) struct Choice<'a> {
    pub(super) context: &'a DetectContext<'a>,
    pub(super) guard: &'a Guard,
    pub(super) request: &'a Request<'a>,
}

/// The processes that end with a target.
pub(super) struct Chosen {
    pub(super) targets: Vec<Target>,
    /// Members of its scope that belong to none of the requested users.
    pub(super) left_out: Vec<Refused>,
}

impl Choice<'_> {
    /// Returns the process as a target, and the other members of its scope.
    pub(super) fn targets(&self, pid: Pid, why: &str) -> Result<Chosen, Refusal> {
        let everyone = self.request.scope.everyone();
        let find = |pid: Pid| everyone.iter().find(|info| info.key.pid == pid);
        let info = self.context.info(pid).or_else(|| find(pid));
        let info = info.ok_or(Refusal::NotSeen)?;
        if let Some(refusal) = self.guard.forbids(info) {
            return Err(refusal);
        }
        let is_other = |seen: &&ProcessKey| seen.pid == pid && !seen.definitely_same(&info.key);
        if let Some(seen) = self.request.seen.iter().find(is_other) {
            return Err(match seen.start {
                Some(_) => Refusal::NotTheSame,
                None => Refusal::UnknownIdentity,
            });
        }
        let held = self.held(pid);
        let files = self.files(pid, &held);
        if files.is_empty() {
            return Err(match held.is_empty() {
                true if self.context.is_listed(pid) => Refusal::OnlyListed,
                true => Refusal::HoldsNothing,
                false => Refusal::HoldsOthers,
            });
        }
        if !self.is_asked_for(info) {
            return Err(Refusal::OtherUser);
        }
        if let Some(role) = self.forbidding_role(info, &held) {
            return Err(Refusal::Role(role));
        }
        let target = |process: &ProcessInfo, membership| Target {
            key: process.key,
            membership,
            on_account_of: pid,
            why: why.to_owned(),
            warnings: warnings(self.context, process),
            process: process.clone(),
        };
        let targets = vec![target(info, Membership::Holds(files))];
        let mut chosen = Chosen { targets, left_out: Vec::new() };
        let membership = match self.request.scope {
            Scope::Process => return Ok(chosen),
            Scope::Group(_) => Membership::Group(info.group.map_err(|_| Refusal::UnknownIdentity)?),
            Scope::Container(_) => {
                let workload = info.workload.as_ref().ok_or(Refusal::NoContainer)?;
                Membership::Cgroup(workload.cgroup.clone())
            }
        };
        // A list that lacks the process itself is from another machine or another time.
        if !find(pid).is_some_and(|listed| listed.key.definitely_same(&info.key)) {
            return Err(Refusal::ScopeNotSeen);
        }
        for member in everyone.iter().filter(|p| p.key.pid != pid && membership.covers(p)) {
            if !self.is_asked_for(member) {
                let (pid, name) = (member.key.pid, Some(member.name.clone()));
                chosen.left_out.push(Refused { pid, name, why: Refusal::OtherUser });
                continue;
            }
            let parent = match member.parent {
                Ok(pid) if is_no_login_parent(pid) => Ok(find(pid)),
                Err(Absent::NotRecorded) => Ok(None),
                parent => parent.ok().and_then(find).map(Some).ok_or(Refusal::ParentNotSeen),
            };
            let refusal = match parent {
                Ok(parent) => scope_forbids(self.guard, info, member, parent, &membership),
                Err(refusal) => Some(refusal),
            };
            if let Some(refusal) = refusal {
                return Err(Refusal::ScopeHolds(member.key.pid, Box::new(refusal)));
            }
            chosen.targets.push(target(member, membership.clone()));
        }
        Ok(chosen)
    }

    /// Returns whether a process belongs to one of the requested users.
    fn is_asked_for(&self, process: &ProcessInfo) -> bool {
        let users = &self.request.users;
        users.is_empty() || users.iter().any(|user| process.is_of(user))
    }

    /// Returns the devices whose files a process has.
    fn held(&self, pid: Pid) -> Vec<&DeviceState> {
        let holds = |device: &&DeviceState| {
            self.context.holders_of(device).any(|holder| holder.process.pid == pid)
        };
        self.context.now.devices.iter().filter(holds).collect()
    }

    /// Returns the files that a process has of the requested devices, by path.
    fn files(&self, pid: Pid, held: &[&DeviceState]) -> Vec<Arc<str>> {
        let asked = &self.request.devices;
        // Without a driver there is no list of devices, but the device files still exist.
        let any_device = self.context.now.devices.is_empty() && asked.is_empty();
        let is_asked = |file: &&HeldFile| {
            let device = held.iter().find(|device| file.opens(device.id()));
            device.map_or(any_device, |device| {
                asked.is_empty() || asked.iter().any(|id| id.same_device(device.id()))
            })
        };
        let files = self.context.holder(pid).into_iter().flat_map(|holder| &holder.held);
        let of_devices =
            files.filter(|file| file.role == FileRole::Compute && file.device.is_some());
        of_devices.filter(is_asked).map(|file| file.path.clone()).collect()
    }

    /// Returns the role that protects a process. It takes every device into account that the
    /// process holds, not only the requested ones.
    fn forbidding_role(&self, info: &ProcessInfo, held: &[&DeviceState]) -> Option<Role> {
        let pid = info.key.pid;
        let roles: Vec<Role> = match held {
            [] => {
                let holder = self.context.holder(pid);
                let memory = holder.map(Holder::any_memory_use).unwrap_or_default();
                vec![Role::of(Some(info), holder, None, memory)]
            }
            held => held.iter().map(|device| self.context.role(pid, device)).collect(),
        };
        let service = roles.iter().find(|role| matches!(role, Role::Display | Role::Daemon));
        service
            .copied()
            .or_else(|| Role::claimed(info).filter(|_| self.request.pids.is_empty()))
            .or_else(|| (!roles.contains(&Role::MemoryUser)).then_some(Role::Monitor))
    }
}

/// Returns why a member protects the scope: if one may not be signalled, the whole scope is spared,
/// because half a job is worse than a job.
fn scope_forbids(
    guard: &Guard,
    target: &ProcessInfo,
    member: &ProcessInfo,
    parent: Option<&ProcessInfo>,
    membership: &Membership,
) -> Option<Refusal> {
    if let Some(refusal) = guard.forbids(member) {
        return Some(refusal);
    }
    if let Some(role) = Role::claimed(member) {
        return Some(Refusal::Role(role));
    }
    if is_login(member, parent, membership.cgroup()) {
        return Some(Refusal::LoginSession);
    }
    // The leader of a session, other than the target: a login shell or its equivalent.
    let leads_session = member.session == Ok(member.key.pid);
    (leads_session && target.workload.is_none()).then_some(Refusal::LeadsSession)
}

fn warnings(context: &DetectContext<'_>, process: &ProcessInfo) -> Vec<String> {
    let mut warnings = Vec::new();
    if let Some((used, over)) = context.past.recent_cpu_time(process.key)
        && !used.is_zero()
    {
        warnings.push(format!(
            "it is running: {} ms CPU time in the last {} ms",
            used.as_millis(),
            over.as_millis()
        ));
    }
    if process.state == Ok(ProcessState::Uninterruptible) {
        warnings.push("it is in state D: no signal ends it before the wait ends".to_owned());
    }
    warnings
}
