//! Arguments that name a history.

use clap::Args;
use gpu_report::Moment;
use std::path::PathBuf;

/// Whether the help text omits options about histories: this program was built without them.
pub(crate) const HAS_NO_HISTORY: bool = !cfg!(feature = "history");

// The moment of a history that is shown instead of the machine.
#[derive(Debug, Default, Args)]
pub(crate) struct HistoryArgs {
    /// Show this machine from a history, a directory written by `record --for`.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["sim", "nvml"], hide = HAS_NO_HISTORY)]
    pub(crate) replay: Option<PathBuf>,
    /// The time to show: 2026-11-24T10:00, 10:00 of the last day, or -5m from the end (default:
    /// the end).
    #[arg(long, value_name = "TIME", requires = "replay", allow_hyphen_values = true,
          hide = HAS_NO_HISTORY)]
    pub(crate) at: Option<Moment>,
}
