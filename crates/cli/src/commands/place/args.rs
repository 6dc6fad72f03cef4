//! Arguments of `gpuws place`.

use super::graph::PlaceGraphArgs;
use crate::args::named;
use clap::{Args, Subcommand, ValueEnum};
use gpu_core::{Bytes, Selector};
use gpu_model::need::Engine;
use gpu_report::wording::shell_word;
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub(crate) struct PlaceArgs {
    #[command(subcommand)]
    pub(crate) command: PlaceCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PlaceCommand {
    /// Show which device each operation of a graph is placed on, and why.
    #[command(after_help = "Examples: gpuws place graph model.pbtxt --explain\n          \
                            gpuws --sim dgx1-v100 place graph saved_model.pb --log\n          \
                            gpuws place graph job.json --schedule --trace job.trace.json\n          \
                            gpuws place graph model.pbtxt --run --fetch c:0\n\
                            Reads TensorFlow's GraphDef (binary and text), ONNX, and JSON \
                            (docs/graph-formats.md).")]
    Graph(PlaceGraphArgs),
    /// Show the memory that a model needs, and the GPU of each layer.
    #[command(after_help = "Examples: gpuws place model ./Llama-3-8B --context 8k\n          \
                            gpuws place model llama.gguf --gpu 0,1 --context 8k\n          \
                            gpuws place model ./big --memory 24GiB,24GiB --format llama\n\
                            Reads only the headers of safetensors, GGUF and PyTorch files, and \
                            config.json. Exits with 1 if the model does not fit, and with 6 if the \
                            verdict is an estimate.")]
    Model(PlaceModelArgs),
}

#[derive(Debug, Args)]
pub(crate) struct PlaceModelArgs {
    /// The model: a directory, a .gguf, .safetensors or .bin file, or a config.json.
    #[arg(value_name = "PATH")]
    pub(crate) path: PathBuf,
    /// Tokens of context for each sequence (8192, 8k); default: those the model was trained for.
    #[arg(long, value_name = "TOKENS", value_parser = tokens)]
    pub(crate) context: Option<u64>,
    /// Sequences at the same time.
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u64).range(1..=4096))]
    pub(crate) sequences: u64,
    /// The program that runs the model; it determines the memory. Default: that of --format, or the
    /// first of llama.cpp, vLLM and transformers that can load the weights.
    #[arg(long, value_name = "ENGINE", value_parser = named(&ENGINES))]
    pub(crate) engine: Option<Engine>,
    /// Encoding of the weights: a GGUF mixture (Q8_0, Q4_K_M, IQ4_XS, …) for llama.cpp, BF16, FP8,
    /// INT8, INT4, AWQ, GPTQ, NVFP4, NF4, … for the others, in any case; default: as stored.
    #[arg(long, value_name = "ENCODING")]
    pub(crate) weights: Option<String>,
    /// Encoding of keys and values in the cache; default: for vLLM that of the checkpoint,
    /// otherwise F16.
    #[arg(long, value_name = "ENCODING")]
    pub(crate) kv: Option<String>,
    /// Only these GPUs, by index (0,2-3), UUID or PCI bus ID; repeatable.
    #[arg(long, value_name = "GPU,…", value_delimiter = ',', conflicts_with = "memory")]
    pub(crate) gpu: Vec<Selector>,
    /// Include GPUs in use without a lease or with unexplained memory, with their remaining memory.
    #[arg(long, conflicts_with = "memory")]
    pub(crate) accept_used: bool,
    /// Plan for GPUs with this much free memory each (24GiB,24GiB) instead of this machine's.
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', conflicts_with = "sim")]
    pub(crate) memory: Vec<Bytes>,
    /// Host memory that layers may use if the GPUs are too small.
    #[arg(long, value_name = "SIZE")]
    pub(crate) host_memory: Option<Bytes>,
    /// Memory to leave free on each GPU.
    #[arg(long, value_name = "SIZE", default_value = "512MiB")]
    pub(crate) margin: Bytes,
    /// What to optimize.
    #[arg(long, value_name = "GOAL", default_value = "fewest")]
    pub(crate) goal: Goal,
    /// Lease directory to use instead of the system-wide one.
    #[arg(long, value_name = "DIR", conflicts_with = "memory")]
    pub(crate) claims: Option<PathBuf>,
    /// Print the split in the form of another program.
    #[arg(long, value_name = "FORM", conflicts_with = "json")]
    pub(crate) format: Option<SplitForm>,
    /// Show why each layer is on its device, and its memory.
    #[arg(long)]
    pub(crate) explain: bool,
    /// Draw the split to a new SVG file; `-` is standard output.
    #[arg(long, value_name = "OUT")]
    pub(crate) svg: Option<PathBuf>,
}

