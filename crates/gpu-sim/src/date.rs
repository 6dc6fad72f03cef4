//! Converts dates in `machine.toml` to wall clock times.

use gpu_core::Timestamp;
use jiff::civil::DateTime;
use jiff::tz;
use toml::value::{Datetime, Offset};

/// Returns the point in time of a date with a time of day, in UTC if it has no offset; `None` for a
/// lone date or time, an invalid date, a leap second or a year before 1970.
pub(crate) fn timestamp(datetime: &Datetime) -> Option<Timestamp> {
    let (date, time) = (datetime.date?, datetime.time?);
    let minutes = match datetime.offset {
        Some(Offset::Custom { minutes }) => minutes,
        Some(Offset::Z) | None => 0,
    };
    let small = |part: u8| i8::try_from(part).ok();
    let nanosecond = i32::try_from(time.nanosecond.unwrap_or(0)).ok()?;
    let local = DateTime::new(
        i16::try_from(date.year).ok()?,
        small(date.month)?,
        small(date.day)?,
        small(time.hour)?,
        small(time.minute)?,
        small(time.second.unwrap_or(0))?,
        nanosecond,
    );
    let offset = tz::Offset::from_seconds(i32::from(minutes) * 60).ok()?;
    let instant = offset.to_timestamp(local.ok()?).ok()?;
    u64::try_from(instant.as_millisecond()).ok().map(Timestamp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_round_trip() {
        for (text, shown) in [
            ("1970-01-01T00:00:00Z", "1970-01-01T00:00:00.000Z"),
            ("2000-02-29T23:59:59.5Z", "2000-02-29T23:59:59.500Z"),
            ("2019-10-08T09:14:00+02:00", "2019-10-08T07:14:00.000Z"),
            ("2026-12-31T12:00:00", "2026-12-31T12:00:00.000Z"),
        ] {
            let datetime: Datetime = text.parse().unwrap();
            assert_eq!(timestamp(&datetime).unwrap().to_string(), shown);
        }
        for text in ["2019-10-08", "09:14:00", "1969-12-31T23:59:59Z"] {
            assert_eq!(timestamp(&text.parse().unwrap()), None, "{text}");
        }
    }
}
