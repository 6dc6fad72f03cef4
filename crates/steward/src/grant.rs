//! Takes devices: observes, chooses and leases, or reports why not.

use crate::ancestry;
use crate::claim_context::{ClaimContext, Wants};
use crate::environment::environment;
use crate::offers::{ClaimSurroundings, doubtful, not_enforced, offers, outsiders};
use crate::ports::{Ports, Request};
use crate::preference;
use gpu_claim::{Chosen, ClaimRequest, Ledger, Standing, TakeError, Taken, Turn, Waiting};
use gpu_core::visible::{Form, GRAMMARS};
use gpu_core::{
    Claim, DeviceId, DeviceKey, DeviceUuid, EntryKind, Error, Fault, FileId, Groups, LeaseEntry,
    LeaseGuard, LeaseId, Partition, Result, SafeGpuGuard, Share, ask, take_inventory,
};
use gpu_placement::{Bar, Choice, Offer, Passed, Refusal};
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt;
use std::ops::ControlFlow;

/// Granted devices. Dropping this releases them.
pub struct Grant {
    /// The lease.
    pub entry: LeaseEntry,
    /// Its devices, by index.
    pub devices: Vec<DeviceId>,
    /// Why these devices were chosen.
    pub decision: Option<Decision>,
    /// The devices with a reason against them that the claim accepts: others use them without a
    /// lease, or they have a defect and the claim names them.
    pub accepted: Vec<(DeviceId, Bar)>,
    /// The lease that they were taken out of.
    pub parent: Option<LeaseEntry>,
    /// The snapshot on which the choice is based.
    pub context: ClaimContext,
    /// Keeps the lease alive.
    pub held: Box<dyn LeaseGuard>,
    /// The held locks of safe-gpu, or why they could not be taken; `None` within a lease.
    pub held_back: Option<Result<Box<dyn SafeGpuGuard>>>,
}

impl Grant {
    /// Returns the [variables](environment) that make its devices, and no others, visible to a
    /// program. `inherited` returns the value that a variable has in its environment.
    ///
    /// # Errors
    /// `Invalid` if no variable can list its devices in this form.
    pub fn environment(
        &self,
        form: Form,
        inherited: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Vec<(OsString, OsString)>> {
        environment(GRAMMARS, &self.entry, form, &self.context.snapshot.devices, inherited)
    }
}

impl fmt::Debug for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grant").field("entry", &self.entry).finish_non_exhaustive()
    }
}

/// A choice of devices, with their names.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The choice; it refers to devices by their index in `offered`.
    pub choice: Choice,
    /// The devices to choose from.
    pub offered: Vec<DeviceId>,
}

impl Decision {
    /// Returns the chosen devices.
    pub fn devices(&self) -> Vec<DeviceId> {
        self.choice.devices.iter().filter_map(|index| self.offered.get(*index)).cloned().collect()
    }

    /// Returns the rejected devices, each with the reason.
    pub fn passed(&self) -> impl Iterator<Item = (&DeviceId, &Passed)> {
        named(&self.choice.passed, &self.offered)
    }
}

/// A refusal, with the names of its devices.
#[derive(Clone, Debug, PartialEq)]
pub struct Refused {
    /// Why there is no choice; it refers to devices by their index in `offered`.
    pub refusal: Refusal,
    /// The devices to choose from.
    pub offered: Box<[DeviceId]>,
    /// The lease that the devices had to come from.
    pub within: Option<Box<LeaseId>>,
}

impl Refused {
    /// Returns the rejected devices, each with the reason.
    pub fn passed(&self) -> impl Iterator<Item = (&DeviceId, &Passed)> {
        let passed = match &self.refusal {
            Refusal::NotNow { passed, .. } | Refusal::Never { passed, .. } => &passed[..],
            Refusal::Missing(_) | Refusal::Contradictory => &[],
        };
        named(passed, &self.offered)
    }

    /// Returns the devices that the claim could get if all others were released.
    fn could(&self) -> Vec<DeviceUuid> {
        let never: Vec<&DeviceId> =
            self.passed().filter_map(|(id, why)| why.is_lasting().then_some(id)).collect();
        uuids(self.offered.iter().filter(|id| !never.contains(id)))
    }
}

