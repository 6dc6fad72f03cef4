//! Draws a trace as a picture.

use crate::graph::TaskGraph;
use crate::trace::{Span, Trace};
use gpu_core::escape_markup;
use std::fmt::Write;

/// Sizes, in SVG units.
const MARGIN: u64 = 16;
const LABELS: u64 = 180;
const WIDTH: u64 = 1000;
const ROW: u64 = 26;
const BAR: u64 = 20;
const HEADING: u64 = 36;
/// The minimum width of a bar that shows its name, and the width of a letter.
const NAMED: u64 = 48;
const LETTER: u64 = 7;
/// The maximum number of lanes to draw.
const MAX_LANES: usize = 256;
/// The maximum length of a name, in characters.
const MAX_NAME: usize = 200;
const COLORS: usize = 6;

const STYLE: &str = "text{font:12px sans-serif;fill:#222}.bar{stroke:#fff;stroke-width:.5}\
.c0{fill:#4e79a7}.c1{fill:#f28e2b}.c2{fill:#59a14f}.c3{fill:#b07aa1}.c4{fill:#76b7b2}\
.c5{fill:#9c755f}.many{fill:#999}.lane{fill:#f3f3f3}.bar+text{fill:#fff;pointer-events:none}\
@media(prefers-color-scheme:dark){svg{background:#1b1b1b}text{fill:#ddd}.lane{fill:#2a2a2a}}";

/// Returns a trace as SVG, with a row for each lane and a bar for each node.
///
/// Nodes too short to see are drawn as one gray bar, so that the size of the picture depends on the
/// number of lanes and not on the number of nodes. At most 256 lanes are drawn.
pub fn svg(trace: &Trace, graph: &TaskGraph, title: &str) -> String {
    let lanes = trace.lanes.len().min(MAX_LANES);
    let (width, height) = (2 * MARGIN + LABELS + WIDTH, HEADING + ROW * lanes as u64 + 2 * MARGIN);
    let makespan = trace.makespan_nanos();
    let mut svg = String::new();
    let _ = write!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" height=\"{height}\" role=\"img\">\n<title>{}</title>\n\
         <style>{STYLE}</style>\n<text x=\"{MARGIN}\" y=\"{}\">{}: {}</text>\n",
        escape_markup(title, MAX_NAME),
        MARGIN + 12,
        escape_markup(title, MAX_NAME),
        duration(makespan)
    );
    let mut rows: Vec<Vec<&Span>> = vec![Vec::new(); lanes];
    for span in &trace.spans {
        if let Some(row) = rows.get_mut(span.lane as usize) {
            row.push(span);
        }
    }
    for (at, (lane, mut spans)) in trace.lanes.iter().zip(rows).enumerate() {
        let y = HEADING + MARGIN / 2 + ROW * at as u64;
        let name = escape_markup(&format!("{} {}", lane.process, lane.name), 26);
        let x = MARGIN + LABELS;
        let _ = write!(
            svg,
            "<text x=\"{MARGIN}\" y=\"{}\">{name}</text>\n\
             <rect class=\"lane\" x=\"{x}\" y=\"{y}\" width=\"{WIDTH}\" height=\"{BAR}\"/>\n",
            y + 14
        );
        spans.sort_by_key(|span| (span.start_nanos, span.end_nanos));
        for bar in bars(&spans, makespan) {
            bar.write(&mut svg, graph, y);
        }
    }
    if trace.lanes.len() > lanes {
        let more = trace.lanes.len() - lanes;
        let _ = writeln!(
            svg,
            "<text x=\"{MARGIN}\" y=\"{}\">… {more} more</text>",
            height - MARGIN / 2
        );
    }
    svg.push_str("</svg>\n");
    svg
}

/// A node together with neighbours that are too short to see, or several such nodes.
struct Bar<'a> {
    longest: &'a Span,
    /// The number of additional nodes.
    more: usize,
    from: u64,
    to: u64,
}

