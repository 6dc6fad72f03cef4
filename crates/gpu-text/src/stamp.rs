//! The times in a text: the times of log messages, and the time of a tool's output.
//!
//! A pasted text is judged at its own time, so every form counts, even an incomplete one: a date
//! may lack the time zone, and a syslog date lacks the year.

use crate::driver_line::{MAX_PREFIX, start_in};
use crate::work_meter;
use gpu_core::Timestamp;

/// Milliseconds per day.
const DAY: i64 = 86_400_000;

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const WEEKDAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

/// A time with the precision of its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stamp {
    /// Milliseconds since 1970 (UTC), and the offset of the local time from UTC in minutes,
    /// positive to the east.
    Zoned(i64, i64),
    /// Milliseconds since 1970, read as if the local time were UTC.
    Local(i64),
    /// Milliseconds since the start of the year, counted in a leap year.
    Yearless(i64),
    /// Milliseconds since boot.
    Boot(i64),
}

/// The latest times of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TextTimes {
    zoned: Option<(i64, i64)>,
    local: Option<i64>,
    /// The last date that lacks a year.
    yearless: Option<i64>,
}

impl TextTimes {
    /// Records the time in a line: before a message, or in a tool's heading.
    pub(crate) fn take_line(&mut self, line: &str) {
        let found = of_line(line)
            .or_else(|| of_heading(line))
            .or_else(|| of_entry(line))
            .or_else(|| before_message(line));
        match found {
            Some(Stamp::Zoned(at, offset)) => self.zoned = self.zoned.max(Some((at, offset))),
            Some(Stamp::Local(at)) => self.local = self.local.max(Some(at)),
            Some(Stamp::Yearless(since)) => self.yearless = Some(since),
            Some(Stamp::Boot(_)) | None => {}
        }
    }

    /// Returns the latest of both; `other` comes from the following text.
    pub(crate) fn and(self, other: TextTimes) -> TextTimes {
        TextTimes {
            zoned: self.zoned.max(other.zoned),
            local: self.local.max(other.local),
            yearless: other.yearless.or(self.yearless),
        }
    }

    /// Takes the year from the clock if no date in the text has a year. A date that would then be
    /// in the future belongs to the previous year.
    pub(crate) fn with_year_of(self, clock: Timestamp) -> TextTimes {
        let known = TextTimes { local: i64::try_from(clock.0).ok(), ..TextTimes::default() };
        let last = self.yearless.filter(|_| self.latest().is_none());
        let last = last.and_then(|since| known.resolve(Stamp::Yearless(since)));
        let last = last.and_then(|at| i64::try_from(at.0).ok());
        TextTimes { local: self.local.max(last), ..self }
    }

    /// Returns the latest time. A time without a zone is in the zone of the latest time that has
    /// one, or in UTC. `None` if no line has a date with a year.
    pub(crate) fn latest(self) -> Option<Timestamp> {
        let zoned = self.zoned.map(|(at, _)| at);
        let local = self.local.map(|at| at - self.offset());
        zoned.max(local).and_then(|at| u64::try_from(at).ok()).map(Timestamp)
    }

    /// Returns whether any time has a zone, which then applies to all.
    pub(crate) fn has_zone(self) -> bool {
        self.zoned.is_some()
    }

    fn offset(self) -> i64 {
        self.zoned.map_or(0, |(_, minutes)| minutes * 60_000)
    }

    /// Returns the time of a stamp in this text; `None` if its year is unknown.
    pub(crate) fn resolve(self, stamp: Stamp) -> Option<Timestamp> {
        let at = match stamp {
            Stamp::Zoned(at, _) => at,
            Stamp::Local(at) => at - self.offset(),
            Stamp::Boot(_) => return None,
            Stamp::Yearless(since) => {
                // The last occurrence of this day in the calendar; a clock may be a day ahead.
                let latest = i64::try_from(self.latest()?.0).ok()? + self.offset() + DAY;
                let (month, day, rest) = month_and_day(since);
                let year = year_of(latest);
                let in_year = |year| days(year, month, day) * DAY + rest - self.offset();
                let at = in_year(year);
                if at > latest { in_year(year - 1) } else { at }
            }
        };
        u64::try_from(at).ok().map(Timestamp)
    }
}