/// Chooses devices for a claim.
///
/// # Errors
/// If it can get none now.
pub(crate) fn decide(
    context: &ClaimContext,
    claim: &Claim,
    surroundings: ClaimSurroundings<'_>,
) -> Result<Decision, Refused> {
    let (offers, chosen) = preference::choose(context, claim, surroundings);
    let offered = offers.into_iter().map(|offer| offer.id);
    match chosen {
        Ok(choice) => Ok(Decision { choice, offered: offered.collect() }),
        Err(refusal) => {
            let within = surroundings.parent.map(|parent| Box::new(parent.id.clone()));
            Err(Refused { refusal, offered: offered.collect(), within })
        }
    }
}

fn named<'a>(
    passed: &'a [(usize, Passed)],
    offered: &'a [DeviceId],
) -> impl Iterator<Item = (&'a DeviceId, &'a Passed)> {
    passed.iter().filter_map(|(index, why)| Some((offered.get(*index)?, why)))
}

/// Why no devices were granted. The claim is withdrawn.
#[derive(Debug)]
pub enum NotGranted {
    /// Not at once, or not within its time limit.
    NotNow {
        /// It waited until its time limit.
        waited: bool,
        /// Earlier claims, leases, and other reasons for the wait at the end.
        standing: Box<Standing>,
        /// The result of the last choice; `None` if the driver was not queried again.
        refused: Option<Refused>,
    },
    /// Never on this machine, or never within the lease that it is within.
    Never(Option<Refused>),
    /// It is within this lease, which belongs to another user. Other users would not accept a lease
    /// of this caller as part of that one. If the claim ignored that lease, it would wait for its
    /// own devices.
    Foreign(Box<LeaseEntry>),
    /// The driver does not respond, or has no device.
    Silent(Fault),
    /// The observer asked to stop.
    Stopped,
    /// A port failed.
    Failed(Error),
}

impl fmt::Display for NotGranted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotGranted::NotNow { waited: true, .. } => f.write_str("none became available in time"),
            NotGranted::NotNow { .. } => f.write_str("none is available now"),
            NotGranted::Never(_) => f.write_str("no matching GPUs exist"),
            NotGranted::Foreign(lease) => {
                write!(f, "the enclosing lease {} belongs to another user", lease.id)
            }
            NotGranted::Silent(fault) => write!(f, "failed to {fault}"),
            NotGranted::Stopped => f.write_str("interrupted"),
            NotGranted::Failed(error) => write!(f, "failed to {}", error.fault()),
        }
    }
}

impl std::error::Error for NotGranted {}

impl From<Error> for NotGranted {
    fn from(error: Error) -> Self {
        NotGranted::Failed(error)
    }
}

