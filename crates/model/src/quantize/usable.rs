//! Which engine can load which weights.

use super::{Scheme, Use};
use crate::model::Model;
use crate::need::{Engine, Run};
use crate::read::Format;

/// Why an engine cannot run a model as asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// The files are of a kind that it does not load.
    #[error("{0} does not load GGUF files")]
    Gguf(Engine),
    /// The checkpoint is quantized by a method that it does not load.
    #[error("{0} does not load a checkpoint that is quantized by {1}")]
    Method(Engine, String),
    /// It has no weights in the scheme.
    #[error("{0} cannot load weights in {1}")]
    Scheme(Engine, &'static str, &'static str),
    /// The checkpoint is quantized already.
    #[error("the checkpoint is quantized by {0} already")]
    Again(String),
    /// It does not keep the context in this encoding.
    #[error("{0} does not keep keys and values in {1}")]
    Cache(Engine, &'static str),
}

impl Unusable {
    /// Returns what works instead.
    pub fn remedy(&self) -> String {
        match self {
            Unusable::Gguf(_) => {
                "--engine llama.cpp works, or take the checkpoint in safetensors".to_owned()
            }
            Unusable::Method(engine, method) => {
                let others = [Engine::Vllm, Engine::Transformers].into_iter();
                let others = others.filter(|other| other != engine);
                let loading = others.filter(|other| loads(method, *other) == Some(true));
                let names: Vec<String> =
                    loading.map(|engine| format!("--engine {}", option(engine))).collect();
                let gguf = match engine {
                    Engine::LlamaCpp => "a GGUF file of the model works with llama.cpp",
                    _ => "the unquantized checkpoint works",
                };
                match names.is_empty() {
                    true => gguf.to_owned(),
                    false => format!("{} works; {gguf}", names.join(" or ")),
                }
            }
            Unusable::Scheme(engine, _, others) => {
                format!("with {engine}, --weights takes {others} instead")
            }
            Unusable::Again(_) => {
                "omit --weights, or name the directory of the unquantized checkpoint".to_owned()
            }
            Unusable::Cache(engine, _) => format!("--kv takes {}", caches(*engine).join(", ")),
        }
    }
}

/// Returns the value of `--engine`.
fn option(engine: Engine) -> &'static str {
    match engine {
        Engine::LlamaCpp => "llama.cpp",
        Engine::Vllm => "vllm",
        Engine::Transformers => "transformers",
    }
}

/// The methods of quantized checkpoints, and whether vLLM and transformers load them.
///
/// Sources: `vllm/model_executor/layers/quantization/__init__.py` and
/// `transformers/quantizers/auto.py`.
#[rustfmt::skip]
const METHODS: &[(&str, bool, bool)] = &[
    ("compressed-tensors", true, true),
    ("fp8", true, true),
    ("fbgemm-fp8", true, true),
    ("ptpc-fp8", true, false),
    ("gptq", true, true),
    ("gptq-marlin", true, false),
    ("gptq-marlin-24", true, false),
    ("gptq-bitblas", true, false),
    ("gptqmodel", true, true),
    ("marlin", true, false),
    ("bitblas", true, false),
    ("awq", true, true),
    ("awq-marlin", true, false),
    ("cpu-awq", true, false),
    ("moe-wna16", true, false),
    ("auto-round", true, true),
    ("intel/auto-round", true, true),
    ("autoround", true, true),
    ("inc", true, false),
    ("ipex", true, false),
    ("bitsandbytes", true, true),
    ("torchao", true, true),
    ("quark", true, true),
    ("hqq", true, true),
    ("mxfp4", true, true),
    ("gpt-oss-mxfp4", true, false),
    ("mxfp8", true, false),
    ("fp-quant", true, true),
    ("fpquant", true, true),
    ("modelopt", true, false),
    ("modelopt-fp4", true, false),
    ("modelopt-mxfp8", true, false),
    ("modelopt-mixed", true, false),
    ("petit-nvfp4", true, false),
    ("experts-int8", true, false),
    ("deepspeedfp", true, false),
    ("tpu-int8", true, false),
    ("rtn", true, false),
    ("bitnet", false, true),
    ("aqlm", false, true),
    ("vptq", false, true),
    ("spqr", false, true),
    ("higgs", false, true),
    ("eetq", false, true),
    ("quanto", false, true),
    ("optimum-quanto", false, true),
    ("w8a8-int8", false, false),
    ("w8a8-fp8", false, false),
    ("blockwise-int8", false, false),
    ("exl2", false, false),
    ("exl3", false, false),
    ("mlx", false, false),
];

/// Returns whether an engine loads a checkpoint that is quantized by a method; `None` for an unknown
/// method. llama.cpp loads GGUF files alone.
pub fn loads(method: &str, engine: Engine) -> Option<bool> {
    let known = METHODS.iter().find(|(known, ..)| *known == method);
    match (engine, known) {
        (Engine::LlamaCpp, _) => Some(false),
        (_, None) => None,
        (Engine::Vllm, Some((_, vllm, _))) => Some(*vllm),
        (Engine::Transformers, Some((_, _, transformers))) => Some(*transformers),
    }
}

