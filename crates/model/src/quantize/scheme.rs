//! The schemes that users select by name: llama.cpp files, and the methods of PyTorch.

use super::mixture::{Facts, Mixture};
use super::role::Role;
use super::{Group, Packing, columns};
use crate::engine::Engine;
use crate::model::{Architecture, Model};
use crate::tensor::{Encoding, Tensor};
use gpu_core::Bytes;
use std::fmt;

/// A quantization scheme or a plain element type for the weights of a model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scheme {
    name: &'static str,
    form: Form,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    /// A llama.cpp file; its size may be an estimate.
    Ggml(Mixture, bool),
    /// One element type for all weights.
    Plain(Encoding),
    /// A method for PyTorch, for all matrices or only for routed experts.
    Torch { packing: Packing, experts: bool, vllm: Use, transformers: Use },
}

/// How an engine obtains weights in a scheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// It quantizes an unquantized checkpoint while loading, with this option.
    Option(&'static str),
    /// It loads a checkpoint that is already in this scheme, with this option, which may be empty.
    Checkpoint(&'static str),
    /// It loads a GGUF file.
    File,
    /// It cannot load such weights; these schemes are similar.
    Refused(&'static str),
}

/// llama-quantize's names, rules, encoding of most matrices, and encoding of embedding and output.
/// The last column marks mixtures with unpublished rules.
#[rustfmt::skip]
const GGML: &[(&str, &str, &str, Option<&str>, bool)] = &[
    ("Q8_0", "Q8_0", "Q8_0", None, false),
    ("Q6_K_L", "Q6_K", "Q6_K", Some("Q8_0"), false),
    ("Q6_K", "Q6_K", "Q6_K", None, false),
    ("Q5_K_L", "Q5_K_M", "Q5_K", Some("Q8_0"), false),
    ("Q5_K_M", "Q5_K_M", "Q5_K", None, false),
    ("Q5_K_S", "Q5_K_S", "Q5_K", None, false),
    ("Q5_1", "Q5_1", "Q5_1", None, false),
    ("Q5_0", "Q5_0", "Q5_0", None, false),
    ("Q4_K_L", "Q4_K_M", "Q4_K", Some("Q8_0"), false),
    ("Q4_K_M", "Q4_K_M", "Q4_K", None, false),
    ("Q4_K_S", "Q4_K_S", "Q4_K", None, false),
    ("Q4_1", "Q4_1", "Q4_1", None, false),
    ("Q4_0", "Q4_0", "Q4_0", None, false),
    ("IQ4_NL", "IQ4_NL", "IQ4_NL", None, false),
    ("IQ4_XS", "IQ4_XS", "IQ4_XS", None, false),
    ("MXFP4_MOE", "MXFP4_MOE", "MXFP4", None, false),
    ("Q3_K_XL", "Q3_K_L", "Q3_K", Some("Q8_0"), false),
    ("Q3_K_L", "Q3_K_L", "Q3_K", None, false),
    ("Q3_K_M", "Q3_K_M", "Q3_K", None, false),
    ("Q3_K_S", "Q3_K_S", "Q3_K", None, false),
    ("IQ3_M", "IQ3_M", "IQ3_S", None, false),
    ("IQ3_S", "IQ3_S", "IQ3_S", None, false),
    ("IQ3_XS", "IQ3_XS", "IQ3_S", None, false),
    ("IQ3_XXS", "IQ3_XXS", "IQ3_XXS", None, false),
    ("Q2_K_L", "Q2_K", "Q2_K", Some("Q8_0"), false),
    ("Q2_K", "Q2_K", "Q2_K", None, false),
    ("Q2_K_S", "Q2_K_S", "Q2_K", None, false),
    ("IQ2_M", "IQ2_M", "IQ2_S", None, false),
    ("IQ2_S", "IQ2_S", "IQ2_XS", None, false),
    ("IQ2_XS", "IQ2_XS", "IQ2_XS", None, false),
    ("IQ2_XXS", "IQ2_XXS", "IQ2_XXS", None, false),
    ("TQ2_0", "TQ2_0", "TQ2_0", None, false),
    ("TQ1_0", "TQ1_0", "TQ1_0", None, false),
    ("IQ1_M", "IQ1_M", "IQ1_M", None, false),
    ("IQ1_S", "IQ1_S", "IQ1_S", None, false),
    ("UD-Q8_K_XL", "Q8_0", "Q8_0", Some("F16"), true),
    ("UD-Q6_K_XL", "Q6_K", "Q6_K", Some("Q8_0"), true),
    ("UD-Q5_K_XL", "Q5_K_M", "Q5_K", None, true),
    ("UD-Q4_K_XL", "Q4_K_M", "Q4_K", None, true),
    ("UD-Q3_K_XL", "Q3_K_L", "Q3_K", None, true),
    ("UD-Q2_K_XL", "Q2_K", "Q2_K", None, true),
    ("UD-IQ4_XS", "IQ4_XS", "IQ4_XS", None, true),
    ("UD-IQ4_NL", "IQ4_NL", "IQ4_NL", None, true),
    ("UD-IQ3_S", "IQ3_S", "IQ3_S", None, true),
    ("UD-IQ3_XXS", "IQ3_XXS", "IQ3_XXS", None, true),
    ("UD-IQ2_M", "IQ2_M", "IQ2_S", None, true),
    ("UD-IQ2_XXS", "IQ2_XXS", "IQ2_XXS", None, true),
    ("UD-IQ1_M", "IQ1_M", "IQ1_M", None, true),
    ("UD-IQ1_S", "IQ1_S", "IQ1_S", None, true),
    ("UD-TQ1_0", "TQ1_0", "TQ1_0", None, true),
];

/// Other names of schemes, in lower case with underscores.
const ALIASES: &[(&str, &str)] = &[
    ("q5_k", "Q5_K_M"),
    ("q4_k", "Q4_K_M"),
    ("q3_k", "Q3_K_M"),
    ("q8", "Q8_0"),
    ("q6", "Q6_K"),
    ("fp16", "F16"),
    ("float16", "F16"),
    ("half", "F16"),
    ("bfloat16", "BF16"),
    ("fp32", "F32"),
    ("float32", "F32"),
    ("f8_e4m3", "FP8"),
    ("f8_e5m2", "FP8"),
    ("f8", "FP8"),
    ("float8", "FP8"),
    ("fp8_e4m3", "FP8"),
    ("fp8_dynamic", "FP8"),
    ("fp8_block", "FP8"),
    ("w8a8", "INT8"),
    ("w8a8_int8", "INT8"),
    ("i8", "INT8"),
    ("w8a16", "INT8"),
    ("w4a16", "INT4"),
    ("i4", "INT4"),
    ("awq_int4", "AWQ"),
    ("awq_marlin", "AWQ"),
    ("gptq_int4", "GPTQ"),
    ("gptq_marlin", "GPTQ"),
    ("bnb_4bit", "NF4"),
    ("bnb", "NF4"),
    ("bitsandbytes", "NF4"),
    ("bnb_8bit", "BNB8"),
    ("llm_int8", "BNB8"),
    ("fp4", "NVFP4"),
    ("nvfp4_w4a16", "NVFP4"),
];

/// The names of [`torch`].
const TORCH: &[&str] =
    &["FP8", "MXFP8", "INT8", "BNB8", "INT4", "AWQ", "GPTQ", "HQQ", "NF4", "NVFP4", "MXFP4"];

/// Returns a PyTorch method: how a matrix is stored, whether only experts are quantized, and how
/// vLLM and transformers obtain it.
fn torch(name: &str) -> Option<(Packing, bool, Use, Use)> {
    const CHECKPOINT: Use = Use::Checkpoint("");
    Some(match name {
        "FP8" => (
            Packing::floats(8, Group::Matrix, 32),
            false,
            Use::Option("--quantization fp8"),
            Use::Option("FineGrainedFP8Config()"),
        ),
        "MXFP8" => (Packing::mxfp8(), false, CHECKPOINT, Use::Refused("FP8, BNB8")),
        "INT8" => (Packing::integers(8, Group::Row, 16), false, CHECKPOINT, CHECKPOINT),
        "BNB8" => (
            Packing::bnb8(),
            false,
            Use::Refused("FP8, INT8"),
            Use::Option("BitsAndBytesConfig(load_in_8bit=True)"),
        ),
        "INT4" => (Packing::integers(4, columns(128), 16), false, CHECKPOINT, CHECKPOINT),
        // vLLM chooses the kernel for the GPU by the checkpoint.
        "AWQ" => (Packing::awq(4, 128), false, CHECKPOINT, CHECKPOINT),
        "GPTQ" => (Packing::gptq(4, 128), false, CHECKPOINT, CHECKPOINT),
        "HQQ" => (
            Packing::integers(4, columns(64), 32),
            false,
            CHECKPOINT,
            Use::Option("HqqConfig(nbits=4, group_size=64)"),
        ),
        "NF4" => (
            Packing::bnb4(false),
            false,
            Use::Option("--quantization bitsandbytes"),
            Use::Option("BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type=\"nf4\")"),
        ),
        "NVFP4" => (Packing::nvfp4(), false, CHECKPOINT, Use::Refused("NF4, AWQ, GPTQ")),
        "MXFP4" => (Packing::mxfp4(), true, CHECKPOINT, CHECKPOINT),
        _ => return None,
    })
}

impl Scheme {
    /// Returns the scheme with a name such as `Q4_K_M`, `UD-Q4_K_XL`, `fp8` or `AWQ`, in any case.
    pub fn named(name: &str) -> Option<Scheme> {
        let name = name.to_lowercase().replace(['-', ' '], "_");
        // `i1` marks files made with an importance matrix.
        let name = name.strip_prefix("i1_").unwrap_or(&name);
        let alias = ALIASES.iter().find(|(alias, _)| *alias == name).map(|(_, name)| *name);
        let is_named = |known: &str| {
            alias.map_or_else(
                || known.to_lowercase().replace('-', "_") == name,
                |alias| alias == known,
            )
        };
        if let Some(known) = TORCH.iter().find(|known| is_named(known)) {
            let (packing, experts, vllm, transformers) = torch(known)?;
            return Some(Scheme {
                name: known,
                form: Form::Torch { packing, experts, vllm, transformers },
            });
        }
        if let Some(known) = ["F16", "BF16", "F32"].into_iter().find(|known| is_named(known)) {
            return Some(Scheme { name: known, form: Form::Plain(Encoding::named(known)?) });
        }
        let found = GGML.iter().find(|(known, ..)| is_named(known));
        found.map(|(name, rules, base, ends, is_estimate)| Scheme {
            name,
            form: Form::Ggml(Mixture { rules, base, ends: *ends }, *is_estimate),
        })
    }

    /// Returns the scheme that an engine means by a name: `MXFP4` is a file for llama.cpp.
    pub fn for_engine(name: &str, engine: Engine) -> Option<Scheme> {
        let scheme = Scheme::named(name)?;
        match (scheme.name, engine) {
            ("MXFP4", Engine::LlamaCpp) => Scheme::named("MXFP4_MOE"),
            _ => Some(scheme),
        }
    }

    /// Returns the names of the schemes available for an engine, from wide to narrow.
    pub fn names(engine: Engine) -> Vec<&'static str> {
        let plain = ["F32", "BF16", "F16"].into_iter();
        let all = plain.chain(TORCH.iter().copied()).chain(GGML.iter().map(|(name, ..)| *name));
        let usable = |name: &&str| {
            let scheme = Scheme::named(name);
            scheme.is_some_and(|scheme| !matches!(scheme.used_by(engine), Use::Refused(_)))
        };
        all.filter(usable).collect()
    }

    /// Returns the name.
    pub fn name(self) -> &'static str {
        self.name
    }

    /// Returns whether the rules of the scheme are not published, so that sizes are estimates.
    pub fn is_estimate(self) -> bool {
        matches!(self.form, Form::Ggml(_, true))
    }

    /// Returns whether llama.cpp's own tools create files in this scheme.
    pub fn is_made(self) -> bool {
        match self.form {
            Form::Ggml(mixture, _) => mixture.rules == self.name,
            Form::Plain(_) => true,
            Form::Torch { .. } => false,
        }
    }

    /// Returns how an engine obtains weights in this scheme.
    pub fn used_by(self, engine: Engine) -> Use {
        let wide = self.bits_per_weight() > 7.0;
        match (self.form, engine) {
            (Form::Ggml(..) | Form::Plain(_), Engine::LlamaCpp) => Use::File,
            (Form::Ggml(..), Engine::Vllm) => {
                Use::Refused(if wide { "FP8, INT8" } else { "AWQ, GPTQ, INT4, NVFP4, NF4" })
            }
            (Form::Ggml(..), Engine::Transformers) => {
                Use::Refused(if wide { "FP8, BNB8" } else { "NF4, AWQ, GPTQ, HQQ" })
            }
            (Form::Plain(_), Engine::Vllm) => Use::Option(match self.name {
                "F32" => "--dtype float32",
                "F16" => "--dtype float16",
                _ => "--dtype bfloat16",
            }),
            (Form::Plain(_), Engine::Transformers) => Use::Option(match self.name {
                "F32" => "dtype=torch.float32",
                "F16" => "dtype=torch.float16",
                _ => "dtype=torch.bfloat16",
            }),
            (Form::Torch { .. }, Engine::LlamaCpp) => {
                Use::Refused(if wide { "Q8_0" } else { "Q4_K_M, IQ4_XS, MXFP4_MOE" })
            }
            (Form::Torch { vllm, .. }, Engine::Vllm) => vllm,
            (Form::Torch { transformers, .. }, Engine::Transformers) => transformers,
        }
    }

    /// Returns the bits per weight in most matrices.
    pub fn bits_per_weight(self) -> f64 {
        match self.form {
            Form::Ggml(mixture, _) => {
                Encoding::named(mixture.base).map_or(16.0, Encoding::bits_per_element)
            }
            Form::Plain(encoding) => encoding.bits_per_element(),
            Form::Torch { packing, .. } => packing.bits_per_weight(),
        }
    }

    /// Returns the converter for a model's tensors.
    pub(crate) fn converter(
        self,
        model: &Model,
        shape: &Architecture,
        tensors: &[Tensor],
    ) -> Converter {
        Converter { scheme: self, facts: Facts::of(&model.architecture, shape, tensors) }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Converts the tensors of a model.
pub(crate) struct Converter {
    scheme: Scheme,
    facts: Facts,
}

impl Converter {
    /// Returns the bytes of a tensor in the scheme.
    pub(crate) fn bytes(&self, tensor: &Tensor) -> Bytes {
        match self.scheme.form {
            Form::Ggml(mixture, _) => mixture.bytes(tensor, &self.facts),
            Form::Plain(encoding) => encoding.bytes(tensor.elements()).map_or(tensor.bytes, Bytes),
            Form::Torch { packing, experts, .. } => match Role::of(tensor) {
                Role::Expert => packing.bytes_of(tensor),
                Role::Linear if !experts => packing.bytes_of(tensor),
                _ => tensor.bytes,
            },
        }
    }
}
