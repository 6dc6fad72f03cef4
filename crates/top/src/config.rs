//! The user's settings file, as text.
//!
//! The caller reads the file; command-line options take precedence.

use crate::options::{Attention, Marker, Theme};
use crate::rows::Column;
use gpu_report::COLUMN_ALIASES;
use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;
use toml::{Table, Value};

/// The settings of a file; `None` for each setting that it lacks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    /// The time between snapshots.
    pub interval: Option<Duration>,
    /// The sort column.
    pub sort: Option<Column>,
    /// The order is reversed.
    pub reverse: Option<bool>,
    /// The columns of the table.
    pub columns: Option<Vec<Column>>,
    /// The characters of the graphs.
    pub marker: Option<Marker>,
    /// Devices have a second line.
    pub more: Option<bool>,
    /// The colours.
    pub theme: Option<Theme>,
    /// The mouse is used.
    pub mouse: Option<bool>,
    /// No key ends a process.
    pub read_only: Option<bool>,
    /// The values that need attention.
    pub attention: Attention,
}

/// Why settings are invalid: a fragment that names the setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError(String);

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ConfigError {}

/// The possible times between snapshots.
pub const INTERVALS: RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(86_400);

/// The longest file, in bytes.
pub const LONGEST: u64 = 64 << 10;

const SETTINGS: [&str; 10] = [
    "interval_s",
    "sort",
    "reverse",
    "columns",
    "marker",
    "more",
    "theme",
    "mouse",
    "read_only",
    "attention",
];
const ATTENTION: [&str; 3] = ["temperature_c", "memory_percent", "power_percent"];
const THEMES: [(&str, Theme); 3] =
    [("dark", Theme::Dark), ("light", Theme::Light), ("mono", Theme::Mono)];
const MARKERS: [(&str, Marker); 3] =
    [("braille", Marker::Braille), ("block", Marker::Block), ("ascii", Marker::Ascii)];

impl Theme {
    /// Returns the theme of this name.
    ///
    /// # Errors
    /// When there is no such theme.
    pub fn named(name: &str) -> Result<Self, ConfigError> {
        one_of("theme", name, &THEMES)
    }
}

impl Config {
    /// Parses the text of a file.
    ///
    /// # Errors
    /// When it is not TOML, or has an unknown setting, or one with the wrong type or out of range.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let table: Table = text.parse().map_err(|error: toml::de::Error| {
            let before = error.span().map_or("", |span| &text[..span.start]);
            let line = before.matches('\n').count() + 1;
            ConfigError(format!("line {line}: {}", error.message()))
        })?;
        let mut config = Config::default();
        for (name, value) in &table {
            match name.as_str() {
                "interval_s" => config.interval = Some(interval(value)?),
                "sort" => config.sort = Some(column(name, word(name, value)?)?),
                "reverse" => config.reverse = Some(truth(name, value)?),
                "columns" => config.columns = Some(columns(value)?),
                "marker" => {
                    config.marker = Some(one_of(name, word(name, value)?, &MARKERS)?);
                }
                "more" => config.more = Some(truth(name, value)?),
                "theme" => config.theme = Some(Theme::named(word(name, value)?)?),
                "mouse" => config.mouse = Some(truth(name, value)?),
                "read_only" => config.read_only = Some(truth(name, value)?),
                "attention" => config.attention = attention(value)?,
                unknown => return Err(unknown_name("setting", unknown, &SETTINGS)),
            }
        }
        Ok(config)
    }
}

fn interval(value: &Value) -> Result<Duration, ConfigError> {
    let seconds = value.as_float().or_else(|| value.as_integer().map(|whole| whole as f64));
    let interval = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    interval
        .filter(|interval| INTERVALS.contains(interval))
        .ok_or_else(|| ConfigError("'interval_s' must be a number from 0.1 to 86400".to_owned()))
}

fn attention(value: &Value) -> Result<Attention, ConfigError> {
    let table =
        value.as_table().ok_or_else(|| ConfigError("'attention' must be a table".to_owned()))?;
    let mut attention = Attention::default();
    for (name, value) in table {
        let limit = match name.as_str() {
            "temperature_c" => &mut attention.temperature,
            "memory_percent" => &mut attention.memory,
            "power_percent" => &mut attention.power,
            unknown => return Err(unknown_name("setting of attention", unknown, &ATTENTION)),
        };
        let number = value.as_integer().and_then(|number| u8::try_from(number).ok());
        let number = number.filter(|number| *number <= 150);
        *limit = Some(number.ok_or_else(|| {
            ConfigError(format!("'attention.{name}' must be a whole number from 0 to 150"))
        })?);
    }
    Ok(attention)
}

fn columns(value: &Value) -> Result<Vec<Column>, ConfigError> {
    let wrong = || ConfigError("'columns' must be a list of column names".to_owned());
    let names = value.as_array().filter(|names| !names.is_empty()).ok_or_else(wrong)?;
    let mut columns = Vec::new();
    for name in names {
        let column = name.as_str().ok_or_else(wrong).and_then(|name| column("columns", name))?;
        if columns.contains(&column) {
            return Err(ConfigError(format!("'columns' lists '{}' twice", column.name())));
        }
        columns.push(column);
    }
    Ok(columns)
}

