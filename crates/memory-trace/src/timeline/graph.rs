//! The complete picture, from its title to the last row of the segments.

use super::bands::{self, Band};
use super::history::{Mark, MarkKind};
use super::map::{self, Totals};
use super::scale::{LEFT, PLOT, RIGHT, Scale, WIDTH, duration, thousands};
use super::svg::{Path, Tenths};
use super::{Timeline, spans};
use gpu_core::{Bytes, amount, escape_markup};
use std::fmt::Write;

pub(super) const STYLE: &str = include_str!("picture.css");
/// The number of hues of the bands, each in two tones.
const HUES: u64 = 4;
/// The position of the legend, the height of a row of spans, and their distance above the plot, in
/// units.
const LEGEND: i64 = 82;
const SPAN: i64 = 16;
const LABEL: i64 = 44;

/// The picture and its layout.
struct Graph<'a, 'b> {
    timeline: &'b Timeline<'a>,
    scale: Scale,
    /// The end of the replay, in tenths.
    end: i64,
    svg: String,
}

pub(super) fn draw(timeline: &Timeline<'_>) -> String {
    let spans = spans::rows(timeline.trace);
    let peak = timeline.outcome.peak.reserved.0.max(1);
    // A limit far above the peak would compress the rest too much.
    let limit = timeline.limit.map(|limit| limit.0).filter(|limit| *limit <= peak / 2 * 3 + 1);
    let top = peak.max(limit.unwrap_or(0));
    // The effect of the last event must be visible too.
    let events = timeline.trace.events.len() as u64;
    let events = events + events / 100 + 1;
    let top = top.saturating_add(top / 25);
    let mut scale = Scale { events, top, base: 0 };
    let position = |time| scale.x(timeline.event_at(time));
    let end = if timeline.outcome.survived() {
        scale.x(events as usize)
    } else {
        position(timeline.map_time())
    };
    let bands = bands::stack(&timeline.history.lives, &scale, position, end);
    let mut graph = Graph { timeline, scale, end, svg: String::new() };
    let keys = graph.legend(bands.len(), limit.is_some());
    scale.base = keys + LABEL + spans.len() as i64 * SPAN + PLOT.1;
    graph.scale = scale;
    graph.axes(&spans);
    graph.rest();
    for band in &bands {
        graph.band(band);
    }
    graph.reserved();
    graph.beyond();
    if let Some(limit) = limit {
        graph.limit(limit);
    }
    graph.peak();
    graph.marks();
    let bottom = graph.map(scale.base + 92);
    graph.finish(bottom + 20)
}

impl Graph<'_, '_> {
    fn put(&mut self, line: std::fmt::Arguments<'_>) {
        let _ = self.svg.write_fmt(line);
        self.svg.push('\n');
    }

    fn x(&self, time: usize) -> i64 {
        self.scale.x(self.timeline.event_at(time))
    }

    fn axes(&mut self, spans: &[Vec<spans::Span>]) {
        let (top, base) = (self.scale.base - PLOT.1, self.scale.base);
        for (bytes, text) in self.scale.memory_lines() {
            let y = Tenths(self.scale.y(bytes));
            self.put(format_args!(
                "<path class=\"line\" d=\"M{LEFT} {y}h{}\"/><text class=\"small end\" x=\"{}\" y=\"{y}\" dy=\"4\">{text}</text>",
                PLOT.0,
                LEFT - 8,
            ));
        }
        let began = self.timeline.trace.events.first().map_or(0, |event| event.time_us);
        for event in self.scale.event_lines() {
            let x = Tenths(self.scale.x(event));
            let number = thousands(event as u64);
            self.put(format_args!(
                "<path class=\"axis\" d=\"M{x} {base}v5\"/><text class=\"small middle\" x=\"{x}\" y=\"{}\">{number}</text>",
                base + 34,
            ));
            let at = self.timeline.trace.events.get(event).map_or(0, |event| event.time_us);
            if at >= began && began > 0 {
                let text = duration(at - began);
                self.put(format_args!(
                    "<text class=\"small middle\" x=\"{x}\" y=\"{}\">{text}</text>",
                    base + 48
                ));
            }
        }
        self.put(format_args!(
            "<text class=\"small end\" x=\"{}\" y=\"{}\">event</text>",
            LEFT - 18,
            base + 34
        ));
        if began > 0 {
            self.put(format_args!(
                "<text class=\"small end\" x=\"{}\" y=\"{}\">time</text>",
                LEFT - 18,
                base + 48
            ));
        }
        for (row, spans) in spans.iter().enumerate() {
            let y = top + 12 - LABEL - (row as i64) * SPAN;
            for span in spans {
                let (from, to) = (self.scale.x(span.from), self.scale.x(span.to));
                let width = (to - from).max(5);
                let name = escape_markup(&span.name, 80);
                self.put(format_args!(
                    "<rect class=\"span\" x=\"{}\" y=\"{y}\" width=\"{}\" height=\"{}\"><title>{name}, events {} to {}</title></rect>",
                    Tenths(from),
                    Tenths(width),
                    SPAN - 2,
                    thousands(span.from as u64),
                    thousands(span.to as u64),
                ));
                let room = width / 72;
                if room >= 5 {
                    let name = escape_markup(&span.name, room as usize - 1);
                    self.put(format_args!(
                        "<text class=\"small\" x=\"{}\" y=\"{}\">{name}</text>",
                        Tenths(from + 30),
                        y + SPAN - 5
                    ));
                }
            }
        }
    }

