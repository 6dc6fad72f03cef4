//! Remedies for a cause, with values computed from the figures.

use super::account::{Account, MAX_CONTEXT};
use super::answer::{Cause, Remedy, RemedyKind};
use super::evidence::{MessageSource, OomFigures};
use super::now::Now;
use crate::CONTEXT;
use gpu_core::{Bytes, amount};

/// PyTorch's minimum of `max_split_size_mb`, which is above its large segments of 20 MiB.
const MIN_SPLIT_MIB: u64 = 21;

/// The value above which `max_split_size_mb` has little effect.
const MAX_SPLIT_MIB: u64 = 512;

/// JAX's default fraction of the device, in percent.
const JAX_DEFAULT_PERCENT: u64 = 75;

/// The highest sensible fraction for JAX in percent; the context needs the rest.
const JAX_MAX_PERCENT: u64 = 95;

/// The lowest fraction of the device that is worth setting for vLLM, in percent.
const MIN_UTILIZATION: u128 = 30;

/// The denominator of device fractions.
const SHARES: u64 = 10_000;

/// The rounding error of such a fraction on the largest plausible device.
const ROUNDED: Bytes = Bytes::from_mib(32);

struct List(Vec<Remedy>);

impl List {
    fn add(&mut self, kind: RemedyKind, set: impl Into<String>, why: impl Into<String>) {
        self.0.push(Remedy { kind, set: Some(set.into()), why: why.into() });
    }

    fn work(&mut self, why: impl Into<String>) {
        self.0.push(Remedy { kind: RemedyKind::Work, set: None, why: why.into() });
    }
}

pub(super) fn remedies(
    cause: Cause,
    shown: &OomFigures,
    account: &Account,
    now: Option<&Now>,
) -> Vec<Remedy> {
    let mut list = List(shown.own_remedies.clone());
    if shown.stated.is_some() {
        stated(&mut list, cause, shown, account, now);
    } else {
        by_figures(&mut list, cause, shown, account, now);
    }
    if !shown.may_be_nvidia() {
        let is_own =
            |remedy: &Remedy| remedy.set.as_deref().is_some_and(|set| set.starts_with("gpuws "));
        list.0.retain(|remedy| !is_own(remedy));
    }
    list.0
}

/// Adds remedies to the engine's own, for a cause that the message states.
fn stated(list: &mut List, cause: Cause, shown: &OomFigures, account: &Account, now: Option<&Now>) {
    let has_command = list.0.iter().any(|remedy| remedy.kind == RemedyKind::Command);
    match cause {
        Cause::OtherProcesses | Cause::Unnamed | Cause::TakenBefore => {
            doctor(list, "shows the holder, even a ghost");
        }
        Cause::NotTold if has_command => {}
        Cause::NotTold => doctor(list, "shows which processes hold the device's memory"),
        Cause::TooBig => elsewhere(list, shown, account, now),
        _ => {}
    }
}

