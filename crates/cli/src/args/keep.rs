//! Arguments that keep a program within a memory limit.

use clap::{Args, ValueEnum};
use gpu_core::Bytes;
use gpu_memory_advice::environment::{Framework, Version};

// Properties of a program that stays within a limit.
#[derive(Debug, Args)]
pub(crate) struct KeepArgs {
    /// Memory reserved for the CUDA context and libraries, which no framework counts.
    #[arg(long, value_name = "SIZE", default_value = "640MiB")]
    pub(crate) context: Bytes,
    /// Framework of the program; `auto` detects what its Python has installed. Repeatable.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', default_value = "auto")]
    pub(crate) framework: Vec<Named>,
    /// PyTorch version (2.10); default: the installed one.
    #[arg(long, value_name = "VERSION", value_parser = version)]
    pub(crate) torch_version: Option<Version>,
}

impl KeepArgs {
    /// Returns these options as text, each after a space, without a context of `default`.
    pub(crate) fn again(&self, default: Option<Bytes>) -> String {
        let mut words = String::new();
        if Some(self.context) != default {
            words.push_str(&format!(" --context {}", self.context.exact()));
        }
        if self.framework != [Named::Auto] {
            let names = self.framework.iter().filter_map(|named| named.to_possible_value());
            let names: Vec<String> = names.map(|name| name.get_name().to_owned()).collect();
            words.push_str(&format!(" --framework {}", names.join(",")));
        }
        if let Some(Version { major, minor }) = self.torch_version {
            words.push_str(&format!(" --torch-version {major}.{minor}"));
        }
        words
    }
}

/// A value of `--framework`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Named {
    /// All installed frameworks.
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
    /// Returns the framework; `None` for `auto`.
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
    Version::parse(text).ok_or_else(|| "invalid version; expected e.g. 2.10".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_memory_advice::CONTEXT;

    #[test]
    fn options_round_trip() {
        #[derive(Debug, clap::Parser)]
        struct Read {
            #[command(flatten)]
            keep: KeepArgs,
        }
        let read = |line: &str| {
            let words = std::iter::once("x").chain(line.split_whitespace());
            <Read as clap::Parser>::parse_from(words).keep.again(Some(CONTEXT))
        };
        assert_eq!(read(""), "");
        let parsed = <Read as clap::Parser>::parse_from(["x"]);
        assert_eq!(parsed.keep.again(None), " --context 640MiB");
        let line = " --context 1536MiB --framework torch,tensorflow --torch-version 2.10";
        assert_eq!(read(line), line);
        assert_eq!(read(&read(line)), line);
    }
}
