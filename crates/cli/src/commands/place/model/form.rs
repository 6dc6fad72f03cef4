//! A placement in the form of another program.

use crate::args::SplitForm;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::{Line, Screen};
use gpu_model::split::accelerate::device_map;
use gpu_model::split::llama::{Arguments, Inexpressible, arguments};
use gpu_model::split::{Answer, RoomKind, Rooms, Split};
use gpu_report::json::place_model::Question;

/// Prints the device map, or the options of llama.cpp or vLLM.
///
/// # Errors
/// If the program cannot express the placement.
pub(super) fn print(
    screen: &mut Screen,
    form: SplitForm,
    question: &Question<'_>,
    first: &Answer,
) -> Result<(), Failure> {
    match form {
        SplitForm::DeviceMap => {
            let map = device_map(question.model, question.rooms, &first.split);
            screen.json(&map.json())
        }
        SplitForm::Llama => {
            let arguments = llama(question, first).map_err(|error| {
                Failure::new(Exit::Remains, "write the options of llama.cpp")
                    .with_source(error)
                    .with_hint("--engine llama.cpp places layers as it can")
            })?;
            screen.print(&Line::new().plain(arguments.words().join(" ")))
        }
        SplitForm::Vllm => {
            let gpus = question.rooms.rooms.iter().filter(|room| room.kind == RoomKind::Gpu);
            let line = format!(
                "--tensor-parallel-size {} --max-model-len {}",
                gpus.count(),
                question.context
            );
            screen.print(&Line::new().plain(line))
        }
    }
}

/// Returns the options of llama.cpp for a program that sees the GPUs with layers and no others, as
/// `gpuws run` shows them to it.
pub(super) fn llama(question: &Question<'_>, first: &Answer) -> Result<Arguments, Inexpressible> {
    let (rooms, split) = used(question.rooms, &first.split);
    arguments(&first.chain, &rooms, &split)
}

/// Returns the rooms without the GPUs that hold nothing, the others named as llama.cpp numbers them.
fn used(rooms: &Rooms, split: &Split) -> (Rooms, Split) {
    let holds = |at: usize| {
        split.rooms.contains(&Some(at)) || split.moved.iter().any(|moved| moved.room == at)
    };
    let is_kept = |at: usize, kind: RoomKind| kind != RoomKind::Gpu || holds(at);
    let kept: Vec<usize> = rooms
        .rooms
        .iter()
        .enumerate()
        .filter(|(at, room)| is_kept(*at, room.kind))
        .map(|(at, _)| at)
        .collect();
    let place = |at: usize| kept.iter().position(|kept| *kept == at);
    let mut numbers = 0..;
    let renamed = kept.iter().filter_map(|at| rooms.rooms.get(*at)).cloned().map(|mut room| {
        if room.kind == RoomKind::Gpu {
            room.name = format!("CUDA{}", numbers.next().unwrap_or(0));
        }
        room
    });
    let mut split = split.clone();
    split.rooms.iter_mut().for_each(|room| *room = room.and_then(place));
    for moved in &mut split.moved {
        moved.room = place(moved.room).unwrap_or(moved.room);
    }
    (Rooms::new(renamed.collect()), split)
}
