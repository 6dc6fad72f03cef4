//! From a diagnosis to a plan: whom to signal, why, and what should come back.

use crate::detect::{Case, diagnose};
use crate::finding::{Confidence, Diagnosis, FindingKind};
use crate::guard::{Guard, Refusal, is_user};
use crate::role::Role;
use gpu_core::{
    Bytes, DeviceFileKind, DeviceId, DeviceState, Origin, Pid, ProcessInfo, ProcessKey, Snapshot,
};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// How far the end of one process reaches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// The process alone.
    #[default]
    Process,
    /// Its process group.
    Group,
    /// Its container, pod or Slurm job; never a login session.
    Container,
}

/// What the user asks for.
#[derive(Clone, Debug)]
pub struct Request {
    /// Exactly these processes. With none, those that a ghost, orphan, zombie or gone finding
    /// names with high confidence.
    pub pids: Vec<Pid>,
    /// Only on these devices; on all of them when empty.
    pub devices: Vec<DeviceId>,
    /// Only of these users, by name or number; of all when empty.
    pub users: Vec<String>,
    /// How far to reach.
    pub scope: Scope,
    /// How long SIGTERM is given before SIGKILL.
    pub grace: Duration,
}

impl Request {
    /// The time from SIGTERM to SIGKILL unless told otherwise: earlyoom's ten seconds.
    pub const GRACE: Duration = Duration::from_secs(10);
}

impl Default for Request {
    fn default() -> Self {
        Request {
            pids: Vec::new(),
            devices: Vec::new(),
            users: Vec::new(),
            scope: Scope::Process,
            grace: Request::GRACE,
        }
    }
}

/// What makes a process a rightful target, looked at again before each signal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Membership {
    /// It has one of these device files (`/dev/nvidiaN`, by N).
    Holds(Vec<u32>),
    /// It is in this process group.
    Group(Pid),
    /// It is in this cgroup or below.
    Cgroup(String),
    /// It descends from this process.
    Descends(ProcessKey),
}

/// A process to be ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Target {
    /// The process as it was when the plan was made.
    #[serde(skip)]
    pub process: ProcessInfo,
    /// Number and start time.
    pub key: ProcessKey,
    /// What must still hold before each signal.
    pub membership: Membership,
    /// The process whose scope it is in; itself for the one that the plan is about.
    #[serde(rename = "on_account_of_pid")]
    pub on_account_of: Pid,
    /// Why, a fragment.
    pub why: String,
    /// What the user should know before saying yes.
    pub warnings: Vec<String>,
}

/// A process that was asked for, or is suspect, and is not to be signalled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refused {
    /// The process.
    pub pid: Pid,
    /// Its name, where known.
    pub name: Option<String>,
    /// Why not.
    pub why: Refusal,
}

/// What is to come back on a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Expected {
    /// The device.
    pub device: DeviceId,
    /// At most this much; `None` where others share the unexplained memory.
    #[serde(rename = "memory_bytes")]
    pub memory: Option<Bytes>,
    /// How much of it no list accounts for: some of that may be the driver's own.
    #[serde(rename = "unexplained_bytes")]
    pub unexplained: Bytes,
    /// The targets that hold the device.
    #[serde(rename = "target_pids")]
    pub targets: Vec<Pid>,
}

/// Everything that would be done.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Plan {
    /// The machine it is for; it can be carried out on no other.
    #[serde(skip)]
    pub origin: Option<Origin>,
    /// Whom to signal, in order.
    pub targets: Vec<Target>,
    /// Whom not, and why.
    pub refused: Vec<Refused>,
    /// Whom findings name and the choice of devices or users left out.
    pub left_out: Vec<Refused>,
    /// What should come back.
    pub expected: Vec<Expected>,
    /// Time from SIGTERM to SIGKILL, in milliseconds.
    #[serde(rename = "grace_ms", serialize_with = "millis")]
    pub grace: Duration,
}

