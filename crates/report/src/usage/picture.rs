//! Pictures of a page, as SVG: use over time, stacked by user, and bars by user.

use super::{By, Usage, hours};
use crate::local_time::format;
use gpu_accounting::{Bucket, Owner};
use gpu_core::{Timestamp, escape_markup};
use jiff::Timestamp as Instant;
use jiff::tz::TimeZone;
use std::fmt::Write as _;
use std::time::Duration;

/// The number of users with their own colour; the others share one.
const COLOURS: usize = 7;

/// The size of a picture and of its drawing, in the units of the SVG.
const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 220.0;
const LEFT: f64 = 56.0;
const TOP: f64 = 10.0;
const RIGHT: f64 = 8.0;
const BOTTOM: f64 = 26.0;
/// The width of the longest label of the time axis, a date.
const LABEL: f64 = 72.0;

/// The maximum length of a user's name: it may be arbitrarily long.
pub(super) const NAME: usize = 40;

/// A user, or several users with one colour.
pub(super) struct Shade {
    pub(super) name: String,
    /// The class of its colour: `c0` to `c7`.
    pub(super) class: String,
    owners: Vec<usize>,
}

/// Returns the shades of the users, in descending order of the time that they held devices.
pub(super) fn shades(usage: &Usage<'_>) -> Vec<Shade> {
    let owners = usage.accounts.owners();
    let mut held: Vec<(usize, Duration)> =
        usage.accounts.users().map(|(_, amounts)| amounts.held).enumerate().collect();
    held.sort_by_key(|(index, held)| (owners[*index] == Owner::Unlisted, std::cmp::Reverse(*held)));
    let mut shades: Vec<Shade> = Vec::new();
    for (index, _) in held {
        let is_full = shades.len() > COLOURS;
        match shades.last_mut().filter(|_| is_full) {
            Some(others) => {
                others.name = "others".to_owned();
                others.owners.push(index);
            }
            None => shades.push(Shade {
                name: owners[index].to_string(),
                class: format!("c{}", shades.len()),
                owners: vec![index],
            }),
        }
    }
    shades
}

/// Draws how many GPUs were used over time, as the mean of each bucket.
pub(super) fn used(usage: &Usage<'_>, shades: &[Shade]) -> String {
    let value = |bucket: &Bucket, shade: &Shade| {
        let parts = shade.owners.iter().filter_map(|owner| bucket.parts.get(owner));
        let used: Duration = parts.map(|part| part.used).sum();
        used.as_secs_f64() / bucket.watched.as_secs_f64()
    };
    let most = usage.accounts.gpus().len().max(1) as f64;
    over_time(usage, shades, "GPUs used over time, by user", most, "", value)
}

/// Draws the memory in use over time.
pub(super) fn memory(usage: &Usage<'_>, shades: &[Shade]) -> String {
    let value = |bucket: &Bucket, shade: &Shade| {
        let parts = shade.owners.iter().filter_map(|owner| bucket.parts.get(owner));
        parts.map(|part| part.memory(bucket.watched).gib()).sum()
    };
    let most = usage.accounts.total().peak.gib().max(0.1);
    over_time(usage, shades, "GPU memory held over time, by user", most, " GiB", value)
}

