//! Errors of XLA's runtime, the complaint of its compiler, and the decreasing sizes with which
//! TensorFlow and XLA request memory from the driver.

use super::event::{Event, Framework, Rematerialization, Wording};
use super::figure::{Figure, integer};
use super::passage::{Passage, framework_of_path};
use super::reader::Reader;
use crate::work_meter;
use gpu_core::Bytes;

/// The position of one of these messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    Exhausted,
    Request,
    HostRequest,
    Retry,
    Complaint,
}

const TRYING: &str = "ut of memory while trying to allocate ";
const ALLOCATING: &str = "ut of memory allocating ";
const REQUEST: &str = "Failed to allocate request for ";
const BELOW: &str = "reduce memory use below ";
const REDUCED: &str = "only reduced to ";
const FAILED: &str = "failed to allocate ";

/// The maximum length of `Can't`, in any encoding of its apostrophe.
const MAX_CAN_NOT: usize = 16;

/// The maximum number of retry sizes kept.
const MAX_RETRIES: usize = 1000;

/// Returns the mark of a word.
pub(super) fn mark(word: &str, rest: &str) -> Option<Mark> {
    let (mark, is_one) = match word {
        "Out" | "out" if rest[1..].starts_with(ALLOCATING) => (Mark::HostRequest, true),
        "Out" | "out" => (Mark::Exhausted, rest[1..].starts_with(TRYING)),
        "Failed" => (Mark::Request, rest.starts_with(REQUEST)),
        "failed" => (Mark::Retry, is_retry(rest)),
        "Can" => {
            let word = rest.chars().take(MAX_CAN_NOT).take_while(|c| *c != ' ');
            let end =
                word.inspect(|c| work_meter::add(c.len_utf8())).map(char::len_utf8).sum::<usize>();
            (Mark::Complaint, rest[end..].trim_start().starts_with(BELOW))
        }
        _ => return None,
    };
    is_one.then_some(mark)
}

/// `failed to allocate 15.10G (16215793664 bytes) from device: …`
fn is_retry(rest: &str) -> bool {
    rest.strip_prefix(FAILED)
        .and_then(Figure::at_start)
        .and_then(|(figure, rest)| retried(figure, rest))
        .is_some()
}

/// Returns the size of a retry, which older logs and reports give without the bytes.
fn retried(figure: Figure, rest: &str) -> Option<Figure> {
    if rest.starts_with(" from device") {
        return Some(figure);
    }
    let (bytes, rest) = integer(rest.strip_prefix(" (")?)?;
    rest.strip_prefix(" bytes) from device")?;
    Some(Figure { bytes: Some(Bytes(bytes)), slack: Bytes(0), ..figure })
}

/// Parses the text at a mark; returns whether it belongs to an event.
pub(super) fn read(reader: &mut Reader, mark: Mark, passage: Passage<'_>) -> bool {
    match mark {
        Mark::Exhausted => exhausted(reader, passage, TRYING, None),
        Mark::HostRequest => host(reader, passage),
        Mark::Request => request(reader, passage),
        Mark::Retry => retry(reader, passage),
        Mark::Complaint => complaint(reader, passage),
    }
    .is_some()
}

/// `RESOURCE_EXHAUSTED: Out of memory while trying to allocate 4000000000 bytes.`
fn exhausted(
    reader: &mut Reader,
    passage: Passage<'_>,
    phrase: &str,
    wording: Option<Wording>,
) -> Option<()> {
    let (tried, _) = Figure::at_start(passage.after(phrase)?)?;
    let mut event = Event::new(Framework::Jax, passage.line);
    event.tried = Some(tried);
    event.wording = wording;
    finish(reader, event);
    Some(())
}

fn finish(reader: &mut Reader, mut event: Event) {
    // XLA prints the same error again as it propagates; the complaint belongs to the first one.
    reader.complete(&mut event);
    let is_known = |known: &Event| {
        let rematerialization = known.rematerialization.clone();
        Event { rematerialization, ..event.clone() }.repeats(known)
    };
    if let Some(known) = reader.events.find(&event, is_known) {
        reader.count(known);
        return;
    }
    let complaint = reader.complaint.take();
    event.rematerialization = complaint.and_then(|complaint| complaint.rematerialization);
    reader.add(event);
}

/// `Out of memory allocating 7 bytes`: from XLA's host client if an earlier error identifies it,
/// otherwise from CuPy.
fn host(reader: &mut Reader, passage: Passage<'_>) -> Option<()> {
    let is_xla = ["RESOURCE_EXHAUSTED", "Resource exhausted", "XlaRuntimeError", "JaxRuntimeError"]
        .iter()
        .any(|word| passage.before.contains(word));
    if is_xla {
        return exhausted(reader, passage, ALLOCATING, Some(Wording::XlaHost));
    }
    reader.add(super::libraries::cupy(passage, ALLOCATING)?);
    Some(())
}

/// `Failed to allocate request for 1.56GiB (1677721600B) on device ordinal 0`.
fn request(reader: &mut Reader, passage: Passage<'_>) -> Option<()> {
    let (tried, rest) = Figure::at_start(passage.after(REQUEST)?)?;
    let (exact, rest) = Figure::at_start(rest.trim_start().strip_prefix('(')?)?;
    let mut event = Event::new(Framework::Jax, passage.line);
    event.tried = Some(Figure { bytes: exact.bytes, slack: Bytes(0), ..tried });
    let ordinal = rest.split_once("device ordinal ").and_then(|(_, rest)| integer(rest));
    event.gpu = ordinal.and_then(|(index, _)| u32::try_from(index).ok());
    finish(reader, event);
    Some(())
}

/// A retry size: a new event if the size does not decrease.
fn retry(reader: &mut Reader, passage: Passage<'_>) -> Option<()> {
    let (figure, rest) = Figure::at_start(passage.after(FAILED)?)?;
    let figure = retried(figure, rest)?;
    let framework = framework_of_path(passage.before).unwrap_or(Framework::TensorFlow);
    let open = reader.open_retries.and_then(|index| reader.events.get_mut(index));
    if let Some(event) = open.filter(|event| continues(event, &figure)) {
        if event.ladder.last() != Some(&figure) && event.ladder.len() < MAX_RETRIES {
            event.ladder.push(figure);
        }
        return Some(());
    }
    let mut event = Event::new(framework, passage.line);
    event.tried = Some(figure.clone());
    event.ladder = vec![figure];
    event.backend = Some("cuda".to_owned());
    reader.open_retries = Some(reader.add(event));
    Some(())
}

fn continues(event: &Event, next: &Figure) -> bool {
    event.ladder.last().is_some_and(|last| next.bytes <= last.bytes)
}

/// `Can't reduce memory use below 2.58GiB by rematerialization; only reduced to 31.49GiB (… bytes)`.
fn complaint(reader: &mut Reader, passage: Passage<'_>) -> Option<()> {
    let exact = |text| {
        let (figure, rest): (Figure, &str) = Figure::at_start(text)?;
        let bytes = rest.trim_start().strip_prefix('(').and_then(integer);
        Some(match bytes {
            Some((bytes, rest)) if rest.starts_with(" bytes") => {
                Figure { bytes: Some(Bytes(bytes)), slack: Bytes(0), ..figure }
            }
            _ => figure,
        })
    };
    let limit = exact(passage.after(BELOW)?)?;
    let reduced = passage.after(REDUCED).and_then(exact);
    let mut event = Event::new(Framework::Jax, passage.line);
    event.rematerialization = Some(Rematerialization { limit, reduced });
    event.wording = Some(Wording::NoFailure);
    reader.complaint = Some(event);
    None
}
