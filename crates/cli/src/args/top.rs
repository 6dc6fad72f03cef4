//! Arguments of `gpuws top`.

use super::time::time;
use super::views::Only;
use clap::Args;
use std::time::Duration;

#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Time between looks.
    #[arg(short, long, value_name = "TIME", default_value = "1s", value_parser = time)]
    pub(crate) delay: Duration,
    #[command(flatten)]
    pub(crate) only: Only,
    /// Show only processes of these users (name or UID); all GPUs are still shown.
    #[arg(long, value_name = "USER,…", value_delimiter = ',')]
    pub(crate) user: Vec<String>,
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
