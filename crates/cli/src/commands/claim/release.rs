//! Gives back what `--hold` or `--export` took.

use crate::args::Global;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::lease_keepers;
use crate::queue_status::owner;
use crate::source::Source;
use crate::terminal::{Line, Screen};
use gpu_core::{
    ActToken, Entry, EntryKind, Groups, LeaseId, Locks, OuterLease, ProcessFault, ProcessInfo,
    Signal,
};
use gpu_host::FileLocks;
use gpu_report::json;
use gpu_report::wording::claims::gpus;
use gpu_steward::LeaseKeepers;
use rustix::process::geteuid;
use std::time::Duration;

/// A holder ends at once; a machine that is busy may let it wait.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(10);

/// So many programs are named.
const NAMED: usize = 4;

/// Ends the programs that keep a lease of the caller, and sees that it is gone.
///
/// # Errors
/// When there is no such lease, it is another's or a run's, others were taken out of it, or it
/// stays.
pub(super) fn run(
    id: &LeaseId,
    source: &Source,
    locks: &FileLocks,
    global: &Global,
    screen: &mut Screen,
) -> Result<Exit, Failure> {
    let refused = |exit| Failure::new(exit, format!("release lease {id}"));
    let caller = geteuid().as_raw();
    let leases = locks.entries(EntryKind::Lease)?;
    let named = || leases.iter().filter(|lease| lease.id == *id);
    let Some(lease) = named().find(|lease| lease.owner == caller) else {
        return Err(match named().next() {
            Some(other) => refused(Exit::NotPermitted)
                .with_source(format!("it belongs to {}", owner(other)))
                .with_hint("only its owner can release it"),
            None => refused(Exit::Usage)
                .with_source("no lease has this ID")
                .with_hint("list leases with: gpuws leases"),
        });
    };
    let outer = OuterLease { id: lease.id.clone(), owner: lease.owner };
    // Anybody can write that a lease lies within this one; its owner and root are believed.
    let is_inner = |inner: &&Entry| {
        inner.within.contains(&outer) && (inner.owner == lease.owner || inner.owner == 0)
    };
    if let Some(inner) = leases.iter().find(is_inner) {
        let why = format!("lease {} of {} is nested in it", inner.id, owner(inner));
        return Err(refused(Exit::TryLater)
            .with_source(why)
            .with_hint("release that one first; gpuws leases shows its process"));
    }
    let keepers = lease_keepers::of(std::slice::from_ref(lease), locks)?.pop();
    let holders = match keepers.unwrap_or(LeaseKeepers::Unseen) {
        LeaseKeepers::Holders(holders) => holders,
        LeaseKeepers::Run(supervisor) => {
            return Err(refused(Exit::Usage)
                .with_source("it belongs to a gpuws run and ends with it")
                .with_hint(format!("kill {supervisor} ends the run")));
        }
        LeaseKeepers::Others(others) => {
            let who = format!(
                "it is kept alive by {}, which was not started by gpuws claim",
                programs(&others)
            );
            return Err(refused(Exit::Usage)
                .with_source(who)
                .with_hint("the lease ends with its last process; check each before ending it"));
        }
        LeaseKeepers::Unseen => {
            return Err(refused(Exit::CannotObserve)
                .with_source("the processes that keep it alive are not visible")
                .with_hint("they may run in another container"));
        }
    };
    let token = ActToken::user_confirmed();
    for holder in &holders {
        match holder.signal(Signal::Term, &token) {
            Err(error) if error.kind() == ProcessFault::Gone.into() => {}
            sent => sent?,
        }
    }
    let start = source.clock.monotonic();
    let is_there = |locks: &FileLocks| -> Result<bool, Failure> {
        let leases = locks.entries(EntryKind::Lease)?;
        Ok(leases.iter().any(|other| other.id == *id && other.owner == caller))
    };
    while is_there(locks)? {
        if source.clock.monotonic().saturating_sub(start) >= PATIENCE {
            return Err(refused(Exit::Deadline)
                .with_source("the process that keeps it alive did not exit when asked")
                .with_hint("check with: gpuws leases"));
        }
        source.clock.sleep(PAUSE);
    }
    if global.json {
        screen.json(&json::Released::of(lease, &source.host.origin()))?;
        return Ok(Exit::Done);
    }
    // The machine is asked for the numbers alone: without a driver the lease is no less gone.
    let machine = gpu_core::look_at_devices(&*source.backend, &*source.host, Groups::NONE);
    let devices = machine.devices.iter().map(|device| device.id());
    let had = devices.filter(|id| id.uuid.as_ref().is_ok_and(|uuid| lease.devices.contains(uuid)));
    let indexes: Vec<u32> = had.map(|id| id.index).collect();
    let what = if indexes.is_empty() { String::new() } else { format!(": {}", gpus(&indexes)) };
    screen.print(&Line::new().plain(format_args!("released lease {id}{what}")))?;
    Ok(Exit::Done)
}

/// `4711 python and 4712 sh`, and how many more.
fn programs(processes: &[ProcessInfo]) -> String {
    let name = |info: &ProcessInfo| format!("{} {}", info.key.pid, info.name);
    let mut names: Vec<String> = processes.iter().take(NAMED).map(name).collect();
    if processes.len() > NAMED {
        names.push(format!("{} more", processes.len() - NAMED));
    }
    match names.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
        None => String::new(),
    }
}
