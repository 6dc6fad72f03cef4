//! The options of every command.

use super::{named, time};
use anstream::ColorChoice;
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

/// Global options.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// Print one JSON object instead of a table.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Omit headings and advice.
    #[arg(long, global = true)]
    pub(crate) quiet: bool,
    /// When to use colour; `auto` honours the terminal, NO_COLOR and CLICOLOR.
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto",
          value_parser = named(&COLORS))]
    pub(crate) color: ColorChoice,
    /// Use a simulated machine: its name, a directory, or a file written by `record`.
    #[arg(long, global = true, value_name = "NAME|DIR|FILE")]
    pub(crate) sim: Option<PathBuf>,
    /// Time to wait for the driver to answer.
    #[arg(long, global = true, value_name = "TIME", default_value = "30s", value_parser = time)]
    pub(crate) deadline: Duration,
    /// Read the AMD and Intel GPUs of the files below this directory, copied from another machine.
    #[arg(long, global = true, value_name = "DIR", conflicts_with_all = ["sim", "nvml"])]
    pub(crate) root: Option<PathBuf>,
    /// Path of the NVML library to use instead of the installed libnvidia-ml.so.1.
    #[arg(long, global = true, value_name = "LIBRARY")]
    pub(crate) nvml: Option<PathBuf>,
}

const COLORS: [(&str, ColorChoice); 3] =
    [("auto", ColorChoice::Auto), ("always", ColorChoice::Always), ("never", ColorChoice::Never)];
