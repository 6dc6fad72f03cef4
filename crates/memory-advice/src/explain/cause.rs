//! The cause that the figures indicate.

use super::account::{Account, MAX_CONTEXT, approximate};
use super::answer::Cause;
use super::evidence::{MessageSource, OomFigures};
use gpu_core::{Bytes, amount};

/// The minimum memory of an unnamed process: a smaller amount is the driver's own.
const MIN_UNNAMED: Bytes = Bytes::from_mib(64);

/// More memory than any device has.
const ANY_DEVICE: Bytes = Bytes(1 << 40);

/// The fraction of a device, as a divisor, below which free memory counts as negligible.
const FULL: u64 = 20;

/// At least this many processes with at most this much memory each count as contexts.
const MANY: usize = 3;
const CONTEXT: Bytes = Bytes::from_mib(1024);

impl Cause {
    /// Determines the cause.
    pub(super) fn of(shown: &OomFigures, account: &Account) -> Self {
        if shown.went_on {
            return Cause::NoFailure;
        }
        if shown.speaker == MessageSource::Host {
            return Cause::HostMemory;
        }
        if shown.ladder.is_some() {
            return Cause::TakenBefore;
        }
        if shown.needs_at_least.is_some() {
            return Cause::TooBig;
        }
        if shown.needs.zip(shown.limit).is_some_and(|(needs, limit)| needs > limit) {
            return Cause::Limit;
        }
        let Some(asked) = shown.asked else { return Cause::NotTold };
        if shown.total.map_or(asked >= ANY_DEVICE, |total| shown.surely_more(asked, total)) {
            return Cause::LargerThanDevice;
        }
        if shown.left.is_some_and(|left| asked > left) {
            return Cause::Limit;
        }
        if let Some(cause) = of_pool(shown, account, asked) {
            return cause;
        }
        let (Some(free), Some(lacking)) = (shown.free, account.lacking) else {
            let need = account.needed.zip(shown.total);
            let is_more = |(needed, total)| shown.surely_more(needed, total);
            return if need.is_some_and(is_more) { Cause::TooBig } else { Cause::NotTold };
        };
        if lacking == Bytes(0) {
            return Cause::FreeEnough;
        }
        // Adds up only these figures, because the total is printed with less precision.
        let unused = shown.unused.unwrap_or_default();
        if unused > Bytes(0)
            && asked <= free + unused + shown.room_slack
            && !others_hold_most(shown, account)
        {
            return match () {
                () if account.estimates_free(shown) => Cause::NotTold,
                () if is_full(shown, account) => Cause::Full,
                () if has_little_left(shown) => of_device(shown, account),
                () => Cause::Fragmented,
            };
        }
        of_device(shown, account)
    }
}

/// Returns whether the free or cached memory is negligible: less than a twentieth of the device,
/// unless that is above 1 GiB and several times the request.
fn has_little_left(shown: &OomFigures) -> bool {
    let rest = shown.free.unwrap_or_default() + shown.unused.unwrap_or_default();
    let would_serve = |asked: Bytes| rest.0 >= asked.0.saturating_mul(4);
    let is_much = rest >= Bytes::from_mib(1024) && shown.asked.is_some_and(would_serve);
    !is_much && shown.total.is_some_and(|total| rest < Bytes(total.0 / FULL))
}

/// Returns whether the program itself fills the device.
fn is_full(shown: &OomFigures, account: &Account) -> bool {
    let own = account.held.unwrap_or_default() + account.context.unwrap_or_default();
    let most = shown.total.map(|total| Bytes(total.0 / 5 * 4));
    shown.free.is_some() && has_little_left(shown) && most.is_some_and(|most| own > most)
}