/// Returns the time before a message: RFC 3339 (also with the comma of `dmesg --time-format iso`,
/// with the zone of `journalctl -o short-iso`, or without one), `[Mon Mar  3 10:00:00 2025]` of
/// `dmesg -T`, syslog's `Mar  3 10:00:00`, and the seconds since boot, each also after the facility
/// of `dmesg -x`.
pub(crate) fn of_line(line: &str) -> Option<Stamp> {
    let line = without_facility(line.trim_start());
    iso(line).or_else(|| {
        let (bare, is_closed) = match line.strip_prefix('[') {
            Some(rest) => (rest.trim_start(), rest.contains(']')),
            None => (line, true),
        };
        written(bare).or_else(|| boot(line)).filter(|_| is_closed)
    })
}

/// The maximum length of a time of day, with nanoseconds and a zone, in bytes.
const MAX_CLOCK: usize = 48;

/// The maximum number of words of a prefix that are searched for a time.
const MAX_PREFIX_WORDS: usize = 24;

/// Returns the time in the prefix of a message: at its start, otherwise the first date anywhere
/// (`time=2025-03-03T10:00:00Z level=err msg=`), otherwise the seconds since boot.
pub(crate) fn of_prefix(before: &str) -> Option<Stamp> {
    let before = before.get(..before.len().min(MAX_PREFIX)).unwrap_or_default();
    of_line(before).or_else(|| {
        let ends =
            |c: char| matches!(c, ' ' | '\t' | '|' | '=' | '"' | '\'' | ',' | '>' | '\u{2502}');
        let starts = before.match_indices(ends).take(MAX_PREFIX_WORDS);
        let words = starts.map(|(at, end)| &before[at + end.len()..]);
        let date = words
            .clone()
            .find_map(|word| iso(word).or_else(|| written(word)).or_else(|| epoch(word)));
        date.or_else(|| words.clone().find_map(boot))
    })
}

/// Returns the time before a driver message in a line.
pub(crate) fn before_message(line: &str) -> Option<Stamp> {
    of_prefix(&line[..start_in(line)?])
}

/// Returns the time of a journal entry: the line above its fields in `journalctl -o verbose`, or a
/// field in `-o export`.
pub(crate) fn of_entry(line: &str) -> Option<Stamp> {
    if let Some(micros) = line.strip_prefix("__REALTIME_TIMESTAMP=") {
        return epoch(micros);
    }
    line.split_once(" [s=").and_then(|(before, _)| of_prefix(before))
}

/// Parses milliseconds, microseconds or nanoseconds since 1970, in this century.
fn epoch(text: &str) -> Option<Stamp> {
    let end = text.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let unit = match end {
        13 => 1,
        16 => 1000,
        19 => 1_000_000,
        _ => return None,
    };
    let number: i64 = text[..end].parse().ok().filter(|_| text.starts_with('1'))?;
    Some(Stamp::Zoned(number / unit, 0))
}

/// Parses `[12345.678901]`, the seconds since boot, optionally after a level (`<3>`).
fn boot(line: &str) -> Option<Stamp> {
    let line = match line.strip_prefix('<') {
        Some(rest) => rest.split_once('>').filter(|(level, _)| level.len() <= 3)?.1,
        None => line,
    };
    let (seconds, _) = line.strip_prefix('[')?.split_once(']')?;
    let (seconds, fraction) = seconds.trim().split_once('.')?;
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let whole: i64 = seconds.parse().ok().filter(|_| seconds.len() <= 12 && is_number(seconds))?;
    is_number(fraction).then(|| Stamp::Boot(whole * 1000 + millis(fraction)))
}

/// Returns the time of a tool's output, from a line of its heading.
fn of_heading(line: &str) -> Option<Stamp> {
    let line = line.trim();
    let value = line.strip_prefix("<timestamp>").or_else(|| {
        let rest = line.strip_prefix("Timestamp")?;
        rest.trim_start().strip_prefix(':')
    });
    if let Some(value) = value {
        return written(value.trim_start());
    }
    if let Some(value) = line.strip_prefix("\"query_time\": \"") {
        return iso(value.split('"').next()?);
    }
    // gpustat: `host   Fri Jun 30 11:52:07 2023  535.54.03`.
    let (host, rest) = line.split_once("  ")?;
    let of_host = !host.contains(char::is_whitespace) && host.len() <= 64;
    written(rest.trim_start()).filter(|stamp| of_host && matches!(stamp, Stamp::Local(_)))
}