impl PlaceModelArgs {
    /// Returns this command as text, without `--weights` and options that change only the output.
    pub(crate) fn again(&self, sim: Option<&Path>) -> String {
        let mut words = String::from("gpuws");
        let mut add = |name: &str, value: Option<String>| {
            words.extend(value.map(|value| format!(" {name} {}", shell_word(&value))));
        };
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let list = |items: Vec<String>| (!items.is_empty()).then(|| items.join(","));
        add("--sim", sim.map(text));
        add("place model", Some(text(&self.path)));
        add("--context", self.context.map(|tokens| tokens.to_string()));
        add("--sequences", (self.sequences > 1).then(|| self.sequences.to_string()));
        let engine = ENGINES.iter().find(|(_, engine)| self.engine == Some(*engine));
        add("--engine", engine.map(|(name, _)| (*name).to_owned()));
        add("--kv", self.kv.clone());
        add("--gpu", list(self.gpu.iter().map(ToString::to_string).collect()));
        add("--memory", list(self.memory.iter().map(|size| size.exact()).collect()));
        add("--host-memory", self.host_memory.map(Bytes::exact));
        add("--margin", (self.margin != Bytes::from_mib(512)).then(|| self.margin.exact()));
        let goal = self.goal.to_possible_value().filter(|_| self.goal != Goal::Fewest);
        add("--goal", goal.map(|goal| goal.get_name().to_owned()));
        if self.accept_used {
            words.push_str(" --accept-used");
        }
        words
    }
}

const ENGINES: [(&str, Engine); 3] = [
    ("llama.cpp", Engine::LlamaCpp),
    ("vllm", Engine::Vllm),
    ("transformers", Engine::Transformers),
];

/// What a split optimizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Goal {
    /// The fewest GPUs, then the shortest time per token.
    Fewest,
    /// The shortest time per token through all layers.
    Latency,
    /// The shortest time of the slowest pipeline stage.
    Throughput,
}

/// The form of a split for another program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SplitForm {
    /// The device_map of accelerate and transformers, as JSON.
    DeviceMap,
    /// Options of llama.cpp.
    Llama,
    /// Options of vLLM.
    Vllm,
}

/// Parses a number of tokens: `8192` or `8k`, which is 8,192.
fn tokens(text: &str) -> Result<u64, String> {
    let (digits, factor) = match text.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1024),
        None => (text, 1),
    };
    let number: u64 = digits.parse().map_err(|_| "expected a number such as 8192 or 8k")?;
    let tokens = number.checked_mul(factor).filter(|tokens| (1..=1 << 30).contains(tokens));
    tokens.ok_or_else(|| "must be between 1 and 1073741824".to_owned())
}

#[cfg(test)]
mod tests {
    use super::tokens;

    #[test]
    fn context_is_a_number_of_tokens_or_of_1024() {
        assert_eq!(
            (tokens("8192"), tokens("8k"), tokens("128K")),
            (Ok(8192), Ok(8192), Ok(131_072))
        );
        for text in ["", "k", "0", "-1", "8m", "1073741825", "18446744073709551615k"] {
            assert!(tokens(text).is_err(), "{text}");
        }
    }
}
