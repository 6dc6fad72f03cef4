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
        let event = trace.events.partition_point(|event| event.time_us < annotation.time_us);
        if annotation.begins {
            open.entry(annotation.name.clone()).or_default().push(event);
        } else if let Some(from) = open.get_mut(&annotation.name).and_then(Vec::pop) {
            spans.push(Span { name: annotation.name.clone(), from, to: event });
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

    #[test]
    fn longest_spans_are_kept_in_three_rows() {
        let event =
            |time_us| Event { action: Action::Snapshot, address: 0, size: 0, stream: 0, time_us };
        let span = |number: u64, from: u64, to: u64| {
            let name: Arc<str> = format!("s{number}").into();
            [(true, from), (false, to)].map(|(begins, time_us)| Annotation {
                name: name.clone(),
                begins,
                time_us,
            })
        };
        let of = |spans: Vec<[Annotation; 2]>| {
            let trace = DeviceTrace {
                events: (0..400).map(event).collect(),
                annotations: spans.into_iter().flatten().collect(),
                ..DeviceTrace::default()
            };
            rows(&trace)
        };
        let four = of((0..4).map(|number| span(number, 10, 20 + number)).collect());
        let names: Vec<_> =
            four.iter().map(|row| row.iter().map(|span| &*span.name).collect::<Vec<_>>()).collect();
        assert_eq!(names, [["s3"], ["s2"], ["s1"]]);
        let touching = of(vec![span(0, 0, 10), span(1, 10, 20), span(2, 20, 30)]);
        assert_eq!(touching.len(), 1, "one begins where another ends");
        let same = of(vec![span(1, 5, 9), span(0, 5, 9)]);
        assert_eq!(&*same[0][0].name, "s0");
        let many = of((0..100).map(|number| span(number, 4 * number, 4 * number + 2)).collect());
        assert_eq!(many[0].len(), MAX);
    }
}
