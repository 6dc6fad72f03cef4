//! Text about placed models and graphs.

mod command;
mod graph;

pub use command::{llama, preparation, shown, vllm};
pub use graph::{reasons, summary};

use super::claims::NOT_ENFORCED;
use super::count;
use crate::json::place_model::{Question, Verdict, parameters};
use gpu_core::{Bytes, amount};
use gpu_model::need::{Engine, Run};
use gpu_model::quantize::{Scheme, kernels, loads, runnable};
use gpu_model::read::Format;
use gpu_model::split::{Answer, Room, RoomKind, Rooms};
use gpu_model::{Figure, Model};
use std::path::Path;

/// The request of the user, for a follow-up command.
pub struct Again<'a> {
    /// The command without `--weights`, as text for a shell.
    pub command: &'a str,
    /// Path of the model, as a word of a shell.
    pub path: &'a str,
    /// The options of the model's run.
    pub run: &'a Run,
    /// Memory to leave free on each GPU.
    pub margin: Bytes,
    /// Whether GPUs in use are accepted.
    pub accept_used: bool,
    /// Whether the GPUs are those of this machine now.
    pub is_here: bool,
}

/// Returns why a model does not fit: the required memory, and where memory is missing.
pub fn lacking(question: &Question<'_>, first: &Answer) -> String {
    let gpus = || question.rooms.rooms.iter().filter(|room| room.kind == RoomKind::Gpu);
    let has: Bytes = gpus().map(|room| room.capacity).sum();
    let needs = amount(first.estimate.total());
    match gpus().count() {
        0 => format!(
            "it needs {needs} on one GPU, but no GPU is available; --memory plans for given sizes"
        ),
        1 => format!("it needs {needs}, but the GPU has {}", amount(has)),
        _ => {
            let first = first.split.reasons(&first.chain, question.rooms);
            let lacks = first.into_iter().find(|reason| reason.contains(" is short by "));
            let lacks = lacks.map_or(String::new(), |lack| format!("; at best, {lack}"));
            format!(
                "it needs {needs} on one GPU, and the GPUs have {} together{lacks}",
                amount(has)
            )
        }
    }
}

/// Returns the description of a model, and its memory on one GPU.
pub fn described(question: &Question<'_>, first: &Answer) -> [String; 2] {
    let model = question.model;
    let name = if model.name == model.architecture {
        model.name.clone()
    } else {
        format!("{}  {}", model.name, model.architecture)
    };
    let estimate = &first.estimate;
    let sequences = match question.sequences {
        1 => String::new(),
        many => format!(" × {many} sequences"),
    };
    let host = match estimate.pinned {
        Bytes(0) => String::new(),
        bytes => format!(", plus {} of host memory", amount(bytes)),
    };
    [
        format!(
            "{name}  {}  {:.2} B parameters  {}",
            count(first.chain.blocks(), "layer", "layers"),
            parameters(model) as f64 / 1e9,
            amount(model.bytes())
        ),
        format!(
            "{} tokens of context{sequences}: weights {} + context {} + buffers {} + overhead {} = \
             {} on one GPU{host}",
            question.context,
            amount(estimate.weights),
            amount(estimate.context),
            amount(estimate.buffer),
            amount(estimate.overhead),
            amount(estimate.total())
        ),
    ]
}

