//! Spans that the program marked, such as the steps of its optimizer.

use crate::trace::DeviceTrace;
use std::collections::HashMap;
use std::sync::Arc;

/// The maximum number of rows, and of spans.
const ROWS: usize = 3;
const MAX: usize = 90;

/// A span in events of the recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) name: Arc<str>,
    pub(super) from: usize,
    pub(super) to: usize,
}

/// Returns the longest spans, each in the first row with room for it; a span without an end extends
/// to the end of the recording.
pub(super) fn rows(trace: &DeviceTrace) -> Vec<Vec<Span>> {
    let mut open: HashMap<Arc<str>, Vec<usize>> = HashMap::new();
    let mut spans = Vec::new();
    for annotation in &trace.annotations {
        let place = trace.events.partition_point(|event| event.time_us < annotation.time_us);
        if annotation.begins {
            open.entry(annotation.name.clone()).or_default().push(place);
        } else if let Some(from) = open.get_mut(&annotation.name).and_then(Vec::pop) {
            spans.push(Span { name: annotation.name.clone(), from, to: place });
        }
    }
    let end = trace.events.len();
    for (name, begins) in open {
        spans.extend(begins.into_iter().map(|from| Span { name: name.clone(), from, to: end }));
    }
    spans.sort_by(|one, other| {
        let length = |span: &Span| span.to - span.from.min(span.to);
        let by_length = length(other).cmp(&length(one));
        by_length.then(one.from.cmp(&other.from)).then(one.name.cmp(&other.name))
    });
    spans.truncate(MAX);
    let mut rows: Vec<Vec<Span>> = Vec::new();
    for span in spans {
        let fits = |row: &Vec<Span>| {
            row.iter().all(|other| span.to <= other.from || other.to <= span.from)
        };
        match rows.iter().position(fits) {
            Some(row) => rows[row].push(span),
            None if rows.len() < ROWS => rows.push(vec![span]),
            None => {}
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Action, Annotation, Event};

    #[test]
    fn overlapping_spans_are_stacked() {
        let event =
            |time_us| Event { action: Action::Snapshot, address: 0, size: 0, stream: 0, time_us };
        let mark = |name: &str, begins, time_us| Annotation { name: name.into(), begins, time_us };
        let trace = DeviceTrace {
            events: (0..10).map(event).collect(),
            annotations: vec![
                mark("all", true, 1),
                mark("step", true, 2),
                mark("step", false, 4),
                mark("step", true, 6),
                mark("never", false, 7),
            ],
            ..DeviceTrace::default()
        };
        let span = |name: &str, from, to| Span { name: name.into(), from, to };
        assert_eq!(
            rows(&trace),
            [vec![span("all", 1, 10)], vec![span("step", 6, 10), span("step", 2, 4)]]
        );
    }
}