/// Returns a line without `kern  :err   : `, which `dmesg -x` puts before the time.
fn without_facility(line: &str) -> &str {
    let is_word = |part: &str| {
        let part = part.trim_end();
        !part.is_empty() && part.len() <= 8 && part.bytes().all(|b| b.is_ascii_lowercase())
    };
    let mut parts = line.splitn(3, ':');
    match (parts.next(), parts.next(), parts.next()) {
        (Some(facility), Some(level), Some(rest)) if is_word(facility) && is_word(level) => {
            rest.trim_start()
        }
        _ => line,
    }
}

/// Parses `Mon Mar  3 10:00:00 2025`, with or without the day of the week, a zone or the year.
fn written(text: &str) -> Option<Stamp> {
    let mut words = text.split([' ', ']', '<']).filter(|word| !word.is_empty()).take(7);
    let mut word = words.next()?;
    let has_weekday = WEEKDAYS.contains(&word.trim_end_matches(','));
    if has_weekday {
        word = words.next()?;
    }
    let month = MONTHS.iter().position(|month| *month == word)? as i64 + 1;
    let day = number(words.next()?, 1, 31)?;
    let clock = words.next()?;
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, ""));
    let mut parts = clock.split(':');
    let mut part = |most| number(parts.next()?, 0, most);
    let (hour, minute, second) = (part(23)?, part(59)?, part(60)?);
    if parts.next().is_some() {
        return None;
    }
    let mut hour = hour;
    let mut year = words.next();
    if matches!(year, Some("AM" | "PM")) {
        hour = hour % 12 + if year == Some("PM") { 12 } else { 0 };
        year = words.next();
    }
    let is_utc = matches!(year, Some("UTC" | "GMT"));
    let is_zone = |word: &str| word.len() <= 5 && word.bytes().all(|b| b.is_ascii_uppercase());
    if year.is_some_and(is_zone) {
        year = words.next();
    }
    let of_day = ((hour * 60 + minute) * 60 + second) * 1000 + millis(fraction);
    let year = year.filter(|year| year.len() == 4).and_then(|year| number(year, 1970, 9999));
    match year {
        Some(year) => {
            let at = days(year, month, day) * DAY + of_day;
            Some(if is_utc { Stamp::Zoned(at, 0) } else { Stamp::Local(at) })
        }
        // A syslog line has no day of the week.
        None if !has_weekday => {
            Some(Stamp::Yearless((days(2000, month, day) - days(2000, 1, 1)) * DAY + of_day))
        }
        None => None,
    }
}

/// Parses a number that consists only of digits, within these bounds.
fn number(digits: &str, least: i64, most: i64) -> Option<i64> {
    let is_short = !digits.is_empty() && digits.len() <= 4;
    let number: i64 = digits.parse().ok().filter(|_| is_short)?;
    (digits.bytes().all(|b| b.is_ascii_digit()) && (least..=most).contains(&number))
        .then_some(number)
}

/// Returns a fraction of a second in milliseconds, from its first three digits.
fn millis(fraction: &str) -> i64 {
    let end = fraction.find(|c: char| !c.is_ascii_digit()).unwrap_or(fraction.len());
    let digit = |index| fraction.as_bytes()[..end].get(index).map_or(0, |digit| digit - b'0');
    (0..3).fold(0, |millis, index| millis * 10 + i64::from(digit(index)))
}

