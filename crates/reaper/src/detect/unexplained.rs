//! Memory that no listed process accounts for: ghosts, driver leaks, and unreadable processes.

use super::context::{DetectContext, paths};
use super::instance::InstanceAccount;
use super::ray;
use crate::condition::{Unexplained, low_power};
use crate::evidence::{Evidence, Sign};
use crate::finding::{Advice, Confidence, Finding, FindingKind, Suspect};
use crate::role::Role;
use gpu_core::{
    Access, Bytes, DeviceState, Fault, Holder, Origin, Pid, PodEvidence, ProcessState,
    WorkloadKind, is_mps_program,
};
use std::time::Duration;

/// From this share on, in percent, a device does more than answer queries.
const AT_WORK: u8 = 10;

/// A younger process may still be starting.
const STARTING: Duration = Duration::from_secs(30);

pub(crate) fn detect(context: &DetectContext<'_>) -> Vec<Finding> {
    if context.now.sees_host_pids == Ok(false) {
        return Vec::new();
    }
    context.now.devices.iter().filter_map(|device| detect_on(context, device)).collect()
}

fn detect_on(context: &DetectContext<'_>, device: &DeviceState) -> Option<Finding> {
    let mut suspects = suspects(context, device);
    let Some((bytes, accounts)) = account(device) else {
        return unmeasured(context, device, suspects);
    };
    // Users of the host can make pages of a NUMA node look unexplained: pages that only a pipe holds
    // are in no counter of the kernel.
    // Memory may belong to no client.
    if !device.memory_source().kind.shows_leaks() || device.lists_clients() {
        for suspect in &mut suspects {
            suspect.confidence = suspect.confidence.min(Confidence::Likely);
        }
    }
    let Cause { kind, confidence, evidence, advice } = match &context.now.holders {
        Err(fault) => unknown_holders(context, device, fault),
        Ok(_) => {
            suspected(context, device, &suspects).unwrap_or_else(|| unsuspected(context, device))
        }
    };
    let grows = super::growth::of_unlisted(context, device);
    let accounts = accounts.into_iter().chain(low_power(device)).chain(grows);
    Some(Finding {
        kind,
        confidence,
        devices: vec![device.id().clone()],
        memory: Some(bytes),
        suspects,
        evidence: accounts.chain(evidence).collect(),
        advice: advice.into_iter().collect(),
    })
}

/// Returns the finding about processes that certainly use memory of a device that the driver lists
/// without them, where their memory cannot be measured. Only their files show it, so the confidence
/// is never high.
fn unmeasured(
    context: &DetectContext<'_>,
    device: &DeviceState,
    mut suspects: Vec<Suspect>,
) -> Option<Finding> {
    if device.memory_source().kind.shows_leaks() || device.memory_unlisted().is_some() {
        return None;
    }
    suspects.retain(|suspect| suspect.confidence == Confidence::High);
    // A driver that lists no process may list none at all.
    let lists_some = device.processes.as_ref().ok().map(|listed| !listed.is_empty())?;
    let confidence = if lists_some { Confidence::Likely } else { Confidence::Possible };
    for suspect in &mut suspects {
        suspect.confidence = confidence;
    }
    let text = "the memory of unlisted processes cannot be measured on this GPU";
    let first = suspects.first()?.process.pid;
    Some(Finding {
        kind: FindingKind::Ghost,
        confidence,
        devices: vec![device.id().clone()],
        memory: None,
        suspects,
        evidence: vec![Evidence::new(Sign::MemoryNotMeasured, text)],
        advice: vec![if lists_some { context.to_end(first) } else { Advice::LookLonger }],
    })
}

/// The apparent cause.
struct Cause {
    kind: FindingKind,
    confidence: Confidence,
    /// The evidence for it in addition to the account.
    evidence: Option<Evidence>,
    advice: Option<Advice>,
}

/// Returns the memory that no listed process accounts for, and the account: of the device, and of
/// the MIG instance that has all of it. In MIG mode, the driver may report only the memory of the
/// instances.
fn account(device: &DeviceState) -> Option<(Bytes, Vec<Evidence>)> {
    let instances = InstanceAccount::all(device);
    let describe = |instance: &InstanceAccount| {
        Evidence::new(Sign::MemoryInMigInstance, instance.describe(device))
    };
    if let Some(whole) = Unexplained::of(device) {
        let within = InstanceAccount::with_all(&instances, &whole);
        let all = Evidence::new(Sign::UnexplainedMemory, whole.describe(device));
        let account = std::iter::once(all).chain(within.as_ref().map(describe)).collect();
        return whole.is_ghost().then_some((whole.bytes, account));
    }
    if device.memory_used().is_ok() && device.memory_total().is_ok() {
        return None;
    }
    let unexplained = instances.iter().filter(|instance| instance.unexplained() > Bytes(0));
    let account: Vec<Evidence> = unexplained.clone().map(describe).collect();
    let bytes = unexplained.map(InstanceAccount::unexplained).sum();
    (!account.is_empty()).then_some((bytes, account))
}