/// Returns the cause within an allocator that has a limit.
fn of_pool(shown: &OomFigures, account: &Account, asked: Bytes) -> Option<Cause> {
    let limit = shown.limit?;
    let in_use = shown.in_use?;
    let is_pool = matches!(shown.speaker, MessageSource::TensorFlow | MessageSource::Xla);
    let held = account.held? + shown.outside.unwrap_or_default();
    if shown.surely_more(in_use + shown.outside.unwrap_or_default() + asked, limit) {
        // Such a pool is the only memory of the program; any other limit was configured.
        return Some(if is_pool { Cause::TooBig } else { Cause::Limit });
    }
    let unused = shown.unused.unwrap_or_default();
    let in_pieces = shown.largest_free.is_none_or(|largest| largest < asked);
    if is_pool {
        let may_grow = limit.saturating_sub(held);
        return match () {
            () if unused >= asked && in_pieces => Some(Cause::Fragmented),
            // The allocator was below its limit, but the device refused.
            () if unused + may_grow >= asked && may_grow > shown.slack => Some(Cause::Unnamed),
            () => Some(Cause::Fragmented),
        };
    }
    let fits_free = shown.free.is_none_or(|free| free >= asked);
    (fits_free && shown.surely_more(held + asked, limit)).then_some(Cause::Limit)
}

/// Returns whether the other named processes hold most of the device, and their memory would
/// suffice.
fn others_hold_most(shown: &OomFigures, account: &Account) -> bool {
    let (Some(others), Some(total)) = (account.others, shown.total) else { return false };
    let fits_alone = account.needed.is_none_or(|needed| !shown.surely_more(needed, total));
    fits_alone && others > Bytes(total.0 / 2) && account.lacking.is_some_and(|it| it <= others)
}

/// Returns the cause on the device, if neither a free block nor the cache suffices.
fn of_device(shown: &OomFigures, account: &Account) -> Cause {
    let lacking = account.lacking_after_cache.unwrap_or_default();
    let suffices = |there: Bytes| !shown.surely_more(lacking, there);
    if let (Some(needed), Some(total)) = (account.needed, shown.total)
        && shown.surely_more(needed, total)
    {
        return Cause::TooBig;
    }
    let others = account.others.unwrap_or_default();
    let are_small = |shown: &OomFigures| {
        let small = |memory: Option<Bytes>| memory.is_some_and(|memory| memory <= CONTEXT);
        shown.others.len() >= MANY && shown.others.iter().all(|other| small(other.memory))
    };
    // If the memory of this process is unknown, a context explains this much of the rest.
    let explained = if account.context.is_some() { Bytes(0) } else { CONTEXT };
    let unnamed = account.unnamed.unwrap_or_default().saturating_sub(explained);
    let unnamed = if unnamed < MIN_UNNAMED { Bytes(0) } else { unnamed };
    if others > Bytes(0) && suffices(others) {
        if are_small(shown) { Cause::ManyContexts } else { Cause::OtherProcesses }
    } else if (unnamed > Bytes(0) && suffices(others + unnamed))
        || shown.speaker == MessageSource::Vllm
    {
        // vLLM checks before it allocates memory: all used memory belongs to other processes.
        Cause::Unnamed
    } else if is_full(shown, account) {
        Cause::Full
    } else if account.needed.is_some() && account.context.is_some() {
        Cause::TooBig
    } else {
        Cause::NotTold
    }
}