/// Takes the requested devices, and waits as the request specifies.
///
/// A caller that is itself within a lease gets only devices of that lease.
///
/// # Errors
/// [`NotGranted`].
pub fn take(
    request: &Request,
    ports: &Ports<'_>,
    watch: &mut dyn FnMut(&Waiting<'_>) -> ControlFlow<()>,
) -> Result<Grant, NotGranted> {
    let parent = parent(request, ports)?;
    let claim = visible(request, ports);
    let chooser = Chooser::new(&claim, parent.as_ref());
    let ask = ClaimRequest {
        claim: claim.clone(),
        root: request.root,
        within: parent.clone(),
        parts_of: wholes(&request.claim, ports),
        command: request.command.clone(),
        wait: request.wait,
        pace: request.pace,
        holds_back_safe_gpu: parent.is_none(),
    };
    let silence = RefCell::new(None);
    let mut observe = || {
        let context = chooser.observe(request, ports);
        if let Some(fault) = context.silence() {
            silence.replace(Some(fault.clone()));
            return Err(Error::new(fault.kind, fault.text.clone()));
        }
        silence.replace(None);
        Ok(context)
    };
    let taken = gpu_claim::take(
        ports.locks,
        ports.clock,
        &ask,
        &mut observe,
        &|context: &ClaimContext, claim, leases| chooser.choose(context, claim, leases),
        watch,
    );
    let not_now =
        |waited, standing| NotGranted::NotNow { waited, standing, refused: chooser.refused() };
    match taken {
        Ok(taken) => Ok(chooser.grant(taken, parent.clone(), ports)),
        Err(TakeError::NotNow(standing)) => Err(not_now(false, standing)),
        Err(TakeError::TimedOut(standing)) => Err(not_now(true, standing)),
        Err(TakeError::Never) => Err(NotGranted::Never(chooser.refused())),
        Err(TakeError::Stopped) => Err(NotGranted::Stopped),
        Err(TakeError::Failed(error)) => Err(match silence.take() {
            Some(fault) => NotGranted::Silent(fault),
            None => NotGranted::Failed(error),
        }),
    }
}

/// Returns the claim with the devices that the caller sees, by their device files. It does not
/// query the driver, because most claims of a queue never need to.
fn visible(request: &Request, ports: &Ports<'_>) -> Claim {
    let files = ports.host.device_files().unwrap_or_default();
    let minors = files.iter().filter_map(|file| match file.device {
        Some(DeviceKey::Node(FileId::Device { minor, .. })) => Some(minor),
        _ => None,
    });
    let minors: BTreeSet<u32> = minors.collect();
    Claim { visible_minors: minors.into_iter().collect(), ..request.claim.clone() }
}

/// Returns the GPUs of the MIG devices that a claim names, so that a lease on a MIG device still
/// shows its GPU when the MIG device is no longer visible; empty unless all are visible.
fn wholes(claim: &Claim, ports: &Ports<'_>) -> Vec<DeviceUuid> {
    let named: Vec<&DeviceUuid> =
        claim.among.iter().chain(&claim.required).filter(|uuid| uuid.is_partition()).collect();
    if named.is_empty() {
        return Vec::new();
    }
    let machine = take_inventory(ports.backend, ports.host, Groups::NONE).devices;
    let whole = |uuid: &&DeviceUuid| {
        let has = |mig: &Partition| mig.uuid.as_ref() == Ok(*uuid);
        let whole = machine.iter().find(|device| device.partitions.iter().flatten().any(has))?;
        whole.id().lease_key().ok().map(Cow::into_owned)
    };
    let wholes: Option<BTreeSet<DeviceUuid>> = named.iter().map(whole).collect();
    wholes.unwrap_or_default().into_iter().collect()
}

/// Returns the lease of the request's own process for whose end the claim would wait: without the
/// devices of that process's leases, too few remain for it, even if all others release theirs.
///
/// # Errors
/// [`NotGranted::Foreign`] and [`NotGranted::Failed`].
pub fn waits_for_own_lease(
    request: &Request,
    ports: &Ports<'_>,
) -> Result<Option<LeaseEntry>, NotGranted> {
    let is_own = |lease: &LeaseEntry| {
        lease.owner == ports.locks.owner() && lease.root.definitely_same(&request.root)
    };
    let leases = ports.locks.entries(EntryKind::Lease)?;
    if !leases.iter().any(is_own) {
        return Ok(None);
    }
    let parent = parent(request, ports)?;
    let mut own = Ledger::new(leases, Vec::new()).pool(parent.as_ref()).leases;
    own.retain(is_own);
    let chooser = Chooser::new(&request.claim, parent.as_ref());
    let context = chooser.observe(request, ports);
    let surroundings = ClaimSurroundings { parent: parent.as_ref(), leases: &own, waiting: &[] };
    let Err(refused) = decide(&context, &request.claim, surroundings) else { return Ok(None) };
    if !matches!(refused.refusal, Refusal::NotNow { .. }) {
        return Ok(None);
    }
    let leased: Vec<(&DeviceId, &LeaseId)> = refused
        .passed()
        .filter_map(|(device, why)| match why {
            Passed::Barred(Bar::Leased { lease, .. }) => Some((device, lease)),
            _ => None,
        })
        .collect();
    let left = refused.could().len().saturating_sub(leased.len());
    let Some((_, id)) = leased.first().filter(|_| left < request.claim.count as usize) else {
        return Ok(None);
    };
    Ok(own.iter().find(|lease| lease.id == **id).cloned())
}

/// The devices that a request would get now.
#[derive(Debug)]
pub struct Preview {
    /// The choice, or why there is none.
    pub decision: Result<Decision, Refused>,
    /// The waiting claims that come first.
    pub ahead: Vec<LeaseEntry>,
    /// The lease that the devices would come from.
    pub parent: Option<LeaseEntry>,
    /// The devices with a reason against them that the claim would accept, as
    /// [`Grant::accepted`].
    pub accepted: Vec<(DeviceId, Bar)>,
    /// The snapshot.
    pub context: ClaimContext,
}

/// Returns what would be granted now, without taking it.
///
/// # Errors
/// [`NotGranted::Silent`], [`NotGranted::Foreign`] and [`NotGranted::Failed`].
pub fn preview(request: &Request, ports: &Ports<'_>) -> Result<Preview, NotGranted> {
    let parent = parent(request, ports)?;
    let claim = visible(request, ports);
    let chooser = Chooser::new(&claim, parent.as_ref());
    let mut context = chooser.observe(request, ports);
    if let Some(fault) = context.silence() {
        return Err(NotGranted::Silent(fault.clone()));
    }
    context.snapshot.driver_messages = ask(|| ports.host.driver_messages());
    let pool = Ledger::read(ports.locks)?.pool(parent.as_ref());
    let entry = LeaseEntry {
        id: ports.locks.new_id()?,
        ticket: u64::MAX,
        owner: ports.locks.owner(),
        root: request.root,
        within: parent.as_ref().map(LeaseEntry::nested).unwrap_or_default(),
        claim: claim.clone(),
        devices: Vec::new(),
        parts_of: Vec::new(),
        merged: None,
        command: String::new(),
        since: context.snapshot.taken_at,
    };
    let turn =
        gpu_claim::turn(&entry, &pool, &|claim, leases| chooser.choose(&context, claim, leases));
    let seen = chooser.seen.take();
    let decision = match (turn, seen.decision, seen.refused) {
        (Turn::Take(_), Some(decision), _) => Ok(decision),
        (_, _, Some(refused)) => Err(refused),
        _ => return Err(NotGranted::Never(None)),
    };
    let ahead = pool.ahead_of(&entry).cloned().collect();
    let devices = decision.as_ref().map_or(Vec::new(), Decision::devices);
    let accepted = accepted(&context, &entry.claim, &devices, parent.as_ref(), &pool.leases);
    Ok(Preview { decision, ahead, parent, accepted, context })
}

/// Returns what each device offers to a request now, without a choice among them, and the snapshot.
/// Waiting claims reserve nothing.
///
/// # Errors
/// [`NotGranted::Silent`], [`NotGranted::Foreign`] and [`NotGranted::Failed`].
pub fn offered(
    request: &Request,
    ports: &Ports<'_>,
) -> Result<(Vec<Offer>, ClaimContext), NotGranted> {
    let parent = parent(request, ports)?;
    let chooser = Chooser::new(&request.claim, parent.as_ref());
    let context = chooser.observe(request, ports);
    if let Some(fault) = context.silence() {
        return Err(NotGranted::Silent(fault.clone()));
    }
    let leases = Ledger::read(ports.locks)?.pool(parent.as_ref()).leases;
    let surroundings = ClaimSurroundings { parent: parent.as_ref(), leases: &leases, waiting: &[] };
    Ok((offers(&context, &request.claim, surroundings), context))
}

/// Returns the lease that the caller is within.
///
/// # Errors
/// [`NotGranted::Foreign`] for a lease of another user, unless the caller is root.
fn parent(request: &Request, ports: &Ports<'_>) -> Result<Option<LeaseEntry>, NotGranted> {
    let leases = ports.locks.entries(EntryKind::Lease)?;
    let caller = ports.locks.owner();
    match ancestry::own_lease(ports.host, &leases, Some(&request.root))? {
        Some(lease) if caller != 0 && caller != lease.owner => {
            Err(NotGranted::Foreign(Box::new(lease)))
        }
        lease => Ok(lease),
    }
}

/// Chooses for one request, and caches the results.
struct Chooser<'a> {
    claim: &'a Claim,
    parent: Option<&'a LeaseEntry>,
    /// The waiting claims at the last snapshot.
    waiting: RefCell<Vec<LeaseId>>,
    /// An earlier claim depends on compute capabilities.
    needs_capability: Cell<bool>,
    seen: RefCell<Seen>,
}

