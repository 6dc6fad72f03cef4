//! The supervisor of an isolated job ([`Isolated`](gpu_steward::Isolated)), as a part of a program
//! that opens this machine.

use crate::{MachineError, Options, Served, Source, own_variable, roots};
use gpu_core::{ActToken, Error, ErrorKind};
use gpu_host::supervise::{LinuxLauncher, ReexecRole, Successor, SupervisorOrder};
use gpu_steward::{Ports, supervise, take_over};
use std::ops::ControlFlow;
use std::time::Duration;

/// The time from SIGTERM to SIGKILL for the processes of a job whose supervisor was killed.
const GRACE: Duration = Duration::from_secs(10);

/// Supervises an isolated job if this process was started for that, and returns when no process of
/// the job is left; otherwise returns `None`. `token` permits ending the processes of that job.
pub fn supervise_if_requested(token: impl FnOnce() -> ActToken) -> Option<Served> {
    let served = match ReexecRole::find(&roots(), std::env::args_os().skip(1)) {
        Ok(None) => return None,
        Ok(Some(ReexecRole::Over)) => Ok(Served::Done),
        Ok(Some(ReexecRole::Supervisor(asked))) => {
            gpu_host::raise_open_file_limit();
            supervised(asked, &token())
        }
        Ok(Some(ReexecRole::Successor(successor))) => inherited(&successor, &token()),
        Err(error) if error.kind() == ErrorKind::Invalid => return Some(Served::Misused),
        Err(error) => Err(error.into()),
    };
    Some(served.unwrap_or(Served::Failed))
}

/// Runs a job and sends its report.
fn supervised(asked: SupervisorOrder, token: &ActToken) -> Result<Served, MachineError> {
    let launcher = LinuxLauncher::new(&roots(), Some(asked.front))?;
    let mut stop = || launcher.asked().is_some() || launcher.is_abandoned().unwrap_or(false);
    let report = Source::open(&Options::this_machine()).and_then(|source| {
        let (journal, locks) = (source.journal_if_any().0, source.lease_store(None)?);
        let ports = Ports { journal: &*journal, ..source.claim_ports(&locks) };
        Ok(supervise(
            &asked.order,
            &asked.result,
            &ports,
            &launcher,
            token,
            own_variable,
            &mut stop,
        )?)
    });
    let report = match report {
        Ok(report) => report,
        Err(error) => gpu_steward::not_started(&error.into_error())?,
    };
    // A caller that is gone reads no report.
    let _ = asked.report(&report);
    Ok(Served::Done)
}

/// Ends the processes that a killed supervisor has left.
fn inherited(successor: &Successor, token: &ActToken) -> Result<Served, MachineError> {
    let Some(mut orphans) = successor.orphans()? else { return Ok(Served::Failed) };
    let source = Source::open(&Options::this_machine())?;
    let (journal, _) = source.journal_if_any();
    let own = source.host.own_ancestry()?.first().copied();
    let own = own.ok_or_else(|| Error::new(ErrorKind::Invalid, "find this process"))?;
    let ports = source.ports(&*journal);
    let mut watch = |_: gpu_reaper::Event<'_>| ControlFlow::Continue(());
    let _ = take_over(&mut orphans, own, ports, token, GRACE, &mut watch);
    // The caller sees that there is no result.
    Ok(Served::Failed)
}
