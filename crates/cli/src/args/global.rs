//! The options of every command.

use super::time;
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

/// Options of every command.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Options of every command")]
pub(crate) struct Global {
    /// Print one JSON object instead of a table.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Leave out headings and advice.
    #[arg(long, global = true)]
    pub(crate) quiet: bool,
    /// When to use colour; `auto` honours the terminal, NO_COLOR and CLICOLOR.
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: Color,
    /// Use a simulated machine: its name, a directory, or a file written by `record`.
    #[arg(long, global = true, value_name = "NAME|DIR|FILE")]
    pub(crate) sim: Option<PathBuf>,
    /// Time to wait for the driver to answer.
    #[arg(long, global = true, value_name = "TIME", default_value = "30s", value_parser = time)]
    pub(crate) deadline: Duration,
    /// Path of the NVML library to use instead of the installed libnvidia-ml.so.1.
    #[arg(long, global = true, value_name = "LIBRARY")]
    pub(crate) nvml: Option<PathBuf>,
}

/// When to use colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    #[default]
    Auto,
    Always,
    Never,
}

impl From<Color> for anstream::ColorChoice {
    fn from(color: Color) -> Self {
        match color {
            Color::Auto => anstream::ColorChoice::Auto,
            Color::Always => anstream::ColorChoice::Always,
            Color::Never => anstream::ColorChoice::Never,
        }
    }
}