/// The last choice and the last refusal.
#[derive(Default)]
struct Seen {
    decision: Option<Decision>,
    refused: Option<Refused>,
}

impl<'a> Chooser<'a> {
    fn new(claim: &'a Claim, parent: Option<&'a LeaseEntry>) -> Self {
        Chooser {
            claim,
            parent,
            waiting: RefCell::default(),
            needs_capability: Cell::new(false),
            seen: RefCell::default(),
        }
    }

    /// Takes a snapshot with the data that this claim and the earlier ones need.
    fn observe(&self, request: &Request, ports: &Ports<'_>) -> ClaimContext {
        let queue = ports.locks.queue().unwrap_or_default();
        self.waiting.replace(queue.into_iter().map(|place| place.id).collect());
        let capability = request.claim.compute_capability.is_some() || self.needs_capability.get();
        ClaimContext::observe(ports, Wants { topology: request.needs_topology, capability })
    }

    fn choose(&self, context: &ClaimContext, claim: &Claim, leases: &[LeaseEntry]) -> Chosen {
        // Compute capabilities are queried from the next snapshot on, once an earlier claim depends
        // on them. Until then, more devices are kept for that claim than it could use.
        if claim.compute_capability.is_some() {
            self.needs_capability.set(true);
        }
        let needs = claim.compute_capability.filter(|_| context.reported.capability);
        let eased = Claim { compute_capability: needs, ..claim.clone() };
        let waiting = self.waiting.borrow();
        let surroundings = ClaimSurroundings { parent: self.parent, leases, waiting: &waiting };
        let own = claim == self.claim;
        match decide(context, &eased, surroundings) {
            Ok(decision) => {
                let devices = uuids(decision.devices().iter());
                if own {
                    self.seen.replace(Seen { decision: Some(decision), refused: None });
                }
                Chosen::Devices(devices)
            }
            Err(refused) => {
                let chosen = match &refused.refusal {
                    Refusal::NotNow { .. } => Chosen::NotNow { could: refused.could() },
                    _ => Chosen::Never,
                };
                if own {
                    self.seen.borrow_mut().refused = Some(refused);
                }
                chosen
            }
        }
    }

