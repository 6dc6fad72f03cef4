//! The invariants of every fuzz target: parsing is deterministic, output is bounded, and missing
//! data never becomes a claim.

use gpu_core::Timestamp;
use gpu_text::{Document, Hint, Kind, parse, sections, snapshot, topology};

/// Reads bytes as a text of one kind.
///
/// # Panics
/// When an invariant is broken.
pub fn of_kind(bytes: &[u8], kind: Kind) {
    let hint = Hint { kind: Some(kind), fields: None };
    let document = parse(bytes, &hint).expect("a text of a given kind is always parsed");
    assert_eq!(document.kind, kind);
    check(&document);
    assert_eq!(parse(bytes, &hint).ok(), Some(document));
    let fields = ["gpu", "name", "memory.used", "pid"].map(str::to_owned).to_vec();
    check(
        &parse(bytes, &Hint { kind: Some(kind), fields: Some(fields) }).expect("the kind is given"),
    );
}

/// Reads bytes as a text whose kind is detected.
///
/// # Panics
/// When an invariant is broken.
pub fn any(bytes: &[u8]) {
    let first = parse(bytes, &Hint::default());
    first.iter().for_each(check);
    assert_eq!(parse(bytes, &Hint::default()), first);
}

/// Reads bytes as the log of a program that ran out of memory.
///
/// # Panics
/// When an invariant is broken.
pub fn oom(bytes: &[u8]) {
    let report = gpu_text::oom::read(bytes);
    assert!(report.events.len() <= 1000);
    for event in &report.events {
        assert!(event.line >= 1 && event.times >= 1);
        let figures = [&event.tried, &event.total, &event.free, &event.allocated, &event.limit];
        for figure in figures.into_iter().flatten() {
            assert!(figure.text.len() <= 80, "a figure is short");
        }
        assert!(event.dump.blocks.len() <= bytes.len());
    }
    assert_eq!(gpu_text::oom::read(bytes), report);
}

/// Reads bytes as a paste of several outputs.
///
/// # Panics
/// When an invariant is broken.
pub fn paste(bytes: &[u8]) {
    let documents = sections(bytes);
    documents.iter().for_each(check);
    let snapshot = snapshot(&documents, Timestamp(0));
    let asked = documents.iter().any(|d| matches!(d.kind, Kind::Fuser | Kind::Lsof));
    assert_eq!(snapshot.holders.is_ok(), asked, "holders are known if a text lists them");
    for holder in snapshot.holders() {
        assert!(snapshot.processes.contains_key(&holder.process.pid));
    }
    for device in &snapshot.devices {
        for process in device.processes.iter().flatten() {
            assert!(snapshot.processes.contains_key(&process.pid));
        }
    }
}

fn check(document: &Document) {
    assert!(document.unread.len() <= Document::MAX_UNREAD);
    assert!(document.gpus.len() <= Document::MAX_ROWS);
    assert!(document.rows.len() <= Document::MAX_ROWS);
    assert!(document.holders.len() <= Document::MAX_ROWS);
    assert!(document.driver_messages.len() <= Document::MAX_ROWS);
    if let Some(links) = topology(document) {
        assert!(links.links.iter().all(|row| row.len() == links.links.len()));
    }
    serde_json::to_string(document).expect("a document is always JSON");
}