/// Describes a cause with the figures of the message.
pub(super) fn reasons(cause: Cause, shown: &OomFigures, account: &Account) -> Vec<String> {
    let mut reasons = Vec::new();
    let asked = shown.asked.unwrap_or_default();
    let lacking = approximate(account.lacking.unwrap_or_default(), account.lacking_slack);
    let after_cache = match account.lacking_after_cache {
        Some(short) if short > Bytes(0) => approximate(short, account.lacking_slack),
        _ => lacking.clone(),
    };
    match cause {
        Cause::LargerThanDevice => reasons.push(match (shown.total, shown.limit) {
            (None, Some(limit)) => format!(
                "It requested {} in one allocation, more than any GPU has and more than its own \
                 limit of {}; no setting helps.",
                amount(asked),
                amount(limit)
            ),
            (None, None) => format!(
                "It requested {} in one allocation, more than any GPU has; no setting helps.",
                amount(asked)
            ),
            (Some(total), _) => format!(
                "It requested {} in one allocation, more than the {} of the device; no setting \
                    helps.",
                amount(asked),
                amount(total)
            ),
        }),
        Cause::TooBig => too_big(&mut reasons, shown, account, asked),
        Cause::Full => full(&mut reasons, shown, account),
        Cause::BufferLimit | Cause::Disturbed | Cause::ImpossibleFigure => {}
        Cause::Fragmented => fragmented(&mut reasons, shown, account, asked),
        Cause::OtherProcesses if account.itself_among.is_empty() => reasons.push(format!(
            "Short by {after_cache}, which other processes hold: {}.",
            named(shown, account)
        )),
        Cause::OtherProcesses => reasons.push(format!(
            "Short by {after_cache}; the message lists {}.",
            named(shown, account)
        )),
        Cause::ManyContexts => reasons.push(format!(
            "Short by {after_cache}; {} other processes together hold {}, a small amount each, \
                typical of one CUDA context per process.",
            account.strangers(shown),
            amount(account.others.unwrap_or_default())
        )),
        Cause::Unnamed => unnamed(&mut reasons, shown, account),
        Cause::Limit => reasons.push(limit(shown, account, asked)),
        Cause::TakenBefore => ladder(&mut reasons, shown),
        Cause::HostMemory => reasons.push(
            "This is the message of the CPU allocator: host memory ran out, not GPU memory."
                .to_owned(),
        ),
        Cause::NoFailure => reasons.push(
            "The program reports that this is not a failure: it continued without the extra memory."
                .to_owned(),
        ),
        Cause::FreeEnough => reasons.push(format!(
            "{} were free when the message was written, but {} were requested: memory was freed \
                in between, or another limit applies (platform, container, or driver limit for a \
                single allocation).",
            amount(shown.free.unwrap_or_default()),
            amount(asked)
        )),
        Cause::NotTold => reasons.push(unknown(shown, account)),
    }
    let of_cache = matches!(cause, Cause::OtherProcesses | Cause::ManyContexts | Cause::TooBig);
    if of_cache
        && account.lacking.is_some()
        && shown.speaker.is_torch()
        && let Some(unused) = shown.unused
    {
        reasons.push(match unused {
            Bytes(0) => "The cache is empty, so emptying it does not help.".to_owned(),
            unused if account.lacking_after_cache == Some(Bytes(0)) => {
                format!(
                    "The cache has {}, but not contiguous with the free memory.",
                    amount(unused)
                )
            }
            unused => format!(
                "Not fragmentation: {lacking} are missing and the cache has {}.",
                amount(unused)
            ),
        });
    }
    if let (Cause::TooBig, Some(others), []) = (cause, account.others, &account.itself_among[..]) {
        reasons.push(format!(
            "Other processes hold {}: {}.",
            amount(others),
            named(shown, account)
        ));
    }
    if let Some(pools) = shown.private_pools.filter(|pools| *pools > Bytes(0)) {
        reasons.push(format!(
            "{} of the memory in use belong to private pools (CUDA graphs) and cannot serve \
                other requests.",
            amount(pools)
        ));
    }
    reasons.extend(itself(shown, account));
    if account.estimates_free(shown) {
        reasons.push(
            "The free memory is an estimate: the total minus the memory of this process, ignoring \
             the memory of others."
                .to_owned(),
        );
    }
    foreign(&mut reasons, shown);
    reasons
}

