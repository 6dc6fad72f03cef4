//! The memory that layers may use.

use crate::args::Global;
use crate::commands::claim::request::barred;
use crate::commands::place::PlaceModelArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::source::{self, Source};
use gpu_core::{Bytes, Claim, Groups, Inventory, Origin, Rates, Share, Topology};
use gpu_model::split::{Room, Rooms};
use gpu_placement::Offer;
use gpu_steward::{NamedDevices, NotGranted, Request, Wait, narrowed, offered};
use std::cell::OnceCell;
use std::time::Duration;

/// The rooms for a model, and their machine.
#[derive(Default)]
pub(super) struct Machine {
    pub(super) rooms: Rooms,
    pub(super) name: Option<String>,
    /// Unavailable GPUs, with the reasons.
    pub(super) unavailable: Vec<String>,
}

impl Machine {
    /// Returns rooms of the given sizes, or else the current rooms of the selected machine's GPUs:
    /// without leased GPUs, and without the memory of shares and other processes.
    ///
    /// # Errors
    /// If the machine cannot be queried, or a named GPU does not exist.
    pub(super) fn select(args: &PlaceModelArgs, global: &Global) -> Result<Machine, Failure> {
        let mut machine = if args.memory.is_empty() {
            Machine::now(args, global)?
        } else {
            let room = |(at, size): (usize, &Bytes)| gpu(at, *size, args.margin);
            let rooms = args.memory.iter().enumerate().map(room).collect();
            Machine { rooms: Rooms::new(rooms), ..Machine::default() }
        };
        if let Some(size) = args.host_memory {
            machine.rooms.rooms.push(Room::cpu(size));
        }
        Ok(machine)
    }

    fn now(args: &PlaceModelArgs, global: &Global) -> Result<Machine, Failure> {
        let source = source::open(global)?;
        let (offers, topology) = offers(args, &source)?;
        let name = match source.host.origin() {
            Origin::Simulated(name) => Some(name),
            _ => None,
        };
        let mut machine = Machine { name, ..Machine::default() };
        let mut devices = Vec::new();
        for offer in offers {
            let index = offer.id.index as usize;
            match (&offer.bar, offer.room) {
                (Some(bar), _) => {
                    machine.unavailable.push(format!("GPU {index}: {}", barred(bar)));
                }
                (None, Err(absent)) => {
                    machine.unavailable.push(format!("GPU {index}: free memory: {absent}"));
                }
                (None, Ok(room)) => {
                    let details = source.backend.details(&offer.id, Groups::PEAKS);
                    let room = gpu(index, room, args.margin).shared(offer.shared_with_host);
                    machine.rooms.rooms.push(room.as_fast_as(&details.unwrap_or_default()));
                    devices.push(index);
                }
            }
        }
        if let Some(topology) = topology {
            let rates = Rates::default();
            let route = |from: &usize, to: &usize| rates.between(&topology, *from, *to);
            let row = |from| devices.iter().map(|to| route(from, to)).collect();
            machine.rooms.routes = devices.iter().map(row).collect();
        }
        Ok(machine)
    }
}

/// Returns the room of a GPU, without the memory that stays free.
fn gpu(index: usize, free: Bytes, margin: Bytes) -> Room {
    Room::gpu(format!("GPU {index}"), free.saturating_sub(margin))
}

/// Returns the offers of the GPUs to a job that shares them, and their connections, if known.
fn offers(
    args: &PlaceModelArgs,
    source: &Source,
) -> Result<(Vec<Offer>, Option<Topology>), Failure> {
    let locks = source.lease_store(args.claims.as_deref())?;
    let ports = source.claim_ports(&locks);
    let inventory = OnceCell::new();
    let machine = || -> &Inventory {
        inventory
            .get_or_init(|| gpu_core::take_inventory(&*source.backend, &*source.host, Groups::NONE))
    };
    let named = NamedDevices { among: &args.gpu, except: &[], required: &[], partitions: false };
    let shared =
        Claim { share: Share::Memory(Bytes(1)), accept_used: args.accept_used, ..Claim::whole(1) };
    let variable = |name: &str| std::env::var_os(name);
    let gres = || source.slurm_positions();
    let (claim, _) = narrowed(shared, &named, &machine, &variable, &gres)?;
    let among = claim.among.clone();
    let root = source.host.own_ancestry()?.first().copied();
    let root =
        root.ok_or_else(|| Failure::new(Exit::CannotObserve, "find the process of gpuws"))?;
    let request = Request {
        claim,
        wait: Wait::No,
        pace: Duration::ZERO,
        needs_topology: true,
        command: String::new(),
        root,
    };
    let (mut offers, context) = offered(&request, &ports).map_err(refused)?;
    offers.retain(|offer| {
        among.is_empty() || offer.id.uuid.as_ref().is_ok_and(|uuid| among.contains(uuid))
    });
    Ok((offers, context.topology))
}

fn refused(why: NotGranted) -> Failure {
    match why {
        NotGranted::Silent(fault) => Failure::from(gpu_core::Error::new(fault.kind, fault.text))
            .with_hint("--memory 24GiB,24GiB plans for GPUs of these sizes"),
        NotGranted::Failed(error) => error.into(),
        other => Failure::new(Exit::CannotObserve, "read the leases").with_source(other),
    }
}
