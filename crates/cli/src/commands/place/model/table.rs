//! The table of a placed model.

use super::details::{encodings, layers, tensor_parallel};
use crate::args::{Global, PlaceModelArgs};
use crate::failure::Failure;
use crate::terminal::{Align, Line, Screen, Table};
use crate::wording::{count, flow};
use gpu_core::{Bytes, amount};
use gpu_model::split::{Answer, RoomKind};
use gpu_report::json::place_model::{Question, parameters};
use gpu_report::wording::place::{Again, judged, next};
use gpu_report::wording::reset::gpus;

pub(super) fn show(
    args: &PlaceModelArgs,
    global: &Global,
    screen: &mut Screen,
    question: &Question<'_>,
    first: &Answer,
    others: &[Answer],
    again: &Again<'_>,
) -> Result<(), Failure> {
    if let Some(name) = question.machine {
        screen.print(&Line::new().accent(format_args!("simulated machine {name}")))?;
    }
    head(screen, question, first)?;
    screen.print(&Line::new())?;
    let is_by_layers = first.split.fits() && !question.is_divided();
    if is_by_layers {
        rooms(screen, question, first)?;
    }
    for reason in question.unavailable {
        flow(screen, Line::new().dim("  not available: "), reason)?;
    }
    if is_by_layers || !question.unavailable.is_empty() {
        screen.print(&Line::new())?;
    }
    verdict(screen, question, first)?;
    if args.explain && is_by_layers {
        for reason in first.split.reasons(&first.chain, question.rooms) {
            flow(screen, Line::new().plain("  "), &reason)?;
        }
        layers(screen, question, first)?;
    }
    if question.tensor_parallel.iter().any(|size| size.fits) {
        screen.print(&Line::new())?;
        tensor_parallel(screen, question)?;
    }
    if !others.is_empty() {
        screen.print(&Line::new())?;
        encodings(screen, first, others)?;
    }
    let Some(next) = next(again, question, first, others).filter(|_| !global.quiet) else {
        return Ok(());
    };
    screen.print(&Line::new())?;
    let mut head = Line::new().dim("next: ");
    if let Some(preparation) = &next.preparation {
        screen.print(&head.plain(format_args!("{preparation}, then")))?;
        head = Line::new().padded_to(6);
    }
    screen.print(&head.plain(&next.command))
}

fn head(screen: &mut Screen, question: &Question<'_>, first: &Answer) -> Result<(), Failure> {
    let model = question.model;
    let name = match model.name == model.architecture {
        true => model.name.clone(),
        false => format!("{}  {}", model.name, model.architecture),
    };
    let text = format!(
        "{name}  {}  {:.2} B parameters  {}",
        count(first.chain.blocks(), "layer", "layers"),
        parameters(model) as f64 / 1e9,
        amount(model.bytes())
    );
    flow(screen, Line::new(), &text)?;
    let estimate = &first.estimate;
    let sequences = match question.sequences {
        1 => String::new(),
        many => format!(" × {many} sequences"),
    };
    let host = match estimate.pinned {
        Bytes(0) => String::new(),
        bytes => format!("; {} more in the memory of the host", amount(bytes)),
    };
    let text = format!(
        "{} tokens of context{sequences}: weights {} + context {} + buffers {} + overhead {} = {} \
         on one GPU{host}",
        question.context,
        amount(estimate.weights + estimate.training),
        amount(estimate.context),
        amount(estimate.buffer),
        amount(estimate.overhead),
        amount(estimate.total())
    );
    flow(screen, Line::new(), &text)
}

fn rooms(screen: &mut Screen, question: &Question<'_>, first: &Answer) -> Result<(), Failure> {
    let mut table = Table::new(&[
        ("  place", Align::Left),
        ("usable", Align::Right),
        ("weights", Align::Right),
        ("context", Align::Right),
        ("other", Align::Right),
        ("used", Align::Right),
        ("layers", Align::Left),
    ]);
    let split = &first.split;
    let mut unused = Vec::new();
    for (at, (room, used)) in question.rooms.rooms.iter().zip(&split.used).enumerate() {
        let names: Vec<&str> = first
            .chain
            .layers
            .iter()
            .zip(&split.rooms)
            .filter(|(_, of)| **of == Some(at))
            .map(|(layer, _)| &*layer.name)
            .collect();
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
        let held = match (moved, held.as_str()) {
            (0, _) => held,
            (moved, "") => format!("parts of {}", count(moved, "layer", "layers")),
            (moved, held) => format!("{held}, parts of {moved} more"),
        };
        let held = match used.total().saturating_sub(room.capacity) {
            Bytes(0) => held,
            lack if held.is_empty() => format!("lacks {}", amount(lack)),
            lack => format!("lacks {}; {held}", amount(lack)),
        };
        let is_short = used.total() > room.capacity;
        if names.is_empty() && moved == 0 && !is_short && room.kind == RoomKind::Gpu {
            unused.extend(room.name.strip_prefix("GPU ").and_then(|gpu| gpu.parse::<u32>().ok()));
            continue;
        }
        let total = Line::new();
        let total = match is_short {
            true => total.accent(amount(used.total())),
            false => total.plain(amount(used.total())),
        };
        let plain = |bytes: Bytes| Line::new().plain(amount(bytes));
        table.row([
            Line::new().plain(format_args!("  {}", room.name)),
            plain(room.capacity),
            plain(used.weights),
            plain(used.context),
            plain(used.buffer + used.overhead),
            total,
            Line::new().plain(held),
        ]);
    }
    screen.print_all(table.lines(screen.room(0)))?;
    if !unused.is_empty() {
        flow(screen, Line::new().dim("  unused: "), &gpus(&unused))?;
    }
    Ok(())
}

fn verdict(screen: &mut Screen, question: &Question<'_>, first: &Answer) -> Result<(), Failure> {
    let (words, text) = judged(question, first);
    flow(screen, Line::new().accent(words), &text)?;
    for doubt in question.doubts {
        flow(screen, Line::new().dim("  not understood: "), doubt)?;
    }
    Ok(())
}
