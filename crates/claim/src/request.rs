//! What is asked, what a chooser answers, and how asking ends.

use gpu_core::{Claim, DeviceUuid, Entry, Error, Fault, Held, HeldBack, ProcessKey, Result};
use std::time::Duration;

/// How long to wait for a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Not at all.
    No,
    /// So long at most.
    For(Duration),
    /// Until it comes.
    Ever,
}

/// A claim, and who makes it.
#[derive(Clone, Debug)]
pub struct Ask {
    /// What is asked for.
    pub claim: Claim,
    /// The process whose descendants will use the devices.
    pub root: ProcessKey,
    /// The lease that devices are to be taken out of, as it was found; its owner must be the
    /// caller, or the caller root.
    pub within: Option<Entry>,
    /// The whole devices of the MIG devices that it names ([`Entry::parts_of`]).
    pub parts_of: Vec<DeviceUuid>,
    /// What it is for, in words.
    pub command: String,
    /// How long to wait.
    pub wait: Wait,
    /// How long a wait may go on before whoever watches is asked again. A signal ends it early.
    pub pace: Duration,
    /// Keep every safe-gpu waiting from before the look on, until
    /// [`held_back`](Taken::held_back) is dropped.
    pub beside_safe_gpu: bool,
}

/// What a chooser answers to one claim, with others' leases beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Chosen {
    /// These devices, now.
    Devices(Vec<DeviceUuid>),
    /// Not enough are free.
    NotNow {
        /// Every device that it could use, now or once the leases on it end. No later claim gets
        /// one of them.
        could: Vec<DeviceUuid>,
    },
    /// This machine never has what is asked for.
    Never,
}

/// Devices that were taken.
pub struct Taken<S> {
    /// The lease.
    pub entry: Entry,
    /// Keeps the lease alive; to let go of it is to drop this.
    pub held: Box<dyn Held>,
    /// Every safe-gpu held back, where that was asked for, or why it could not be done.
    pub held_back: Option<Result<Box<dyn HeldBack>>>,
    /// What the look before it told.
    pub scene: S,
    /// The other leases at that moment.
    pub beside: Vec<Entry>,
}

/// The claims that came earlier and wait.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ahead {
    /// How many there are, those included that may have died unnoticed.
    pub count: usize,
    /// The last of them that was read.
    pub nearest: Option<Entry>,
    /// Those that are passed over, since they do not move: their programs are stopped.
    pub stalled: Vec<Entry>,
}

/// Where a claim stands that waits.
#[derive(Clone, Copy, Debug)]
pub struct Waiting<'a> {
    /// Who came earlier and waits as well.
    pub ahead: &'a Ahead,
    /// The leases when they were last read.
    pub leases: &'a [Entry],
    /// How long it has waited.
    pub waited: Duration,
    /// What keeps it from being served, other than those who are ahead.
    pub held_up: Option<&'a HeldUp>,
}

/// Who else can make a claim wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeldUp {
    /// A safe-gpu is at work; the fault names it where it can be seen.
    SafeGpu(Fault),
    /// The driver fails to answer, as while it is loaded anew.
    Driver(Fault),
}

/// Why nothing was taken. Nothing is left of the claim in any of these cases.
#[derive(Debug)]
pub enum TakeError {
    /// Not at once, and it was not to wait.
    NotNow(Box<Standing>),
    /// Not within the time it was to wait.
    TimedOut(Box<Standing>),
    /// This machine never has what was asked for.
    Never,
    /// The one who watched asked to stop.
    Stopped,
    /// A port failed.
    Failed(Error),
}

/// Where a claim stood when it gave up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Who came earlier and waits.
    pub ahead: Ahead,
    /// The leases.
    pub leases: Vec<Entry>,
    /// Who else made it wait at the end.
    pub held_up: Option<HeldUp>,
}

impl From<Error> for TakeError {
    fn from(error: Error) -> Self {
        TakeError::Failed(error)
    }
}