/// Returns the layers in a room, and the missing memory; `None` for a GPU without layers.
pub fn held(question: &Question<'_>, first: &Answer, at: usize) -> Option<String> {
    if let Some(served) = &first.served {
        let part = if served.size.ranks > 1 { "a part of each" } else { "all" };
        return served.rooms.contains(&at).then(|| part.to_owned());
    }
    let split = &first.split;
    let (room, used) = (question.rooms.rooms.get(at)?, split.used.get(at)?);
    let layers = first.chain.layers.iter().zip(&split.rooms);
    let names: Vec<&str> =
        layers.filter(|(_, of)| **of == Some(at)).map(|(layer, _)| &*layer.name).collect();
    let held = match names[..] {
        [] => String::new(),
        [one] => one.to_owned(),
        [first, .., last] => {
            let first = first.strip_prefix("block ").unwrap_or(first);
            let last = last.strip_prefix("block ").unwrap_or(last);
            format!("{first} – {last}")
        }
    };
    let moved = split.moved.iter().filter(|moved| moved.room == at).count();
    let is_short = used.total() > room.capacity;
    if names.is_empty() && moved == 0 && !is_short && room.kind == RoomKind::Gpu {
        return None;
    }
    let held = match (moved, held.as_str()) {
        (0, _) => held,
        (moved, "") => format!("parts of {}", count(moved, "layer", "layers")),
        (moved, held) => format!("{held}, parts of {moved} more"),
    };
    Some(match used.total().saturating_sub(room.capacity) {
        Bytes(0) => held,
        lack if held.is_empty() => format!("lacks {}", amount(lack)),
        lack => format!("short by {}; {held}", amount(lack)),
    })
}

/// Returns the verdict, and its consequence.
pub fn judged(question: &Question<'_>, first: &Answer) -> (&'static str, String) {
    let split = &first.split;
    let is_estimate = question.verdict(first) == Verdict::Estimate;
    if !first.fits() {
        let words = if is_estimate { "may not fit (estimate): " } else { "does not fit: " };
        return (words, lacking(question, first));
    }
    let devices = match (&first.served, split.last_resort) {
        (Some(served), _) if served.size.ranks > 1 => {
            format!("{} GPUs by tensor parallelism", served.size.ranks)
        }
        (Some(_), _) => count(1, "GPU", "GPUs"),
        (_, RoomKind::Gpu) => count(split.count, "GPU", "GPUs"),
        (_, RoomKind::Cpu) => "the GPUs and host memory".to_owned(),
        (_, RoomKind::Disk) => "the GPUs, host memory and the disk".to_owned(),
    };
    let context = match first.largest_context {
        Some(tokens) => format!("; the largest context that fits is {tokens} tokens"),
        None => String::new(),
    };
    let beyond = beyond_training(question.model, question.context);
    let beyond = beyond.map_or(String::new(), |beyond| format!("; {beyond}"));
    let words = if is_estimate { "may fit (estimate): " } else { "fits " };
    (words, format!("{devices}{context}{beyond}"))
}

/// Returns the parts of a model that are not understood, which make the verdict an estimate.
pub fn doubts(model: &Model, weights: Option<Scheme>, engine: Engine) -> Vec<String> {
    let mut doubts: Vec<String> = Vec::new();
    for doubt in &model.doubts {
        let is_chosen = doubt.about == Figure::Element && weights.is_some();
        if !is_chosen && !doubts.contains(&doubt.text) {
            doubts.push(doubt.text.clone());
        }
    }
    if let Some(weights) = weights.filter(|weights| weights.is_estimate()) {
        doubts
            .push(format!("the rules of {weights} are not published; it is counted like its base"));
    }
    if let Some(method) = &model.method
        && weights.is_none()
        && loads(method, engine) == Some(false)
    {
        doubts.push(format!("neither llama.cpp, vLLM nor transformers loads '{method}'"));
    }
    doubts
}

