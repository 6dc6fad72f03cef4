//! What an engine's own message states: the cause, a one-line verdict, and an explanation with its
//! figures.

use super::message::Message;
use crate::explain::{Cause, Stated};
use gpu_core::{Bytes, amount};
use gpu_text::oom::{Event, Fact, Framework, Short, Wording};

/// From here on, a number of bytes is a negative number that lost its sign: it is too large for any
/// memory.
pub(super) const WRAPPED: u64 = 1 << 62;

/// Returns what an engine's own message states; `None` if the figures alone explain it.
pub(super) fn of(event: &Event) -> Option<Stated> {
    if super::asks_impossible(event) {
        let verdict = "Memory was sufficient: the requested size is impossible.".to_owned();
        let reason = "It is most likely a negative size: check the program for an overflow in a \
                      shape or length."
            .to_owned();
        return Some(Stated { cause: Cause::ImpossibleFigure, verdict, reason });
    }
    // A framework inside an engine prints its own figures, except for shortages that do not involve
    // the device.
    let is_framework = matches!(event.framework, Framework::PyTorch | Framework::Cuda);
    let is_inside = is_framework && event.engine.is_some();
    let is_own = |short| matches!(short, Short::Pool | Short::Killed | Short::HostLimit);
    let is_stated = |short: &Short| *short != Short::Startup && (!is_inside || is_own(*short));
    let short = event.short.filter(is_stated)?;
    let message = Message(event);
    let (cause, verdict) = match event.wording {
        Some(Wording::NoFailure) => (Cause::NoFailure, survived(short)),
        _ => failed(short, message),
    };
    let reason = [asked(message), reason(short, message)].into_iter().flatten().collect::<Vec<_>>();
    let reason = match (reason.is_empty(), cause) {
        (false, _) => reason.join(" "),
        (true, Cause::NoFailure) => "The program reports that it continued.".to_owned(),
        (true, _) => "The message has no figures.".to_owned(),
    };
    Some(Stated { cause, verdict, reason })
}

fn size(bytes: u64) -> String {
    amount(Bytes(bytes))
}

/// Returns the verdict on a message that the program survived.
fn survived(short: Short) -> String {
    match short {
        Short::Crowded => "No failure: requests wait, because the KV cache is full.",
        Short::Pinned => "No failure: the program continued without pinned host memory.",
        Short::Pool => "No failure: the server's own pool was full, and it used host memory.",
        Short::Cache => "No failure: the engine shortened its context so that it fits.",
        Short::Graphs => "No failure: the engine continued without CUDA graphs.",
        Short::Context => "No failure: the context was full, and the engine tried a smaller batch.",
        Short::Program => "No failure: the program continued with another configuration.",
        _ => "No failure: the program retried with less memory.",
    }
    .to_owned()
}

/// Returns the cause of a failure, and its verdict.
fn failed(short: Short, message: Message<'_>) -> (Cause, String) {
    let event = message.0;
    let event_has = |fact| message.fact(fact).is_some();
    let is_known =
        message.total().or(message.free()).or(message.left()).or(message.needed()).is_some()
            || [Fact::FreeBefore, Fact::PrefillTokens, Fact::Sequences].into_iter().any(event_has);
    // If the free memory is unknown, other processes may hold the missing memory.
    let engine = event.engine.unwrap_or(event.framework);
    let is_llama = matches!(engine, Framework::LlamaCpp | Framework::Ollama);
    let no_room = if is_known { Cause::TooBig } else { Cause::NotTold };
    let (cause, verdict) = match short {
        Short::Startup | Short::Compute => {
            (no_room, "The GPU had no room for the buffers of a computation.")
        }
        Short::Unbalanced => {
            (Cause::Unnamed, "One GPU of the job has far less free memory than the others.")
        }
        Short::Weights => (no_room, "The weights did not fit into the GPU's free memory."),
        Short::NoCache => (
            Cause::Limit,
            "The weights use the engine's entire share and leave no room for the KV cache.",
        ),
        Short::Cache if is_llama => {
            (no_room, "The KV cache did not fit into the GPU's free memory.")
        }
        Short::Cache => (Cause::Limit, "The KV cache is too small for one request."),
        Short::Sequences => (Cause::Limit, "The engine has too little state for its sequences."),
        Short::Graphs => (no_room, "The GPU had no room for CUDA graphs."),
        Short::Component => {
            let part = event.part.as_deref().unwrap_or("one of its components");
            return (Cause::TooBig, format!("The GPU had no room for a component: {part}."));
        }
        Short::WakeUp => {
            (Cause::Unnamed, "Other programs took the memory that the engine released.")
        }
        Short::OneBuffer => (
            Cause::BufferLimit,
            "One buffer is larger than the device allows; its memory is not full.",
        ),
        Short::Quota => match message.needed() {
            Some(needed) if needed >= WRAPPED => (
                Cause::ImpossibleFigure,
                "Memory was sufficient: HAMi's counter of this container is below zero.",
            ),
            _ => (Cause::Limit, "The container has reached its limit, not the memory of the GPU."),
        },
        Short::Pool => (Cause::Limit, "The program's own pool is full, not the GPU."),
        Short::Program => (Cause::TooBig, "The program needs more than the GPU has."),
        Short::Crowded => (Cause::Limit, "The KV cache is full, not the GPU."),
        Short::Context => (Cause::Limit, "The context is full, not the GPU."),
        Short::Batch => (
            Cause::Limit,
            "The KV cache had too little room for the next batch; this is independent of the \
             GPU's free memory.",
        ),
        Short::Killed => (
            Cause::NotTold,
            "A process was killed, most often by the kernel because host memory ran out. The \
             message does not say why.",
        ),
        Short::Pinned => (Cause::HostMemory, "Pinned host memory ran out, not GPU memory."),
        Short::Host => (Cause::HostMemory, "Host memory ran out, not GPU memory."),
        Short::HostLimit => {
            (Cause::HostMemory, "A limit on host memory was reached; GPU memory is not involved.")
        }
        Short::NotReturned => {
            (Cause::TakenBefore, "An earlier process has not released its GPU memory.")
        }
        Short::Disturbed => (
            Cause::Disturbed,
            "Memory was sufficient: other programs changed the free memory during a measurement.",
        ),
        Short::Unclear if event.framework == Framework::Hami => (
            Cause::NotTold,
            "The container's limit or the GPU is full; the message does not say which.",
        ),
        Short::Unclear => {
            (Cause::NotTold, "The error may be about memory; the message does not say why.")
        }
    };
    (cause, verdict.to_owned())
}