pub(crate) fn millis<S: serde::Serializer>(duration: &Duration, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_u64(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

/// Returns what to do about `diagnosis`, as `request` narrows it.
///
/// `everyone` is every process of the machine, needed for a scope wider than the process.
pub fn plan(
    looks: &[Snapshot],
    diagnosis: &Diagnosis,
    everyone: &[ProcessInfo],
    guard: &Guard,
    request: &Request,
) -> Plan {
    let Some(case) = Case::new(looks) else { return Plan::default() };
    let mut plan =
        Plan { origin: Some(case.now.origin.clone()), grace: request.grace, ..Plan::default() };
    for (pid, why) in candidates(looks, diagnosis, request) {
        if plan.targets.iter().any(|target| target.key.pid == pid) {
            continue;
        }
        match targets_for(&case, everyone, guard, request, pid, &why) {
            Ok(targets) => {
                for target in targets {
                    if !plan.targets.iter().any(|other| other.key == target.key) {
                        plan.targets.push(target);
                    }
                }
            }
            Err(why) => {
                // Without a number the user asked for whatever fits: what does not was left out.
                let narrowed = matches!(why, Refusal::HoldsNothing | Refusal::OtherUser);
                let list = match narrowed && request.pids.is_empty() {
                    true => &mut plan.left_out,
                    false => &mut plan.refused,
                };
                list.push(Refused { pid, name: case.info(pid).map(|info| info.name.clone()), why });
            }
        }
    }
    plan.expected = expected(&case, diagnosis, &plan.targets);
    plan
}

/// Who comes into question, and why.
///
/// One look is not one moment: memory, list and holders are asked one after another, and between
/// them a process may end and another begin. So a suspect that was not asked for by its number
/// must be one in every look, as the same process.
fn candidates(
    looks: &[Snapshot],
    diagnosis: &Diagnosis,
    request: &Request,
) -> BTreeMap<Pid, String> {
    if !request.pids.is_empty() {
        let why = "asked for by its number";
        return request.pids.iter().map(|pid| (*pid, why.to_owned())).collect();
    }
    let each_look: Vec<_> =
        looks.iter().map(|look| certain(&diagnose(std::slice::from_ref(look)))).collect();
    certain(diagnosis)
        .into_iter()
        .filter(|(key, _)| {
            each_look.iter().all(|look| look.keys().any(|seen| seen.surely_same(key)))
        })
        .map(|(key, why)| (key.pid, why.to_owned()))
        .collect()
}

/// The suspects that a diagnosis names with high confidence, of the kinds that may be ended
/// without being asked for by number.
fn certain(diagnosis: &Diagnosis) -> BTreeMap<ProcessKey, &'static str> {
    let mut certain = BTreeMap::new();
    for finding in &diagnosis.findings {
        let kind = match finding.kind {
            FindingKind::Ghost => "ghost",
            FindingKind::Orphan => "orphan",
            FindingKind::ZombieHolder => "zombie whose threads live",
            FindingKind::ListedButGone => "heir of a listed process that is gone",
            _ => continue,
        };
        for suspect in &finding.suspects {
            if suspect.confidence == Confidence::High {
                certain.entry(suspect.process).or_insert(kind);
            }
        }
    }
    certain
}

fn targets_for(
    case: &Case<'_>,
    everyone: &[ProcessInfo],
    guard: &Guard,
    request: &Request,
    pid: Pid,
    why: &str,
) -> Result<Vec<Target>, Refusal> {
    let info = case
        .info(pid)
        .or_else(|| everyone.iter().find(|process| process.key.pid == pid))
        .ok_or(Refusal::NotSeen)?;
    if let Some(refusal) = guard.forbids(info) {
        return Err(refusal);
    }
    let held: Vec<&DeviceState> = case
        .now
        .devices
        .iter()
        .filter(|device| case.holders_of(device).any(|holder| holder.process.pid == pid))
        .collect();
    let asked = |device: &DeviceState| {
        request.devices.is_empty() || request.devices.iter().any(|id| id.same_device(device.id()))
    };
    let by_user = request.users.is_empty() || request.users.iter().any(|user| is_user(info, user));
    let minors: Vec<u32> = match &held[..] {
        // Without a driver there is no list of devices; the device files are there all the same.
        [] if case.now.devices.is_empty() && request.devices.is_empty() => held_minors(case, pid),
        held => held
            .iter()
            .filter(|device| asked(device))
            .filter_map(|device| case.now.minor_of(device))
            .collect(),
    };
    if minors.is_empty() {
        return Err(Refusal::HoldsNothing);
    }
    if !by_user {
        return Err(Refusal::OtherUser);
    }
    // Its role counts on every device that it holds, not only on those asked for.
    let roles: Vec<Role> = match &held[..] {
        [] => minors
            .iter()
            .map(|minor| Role::of(Some(info), case.holder(pid), None, Some(*minor)))
            .collect(),
        held => held.iter().map(|device| case.role(pid, device)).collect(),
    };
    if let Some(role) = roles.iter().find(|role| matches!(role, Role::Display | Role::Daemon)) {
        return Err(Refusal::Role(*role));
    }
    if let Some(role) = Role::claimed(info).filter(|_| request.pids.is_empty()) {
        return Err(Refusal::Role(role));
    }
    if !roles.contains(&Role::MemoryUser) {
        return Err(Refusal::Role(Role::Monitor));
    }
    let target = |process: &ProcessInfo, membership| Target {
        key: process.key,
        membership,
        on_account_of: pid,
        why: why.to_owned(),
        warnings: warnings(case, process),
        process: process.clone(),
    };
    let mut targets = vec![target(info, Membership::Holds(minors))];
    let membership = match request.scope {
        Scope::Process => return Ok(targets),
        Scope::Group => Membership::Group(info.group.map_err(|_| Refusal::UnknownIdentity)?),
        Scope::Container => {
            let workload = info.workload.as_ref().ok_or(Refusal::NoContainer)?;
            Membership::Cgroup(workload.cgroup.clone())
        }
    };
    for member in everyone.iter().filter(|p| p.key.pid != pid && membership.covers(p)) {
        if let Some(refusal) = scope_forbids(guard, info, member) {
            return Err(Refusal::ScopeHolds(member.key.pid, Box::new(refusal)));
        }
        targets.push(target(member, membership.clone()));
    }
    Ok(targets)
}

/// A member that may not be signalled keeps its whole scope from being ended: half a job is worse
/// than a job.
fn scope_forbids(guard: &Guard, target: &ProcessInfo, member: &ProcessInfo) -> Option<Refusal> {
    if let Some(refusal) = guard.forbids(member) {
        return Some(refusal);
    }
    if let Some(role) = Role::claimed(member) {
        return Some(Refusal::Role(role));
    }
    // The leader of a session, other than the target: a login shell or what stands for one.
    let leads_session = member.session == Ok(member.key.pid);
    (leads_session && target.workload.is_none()).then_some(Refusal::LeadsSession)
}

impl Membership {
    /// The device files that make it a target, by minor number; none in a wider scope.
    pub(crate) fn minors(&self) -> &[u32] {
        match self {
            Membership::Holds(minors) => minors,
            Membership::Group(_) | Membership::Cgroup(_) | Membership::Descends(_) => &[],
        }
    }

    /// Tells whether a process is in a scope by its group or cgroup; what it holds is asked of the
    /// opened process, and whom it descends from of its ancestors.
    pub(crate) fn covers(&self, process: &ProcessInfo) -> bool {
        match self {
            Membership::Holds(_) | Membership::Descends(_) => true,
            Membership::Group(group) => process.group == Ok(*group),
            Membership::Cgroup(cgroup) => process.cgroup.as_ref().is_ok_and(|path| {
                path.strip_prefix(cgroup.as_str())
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            }),
        }
    }
}

fn held_minors(case: &Case<'_>, pid: Pid) -> Vec<u32> {
    let held = case.holder(pid).into_iter().flat_map(|holder| &holder.held);
    held.filter_map(|held| match held.kind {
        DeviceFileKind::Gpu(minor) => Some(minor),
        _ => None,
    })
    .collect()
}

fn warnings(case: &Case<'_>, process: &ProcessInfo) -> Vec<String> {
    let mut warnings = Vec::new();
    if let Some((used, over)) = case.cpu_time_advance(process.key)
        && !used.is_zero()
    {
        warnings.push(format!(
            "its CPU time advances: {} ms in the last {} ms",
            used.as_millis(),
            over.as_millis()
        ));
    }
    if process.state == Ok(gpu_core::ProcessState::Uninterruptible) {
        warnings.push("it is in state D: no signal ends it before its wait does".to_owned());
    }
    warnings
}

/// What the targets hold: what is listed for them, and all that is unexplained where every
/// suspect is a target.
fn expected(case: &Case<'_>, diagnosis: &Diagnosis, targets: &[Target]) -> Vec<Expected> {
    let is_target = |pid: Pid| targets.iter().any(|target| target.key.pid == pid);
    let mut expected = Vec::new();
    for device in &case.now.devices {
        let holds = |pid: Pid| {
            case.listed(device, pid).is_some()
                || case.holders_of(device).any(|h| h.process.pid == pid)
        };
        let minor = case.now.minor_of(device);
        let concerned: Vec<Pid> = targets
            .iter()
            .filter(|target| match &target.membership {
                Membership::Holds(minors) => minor.is_some_and(|minor| minors.contains(&minor)),
                Membership::Group(_) | Membership::Cgroup(_) | Membership::Descends(_) => {
                    holds(target.key.pid)
                }
            })
            .map(|target| target.key.pid)
            .collect();
        // A CUDA program opens every device that it sees; what comes back is on those it uses.
        let suspected = |pid: Pid| {
            let mut findings = diagnosis.findings.iter();
            findings.any(|finding| {
                finding.devices.iter().any(|id| id.same_device(device.id()))
                    && finding.suspects.iter().any(|suspect| suspect.process.pid == pid)
            })
        };
        if !concerned.iter().any(|pid| case.surely_uses(*pid, device) || suspected(*pid)) {
            continue;
        }
        let on_list = targets.iter().filter_map(|target| case.listed(device, target.key.pid));
        let on_list: Option<Bytes> = on_list.map(|process| process.memory.ok()).sum();
        let unexplained = diagnosis.findings.iter().find(|finding| {
            finding.kind == FindingKind::Ghost
                && finding.devices.iter().any(|id| id.same_device(device.id()))
        });
        let (memory, unexplained) = match unexplained {
            // Who could not be looked into may share what no list accounts for.
            Some(ghost)
                if ghost.suspects.iter().all(|s| is_target(s.process.pid))
                    && case.now.unreadable.total() == 0 =>
            {
                let unexplained = ghost.memory.unwrap_or_default();
                (on_list.map(|listed| listed + unexplained), unexplained)
            }
            Some(ghost) if ghost.suspects.iter().any(|s| is_target(s.process.pid)) => {
                (None, Bytes(0))
            }
            _ => (on_list.filter(|memory| memory.0 > 0), Bytes(0)),
        };
        let device = device.id().clone();
        expected.push(Expected { device, memory, unexplained, targets: concerned });
    }
    expected
}