/// Removes the rooms in which an engine cannot run a model: the memory of the host for vLLM, and
/// GPUs without the features that the kernels need, which it adds to the unavailable ones. Returns
/// notes.
pub fn keep_usable(
    model: &Model,
    run: &Run,
    rooms: &mut Rooms,
    unavailable: &mut Vec<String>,
) -> Vec<String> {
    let mut notes = Vec::new();
    let is_host = |room: &Room| room.kind != RoomKind::Gpu;
    if run.engine == Engine::Vllm && rooms.rooms.iter().any(is_host) {
        rooms.retain(|room| !is_host(room));
        notes.push("vLLM runs layers only on GPUs: --host-memory is not used".to_owned());
    }
    let shared = rooms.rooms.iter().filter(|room| room.is_shared);
    notes.extend(shared.map(|room| format!("{}: {NOT_ENFORCED}", room.name)));
    let lacking = |room: &Room| kernels(model, run, room.compute_capability?);
    let reasons =
        rooms.rooms.iter().filter_map(|room| Some(format!("{}: {}", room.name, lacking(room)?)));
    unavailable.extend(reasons);
    notes.extend(rooms.compute_capability().and_then(|least| too_old(model, run, least)));
    rooms.retain(|room| lacking(room).is_none());
    notes
}

/// Returns the note about the schemes of weights that GPUs of a compute capability run, if they
/// cannot run the requested ones.
fn too_old(model: &Model, run: &Run, capability: (u32, u32)) -> Option<String> {
    kernels(model, run, capability)?;
    let names = runnable(run.engine, capability).join(", ");
    let (major, minor) = capability;
    Some(if names.is_empty() {
        format!(
            "{} does not run on compute capability {major}.{minor}; --engine llama.cpp does",
            run.engine
        )
    } else {
        format!("on compute capability {major}.{minor}, {} runs weights in {names}", run.engine)
    })
}

/// Returns the note about a context beyond the one that the model was trained for.
pub fn beyond_training(model: &Model, context: u64) -> Option<String> {
    let trained = model.shape.as_ref()?.context.filter(|trained| *trained < context)?;
    Some(format!("the model was trained for {trained} tokens of context; {context} are requested"))
}

/// Returns the path that an engine loads: a GGUF file, or the directory of a checkpoint.
pub fn loaded(path: &Path, format: Format) -> &Path {
    let is_file = path.extension().is_some_and(|extension| {
        ["json", "safetensors", "bin", "pt", "pth", "ckpt"].iter().any(|known| extension == *known)
    });
    match path.parent().filter(|_| is_file && format != Format::Gguf) {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => path,
    }
}

/// Returns how to get the files of a repository that was named instead of a directory.
pub fn repository(path: &Path) -> Option<String> {
    let name = path.to_str()?;
    let (owner, model) = name.split_once('/')?;
    let is_word = |word: &str| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        !word.is_empty() && !word.starts_with('.') && word.bytes().all(is_plain)
    };
    (is_word(owner) && is_word(model)).then(|| {
        format!(
            "PATH is a local path; for a repository, download its config.json first: \
             hf download {name} config.json --local-dir {model} && gpuws place model {model}"
        )
    })
}

/// The next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Next {
    /// The action before the command, a phrase.
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
    if !first.fits() {
        let smaller = others.iter().find(|answer| answer.fits())?;
        let command = format!("{} --weights {}", again.command, smaller.scheme?.name());
        return Some(Next { preparation: None, command });
    }
    let (variables, program) = command::program(again, question, first)?;
    let shown = shown(again, question, first);
    let command = match shown {
        Some(shown) => format!("{variables}{shown} {program}"),
        None => format!("{variables}{program}"),
    };
    let preparation = preparation(again, question, first);
    Some(Next { preparation, command })
}

#[cfg(test)]
mod tests {
    use super::loaded;
    use gpu_model::read::Format;
    use std::path::Path;

    #[test]
    fn checkpoint_is_loaded_from_its_directory() {
        for (path, format, expected) in [
            ("a/config.json", Format::Config, "a"),
            ("config.json", Format::Config, "."),
            ("a/model-00001-of-00002.safetensors", Format::Safetensors, "a"),
            ("a/b.v1", Format::Config, "a/b.v1"),
            ("a/m.gguf", Format::Gguf, "a/m.gguf"),
        ] {
            assert_eq!(loaded(Path::new(path), format), Path::new(expected), "{path}");
        }
    }
}
