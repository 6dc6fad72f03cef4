//! Which cause the figures point to.

use super::account::Account;
use super::amount::amount;
use super::shown::{Shown, Speaker};
use gpu_core::Bytes;
use serde::Serialize;

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// More was asked than the device has.
    LargerThanDevice,
    /// What is in use and what is asked are together more than there is.
    TooBig,
    /// There is enough in sum, and not in one piece.
    Fragmented,
    /// Other processes hold what lacks.
    OtherProcesses,
    /// Many processes hold little each, as contexts do, and together what lacks.
    ManyContexts,
    /// Somebody whom the message does not name holds what lacks.
    Unnamed,
    /// The allocator's limit, not the device.
    Limit,
    /// The memory was taken before the program began.
    TakenBefore,
    /// It is the memory of the host.
    HostMemory,
    /// The program went on without.
    NoFailure,
    /// Enough was free when the message was written.
    FreeEnough,
    /// The figures do not tell.
    NotTold,
}

/// From so many processes on, with at most so much each, they are contexts.
const MANY: usize = 3;
const CONTEXT: Bytes = Bytes::from_mib(1024);

impl Cause {
    /// Chooses.
    pub(super) fn of(shown: &Shown, account: &Account) -> Self {
        if shown.went_on {
            return Cause::NoFailure;
        }
        if shown.speaker == Speaker::Host {
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
        if shown.total.is_some_and(|total| shown.surely_more(asked, total)) {
            return Cause::LargerThanDevice;
        }
        if shown.left.is_some_and(|left| asked > left) {
            return Cause::Limit;
        }
        if let Some(cause) = of_pool(shown, account, asked) {
            return cause;
        }
        let (Some(free), Some(lacking)) = (shown.free, account.lacking) else {
            return Cause::NotTold;
        };
        if lacking == Bytes(0) {
            return Cause::FreeEnough;
        }
        // Only these figures are in the sum: the total is printed more coarsely.
        let unused = shown.unused.unwrap_or_default();
        if unused > Bytes(0) && asked <= free + unused + shown.room_slack {
            return Cause::Fragmented;
        }
        of_device(shown, account)
    }
}

/// The cause within an allocator that has a limit.
fn of_pool(shown: &Shown, account: &Account, asked: Bytes) -> Option<Cause> {
    let limit = shown.limit?;
    let in_use = shown.in_use?;
    let is_pool = matches!(shown.speaker, Speaker::TensorFlow | Speaker::Xla);
    let held = account.held? + shown.outside.unwrap_or_default();
    if shown.surely_more(in_use + shown.outside.unwrap_or_default() + asked, limit) {
        // Such a pool is all that the program has; another limit was set by somebody.
        return Some(if is_pool { Cause::TooBig } else { Cause::Limit });
    }
    let unused = shown.unused.unwrap_or_default();
    let in_pieces = shown.largest_free.is_none_or(|largest| largest < asked);
    if is_pool {
        let may_grow = limit.saturating_sub(held);
        return match () {
            () if unused >= asked && in_pieces => Some(Cause::Fragmented),
            // It might still have grown, and the device gave nothing more.
            () if unused + may_grow >= asked && may_grow > shown.slack => Some(Cause::Unnamed),
            () => Some(Cause::Fragmented),
        };
    }
    let fits_free = shown.free.is_none_or(|free| free >= asked);
    (fits_free && shown.surely_more(held + asked, limit)).then_some(Cause::Limit)
}

/// The cause on the device, where neither a free block nor the cache suffices.
fn of_device(shown: &Shown, account: &Account) -> Cause {
    let lacking = account.lacking_after_cache.unwrap_or_default();
    let suffices = |there: Bytes| !shown.surely_more(lacking, there);
    if let (Some(needed), Some(total)) = (account.needed, shown.total)
        && shown.surely_more(needed, total)
    {
        return Cause::TooBig;
    }
    let others = account.others.unwrap_or_default();
    let are_small = |shown: &Shown| {
        let small = |memory: Option<Bytes>| memory.is_some_and(|memory| memory <= CONTEXT);
        shown.others.len() >= MANY && shown.others.iter().all(|other| small(other.memory))
    };
    let unnamed = account.unnamed.unwrap_or_default();
    if others > Bytes(0) && suffices(others) {
        if are_small(shown) { Cause::ManyContexts } else { Cause::OtherProcesses }
    } else if (unnamed > Bytes(0) && suffices(others + unnamed)) || shown.speaker == Speaker::Vllm {
        // vLLM looks before it takes anything: whatever is held is somebody else's.
        Cause::Unnamed
    } else if account.needed.is_some() {
        Cause::TooBig
    } else {
        Cause::NotTold
    }
}

/// Says what a cause is in a case, and with which figures.
pub(super) fn reasons(cause: Cause, shown: &Shown, account: &Account) -> Vec<String> {
    let mut said = Vec::new();
    let asked = shown.asked.unwrap_or_default();
    let lacking = amount(account.lacking.unwrap_or_default());
    let after_cache = amount(account.lacking_after_cache.unwrap_or_default());
    let total = shown.total.unwrap_or_default();
    match cause {
        Cause::LargerThanDevice => said.push(format!(
            "It asks for {} at once, more than the {} of the whole device; no setting helps.",
            amount(asked),
            amount(total)
        )),
        Cause::TooBig => too_big(&mut said, shown, account, asked),
        Cause::Fragmented => fragmented(&mut said, shown, account, asked),
        Cause::OtherProcesses => said.push(format!(
            "It lacks {after_cache} that other processes hold: {}.",
            named(shown, account)
        )),
        Cause::ManyContexts => said.push(format!(
            "It lacks {after_cache}; {} other processes hold {} together, little each, as a \
             context per process does.",
            shown.others.len(),
            amount(account.others.unwrap_or_default())
        )),
        Cause::Unnamed => unnamed(&mut said, shown, account),
        Cause::Limit => said.push(limit(shown, account, asked)),
        Cause::TakenBefore => ladder(&mut said, shown),
        Cause::HostMemory => said.push(
            "The wording is that of the allocator for the host's processor: it is memory of the \
             host that ran out, not of a GPU."
                .to_owned(),
        ),
        Cause::NoFailure => said.push(
            "The program says itself that this is no failure: it tried for more memory and went \
             on without."
                .to_owned(),
        ),
        Cause::FreeEnough => said.push(format!(
            "{} were free when the message was written, and it asked for {}: memory came back \
             in between, or something else than the device's memory refuses (a limit of the \
             platform, of the container, or of the driver for one piece).",
            amount(shown.free.unwrap_or_default()),
            amount(asked)
        )),
        Cause::NotTold => said.push(not_told(shown, account)),
    }
    let of_cache = matches!(cause, Cause::OtherProcesses | Cause::ManyContexts | Cause::TooBig);
    if of_cache
        && account.lacking.is_some()
        && shown.speaker.is_torch()
        && let Some(unused) = shown.unused
    {
        said.push(match unused {
            Bytes(0) => "Nothing is cached, so emptying the cache gives nothing.".to_owned(),
            unused => format!(
                "Not fragmentation: of the {lacking} that lack, the cache has {}.",
                amount(unused)
            ),
        });
    }
    if let (Cause::TooBig, Some(others)) = (cause, account.others) {
        said.push(format!("Other processes hold {}: {}.", amount(others), named(shown, account)));
    }
    if let Some(pools) = shown.private_pools.filter(|pools| *pools > Bytes(0)) {
        said.push(format!(
            "{} of what is in use lie in private pools, as of CUDA graphs, which serve nothing \
             else.",
            amount(pools)
        ));
    }
    if let Some(itself) = account.itself {
        said.push(format!(
            "Process {} is this process itself, by its number outside of the container: beside \
             it there is no room for what PyTorch holds.",
            itself.pid
        ));
    }
    if !shown.may_be_nvidia() {
        said.push(
            "It is not an NVIDIA device: gpuws sees no more of it than this message.".to_owned(),
        );
    }
    said
}

/// `2006998 (256 MiB)`.
fn named(shown: &Shown, account: &Account) -> String {
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

fn too_big(said: &mut Vec<String>, shown: &Shown, account: &Account, asked: Bytes) {
    if let Some(least) = shown.needs_at_least {
        said.push(format!(
            "The compiled program needs {} at least; the compiler could not do with less.",
            amount(least)
        ));
        return;
    }
    let pool = shown.limit.filter(|_| !shown.speaker.is_torch());
    match (shown.in_use, pool, shown.total, account.needed) {
        (Some(in_use), Some(limit), ..) => said.push(format!(
            "Too big: {} in use and {} asked are {}, and the allocator may have {}.",
            amount(in_use),
            amount(asked),
            amount(in_use + asked),
            amount(limit)
        )),
        (Some(in_use), None, Some(total), Some(needed)) if shown.surely_more(needed, total) => {
            let context = match account.context {
                Some(context) if context > Bytes(0) => format!(", {} context", amount(context)),
                _ => String::new(),
            };
            said.push(format!(
                "Too big: {} in use, {} asked{context} are {}, and the device has {}.",
                amount(in_use),
                amount(asked),
                amount(needed),
                amount(total)
            ));
        }
        _ => said.push(format!(
            "Too big: it lacks {}, and nobody that the message names holds so much.",
            amount(account.lacking_after_cache.unwrap_or_default())
        )),
    }
}

fn fragmented(said: &mut Vec<String>, shown: &Shown, account: &Account, asked: Bytes) {
    let unused = shown.unused.unwrap_or_default();
    match (shown.free, account.lacking) {
        (Some(free), Some(lacking)) => said.push(format!(
            "Fragmented: {} are free and {} are reserved and not used; {} more in one piece would \
             do, and they lie in pieces between what is in use.",
            amount(free),
            amount(unused),
            amount(lacking)
        )),
        _ => {
            let largest = match shown.largest_free {
                Some(largest) => format!("the largest piece has {}", amount(largest)),
                None => "no piece of them is large enough".to_owned(),
            };
            said.push(format!(
                "Fragmented: {} of the allocator's memory are not in use, and {} are asked in one \
                 piece; {largest}.",
                amount(unused),
                amount(asked)
            ));
        }
    }
}

fn unnamed(said: &mut Vec<String>, shown: &Shown, account: &Account) {
    let Some(unnamed) = account.unnamed else {
        let held = shown.total.zip(shown.free).map(|(total, free)| total.saturating_sub(free));
        said.push(match held {
            Some(held) => format!(
                "{} of the device were held when it started; by whom, the message does not say.",
                amount(held)
            ),
            None => "The allocator might still have grown within its limit, and the device gave \
                     nothing more: others hold it."
                .to_owned(),
        });
        return;
    };
    said.push(format!(
        "It lacks {}; {} of the device are held by nobody that the message names.",
        amount(account.lacking_after_cache.unwrap_or_default()),
        amount(unnamed)
    ));
    said.push(match account.context {
        Some(_) => "That is another process that it could not see, or a ghost.".to_owned(),
        None => "The context of this process is in it; the rest is other processes, or a ghost."
            .to_owned(),
    });
}

fn limit(shown: &Shown, account: &Account, asked: Bytes) -> String {
    if let (Some(needs), Some(limit)) = (shown.needs, shown.limit) {
        return format!(
            "A limit: with the request it would hold {}, and may have {}.",
            amount(needs),
            amount(limit)
        );
    }
    if let Some(left) = shown.left {
        return format!(
            "A limit: it asks for {}, and its limit leaves {}.",
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
        "A limit: it holds {} and asks for {}, and may have {}{free}.",
        amount(held),
        amount(asked),
        amount(limit)
    )
}

fn ladder(said: &mut Vec<String>, shown: &Shown) {
    let Some((first, last, count)) = shown.ladder else { return };
    said.push(match count {
        0 | 1 => format!(
            "The driver refused {}: the memory was taken before, by another process or by this \
             one.",
            amount(first)
        ),
        _ => format!(
            "It asked the driver for {} and then {} times for a tenth less, down to {}: the \
             memory was taken before, by another process or by this one.",
            amount(first),
            count - 1,
            amount(last)
        ),
    });
}

fn not_told(shown: &Shown, account: &Account) -> String {
    match (shown.asked, account.lacking) {
        (Some(_), Some(lacking)) if lacking > Bytes(0) => {
            format!("It lacks {}; who holds the rest, the message does not say.", amount(lacking))
        }
        (Some(asked), _) => format!(
            "It asked for {}; what was free and who held the rest, the message does not say.",
            amount(asked)
        ),
        (None, _) if shown.backend.as_deref() == Some("nvenc") => {
            "The encoder of the GPU has no memory for another session, or no more of them may be \
             open at once, as on GeForce: it has one code for both."
                .to_owned()
        }
        (None, _) => {
            "The message has no figures: neither what was asked for nor what was free.".to_owned()
        }
    }
}