/// Parses `2025-03-03T10:00:00.123+01:00`, also with a blank or a slash in the date.
fn iso(line: &str) -> Option<Stamp> {
    let line = line.trim_start_matches('[');
    let (date, rest) = line.split_at_checked(10)?;
    if !date.is_ascii() || !rest.starts_with(['T', ' ']) {
        return None;
    }
    let has_blank = rest.starts_with(' ');
    let ends = [' ', ']', '"', '\'', '|', '\t', '}', '\u{2502}'];
    let mut words = rest[1..].split(ends);
    let clock = words.next()?;
    let clock = &clock[..clock.floor_char_boundary(MAX_CLOCK)];
    // A comma is a decimal point or ends a cell.
    let ends_cell = |(at, _): &(usize, &str)| {
        clock[..*at].contains(['.', 'Z', '+'])
            || !clock[at + 1..].starts_with(|c: char| c.is_ascii_digit())
    };
    let cell = clock.match_indices(',').find(ends_cell).map_or(clock.len(), |(at, _)| at);
    let clock = &clock[..cell];
    let is_utc = words.next() == Some("UTC");
    work_meter::add(clock.len());
    if !clock.is_ascii() {
        return None;
    }
    let part = |text: &str, from: usize, length: usize, most: i64| {
        number(text.get(from..from + length)?, 0, most)
    };
    let is_separated = |text: &str, separators: &[(usize, &[u8])]| {
        separators
            .iter()
            .all(|(at, signs)| text.as_bytes().get(*at).is_some_and(|b| signs.contains(b)))
    };
    if !is_separated(date, &[(4, b"-/"), (7, b"-/")])
        || !is_separated(clock, &[(2, b":"), (5, b":")])
    {
        return None;
    }
    let (year, month, day) =
        (part(date, 0, 4, 9999)?, part(date, 5, 2, 12)?, part(date, 8, 2, 31)?);
    let (hour, minute, second) =
        (part(clock, 0, 2, 23)?, part(clock, 3, 2, 59)?, part(clock, 6, 2, 60)?);
    if month == 0 || day == 0 {
        return None;
    }
    let rest = clock.get(8..)?;
    let fraction = rest.strip_prefix(['.', ',']).unwrap_or_default();
    let length = fraction.find(|c: char| !c.is_ascii_digit()).unwrap_or(fraction.len());
    let at = days(year, month, day) * DAY
        + ((hour * 60 + minute) * 60 + second) * 1000
        + millis(fraction);
    let zone = if rest.starts_with(['.', ',']) { &fraction[length..] } else { rest };
    let zone = match zone.as_bytes() {
        [] => None,
        [b'Z'] => Some(0),
        [sign @ (b'+' | b'-'), ..] => {
            let minutes = match zone.len() {
                3 => 0,
                5 => part(zone, 3, 2, 59)?,
                6 if zone.as_bytes()[3] == b':' => part(zone, 4, 2, 59)?,
                _ => return None,
            };
            let minutes = part(zone, 1, 2, 23)? * 60 + minutes;
            Some(if *sign == b'+' { minutes } else { -minutes })
        }
        _ => return None,
    };
    match zone {
        // Only the form with a `T` names its zone without a blank.
        Some(_) if has_blank => None,
        Some(minutes) => {
            Some(Stamp::Zoned(at - minutes * 60_000, minutes)).filter(|_| at >= minutes * 60_000)
        }
        None if is_utc => Some(Stamp::Zoned(at, 0)),
        None => Some(Stamp::Local(at)),
    }
}

/// Returns the days from 1970-01-01 to a date. Source: `days_from_civil` in Howard Hinnant's
/// "chrono-Compatible Low-Level Date Algorithms".
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Returns the year of a time in milliseconds since 1970.
fn year_of(at: i64) -> i64 {
    let day = at.div_euclid(DAY);
    // At most one too late, because a year has at most 366 days.
    let guess = 1970 + day.div_euclid(365);
    (0..).map(|back| guess - back).find(|year| days(*year, 1, 1) <= day).unwrap_or(guess)
}

