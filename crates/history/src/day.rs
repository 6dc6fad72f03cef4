//! A day, in UTC, and the names of its files.

use gpu_core::Timestamp;
use std::fmt;

const MILLIS: u64 = 86_400_000;
/// The day after the last whose date has four digits of a year: 10000-01-01.
const END: u64 = 2_932_897;

/// A day in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Day(u64);

impl Day {
    /// Returns the day of a point in time; `None` after the year 9999.
    pub fn of(time: Timestamp) -> Option<Day> {
        Some(Day(time.0 / MILLIS)).filter(|day| day.0 < END)
    }

    /// Returns the start of the day.
    pub fn start(self) -> Timestamp {
        Timestamp(self.0 * MILLIS)
    }

    /// Returns the start of the next day.
    pub fn end(self) -> Timestamp {
        Timestamp((self.0 + 1) * MILLIS)
    }

    /// Returns the day of a file with this name, if it names a file of this kind.
    pub(crate) fn of_file(kind: FileKind, name: &str) -> Option<Day> {
        let date = name.strip_prefix(kind.prefix())?;
        let mut parts = date.split('-').map(|part| part.parse::<u64>().ok());
        let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
        if year > 9999 || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
            return None;
        }
        // Days from a civil date, after Howard Hinnant's `days_from_civil` (chrono-compatible
        // low-level date algorithms), for dates from 1970 on.
        let year = if month <= 2 { year.checked_sub(1)? } else { year };
        let of_era = year % 400;
        let shifted = (month + 9) % 12;
        let of_year = (153 * shifted + 2) / 5 + day - 1;
        let days = year / 400 * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year;
        // Each day has one name, so 2026-02-30 and 2026-2-3 are invalid.
        Some(Day(days.checked_sub(719_468)?)).filter(|day| kind.name(*day) == name)
    }
}

impl fmt::Display for Day {
    /// Writes its date, such as `2026-11-24`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.start().to_string()[..10])
    }
}

/// The two files of a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileKind {
    /// The frames.
    Data,
    /// The positions of the frames in the data.
    Index,
}

impl FileKind {
    fn prefix(self) -> &'static str {
        match self {
            FileKind::Data => "data_",
            FileKind::Index => "index_",
        }
    }

    /// Returns the name of the file of a day.
    pub(crate) fn name(self, day: Day) -> String {
        format!("{}{day}", self.prefix())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_are_dates_in_utc() {
        for (millis, name) in [
            (0, "index_1970-01-01"),
            (951_782_400_000, "index_2000-02-29"),
            (1_795_223_083_000, "index_2026-11-21"),
            (END * MILLIS - 1, "index_9999-12-31"),
        ] {
            let day = Day::of(Timestamp(millis)).unwrap();
            assert_eq!(FileKind::Index.name(day), name);
            assert_eq!(Day::of_file(FileKind::Index, name), Some(day));
            assert_eq!(Day::of_file(FileKind::Data, name), None);
            assert!(day.start().0 <= millis && millis < day.end().0);
        }
        assert_eq!(Day::of(Timestamp(END * MILLIS)), None);
        for name in ["index_", "index_2026-02-30", "index_2026-2-03", "index_2026-11-21-", "lock"] {
            assert_eq!(Day::of_file(FileKind::Index, name), None, "{name}");
        }
    }
}