/// Returns the bars of a row; no two start at the same unit.
fn bars<'a>(spans: &[&'a Span], makespan: u64) -> Vec<Bar<'a>> {
    let position = |nanos: u64| {
        let scaled = u128::from(nanos) * u128::from(WIDTH) / u128::from(makespan.max(1));
        scaled as u64
    };
    let mut bars: Vec<Bar<'a>> = Vec::new();
    for span in spans {
        let (from, to) = (position(span.start_nanos), position(span.end_nanos));
        match bars.last_mut() {
            Some(last) if from == last.from || from == to && from < last.to => {
                last.more += 1;
                if to > last.to {
                    (last.longest, last.to) = (span, to);
                }
            }
            _ => bars.push(Bar { longest: span, more: 0, from, to }),
        }
    }
    bars
}

impl Bar<'_> {
    fn write(&self, svg: &mut String, graph: &TaskGraph, y: u64) {
        let width = self.to.saturating_sub(self.from).max(1);
        let x = MARGIN + LABELS + self.from;
        let (is_visible, node) = (self.to > self.from, self.longest.node);
        let name = graph.name(node);
        let lasting = duration(self.longest.end_nanos.saturating_sub(self.longest.start_nanos));
        let (class, title) = match (is_visible, self.more) {
            (_, 0) => (format!("c{}", node.index() % COLORS), format!("{name} {lasting}")),
            (true, more) => {
                let class = format!("c{}", node.index() % COLORS);
                (class, format!("{name} {lasting}, with {more} shorter"))
            }
            (false, more) => ("many".to_owned(), format!("{} nodes", more + 1)),
        };
        let _ = writeln!(
            svg,
            "<rect class=\"bar {class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{BAR}\">\
             <title>{}</title></rect>",
            escape_markup(&title, MAX_NAME)
        );
        if width >= NAMED {
            let (x, y) = (x + 4, y + 14);
            let name = escape_markup(&name, (width / LETTER) as usize);
            let _ = writeln!(svg, "<text x=\"{x}\" y=\"{y}\">{name}</text>");
        }
    }
}