/// Describes the request and the memory that was available for it.
fn asked(message: Message<'_>) -> Option<String> {
    let asked = size(message.asked()?);
    let before = message.fact(Fact::FreeBefore);
    Some(match (message.left(), message.free(), before) {
        (Some(left), ..) => format!("It needs {asked} and has {}.", size(left)),
        (None, Some(free), _) => format!("It requested {asked}; {} were free.", size(free)),
        (None, None, Some(free)) => match message.asked()?.checked_sub(free) {
            Some(missing) => format!(
                "It requested {asked}; {} were free when it started: short by {}.",
                size(free),
                size(missing)
            ),
            None => format!("It requested {asked}; {} were free when it started.", size(free)),
        },
        (None, None, None) => format!("It requested {asked}."),
    })
}

/// Describes further figures in words.
fn reason(short: Short, message: Message<'_>) -> Option<String> {
    let fact = |fact| message.fact(fact);
    Some(match short {
        Short::Unbalanced => format!(
            "It found {} free on one GPU and {} on another: processes hold memory there, or the \
             GPUs differ.",
            size(message.free()?),
            size(fact(Fact::FreeElsewhere)?)
        ),
        Short::NoCache => {
            match (fact(Fact::Weights), fact(Fact::FreeAfterWeights), message.deficit()) {
                (Some(weights), Some(free), _) => {
                    let percent = weights as f64 * 100.0 / (weights as f64 + free as f64).max(1.0);
                    format!(
                        "The weights take {}, {percent:.0} % of the free memory, and leave {}.",
                        size(weights),
                        size(free)
                    )
                }
                (_, _, Some(deficit)) => {
                    format!("It is short by {} before the first block.", size(deficit))
                }
                (Some(weights), ..) => format!("The weights take {}.", size(weights)),
                _ => "The weights and the peak of a forward pass use up its limit.".to_owned(),
            }
        }
        Short::Cache if fact(Fact::BlockBytes).is_some() => format!(
            "One block of it needs {}; {} were free.",
            size(fact(Fact::BlockBytes)?),
            size(message.free()?)
        ),
        Short::Cache => {
            let length = fact(Fact::ContextLength).or_else(|| fact(Fact::FittingLength))?;
            match (fact(Fact::ContextLength), fact(Fact::FittingLength)) {
                (Some(_), Some(fitting)) => {
                    format!("One request may have {length} tokens; the cache holds {fitting}.")
                }
                (Some(_), None) => match message.fitting_length() {
                    Some(fitting) => format!(
                        "One request may have {length} tokens; by proportion the cache holds \
                         about {fitting}, if all layers have full attention."
                    ),
                    None => format!("One request may have {length} tokens."),
                },
                (None, _) => format!("The cache holds {length} tokens."),
            }
        }
        Short::Sequences => format!(
            "It may run {} sequences at once and has blocks for {}.",
            fact(Fact::Sequences)?,
            fact(Fact::FittingSequences)?
        ),
        Short::Component => component(message)?,
        Short::OneBuffer => match message.limit() {
            Some(limit) => {
                format!("One buffer may have {}: more free memory does not help.", size(limit))
            }
            None => "The limit is for one buffer: more free memory does not help.".to_owned(),
        },
        Short::Quota => quota(message)?,
        Short::Program if message.0.framework == Framework::ExLlama => {
            "Each GPU that it may use was tried.".to_owned()
        }
        Short::Program => program(message)?,
        Short::Compute => match (fact(Fact::PrefillTokens), fact(Fact::Sequences)) {
            (Some(tokens), _) => format!("A prefill of {tokens} tokens did not fit."),
            (None, Some(sequences)) => format!("{sequences} requests at once did not fit."),
            _ => return None,
        },
        Short::Host | Short::HostLimit => host(message)?,
        Short::Disturbed => {
            let (before, later) = (fact(Fact::FreeBefore)?, fact(Fact::FreeLater)?);
            format!(
                "{} were free at first and {} afterwards, although the engine only allocated \
                 memory in between.",
                size(before),
                size(later)
            )
        }
        Short::NotReturned => "The driver did not free the memory in time: the process is still \
                               running, or it left memory behind."
            .to_owned(),
        Short::Unclear => match message.0.framework {
            Framework::Hami => "HAMi got code 2, out of memory, for an allocation.",
            Framework::Nccl => "NCCL prints the failed call only with NCCL_DEBUG=WARN or INFO.",
            _ => {
                "The code also has other causes, such as queues, threads or a lost device; when \
                 little memory is free, it means memory."
            }
        }
        .to_owned(),
        Short::Batch => match (fact(Fact::PrefillTokens), fact(Fact::FreeTokens)) {
            (Some(tokens), Some(free)) => {
                format!("The batch needs room for {tokens} tokens; there was room for {free}.")
            }
            (None, Some(free)) => format!("There was room for {free} tokens."),
            (Some(tokens), None) => format!("The batch needs room for {tokens} tokens."),
            (None, None) => return None,
        },
        Short::Killed => match fact(Fact::ProcessId) {
            Some(pid) => format!(
                "Process {pid} was killed by SIGKILL, which has many possible \
                                  senders."
            ),
            None => "Exit code 137 and signal 9 mean SIGKILL, which has many possible \
                     senders."
                .to_owned(),
        },
        Short::Crowded => "Requests are evicted and recomputed later: slower, but not \
                           lost."
            .to_owned(),
        Short::Pinned => "The pages would have been pinned for faster copies.".to_owned(),
        Short::Startup
        | Short::Weights
        | Short::Graphs
        | Short::WakeUp
        | Short::Pool
        | Short::Context => return None,
    })
}

