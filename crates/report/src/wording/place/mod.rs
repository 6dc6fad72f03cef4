//! Text about placed models.

use super::shell_word;
use crate::json::place_model::Question;
use gpu_core::{Bytes, amount};
use gpu_model::Encoding;
use gpu_model::need::{Engine, Run};
use gpu_model::read::Format;
use gpu_model::split::llama::{Inexpressible, arguments, visible};
use gpu_model::split::{Answer, RoomKind};

/// What the user asked for, for a command that follows.
pub struct Again<'a> {
    /// The command without `--weights`, as text for a shell.
    pub command: &'a str,
    /// Path of the model, as a word of a shell.
    pub path: &'a str,
    /// How the model is to run.
    pub run: &'a Run,
    /// Memory to leave free on each GPU.
    pub margin: Bytes,
    /// Whether GPUs in use are accepted.
    pub accept_used: bool,
    /// Whether the GPUs are those that this machine has now.
    pub is_here: bool,
}

/// Returns the names of devices as a table shows them: `GPU:0` if all belong to one process, else
/// the full names.
pub fn short_names<'a>(names: impl Iterator<Item = &'a str> + Clone) -> Vec<&'a str> {
    let parts = names.clone().map(|name| name.rsplit_once("/device:"));
    let mut processes = parts.clone().map(|parts| parts.map(|(process, _)| process));
    let first = processes.next().flatten();
    match first.is_some() && processes.all(|process| process == first) {
        true => parts.map(|parts| parts.map_or("", |(_, short)| short)).collect(),
        false => names.collect(),
    }
}

/// Returns why a model does not fit: what it takes, and what lacks where.
pub fn lacking(question: &Question<'_>, first: &Answer) -> String {
    let gpus = || question.rooms.rooms.iter().filter(|room| room.kind == RoomKind::Gpu);
    let has: Bytes = gpus().map(|room| room.capacity).sum();
    let needs = amount(first.estimate.total());
    match gpus().count() {
        0 => format!(
            "it takes {needs} on one GPU, and no GPU is available; --memory plans for sizes"
        ),
        1 => format!("it takes {needs}, and the GPU has {}", amount(has)),
        _ => {
            let first = first.split.reasons(&first.chain, question.rooms);
            let lacks = first.into_iter().find(|reason| reason.contains(" lacks "));
            let lacks = lacks.map_or(String::new(), |lack| format!("; placed best, {lack}"));
            format!(
                "it takes {needs} on one GPU, and the GPUs have {} together{lacks}",
                amount(has)
            )
        }
    }
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Next {
    /// What comes before the command, a phrase.
    pub preparation: Option<String>,
    /// The command, to be printed on one line so that it can be copied.
    pub command: String,
}

/// Returns the command that runs the model as placed, or one that may make it fit.
pub fn next(
    again: &Again<'_>,
    question: &Question<'_>,
    first: &Answer,
    others: &[Answer],
) -> Option<Next> {
    if !first.split.fits() {
        let smaller = others.iter().find(|answer| answer.split.fits())?;
        let command = format!("{} --weights {}", again.command, smaller.encoding?.name());
        return Some(Next { preparation: None, command });
    }
    let (variables, program) = program(again, question, first)?;
    let shown = shown(again, question, first);
    let command = match shown {
        Some(shown) => format!("{variables}{shown} {program}"),
        None => format!("{variables}{program}"),
    };
    let preparation = preparation(again.run, question.format, first.encoding);
    Some(Next { preparation, command })
}

/// Returns what precedes a command so that it sees only the GPUs that hold layers, by which its
/// options number them: a `gpuws run` on this machine, else variables of CUDA. `None` if it sees
/// just these anyway.
pub fn shown(again: &Again<'_>, question: &Question<'_>, first: &Answer) -> Option<String> {
    if let Some(claim) = again.is_here.then(|| claim(again, question, first)).flatten() {
        return Some(claim);
    }
    let gpus = || question.rooms.rooms.iter().filter(|room| room.kind == RoomKind::Gpu);
    let used = used(question, first);
    // CUDA puts the fastest first unless it is told otherwise.
    let are_equal = gpus().all(|room| gpus().all(|other| room.capacity == other.capacity));
    if used.is_empty() || question.is_whole && are_equal && used.len() == gpus().count() {
        return None;
    }
    Some(format!("CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES={}", used.join(",")))
}

/// Returns the numbers of the GPUs that hold layers.
fn used<'a>(question: &Question<'a>, first: &Answer) -> Vec<&'a str> {
    let each = question.rooms.rooms.iter().enumerate();
    let used = each
        .filter(|(at, room)| room.kind == RoomKind::Gpu && first.split.rooms.contains(&Some(*at)));
    used.filter_map(|(_, room)| room.name.strip_prefix("GPU ")).collect()
}

