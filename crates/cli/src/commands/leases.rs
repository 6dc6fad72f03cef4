//! `gpuws leases`: leases and waiting claims.

use crate::args::{Global, HostArgs};
use crate::commands::claim::lease_keepers;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::source;
use crate::terminal::{Line, Screen};
use crate::users::user;
use crate::wording::{self, path_word};
use clap::Args;
use gpu_report::json;
use gpu_steward::{Listing, listing};
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct LeasesArgs {
    /// Lease directory to use instead of the system-wide one.
    #[arg(long, value_name = "DIR")]
    pub(crate) claims: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) hosts: HostArgs,
}

pub(crate) fn run(
    args: &LeasesArgs,
    global: &Global,
    screen: &mut Screen,
) -> Result<Exit, Failure> {
    if args.hosts.are_given() {
        super::hosts::refuse(&[("--claims", args.claims.is_some())])?;
        return super::hosts::leases(&args.hosts, global, screen);
    }
    let source = source::open(global)?;
    let locks = source.lease_store(args.claims.as_deref())?;
    let ports = source.claim_ports(&locks);
    let listing = listing(&ports)?;
    match global.json {
        true => screen.json(&json::Leases::of(&listing, &user))?,
        false => {
            // The suggested commands use the same directory.
            let dir = args.claims.as_ref().map(|dir| format!(" --claims {}", path_word(dir)));
            let dir = dir.unwrap_or_default();
            show(screen, global, &listing, &dir)?;
            if !global.quiet && global.sim.is_none() {
                let leases = listing.leases.iter().map(|leased| leased.entry.clone());
                // Only advice, so an error is ignored.
                let keepers = lease_keepers::of(&leases.collect::<Vec<_>>(), &locks);
                let keepers = keepers.unwrap_or_default();
                screen.print_all(wording::leases::to_release(&listing, &keepers, &dir))?;
            }
        }
    }
    Ok(Exit::Done)
}

fn show(screen: &mut Screen, global: &Global, listing: &Listing, dir: &str) -> Result<(), Failure> {
    let snapshot = &listing.context.snapshot;
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