/// Explains which listed process is this one.
fn itself(shown: &OomFigures, account: &Account) -> Option<String> {
    let holds = |memory: Bytes| account.held.is_some_and(|held| !shown.surely_more(held, memory));
    let could = shown.others.iter().filter(|other| other.memory.is_some_and(holds)).count();
    Some(match (account.itself, &account.itself_among[..]) {
        (Some(itself), _) if could > 1 => format!(
            "Process {} is most likely this process, under its PID outside the container: the \
             device cannot hold all of them and one more, and only this one matches the size of \
             the memory that this allocator holds.",
            itself.pid
        ),
        (Some(itself), _) => format!(
            "Process {} is this process, under its PID outside the container: the device cannot \
             hold both.",
            itself.pid
        ),
        (None, []) => return None,
        (None, several) => {
            let pids: Vec<String> =
                several.iter().take(8).map(|other| other.pid.to_string()).collect();
            format!(
                "One of the processes {} is this process, under its PID outside the container: \
                 the device cannot hold all of them and one more.",
                pids.join(", ")
            )
        }
    })
}

/// Returns the explanation of a cause that the message states.
pub(super) fn stated(reason: &str, shown: &OomFigures) -> Vec<String> {
    let mut reasons = vec![reason.to_owned()];
    foreign(&mut reasons, shown);
    reasons
}

fn foreign(reasons: &mut Vec<String>, shown: &OomFigures) {
    if !shown.may_be_nvidia() {
        reasons.push("Not an NVIDIA device: gpuws has only this message to go by.".to_owned());
    }
}

/// Describes the memory of a process outside its allocator: `300 MiB context`, or more if a context
/// cannot account for it.
fn outside(account: &Account) -> Option<String> {
    let context = account.context.filter(|context| *context > Bytes(0))?;
    let size = approximate(context, account.slack);
    Some(if context <= MAX_CONTEXT {
        format!("{size} context")
    } else {
        format!("{size} of this process outside its allocator")
    })
}

fn full(reasons: &mut Vec<String>, shown: &OomFigures, account: &Account) {
    let unused = shown.unused.unwrap_or_default();
    let (free, total) = (shown.free.unwrap_or_default(), shown.total.unwrap_or_default());
    reasons.push(format!(
        "{} free and {} cached are {:.1} % of the device: neither emptying the cache nor less \
         fragmentation would help much.",
        amount(free),
        amount(unused),
        (free + unused).0 as f64 * 100.0 / (total.0 as f64).max(1.0)
    ));
    if account.context.is_some_and(|context| context > MAX_CONTEXT) {
        reasons.extend(outside(account).map(|outside| {
            format!(
                "{outside}: its context, and an engine, library or second framework that \
                 allocates its own memory."
            )
        }));
    }
}

/// `2006998 (256 MiB)`.
fn named(shown: &OomFigures, account: &Account) -> String {
    let others = shown.others.iter().filter(|other| Some(**other) != account.itself);
    let words: Vec<String> = others
        .take(8)
        .map(|other| match other.memory {
            Some(memory) => format!("PID {} {}", other.pid, amount(memory)),
            None => format!("PID {}", other.pid),
        })
        .collect();
    words.join(", ")
}

fn too_big(reasons: &mut Vec<String>, shown: &OomFigures, account: &Account, asked: Bytes) {
    if let Some(least) = shown.needs_at_least {
        reasons.push(format!(
            "The compiled program needs at least {}; the compiler could not reduce it further.",
            amount(least)
        ));
        return;
    }
    let pool = shown.limit.filter(|_| !shown.speaker.is_torch());
    match (shown.in_use, pool, shown.total, account.needed) {
        (Some(in_use), Some(limit), ..) => reasons.push(format!(
            "Too big: {} in use plus {} requested is {}, above the allocator limit of {}.",
            amount(in_use),
            amount(asked),
            amount(in_use + asked),
            amount(limit)
        )),
        (Some(in_use), None, Some(total), Some(needed)) if shown.surely_more(needed, total) => {
            let context =
                outside(account).map_or(String::new(), |outside| format!(" plus {outside}"));
            reasons.push(format!(
                "Too big: {} in use plus {} requested{context} is {}; the device has {}.",
                amount(in_use),
                amount(asked),
                amount(needed),
                amount(total)
            ));
        }
        _ => reasons.push(format!(
            "Too big: short by {}, more than any process named in the message holds.",
            approximate(account.lacking_after_cache.unwrap_or_default(), account.lacking_slack)
        )),
    }
}

