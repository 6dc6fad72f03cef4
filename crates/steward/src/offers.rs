//! Turns a snapshot and the leases into the devices that a claim can choose from.

use crate::ancestry;
use crate::claim_context::ClaimContext;
use gpu_core::{
    Absent, Bytes, Claim, DeviceId, DeviceProcess, DeviceProcessKind, DeviceState, DeviceUuid,
    ErrorKind, Fault, LeaseEntry, LeaseId, MemoryKind, MergedLeases, Reading, Share,
};
use gpu_placement::{Bar, Offer};
use gpu_reaper::{
    Evidence, Finding, Fitness, User, busy_alone, driver_reserve, logged_errors, silence, unfit,
};

/// The leases and claims around a claim.
#[derive(Clone, Copy, Debug)]
pub struct ClaimSurroundings<'a> {
    /// The lease that the claim is within.
    pub parent: Option<&'a LeaseEntry>,
    /// The leases that compete with it ([`gpu_claim::Ledger::pool`]), and the earlier waiting
    /// claims, each with the devices that are kept for it.
    pub leases: &'a [LeaseEntry],
    /// The waiting ones among them.
    pub waiting: &'a [LeaseId],
}

/// Returns every device as offered to a claim, by index; within a lease, only its devices. A
/// partition is offered only to a claim that names it, so that a job that can have a whole device
/// does not get a part of one. A claim gets a divided device or partitions of it, never both.
///
/// Use by others excludes a device unless the claim accepts it. So does a doubtful device, unless
/// the claim insists on it: its user may know better. Within a lease it does not: the
/// ownership of its devices was settled when the lease was made, and a claim that waited there
/// might wait for itself.
pub fn offers(
    context: &ClaimContext,
    claim: &Claim,
    surroundings: ClaimSurroundings<'_>,
) -> Vec<Offer> {
    let ours = |device: &&DeviceState| match (surroundings.parent, device.id().lease_key()) {
        (None, Ok(key)) => !key.is_partition() || names(claim, &key),
        (None, Err(_)) => true,
        (Some(parent), Ok(key)) => parent.has(&key),
        (Some(_), Err(_)) => false,
    };
    // Every program sees a device that no variable lists.
    let is_listed = |device: &&DeviceState| !device.info.visibility.vendor.is_empty();
    let ours: Vec<&DeviceState> = context.devices().filter(ours).filter(is_listed).collect();
    let vendor = vendor_for(claim, &ours);
    let is_of_vendor = |device: &&DeviceState| vendor == Some(device.info.visibility.vendor);
    let ours = ours.into_iter().filter(is_of_vendor);
    ours.map(|device| offer(context, device, claim, surroundings)).collect()
}

/// Returns the vendor of the devices for a claim: programs use those of one vendor. Without a
/// choice, it is that of the first device that the claim can have.
fn vendor_for<'a>(claim: &'a Claim, ours: &[&DeviceState]) -> Option<&'a str> {
    if let Some(vendor) = &claim.vendor {
        return Some(vendor);
    }
    let may_have = |device: &&&DeviceState| {
        let key = device.id().lease_key();
        key.is_ok_and(|key| {
            (claim.among.is_empty() || claim.among.contains(&key)) && !claim.except.contains(&key)
        })
    };
    let required = ours.iter().find(|device| is_required(claim, device));
    let first = required.or_else(|| ours.iter().find(may_have)).or(ours.first());
    first.map(|device| device.info.visibility.vendor)
}

fn is_required(claim: &Claim, device: &DeviceState) -> bool {
    device.id().lease_key().is_ok_and(|key| claim.required.contains(&key))
}

fn names(claim: &Claim, uuid: &DeviceUuid) -> bool {
    claim.among.contains(uuid) || claim.required.contains(uuid)
}

