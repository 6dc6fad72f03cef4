//! A point in time of a history, in the form that people write.

use gpu_core::Timestamp;
use jiff::civil::{DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Span, SpanRelativeTo, Timestamp as Instant};
use std::str::FromStr;

/// A point in time of a history.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Moment {
    /// With its offset from UTC, such as `2026-11-24T10:00:00Z`.
    Instant(Timestamp),
    /// In local time, such as `2026-11-24T10:00`.
    Local(DateTime),
    /// A time of the last day, such as `10:00`: the last time that the clock showed it within the
    /// history, or else on the history's last day.
    OfDay(Time),
    /// This many milliseconds before the end, such as `-5m`.
    BeforeEnd(u64),
}

impl Moment {
    /// Returns the point in time, in a history from `start` to `end`; 1970 for a time before it,
    /// and `None` for a time that does not exist in the calendar.
    pub fn resolved(
        self,
        (start, end): (Timestamp, Timestamp),
        zone: &TimeZone,
    ) -> Option<Timestamp> {
        let at = |local: DateTime| {
            let zoned = local.to_zoned(zone.clone()).ok()?;
            Some(timestamp(zoned.timestamp()))
        };
        match self {
            Moment::Instant(time) => Some(time),
            Moment::Local(local) => at(local),
            Moment::OfDay(time) => {
                let last = i64::try_from(end.0).ok()?;
                let last = Instant::from_millisecond(last).ok()?.to_zoned(zone.clone()).date();
                let today = at(last.to_datetime(time))?;
                let yesterday = || at(last.yesterday().ok()?.to_datetime(time));
                let covered = |time: &Timestamp| (start..=end).contains(time);
                Some(today).filter(covered).or_else(|| yesterday().filter(covered)).or(Some(today))
            }
            Moment::BeforeEnd(millis) => Some(Timestamp(end.0.saturating_sub(millis))),
        }
    }
}

fn timestamp(instant: Instant) -> Timestamp {
    Timestamp(u64::try_from(instant.as_millisecond()).unwrap_or(0))
}

impl FromStr for Moment {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let before_end = |text: &str| {
            let span: Span = text.parse().ok()?;
            let span = span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()?;
            (span >= SignedDuration::ZERO).then(|| u64::try_from(span.as_millis()).ok())?
        };
        let instant = || Some(timestamp(text.parse().ok()?));
        let found = match text.strip_prefix('-') {
            Some(text) => before_end(text).map(Moment::BeforeEnd),
            None => None
                .or_else(|| instant().map(Moment::Instant))
                // A date with a time would be parsed as the time alone.
                .or_else(|| text.parse().ok().map(Moment::Local))
                .or_else(|| text.parse().ok().map(Moment::OfDay)),
        };
        found.ok_or("expected e.g. 2026-11-24T10:00, 10:00 of the last day, or -5m from the end")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two days before the end.
    const START: Timestamp = Timestamp(END.0 - 2 * 86_400_000);
    /// 2026-11-24 09:30 UTC, 10:30 in Berlin.
    const END: Timestamp = Timestamp(1_795_512_600_000);

    fn resolved(text: &str) -> Option<String> {
        let berlin = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        let moment: Moment = text.parse().ok()?;
        moment.resolved((START, END), &berlin).map(|time| time.to_string())
    }

    #[test]
    fn times_are_local_unless_they_say_otherwise() {
        for (text, time) in [
            ("2026-11-24T10:00", "2026-11-24T09:00:00.000Z"),
            ("2026-11-24 10:00:30", "2026-11-24T09:00:30.000Z"),
            ("2026-07-24T10:00", "2026-07-24T08:00:00.000Z"),
            ("2026-11-24", "2026-11-23T23:00:00.000Z"),
            ("2026-11-24T10:00:00Z", "2026-11-24T10:00:00.000Z"),
            ("2026-11-24T10:00:00+05:00", "2026-11-24T05:00:00.000Z"),
            ("10:00", "2026-11-24T09:00:00.000Z"),
            ("10:30:00", "2026-11-24T09:30:00.000Z"),
            ("10:31", "2026-11-23T09:31:00.000Z"),
            ("-5m", "2026-11-24T09:25:00.000Z"),
            ("-1h 30m", "2026-11-24T08:00:00.000Z"),
            ("-0s", "2026-11-24T09:30:00.000Z"),
            ("-99999d", "1970-01-01T00:00:00.000Z"),
            ("1960-01-01T00:00Z", "1970-01-01T00:00:00.000Z"),
            ("1960-01-01", "1970-01-01T00:00:00.000Z"),
        ] {
            assert_eq!(resolved(text).as_deref(), Some(time), "{text}");
        }
        for text in [
            "",
            "-",
            "soon",
            "5m",
            "25:00",
            "2026-02-30T10:00",
            "--5m",
            "-1 month",
            "9999-12-31T23:59:59",
        ] {
            assert_eq!(resolved(text), None, "{text}");
        }
    }

    #[test]
    fn time_of_day_outside_history_is_on_its_last_day() {
        let of_an_hour = (Timestamp(END.0 - 3_600_000), END);
        for (text, time) in [
            ("09:10", "2026-11-24T09:10:00.000Z"),
            ("08:00", "2026-11-24T08:00:00.000Z"),
            ("12:00", "2026-11-24T12:00:00.000Z"),
        ] {
            let moment: Moment = text.parse().unwrap();
            let resolved = moment.resolved(of_an_hour, &TimeZone::UTC).unwrap();
            assert_eq!(resolved.to_string(), time, "{text}");
        }
    }
}