fn unknown_holders(context: &DetectContext<'_>, device: &DeviceState, fault: &Fault) -> Cause {
    let mut kind = FindingKind::Ghost;
    let mut text = format!("holders of the device files unknown: failed to {fault}");
    // In a container and on Windows, the list is empty, whatever runs outside.
    if context.now.origin == Origin::Pasted && device.processes.as_ref().is_ok_and(Vec::is_empty) {
        let share = device.sample.as_ref().ok().and_then(|sample| sample.utilization.ok());
        text.push_str(&match share.filter(|share| share.get() >= AT_WORK) {
            Some(share) => {
                kind = FindingKind::NotPermitted;
                format!(
                    "; {share} busy: an unlisted process is computing, so this is no leftover; \
                     inside a container or WSL, nvidia-smi lists no process"
                )
            }
            None => "; inside a container or WSL, nvidia-smi lists no process".to_owned(),
        });
    }
    Cause {
        kind,
        confidence: Confidence::Possible,
        evidence: Some(Evidence::new(Sign::HoldersUnknown, text)),
        advice: match context.now.origin {
            Origin::Pasted => Some(Advice::PasteHolders),
            _ => context.advise_root(),
        },
    }
}

/// Returns the cause if there is a suspect.
fn suspected(
    context: &DetectContext<'_>,
    device: &DeviceState,
    suspects: &[Suspect],
) -> Option<Cause> {
    let first = suspects.first()?.process.pid;
    let confidence = suspects.iter().map(|suspect| suspect.confidence).max()?;
    let evidence = if device.info.partitioned == Ok(true) {
        let text = "MIG is enabled, so process lists may be incomplete";
        Some(Evidence::new(Sign::MigEnabled, text))
    } else {
        let theirs = |unread| format!("{unread}; some of it may be theirs");
        context.unread().map(|unread| Evidence::new(Sign::UninspectedProcesses, theirs(unread)))
    };
    let advice = match confidence {
        Confidence::Possible => Advice::LookLonger,
        _ if is_stuck(context, first) => Advice::WaitOrReboot,
        _ => match context.to_end(first) {
            Advice::ReapProcess(_) if confidence == Confidence::High => {
                Advice::ReapDevice(device.id().index)
            }
            advice => advice,
        },
    };
    Some(Cause { kind: FindingKind::Ghost, confidence, evidence, advice: Some(advice) })
}

/// Returns the cause if no visible process is suspect.
fn unsuspected(context: &DetectContext<'_>, device: &DeviceState) -> Cause {
    let mapped =
        || context.holders_of(device).find(|holder| holder.surely_uses_memory_of(device.id()));
    let (kind, confidence, evidence, advice) = if let Some(unread) = context.unread() {
        let evidence = Evidence::new(Sign::UninspectedProcesses, unread);
        (FindingKind::NotPermitted, Confidence::Likely, evidence, context.advise_root())
    } else if let Some(daemon) = mps(context, device) {
        let text = format!("held by {daemon}: clients of the MPS server may use it");
        let evidence = Evidence::new(Sign::HeldByMps, text);
        (FindingKind::Ghost, Confidence::Possible, evidence, None)
    } else if let Some(holder) = mapped() {
        let pid = holder.process.pid;
        let name = context.info(pid).map_or("?", |info| info.name.as_str());
        let text = format!(
            "mapped by {pid} {name}, by its name a display server or daemon, which is never \
                signalled"
        );
        let evidence = Evidence::new(Sign::MappedByDisplayOrDaemon, text);
        (FindingKind::Ghost, Confidence::Possible, evidence, Some(Advice::StopService(pid)))
    } else if device.lists_clients() {
        unclaimed(context, device)
    } else {
        let text = "all processes were inspected; none uses memory of the device";
        if device.memory_source().kind.shows_leaks() {
            let evidence = Evidence::new(Sign::NoMemoryUser, text);
            let advice = Advice::ResetDevice(device.id().index);
            (FindingKind::DriverLeak, Confidence::Likely, evidence, Some(advice))
        } else {
            let text = format!("{text}; the kernel may keep pages of a NUMA node after a program");
            let evidence = Evidence::new(Sign::NoMemoryUser, text);
            (FindingKind::DriverLeak, Confidence::Possible, evidence, Some(Advice::LookLonger))
        }
    };
    Cause { kind, confidence, evidence: Some(evidence), advice }
}