/// Returns whether a claim selects this device individually: it requires it, or leaves no choice. A
/// range of devices, or a list from a scheduler, does not select each device individually.
fn insists_on(claim: &Claim, uuid: &DeviceUuid) -> bool {
    let no_choice = claim.among.len() <= claim.count as usize;
    claim.required.contains(uuid) || no_choice && claim.among.contains(uuid)
}

fn offer(
    context: &ClaimContext,
    device: &DeviceState,
    claim: &Claim,
    surroundings: ClaimSurroundings<'_>,
) -> Offer {
    let account = Account::of(context, device, surroundings);
    let sample = device.sample.as_ref().map_err(|fault| fault.kind.absent());
    let product = device.details.as_ref().map_err(|fault| fault.kind.absent());
    let key = device.id().lease_key().ok();
    Offer {
        id: device.id().clone(),
        capacity: account.capacity,
        free: account.free,
        room: account.room,
        compute_capability: product.and_then(|details| match &details.product {
            Some(product) => product.compute_capability,
            None => Err(Absent::NotRecorded),
        }),
        shared_with_host: device.memory_source().kind.is_shared_with_host(),
        display: device.info.display_active == Ok(true),
        temperature: sample.and_then(|sample| sample.temperature),
        last_leased: key.and_then(|key| context.last_leased.get(&*key)).copied(),
        bar: bar(context, device, claim, surroundings),
    }
}

/// Why a device is not available: first permanent reasons, then leases, then other use.
fn bar(
    context: &ClaimContext,
    device: &DeviceState,
    claim: &Claim,
    surroundings: ClaimSurroundings<'_>,
) -> Option<Bar> {
    let fault = silence(device).or(device.sample.as_ref().err());
    if let Some(fault) = fault {
        return Some(Bar::Faulty(fault.clone()));
    }
    let Ok(key) = device.id().lease_key() else { return Some(Bar::NameUnknown) };
    let uuid: &DeviceUuid = &key;
    if let Some(defect) = unfit(device)
        && (defect.fitness() == Fitness::Unusable
            || surroundings.parent.is_none() && !insists_on(claim, uuid))
    {
        return Some(Bar::Unfit(defect.to_string()));
    }
    let isolates = device.info.visibility.isolates_partitions;
    let parts = device.partitions.iter().flatten().filter_map(|part| part.uuid.as_ref().ok());
    match is_divided(device) {
        // A claim that names partitions does not get their device as well.
        Ok(true) if isolates || parts.clone().any(|part| names(claim, part)) => {
            return Some(Bar::Partitioned);
        }
        Ok(_) => {}
        Err(fault) => return Some(Bar::Faulty(fault)),
    }
    if isolates && uuid.is_partition() && claim.count > 1 {
        return Some(Bar::PartitionAlone);
    }
    let whole = |claim: &Claim| claim.share == Share::Whole;
    // A lease on the whole device from before it was divided.
    let divided = uuid.is_partition().then(|| context.snapshot.device(device.id())).flatten();
    let divided = divided.and_then(|device| device.id().lease_key().ok());
    let excludes = |entry: &&LeaseEntry| {
        let has = |uuid: &DeviceUuid| entry.has(uuid);
        divided.as_deref().is_some_and(has)
            || parts.clone().any(has)
            || entry.has_whole_or_part_of(uuid)
            || has_hidden_part(context, device, uuid, entry)
            || has(uuid) && (whole(claim) || whole(&entry.claim))
    };
    if let Some(entry) = surroundings.leases.iter().find(excludes) {
        let (id, owner) = (entry.id.clone(), entry.owner);
        return Some(if surroundings.waiting.contains(&id) {
            Bar::Reserved { waiter: id, owner }
        } else {
            Bar::Leased { lease: id, owner }
        });
    }
    if claim.accept_used || surroundings.parent.is_some() {
        None
    } else {
        others(context, device, uuid, surroundings.leases)
    }
}

