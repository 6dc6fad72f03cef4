//! `gpuws claim`: devices for a script or a shell.

mod args;
mod hold;
pub(crate) mod lease_keepers;
mod preview;
pub(crate) mod queue_status;
pub(crate) mod refused;
mod release;
pub(crate) mod request;
mod request_args;
mod root_process;

pub(crate) use args::{ClaimArgs, ClaimFormat};
pub(crate) use request_args::RequestArgs;

use super::mem;
use crate::args::Global;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::source::{self, Source};
use crate::terminal::{Line, Screen, progress};
use crate::users::user;
use gpu_core::Origin;
use gpu_host::supervise::process_group;
use gpu_machine::{Holder, Keeps, placeholder};
use gpu_memory_advice::environment::Advice;
use gpu_report::json;
use gpu_report::wording::limit;
use gpu_steward::{Grant, NotGranted, cdi_names, take, waits_for_own_lease};
use hold::{Signals, hold};
use queue_status::QueueStatus;
use refused::failure;
use root_process::{check_root, default_root, described};
use std::ffi::OsString;

pub(crate) fn run(args: &ClaimArgs, global: &Global, screen: &mut Screen) -> Result<Exit, Failure> {
    let done = claim(args, global, screen);
    let is_evaluated = args.export && args.format == ClaimFormat::Shell;
    if let (Err(failure), true, false) = (&done, is_evaluated, global.json) {
        // `eval` of an empty string succeeds, and the script would continue without its devices.
        let code = failure.exit().code();
        screen.print(&Line::new().plain(format_args!("(exit {code})")))?;
    }
    done
}

fn claim(args: &ClaimArgs, global: &Global, screen: &mut Screen) -> Result<Exit, Failure> {
    if args.hold || args.export || args.release.is_some() {
        source::real_processes(global)?;
    }
    if args.format == ClaimFormat::Cdi && (global.json || !(args.hold || args.export)) {
        return Err(Failure::new(Exit::Usage, "name the GPUs for containers")
            .with_source("--format cdi requires --hold or --export, and no --json")
            .with_hint("podman run --device \"$(gpuws claim --export --format cdi)\" IMAGE"));
    }
    let source = source::open(global)?;
    if let Origin::Simulated(machine) = source.host.origin()
        && (args.hold || args.export)
        && !source.can_end_processes
    {
        // The simulated caller is not a real process, so the lease would never end.
        return Err(source::only_simulated(&machine));
    }
    if args.placeholder {
        check_placeholder(args, &source)?;
    }
    let locks = source.lease_store(args.request.claims.as_deref())?;
    if let Some(id) = &args.release {
        return release::run(id, &source, &locks, global, screen);
    }
    let root = match args.owner {
        Some(pid) => check_root(source.host.process(pid)?)?,
        None => default_root(&source, &locks, args)?,
    };
    let prepared =
        request::request(&args.request, &source, root.key, described(&root), global.quiet)?;
    if !global.quiet {
        prepared.notes.iter().for_each(|note| progress(note));
    }
    let ports = source.claim_ports(&locks);
    if !args.hold && !args.export {
        return preview::show(args, global, screen, &prepared, &ports);
    }
    if let Some(lease) =
        waits_for_own_lease(&prepared.request, &ports).map_err(|why| failure(&prepared, why))?
    {
        return Err(root_process::waits_for_itself(&root, &lease.id));
    }
    let signals = Signals::watch()?;
    let group = process_group();
    let preview = args.request.preview();
    let mut status = QueueStatus::new(&prepared.request.claim, preview, group, global.quiet);
    let grant = take(&prepared.request, &ports, &mut |waiting| {
        status.show(waiting);
        signals.reported()
    });
    status.clear();
    let mut grant = match grant {
        Ok(grant) => grant,
        Err(NotGranted::Stopped) => return Ok(signals.end()),
        Err(why) => return Err(failure(&prepared, why)),
    };
    let mut variables =
        grant.environment(args.request.visible.into(), &gpu_machine::own_variable)?;
    let names = match args.format {
        ClaimFormat::Cdi => cdi_names(&grant.entry, &grant.context.snapshot.devices)?,
        ClaimFormat::Shell => Vec::new(),
    };
    if let Some(advice) = bounds(args, &grant) {
        progress(&limit::reported(&advice, args.request.mem.unwrap_or_default()));
        variables.extend(gpu_steward::variables(&advice));
    }
    let keeps = Keeps { lease: args.export, contexts: args.placeholder };
    let holder = if args.export || args.placeholder {
        Some(Holder::start(&grant, root.key, keeps, &variables)?)
    } else {
        None
    };
    if let Some(Err(error)) = &grant.held_back {
        let fault = error.fault();
        progress(&format!("safe-gpu users will not see the lease: failed to {fault}"));
    }
    // With --placeholder, safe-gpu sees the devices in use now.
    if args.export || args.placeholder {
        grant.held_back = None;
    }
    for (device, bar) in &grant.accepted {
        progress(&format!("warning: GPU {}: {}", device.index, request::barred(bar)));
    }
    match global.json {
        true => screen.json(&json::Claimed::of(&grant, &user))?,
        false if args.format == ClaimFormat::Cdi => {
            names.iter().try_for_each(|name| screen.print(&Line::new().plain(name)))?;
        }
        false => reported(screen, args, &variables)?,
    }
    match (args.export, holder) {
        (true, holder) => {
            holder.into_iter().for_each(Holder::detach);
            // The holder has the lock now; dropping the guard here would release it.
            std::mem::forget(grant);
            Ok(Exit::Done)
        }
        // The process that keeps the contexts ends when this one ends.
        (false, holder) => {
            let own = source.host.own_ancestry()?.first().copied();
            let stand_in = own.filter(|_| holder.is_none());
            let stand_in = stand_in.map(|own| placeholder(own, source.session()));
            hold(grant, &ports, root.key, &signals, stand_in.as_ref())
        }
    }
}

/// Returns the settings that keep the frameworks of this environment within the share.
fn bounds(args: &ClaimArgs, grant: &Grant) -> Option<Advice> {
    args.request.mem.filter(|_| !args.keep_env)?;
    mem::bounding(&args.keep, None).advice(grant)
}

/// Prints the variables for a shell or a script.
fn reported(
    screen: &mut Screen,
    args: &ClaimArgs,
    variables: &[(OsString, OsString)],
) -> Result<(), Failure> {
    for (name, value) in variables {
        let (name, value) = (name.to_string_lossy(), value.to_string_lossy());
        let value = crate::wording::shell_word(&value);
        let export = if args.export { "export " } else { "" };
        screen.print(&Line::new().plain(format_args!("{export}{name}={value}")))?;
    }
    Ok(())
}

/// Rejects a placeholder that no process would keep, and one for a simulated device, which would
/// occupy a real one.
fn check_placeholder(args: &ClaimArgs, source: &Source) -> Result<(), Failure> {
    let refused = |why: &str| {
        Err(Failure::new(Exit::Usage, "keep a placeholder").with_source(why.to_owned()))
    };
    if !args.hold && !args.export {
        return refused("--placeholder requires --hold or --export");
    }
    if source.host.origin() != Origin::Live {
        return refused("simulated machines have no CUDA; use nvml-sim-process --use instead");
    }
    Failure::unless_built("gpuws claim --placeholder")
}