    /// Draws all memory in use. Bands cover all of it except allocations too small for a band.
    fn rest(&mut self) {
        let mut path = Path::default();
        let base = self.scale.base * 10;
        let values = &self.timeline.history.used;
        if let Some(&first) = values.first() {
            path.move_to(self.x(0), base);
            path.upright(self.scale.y(first));
            self.follow(&mut path, values);
            path.across(self.end.max(self.x(0) + 5));
            path.upright(base);
            path.close();
        }
        self.put(format_args!(
            "<path class=\"rest\" d=\"{}\"><title>all smaller allocations</title></path>",
            path.text()
        ));
    }

    /// Draws values over time: for each position, the highest and the lowest.
    fn follow(&self, path: &mut Path, values: &[u64]) {
        let mut time = 1;
        while time < values.len() {
            let x = self.x(time);
            let mut end = time + 1;
            while end < values.len() && self.x(end) == x {
                end += 1;
            }
            let here = &values[time..end];
            path.across(x);
            if here.len() > 1 {
                for extreme in [here.iter().max(), here.iter().min()].into_iter().flatten() {
                    path.upright(self.scale.y(*extreme));
                }
            }
            path.upright(self.scale.y(values[end - 1]));
            time = end;
        }
    }

    fn band(&mut self, band: &Band) {
        let life = self.timeline.history.lives[band.life];
        let Some(&(first, under)) = band.steps.first() else { return };
        let mut path = Path::default();
        path.move_to(first, self.scale.y(under));
        let end = band.end.max(first + 5);
        for &(x, under) in &band.steps[1..] {
            path.across(x);
            path.upright(self.scale.y(under));
        }
        path.across(end);
        for (index, &(x, under)) in band.steps.iter().enumerate().rev() {
            path.upright(self.scale.y(under + life.size));
            path.across(if index == 0 { first } else { x });
        }
        path.close();
        // Equal sizes get the same hue. Light and dark alternate, so that neighbours can be
        // distinguished.
        let hue = ((life.size / 512).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) % HUES;
        let tone = 2 * hue + u64::from(band.is_dark);
        // The outline of a thin band would hide it.
        let thin = if self.scale.height(life.size) < 30 { " thin" } else { "" };
        let words = self.timeline.life_words(&life);
        self.put(format_args!(
            "<path class=\"band t{tone}{thin}\" d=\"{}\"><title>{words}</title></path>",
            path.text()
        ));
    }

    fn reserved(&mut self) {
        let values = &self.timeline.history.reserved;
        let Some(&first) = values.first() else { return };
        let mut path = Path::default();
        path.move_to(self.x(0), self.scale.y(first));
        self.follow(&mut path, values);
        path.across(self.end.max(self.x(0) + 5));
        self.put(format_args!("<path class=\"reserved\" d=\"{}\"/>", path.text()));
    }

    /// Shades the part of the job that the replay did not reach.
    fn beyond(&mut self) {
        if self.timeline.outcome.survived() {
            return;
        }
        let (from, to) = (self.end, (WIDTH - RIGHT) * 10);
        let top = self.scale.base - PLOT.1;
        self.put(format_args!(
            "<rect class=\"beyond\" x=\"{}\" y=\"{top}\" width=\"{}\" height=\"{}\"><title>not reached</title></rect>",
            Tenths(from),
            Tenths((to - from).max(0)),
            PLOT.1
        ));
    }

    fn limit(&mut self, limit: u64) {
        let y = self.scale.y(limit);
        let text = amount(Bytes(limit));
        self.put(format_args!(
            "<path class=\"limit\" d=\"M{LEFT} {}h{}\"/><text x=\"{}\" y=\"{}\">limit {text}</text>",
            Tenths(y),
            PLOT.0,
            LEFT + 6,
            Tenths(y - 50)
        ));
    }