fn component(message: Message<'_>) -> Option<String> {
    let (free, total) = (message.free()?, message.total()?);
    let model = message.fact(Fact::FreeBefore).zip(message.fact(Fact::FreeAfterWeights));
    let model = model.and_then(|(before, after)| before.checked_sub(after));
    let model =
        model.map_or(String::new(), |model| format!("; the model took {} before", size(model)));
    Some(format!("{} of {} were free when it was created{model}.", size(free), size(total)))
}

fn quota(message: Message<'_>) -> Option<String> {
    let (needed, limit) = (message.needed()?, message.limit()?);
    Some(if needed >= WRAPPED {
        format!(
            "{needed} bytes are {} below zero as an unsigned number: its counter missed a release. \
             The limit is {}.",
            size(needed.wrapping_neg()),
            size(limit)
        )
    } else {
        format!(
            "With the request it would hold {}, above its limit of {}.",
            size(needed),
            size(limit)
        )
    })
}

fn program(message: Message<'_>) -> Option<String> {
    let needed = size(message.needed()?);
    let temporary = message.fact(Fact::Temporary);
    let temporary =
        temporary.map_or(String::new(), |bytes| format!(", {} of it temporary", size(bytes)));
    let total =
        message.total().map_or(String::new(), |bytes| format!("; the device has {}", size(bytes)));
    Some(format!("The compiled program needs {needed}{temporary}{total}."))
}

/// Describes which program was ended, and its memory.
fn host(message: Message<'_>) -> Option<String> {
    let event = message.0;
    let part = event.part.as_deref().filter(|part| !part.is_empty());
    let name = match (message.fact(Fact::ProcessId), part, event.framework) {
        (Some(pid), Some(part), _) => format!("Process {pid} ({part}) was killed"),
        (Some(pid), None, _) => format!("Process {pid} was killed"),
        (None, Some(part), Framework::Slurm) => format!("Processes of {part} were killed"),
        (None, Some(part), _) => format!("{part} was killed"),
        (None, None, Framework::NvidiaDriver) => {
            "The driver ran out of host memory for its own structures; it does not kill processes \
             for this"
                .to_owned()
        }
        (None, None, Framework::PyTorch) => "A data loader worker ran out of /dev/shm".to_owned(),
        (None, None, _) => {
            let (asked, free) = (message.asked(), message.free());
            return message
                .used()
                .zip(message.total())
                .map(|(used, total)| {
                    format!("The host had {} of {} in use.", size(used), size(total))
                })
                .or_else(|| {
                    (asked.is_none() && free.is_none()).then(|| {
                        "The operating system killed a process to free host memory.".to_owned()
                    })
                });
        }
    };
    let parts = [Fact::Anonymous, Fact::Shared].map(|fact| message.fact(fact));
    let held = match parts {
        [None, None] => message.used(),
        parts => Some(parts.into_iter().flatten().fold(0, u64::saturating_add)),
    };
    let held =
        held.map_or(String::new(), |bytes| format!("; {} of host memory in use", size(bytes)));
    let limit =
        message.limit().map_or(String::new(), |bytes| format!(", with a limit of {}", size(bytes)));
    Some(format!("{name}{held}{limit}."))
}