fn over_time(
    usage: &Usage<'_>,
    shades: &[Shade],
    title: &str,
    most: f64,
    unit: &str,
    value: impl Fn(&Bucket, &Shade) -> f64,
) -> String {
    let (step, most) = scale(most);
    let (wide, high) = (WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM);
    let buckets = usage.accounts.series().buckets();
    let x = |index: usize| LEFT + wide * index as f64 / buckets.len().max(1) as f64;
    let y = |value: f64| TOP + high * (1.0 - (value / most).min(1.0));
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">\n<title>{}</title>\n",
        escape_markup(title, 100)
    );
    let mut level = 0.0;
    while level <= most * 1.001 {
        let (at, text) = (y(level), format!("{}{unit}", short(level)));
        let _ = writeln!(
            svg,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
             <text class=\"axis end\" x=\"{:.1}\" y=\"{:.1}\">{text}</text>",
            WIDTH - RIGHT,
            LEFT - 5.0,
            at + 4.0
        );
        level += step;
    }
    for (share, text) in ticks(usage) {
        let at = LEFT + wide * share;
        // A centred label at the right end would exceed the picture.
        let (at, anchor) = if at + LABEL / 2.0 > WIDTH { (WIDTH, "end") } else { (at, "mid") };
        let _ = writeln!(
            svg,
            "<text class=\"axis {anchor}\" x=\"{at:.1}\" y=\"{:.1}\">{text}</text>",
            HEIGHT - 8.0
        );
    }
    // A path for each user, with a closed shape for each part without a gap.
    let mut below = vec![0.0; buckets.len()];
    for shade in shades {
        let mut path = String::new();
        for run in runs(buckets) {
            let mut back = Vec::new();
            for index in run {
                let base = below[index];
                below[index] += value(&buckets[index], shade);
                let (left, right, top) = (x(index), x(index + 1), y(below[index]));
                let start = if back.is_empty() { 'M' } else { 'L' };
                let _ = write!(path, "{start}{left:.1} {top:.1}H{right:.1}");
                back.push((left, right, y(base)));
            }
            for (left, right, base) in back.into_iter().rev() {
                let _ = write!(path, "L{right:.1} {base:.1}H{left:.1}");
            }
            path.push('Z');
        }
        let name = escape_markup(&shade.name, NAME);
        let class = &shade.class;
        let _ = writeln!(svg, "<path class=\"{class}\" d=\"{path}\"><title>{name}</title></path>");
    }
    svg.push_str("</svg>\n");
    svg
}

/// Returns the parts of the time that were watched without a gap.
fn runs(buckets: &[Bucket]) -> Vec<std::ops::Range<usize>> {
    let mut runs: Vec<std::ops::Range<usize>> = Vec::new();
    for (index, bucket) in buckets.iter().enumerate() {
        match runs.last_mut() {
            _ if bucket.watched.is_zero() => {}
            Some(run) if run.end == index => run.end += 1,
            _ => runs.push(index..index + 1),
        }
    }
    runs
}

/// Returns the marks of the time axis: the position from 0 to 1, and the local time.
fn ticks(usage: &Usage<'_>) -> Vec<(f64, String)> {
    let series = usage.accounts.series();
    let width = u64::try_from(series.width().as_millis()).unwrap_or(u64::MAX);
    let whole = width.saturating_mul(series.buckets().len() as u64);
    let Some(start) = series.start() else { return Vec::new() };
    let marks = marks(start, whole, &usage.zone).into_iter();
    marks.map(|(after, text)| (after as f64 / whole.max(1) as f64, text)).collect()
}

/// The distances of the marks of a time axis, in seconds: up to weeks, quarters and a year.
const STEPS: [u64; 17] = [
    1, 5, 15, 60, 300, 900, 3_600, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800, 1_209_600,
    2_419_200, 7_862_400, 31_536_000,
];

/// Returns at most nine marks for a period of `whole` milliseconds: the milliseconds after its
/// start, and the local time. They are at full hours and days of the local time, even after the
/// zone changes its offset.
fn marks(start: Timestamp, whole: u64, zone: &TimeZone) -> Vec<(u64, String)> {
    let mut steps = STEPS.iter().map(|seconds| seconds * 1_000);
    let step = steps.find(|step| whole / step <= 8).unwrap_or((whole / 8).max(1));
    let form = match step / 1_000 {
        7_862_400.. => "%Y-%m-%d",
        86_400.. => "%b %-d",
        60.. => "%H:%M",
        _ => "%H:%M:%S",
    };
    let offset = |at: u64| {
        let at = i64::try_from(at).ok().and_then(|at| Instant::from_millisecond(at).ok());
        at.map_or(0, |at| i64::from(zone.to_offset(at).seconds()) * 1_000)
    };
    let local = start.0.saturating_add_signed(offset(start.0));
    let first = local.checked_next_multiple_of(step);
    let marks = std::iter::successors(first, move |mark| mark.checked_add(step));
    let times = marks.map(move |mark| {
        let about = mark.saturating_add_signed(-offset(start.0));
        mark.saturating_add_signed(-offset(about))
    });
    let times = times.take_while(move |at| at.saturating_sub(start.0) <= whole).take(9);
    times.map(move |at| (at.saturating_sub(start.0), format(Timestamp(at), zone, form))).collect()
}

