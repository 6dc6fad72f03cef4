//! The request of `run` and `claim`, and the messages about it.

use super::RequestArgs;
use super::queue_status::pace;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::source::Source;
use crate::users::user;
use crate::wording;
use gpu_core::{Claim, DeviceId, Groups, Inventory, ProcessKey, Share};
use gpu_placement::{Bar, Passed};
use gpu_report::wording::claims;
use gpu_steward::{Grant, NamedDevices, NarrowError, Request, Wait, narrowed};
use std::cell::OnceCell;

/// A claim request, and its limit.
pub(crate) struct PreparedClaim {
    pub(crate) request: Request,
    /// Messages for the user about the request.
    pub(crate) notes: Vec<String>,
    /// The environment variable that limits the request to the devices it names.
    pub(crate) limited_by: Option<&'static str>,
}

/// Builds the request from the command line, limited to the devices of an outer scheduler.
///
/// # Errors
/// When a named device does not exist, the outer scheduler granted none, or the topology is
/// required and unknown.
pub(crate) fn request(
    args: &RequestArgs,
    source: &Source,
    root: ProcessKey,
    command: String,
    quiet: bool,
) -> Result<PreparedClaim, Failure> {
    let claim = Claim {
        share: args.mem.map_or(Share::Whole, Share::Memory),
        free_memory: args.min_free,
        compute_capability: args.capability,
        vendor: args.vendor.clone(),
        accept_used: args.accept_used,
        ..Claim::whole(args.count)
    };
    let inventory = OnceCell::new();
    let machine = || -> &Inventory {
        inventory
            .get_or_init(|| gpu_core::take_inventory(&*source.backend, &*source.host, Groups::NONE))
    };
    let named = NamedDevices {
        among: &args.gpu,
        except: &args.except,
        required: &args.required,
        partitions: args.mig,
    };
    let variable = |name: &str| std::env::var_os(name);
    let gres = || source.slurm_positions();
    let (claim, given) = narrowed(claim, &named, &machine, &variable, &gres)?;
    if args.topology {
        source.backend.topology().map_err(|error| {
            Failure::from(error).ending(Exit::CannotObserve).with_hint("omit --topology")
        })?;
    }
    let mut notes: Vec<String> = given.notes.iter().map(claims::note).collect();
    let named = claim.among.len();
    if !args.gpu.is_empty() && named > claim.count as usize {
        notes.push(format!("claims {} of the {named} named GPUs; -n {named} for all", claim.count));
    }
    let request = Request {
        claim,
        wait: match (args.no_wait, args.timeout) {
            (true, _) => Wait::No,
            (false, Some(time)) => Wait::For(time),
            (false, None) => Wait::Forever,
        },
        pace: pace(quiet),
        needs_topology: args.topology || args.count > 1,
        command,
        root,
    };
    Ok(PreparedClaim { request, notes, limited_by: given.by.filter(|_| given.given.is_some()) })
}

impl From<NarrowError> for Failure {
    fn from(error: NarrowError) -> Self {
        let what = error.to_string();
        match error {
            NarrowError::NoDriver(fault) => gpu_core::Error::new(fault.kind, fault.text).into(),
            NarrowError::Select(error) => error.into(),
            NarrowError::Inherited(error) => Failure::from(error).ending(Exit::Usage),
            NarrowError::NoPartition => Failure::new(Exit::Usage, what).with_hint(
                "create MIG instances as root with nvidia-smi mig -cgi …; gpuws status lists them",
            ),
            NarrowError::NoKey { why, .. } => {
                Failure::new(Exit::CannotObserve, what).with_source(why.to_string())
            }
            NarrowError::NothingLeft(_) => Failure::new(Exit::Usage, what).with_hint(
                "gpuws uses only GPUs in the inherited list; unset the variable with env -u to lift this",
            ),
        }
    }
}

pub(crate) fn barred(bar: &Bar) -> String {
    claims::barred(bar, &user)
}

/// Describes each reason once, with the devices that it applies to; `limit` is the environment
/// variable that limits the claim.
pub(crate) fn reasons<'a>(
    passed_over: impl Iterator<Item = (&'a DeviceId, &'a Passed)>,
    limit: Option<&str>,
) -> Vec<String> {
    claims::reasons(passed_over, &user, limit)
}

/// Describes the granted devices, and why they were chosen.
pub(crate) fn granted(grant: &Grant) -> String {
    let product = wording::product_of(&grant.context.snapshot, &grant.devices);
    match &grant.decision {
        Some(decision) => claims::chosen(decision, product.as_deref()),
        None => claims::granted(&grant.devices.iter().collect::<Vec<_>>(), product.as_deref()),
    }
}
