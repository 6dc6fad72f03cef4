//! Text about placed models.

use crate::json::place_model::Question;
use gpu_core::Bytes;
use gpu_model::need::Engine;
use gpu_model::split::llama::{arguments, visible};
use gpu_model::split::{Answer, RoomKind};

/// What the user asked for, for a command that follows.
pub struct Again<'a> {
    /// Path of the model, as a word of a shell.
    pub path: &'a str,
    /// The program that runs the model.
    pub engine: Engine,
    /// Memory to leave free on each GPU.
    pub margin: Bytes,
    /// Whether GPUs in use are accepted.
    pub accept_used: bool,
}

/// Returns the command that runs the model as placed, or one that may make it fit.
pub fn next(
    again: &Again<'_>,
    question: &Question<'_>,
    first: &Answer,
    others: &[Answer],
) -> Option<String> {
    let path = again.path;
    if !first.split.fits() {
        let smaller = others.iter().find(|answer| answer.split.fits())?;
        let name = smaller.encoding?.name();
        return Some(format!("gpuws place model {path} --weights {name}"));
    }
    let split = &first.split;
    let used: Vec<(usize, Bytes)> = question
        .rooms
        .rooms
        .iter()
        .zip(&split.used)
        .enumerate()
        .filter(|(at, (room, _))| room.kind == RoomKind::Gpu && split.rooms.contains(&Some(*at)))
        .map(|(at, (_, used))| (at, used.total() + again.margin))
        .collect();
    let memory = used.iter().map(|(_, bytes)| bytes.0).max()?;
    let names = used.iter().filter_map(|(at, _)| question.rooms.rooms.get(*at));
    let gpus: Vec<&str> = names.filter_map(|room| room.name.strip_prefix("GPU ")).collect();
    let memory = Bytes(memory.div_ceil(1 << 30) << 30).exact();
    let accept = if again.accept_used { " --accept-used" } else { "" };
    let (count, gpus) = (gpus.len(), gpus.join(","));
    let claim = format!("gpuws run -n {count} --gpu {gpus} --mem {memory}{accept} --");
    let program = match again.engine {
        Engine::LlamaCpp => {
            let (rooms, split) = visible(question.rooms, split);
            let words = arguments(&first.chain, &rooms, &split).ok()?.words().join(" ");
            format!("llama-server -m {path} -c {} {words}", question.context * question.sequences)
        }
        Engine::Vllm => format!(
            "vllm serve {path} --tensor-parallel-size {count} --max-model-len {}",
            question.context
        ),
        Engine::Transformers => {
            return Some(format!("{claim} COMMAND, with the device_map of --format device-map"));
        }
    };
    Some(format!("{claim} {program}"))
}