    fn refused(&self) -> Option<Refused> {
        self.seen.borrow_mut().refused.take()
    }

    fn grant(
        &self,
        taken: Taken<ClaimContext>,
        parent: Option<LeaseEntry>,
        ports: &Ports<'_>,
    ) -> Grant {
        let Taken { entry, held, held_back, mut context, others } = taken;
        context.snapshot.driver_messages = ask(|| ports.host.driver_messages());
        let devices: Vec<DeviceId> =
            entry.devices.iter().filter_map(|uuid| context.device(uuid)).cloned().collect();
        let decision = self.seen.borrow_mut().decision.take();
        let decision = decision.filter(|decision| decision.devices() == devices);
        let accepted = accepted(&context, &entry.claim, &devices, parent.as_ref(), &others);
        Grant { entry, devices, decision, accepted, parent, context, held, held_back }
    }
}

/// Returns those of the devices with a reason against them that a claim accepts.
fn accepted(
    context: &ClaimContext,
    claim: &Claim,
    devices: &[DeviceId],
    parent: Option<&LeaseEntry>,
    leases: &[LeaseEntry],
) -> Vec<(DeviceId, Bar)> {
    let mut accepted = if claim.accept_used && parent.is_none() {
        outsiders(context, devices, leases)
    } else {
        Vec::new()
    };
    accepted.extend(doubtful(context, devices));
    if claim.share != Share::Whole {
        accepted.extend(not_enforced(context, devices));
    }
    accepted
}

fn uuids<'a>(devices: impl Iterator<Item = &'a DeviceId>) -> Vec<DeviceUuid> {
    devices.filter_map(|id| id.lease_key().ok()).map(Cow::into_owned).collect()
}