/// Returns whether a device is divided into partitions.
///
/// # Errors
/// If the device does not report it: then it does not report the users of its parts either.
fn is_divided(device: &DeviceState) -> Result<bool, Fault> {
    let has_parts = device.partitions.iter().flatten().next().is_some();
    match device.info.partitioned {
        Ok(enabled) => Ok(enabled || has_parts),
        Err(_) if has_parts => Ok(true),
        Err(_) if !may_have_mig(device) => Ok(false),
        Err(absent) => Err(Fault {
            kind: ErrorKind::Field(absent),
            text: format!("read its MIG mode: {absent}"),
        }),
    }
}

/// Returns whether a device can be divided: a driver that does not support this divides none.
fn may_have_mig(device: &DeviceState) -> bool {
    !matches!(device.info.partitioned, Err(Absent::NotSupported | Absent::TooOld))
}

/// Returns whether a lease may be on an invisible part of a whole device: the driver did not report
/// the part, or MIG was disabled since.
fn has_hidden_part(
    context: &ClaimContext,
    device: &DeviceState,
    uuid: &DeviceUuid,
    entry: &LeaseEntry,
) -> bool {
    // The key of a partition without a UUID names the whole device.
    let has_uuid = |key: &DeviceUuid| key.is_partition() && key.whole().is_none();
    let is_hidden = |part: &DeviceUuid| has_uuid(part) && context.find(part).is_none();
    let may_be_its = entry.parts_of.is_empty() || entry.parts_of.contains(uuid);
    // The names of merged leases are not known, but how many there are.
    let has_hidden = |merged: &MergedLeases| {
        let parts = context.devices().filter_map(|device| device.id().lease_key().ok());
        let seen = parts.filter(|key| has_uuid(key) && merged.contains(key)).count();
        merged.partition_names() > seen
    };
    !uuid.is_partition()
        && may_be_its
        && may_have_mig(device)
        && (entry.devices.iter().any(is_hidden) || entry.merged.as_deref().is_some_and(has_hidden))
}

/// Returns those of the devices that are in use without a lease, with the user.
pub(crate) fn outsiders(
    context: &ClaimContext,
    devices: &[DeviceId],
    leases: &[LeaseEntry],
) -> Vec<(DeviceId, Bar)> {
    let used = devices.iter().filter_map(|id| {
        let key = id.lease_key().ok()?;
        Some((id.clone(), others(context, context.find(&key)?, &key, leases)?))
    });
    used.collect()
}

/// Returns those of the devices that have a defect, are busy without a known process, or have an
/// error in the kernel log that only a reset clears.
pub(crate) fn doubtful(context: &ClaimContext, devices: &[DeviceId]) -> Vec<(DeviceId, Bar)> {
    let logged = logged_errors(&context.snapshot);
    let error = |id: &DeviceId| {
        let is_its = |finding: &&Finding| {
            // A MIG device is at the address of its GPU.
            finding.devices.iter().any(|of| of.bus.is_ok() && of.bus == id.bus)
        };
        let evidence = &logged.iter().find(is_its)?.evidence;
        Some(Evidence::texts(evidence).join("; "))
    };
    let doubt = |id: &DeviceId| {
        let device = context.find(&*id.lease_key().ok()?)?;
        let busy = || Some(format!("{} busy, but no process uses it", busy_alone(device)?));
        unfit(device).map(|defect| defect.to_string()).or_else(busy).or_else(|| error(id))
    };
    devices.iter().filter_map(|id| Some((id.clone(), Bar::Unfit(doubt(id)?)))).collect()
}

/// Returns the devices on which other programs of the host can take the memory of a lease.
pub(crate) fn not_enforced(
    context: &ClaimContext,
    devices: &[DeviceId],
) -> impl Iterator<Item = (DeviceId, Bar)> {
    let is_shared = |id: &&DeviceId| {
        let device = id.lease_key().ok().and_then(|key| context.find(&key));
        device.is_some_and(|device| device.memory_source().kind.is_shared_with_host())
    };
    devices.iter().filter(is_shared).map(|id| (id.clone(), Bar::NotEnforced))
}