fn fragmented(reasons: &mut Vec<String>, shown: &OomFigures, account: &Account, asked: Bytes) {
    let unused = shown.unused.unwrap_or_default();
    match (shown.free, account.lacking) {
        (Some(free), Some(lacking)) => reasons.push(format!(
            "Fragmented: {} free and {} reserved but unused, not contiguous; short by {}.",
            amount(free),
            amount(unused),
            approximate(lacking, account.lacking_slack)
        )),
        _ => {
            let largest = match shown.largest_free {
                Some(largest) => format!("the largest block has {}", amount(largest)),
                None => "no single block is large enough".to_owned(),
            };
            reasons.push(format!(
                "Fragmented: {} of the allocator's memory is unused, but the request needs {} in \
                    one block; {largest}.",
                amount(unused),
                amount(asked)
            ));
        }
    }
}

fn unnamed(reasons: &mut Vec<String>, shown: &OomFigures, account: &Account) {
    let Some(unnamed) = account.unnamed else {
        let held = shown.total.zip(shown.free).map(|(total, free)| total.saturating_sub(free));
        reasons.push(match held {
            Some(held) => format!(
                "{} of the device were in use at startup; the message does not name the processes.",
                amount(held)
            ),
            None => "The allocator was below its limit, but the device was full: other processes \
                     hold the memory."
                .to_owned(),
        });
        return;
    };
    reasons.push(format!(
        "Short by {}; {} of the device is not attributed to any process in the message.",
        approximate(account.lacking_after_cache.unwrap_or_default(), account.lacking_slack),
        approximate(unnamed, account.slack)
    ));
    reasons.push(match account.context {
        Some(_) => "That is a process it could not see, or a ghost.".to_owned(),
        None => "This includes the context of this process and its memory outside this allocator; \
                 the rest belongs to other processes or to a ghost."
            .to_owned(),
    });
}

fn limit(shown: &OomFigures, account: &Account, asked: Bytes) -> String {
    if let (Some(needs), Some(limit)) = (shown.needs, shown.limit) {
        return format!(
            "Limit: with the request it would hold {}, above its limit of {}.",
            amount(needs),
            amount(limit)
        );
    }
    if let Some(left) = shown.left {
        return format!(
            "Limit: it requested {}, but its limit leaves {}.",
            amount(asked),
            amount(left)
        );
    }
    let held = account.held.unwrap_or_default() + shown.outside.unwrap_or_default();
    let limit = shown.limit.unwrap_or_default();
    let free = match shown.free {
        Some(free) => format!(", though {} are free on the device", amount(free)),
        None => String::new(),
    };
    format!(
        "Limit: it holds {} and requested {}; its limit is {}{free}.",
        amount(held),
        amount(asked),
        amount(limit)
    )
}

fn ladder(reasons: &mut Vec<String>, shown: &OomFigures) {
    let Some((first, last, count)) = shown.ladder else { return };
    reasons.push(match count {
        0 | 1 => format!(
            "The driver refused {}: the memory was already in use, by another process or this one.",
            amount(first)
        ),
        _ => format!(
            "It requested {} from the driver and retried {} times with 10 % less, down to {}: \
                the memory was already in use, by another process or this one.",
            amount(first),
            count - 1,
            amount(last)
        ),
    });
}

fn unknown(shown: &OomFigures, account: &Account) -> String {
    match (shown.asked, account.lacking) {
        (Some(_), Some(lacking)) if lacking > Bytes(0) => {
            let lacking = approximate(lacking, account.lacking_slack);
            format!("Short by {lacking}; the message does not name the holders of the rest.")
        }
        (Some(asked), _) => {
            format!("It requested {}; the message has no further figures.", amount(asked))
        }
        (None, _) if shown.backend.as_deref() == Some("nvenc") => {
            "NVENC is out of memory or at its session limit (as on GeForce); the error code is \
                the same for both."
                .to_owned()
        }
        (None, _) => "The message states neither the requested nor the free memory.".to_owned(),
    }
}