    fn peak(&mut self) {
        let outcome = &self.timeline.outcome;
        let x = self.x(self.timeline.peak_time());
        let y = self.scale.y(outcome.peak.reserved.0);
        let (class, gap) = if x > (LEFT + PLOT.0 / 2) * 10 { ("end", -80) } else { ("", 80) };
        let text = format!(
            "peak: {} reserved, {} allocated",
            amount(outcome.peak.reserved),
            amount(outcome.in_use_at_peak)
        );
        let (top, base) = (self.scale.base - PLOT.1, self.scale.base);
        self.put(format_args!(
            "<path class=\"peak\" d=\"M{0} {1}V{2}\"/><circle cx=\"{0}\" cy=\"{3}\" r=\"3.5\" class=\"mark\"/><text class=\"{class}\" x=\"{4}\" y=\"{5}\">{text}</text>",
            Tenths(x),
            top - 12,
            base,
            Tenths(y),
            Tenths(x + gap),
            top - 2,
        ));
    }

    fn all_marks(&self) -> Vec<Mark> {
        let mut marks = self.timeline.history.marks.clone();
        if let Some(stop) = self.timeline.outcome.stop {
            let time = stop.step.map_or(0, |step| step + 1);
            marks.push(Mark { time, kind: MarkKind::Ended, size: stop.shortage.asked.0 });
        }
        marks
    }

    fn marks(&mut self) {
        /// The distance in tenths below which marks of a kind are merged.
        const CLOSE: i64 = 60;
        let marks = self.all_marks();
        for kind in [MarkKind::MadeRoom, MarkKind::Emptied, MarkKind::Failed, MarkKind::Ended] {
            let of_kind: Vec<_> = marks.iter().copied().filter(|mark| mark.kind == kind).collect();
            let mut from = 0;
            while from < of_kind.len() {
                let x = self.x(of_kind[from].time);
                let rest = &of_kind[from..];
                let many = rest.partition_point(|mark| self.x(mark.time) < x + CLOSE);
                let words = self.timeline.mark_words(&rest[..many.max(1)]);
                self.put(format_args!(
                    "<path class=\"{}\" d=\"M{} {}{}\"><title>{words}</title></path>",
                    kind.class(),
                    Tenths(x),
                    self.scale.base + 6,
                    kind.shape(),
                ));
                from += many.max(1);
            }
        }
    }

    fn legend(&mut self, bands: usize, has_limit: bool) -> i64 {
        let mut entries: Vec<(String, String)> = vec![
            ("<path class=\"reserved\" d=\"M0 -4h22\"/>".to_owned(), "reserved".to_owned()),
            (
                "<path class=\"band t0\" d=\"M0 -10h7v11h-7z\"/><path class=\"band t2\" d=\"M7 -10h7v11h-7z\"/><path class=\"band t1\" d=\"M14 -10h8v11h-8z\"/>".to_owned(),
                match bands {
                    1 => "the largest allocation".to_owned(),
                    many => format!("the {many} largest allocations, equal sizes in one hue"),
                },
            ),
            ("<path class=\"rest\" d=\"M0 -10h22v11h-22z\"/>".to_owned(), "all others".to_owned()),
        ];
        if has_limit {
            let dashes = "<path class=\"limit\" d=\"M0 -4h22\"/>".to_owned();
            entries.push((dashes, "limit".to_owned()));
        }
        let marks = self.all_marks();
        for kind in [MarkKind::MadeRoom, MarkKind::Emptied, MarkKind::Failed, MarkKind::Ended] {
            if marks.iter().any(|mark| mark.kind == kind) {
                let shape =
                    format!("<path class=\"{}\" d=\"M11 -10{}\"/>", kind.class(), kind.shape());
                entries.push((shape, kind.words().to_owned()));
            }
        }
        self.keys(&entries, LEGEND)
    }

    /// Draws a legend in as many rows as it needs; returns the last row.
    fn keys(&mut self, entries: &[(String, String)], from: i64) -> i64 {
        let (mut x, mut y) = (LEFT, from);
        for (key, words) in entries {
            let width = 28 + words.chars().count() as i64 * 6 + 22;
            if x > LEFT && x + width > WIDTH {
                (x, y) = (LEFT, y + 20);
            }
            self.put(format_args!(
                "<g transform=\"translate({x} {y})\">{key}<text class=\"small\" x=\"28\">{words}</text></g>"
            ));
            x += width;
        }
        y
    }

