//! The commands that run a placed model, by engine.

use super::super::shell_word;
use super::Again;
use crate::json::place_model::{Question, held};
use gpu_core::Bytes;
use gpu_model::need::Engine;
use gpu_model::quantize::{Scheme, Use, cache_option, loads};
use gpu_model::read::Format;
use gpu_model::split::llama::{Inexpressible, arguments, visible};
use gpu_model::split::vllm::{LARGEST_SHARE, SHARE};
use gpu_model::split::{Answer, RoomKind};

/// Returns the prefix that makes a command see only the GPUs that hold layers, in the numbering of
/// its options: a `gpuws run` on this machine, or else variables of CUDA. `None` if it sees exactly
/// these anyway.
pub fn shown(again: &Again<'_>, question: &Question<'_>, first: &Answer) -> Option<String> {
    if let Some(claim) = again.is_here.then(|| claim(again, question, first)).flatten() {
        return Some(claim);
    }
    let gpus = || question.rooms.rooms.iter().filter(|room| room.kind == RoomKind::Gpu);
    let used = numbers(question, &used(question, first));
    // By default, CUDA numbers the fastest first.
    let are_equal = gpus().all(|room| gpus().all(|other| room.capacity == other.capacity));
    if used.is_empty() || question.is_whole && are_equal && used.len() == gpus().count() {
        return None;
    }
    Some(format!("CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES={}", used.join(",")))
}

/// Returns the rooms of the GPUs in use, and the memory used in each.
fn used(question: &Question<'_>, first: &Answer) -> Vec<(usize, Bytes)> {
    let is_used = |at: usize| match &first.served {
        Some(served) => served.rooms.contains(&at),
        None => first.split.rooms.contains(&Some(at)),
    };
    let each = question.rooms.rooms.iter().zip(held(first, question.rooms)).enumerate();
    each.filter(|(at, (room, _))| room.kind == RoomKind::Gpu && is_used(*at))
        .map(|(at, (_, used))| (at, used.total()))
        .collect()
}

/// Returns the numbers of GPUs.
fn numbers<'a>(question: &Question<'a>, used: &[(usize, Bytes)]) -> Vec<&'a str> {
    let rooms = used.iter().filter_map(|(at, _)| question.rooms.rooms.get(*at));
    rooms.filter_map(|room| room.name.strip_prefix("GPU ")).collect()
}

/// Returns the `gpuws run` that gets these GPUs; `None` if none can, because a share is the same on
/// each GPU and the largest exceeds the smallest GPU.
fn claim(again: &Again<'_>, question: &Question<'_>, first: &Answer) -> Option<String> {
    let used = used(question, first);
    let largest = used.iter().map(|(_, held)| held.0).max()?;
    let share = Bytes(largest.div_ceil(Bytes::MIB) * Bytes::MIB);
    let room = |at: &usize| question.rooms.rooms.get(*at);
    let is_short = |at: &usize| room(at).is_none_or(|room| room.capacity + again.margin < share);
    if used.iter().any(|(at, _)| is_short(at)) {
        return None;
    }
    let gpus = numbers(question, &used);
    let accept = if again.accept_used { " --accept-used" } else { "" };
    Some(format!(
        "gpuws run -n {} --gpu {} --mem {}MiB{accept} --",
        gpus.len(),
        gpus.join(","),
        share.mib()
    ))
}

/// Returns the variables of the program, and the program with its options; `None` if no command is
/// known to work.
pub(super) fn program(
    again: &Again<'_>,
    question: &Question<'_>,
    first: &Answer,
) -> Option<(String, String)> {
    let engine = again.run.engine;
    match engine {
        // It loads only GGUF files: the files of a quantized checkpoint use another scheme.
        Engine::LlamaCpp if question.model.method.is_some() && first.scheme.is_none() => None,
        Engine::LlamaCpp => {
            let options = llama(again, question, first).ok()?;
            let path = if question.format == Format::Gguf && first.scheme.is_none() {
                again.path
            } else {
                "MODEL.gguf"
            };
            Some((String::new(), format!("llama-server -m {path} {options}")))
        }
        Engine::Vllm => vllm(again, question, first),
        Engine::Transformers if !is_loaded(question, engine) => None,
        Engine::Transformers => {
            let config = match first.scheme.map(|scheme| scheme.used_by(engine)) {
                Some(Use::Option(option)) if option.contains('=') && !option.contains('(') => {
                    format!(" and {option}")
                }
                Some(Use::Option(option)) => format!(" and quantization_config={option}"),
                _ => String::new(),
            };
            let command = format!("COMMAND, with the device_map of --format device-map{config}");
            Some((String::new(), command))
        }
    }
}

/// Returns whether an engine is known to load the checkpoint.
fn is_loaded(question: &Question<'_>, engine: Engine) -> bool {
    question.model.method.as_ref().is_none_or(|method| loads(method, engine) == Some(true))
}

