//! The request, the messages and the errors that `run` and `claim` share.

use crate::args::{Global, RequestArgs};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::queue_status::{owner, user};
use crate::source::Source;
use crate::wording;
use gpu_core::{
    Claim, DeviceId, DeviceUuid, ErrorKind, Groups, Inventory, LeaseEntry, NoJournal, ProcessKey,
    Share,
};
use gpu_placement::{Bar, Passed, Refusal};
use gpu_report::wording::claims::{self, wait_reason_text};
use gpu_steward::{
    Grant, NamedDevices, NarrowError, NotGranted, Refused, Request, Standing, Wait, narrowed,
};
use std::cell::OnceCell;

/// A claim request, and what limits it.
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
        accept_used: args.accept_used,
        ..Claim::whole(args.count)
    };
    let inventory = OnceCell::new();
    let machine = || -> &Inventory {
        inventory.get_or_init(|| {
            gpu_core::look_at_devices(&*source.backend, &*source.host, Groups::NONE)
        })
    };
    let named = NamedDevices {
        among: &args.gpu,
        except: &args.except,
        required: &args.required,
        mig: args.mig,
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
        pace: crate::queue_status::pace(quiet),
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
            NarrowError::NoMig => Failure::new(Exit::Usage, what).with_hint(
                "create MIG instances as root with nvidia-smi mig -cgi …; gpuws status lists them",
            ),
            NarrowError::NoUuid { why, .. } => {
                Failure::new(Exit::CannotObserve, what).with_source(why.to_string())
            }
            NarrowError::NothingLeft(_) => Failure::new(Exit::Usage, what).with_hint(
                "gpuws uses only GPUs in the inherited list; unset the variable with env -u to lift this",
            ),
        }
    }
}

/// Describes why a device is not available now.
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
    let product = wording::product_of(&grant.scene.snapshot, &grant.devices);
    match &grant.decision {
        Some(decision) => claims::chosen(decision, product.as_deref()),
        None => claims::granted(&grant.devices.iter().collect::<Vec<_>>(), product.as_deref()),
    }
}

/// Converts the reason why nothing was granted to a failure with a hint.
pub(crate) fn failure(prepared: &PreparedClaim, why: NotGranted) -> Failure {
    let request = &prepared.request;
    let what = || {
        let count = wording::count(request.claim.count as usize, "GPU", "GPUs");
        match request.claim.share {
            Share::Whole => format!("claim {count}"),
            Share::Memory(bytes) => format!("claim {bytes} of {count}"),
        }
    };
    match why {
        NotGranted::NotNow { waited, standing, refused } => {
            let Standing { ahead, leases, wait_reason } = *standing;
            let mut reasons = refused
                .as_ref()
                .map_or(Vec::new(), |refused| reasons(refused.passed(), prepared.limited_by));
            if let Some(nearest) = &ahead.nearest {
                let others = wording::count(ahead.count, "claim waits", "claims wait");
                reasons.insert(0, format!("{others} already, the last from {}", owner(nearest)));
            }
            reasons.splice(0..0, wait_reason.iter().map(wait_reason_text));
            if reasons.is_empty() {
                let holders: Vec<String> = leases.iter().map(owner).collect();
                reasons.push(format!("leased by {}", holders.join(", ")));
            }
            let source = match waited {
                true => format!("not available within the timeout; {}", reasons.join("; ")),
                false => format!("not available now; {}", reasons.join("; ")),
            };
            // Leases do not show who uses a device without one.
            let command = match &refused {
                Some(refused) if claims::is_used_without_lease(refused) => "gpuws status",
                _ => "gpuws leases",
            };
            let hint = match waited {
                true => format!("see holders and waiting claims with: {command}"),
                false => format!("omit --no-wait to wait; see holders with: {command}"),
            };
            Failure::new(Exit::TryLater, what()).with_source(source).with_hint(hint)
        }
        NotGranted::Never(refused) => {
            never(Failure::new(Exit::Usage, what()), refused.as_ref(), prepared)
        }
        NotGranted::Foreign(lease) => {
            let whose = owner(&lease);
            let why = format!(
                "already inside lease {} of {whose}, which only its owner can subdivide",
                lease.id
            );
            let hint = "run the command without gpuws; it already has the GPUs of that lease";
            Failure::new(Exit::Usage, what()).with_source(why).with_hint(hint)
        }
        NotGranted::Silent(fault) => gpu_core::Error::new(fault.kind, fault.text).into(),
        NotGranted::Stopped => {
            Failure::new(Exit::Remains, what()).with_source("interrupted; nothing was claimed")
        }
        NotGranted::Failed(error) if error.kind() == ErrorKind::TimedOut => {
            Failure::from(error).ending(Exit::TryLater)
        }
        NotGranted::Failed(error) => error.into(),
    }
}