/// Formats a duration with at least three digits.
fn duration(nanos: u64) -> String {
    match nanos {
        0..10_000 => format!("{nanos} ns"),
        10_000..10_000_000 => format!("{} µs", nanos / 1000),
        10_000_000..10_000_000_000 => format!("{} ms", nanos / 1_000_000),
        _ => format!("{} s", nanos / 1_000_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::NodeIx;
    use crate::trace::Lane;

    fn lanes(count: usize) -> Vec<Lane> {
        vec![Lane { process: "gpu:0".to_owned(), name: "<script>".to_owned() }; count]
    }

    #[test]
    fn hostile_names_are_escaped() {
        let names = vec!["\"><script>\x1b\u{202e}".into()];
        let graph = TaskGraph::with_names(1, [], names).expect("no cycle");
        let span = Span { node: NodeIx(0), lane: 0, start_nanos: 0, end_nanos: 10 };
        let picture = svg(&Trace { lanes: lanes(1), spans: vec![span] }, &graph, "</title>");
        assert!(!picture.contains("<script>") && !picture.contains('\x1b'));
        assert!(picture.contains("&quot;&gt;&lt;script&gt;\\u{1b}\\u{202e}"), "{picture}");
        assert_eq!(picture.matches("</title>").count(), 2);
    }

    #[test]
    fn size_depends_on_lanes_and_not_on_nodes() {
        let graph = TaskGraph::from_edges(200_000, []).expect("no cycle");
        let span = |at: u32| Span {
            node: NodeIx(at),
            lane: at % 2,
            start_nanos: at.into(),
            end_nanos: u64::from(at) + 1,
        };
        let trace = Trace { lanes: lanes(2), spans: (0..200_000).map(span).collect() };
        let picture = svg(&trace, &graph, "many");
        assert!(picture.matches("<rect").count() <= 2 * (1 + WIDTH as usize));
        assert!(picture.contains("200 nodes") || picture.contains("100 nodes"), "{picture}");
    }

    #[test]
    fn long_node_keeps_its_name_next_to_short_ones() {
        let names = ["constant", "product", "sum"].map(Into::into).into();
        let graph = TaskGraph::with_names(3, [], names).expect("no cycle");
        let spans =
            vec![span(0, 0, 0, 0), span(1, 0, 0, 1_000_000_000), span(2, 0, 999_999_999, 1 << 30)];
        let picture = svg(&Trace { lanes: lanes(1), spans }, &graph, "short");
        assert!(picture.contains("<title>product 1000 ms, with 1 shorter</title>"), "{picture}");
        assert!(
            picture.contains(">product</text>") && picture.contains("<title>sum "),
            "{picture}"
        );
    }

    #[test]
    fn lanes_are_limited() {
        let graph = TaskGraph::from_edges(0, []).expect("no cycle");
        let picture = svg(&Trace { lanes: lanes(300), spans: Vec::new() }, &graph, "wide");
        assert!(picture.contains("<text x=\"16\" y=\"6716\">… 44 more</text>"), "{picture}");
        let picture = svg(&Trace { lanes: lanes(256), spans: Vec::new() }, &graph, "wide");
        assert!(!picture.contains("more"), "{picture}");
    }

    fn span(node: u32, lane: u32, start_nanos: u64, end_nanos: u64) -> Span {
        Span { node: NodeIx(node), lane, start_nanos, end_nanos }
    }

    #[test]
    fn each_lane_has_a_row_and_each_node_a_bar_at_its_time() {
        let names = ["load", "a-long-name", "x"].map(Into::into).into();
        let graph = TaskGraph::with_names(3, [], names).expect("no cycle");
        // The second bar is as wide as six letters, the third too narrow for its name.
        let spans = vec![span(0, 0, 0, 400), span(1, 1, 500, 548), span(2, 1, 953, 1000)];
        let picture = svg(&Trace { lanes: lanes(2), spans }, &graph, "run");
        let (_, drawn) = picture.split_once("</style>\n").expect("it has a style");
        assert!(picture.contains("viewBox=\"0 0 1212 120\" width=\"1212\" height=\"120\""));
        assert_eq!(
            drawn,
            r#"<text x="16" y="28">run: 1000 ns</text>
<text x="16" y="58">gpu:0 &lt;script&gt;</text>
<rect class="lane" x="196" y="44" width="1000" height="20"/>
<rect class="bar c0" x="196" y="44" width="400" height="20"><title>load 400 ns</title></rect>
<text x="200" y="58">load</text>
<text x="16" y="84">gpu:0 &lt;script&gt;</text>
<rect class="lane" x="196" y="70" width="1000" height="20"/>
<rect class="bar c1" x="696" y="70" width="48" height="20"><title>a-long-name 48 ns</title></rect>
<text x="700" y="84">a-long…</text>
<rect class="bar c2" x="1149" y="70" width="47" height="20"><title>x 47 ns</title></rect>
</svg>
"#
        );
    }

    #[test]
    fn nodes_that_start_at_the_same_unit_share_a_bar_named_after_the_longest() {
        let spans = [
            span(0, 0, 0, 2000),
            span(1, 0, 500, 600),
            // Drawn as long as the first, which keeps its name.
            span(6, 0, 600, 2000),
            span(2, 0, 1000, 1000),
            span(3, 0, 2000, 2000),
            span(4, 0, 2100, 5000),
            span(5, 0, 3000, 4000),
        ];
        let spans: Vec<&Span> = spans.iter().collect();
        let bars = bars(&spans, 1_000_000).into_iter();
        let bars: Vec<_> =
            bars.map(|bar| (bar.from, bar.to, bar.more, bar.longest.node.0)).collect();
        assert_eq!(bars, [(0, 2, 3, 0), (2, 5, 1, 4), (3, 4, 0, 5)]);
    }

    #[test]
    fn duration_has_at_least_three_digits() {
        for (nanos, expected) in [
            (0, "0 ns"),
            (9_999, "9999 ns"),
            (10_000, "10 µs"),
            (9_999_999, "9999 µs"),
            (10_000_000, "10 ms"),
            (9_999_999_999, "9999 ms"),
            (10_000_000_000, "10 s"),
        ] {
            assert_eq!(duration(nanos), expected);
        }
    }
}