/// Returns the cause for memory of no client, when all processes were inspected. A process that has
/// the device open may have exported buffers, or shows them on a display.
fn unclaimed(
    context: &DetectContext<'_>,
    device: &DeviceState,
) -> (FindingKind, Confidence, Evidence, Option<Advice>) {
    let index = device.id().index;
    let (confidence, text, advice) = match context.holders_of(device).count() {
        0 => (
            Confidence::Likely,
            "all processes were inspected; none has the device open, but other hardware may have \
             imported its memory",
            Advice::ResetDevice(index),
        ),
        _ => (
            Confidence::Possible,
            "all processes were inspected; exported buffers and pictures on a display belong to no \
             client",
            Advice::LookLonger,
        ),
    };
    (FindingKind::DriverLeak, confidence, Evidence::new(Sign::NoMemoryUser, text), Some(advice))
}

/// Holders that use memory of the device without being listed on it, the strongest evidence first.
pub(super) fn suspects(context: &DetectContext<'_>, device: &DeviceState) -> Vec<Suspect> {
    let unlisted = context
        .holders_of(device)
        .filter(|holder| context.listed(device, holder.process.pid).is_none());
    let mut suspects: Vec<Suspect> = unlisted
        .filter(|holder| context.role(holder.process.pid, device) == Role::MemoryUser)
        .filter_map(|holder| {
            let listed_elsewhere = context.is_listed(holder.process.pid);
            // Without privileges NVML does not list the processes in MIG instances; and a process
            // that no signal ends should not be signalled without a request.
            let stuck = is_stuck(context, holder.process.pid);
            let certain = device.info.partitioned != Ok(true) && !stuck;
            // A program that is starting maps the device before the driver lists it.
            let starts = context.is_younger(holder.process.pid, STARTING);
            let confidence = match (holder.surely_uses_memory_of(device.id()), listed_elsewhere) {
                (_, false) if starts => Confidence::Possible,
                (true, false) if certain => Confidence::High,
                (true, false) => Confidence::Likely,
                (true, true) | (false, false) => Confidence::Likely,
                // A CUDA program opens every device; it uses the one that lists it.
                (false, true) => return None,
            };
            Some(Suspect {
                process: holder.process,
                confidence,
                evidence: evidence_of(context, holder, device, starts),
            })
        })
        .collect();
    suspects.sort_by_key(|suspect| (std::cmp::Reverse(suspect.confidence), suspect.process.pid));
    suspects
}

fn evidence_of(
    context: &DetectContext<'_>,
    holder: &Holder,
    device: &DeviceState,
    starts: bool,
) -> Vec<Evidence> {
    let is_mapped = holder.surely_uses_memory_of(device.id());
    let how = match (
        is_mapped,
        holder.held.iter().any(|h| h.access.contains(Access::OPEN_FOR_WRITING)),
    ) {
        (true, true) => "open for writing and mapped",
        (true, false) => "mapped",
        (false, true) => "open for writing",
        (false, false) => "open",
    };
    let sign = if is_mapped { Sign::DeviceFileMapped } else { Sign::DeviceFileOpen };
    let mut evidence = vec![Evidence::new(sign, format!("{} {how}", paths(holder)))];
    let mut note = |sign, text: String| evidence.push(Evidence::new(sign, text));
    if starts {
        note(Sign::StartedJustNow, "started just now: the driver may not list it yet".to_owned());
    }
    if let Some(thread) = holder.through_thread {
        let text = format!(
            "its main thread exited; thread {thread} is alive and holds them: tools that read only \
             the main thread's files miss it"
        );
        note(Sign::MainThreadExited, text);
    }
    if let Some(info) = context.info(holder.process.pid) {
        if let Ok([_, .., inner]) = info.namespace_pids.as_deref() {
            note(Sign::OwnPidNamespace, format!("PID {inner} in its own PID namespace"));
        }
        if let Some(workload) = &info.workload {
            let sign = match workload.kind {
                WorkloadKind::Container => Sign::Container,
                WorkloadKind::Pod => Sign::Pod,
                WorkloadKind::SlurmJob => Sign::SlurmJob,
            };
            let text = match info.pod.as_deref() {
                Some(pod) if pod.evidence == PodEvidence::Uid => format!("pod {pod}"),
                Some(pod) => format!("pod {}, by its GPUs {pod}", workload.id),
                None => format!("{} {}", workload.kind, workload.id),
            };
            note(sign, text);
        }
        if info.state == Ok(ProcessState::Stopped) {
            note(Sign::Stopped, "stopped".to_owned());
        }
    }
    evidence.extend(ray::worker(context, holder.process.pid));
    evidence
}

fn is_stuck(context: &DetectContext<'_>, pid: Pid) -> bool {
    context.info(pid).is_some_and(|info| info.state == Ok(ProcessState::Uninterruptible))
}

fn mps(context: &DetectContext<'_>, device: &DeviceState) -> Option<String> {
    let mut infos =
        context.holders_of(device).filter_map(|holder| context.info(holder.process.pid));
    infos
        .find(|info| is_mps_program(&info.name))
        .map(|info| format!("{} {}", info.key.pid, info.name))
}