/// Returns the user of a device without a lease.
fn others(
    context: &ClaimContext,
    device: &DeviceState,
    uuid: &DeviceUuid,
    leases: &[LeaseEntry],
) -> Option<Bar> {
    let listed = match &device.processes {
        Ok(listed) => listed,
        Err(fault) => return Some(Bar::UsersUnknown(fault.kind.absent())),
    };
    let outsider = |process: &&DeviceProcess| {
        is_user(context, device, process)
            && ancestry::lease_of(&context.snapshot, process.pid, uuid, leases).is_none()
    };
    if let Some(process) = listed.iter().find(outsider) {
        // In a separate PID namespace, a host PID belongs to another process, or to none.
        let is_host_pid = context.snapshot.sees_host_pids == Ok(false);
        let known = match is_host_pid {
            true => None,
            false => context.snapshot.process(process.pid).ok().map(|info| info.name.clone()),
        };
        let name = known.or_else(|| process.name.clone().ok()).unwrap_or_default();
        return Some(Bar::Outsider { pid: process.pid, is_host_pid, name });
    }
    let unlisted = || {
        unlisted_users(context, device).find_map(|user| {
            ancestry::lease_of(&context.snapshot, user.pid, uuid, leases).is_none().then(|| {
                let info = context.snapshot.process(user.pid).ok();
                let name = info.map(|info| info.name.clone()).unwrap_or_default();
                Bar::Outsider { pid: user.pid, is_host_pid: false, name }
            })
        })
    };
    context.usage.unexplained(device.id()).map(Bar::Unexplained).or_else(unlisted)
}

/// Returns the unlisted users of a device on which their memory cannot be measured: only the files
/// that they hold show them, as far as this user may see those.
fn unlisted_users<'a>(
    context: &'a ClaimContext,
    device: &DeviceState,
) -> impl Iterator<Item = &'a User> {
    let is_measured = device.memory_source().kind.shows_leaks();
    let users = if is_measured { &[] } else { context.usage.on(device.id()) };
    users.iter().filter(|user| user.listed == Ok(false) && user.occupies)
}

/// Returns whether a listed process uses the device for itself. Display servers, monitors and
/// daemons serve others, unless a user may have forged one and it has more memory than such a
/// service needs. In a separate PID namespace, gpuws cannot determine this, and assumes that it
/// does.
pub(crate) fn is_user(
    context: &ClaimContext,
    device: &DeviceState,
    process: &DeviceProcess,
) -> bool {
    let users = context.usage.on(device.id());
    let user = users.iter().find(|user| user.pid == process.pid);
    user.is_none_or(|user| user.occupies)
}

/// The memory of a device, as offered to a claim.
struct Account {
    capacity: Reading<Bytes>,
    free: Reading<Bytes>,
    room: Reading<Bytes>,
}