/// Adds remedies for a cause that the figures show.
fn by_figures(
    list: &mut List,
    cause: Cause,
    shown: &OomFigures,
    account: &Account,
    now: Option<&Now>,
) {
    match cause {
        Cause::NoFailure
        | Cause::HostMemory
        | Cause::BufferLimit
        | Cause::Disturbed
        | Cause::ImpossibleFigure => {}
        Cause::LargerThanDevice => list.work(match shown.speaker {
            MessageSource::LlamaCpp => "a smaller model or context, or its layers on several GPUs",
            _ => {
                "find the tensor or buffer of this size: batch size, sequence length or shape \
                is far too large"
            }
        }),
        Cause::TooBig => {
            outside(list, account);
            smaller(list, shown);
            pool_limit(list, shown, account, now);
            elsewhere(list, shown, account, now);
        }
        Cause::Full => {
            if !outside(list, account) {
                smaller(list, shown);
                if shown.own_remedies.is_empty() && shown.speaker.is_torch() {
                    list.work(
                        "in an inference engine, which fills the GPU on purpose: a smaller share or \
                        fewer requests (vLLM: --gpu-memory-utilization, --max-num-seqs, \
                        --enforce-eager; SGLang: --mem-fraction-static)",
                    );
                }
            }
        }
        Cause::Fragmented => {
            fragmented(list, shown);
            smaller(list, shown);
        }
        Cause::OtherProcesses | Cause::ManyContexts => {
            if cause == Cause::ManyContexts {
                list.work("run fewer processes on this GPU: removing one CUDA context is enough");
            }
            let why = if account.itself_among.is_empty() {
                "shows them; wait or ask their owners"
            } else {
                "shows which of them is this process; wait for the others"
            };
            list.add(RemedyKind::Command, "gpuws status", why);
            elsewhere(list, shown, account, now);
        }
        Cause::Unnamed => {
            doctor(list, "shows the holder, even a ghost");
            match shown.speaker {
                MessageSource::Vllm => {
                    list.add(
                        RemedyKind::Command,
                        "gpuws status",
                        "shows the memory of each process",
                    );
                    utilization(list, shown);
                }
                MessageSource::TensorFlow => smaller(list, shown),
                _ => {}
            }
            elsewhere(list, shown, account, now);
        }
        Cause::Limit => limit(list, shown, account),
        Cause::TakenBefore => {
            doctor(list, "shows the holder, even a ghost");
            if matches!(shown.speaker, MessageSource::TensorFlow) {
                growth(list);
                smaller(list, shown);
            } else {
                preallocate(list);
            }
            elsewhere(list, shown, account, now);
        }
        Cause::FreeEnough => {
            doctor(list, "shows processes as they come and go");
            if shown.backend.as_deref() == Some("xpu") {
                list.add(
                    RemedyKind::Environment,
                    "UR_L0_USE_RELAXED_ALLOCATION_LIMITS=1",
                    "allows Level Zero allocations larger than 4 GiB",
                );
            }
        }
        Cause::NotTold => {
            if shown.backend.as_deref() == Some("nvenc") {
                list.add(
                    RemedyKind::Command,
                    "nvidia-smi --query-gpu=encoder.stats.sessionCount --format=csv",
                    "shows how many are open",
                );
            }
            doctor(list, "shows which processes hold the device's memory");
            if shown.speaker == MessageSource::TensorFlow {
                smaller(list, shown);
            }
            elsewhere(list, shown, account, now);
        }
    }
}

/// Suggests less memory for other consumers in this process; returns whether they use much.
fn outside(list: &mut List, account: &Account) -> bool {
    let is_much = account.context.is_some_and(|context| context > MAX_CONTEXT);
    if is_much {
        list.work(
            "a smaller share for other memory in this process: the engine's own fraction \
             (TensorRT-LLM: free_gpu_memory_fraction), or the preallocation of a second framework",
        );
    }
    is_much
}

fn doctor(list: &mut List, why: &str) {
    list.add(RemedyKind::Command, "gpuws doctor", why);
}

/// Suggests a smaller workload, in the terms of the program; engines have their own remedies for
/// this.
fn smaller(list: &mut List, shown: &OomFigures) {
    if !shown.own_remedies.is_empty() {
        return;
    }
    match shown.speaker {
        MessageSource::LlamaCpp => {
            list.add(RemedyKind::Option, "-ngl", "lower: fewer layers on the GPU");
            list.add(RemedyKind::Option, "-c", "lower: a shorter context");
        }
        MessageSource::Vllm => list.add(
            RemedyKind::Option,
            "--max-model-len",
            "lower: a shorter context needs a smaller cache",
        ),
        MessageSource::CuPy | MessageSource::Rmm | MessageSource::Other => {
            list.work("process less data at once, in smaller chunks");
        }
        _ => list.work(
            "a smaller batch with gradient accumulation, or activation (gradient) \
            checkpointing",
        ),
    }
}

