//! The table of a placed model.

use super::details::{encodings, layers, tensor_parallel};
use crate::args::Global;
use crate::commands::place::PlaceModelArgs;
use crate::failure::Failure;
use crate::terminal::{Align, Line, Screen, Table};
use crate::wording::flow;
use gpu_core::{Bytes, amount};
use gpu_model::split::Answer;
use gpu_report::json::place_model::{self, Question};
use gpu_report::wording::place::{Again, described, held, judged, next};
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
    if first.fits() {
        rooms(screen, question, first)?;
    }
    for reason in question.unavailable {
        flow(screen, Line::new().dim("  not available: "), reason)?;
    }
    if first.fits() || !question.unavailable.is_empty() {
        screen.print(&Line::new())?;
    }
    verdict(screen, question, first)?;
    if args.explain && first.fits() && first.served.is_none() {
        for reason in first.split.reasons(&first.chain, question.rooms) {
            flow(screen, Line::new().plain("  "), &reason)?;
        }
        layers(screen, question, first)?;
    }
    if question.tensor_parallel.iter().any(|served| served.size.fits) {
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
    described(question, first).iter().try_for_each(|text| flow(screen, Line::new(), text))
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
    let all_used = place_model::held(first, question.rooms);
    let mut unused = Vec::new();
    for (at, (room, used)) in question.rooms.rooms.iter().zip(&all_used).enumerate() {
        let is_short = used.total() > room.capacity;
        let Some(held) = held(question, first, at) else {
            unused.extend(room.name.strip_prefix("GPU ").and_then(|gpu| gpu.parse::<u32>().ok()));
            continue;
        };
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