/// Converts milliseconds since the start of a leap year into month, day of the month and remaining
/// milliseconds.
fn month_and_day(since: i64) -> (i64, i64, i64) {
    let day = since.div_euclid(DAY) + days(2000, 1, 1);
    let month = (1..=12).rev().find(|month| days(2000, *month, 1) <= day).unwrap_or(1);
    (month, day - days(2000, month, 1) + 1, since.rem_euclid(DAY))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// 2025-03-03T10:00:00Z.
    const AT: i64 = 1_740_996_000_000;

    #[test]
    fn times_are_as_precise_as_their_text() {
        let zoned = |at, minutes| Some(Stamp::Zoned(at, minutes));
        let local = Some(Stamp::Local(AT));
        let march = Some(Stamp::Yearless((days(2000, 3, 3) - days(2000, 1, 1)) * DAY + 36_000_000));
        for (stamp, time) in [
            ("1970-01-01T00:00:00Z", zoned(0, 0)),
            ("2025-03-03T10:00:00+00:00", zoned(AT, 0)),
            ("2025-03-03T10:00:00,123456+00:00", zoned(AT + 123, 0)),
            ("[2025-03-03T10:00:00.5-0130]", zoned(AT + 5_400_500, -90)),
            ("2024-02-29T23:59:59.999+01", zoned(1_709_247_599_999, 60)),
            ("kern  :err   : 2025-03-03T11:00:00,000001+01:00", zoned(AT, 60)),
            ("2025-03-03T10:00:00", local),
            ("2025-03-03 10:00:00", local),
            ("2025/03/03 10:00:00.000, 7", local),
            ("2025/03/03 10:00:00", local),
            ("2025-03-03 10:00:00 UTC", zoned(AT, 0)),
            ("[Mon Mar  3 10:00:00 2025]", local),
            ("kern  :warn  : [Mon Mar  3 10:00:00 2025]", local),
            ("Mon Mar  3 10:00:00 2025", local),
            ("Mon Mar  3 10:00:00 AM 2025", local),
            ("Mon Mar  3 10:00:00 UTC 2025", zoned(AT, 0)),
            ("Mon Mar  3 10:00:00 CET 2025", local),
            ("Mar  3 10:00:00", march),
            ("Mar 03 10:00:00.000123", march),
            ("Mon Mar  3 10:00:00", None),
            ("2025-03-03 10:00:00Z", None),
            ("2025-13-03T10:00:00Z", None),
            ("2025-00-03T10:00:00Z", None),
            ("2025-03-00T10:00:00Z", None),
            ("2025-03-03T24:00:00Z", None),
            ("2025-03-03T10:60:00Z", None),
            ("2025-03-03T10:00:00+1:00", None),
            ("2025-03-03T10:00:00+01.00", None),
            ("+025-03-03T10:00:00Z", None),
            ("Mar 32 10:00:00", None),
            ("Mar  3 10:00", None),
            ("[   12.5]", Some(Stamp::Boot(12_500))),
            ("[12345.678901][ T1946]", Some(Stamp::Boot(12_345_678))),
            ("<3>[    7.1]", Some(Stamp::Boot(7100))),
            ("kern  :err   : [   12.5]", Some(Stamp::Boot(12_500))),
            ("[12]", None),
            ("[1.x]", None),
            ("[1.5", None),
            ("2025-03-03T10:00:00+\u{e9}", None),
            ("\u{e9}025-03-03T10:00:00Z", None),
            ("", None),
        ] {
            assert_eq!(of_line(&format!("{stamp} node7 kernel: x")), time, "{stamp}");
        }
    }

    #[test]
    fn time_is_found_anywhere_in_a_prefix() {
        let zoned = Some(Stamp::Zoned(AT, 0));
        for (before, time) in [
            ("<4>1 2025-03-03T11:00:00.000+01:00 n kernel - - - ", Some(Stamp::Zoned(AT, 60))),
            ("<4>Mar  3 10:00:00 n kernel: ", of_line("Mar  3 10:00:00 n")),
            ("level=err time=2025-03-03T10:00:00Z msg=\"", zoned),
            ("ts=\"2025-03-03T10:00:00Z\" msg=\"", zoned),
            ("| 2025-03-03 10:00:00 | n | ", Some(Stamp::Local(AT))),
            ("n,2025-03-03T10:00:00.000Z,7,", zoned),
            ("2025-03-03T10:00:00Z,n,", zoned),
            ("2025-03-03T10:00:00,n,", Some(Stamp::Local(AT))),
            ("Mon 2025-03-03 10:00:00 UTC n kernel: ", zoned),
            ("Mon 2025-03-03 10:00:00 CET n kernel: ", Some(Stamp::Local(AT))),
            ("[\"1740996000000000000\",\"", zoned),
            ("box7  | [   12.5] ", Some(Stamp::Boot(12_500))),
            ("Warning XidError 5m x ", None),
            ("1740996000000000000000 ", None),
        ] {
            assert_eq!(of_prefix(before), time, "{before}");
        }
        assert_eq!(of_entry("__REALTIME_TIMESTAMP=1740996000000000"), zoned);
        assert_eq!(of_entry("Mon 2025-03-03 10:00:00.000000 UTC [s=1;i=2]"), zoned);
        assert_eq!(of_entry("_PID=1740996000000000"), None);
    }

    fn times(text: &str) -> TextTimes {
        let mut times = TextTimes::default();
        text.lines().for_each(|line| times.take_line(line));
        times
    }

    #[test]
    fn latest_time_comes_from_text() {
        let at = |text: &str| times(text).latest().map(|at| at.0 as i64 - AT);
        for (text, want) in [
            ("Timestamp                : Mon Mar  3 10:00:00 2025\n", Some(0)),
            ("\t<timestamp>Mon Mar  3 10:00:01 2025</timestamp>\n", Some(1000)),
            ("box7     Mon Mar  3 10:00:02 2025  550.1\n", Some(2000)),
            ("2025-03-03T10:00:03+00:00 x\n2025-03-03T10:00:01+00:00 y\n", Some(3000)),
            // A heading takes the zone of the log in the same text.
            ("2025-03-03T10:59:00+0100 x\nMon Mar  3 11:00:04 2025\n", Some(4000)),
            ("Release Build  (builder)  Mon Jun  2 13:13:04 UTC 2025\n", None),
            ("Mar  3 10:00:00 node7 kernel: x\n", None),
            ("no time\n", None),
        ] {
            assert_eq!(at(text), want, "{text}");
        }
    }

    #[test]
    fn missing_year_comes_from_other_times() {
        let resolve = |heading: &str, line: &str| {
            let at = times(heading).resolve(of_line(line).unwrap());
            at.map(|at| at.to_string()[..10].to_owned())
        };
        let heading = "Mon Mar  3 10:00:00 2025\n";
        for (line, want) in [
            ("Mar  3 09:00:00 n", Some("2025-03-03")),
            ("Mar  4 09:00:00 n", Some("2025-03-04")),
            ("Dec 31 09:00:00 n", Some("2024-12-31")),
            ("Feb 29 09:00:00 n", Some("2025-03-01")),
        ] {
            assert_eq!(resolve(heading, line).as_deref(), want, "{line}");
        }
        assert_eq!(resolve("", "Mar  3 09:00:00 n"), None);
        // A clock gives the year if no date has one.
        let by_clock = |line: &str| {
            let found = times(line).with_year_of(Timestamp(AT as u64));
            found.latest().map(|at| at.to_string()[..10].to_owned())
        };
        for (line, want) in [
            ("Mar  3 09:00:00 n", "2025-03-03"),
            ("Mar  4 09:00:00 n", "2025-03-04"),
            ("Mar  5 09:00:00 n", "2024-03-05"),
            ("Dec 31 23:59:59 n\nJan  1 00:00:01 n", "2025-01-01"),
            ("2023-07-01T00:00:00Z n\nFeb  5 00:00:00 n", "2023-07-01"),
        ] {
            assert_eq!(by_clock(line).as_deref(), Some(want), "{line}");
        }
        assert_eq!(times("no date").with_year_of(Timestamp(AT as u64)).latest(), None);
        assert_eq!(resolve("", "[Mon Mar  3 09:00:00 2025] n").as_deref(), Some("2025-03-03"));
    }

    proptest! {
        #[test]
        fn written_time_is_read(at in 0_u64..253_402_300_800_000) {
            let stamp = of_line(&Timestamp(at).to_string());
            prop_assert_eq!(stamp, Some(Stamp::Zoned(at as i64, 0)));
            prop_assert_eq!(days(year_of(at as i64), 1, 1) * DAY <= at as i64, true);
            prop_assert_eq!(days(year_of(at as i64) + 1, 1, 1) * DAY > at as i64, true);
        }

        #[test]
        fn arbitrary_line_never_panics(line in any::<String>(), head in "[A-Z][a-z]{2} {1,2}[0-9]{1,2} [0-9:]{0,9}") {
            let mut times = TextTimes::default();
            for line in [line.clone(), format!("{head} {line}"), format!("2025-03-03T{line}")] {
                times.take_line(&line);
                let _ = of_line(&line).map(|stamp| times.resolve(stamp));
            }
        }
    }
}