/// Describes why a claim can never be granted, and what limits it: a lease, a device list, or the
/// machine.
fn never(failure: Failure, refused: Option<&Refused>, prepared: &PreparedClaim) -> Failure {
    let claim = &prepared.request.claim;
    let Some(refused) = refused else {
        return failure.with_source("the enclosing lease has fewer GPUs");
    };
    let is_relevant = |why: &Passed| why.is_lasting() && *why != Passed::NotAmong;
    let reasons =
        reasons(refused.passed().filter(|(_, why)| is_relevant(why)), prepared.limited_by);
    let reasons = match reasons.is_empty() {
        true => String::new(),
        false => format!("; {}", reasons.join("; ")),
    };
    match &refused.refusal {
        Refusal::Never { could, .. } if *could >= claim.count => {
            failure.with_source(format!("a GPU named by --with is not available{reasons}"))
        }
        Refusal::Never { could, .. } => {
            let limit = match (&refused.within, prepared.limited_by, claim.among.is_empty()) {
                (Some(lease), ..) => format!("the enclosing lease {lease}"),
                (None, Some(by), _) => by.to_owned(),
                (None, None, false) if claim.among.iter().any(DeviceUuid::is_mig) => {
                    "the choice of MIG devices".to_owned()
                }
                (None, None, false) => "--gpu".to_owned(),
                (None, None, true) => "this machine".to_owned(),
            };
            let failure = failure.with_source(format!("{limit} can provide only {could}{reasons}"));
            let hint = claims::what_is_possible(refused, *could, prepared.limited_by);
            hint.into_iter().fold(failure, Failure::with_hint)
        }
        Refusal::Missing(uuid) => failure.with_source(match &refused.within {
            Some(lease) => format!("{uuid} is not in the enclosing lease {lease}"),
            None => format!("no such GPU: {uuid}"),
        }),
        Refusal::Contradictory => failure.with_source("--with names more GPUs than -n requests"),
        Refusal::NotNow { .. } => failure.with_source(format!("cannot be satisfied{reasons}")),
    }
}

/// Returns the owner and the command of an entry: `alice: python train.py`.
pub(crate) fn whose(entry: &LeaseEntry) -> String {
    match entry.command.is_empty() {
        true => owner(entry),
        false => format!("{}: {}", owner(entry), entry.command),
    }
}

/// Rejects `--sim`, which starts no real processes.
///
/// # Errors
/// With `--sim`.
pub(crate) fn real_processes(global: &Global) -> Result<(), Failure> {
    match &global.sim {
        None => Ok(()),
        Some(machine) => Err(only_simulated(&machine.to_string_lossy())),
    }
}

/// Returns the start of a command line that runs jobs on the selected machine, because a simulated
/// one needs real processes.
pub(crate) fn within(global: &Global) -> String {
    let start = |machine| format!("gpuws sim {} --live -- ", crate::wording::path_word(machine));
    global.sim.as_deref().map_or(String::new(), start)
}

/// Returns the failure for a machine without real processes.
pub(crate) fn only_simulated(machine: &str) -> Failure {
    let machine = crate::wording::shell_word(machine);
    Failure::new(Exit::Usage, "run jobs on a simulated machine without real processes")
        .with_hint(format!("use a live simulation: gpuws sim {machine} --live -- gpuws run …"))
}

/// Returns the journal of a command that ends no process.
pub(crate) fn no_journal() -> NoJournal {
    let what = "write an audit log: this command ends no process";
    NoJournal::new(gpu_core::Error::new(ErrorKind::Unsupported, what))
}
