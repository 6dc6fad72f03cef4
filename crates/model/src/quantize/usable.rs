//! Determines which engine can load which weights.

use super::{Scheme, Use};
use crate::model::Model;
use crate::need::{Engine, Run};
use crate::read::Format;
use crate::tensor::Tensor;

/// Why an engine cannot run a model as requested.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// The engine does not load files of this kind.
    #[error("{0} does not load GGUF files")]
    Gguf(Engine),
    /// The engine does not load checkpoints quantized by this method.
    #[error("{0} does not load checkpoints quantized with {1}")]
    Method(Engine, String),
    /// The engine has no weights in the scheme.
    #[error("{0} cannot load weights in {1}")]
    Scheme(Engine, &'static str, &'static str),
    /// The checkpoint is already quantized.
    #[error("the checkpoint is already quantized with {0}")]
    Again(String),
    /// The engine does not support this encoding for the context.
    #[error("{0} does not support keys and values in {1}")]
    Cache(Engine, &'static str),
}

impl Unusable {
    /// Returns an alternative that works.
    pub fn remedy(&self) -> String {
        match self {
            Unusable::Gguf(_) => {
                "use --engine llama.cpp, or the checkpoint in safetensors".to_owned()
            }
            Unusable::Method(engine, method) => {
                let others = [Engine::Vllm, Engine::Transformers].into_iter();
                let others = others.filter(|other| other != engine);
                let loading = others.filter(|other| loads(method, *other) == Some(true));
                let names: Vec<String> =
                    loading.map(|engine| format!("--engine {}", option(engine))).collect();
                let gguf = match (engine, method.contains("mxfp4")) {
                    (Engine::LlamaCpp, true) => "--weights MXFP4_MOE plans for a GGUF file of it",
                    (Engine::LlamaCpp, false) => "--weights Q4_K_M plans for a GGUF file of it",
                    _ => "the unquantized checkpoint works",
                };
                if names.is_empty() {
                    gguf.to_owned()
                } else {
                    format!("{} works; {gguf}", names.join(" or "))
                }
            }
            Unusable::Scheme(engine, _, others) => {
                format!("with {engine}, use --weights {others}")
            }
            Unusable::Again(_) => {
                "omit --weights, name a GGUF mixture for llama.cpp, or name the directory of the \
                 unquantized checkpoint"
                    .to_owned()
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

/// The methods of quantized checkpoints, and the minimum compute capability (7.5 as 75) on which
/// vLLM and transformers run them; 0 if they do not load them. On 8.0, vLLM runs 8-bit and 4-bit
/// floats with kernels that convert the weights; from 8.9 upwards, it multiplies in 8 bits.
///
/// Sources: `vllm/model_executor/layers/quantization/__init__.py`, `get_min_capability` there,
/// vLLM's table of supported hardware, and `transformers/quantizers`. Where versions differ, the
/// table has the higher value.
#[rustfmt::skip]
const METHODS: &[(&str, u32, u32)] = &[
    ("compressed-tensors", 75, 75),
    ("fp8", 80, 89),
    ("fbgemm-fp8", 80, 90),
    ("ptpc-fp8", 80, 0),
    ("gptq", 70, 60),
    ("gptq-marlin", 80, 0),
    ("gptq-marlin-24", 80, 0),
    ("gptq-bitblas", 80, 0),
    ("gptqmodel", 70, 60),
    ("marlin", 80, 0),
    ("bitblas", 70, 0),
    ("awq", 75, 75),
    ("awq-marlin", 80, 0),
    ("cpu-awq", 75, 0),
    ("moe-wna16", 70, 0),
    ("auto-round", 75, 75),
    ("intel/auto-round", 75, 75),
    ("autoround", 75, 75),
    ("inc", 75, 0),
    ("ipex", 75, 0),
    ("bitsandbytes", 70, 60),
    ("torchao", 80, 80),
    ("quark", 80, 80),
    ("hqq", 80, 60),
    ("mxfp4", 80, 75),
    ("gpt-oss-mxfp4", 80, 0),
    ("mxfp8", 80, 0),
    ("fp-quant", 100, 100),
    ("fpquant", 100, 100),
    ("modelopt", 80, 0),
    ("modelopt-fp4", 80, 0),
    ("modelopt-mxfp8", 80, 0),
    ("modelopt-mixed", 80, 0),
    ("petit-nvfp4", 80, 0),
    ("experts-int8", 80, 0),
    ("deepspeedfp", 70, 0),
    ("tpu-int8", 75, 0),
    ("rtn", 80, 0),
    ("bitnet", 0, 60),
    ("aqlm", 0, 60),
    ("vptq", 0, 70),
    ("spqr", 0, 80),
    ("higgs", 0, 80),
    ("eetq", 0, 70),
    ("quanto", 0, 60),
    ("optimum-quanto", 0, 60),
    ("w8a8-int8", 0, 0),
    ("w8a8-fp8", 0, 0),
    ("blockwise-int8", 0, 0),
    ("exl2", 0, 0),
    ("exl3", 0, 0),
    ("mlx", 0, 0),
];

/// The methods that run weights in a PyTorch scheme.
const SCHEMES: &[(&str, &str)] = &[
    ("FP8", "fp8"),
    ("MXFP8", "mxfp8"),
    ("INT8", "compressed-tensors"),
    ("INT4", "gptq-marlin"),
    ("AWQ", "awq"),
    ("GPTQ", "gptq"),
    ("BNB8", "bitsandbytes"),
    ("NF4", "bitsandbytes"),
    ("HQQ", "hqq"),
    ("NVFP4", "modelopt-fp4"),
    ("MXFP4", "mxfp4"),
];

/// The minimum compute capability of vLLM's own kernels.
const VLLM: u32 = 70;

fn least(method: &str, engine: Engine) -> Option<u32> {
    let (_, vllm, transformers) = METHODS.iter().find(|(known, ..)| *known == method)?;
    match engine {
        Engine::LlamaCpp => Some(0),
        Engine::Vllm => Some(*vllm),
        Engine::Transformers => Some(*transformers),
    }
}

/// Returns why a GPU with this compute capability cannot run a model; `None` if it can, as far as
/// is known.
pub fn kernels(model: &Model, run: &Run, capability: (u32, u32)) -> Option<String> {
    let engine = run.engine;
    let has = capability.0.saturating_mul(10).saturating_add(capability.1);
    let is_float = |tensor: &Tensor| {
        let name = tensor.encoding.name();
        name.starts_with("F8") || name.starts_with("F4")
    };
    let (what, needs) = match (run.weights, &model.method) {
        (Some(weights), _) => (weights.name(), scheme_needs(weights, engine)),
        // 8-bit integers in this format run on 7.5; floats do not.
        (None, Some(method)) if method == "compressed-tensors" && engine == Engine::Vllm => {
            let is_newer = model.tensors.iter().any(is_float);
            ("compressed-tensors", if is_newer { 80 } else { 75 })
        }
        (None, Some(method)) => (method.as_str(), least(method, engine).unwrap_or(0)),
        (None, None) => ("", 0),
    };
    let base = if engine == Engine::Vllm { VLLM } else { 0 };
    let (what, needs) = if needs > base {
        (format!("{engine} with {what}"), needs)
    } else {
        (engine.to_string(), base)
    };
    (has < needs).then(|| {
        let (major, minor) = capability;
        format!(
            "compute capability {major}.{minor}, but {what} needs {}.{}",
            needs / 10,
            needs % 10
        )
    })
}

/// Returns the minimum compute capability for weights in a scheme, according to [`METHODS`].
fn scheme_needs(weights: Scheme, engine: Engine) -> u32 {
    let method =
        SCHEMES.iter().find(|(name, _)| *name == weights.name()).map(|(_, method)| *method);
    match (method.and_then(|method| least(method, engine)), engine, weights.name()) {
        (Some(needs), ..) => needs,
        // vLLM rejects this type on older GPUs.
        (None, Engine::Vllm, "BF16") => 80,
        _ => 0,
    }
}

/// Returns the weight schemes that an engine can run on a GPU with this compute capability.
pub fn runnable(engine: Engine, capability: (u32, u32)) -> Vec<&'static str> {
    let mut names = Scheme::names(engine);
    names.retain(|name| {
        let weights = Scheme::named(name);
        let run = Run { weights, ..Run::new(engine, 1) };
        kernels(&Model::default(), &run, capability).is_none()
    });
    names
}

/// Returns whether an engine loads a checkpoint quantized by this method; `None` for an unknown
/// method. llama.cpp loads only GGUF files.
pub fn loads(method: &str, engine: Engine) -> Option<bool> {
    match engine {
        Engine::LlamaCpp => Some(false),
        Engine::Vllm | Engine::Transformers => least(method, engine).map(|least| least > 0),
    }
}

/// Returns whether a plan is for a GGUF file in a scheme. Such a file can be made or downloaded
/// even for a quantized checkpoint.
fn is_file(engine: Engine, weights: Option<Scheme>) -> bool {
    weights.is_some_and(|weights| weights.used_by(engine) == Use::File)
}

/// Returns the default engine: llama.cpp, unless the checkpoint is quantized or the weights should
/// be in a PyTorch scheme.
pub fn engine(model: &Model, weights: Option<Scheme>) -> Engine {
    let usable = |engine: &Engine| match (&model.method, weights) {
        (Some(_), Some(_)) if is_file(*engine, weights) => true,
        (Some(method), _) => loads(method, *engine) != Some(false),
        (None, Some(weights)) => !matches!(weights.used_by(*engine), Use::Refused(_)),
        (None, None) => true,
    };
    let mut all = [Engine::LlamaCpp, Engine::Vllm, Engine::Transformers].into_iter();
    all.find(usable).unwrap_or(Engine::LlamaCpp)
}

/// Checks whether an engine can load a model's weights and store its context as a run requests.
///
/// # Errors
/// The reason if it cannot.
pub fn check(model: &Model, format: Format, run: &Run) -> Result<(), Unusable> {
    let engine = run.engine;
    if format == Format::Gguf && engine != Engine::LlamaCpp {
        return Err(Unusable::Gguf(engine));
    }
    if let Some(method) = model.method.as_ref().filter(|_| !is_file(engine, run.weights)) {
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
    if caches(engine).contains(&run.keys.name()) {
        Ok(())
    } else {
        Err(Unusable::Cache(engine, run.keys.name()))
    }
}

/// The encodings that an engine supports for keys and values: `--cache-type-k` of llama.cpp,
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

/// Returns the option that makes an engine store keys and values as a run requests; empty for the
/// default.
pub fn cache_option(run: &Run) -> String {
    match (run.engine, run.keys.name()) {
        (_, "F16") => String::new(),
        (Engine::LlamaCpp, name) => {
            // Quantized values require flash attention.
            let flash = if name.contains('Q') || name.contains("NL") { " -fa on" } else { "" };
            let name = name.to_lowercase();
            format!("{flash} -ctk {name} -ctv {name}")
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
    fn default_engine_can_load_the_weights() {
        let plain = Model::default();
        for (model, weights, expected) in [
            (&plain, None, Engine::LlamaCpp),
            (&plain, Some("Q4_K_M"), Engine::LlamaCpp),
            (&plain, Some("AWQ"), Engine::Vllm),
            (&plain, Some("BNB8"), Engine::Transformers),
            (&quantized("mxfp4"), Some("MXFP4_MOE"), Engine::LlamaCpp),
            (&quantized("awq"), Some("Q4_K_M"), Engine::LlamaCpp),
            (&quantized("awq"), Some("FP8"), Engine::Vllm),
            (&quantized("awq"), None, Engine::Vllm),
            (&quantized("psychic"), None, Engine::Vllm),
            (&quantized("aqlm"), None, Engine::Transformers),
        ] {
            assert_eq!(engine(model, weights.and_then(Scheme::named)), expected, "{weights:?}");
        }
    }

    #[test]
    fn rejection_names_an_alternative() {
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
        // The remedy for gpt-oss works.
        let mxfp4 = quantized("mxfp4");
        let refused = check(&mxfp4, Format::Config, &run(Engine::LlamaCpp, "")).unwrap_err();
        assert!(refused.remedy().contains("--weights MXFP4_MOE"), "{}", refused.remedy());
        let file = run(Engine::LlamaCpp, "MXFP4_MOE");
        assert_eq!(check(&mxfp4, Format::Config, &file), Ok(()));
        assert_eq!(check(&plain, Format::Config, &run(Engine::Vllm, "fp8")), Ok(()));
    }

    #[test]
    fn kernels_require_compute_capability() {
        let plain = Model::default();
        for (model, engine, weights, least) in [
            (&plain, Engine::Vllm, "", (7, 0)),
            (&plain, Engine::Vllm, "F16", (7, 0)),
            (&plain, Engine::Vllm, "BF16", (8, 0)),
            (&plain, Engine::Vllm, "FP8", (8, 0)),
            (&plain, Engine::Transformers, "FP8", (8, 9)),
            (&plain, Engine::Vllm, "AWQ", (7, 5)),
            (&plain, Engine::Vllm, "GPTQ", (7, 0)),
            (&plain, Engine::Vllm, "NF4", (7, 0)),
            (&plain, Engine::Vllm, "NVFP4", (8, 0)),
            (&quantized("awq"), Engine::Vllm, "", (7, 5)),
            (&quantized("gptq-marlin"), Engine::Vllm, "", (8, 0)),
            (&quantized("mxfp4"), Engine::Vllm, "", (8, 0)),
            (&quantized("compressed-tensors"), Engine::Vllm, "", (7, 5)),
        ] {
            let run = Run { weights: Scheme::named(weights), ..Run::new(engine, 256) };
            let of = |capability| kernels(model, &run, capability);
            assert_eq!(of(least), None, "{weights:?} {model:?}");
            let below = if least.1 > 0 { (least.0, least.1 - 1) } else { (least.0 - 1, 9) };
            let why = of(below).unwrap();
            assert!(why.contains(&format!("needs {}.{}", least.0, least.1)), "{why}");
        }
        let old = Run { weights: Scheme::named("Q4_K_M"), ..Run::new(Engine::LlamaCpp, 256) };
        assert_eq!(kernels(&plain, &old, (6, 1)), None);
        assert_eq!(runnable(Engine::Vllm, (7, 0)), ["F32", "F16", "GPTQ", "NF4"]);
        for (scheme, method) in SCHEMES {
            assert!(Scheme::named(scheme).is_some() && least(method, Engine::Vllm).is_some());
        }
    }

    #[test]
    fn option_for_keys_and_values_follows_the_engine() {
        let option = |engine, keys: &str| {
            let keys = Encoding::named(keys).expect(keys);
            cache_option(&Run { keys, ..Run::new(engine, 256) })
        };
        for (keys, expected) in [
            ("F16", ""),
            ("BF16", " -ctk bf16 -ctv bf16"),
            ("F32", " -ctk f32 -ctv f32"),
            ("Q8_0", " -fa on -ctk q8_0 -ctv q8_0"),
            ("Q4_1", " -fa on -ctk q4_1 -ctv q4_1"),
            ("IQ4_NL", " -fa on -ctk iq4_nl -ctv iq4_nl"),
        ] {
            assert_eq!(option(Engine::LlamaCpp, keys), expected);
        }
        for (keys, expected) in [
            ("F16", ""),
            ("BF16", ""),
            ("F8_E4M3", " --kv-cache-dtype fp8"),
            ("F8_E5M2", " --kv-cache-dtype fp8_e5m2"),
        ] {
            assert_eq!(option(Engine::Vllm, keys), expected);
        }
        assert_eq!(option(Engine::Transformers, "BF16"), "");
    }
}
