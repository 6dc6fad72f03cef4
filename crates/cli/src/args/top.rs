//! Arguments of `gpuws top`. They come before the settings of the user's file.

use super::time::time;
use super::views::Only;
use clap::Args;
use gpu_top::Theme;
use std::time::Duration;

#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Time between looks; 1 s by default.
    #[arg(short, long, value_name = "TIME", value_parser = time)]
    pub(crate) delay: Option<Duration>,
    #[command(flatten)]
    pub(crate) only: Only,
    /// Show only processes of these users (name or UID); all GPUs are still shown.
    #[arg(long, value_name = "USER,…", value_delimiter = ',')]
    pub(crate) user: Vec<String>,
    /// Colours: dark (the default), light or mono.
    #[arg(long, value_name = "NAME", value_parser = Theme::named)]
    pub(crate) theme: Option<Theme>,
    /// Only show: no key ends a process.
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Leave the mouse to the terminal, for example to select text.
    #[arg(long)]
    pub(crate) no_mouse: bool,
    /// Use only ASCII, also for graphs; the default without a UTF-8 locale.
    #[arg(long)]
    pub(crate) ascii: bool,
}
