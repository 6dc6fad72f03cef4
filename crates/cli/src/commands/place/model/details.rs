//! Tables of the layers of a model, and of the encodings of its weights.

use crate::failure::Failure;
use crate::terminal::{Align, Line, Screen, Table};
use crate::wording::count;
use gpu_core::amount;
use gpu_model::split::{Answer, RoomKind};
use gpu_report::json::place_model::Question;

/// Prints each layer with its memory and place.
pub(super) fn layers(
    screen: &mut Screen,
    question: &Question<'_>,
    first: &Answer,
) -> Result<(), Failure> {
    let mut table = Table::new(&[
        ("  layer", Align::Left),
        ("weights", Align::Right),
        ("context", Align::Right),
        ("place", Align::Left),
    ]);
    for (layer, room) in first.chain.layers.iter().zip(&first.split.rooms) {
        let room = room.and_then(|room| question.rooms.rooms.get(room));
        table.row([
            Line::new().plain(format_args!("  {}", layer.name)),
            Line::new().plain(amount(layer.weights)),
            Line::new().plain(amount(layer.context)),
            Line::new().plain(match room {
                Some(room) => &*room.name,
                None if layer.pinned => "host",
                None => "–",
            }),
        ]);
    }
    screen.print_all(table.lines(screen.room(0)))
}

/// Prints what vLLM fits if each layer is divided over some of the GPUs.
pub(super) fn tensor_parallel(screen: &mut Screen, question: &Question<'_>) -> Result<(), Failure> {
    let mut table = Table::new(&[
        ("  --tensor-parallel-size", Align::Left),
        ("weights on each", Align::Right),
        ("left for context", Align::Right),
        ("tokens", Align::Right),
    ]);
    for size in question.tensor_parallel.iter().map(|served| &served.size) {
        let tokens = match (size.fits, size.tokens) {
            (false, _) => "does not fit".to_owned(),
            (true, None) => "–".to_owned(),
            (true, Some(tokens)) => tokens.to_string(),
        };
        table.row([
            Line::new().plain(format_args!("  {}", size.ranks)),
            Line::new().plain(amount(size.weights)),
            Line::new().plain(amount(size.cache)),
            Line::new().plain(tokens),
        ]);
    }
    screen.print_all(table.lines(screen.room(0)))
}

/// Prints what each encoding of the weights would lead to.
pub(super) fn encodings(
    screen: &mut Screen,
    first: &Answer,
    others: &[Answer],
) -> Result<(), Failure> {
    let mut table = Table::new(&[
        ("  weights", Align::Left),
        ("on one GPU", Align::Right),
        ("fits", Align::Left),
        ("largest context", Align::Right),
    ]);
    for answer in std::iter::once(first).chain(others) {
        let name = answer.scheme.map_or("as stored", |scheme| scheme.name());
        let gpus = answer.served.as_ref().map_or(answer.split.count, |served| served.rooms.len());
        let fits = match (answer.fits(), answer.split.last_resort) {
            (false, _) => "no".to_owned(),
            (true, RoomKind::Gpu) => count(gpus, "GPU", "GPUs"),
            (true, RoomKind::Cpu | RoomKind::Disk) => "with the host".to_owned(),
        };
        table.row([
            Line::new().plain(format_args!("  {name}")),
            Line::new().plain(amount(answer.estimate.total())),
            Line::new().plain(fits),
            Line::new().plain(answer.largest_context.map_or("–".to_owned(), |t| t.to_string())),
        ]);
    }
    screen.print_all(table.lines(screen.room(0)))
}
