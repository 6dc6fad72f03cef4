//! `gpuws leases`: leases and waiting claims.

use crate::args::Global;
use crate::commands::claim::lease_keepers;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::source;
use crate::terminal::{Line, Screen};
use crate::users::user;
use crate::wording::{self, path_word};
use clap::Args;
use gpu_core::{DeviceId, DeviceUuid, LeaseEntry};
use gpu_host::FileLeaseStore;
use gpu_report::json;
use gpu_report::wording::claims;
use gpu_steward::{LeaseKeepers, Listed, Listing, Ports, listing};
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct LeasesArgs {
    /// Lease directory to use instead of the system-wide one.
    #[arg(long, value_name = "DIR")]
    pub(crate) claims: Option<PathBuf>,
}

pub(crate) fn run(
    args: &LeasesArgs,
    global: &Global,
    screen: &mut Screen,
) -> Result<Exit, Failure> {
    let source = source::open(global)?;
    let locks = source.lease_store(args.claims.as_deref())?;
    let ports = Ports {
        backend: &*source.backend,
        host: &*source.host,
        clock: &*source.clock,
        journal: &source::no_journal(),
        locks: &locks,
    };
    let listing = listing(&ports)?;
    match global.json {
        true => screen.json(&json::Leases::of(&listing, &user))?,
        false => {
            // The suggested commands use the same directory.
            let dir = args
                .claims
                .as_ref()
                .map_or(String::new(), |dir| format!(" --claims {}", path_word(dir)));
            show(screen, global, &listing, &dir)?;
            if !global.quiet && global.sim.is_none() {
                to_release(screen, &listing, &locks, &dir)?;
            }
        }
    }
    Ok(Exit::Done)
}

/// Prints a line for each lease that its user can release: its devices and the command.
fn to_release(
    screen: &mut Screen,
    listing: &Listing,
    locks: &FileLeaseStore,
    dir: &str,
) -> Result<(), Failure> {
    let leases: Vec<LeaseEntry> =
        listing.leases.iter().map(|leased| leased.entry.clone()).collect();
    // Only advice, so an error is ignored.
    let keepers = lease_keepers::of(&leases, locks).unwrap_or_default();
    let mut is_first = true;
    for (Listed { entry, devices, .. }, keepers) in listing.leases.iter().zip(keepers) {
        if !matches!(keepers, LeaseKeepers::Holders(_)) {
            continue;
        }
        if std::mem::take(&mut is_first) {
            screen.print(&Line::new())?;
        }
        let line = Line::new().plain(format_args!("{}: held by your claim.   ", named(devices)));
        screen.print(&line.accent(format_args!("gpuws claim --release {}{dir}", entry.id)))?;
    }
    Ok(())
}

/// Formats `GPUs 0 and 3`, only those that are visible here.
fn named(devices: &[(DeviceUuid, Option<DeviceId>)]) -> String {
    let mut seen: Vec<&DeviceId> = devices.iter().filter_map(|(_, id)| id.as_ref()).collect();
    seen.sort_unstable_by_key(|id| id.index);
    if seen.is_empty() {
        wording::count(devices.len(), "GPU not visible here", "GPUs not visible here")
    } else {
        claims::named(&seen)
    }
}

fn show(screen: &mut Screen, global: &Global, listing: &Listing, dir: &str) -> Result<(), Failure> {
    let snapshot = &listing.scene.snapshot;
    screen.origin(&snapshot.origin, Line::new().accent(&snapshot.origin), global.quiet)?;
    if listing.leases.is_empty() && listing.queue.is_empty() {
        screen.print(&Line::new().plain("no leases and no waiting claims"))?;
        if !global.quiet {
            let within = source::within(global);
            let run = format!("{within}gpuws run -n 1{dir} -- COMMAND");
            wording::copyable(screen, "to claim GPUs:", &run)?;
        }
        return Ok(());
    }
    let mut paragraphs = wording::leases::listing(listing, screen.room(0), &user);
    if global.quiet && !listing.leases.is_empty() {
        paragraphs.remove(0);
    }
    super::reap::show(screen, paragraphs)
}
