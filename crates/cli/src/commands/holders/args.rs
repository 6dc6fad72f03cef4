//! Arguments of `gpuws holders`.

use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct HoldersArgs {
    /// Files to check; default: the GPU device files.
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
}