/// Returns llama.cpp's options for a placement, for a program that sees only the GPUs in use: with
/// the context, the sequences and the encoding of the cache that the placement is for.
///
/// # Errors
/// [`Inexpressible`] if llama.cpp cannot express this placement.
pub fn llama(
    again: &Again<'_>,
    question: &Question<'_>,
    first: &Answer,
) -> Result<String, Inexpressible> {
    let (rooms, split) = visible(question.rooms, &first.split);
    let words = arguments(&first.chain, &rooms, &split)?.words();
    let words: Vec<String> = words.iter().map(|word| shell_word(word)).collect();
    let context = question.served_context().saturating_mul(question.sequences);
    // By default, llama-server serves four sequences.
    let sequences = question.sequences;
    let cache = cache_option(again.run);
    Ok(format!("-c {context} {}{cache} -np {sequences}", words.join(" ")))
}

/// Returns the variables and the command of vLLM: each layer divided over GPUs where that fits, or
/// else a pipeline with the blocks of each stage. `None` if neither is possible, or vLLM is not
/// known to load the checkpoint.
pub fn vllm(
    again: &Again<'_>,
    question: &Question<'_>,
    first: &Answer,
) -> Option<(String, String)> {
    if !is_loaded(question, Engine::Vllm) {
        return None;
    }
    let (variables, division, share) = match &first.served {
        Some(served) => {
            let division = match served.size.ranks {
                0 | 1 => String::new(),
                ranks => format!(" --tensor-parallel-size {ranks}"),
            };
            (String::new(), division, served.share)
        }
        None if first.split.fits() => {
            let division = match first.split.count {
                0 | 1 => String::new(),
                stages => format!(" --pipeline-parallel-size {stages}"),
            };
            (partition(first), division, pipeline_share(question, first))
        }
        None => return None,
    };
    let share =
        if share > SHARE { format!(" --gpu-memory-utilization {share:.2}") } else { String::new() };
    let (path, option) = match first.scheme.map(|scheme| (scheme, scheme.used_by(Engine::Vllm))) {
        None => (again.path.to_owned(), ""),
        Some((_, Use::Option(option))) => (again.path.to_owned(), option),
        Some((scheme, Use::Checkpoint(option))) => (checkpoint(scheme), option),
        Some((_, Use::File | Use::Refused(_))) => return None,
    };
    let option = if option.is_empty() { String::new() } else { format!(" {option}") };
    let context = question.served_context();
    let cache = cache_option(again.run);
    let command =
        format!("vllm serve {path}{option}{division} --max-model-len {context}{cache}{share}");
    Some((variables, command))
}

/// Returns the share of the fullest GPU that a pipeline needs, in whole percent.
fn pipeline_share(question: &Question<'_>, first: &Answer) -> f64 {
    let shares = used(question, first).into_iter().filter_map(|(at, held)| {
        let room = question.rooms.rooms.get(at)?;
        Some(held.0 as f64 / room.capacity.0.max(1) as f64)
    });
    // A placement that fits needs no more than the largest share, even if rounding exceeds it.
    ((shares.fold(0.0, f64::max) * 100.0).ceil() / 100.0).min(LARGEST_SHARE)
}

/// Returns the variable that assigns blocks to each stage of vLLM's pipeline; empty for one stage.
fn partition(first: &Answer) -> String {
    let last = first.chain.layers.len().saturating_sub(1);
    let blocks = |first: usize, end: usize| end.min(last) - first.clamp(1, end.min(last).max(1));
    let stages = first.split.stages();
    let blocks: Vec<String> =
        stages.iter().map(|(_, first, end)| blocks(*first, *end).to_string()).collect();
    match blocks.len() {
        0 | 1 => String::new(),
        _ => format!("VLLM_PP_LAYER_PARTITION={} ", blocks.join(",")),
    }
}

/// Returns the placeholder for a checkpoint that the user must get.
fn checkpoint(scheme: Scheme) -> String {
    format!("CHECKPOINT_IN_{}", scheme.name())
}

/// Returns how to prepare the files first.
pub fn preparation(again: &Again<'_>, question: &Question<'_>, first: &Answer) -> Option<String> {
    let engine = again.run.engine;
    let is_gguf = question.format == Format::Gguf;
    let used = first.scheme.map(|scheme| (scheme, scheme.used_by(engine)));
    match used {
        Some((scheme, Use::Checkpoint(_))) => Some(match engine {
            Engine::Vllm => format!(
                "get a checkpoint of the model in {scheme}, for which {} stands",
                checkpoint(scheme)
            ),
            _ => format!("get a checkpoint of the model in {scheme}"),
        }),
        Some((scheme, Use::File)) if question.model.method.is_some() => {
            Some(format!("download a GGUF file of the model in {scheme}"))
        }
        Some((scheme, Use::File)) => Some(match (scheme.is_made(), is_gguf) {
            (true, true) => format!("convert it with llama-quantize to {scheme}"),
            (true, false) => format!("convert it to GGUF in {scheme}"),
            (false, _) => format!("download a GGUF file of the model in {scheme}"),
        }),
        _ if question.format == Format::Config => Some("download the weights".to_owned()),
        None if engine == Engine::LlamaCpp && !is_gguf => Some("convert it to GGUF".to_owned()),
        _ => None,
    }
}
