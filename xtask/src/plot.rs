//! Plots time against task size, from Criterion's measurements.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Error, Write};
use std::path::Path;

/// A plot.
struct Drawing {
    /// The benchmark group.
    group: &'static str,
    /// The path of the plot.
    file: &'static str,
    title: &'static str,
    /// The unit of the sizes.
    sizes: &'static str,
}

const DRAWINGS: [Drawing; 4] = [
    Drawing {
        group: "growth",
        file: "docs/replay-growth.svg",
        title: "Replay time by number of events",
        sizes: "events",
    },
    Drawing {
        group: "waiting",
        file: "docs/queue-growth.svg",
        title: "Grant time by number of waiting claims",
        sizes: "waiting claims",
    },
    Drawing {
        group: "placing",
        file: "docs/placing-growth.svg",
        title: "Time to build and place a graph by number of nodes",
        sizes: "nodes",
    },
    Drawing {
        group: "scheduling",
        file: "docs/scheduling-growth.svg",
        title: "Time to schedule a graph on eight devices by number of nodes",
        sizes: "nodes",
    },
];

/// The left, upper, right and lower edge of the axes.
const EDGES: [f64; 4] = [70.0, 30.0, 590.0, 350.0];
const COLORS: [&str; 4] = ["#1f77b4", "#d95f02", "#1b9e77", "#7570b3"];

/// The measurements of one policy: events and nanoseconds, smallest job first.
#[derive(Clone, Debug, PartialEq)]
struct Series {
    name: String,
    points: Vec<(f64, f64)>,
}

/// Plots the results in a directory, usually `target/criterion`. Returns whether there were any.
///
/// # Errors
/// If a file is not in Criterion's format, or the plot cannot be written.
pub fn plot(root: &Path, criterion: &Path, out: &mut dyn Write) -> io::Result<bool> {
    let mut drawn = false;
    for drawing in &DRAWINGS {
        let group = criterion.join(drawing.group);
        if !group.is_dir() {
            continue;
        }
        let all = read(&group)?;
        if all.iter().all(|series| series.points.len() < 2) {
            writeln!(out, "plot: {}: at least two sizes are required", drawing.group)?;
            continue;
        }
        for Series { name, points } in &all {
            for (size, time) in points {
                writeln!(out, "{name}: {size} {} in {:.3} ms", drawing.sizes, time / 1e6)?;
            }
        }
        fs::write(root.join(drawing.file), draw(drawing, &all))?;
        writeln!(out, "plot: {}", drawing.file)?;
        drawn = true;
    }
    if !drawn {
        writeln!(out, "plot: no measurements in {}", criterion.display())?;
    }
    Ok(drawn)
}

fn read(group: &Path) -> io::Result<Vec<Series>> {
    let mut all = Vec::new();
    for (name, dir) in dirs(group)? {
        let mut points = Vec::new();
        for (events, dir) in dirs(&dir)? {
            // Criterion also creates a directory for its report.
            let Ok(events) = events.parse() else { continue };
            let path = dir.join("new/estimates.json");
            let text = fs::read_to_string(&path)?;
            let time = median(&text)
                .ok_or_else(|| Error::other(format!("{}: no median", path.display())))?;
            points.push((events, time));
        }
        points.sort_by(|(a, _), (b, _): &(f64, f64)| a.total_cmp(b));
        if !points.is_empty() {
            all.push(Series { name, points });
        }
    }
    Ok(all)
}

/// Returns the subdirectories by name.
fn dirs(dir: &Path) -> io::Result<Vec<(String, std::path::PathBuf)>> {
    let entries = fs::read_dir(dir)
        .map_err(|error| Error::new(error.kind(), format!("{}: {error}", dir.display())))?;
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            found.push((entry.file_name().to_string_lossy().into_owned(), entry.path()));
        }
    }
    found.sort();
    Ok(found)
}

/// Returns the median of Criterion's estimates, in nanoseconds.
fn median(estimates: &str) -> Option<f64> {
    let estimates: serde_json::Value = serde_json::from_str(estimates).ok()?;
    estimates["median"]["point_estimate"].as_f64().filter(|time| *time > 0.0)
}

/// The powers of ten that enclose a range.
#[derive(Clone, Copy)]
struct Decades {
    first: i32,
    last: i32,
}

impl Decades {
    fn around(values: impl Iterator<Item = f64> + Clone) -> Self {
        let least = values.clone().fold(f64::INFINITY, f64::min);
        let most = values.fold(1.0, f64::max);
        let first = least.log10().floor() as i32;
        Decades { first, last: (most.log10().ceil() as i32).max(first + 1) }
    }

    /// Returns the position of a value in the range, from 0 to 1.
    fn position(self, value: f64) -> f64 {
        (value.log10() - f64::from(self.first)) / f64::from(self.last - self.first)
    }
}