/// Adds remedies for fragmentation.
fn fragmented(list: &mut List, shown: &OomFigures) {
    let variable = shown.variable.unwrap_or(match shown.backend.as_deref() {
        Some("hip") => "PYTORCH_HIP_ALLOC_CONF",
        _ => "PYTORCH_CUDA_ALLOC_CONF",
    });
    match shown.speaker {
        MessageSource::TorchExpandable => list.add(
            RemedyKind::Environment,
            format!("{variable}=expandable_segments:True"),
            "unused pages are then returned to the device automatically (Linux only)",
        ),
        MessageSource::TorchWithSplit => {
            let asked = shown.asked.unwrap_or_default().mib();
            let most = asked.clamp(MIN_SPLIT_MIB, MAX_SPLIT_MIB);
            list.add(
                RemedyKind::Environment,
                format!("{variable}=max_split_size_mb:{most}"),
                "blocks of that size and more are no longer split; PyTorch 2.1 has \
                 expandable_segments:True, which does more",
            );
        }
        MessageSource::TorchWithoutSettings | MessageSource::Torch => list.work(
            "PyTorch 2.1 or later with expandable_segments:True; this version may not know it, or \
             any setting of its allocator",
        ),
        MessageSource::TensorFlow => list.add(
            RemedyKind::Environment,
            "TF_GPU_ALLOCATOR=cuda_malloc_async",
            "the driver's pool remaps pages to avoid fragmentation; TensorFlow 2.5 and later",
        ),
        MessageSource::Xla => list.add(
            RemedyKind::Environment,
            "TF_GPU_ALLOCATOR=cuda_malloc_async",
            "the driver's pool remaps pages to avoid fragmentation",
        ),
        _ => {}
    }
}

/// Suggests a larger fraction of the device for a pool.
fn pool_limit(list: &mut List, shown: &OomFigures, account: &Account, now: Option<&Now>) {
    let (MessageSource::Xla, Some(limit), Some(needed)) =
        (shown.speaker, shown.limit, account.needed)
    else {
        return;
    };
    let of_limit = |percent: u64| Bytes((limit.0 / JAX_DEFAULT_PERCENT).saturating_mul(percent));
    let has_total = |device: &super::Device| device.total >= of_limit(JAX_DEFAULT_PERCENT);
    let is_here = now.is_none_or(|now| now.devices.iter().any(has_total));
    if needed <= of_limit(JAX_MAX_PERCENT) && is_here {
        list.add(
            RemedyKind::Environment,
            format!("XLA_PYTHON_CLIENT_MEM_FRACTION=.{JAX_MAX_PERCENT}"),
            format!(
                "if {} are the default three quarters of the device: {} is then enough \
                 (XLA_CLIENT_MEM_FRACTION in newer JAX; setting both is an error)",
                amount(limit),
                amount(of_limit(JAX_MAX_PERCENT))
            ),
        );
    }
}

/// Suggests a higher limit, computed from the figures.
fn limit(list: &mut List, shown: &OomFigures, account: &Account) {
    let held = account.held.unwrap_or_default() + shown.outside.unwrap_or_default();
    let need = held + shown.asked.unwrap_or_default();
    match shown.speaker {
        MessageSource::Vllm => list.add(
            RemedyKind::Option,
            "--gpu-memory-utilization",
            "higher: a larger memory fraction leaves more for the KV cache",
        ),
        MessageSource::TorchMetal => list.add(
            RemedyKind::Environment,
            "PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0",
            "removes the limit; the whole system may then run out of memory",
        ),
        MessageSource::CuPy => list.add(
            RemedyKind::Environment,
            format!("CUPY_GPU_MEMORY_LIMIT={}", need.0),
            "the memory held plus the request; there is no limit by default",
        ),
        _ => match shown.total {
            Some(total) if need <= total && total > Bytes(0) => {
                let hundredths = (u128::from(need.0) * 100).div_ceil(u128::from(total.0));
                list.add(
                    RemedyKind::Code,
                    format!(
                        "torch.cuda.set_per_process_memory_fraction({}.{:02})",
                        hundredths / 100,
                        hundredths % 100
                    ),
                    format!(
                        "{} of {}: the memory held plus the request",
                        amount(need),
                        amount(total)
                    ),
                );
            }
            _ => list.work("a higher limit, where it was set"),
        },
    }
    smaller(list, shown);
}

