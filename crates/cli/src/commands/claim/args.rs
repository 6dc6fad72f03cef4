//! Arguments of `gpuws claim`.

use super::RequestArgs;
use crate::args::{KeepArgs, pid};
use clap::{Args, ValueEnum};
use gpu_core::LeaseId;

#[derive(Debug, Args)]
pub(crate) struct ClaimArgs {
    #[command(flatten)]
    pub(crate) request: RequestArgs,
    /// Claim the GPUs, print them, and hold them until the calling process exits.
    #[arg(long, conflicts_with = "export")]
    pub(crate) hold: bool,
    /// Claim the GPUs until the calling shell exits and print shell code: eval "$(gpuws claim
    /// --export)".
    #[arg(long)]
    pub(crate) export: bool,
    /// Output of --hold and --export: shell variables, or GPU names for containers (podman run
    /// --device NAME).
    #[arg(long, value_name = "FORM", default_value = "shell")]
    pub(crate) format: ClaimFormat,
    /// Also keep a small CUDA context on each GPU, so that tools that query the driver see it in
    /// use. With --hold or --export.
    #[arg(long, hide = !cfg!(feature = "cuda"))]
    pub(crate) placeholder: bool,
    #[command(flatten)]
    pub(crate) keep: KeepArgs,
    /// With --mem, do not print variables that limit frameworks.
    #[arg(long)]
    pub(crate) keep_env: bool,
    /// Process whose descendants may use the GPUs; default: the parent of gpuws.
    #[arg(long = "for", value_name = "PID", value_parser = pid)]
    pub(crate) owner: Option<gpu_core::Pid>,
    /// Release a lease taken by --hold or --export, by its ID (see gpuws leases).
    #[arg(long, value_name = "LEASE", conflicts_with_all = CONFLICTS_WITH_RELEASE, value_parser = lease)]
    pub(crate) release: Option<LeaseId>,
}

/// The form in which a script receives its devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ClaimFormat {
    /// `CUDA_VISIBLE_DEVICES=GPU-8ae3…` and other variables.
    Shell,
    /// `nvidia.com/gpu=GPU-8ae3…`, a line for each GPU (Container Device Interface).
    Cdi,
}

/// The options that cannot be combined with `--release`.
const CONFLICTS_WITH_RELEASE: [&str; 22] = [
    "hold",
    "export",
    "format",
    "placeholder",
    "owner",
    "count",
    "mem",
    "gpu",
    "except",
    "required",
    "min_free",
    "capability",
    "topology",
    "accept_used",
    "wait",
    "no_wait",
    "timeout",
    "visible",
    "context",
    "framework",
    "torch_version",
    "keep_env",
];

fn lease(text: &str) -> Result<LeaseId, String> {
    LeaseId::parse(text).ok_or_else(|| "invalid lease ID; expected e.g. 3f09c2".to_owned())
}
