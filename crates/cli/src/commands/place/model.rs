//! `gpuws place model`: the memory of a model, and the assignment of its layers to GPUs.

mod details;
mod form;
mod input;
mod rooms;
mod table;

use super::{Goal, PlaceModelArgs, SplitForm};
use crate::args::Global;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::{Screen, warn};
use crate::wording::shell_word;
use gpu_model::need::{Engine, Run};
use gpu_model::quantize::{self, Scheme, Unusable, check};
use gpu_model::read::Found;
use gpu_model::split::{Objective, answer, candidates, picture, vllm};
use gpu_model::{Encoding, Model};
use gpu_report::json::PlacedModel;
use gpu_report::json::place_model::{Question, Verdict};
use gpu_report::wording::place::{Again, beyond_training, doubts, keep_usable, loaded};
use rooms::Machine;

/// Tokens of context for a model that does not name any.
const CONTEXT: u64 = 4096;

pub(crate) fn run(
    args: &PlaceModelArgs,
    global: &Global,
    screen: &mut Screen,
) -> Result<Exit, Failure> {
    let Found { model, mut notes, format, config, .. } = input::read(&args.path)?;
    let trained = model.shape.as_ref().and_then(|shape| shape.context);
    let context = args.context.or(trained).unwrap_or(CONTEXT);
    notes.extend(beyond_training(&model, context));
    let cache = config.and_then(|config| config.quantization?.cache);
    let run = settings(args, context, &model, cache)?;
    match check(&model, format, &run) {
        // If no engine loads the checkpoint, a plan for any of them is an estimate.
        Err(Unusable::Method(..)) if args.engine.is_none() && args.format.is_none() => {}
        Err(error) => {
            let remedy = error.remedy();
            let failure = Failure::new(Exit::Usage, format!("plan for {}", run.engine));
            return Err(failure.with_source(error).with_hint(remedy));
        }
        Ok(()) => {}
    }
    let objective = match args.goal {
        Goal::Fewest => Objective::FewestRooms,
        Goal::Latency => Objective::Latency,
        Goal::Throughput => Objective::Throughput,
    };
    let mut machine = Machine::select(args, global)?;
    notes.extend(keep_usable(&model, &run, &mut machine.rooms, &mut machine.unavailable));
    let others = match run.weights {
        None => candidates(&model, run.engine, &machine.rooms),
        Some(weights) => vec![weights],
    };
    let failed = |error| {
        Failure::new(Exit::Usage, format!("place '{}'", args.path.display()))
            .with_source(error)
            .with_hint("pass a directory with config.json, or a .gguf file")
    };
    let mut answers = answer(&model, &run, &machine.rooms, &others, objective).map_err(failed)?;
    let first = if run.weights.is_some() { answers.pop() } else { Some(answers.remove(0)) };
    let Some(first) = first else { return Ok(Exit::Done) };
    let tensor_parallel = vllm::sizes(&model, &run, &machine.rooms).map_err(failed)?;
    let doubts = doubts(&model, first.scheme, run.engine);
    let file = args.path.display().to_string();
    let question = Question {
        file: &file,
        machine: machine.name.as_deref(),
        model: &model,
        context,
        sequences: args.sequences,
        rooms: &machine.rooms,
        is_whole: args.gpu.is_empty() && machine.unavailable.is_empty(),
        tensor_parallel: &tensor_parallel,
        doubts: &doubts,
        unavailable: &machine.unavailable,
        notes: &notes,
        format,
    };
    let exit = match question.verdict(&first) {
        Verdict::Fits => Exit::Done,
        Verdict::DoesNotFit => Exit::Remains,
        Verdict::Estimate => Exit::Estimate,
    };
    if let Some(path) = &args.svg {
        let title = format!("{}, {context} tokens of context", model.name);
        let svg = picture(&first.chain, &machine.rooms, &first.split, &title);
        if path.as_os_str() == "-" {
            screen.raw(svg.as_bytes())?;
            return Ok(exit);
        }
        gpu_host::output::write_new(path, svg.as_bytes())?;
    }
    let again = Again {
        command: &args.again(global.sim.as_deref()),
        path: &shell_word(&loaded(&args.path, format).to_string_lossy()),
        run: &run,
        margin: args.margin,
        accept_used: args.accept_used,
        is_here: machine.name.is_none() && args.memory.is_empty(),
    };
    if let Some(form) = args.format {
        form::print(screen, form, &question, &first, &again)?;
        return Ok(exit);
    }
    if global.json {
        screen.json(&PlacedModel::of(&question, &first, &answers))?;
        return Ok(exit);
    }
    if !global.quiet {
        notes.iter().for_each(|note| warn(note));
    }
    screen.together(|screen| {
        table::show(args, global, screen, &question, &first, &answers, &again)
    })?;
    Ok(exit)
}

/// Returns the options of the model's run.
///
/// # Errors
/// If an encoding or a scheme is unknown.
fn settings(
    args: &PlaceModelArgs,
    context: u64,
    model: &Model,
    cache: Option<Encoding>,
) -> Result<Run, Failure> {
    let wanted = args.format.map(|form| match form {
        SplitForm::Llama => Engine::LlamaCpp,
        SplitForm::Vllm => Engine::Vllm,
        SplitForm::DeviceMap => Engine::Transformers,
    });
    let engine = match (args.engine, wanted) {
        (Some(named), Some(of_form)) if named != of_form => {
            return Err(Failure::new(Exit::Usage, "write the placement in this form")
                .with_source("it is a format of another engine; its memory differs"));
        }
        (Some(engine), _) | (None, Some(engine)) => engine,
        (None, None) => {
            let weights = args.weights.as_deref().map(|name| scheme(name, Engine::LlamaCpp));
            quantize::engine(model, weights.transpose()?)
        }
    };
    let stored = cache.filter(|_| engine == Engine::Vllm).unwrap_or(Encoding::F16);
    let kv = args.kv.as_deref().map_or(Ok(stored), encoding)?;
    // llama.cpp divides its context among the sequences.
    let whole = match engine {
        Engine::LlamaCpp => context.saturating_mul(args.sequences),
        Engine::Vllm | Engine::Transformers => context,
    };
    Ok(Run {
        sequences: args.sequences,
        keys: kv,
        values: kv,
        weights: args.weights.as_deref().map(|name| scheme(name, engine)).transpose()?,
        ..Run::new(engine, whole)
    })
}

fn scheme(name: &str, engine: Engine) -> Result<Scheme, Failure> {
    Scheme::for_engine(name, engine).ok_or_else(|| {
        let names = Scheme::names(engine).join(", ");
        Failure::new(Exit::Usage, format!("read the encoding '{name}'"))
            .with_hint(format!("with {engine}, --weights takes {names}"))
    })
}

fn encoding(name: &str) -> Result<Encoding, Failure> {
    let alias = if name.eq_ignore_ascii_case("fp8") { "F8_E4M3" } else { name };
    Encoding::named(alias).ok_or_else(|| {
        Failure::new(Exit::Usage, format!("read the encoding '{name}'"))
            .with_hint("--kv takes F16, BF16, FP8, Q8_0, Q4_0, …, depending on the engine")
    })
}
