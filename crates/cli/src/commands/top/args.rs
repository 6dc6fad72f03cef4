//! Arguments of `gpuws top`. They take precedence over the user's settings file.

use crate::args::{HAS_NO_HISTORY, HistoryArgs, HostArgs, Only, time};
use clap::Args;
use gpu_top::Theme;
use gpu_top::config::INTERVALS;
use std::time::Duration;

#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Time between samples; default: 1 s, with --host 5 s.
    #[arg(short, long, value_name = "TIME", value_parser = interval)]
    pub(crate) delay: Option<Duration>,
    #[command(flatten)]
    pub(crate) only: Only,
    /// Show only processes of these users (name or UID); all GPUs are still shown.
    #[arg(long, value_name = "USER,…", value_delimiter = ',')]
    pub(crate) user: Vec<String>,
    /// Start with a second line per GPU and the load of the host (key: i).
    #[arg(long)]
    pub(crate) more: bool,
    /// Colours: dark (the default), light or mono.
    #[arg(long, value_name = "NAME", value_parser = Theme::named)]
    pub(crate) theme: Option<Theme>,
    /// View only: no key ends a process.
    #[arg(long)]
    pub(crate) read_only: bool,
    #[command(flatten)]
    pub(crate) replay: HistoryArgs,
    /// Playback speed: seconds of the history per second.
    #[arg(long, value_name = "N", requires = "replay", default_value_t = 1.0, value_parser = speed,
          hide = HAS_NO_HISTORY)]
    pub(crate) speed: f64,
    /// Leave the mouse to the terminal, for example to select text.
    #[arg(long)]
    pub(crate) no_mouse: bool,
    /// Use only ASCII, also for graphs; the default without a UTF-8 locale.
    #[arg(long)]
    pub(crate) ascii: bool,
    #[command(flatten)]
    pub(crate) hosts: HostArgs,
}

fn interval(text: &str) -> Result<Duration, String> {
    let interval = Some(time(text)?).filter(|interval| INTERVALS.contains(interval));
    interval.ok_or_else(|| "must be from 0.1s to 1d".to_owned())
}

fn speed(text: &str) -> Result<f64, String> {
    let speed = text.parse().ok().filter(|speed| (0.1..=86_400.0).contains(speed));
    speed.ok_or_else(|| "must be a number from 0.1 to 86400".to_owned())
}
