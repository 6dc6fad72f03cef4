//! `gpuws claim`: devices for a script or a shell.

mod asker;
mod hold;
mod preview;
mod release;

use super::mem;
use crate::args::{ClaimArgs, Global};
use crate::claim_request::{self, failure, no_journal};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::queue_status::{Teller, user};
use crate::source::{self, Source};
use crate::terminal::{Line, Screen, progress};
use asker::{asker, described, owned};
use gpu_core::Origin;
use gpu_host::supervise::process_group;
use gpu_machine::{Holder, Keeps};
use gpu_memory_advice::environment::Advice;
use gpu_report::json;
use gpu_report::wording::limit;
use gpu_steward::{Grant, NotGranted, Ports, environment, take};
use hold::{Signals, hold};
use std::ffi::OsString;

pub(crate) fn run(args: &ClaimArgs, global: &Global, screen: &mut Screen) -> Result<Exit, Failure> {
    let done = claim(args, global, screen);
    if let (Err(failure), true, false) = (&done, args.export, global.json) {
        // `eval` of nothing succeeds, and the script would go on without devices of its own.
        let code = failure.exit().code();
        screen.print(&Line::new().plain(format_args!("(exit {code})")))?;
    }
    done
}

fn claim(args: &ClaimArgs, global: &Global, screen: &mut Screen) -> Result<Exit, Failure> {
    if args.hold || args.export || args.release.is_some() {
        claim_request::real_processes(global)?;
    }
    let source = source::open(global)?;
    if let Origin::Simulated(machine) = source.host.origin()
        && (args.hold || args.export)
        && !source.can_end_processes
    {
        // Who asks is nobody there, and the lease would end with nobody's end.
        return Err(claim_request::only_simulated(&machine));
    }
    if args.placeholder {
        placeholder_makes_sense(args, &source)?;
    }
    let locks = source.locks(args.wanted.claims.as_deref())?;
    if let Some(id) = &args.release {
        return release::run(id, &source, &locks, global, screen);
    }
    let root = match args.owner {
        Some(pid) => owned(source.host.process(pid)?)?,
        None => asker(&source, &locks, args)?,
    };
    let wanted =
        claim_request::request(&args.wanted, &source, root.key, described(&root), global.quiet)?;
    if !global.quiet {
        wanted.notes.iter().for_each(|note| progress(note));
    }
    let ports = Ports {
        backend: &*source.backend,
        host: &*source.host,
        clock: &*source.clock,
        journal: &no_journal(),
        locks: &locks,
    };
    if !args.hold && !args.export {
        return preview::show(args, global, screen, &wanted, &ports);
    }
    let signals = Signals::watch()?;
    let group = process_group();
    let mut teller = Teller::new(&wanted.request.claim, group, global.quiet);
    let grant = take(&wanted.request, &ports, &mut |waiting| {
        teller.tell(waiting);
        signals.reported()
    });
    teller.clear();
    let mut grant = match grant {
        Ok(grant) => grant,
        Err(NotGranted::Stopped) => return Ok(signals.end()),
        Err(why) => return Err(failure(&wanted, why)),
    };
    let form = args.wanted.visible.into();
    let mut variables = environment(&grant.entry, form, &grant.scene.snapshot.devices)?;
    if let Some(advice) = bounds(args, &grant) {
        progress(&limit::reported(&advice, args.wanted.mem.unwrap_or_default()));
        variables.extend(gpu_steward::variables(&advice));
    }
    let keeps = Keeps { lease: args.export, contexts: args.placeholder };
    let holder = match args.export || args.placeholder {
        true => Some(Holder::start(&grant, root.key, keeps, &variables)?),
        false => None,
    };
    // There is no job to wait for: with placeholders, safe-gpu sees the devices in use by now.
    if let Some(Err(error)) = grant.held_back.take() {
        let fault = error.fault();
        progress(&format!("safe-gpu users will not see the lease: failed to {fault}"));
    }
    for (device, bar) in &grant.accepted {
        progress(&format!("warning: GPU {}: {}", device.index, claim_request::barred(bar)));
    }
    match global.json {
        true => screen.json(&json::Claimed::of(&grant, &user))?,
        false => reported(screen, args, &variables)?,
    }
    match (args.export, holder) {
        (true, holder) => {
            holder.into_iter().for_each(Holder::leave);
            // The lock is the holder's now: to let go of it here would let go of it there.
            std::mem::forget(grant);
            Ok(Exit::Done)
        }
        // What keeps the contexts ends when this does.
        (false, _holder) => hold(grant, &ports, root.key, &signals),
    }
}

/// Returns what makes the frameworks of this shell's Python keep within the share.
fn bounds(args: &ClaimArgs, grant: &Grant) -> Option<Advice> {
    args.wanted.mem.filter(|_| !args.keep_env)?;
    mem::bounding(&args.keep, None).advice(grant)
}

/// Says what was taken, to a shell or a script.
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

/// Refuses a placeholder that nobody would keep, or that would be on real devices for the sake of
/// simulated ones.
fn placeholder_makes_sense(args: &ClaimArgs, source: &Source) -> Result<(), Failure> {
    let refused = |why: &str| {
        Err(Failure::new(Exit::Usage, "keep a placeholder").with_source(why.to_owned()))
    };
    if !args.hold && !args.export {
        return refused("--placeholder requires --hold or --export");
    }
    if source.host.origin() != Origin::Live {
        return refused("simulated machines have no CUDA; use nvml-sim-process --use instead");
    }
    Ok(())
}
