//! Chrome's trace event format, which Perfetto can read.

use crate::graph::TaskGraph;
use crate::trace::{Span, Trace};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Returns a trace as JSON in Chrome's trace event format ("Trace Event Format", Google).
///
/// Each process of the lanes becomes a process and each lane a thread, with the names of nodes and
/// lanes. A span that overlaps another on its lane goes to an additional thread of the same name,
/// because slices of a thread must nest. An arrow connects a node to each of its successors on
/// other lanes. Times are in microseconds with three decimals.
pub fn chrome(trace: &Trace, graph: &TaskGraph) -> String {
    let rows = Rows::of(trace);
    let mut json = String::from("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[");
    rows.write_names(trace, &mut json);
    let mut row_of = vec![None; graph.len()];
    for (span, row) in trace.spans.iter().zip(&rows.of_span) {
        begin(&mut json, "X", &graph.name(span.node), rows.ids[*row]);
        let end = span.end_nanos.max(span.start_nanos);
        let duration = Micros(end - span.start_nanos);
        let start = Micros(span.start_nanos);
        let _ = write!(json, ",\"cat\":\"node\",\"ts\":{start},\"dur\":{duration}");
        let _ = write!(json, ",\"args\":{{\"node\":{}}}}}", span.node.0);
        if let Some(slot) = row_of.get_mut(span.node.index()) {
            *slot = Some((*span, rows.ids[*row]));
        }
    }
    let mut id = 0;
    for (from, from_row) in row_of.iter().flatten() {
        for to in graph.successors(from.node) {
            let Some((to, to_row)) = row_of[to.index()] else { continue };
            if to.lane != from.lane {
                write_arrow(&mut json, id, (from, *from_row), (&to, to_row));
                id += 1;
            }
        }
    }
    json.push_str("]}\n");
    json
}

/// Writes an arrow from the end of a slice to the start of another. An arrow binds to the slice
/// that covers its time, so it leaves a slice one nanosecond before the end.
fn write_arrow(
    json: &mut String,
    id: u64,
    (from, from_row): (&Span, (usize, usize)),
    (to, to_row): (&Span, (usize, usize)),
) {
    let leaves = from.end_nanos.saturating_sub(1).max(from.start_nanos);
    for (phase, row, nanos) in [("s", from_row, leaves), ("f", to_row, to.start_nanos)] {
        begin(json, phase, "edge", row);
        let _ = write!(json, ",\"cat\":\"edge\",\"id\":{id},\"ts\":{}", Micros(nanos));
        json.push_str(if phase == "f" { ",\"bp\":\"e\"}" } else { "}" });
    }
}

/// The threads of the file: as many for each lane as its overlapping spans need.
struct Rows {
    /// The process and the thread of each row.
    ids: Vec<(usize, usize)>,
    lane_of: Vec<u32>,
    of_span: Vec<usize>,
    processes: Vec<String>,
}

impl Rows {
    fn of(trace: &Trace) -> Self {
        let mut processes: BTreeMap<&str, usize> = BTreeMap::new();
        let mut rows = Self {
            ids: Vec::new(),
            lane_of: Vec::new(),
            of_span: vec![0; trace.spans.len()],
            processes: Vec::new(),
        };
        let mut order: Vec<usize> = (0..trace.spans.len()).collect();
        order.sort_by_key(|at| (trace.spans[*at].start_nanos, trace.spans[*at].end_nanos));
        let mut ends: BTreeMap<u32, Vec<(u64, usize)>> = BTreeMap::new();
        for at in order {
            let span = trace.spans[at];
            let lane = trace.lanes.get(span.lane as usize);
            let process = lane.map_or("", |lane| lane.process.as_str());
            let lane_ends = ends.entry(span.lane).or_default();
            let row = match lane_ends.iter_mut().find(|(end, _)| *end <= span.start_nanos) {
                Some((end, row)) => {
                    *end = span.end_nanos;
                    *row
                }
                None => {
                    let next = processes.len();
                    let pid = *processes.entry(process).or_insert_with(|| {
                        rows.processes.push(process.to_owned());
                        next
                    });
                    rows.ids.push((pid, rows.ids.len()));
                    rows.lane_of.push(span.lane);
                    lane_ends.push((span.end_nanos, rows.ids.len() - 1));
                    rows.ids.len() - 1
                }
            };
            rows.of_span[at] = row;
        }
        rows
    }