/// Suggests a fraction for vLLM that fits the free memory, unless no model would fit.
fn utilization(list: &mut List, shown: &OomFigures) {
    let (Some(free), Some(total)) = (shown.free, shown.total) else { return };
    let Some(hundredths) = (u128::from(free.0) * 100).checked_div(u128::from(total.0)) else {
        return;
    };
    let hundredths = hundredths.saturating_sub(1).min(99);
    if hundredths < MIN_UTILIZATION {
        return;
    }
    list.add(
        RemedyKind::Option,
        format!("--gpu-memory-utilization 0.{hundredths:02}"),
        "the memory that was free; the model must fit into it",
    );
}

fn growth(list: &mut List) {
    list.add(
        RemedyKind::Environment,
        "TF_FORCE_GPU_ALLOW_GROWTH=true",
        "allocates memory on demand instead of all at startup",
    );
}

fn preallocate(list: &mut List) {
    list.add(
        RemedyKind::Environment,
        "XLA_PYTHON_CLIENT_PREALLOCATE=false",
        "allocates memory on demand instead of all at startup",
    );
}

/// Suggests a GPU with enough memory, by name if a snapshot shows one.
fn elsewhere(list: &mut List, shown: &OomFigures, account: &Account, now: Option<&Now>) {
    let is_cuda = shown.backend.as_deref().is_none_or(|backend| backend == "cuda");
    let Some(needed) = account.needed.filter(|needed| is_cuda && *needed > Bytes(0)) else {
        return;
    };
    let within = limit_for(needed, account, shown);
    let why = match now {
        // Without a snapshot, the machine's devices are assumed to be like this one.
        None if shown.total.is_some_and(|total| needed > total) => {
            return list.work(format!("a GPU with more memory: it needs {}", amount(needed)));
        }
        None if shown.total.is_some_and(|total| within > total) => return whole(list),
        None => "waits for a GPU with that much free memory".to_owned(),
        Some(now) => {
            let could = |device: &&super::Device| device.total >= within;
            match now.devices.iter().filter(could).max_by_key(|device| device.free) {
                None if now.devices.iter().any(|device| device.total >= needed) => {
                    return whole(list);
                }
                None => return,
                Some(device) if device.free >= within => {
                    format!("GPU {} has {} free now", device.index, amount(device.free))
                }
                Some(_) => "waits for a GPU with that much free memory".to_owned(),
            }
        }
    };
    list.add(RemedyKind::Command, format!("gpuws run --mem {}MiB -- COMMAND", within.mib()), why);
}

/// Suggests a whole GPU: with the reserve for the context, the limit would exceed the device.
fn whole(list: &mut List) {
    list.add(RemedyKind::Command, "gpuws run -- COMMAND", "waits for a whole GPU");
}

/// Returns a limit that suffices, in whole MiB. An allocator gets the limit minus the context, and
/// its fraction of the device is rounded down.
fn limit_for(needed: Bytes, account: &Account, shown: &OomFigures) -> Bytes {
    let reported = account.context.unwrap_or_default();
    let context = if shown.needs.is_some() { CONTEXT } else { reported.max(CONTEXT) };
    let rounded = Bytes(shown.total.unwrap_or_default().0 / SHARES).max(ROUNDED);
    let all = needed.saturating_sub(reported) + context + rounded;
    Bytes::from_mib(all.0.div_ceil(1 << 20))
}