/// Returns the `gpuws run` that gets these GPUs; `None` if none can, because a share is the same on
/// each GPU and the largest exceeds what the smallest has.
fn claim(again: &Again<'_>, question: &Question<'_>, first: &Answer) -> Option<String> {
    let split = &first.split;
    let each = question.rooms.rooms.iter().zip(&split.used).enumerate();
    let used = each
        .filter(|(at, (room, _))| room.kind == RoomKind::Gpu && split.rooms.contains(&Some(*at)));
    let used: Vec<_> = used.map(|(_, pair)| pair).collect();
    let largest = used.iter().map(|(_, used)| used.total().0).max()?;
    let share = Bytes(largest.div_ceil(Bytes::MIB) * Bytes::MIB);
    if used.iter().any(|(room, _)| room.capacity + again.margin < share) {
        return None;
    }
    let gpus = self::used(question, first);
    let accept = if again.accept_used { " --accept-used" } else { "" };
    Some(format!(
        "gpuws run -n {} --gpu {} --mem {}MiB{accept} --",
        gpus.len(),
        gpus.join(","),
        share.mib()
    ))
}

/// Returns the variables of the program, and the program with its options.
fn program(again: &Again<'_>, question: &Question<'_>, first: &Answer) -> Option<(String, String)> {
    let (path, context) = (again.path, question.context);
    let program = match again.run.engine {
        Engine::LlamaCpp => {
            let mut options = llama(question, first).ok()?;
            if again.run.keys != Encoding::F16 {
                let name = again.run.keys.name().to_lowercase();
                options = format!("{options} -ctk {name} -ctv {name}");
            }
            let path = if question.format == Format::Gguf { path } else { "MODEL.gguf" };
            let context = context.saturating_mul(question.sequences);
            // llama-server serves four sequences unless it is told otherwise.
            format!("llama-server -m {path} -c {context} {options} -np {}", question.sequences)
        }
        Engine::Vllm => return vllm(path, context, first),
        Engine::Transformers => "COMMAND, with the device_map of --format device-map".to_owned(),
    };
    Some((String::new(), program))
}

/// Returns llama.cpp's options for a placement, for a program that sees only the GPUs in use.
///
/// # Errors
/// [`Inexpressible`] if llama.cpp cannot place layers so.
pub fn llama(question: &Question<'_>, first: &Answer) -> Result<String, Inexpressible> {
    let (rooms, split) = visible(question.rooms, &first.split);
    let words = arguments(&first.chain, &rooms, &split)?.words();
    let words: Vec<String> = words.iter().map(|word| shell_word(word)).collect();
    Ok(words.join(" "))
}

/// Returns the variables and the command of vLLM for a placement of consecutive layers: a pipeline
/// with the blocks of each stage. `None` if a stage is not on a GPU.
pub fn vllm(path: &str, context: u64, first: &Answer) -> Option<(String, String)> {
    if first.split.last_resort != RoomKind::Gpu {
        return None;
    }
    let pipeline = match first.split.count {
        0 | 1 => String::new(),
        stages => format!(" --pipeline-parallel-size {stages}"),
    };
    let command = format!("vllm serve {path}{pipeline} --max-model-len {context}");
    Some((partition(first), command))
}

/// Returns the variable that gives each stage of vLLM's pipeline its blocks; empty for one.
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

/// Returns what must be done to the files first.
fn preparation(run: &Run, format: Format, encoding: Option<Encoding>) -> Option<String> {
    match (run.engine, format, encoding) {
        (_, Format::Config, _) => Some("download the weights".to_owned()),
        (Engine::LlamaCpp, Format::Gguf, Some(encoding)) => {
            Some(format!("convert it by llama-quantize to {}", encoding.name()))
        }
        (Engine::LlamaCpp, Format::Gguf, None) | (_, _, None) if format == Format::Gguf => None,
        (Engine::LlamaCpp, _, encoding) => {
            let to = encoding.map_or(String::new(), |to| format!(" in {}", to.name()));
            Some(format!("convert it to GGUF{to}"))
        }
        (_, _, Some(encoding)) => Some(format!("quantize it to {}", encoding.name())),
        (_, _, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::short_names;

    #[test]
    fn devices_of_several_processes_keep_their_full_names() {
        let name = |task, device| format!("/job:a/replica:0/task:{task}/device:{device}");
        let shown = |names: &[String]| -> Vec<String> {
            short_names(names.iter().map(String::as_str)).into_iter().map(str::to_owned).collect()
        };
        assert_eq!(shown(&[name(0, "CPU:0"), name(0, "GPU:0")]), ["CPU:0", "GPU:0"]);
        let two = [name(0, "GPU:0"), name(1, "GPU:0")];
        assert_eq!(shown(&two), two);
        assert_eq!(shown(&["odd".to_owned()]), ["odd"]);
        assert_eq!(shown(&[]), [""; 0]);
    }
}