fn draw(drawing: &Drawing, all: &[Series]) -> String {
    let [left, top, right, bottom] = EDGES;
    let points = || all.iter().flat_map(|series| series.points.iter().copied());
    let events = Decades::around(points().map(|(events, _)| events));
    let times = Decades::around(points().map(|(_, time)| time));
    let x = |value: f64| left + events.position(value) * (right - left);
    let y = |value: f64| bottom - times.position(value) * (bottom - top);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 640 400\" \
         font-family=\"sans-serif\" font-size=\"13\">\n\
         <title>{}</title>\n\
         <rect width=\"640\" height=\"400\" fill=\"white\"/>\n",
        drawing.title
    );
    // Writing to a string cannot fail.
    for power in events.first..=events.last {
        let x = x(10f64.powi(power));
        let _ = writeln!(
            svg,
            "<path d=\"M{x:.1} {top}V{bottom}\" stroke=\"#ddd\"/>\
             <text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            bottom + 20.0,
            ten_to(power)
        );
    }
    for power in times.first..=times.last {
        let y = y(10f64.powi(power));
        let _ = writeln!(
            svg,
            "<path d=\"M{left} {y:.1}H{right}\" stroke=\"#ddd\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            left - 8.0,
            y + 4.0,
            duration(power)
        );
    }
    for (number, Series { name, points }) in all.iter().enumerate() {
        let color = COLORS[number % COLORS.len()];
        let point = |&(events, time): &(f64, f64)| (x(events), y(time));
        let line: Vec<_> =
            points.iter().map(point).map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"2\"/>",
            line.join(" ")
        );
        for (x, y) in points.iter().map(point) {
            let _ = writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{color}\"/>");
        }
        if let (Some(&(first, time)), Some(&(last, _))) = (points.first(), points.last()) {
            let _ = writeln!(
                svg,
                "<path d=\"M{:.1} {:.1}L{:.1} {:.1}\" stroke=\"{color}\" stroke-dasharray=\"2 4\"/>",
                x(first),
                y(time),
                x(last),
                y(time * last / first)
            );
        }
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{}\" fill=\"{color}\">{name}</text>",
            left + 14.0,
            top + 20.0 + 18.0 * number as f64
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"{}\" y=\"390\" text-anchor=\"middle\">{}; dotted: linear growth</text>\n</svg>",
        (left + right) / 2.0,
        drawing.sizes
    );
    svg
}

fn ten_to(power: i32) -> String {
    format!("10<tspan dy=\"-5\" font-size=\"10\">{power}</tspan>")
}

/// Formats a power of ten of nanoseconds.
fn duration(power: i32) -> String {
    let (unit, power) = match power {
        ..3 => ("ns", power),
        3..6 => ("µs", power - 3),
        6..9 => ("ms", power - 6),
        _ => ("s", power - 9),
    };
    format!("{} {unit}", 10f64.powi(power))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(dir: &Path, policy: &str, events: &str, median: &str) {
        let dir = dir.join("growth").join(policy).join(events).join("new");
        fs::create_dir_all(&dir).expect("temporary directory");
        let text = format!(r#"{{"mean":{{"point_estimate":1}},"median":{{{median}}}}}"#);
        fs::write(dir.join("estimates.json"), text).expect("the file is writable");
    }

    #[test]
    fn measurements_are_plotted_by_policy_and_size() {
        let dir = tempfile::tempdir().expect("temporary directory");
        for (events, median) in [("10000", 1e5), ("1000000", 1e7), ("100000", 1e6)] {
            measured(dir.path(), "bfc", events, &format!(r#""point_estimate":{median}"#));
        }
        fs::create_dir_all(dir.path().join("growth/bfc/report")).expect("temporary directory");
        let all = read(&dir.path().join("growth")).expect("valid Criterion output");
        let points = vec![(1e4, 1e5), (1e5, 1e6), (1e6, 1e7)];
        assert_eq!(all, [Series { name: "bfc".to_owned(), points }]);

        fs::create_dir(dir.path().join("docs")).expect("temporary directory");
        let mut reported = Vec::new();
        assert!(plot(dir.path(), dir.path(), &mut reported).expect("the plot is writable"));
        let svg =
            fs::read_to_string(dir.path().join("docs/replay-growth.svg")).expect("the plot exists");
        assert!(svg.contains(r#"points="70.0,350.0 330.0,190.0 590.0,30.0""#), "{svg}");
        assert!(svg.contains(r#"stroke-dasharray"#) && svg.contains(">100 µs<"), "{svg}");
        assert!(String::from_utf8_lossy(&reported).contains("bfc: 10000 events in 0.100 ms"));
    }

    #[test]
    fn non_criterion_output_is_rejected() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let nothing = plot(dir.path(), dir.path(), &mut Vec::new());
        assert!(!nothing.expect("an empty directory is readable"));
        measured(dir.path(), "bfc", "10000", r#""point_estimate":7.5"#);
        let drawn = plot(dir.path(), dir.path(), &mut Vec::new());
        assert!(!drawn.expect("valid Criterion output"), "one point makes no line");
        measured(dir.path(), "bfc", "100000", r#""point_estimate":"long""#);
        let error = plot(dir.path(), dir.path(), &mut Vec::new()).expect_err("no number");
        assert!(error.to_string().ends_with("no median"), "{error}");
    }
}
