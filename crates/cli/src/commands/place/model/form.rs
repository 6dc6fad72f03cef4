//! A placement in the form of another program.

use crate::commands::place::SplitForm;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::{Line, Screen, warn};
use gpu_model::split::Answer;
use gpu_model::split::accelerate::device_map;
use gpu_model::split::llama::visible;
use gpu_report::json::place_model::Question;
use gpu_report::wording::place::{Again, lacking, llama, next, preparation, shown, vllm};

/// Prints the device map, the options of llama.cpp, or the command of vLLM.
///
/// # Errors
/// If the program cannot express the placement.
pub(super) fn print(
    screen: &mut Screen,
    form: SplitForm,
    question: &Question<'_>,
    first: &Answer,
    again: &Again<'_>,
) -> Result<(), Failure> {
    question.notes.iter().for_each(|note| warn(note));
    if !first.fits() {
        let exit = if question.doubts.is_empty() { Exit::Remains } else { Exit::Estimate };
        return Err(Failure::new(exit, format!("place '{}'", question.file))
            .with_source(lacking(question, first)));
    }
    let shown = shown(again, question, first);
    if let Some(shown) = &shown {
        warn(&format!("GPUs are numbered as under '{shown}'"));
    }
    for doubt in question.doubts {
        warn(&format!("the placement is an estimate: {doubt}"));
    }
    if let Some(preparation) = preparation(again, question, first) {
        warn(&format!("first, {preparation}"));
    }
    match form {
        SplitForm::DeviceMap => {
            let (rooms, split) = visible(question.rooms, &first.split);
            if let Some(next) = next(again, question, first, &[]) {
                warn(&format!("it is for: {}", next.command));
            }
            screen.json(&device_map(question.model, &rooms, &split).json())
        }
        SplitForm::Llama => {
            let options = llama(again, question, first).map_err(|error| {
                Failure::new(Exit::Remains, "write the options of llama.cpp")
                    .with_source(error)
                    .with_hint("--engine llama.cpp plans a placement that it supports")
            })?;
            screen.print(&Line::new().plain(options))
        }
        SplitForm::Vllm => {
            let (variables, command) = vllm(again, question, first).ok_or_else(|| {
                Failure::new(Exit::Remains, "write the command of vLLM")
                    .with_source("vLLM is not known to load weights with this quantization")
            })?;
            screen.print(&Line::new().plain(format_args!("{variables}{command}")))
        }
    }
}
