//! Release of a lease that `--hold` or `--export` took.

use super::lease_keepers;
use crate::args::Global;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::source::Source;
use crate::terminal::{Line, Screen};
use crate::users::owner;
use gpu_core::{ActToken, Groups, LeaseEntry, LeaseId, ProcessInfo};
use gpu_host::FileLeaseStore;
use gpu_report::json;
use gpu_report::wording::claims::gpus;
use gpu_steward::{LeaseKeepers, ReleaseError, release};
use rustix::process::geteuid;

/// The maximum number of processes to name.
const NAMED: usize = 4;

/// Ends the processes that keep a lease of the caller, and checks that it is gone.
///
/// # Errors
/// When there is no such lease, it belongs to another user or to a run, it encloses other leases,
/// or it remains.
pub(super) fn run(
    id: &LeaseId,
    source: &Source,
    locks: &FileLeaseStore,
    global: &Global,
    screen: &mut Screen,
) -> Result<Exit, Failure> {
    let keepers = |lease: &LeaseEntry| {
        let found = lease_keepers::of(std::slice::from_ref(lease), locks)?.pop();
        Ok(found.unwrap_or(LeaseKeepers::Unseen))
    };
    let caller = geteuid().as_raw();
    let token = ActToken::user_confirmed();
    let lease = &release(id, caller, locks, &*source.clock, keepers, &token)
        .map_err(|error| failure(id, error))?;
    if global.json {
        screen.json(&json::Released::of(lease, &source.host.origin()))?;
        return Ok(Exit::Done);
    }
    // Only for the device indexes: the lease is released even if no driver answers.
    let machine = gpu_core::take_inventory(&*source.backend, &*source.host, Groups::NONE);
    let devices = machine.devices.iter().map(|device| device.id());
    let had = devices.filter(|id| id.uuid.as_ref().is_ok_and(|uuid| lease.devices.contains(uuid)));
    let indexes: Vec<u32> = had.map(|id| id.index).collect();
    let what = if indexes.is_empty() { String::new() } else { format!(": {}", gpus(&indexes)) };
    screen.print(&Line::new().plain(format_args!("released lease {id}{what}")))?;
    Ok(Exit::Done)
}

fn failure(id: &LeaseId, error: ReleaseError) -> Failure {
    let refused = |exit| Failure::new(exit, format!("release lease {id}"));
    match error {
        ReleaseError::Failed(error) => error.into(),
        ReleaseError::NotOwned(other) => refused(Exit::NotPermitted)
            .with_source(format!("it belongs to {}", owner(&other)))
            .with_hint("only its owner can release it"),
        ReleaseError::NotFound => refused(Exit::Usage)
            .with_source("no lease has this ID")
            .with_hint("list leases with: gpuws leases"),
        ReleaseError::HasInner(inner) => refused(Exit::TryLater)
            .with_source(format!("lease {} of {} is nested in it", inner.id, owner(&inner)))
            .with_hint("release that one first; gpuws leases shows its process"),
        ReleaseError::IsOfRun(supervisor) => refused(Exit::Usage)
            .with_source("it belongs to a gpuws run and ends with it")
            .with_hint(format!("kill {supervisor} ends the run")),
        ReleaseError::KeptByOthers(others) => {
            let who = format!(
                "it is kept alive by {}, which was not started by gpuws claim",
                programs(&others)
            );
            refused(Exit::Usage)
                .with_source(who)
                .with_hint("the lease ends with its last process; check each before ending it")
        }
        ReleaseError::Unseen => refused(Exit::CannotObserve)
            .with_source("the processes that keep it alive are not visible")
            .with_hint("they may run in another container"),
        ReleaseError::StillThere => refused(Exit::Deadline)
            .with_source("the process that keeps it alive did not exit when requested")
            .with_hint("check with: gpuws leases"),
    }
}

/// Formats processes as `4711 python and 4712 sh`, with the number of omitted ones.
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