fn column(setting: &str, word: &str) -> Result<Column, ConfigError> {
    let alias = COLUMN_ALIASES.iter().find(|(in_status, _)| *in_status == word);
    let word = alias.map_or(word, |(_, name)| *name);
    one_of(setting, word, &Column::ALL.map(|(column, name, _)| (name, column)))
}

fn word<'v>(setting: &str, value: &'v Value) -> Result<&'v str, ConfigError> {
    value.as_str().ok_or_else(|| ConfigError(format!("'{setting}' must be a string")))
}

fn truth(setting: &str, value: &Value) -> Result<bool, ConfigError> {
    value.as_bool().ok_or_else(|| ConfigError(format!("'{setting}' must be true or false")))
}

fn one_of<T: Copy>(setting: &str, word: &str, known: &[(&str, T)]) -> Result<T, ConfigError> {
    let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
    let found = known.iter().find(|(name, _)| *name == word);
    found
        .map(|(_, value)| *value)
        .ok_or_else(|| unknown_name(&format!("value of '{setting}':"), word, &names))
}

fn unknown_name(kind: &str, unknown: &str, known: &[&str]) -> ConfigError {
    let shown: String = unknown.chars().take(40).collect();
    let distances = known.iter().map(|name| (strsim::osa_distance(&shown, name), *name));
    let near =
        distances.filter(|(distance, name)| *distance <= (name.len().max(shown.len()) / 3).max(1));
    let hint = match near.min() {
        Some((_, name)) => format!("did you mean '{name}'?"),
        None => format!("expected one of {}", known.join(", ")),
    };
    ConfigError(format!("unknown {kind} '{shown}'; {hint}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_is_read() {
        let text = "interval_s = 2.5\nsort = 'gpu-mem'\nreverse = true\nmore = true\nmarker = 'block'\n\
                    columns = ['pid', 'job', 'command']\ntheme = 'light'\nmouse = false\n\
                    read_only = true\n[attention]\ntemperature_c = 80\nmemory_percent = 95\n\
                    power_percent = 99\n";
        let config = Config::parse(text).unwrap();
        let expected = Config {
            interval: Some(Duration::from_millis(2500)),
            sort: Some(Column::Memory),
            reverse: Some(true),
            columns: Some(vec![Column::Pid, Column::Job, Column::Command]),
            marker: Some(Marker::Block),
            more: Some(true),
            theme: Some(Theme::Light),
            mouse: Some(false),
            read_only: Some(true),
            attention: Attention { temperature: Some(80), memory: Some(95), power: Some(99) },
        };
        assert_eq!(config, expected);
        assert_eq!(Config::parse("").unwrap(), Config::default());
        let Table { .. } = text.parse::<Table>().unwrap();
        assert!(SETTINGS.iter().all(|name| text.contains(name)), "the test has every setting");
    }

    #[test]
    fn columns_have_the_names_of_status_too() {
        let config = Config::parse("sort = 'gpu-util'\ncolumns = ['gpu-memory', 'host-memory']");
        let Config { sort, columns, .. } = config.unwrap();
        assert_eq!((sort, columns), (Some(Column::Sm), Some(vec![Column::Memory, Column::Host])));
        for (_, name) in COLUMN_ALIASES {
            assert!(Column::ALL.iter().any(|(_, known, _)| *known == name), "{name}");
        }
    }

    #[test]
    fn table_of_columns_is_in_the_order_of_the_enum() {
        assert_eq!(
            Column::ALL.map(|(column, ..)| (column, column.name(), column.title())),
            Column::ALL
        );
    }

    #[test]
    fn wrong_settings_are_named_with_a_suggestion() {
        for (text, error) in [
            ("sorted = 'pid'", "unknown setting 'sorted'; did you mean 'sort'?"),
            ("sort = 'gpu-men'", "unknown value of 'sort': 'gpu-men'; did you mean 'gpu-mem'?"),
            ("theme = 'drak'", "unknown value of 'theme': 'drak'; did you mean 'dark'?"),
            ("theme = 'foo'", "unknown value of 'theme': 'foo'; expected one of dark, light, mono"),
            ("mouse = 1", "'mouse' must be true or false"),
            ("interval_s = 0", "'interval_s' must be a number from 0.1 to 86400"),
            ("columns = []", "'columns' must be a list of column names"),
            ("columns = ['gpu', 3]", "'columns' must be a list of column names"),
            ("columns = ['pid', 'pid']", "'columns' lists 'pid' twice"),
            (
                "attention = { temperature = 5 }",
                "unknown setting of attention 'temperature'; did you mean 'temperature_c'?",
            ),
            (
                "[attention]\nmemory_percent = 200",
                "'attention.memory_percent' must be a whole number from 0 to 150",
            ),
            (
                "[attention]\ntemperature_c = 85.5",
                "'attention.temperature_c' must be a whole number from 0 to 150",
            ),
        ] {
            assert_eq!(Config::parse(text).unwrap_err().to_string(), error);
        }
        let error = Config::parse("mouse = true\nsort =\n").unwrap_err().to_string();
        assert!(error.starts_with("line 2: "), "{error}");
        let error = Config::parse("mouse = true\n= 3\n").unwrap_err().to_string();
        assert!(error.starts_with("line 2: "), "at the beginning of a line: {error}");
    }
}
