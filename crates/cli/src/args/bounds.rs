//! Arguments of what makes a program keep a limit of a device's memory.

use crate::selector::Selector;
use clap::{Args, ValueEnum};
use gpu_allocator_policy::environment::{Framework, Version};
use gpu_core::Bytes;

#[derive(Debug, Args)]
pub(crate) struct EnvArgs {
    /// What each process may take of each device (6GiB, 500MiB).
    #[arg(long, value_name = "SIZE", value_parser = super::claims::size)]
    pub(crate) limit: Bytes,
    #[command(flatten)]
    pub(crate) keep: KeepArgs,
    /// All memory of the device (80GiB), instead of a look at this machine.
    #[arg(long, value_name = "SIZE", value_parser = super::claims::size, conflicts_with = "gpu")]
    pub(crate) device_memory: Option<Bytes>,
    /// The devices that the program sees, by index, UUID or PCI address; may be given again. Else
    /// those that CUDA_VISIBLE_DEVICES or a scheduler gave, or all.
    #[arg(long, value_name = "GPU,…", value_delimiter = ',')]
    pub(crate) gpu: Vec<Selector>,
}

// What is to be known of a program that keeps a limit.
#[derive(Debug, Args)]
pub(crate) struct KeepArgs {
    /// What of the memory is left to CUDA and its libraries, which no framework counts.
    #[arg(long, value_name = "SIZE", default_value = "512MiB", value_parser = super::claims::size)]
    pub(crate) context: Bytes,
    /// What the program runs on; `auto` is what its Python has installed. May be given again.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', default_value = "auto")]
    pub(crate) framework: Vec<Named>,
    /// The version of PyTorch (2.10); else the one that is installed.
    #[arg(long, value_name = "VERSION", value_parser = version)]
    pub(crate) torch_version: Option<Version>,
}

/// A framework by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Named {
    /// What is installed.
    Auto,
    /// PyTorch.
    Torch,
    /// TensorFlow.
    #[value(name = "tensorflow")]
    TensorFlow,
    /// JAX.
    Jax,
}

impl Named {
    /// Returns the framework; `None` where it is to be found out.
    pub(crate) fn framework(self) -> Option<Framework> {
        match self {
            Named::Auto => None,
            Named::Torch => Some(Framework::Torch),
            Named::TensorFlow => Some(Framework::TensorFlow),
            Named::Jax => Some(Framework::Jax),
        }
    }
}

fn version(text: &str) -> Result<Version, String> {
    Version::parse(text).ok_or_else(|| "not a version, such as 2.10".to_owned())
}