/// Returns the distance of the grid lines and the end of an axis that reaches `most`.
fn scale(most: f64) -> (f64, f64) {
    let power = 10_f64.powf((most / 4.0).log10().floor());
    let factors = [1.0, 2.0, 5.0, 10.0];
    let step = factors.map(|factor| factor * power).into_iter().find(|step| most / step <= 4.0);
    let step = step.unwrap_or(most);
    (step, (most / step).ceil() * step)
}

fn short(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Draws the GPU-hours of each user as a bar: used, idle, and otherwise held.
pub(super) fn bars(usage: &Usage<'_>) -> String {
    const ROW: f64 = 24.0;
    const NAMES: f64 = 150.0;
    const NUMBERS: f64 = 70.0;
    let rows: Vec<_> = usage.rows(By::User).into_iter().take(20).collect();
    let most = rows.iter().map(|row| row.amounts.held.max(row.amounts.used)).max();
    let most = most.unwrap_or_default();
    let scale = (WIDTH - NAMES - NUMBERS) / most.as_secs_f64().max(1.0);
    let height = ROW * rows.len() as f64 + 4.0;
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">\n\
         <title>GPU-hours held, used and idle by user</title>\n"
    );
    for (index, row) in rows.iter().enumerate() {
        let y = ROW * index as f64 + 2.0;
        let [held, used, idle] = [row.amounts.held, row.amounts.used, row.amounts.idle]
            .map(|time| time.as_secs_f64() * scale);
        let bar = |class: &str, width: f64, inset: f64| {
            format!(
                "<rect class=\"{class}\" x=\"{NAMES}\" y=\"{:.1}\" width=\"{width:.1}\" \
                 height=\"{:.1}\"/>",
                y + inset,
                ROW - 6.0 - 2.0 * inset
            )
        };
        // Idle time is at the end of held time.
        let idle = format!(
            "<rect class=\"idle\" x=\"{:.1}\" y=\"{y:.1}\" width=\"{idle:.1}\" height=\"{:.1}\"/>",
            NAMES + held - idle,
            ROW - 6.0
        );
        let _ = writeln!(
            svg,
            "<text class=\"axis end\" x=\"{:.1}\" y=\"{:.1}\">{}</text>{}{idle}{}\
             <text class=\"axis\" x=\"{:.1}\" y=\"{:.1}\">{} h</text>",
            NAMES - 8.0,
            y + 13.0,
            escape_markup(&row.name, 18),
            bar("held", held, 0.0),
            bar("used", used, 4.0),
            NAMES + held.max(used) + 6.0,
            y + 13.0,
            escape_markup(&hours(row.amounts.held, most), NAME)
        );
    }
    svg.push_str("</svg>\n");
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axis_has_round_marks() {
        for (most, step, end) in
            [(8.0, 2.0, 8.0), (1.0, 0.5, 1.0), (640.0, 200.0, 800.0), (3.0, 1.0, 3.0)]
        {
            assert_eq!(scale(most), (step, end), "{most}");
        }
    }

    fn marked(start: u64, days: u64) -> Vec<String> {
        let berlin = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        marks(Timestamp(start), days * 86_400_000, &berlin)
            .into_iter()
            .map(|(_, text)| text)
            .collect()
    }

    #[test]
    fn marks_of_months_and_years_are_at_full_days_of_the_local_time() {
        // 2026-10-22T22:00Z: midnight of the 23rd in Berlin, two days before the clock is set back.
        let start = 1_792_706_400_000;
        let days = ["Oct 23", "Oct 24", "Oct 25", "Oct 26", "Oct 27"];
        assert_eq!(marked(start, 5), days);
        assert!((7..=8).contains(&marked(start, 100).len()), "{:?}", marked(start, 100));
        let (quarters, years) = (marked(start, 500), marked(start, 2_000));
        assert!((5..=6).contains(&quarters.len()), "{quarters:?}");
        assert!(quarters.iter().all(|mark| mark.len() == "2026-10-23".len()), "{quarters:?}");
        assert!((5..=6).contains(&years.len()), "{years:?}");
    }

    #[test]
    fn marks_of_impossible_times_end() {
        for (start, whole) in [(0, u64::MAX), (u64::MAX, u64::MAX), (u64::MAX - 5, 5), (0, 0)] {
            let marks = marks(Timestamp(start), whole, &TimeZone::UTC);
            assert!(marks.len() <= 9, "{start} {whole}");
        }
    }
}