/// Returns the engine to plan for if the user names none: llama.cpp, unless the checkpoint is
/// quantized or the weights are to be in a scheme of PyTorch.
pub fn engine(model: &Model, weights: Option<Scheme>) -> Engine {
    let usable = |engine: &Engine| match (&model.method, weights) {
        (Some(method), _) => loads(method, *engine) != Some(false),
        (None, Some(weights)) => !matches!(weights.used_by(*engine), Use::Refused(_)),
        (None, None) => true,
    };
    let mut all = [Engine::LlamaCpp, Engine::Vllm, Engine::Transformers].into_iter();
    all.find(usable).unwrap_or(Engine::LlamaCpp)
}

/// Checks whether an engine can load a model's weights and keep its context as a run asks.
///
/// # Errors
/// Why it cannot.
pub fn check(model: &Model, format: Format, run: &Run) -> Result<(), Unusable> {
    let engine = run.engine;
    if format == Format::Gguf && engine != Engine::LlamaCpp {
        return Err(Unusable::Gguf(engine));
    }
    if let Some(method) = &model.method {
        if run.weights.is_some() {
            return Err(Unusable::Again(method.clone()));
        }
        if loads(method, engine) == Some(false) {
            return Err(Unusable::Method(engine, method.clone()));
        }
    }
    if let Some(weights) = run.weights
        && let Use::Refused(others) = weights.used_by(engine)
    {
        return Err(Unusable::Scheme(engine, weights.name(), others));
    }
    match caches(engine).contains(&run.keys.name()) {
        true => Ok(()),
        false => Err(Unusable::Cache(engine, run.keys.name())),
    }
}

/// The encodings of keys and values that an engine has: `--cache-type-k` of llama.cpp,
/// `--kv-cache-dtype` of vLLM.
fn caches(engine: Engine) -> &'static [&'static str] {
    match engine {
        Engine::LlamaCpp => {
            &["F16", "BF16", "F32", "Q8_0", "Q5_1", "Q5_0", "Q4_1", "Q4_0", "IQ4_NL"]
        }
        Engine::Vllm => &["F16", "BF16", "F8_E4M3", "F8_E5M2"],
        Engine::Transformers => &["F16", "BF16", "F32"],
    }
}

/// Returns the option that makes an engine keep keys and values as a run says; empty if it does by
/// default.
pub fn cache_option(run: &Run) -> String {
    match (run.engine, run.keys.name()) {
        (_, "F16") => String::new(),
        (Engine::LlamaCpp, name) => {
            let name = name.to_lowercase();
            format!(" -ctk {name} -ctv {name}")
        }
        (Engine::Vllm, "F8_E4M3") => " --kv-cache-dtype fp8".to_owned(),
        (Engine::Vllm, "F8_E5M2") => " --kv-cache-dtype fp8_e5m2".to_owned(),
        (Engine::Vllm | Engine::Transformers, _) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::Encoding;

    fn quantized(method: &str) -> Model {
        Model { method: Some(method.to_owned()), ..Model::default() }
    }

    #[test]
    fn engine_is_one_that_loads_the_weights() {
        let plain = Model::default();
        for (model, weights, expected) in [
            (&plain, None, Engine::LlamaCpp),
            (&plain, Some("Q4_K_M"), Engine::LlamaCpp),
            (&plain, Some("AWQ"), Engine::Vllm),
            (&plain, Some("BNB8"), Engine::Transformers),
            (&quantized("awq"), None, Engine::Vllm),
            (&quantized("psychic"), None, Engine::Vllm),
            (&quantized("aqlm"), None, Engine::Transformers),
        ] {
            assert_eq!(engine(model, weights.and_then(Scheme::named)), expected, "{weights:?}");
        }
    }

    #[test]
    fn refusal_names_what_works() {
        let run =
            |engine, weights| Run { weights: Scheme::named(weights), ..Run::new(engine, 256) };
        let plain = Model::default();
        for (model, format, run, remedy) in [
            (&plain, Format::Gguf, run(Engine::Vllm, ""), "--engine llama.cpp"),
            (&quantized("awq"), Format::Safetensors, run(Engine::LlamaCpp, ""), "--engine vllm"),
            (&quantized("modelopt"), Format::Config, run(Engine::Transformers, ""), "vllm works"),
            (&quantized("mlx"), Format::Config, run(Engine::Vllm, ""), "unquantized checkpoint"),
            (&quantized("awq"), Format::Config, run(Engine::Vllm, "FP8"), "omit --weights"),
            (&plain, Format::Config, run(Engine::Vllm, "Q4_K_M"), "AWQ"),
            (&plain, Format::Config, run(Engine::LlamaCpp, "AWQ"), "Q4_K_M"),
            (
                &plain,
                Format::Config,
                Run { keys: Encoding::named("Q8_0").unwrap(), ..run(Engine::Vllm, "") },
                "F8_E4M3",
            ),
        ] {
            let refused = check(model, format, &run).unwrap_err();
            assert!(refused.remedy().contains(remedy), "{refused}: {}", refused.remedy());
        }
        assert_eq!(check(&quantized("psychic"), Format::Config, &run(Engine::Vllm, "")), Ok(()));
        assert_eq!(check(&plain, Format::Config, &run(Engine::Vllm, "fp8")), Ok(()));
    }
}
