//! A cause in one line.

use super::account::{Account, approximate};
use super::answer::Cause;
use super::evidence::{MessageSource, OomFigures};
use gpu_core::{Bytes, Pid};

/// Describes a cause in one line.
pub(super) fn of(cause: Cause, shown: &OomFigures, account: &Account) -> String {
    let lacks = account.lacking_after_cache.or(account.lacking).filter(|lacking| lacking.0 > 0);
    let lacks = lacks.map_or(String::new(), |lacking| {
        format!(": short by {}", approximate(lacking, account.lacking_slack))
    });
    match cause {
        Cause::LargerThanDevice if shown.total.is_none() => {
            "One request is larger than any GPU.".to_owned()
        }
        Cause::LargerThanDevice => "One request is larger than the GPU.".to_owned(),
        Cause::Full => match shown.total {
            Some(total) => {
                let own = account.held.unwrap_or_default() + account.context.unwrap_or_default();
                format!("The GPU is full: this program itself holds {} of it.", share(own, total))
            }
            None => "The GPU is full: this program itself holds it.".to_owned(),
        },
        Cause::BufferLimit => {
            "One buffer is larger than the device allows; its memory is not full.".to_owned()
        }
        Cause::Disturbed => {
            "Memory was sufficient: other programs changed the free memory.".to_owned()
        }
        Cause::ImpossibleFigure => {
            "Memory was sufficient: the figure in the message is impossible.".to_owned()
        }
        Cause::TooBig if shown.needs_at_least.is_some() => {
            "The compiled program is too big for its limit.".to_owned()
        }
        Cause::TooBig if shown.limit.is_some() && !shown.speaker.is_torch() => {
            "The program is too big for the limit of its allocator.".to_owned()
        }
        Cause::TooBig => format!("The program is too big for this GPU{lacks}."),
        Cause::Fragmented => {
            "Fragmented: enough memory is free, but it is not contiguous.".to_owned()
        }
        Cause::OtherProcesses => others(shown, account),
        Cause::ManyContexts => format!(
            "{} other processes on this GPU hold the missing memory.",
            account.strangers(shown)
        ),
        Cause::Unnamed => match (unnamed(shown, account), shown.total) {
            (Some(held), Some(total)) => format!(
                "Processes that the message does not name hold {} of this GPU.",
                share(held, total)
            ),
            _ if account.unnamed.is_some() => {
                "Memory outside the allocator is missing; the message does not name its holder."
                    .to_owned()
            }
            _ => "Processes that the message does not name hold the missing memory.".to_owned(),
        },
        Cause::Limit => {
            "The program has reached its own limit, not the memory of the GPU.".to_owned()
        }
        Cause::TakenBefore => "The memory was in use before the program requested it.".to_owned(),
        Cause::HostMemory => "Host memory ran out, not GPU memory.".to_owned(),
        Cause::NoFailure => "No failure: the program continued without the memory.".to_owned(),
        Cause::FreeEnough => "Enough memory was free; another limit may apply.".to_owned(),
        Cause::NotTold => format!("The message does not say why{lacks}."),
    }
}

/// `Process 2006998 holds 84 % of this GPU.`
fn others(shown: &OomFigures, account: &Account) -> String {
    let others: Vec<(Pid, Option<Bytes>)> = shown
        .others
        .iter()
        .filter(|other| Some(**other) != account.itself)
        .map(|other| (other.pid, other.memory))
        .collect();
    let hold = match account.others.zip(shown.total) {
        Some((held, total)) if held.0 > total.0 / 2 => {
            format!("{} of this GPU", share(held, total))
        }
        _ => "the missing memory".to_owned(),
    };
    if !account.itself_among.is_empty() {
        let hold = hold.replace("% of", "% or more of");
        return format!("Other processes hold {hold}; one of the listed processes is this one.");
    }
    match others[..] {
        [(pid, _)] => format!("Process {pid} holds {hold}."),
        _ => format!("{} other processes hold {hold}.", others.len()),
    }
}

/// Returns the memory that others hold, if it is known without the context of this process.
fn unnamed(shown: &OomFigures, account: &Account) -> Option<Bytes> {
    match shown.speaker {
        // vLLM checks before it allocates memory.
        MessageSource::Vllm => Some(shown.total?.saturating_sub(shown.free?)),
        _ => account.unnamed.filter(|_| account.context.is_some()),
    }
}

/// `84 %`.
fn share(part: Bytes, total: Bytes) -> String {
    let percent = (u128::from(part.0) * 100 + u128::from(total.0) / 2)
        .checked_div(u128::from(total.0))
        .unwrap_or(100);
    format!("{percent} %")
}