impl Account {
    fn of(
        context: &ClaimContext,
        device: &DeviceState,
        surroundings: ClaimSurroundings<'_>,
    ) -> Self {
        let unreported =
            |absent| Account { capacity: Err(absent), free: Err(absent), room: Err(absent) };
        let (total, used) = match device.memory_to_grant() {
            Ok(memory) => memory,
            Err(absent) => return unreported(absent),
        };
        let Ok(key) = device.id().lease_key() else { return unreported(Absent::NotFound) };
        let uuid: &DeviceUuid = &key;
        let reserve = reserve(device, total);
        let capacity = total.saturating_sub(reserve);
        let free = total.saturating_sub(used.max(reserve));
        let Some(parent) = surroundings.parent else {
            // All integrated devices share the memory of the host.
            let shares = |of: &DeviceState| of.memory_source().kind.is_integrated();
            let others = context
                .devices()
                .filter(|of| shares(device) && shares(of) && !of.id().same_device(device.id()));
            let (mut taken, mut of_leases) = (Bytes(0), Bytes(0));
            for of in std::iter::once(device).chain(others) {
                let Ok(key) = of.id().lease_key() else { return unreported(Absent::NotFound) };
                taken += self::taken(context, of, &key, surroundings.leases);
                of_leases += used_under(context, of, &key, surroundings.leases);
            }
            // Memory that no lease accounts for is in use nevertheless.
            let of_others = used.saturating_sub(of_leases).saturating_sub(reserve);
            let room = capacity.saturating_sub(taken + of_others);
            return Account { capacity: Ok(capacity), free: Ok(free), room: Ok(room) };
        };
        let own = match parent.claim.share {
            Share::Whole => capacity,
            Share::Memory(share) => capacity.min(share),
        };
        // The memory that the lease uses, apart from the leases that were taken out of it.
        let all = used_under(context, device, uuid, std::slice::from_ref(parent));
        let direct = all.saturating_sub(used_under(context, device, uuid, surroundings.leases));
        let room = own.saturating_sub(taken(context, device, uuid, surroundings.leases) + direct);
        Account { capacity: Ok(own), free: Ok(free.min(own)), room: Ok(room) }
    }
}

/// The reserve of driver and firmware on a device: as reported, and at least the memory in use on
/// an idle device.
fn reserve(device: &DeviceState, total: Bytes) -> Bytes {
    // The host's own use is part of its memory in use.
    if device.memory_source().kind.is_integrated() {
        return Bytes(0);
    }
    let reserved = device.sample.as_ref().ok().and_then(|sample| sample.memory.reserved.ok());
    // The host's driver always occupies its part.
    let host_driver = match (device.memory_source().kind, device.memory_used()) {
        (MemoryKind::VirtualGpu, Ok(used)) => {
            used.saturating_sub(device.memory_listed().unwrap_or(used))
        }
        _ => Bytes(0),
    };
    let draws = device.processes.iter().flatten().any(|process| {
        matches!(process.kind, DeviceProcessKind::Graphics | DeviceProcessKind::ComputeAndGraphics)
    });
    let display = device.info.display_active == Ok(true) || draws;
    driver_reserve(total, display).max(reserved.unwrap_or_default()).max(host_driver)
}

/// The memory of leases and earlier claims on a device: for each its share, or its use if that is
/// more.
fn taken(
    context: &ClaimContext,
    device: &DeviceState,
    uuid: &DeviceUuid,
    leases: &[LeaseEntry],
) -> Bytes {
    let share = |entry: &LeaseEntry| match entry.claim.share {
        Share::Memory(share) => share,
        // It excludes the device, or the claim takes all that is left.
        Share::Whole => Bytes(0),
    };
    let on_device = leases.iter().filter(|entry| entry.has(uuid));
    on_device.map(|entry| share(entry).max(used_by(context, device, uuid, leases, entry))).sum()
}

/// The memory listed for processes under any of these leases.
fn used_under(
    context: &ClaimContext,
    device: &DeviceState,
    uuid: &DeviceUuid,
    leases: &[LeaseEntry],
) -> Bytes {
    leases.iter().map(|entry| used_by(context, device, uuid, leases, entry)).sum()
}

/// The memory listed for processes under one of these leases.
fn used_by(
    context: &ClaimContext,
    device: &DeviceState,
    uuid: &DeviceUuid,
    leases: &[LeaseEntry],
    lease: &LeaseEntry,
) -> Bytes {
    let of_lease = |process: &&DeviceProcess| {
        ancestry::lease_of(&context.snapshot, process.pid, uuid, leases)
            .is_some_and(|entry| entry.id == lease.id)
    };
    let listed = device.processes.iter().flatten().filter(of_lease);
    listed.filter_map(|process| process.memory.ok()).sum()
}
