//! Dates of `machine.toml` on the wall clock.

use gpu_core::Timestamp;
use toml::value::{Datetime, Offset};

/// Returns the point in time of a date with a time of day, in UTC if it has no offset; `None` for a
/// lone date or time, a leap second or a year before 1970.
pub(crate) fn timestamp(datetime: &Datetime) -> Option<Timestamp> {
    let (date, time) = (datetime.date?, datetime.time?);
    let offset = match datetime.offset {
        Some(Offset::Custom { minutes }) => i64::from(minutes),
        Some(Offset::Z) | None => 0,
    };
    let days = days_since_1970(i64::from(date.year), i64::from(date.month), i64::from(date.day));
    let minutes = days * 1440 + i64::from(time.hour) * 60 + i64::from(time.minute) - offset;
    let second = time.second.unwrap_or(0);
    let millis = i64::from(time.nanosecond.unwrap_or(0) / 1_000_000);
    let total = minutes * 60_000 + i64::from(second) * 1000 + millis;
    u64::try_from(total).ok().filter(|_| second < 60).map(Timestamp)
}

/// Counts days of the Gregorian calendar, years beginning in March so that the leap day is last.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month < 3 { year - 1 } else { year };
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    // 719,468 days lie between 1 March of the year 0 and 1 January 1970.
    365 * year + leap_days + day_of_year - 719_468
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