    /// Draws the segments; returns their lower end.
    fn map(&mut self, top: i64) -> i64 {
        let timeline = self.timeline;
        let sums = Totals::of(&timeline.segments);
        let event = thousands(timeline.event_at(timeline.map_time()) as u64);
        let when = match timeline.outcome.stop {
            Some(_) => format!("where memory ran out, event {event}"),
            None => format!("at the peak, event {event}"),
        };
        let count = match timeline.segments.len() {
            1 => "1 segment".to_owned(),
            many => format!("{} segments", thousands(many as u64)),
        };
        self.put(format_args!(
            "<text class=\"head\" x=\"{LEFT}\" y=\"{top}\">The segments {when}</text>"
        ));
        let mut text = format!(
            "{count}, {}: {} allocated",
            amount(Bytes(sums.held)),
            amount(Bytes(sums.active))
        );
        if sums.rounding > 0 {
            let _ = write!(text, " ({} of that by rounding up)", amount(Bytes(sums.rounding)));
        }
        if sums.awaiting > 0 {
            let _ = write!(text, ", {} awaiting work on the device", amount(Bytes(sums.awaiting)));
        }
        let _ = match sums.free_pieces {
            0 => write!(text, ", nothing wasted"),
            1 => write!(text, ", {} wasted in one block", amount(Bytes(sums.free))),
            many => write!(
                text,
                ", {} wasted in {} blocks, the largest {}",
                amount(Bytes(sums.free)),
                thousands(many as u64),
                amount(Bytes(sums.largest_free))
            ),
        };
        self.put(format_args!("<text x=\"{LEFT}\" y=\"{}\">{text}</text>", top + 22));
        let mut entries = vec![
            ("<path class=\"active\" d=\"M0 -10h22v11h-22z\"/>".to_owned(), "allocated".to_owned()),
            (
                "<path class=\"free\" d=\"M0 -10h22v11h-22z\"/><path class=\"segment\" d=\"M0 -10h22v11h-22z\"/>".to_owned(),
                "reserved but free".to_owned(),
            ),
        ];
        if sums.awaiting > 0 {
            let key = "<path class=\"awaiting\" d=\"M0 -10h22v11h-22z\"/>".to_owned();
            entries.push((key, "freed, still in use by queued work".to_owned()));
        }
        let asked = timeline.outcome.stop.map(|stop| stop.shortage.asked.0);
        if let Some(asked) = asked {
            let key = "<path class=\"asked\" d=\"M0 -10h22v11h-22z\"/>".to_owned();
            entries.push((key, format!("failed request: {}", amount(Bytes(asked)))));
        }
        let keys = self.keys(&entries, top + 46);
        map::draw(&mut self.svg, &timeline.segments, asked, keys + 12)
    }

    fn finish(self, height: i64) -> String {
        let timeline = self.timeline;
        let (name, allocator) =
            (escape_markup(&timeline.name, 80), escape_markup(&timeline.allocator, 120));
        let live = amount(Bytes(timeline.workload.peak_requested()));
        let events = thousands(timeline.trace.events.len() as u64);
        let outcome = &timeline.outcome;
        let end = match outcome.stop {
            Some(stop) => {
                format!("It ran out of memory requesting {}.", amount(stop.shortage.asked))
            }
            None => "It ran to completion.".to_owned(),
        };
        let described = format!(
            "Memory of device {} over {events} events. At most {} were reserved and {} allocated; \
             at most {live} were live at once. {end}",
            timeline.trace.device,
            amount(outcome.peak.reserved),
            amount(outcome.peak.in_use),
        );
        let limit =
            timeline.limit.map_or(String::new(), |limit| format!(", limit {}", amount(limit)));
        let body = self.svg;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" role=\"img\" font-family=\"system-ui, sans-serif\">\n\
             <title>GPU memory of {name} under {allocator}</title>\n<desc>{described}</desc>\n<style>\n{STYLE}</style>\n\
             <defs><pattern id=\"awaiting\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\"><path class=\"hatch\" d=\"M0 0v5\"/></pattern></defs>\n\
             <rect class=\"paper\" width=\"{WIDTH}\" height=\"{height}\"/>\n\
             <text class=\"head\" x=\"{LEFT}\" y=\"34\">{name}: GPU memory under {allocator}</text>\n\
             <text x=\"{LEFT}\" y=\"56\">device {}, {events} events, {live} live at once{limit}</text>\n\
             {body}</svg>\n",
            timeline.trace.device,
        )
    }
}