    fn write_names(&self, trace: &Trace, json: &mut String) {
        for (pid, name) in self.processes.iter().enumerate() {
            begin(json, "M", "process_name", (pid, 0));
            let _ = write!(json, ",\"args\":{{\"name\":\"{}\"}}}}", Escaped(name));
        }
        for (row, lane) in self.ids.iter().zip(&self.lane_of) {
            let name = trace.lanes.get(*lane as usize).map_or("", |lane| lane.name.as_str());
            begin(json, "M", "thread_name", *row);
            let _ = write!(json, ",\"args\":{{\"name\":\"{}\"}}}}", Escaped(name));
            begin(json, "M", "thread_sort_index", *row);
            let _ = write!(json, ",\"args\":{{\"sort_index\":{lane}}}}}");
        }
    }
}

/// Starts an event, up to its times and arguments.
fn begin(json: &mut String, phase: &str, name: &str, (pid, tid): (usize, usize)) {
    let separator = if json.ends_with('[') { "\n" } else { ",\n" };
    let name = Escaped(name);
    let _ = write!(
        json,
        "{separator}{{\"ph\":\"{phase}\",\"name\":\"{name}\",\"pid\":{pid},\"tid\":{tid}"
    );
}

/// Nanoseconds, written as microseconds.
struct Micros(u64);

impl std::fmt::Display for Micros {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1000, self.0 % 1000)
    }
}

/// External text within a JSON string; control characters are escaped by number.
struct Escaped<'a>(&'a str);

impl std::fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for character in self.0.chars() {
            match character {
                '"' | '\\' => write!(f, "\\{character}")?,
                c if gpu_core::acts(c) => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        write!(f, "\\u{unit:04x}")?;
                    }
                }
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::NodeIx;
    use crate::trace::Lane;
    use std::sync::Arc;

    fn trace(spans: &[(u32, u32, u64, u64)]) -> Trace {
        let lane = |at| Lane { process: format!("gpu:{at}"), name: "stream \"0\"".to_owned() };
        let span = |&(node, lane, start_nanos, end_nanos): &(u32, u32, u64, u64)| Span {
            node: NodeIx(node),
            lane,
            start_nanos,
            end_nanos,
        };
        Trace { lanes: (0..2).map(lane).collect(), spans: spans.iter().map(span).collect() }
    }

    #[test]
    fn slices_arrows_and_names_are_written() {
        let names: Vec<Arc<str>> = vec!["a\"\n\u{202e}".into(), "b".into()];
        let graph = TaskGraph::with_names(2, [(0, 1)], names).expect("no cycle");
        let json = chrome(&trace(&[(0, 0, 0, 1500), (1, 1, 2000, 2001)]), &graph);
        for line in [
            r#"{"ph":"M","name":"process_name","pid":1,"tid":0,"args":{"name":"gpu:1"}}"#,
            r#"{"ph":"M","name":"thread_name","pid":0,"tid":0,"args":{"name":"stream \"0\""}}"#,
            r#"{"ph":"X","name":"a\"\u000a\u202e","pid":0,"tid":0,"cat":"node","ts":0.000,"dur":1.500,"args":{"node":0}}"#,
            r#""ts":2.000,"dur":0.001,"args":{"node":1}}"#,
            r#"{"ph":"s","name":"edge","pid":0,"tid":0,"cat":"edge","id":0,"ts":1.499}"#,
            r#"{"ph":"f","name":"edge","pid":1,"tid":1,"cat":"edge","id":0,"ts":2.000,"bp":"e"}"#,
        ] {
            assert!(json.contains(line), "{line} in {json}");
        }
    }

    #[test]
    fn overlapping_slices_get_separate_threads() {
        let graph = TaskGraph::from_edges(3, []).expect("no cycle");
        let json = chrome(&trace(&[(0, 0, 0, 10), (1, 0, 5, 15), (2, 0, 10, 12)]), &graph);
        let thread = |node| {
            let name = format!("\"name\":\"node {node}\",\"pid\":0,\"tid\":");
            json.split(&name).nth(1).and_then(|rest| rest.chars().next())
        };
        assert_eq!([thread(0), thread(1), thread(2)], [Some('0'), Some('1'), Some('0')]);
    }
}
