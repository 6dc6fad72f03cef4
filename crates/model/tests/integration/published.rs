//! Published or measured figures, compared with those of the predictor.
//!
//! Each row names the component to compare. For many published runs only one component, such as the
//! cache, is known, because the mixture of encodings in the file is not.

use crate::models::{
    Config, GEMMA_4B, LLAMA_1B, LLAMA_2_7B, LLAMA_2_70B, LLAMA_8B, MOE_30B, bert_base_cased,
    deepseek_16b, encoding, hybrid,
};
use gpu_core::Bytes;
use gpu_model::need::{Engine, Estimate, Run, chain, estimate};
use gpu_model::split::llama::placed;
use gpu_model::split::vllm::{self, Vllm};
use gpu_model::split::{Room, Rooms};
use gpu_model::{Architecture, Experts, Mixer, Model};

struct Row {
    case: String,
    what: &'static str,
    published: f64,
    predicted: f64,
}

impl Row {
    fn error(&self) -> f64 {
        (self.predicted - self.published).abs() / self.published
    }
}

fn llama(context: u64) -> Run {
    Run { overhead: Some(Bytes(0)), op_offload: false, ..Run::new(Engine::LlamaCpp, context) }
}

fn of(model: &Model, run: &Run) -> Estimate {
    estimate(&chain(model, run).unwrap())
}

fn mib(bytes: Bytes) -> f64 {
    bytes.0 as f64 / Bytes::MIB as f64
}

/// A model in which only the layers matter.
fn layers(layers: Vec<Mixer>, vocabulary: u64, hidden: u64) -> Model {
    let encoding = Some(encoding("F16"));
    let heads = 16;
    let shape =
        Architecture { layers, vocabulary, hidden, heads, encoding, ..Architecture::default() };
    Model { shape: Some(shape), ..Model::default() }
}

/// A GPU with `offload_op`, as in ggml-cuda, computes batches for blocks on the CPU. llama.cpp
/// reserved these MiB on the first GPU.
#[test]
fn buffer_of_the_first_gpu_covers_batches_for_the_cpu() {
    for (model, blocks, reserved) in
        [(LLAMA_8B.gguf("F16"), 20, 688.0), (LLAMA_8B.gguf("Q8_0"), 14, 929.0)]
    {
        let buffer = |op_offload| {
            let chain = chain(&model, &Run { op_offload, ..llama(131_072) }).unwrap();
            let gpus = ["CUDA0", "CUDA1"].map(|name| Room::gpu(name, Bytes(1 << 40)));
            let rooms =
                Rooms::new(vec![gpus[0].clone(), gpus[1].clone(), Room::cpu(Bytes(1 << 40))]);
            let split = placed(&chain, &rooms, Some(blocks), &[]);
            (mib(split.used[0].buffer), mib(split.used[1].buffer))
        };
        let (alone, with) = (buffer(false), buffer(true));
        assert!(with.0 >= reserved && with.0 < 1.7 * reserved, "{with:?}");
        assert!(alone.0 < reserved && alone.1 == with.1, "{alone:?} {with:?}");
    }
}

/// The reservations of llama.cpp for synthetic models: weights, context and buffer of one device.
fn reserved() -> Vec<Row> {
    let q8 = encoding("Q8_0");
    let base = llama(32768);
    let plain = Run { flash_attention: false, ..base.clone() };
    let quantised = Run { keys: q8, values: q8, ..base.clone() };
    let wide = Run { ubatch: Some(2048), ..base.clone() };
    let four = Run { sequences: 4, ..base.clone() };
    let full = Run { full_windows: true, ..base.clone() };
    let l8 = LLAMA_8B.gguf("Q8_0");
    let l1 = LLAMA_1B.gguf("Q8_0");
    let moe = MOE_30B.gguf("Q4_0");
    let gemma = GEMMA_4B.gguf("Q8_0");
    let deepseek = deepseek_16b("Q8_0");
    let cases: [(&str, &Model, &Run, [f64; 3]); 15] = [
        ("llama 8B, 4k", &l8, &llama(4096), [7605.0, 512.0, 258.0]),
        ("llama 8B, 32k", &l8, &base, [7605.0, 4096.0, 258.0]),
        ("llama 8B, no flash attention", &l8, &plain, [7605.0, 4096.0, 2148.0]),
        ("llama 8B, q8_0 cache", &l8, &quantised, [7605.0, 2176.0, 258.0]),
        ("llama 8B, ubatch 2048", &l8, &wide, [7605.0, 4096.0, 1034.0]),
        ("llama 8B, 4 sequences", &l8, &four, [7605.0, 4096.0, 258.0]),
        ("llama 1B tied, 4k", &l1, &llama(4096), [1252.0, 128.0, 254.0]),
        ("llama 1B tied, 32k", &l1, &base, [1252.0, 1024.0, 254.0]),
        ("qwen3moe 30B, 4k", &moe, &llama(4096), [16253.0, 384.0, 300.0]),
        ("qwen3moe 30B, 32k", &moe, &base, [16253.0, 3072.0, 300.0]),
        ("gemma3 4B, 4k", &gemma, &llama(4096), [3932.0, 254.0, 517.0]),
        ("gemma3 4B, 32k", &gemma, &base, [3932.0, 814.0, 517.0]),
        ("gemma3 4B, swa-full", &gemma, &full, [3932.0, 4352.0, 517.0]),
        ("deepseek2 16B, 4k", &deepseek, &llama(4096), [15712.0, 121.0, 236.0]),
        ("deepseek2 16B, 32k", &deepseek, &base, [15712.0, 972.0, 232.0]),
    ];
    let mut rows = Vec::new();
    for (case, model, run, published) in cases {
        let estimate = of(model, run);
        let parts = [estimate.weights, estimate.context, estimate.buffer];
        let names = ["weights", "context", "buffer"];
        for ((what, published), predicted) in names.into_iter().zip(published).zip(parts) {
            // The tool prints whole MiB, rounded down.
            let predicted = mib(predicted).floor();
            rows.push(Row { case: format!("{case} (measured)"), what, published, predicted });
        }
    }
    rows
}

/// Published figures from real machines.
fn machines() -> Vec<Row> {
    let mut rows = Vec::new();
    let mut add = |case: &str, what, published: f64, predicted: f64| {
        rows.push(Row { case: case.to_owned(), what, published, predicted });
    };
    let context = |mixers: Vec<Mixer>, run: &Run| mib(of(&layers(mixers, 1024, 1024), run).context);

    let coder = hybrid(48, 2, 32);
    let next = Model {
        shape: Some(Architecture {
            experts: Some(Experts {
                count: 512,
                used: 10,
                feed_forward: 512,
                shared: 1,
                dense_layers: 0,
            }),
            ..layers(coder.clone(), 151_936, 2048).shape.unwrap()
        }),
        ..Model::default()
    };
    for (tokens, kept, buffer) in
        [(4096, 397.0, 358.0), (100_096, 2647.0, 601.0), (262_144, 6445.0, 1076.0)]
    {
        let run = Run { sequences: 4, unified: true, ..llama(tokens) };
        let case = format!("Qwen3-Coder-Next 80B, {tokens}, RTX 5090");
        add(&case, "context", kept, context(coder.clone(), &run));
        add(&case, "buffer", buffer, mib(of(&next, &run).buffer));
    }
    let run = llama(65536);
    add("Qwen3.5-9B, 64k, RTX 5060 Ti", "context", 2098.25, context(hybrid(32, 4, 32), &run));
    let run = Run { sequences: 3, unified: true, ..llama(65536) };
    add("Qwen3.6-35B-A3B, 64k, Vulkan", "context", 1468.44, context(hybrid(40, 2, 32), &run));
    let run = Run { sequences: 4, unified: true, ..llama(32768) };
    add("Qwen3.6-27B, 32k, RTX 3090", "context", 2646.5, context(hybrid(64, 4, 48), &run));
    let latent = vec![Mixer::Latent { rank: 512, rope: 64 }; 61];
    add("DeepSeek-V3, 16k, 3 GPUs", "context", 1098.0, context(latent, &llama(16384)));
    let attention = |kv_heads| Mixer::Attention { kv_heads, key: 128, value: 128, window: None };
    let command = vec![attention(64); 40];
    add("Command-R 35B, 4k, 4070 Ti + 3090 Ti", "context", 5120.0, context(command, &llama(4096)));
    let seven = LLAMA_2_7B.gguf("F16");
    add("7B, 4k, 4 GPUs", "context", 2048.0, mib(of(&seven, &llama(4096)).context));

    let trilm = Config {
        layers: 30,
        hidden: 3072,
        heads: 24,
        kv_heads: 24,
        feed_forward: 9216,
        vocabulary: 50_688,
        context: 2048,
        ..LLAMA_8B
    };
    let found = of(&trilm.gguf("F16"), &llama(512));
    add("TriLM 3.9B f16, 512, RTX 4080", "weights", 7317.71, mib(found.weights));
    add("TriLM 3.9B f16, 512, RTX 4080", "context", 180.0, mib(found.context));
    add("TriLM 3.9B f16, 512, RTX 4080", "buffer", 105.0, mib(found.buffer));

    let mut command =
        Config { vocabulary: 256_000, tied: true, window: Some((4096, 4)), norms: 1, ..LLAMA_8B }
            .gguf("Q6_K");
    for tensor in command.tensors.iter_mut().filter(|tensor| tensor.name == "token_embd.weight") {
        tensor.encoding = encoding("Q8_0");
        tensor.bytes = Bytes(tensor.encoding.bytes(tensor.elements()).unwrap());
    }
    for (full_windows, published) in [(false, 9115.0), (true, 11459.0)] {
        let run = Run { full_windows, ..Run::new(Engine::LlamaCpp, 31_000) };
        let case = format!("Command-R7B Q6_K_L, 31000, swa-full {full_windows}");
        add(&case, "everything", published, mib(of(&command, &run).total()));
    }

    let bert = of(&bert_base_cased(), &Run::new(Engine::Transformers, 1));
    add("bert-base-cased", "weights", 413.68, mib(bert.weights));
    rows.append(&mut served());
    rows
}

/// Figures that vLLM logged when it measured itself.
fn served() -> Vec<Row> {
    let gib = |bytes: Bytes| bytes.gib();
    let mut rows = Vec::new();
    let mut add = |case: &str, what, published: f64, predicted: f64| {
        rows.push(Row { case: case.to_owned(), what, published, predicted });
    };
    let bf16 = |config: Config| config.safetensors("BF16");
    let capacity = |gib: f64| Bytes((gib * (1u64 << 30) as f64) as u64);
    let size = |model: &Model, run: &Run, capacity, ranks, utilisation| -> Vllm {
        vllm::size(model, run, capacity, ranks, utilisation).unwrap()
    };

    let llama3 = bf16(LLAMA_8B);
    let run = Run::new(Engine::Vllm, 8192);
    let case = "Llama-3-8B bf16, vLLM, A100 80 GB";
    let one = size(&llama3, &run, capacity(79.22), 1, 0.9);
    add(case, "weights", 14.96, gib(one.weights));
    add(case, "activations", 1.26, gib(one.activations));
    add(case, "cache", 53.29, gib(one.cache));
    let two = size(&llama3, &run, capacity(79.22), 2, 0.9);
    add("the same on two", "weights", 7.48, gib(two.weights));

    let run = Run { ubatch: Some(4096), ..Run::new(Engine::Vllm, 4096) };
    let seven = size(&bf16(LLAMA_2_7B), &run, capacity(79.15), 1, 0.9);
    add("Llama-2-7B, vLLM, A100 80 GB", "blocks", 7351.0, (seven.tokens.unwrap() / 16) as f64);
    let seventy = size(&bf16(LLAMA_2_70B), &run, capacity(79.15), 4, 0.9);
    add(
        "Llama-2-70B, vLLM, 4 × A100 80 GB",
        "blocks",
        20865.0,
        (seventy.tokens.unwrap() / 16) as f64,
    );

    let distilled = Config {
        layers: 48,
        hidden: 5120,
        heads: 40,
        feed_forward: 13824,
        vocabulary: 152_064,
        ..LLAMA_8B
    };
    let run = Run { ubatch: Some(2048), ..Run::new(Engine::Vllm, 8192) };
    let two = size(&bf16(distilled), &run, capacity(23.64), 2, 0.98);
    let case = "R1-Distill-Qwen-14B, vLLM, 2 × RTX 4090";
    add(case, "weights", 13.95, gib(two.weights));
    add(case, "cache", 8.69, gib(two.cache));

    let qwen = Config { layers: 94, hidden: 4096, heads: 64, kv_heads: 4, ..LLAMA_8B };
    let token = vllm::token_bytes(&qwen.shape(), &run, 4);
    let tokens = capacity(8.11).0 / token.0;
    add("Qwen3-235B-A22B-FP8, vLLM, 4 × H100", "tokens of the cache", 178_880.0, tokens as f64);
    rows
}

fn median(rows: &[Row]) -> f64 {
    let mut errors: Vec<f64> = rows.iter().map(Row::error).collect();
    errors.sort_by(f64::total_cmp);
    errors[errors.len() / 2]
}

#[test]
fn predictions_are_close_to_published_figures() {
    let mut table = String::new();
    for (name, rows) in [("measured", reserved()), ("published", machines())] {
        for row in &rows {
            table += &format!(
                "{:<44} {:<20} {:>11.2} {:>11.2} {:>6.1} %\n",
                row.case,
                row.what,
                row.published,
                row.predicted,
                100.0 * row.error()
            );
        }
        let median = median(&rows);
        table += &format!("median error, {name}: {:.2} % of {}\n", 100.0 * median, rows.len());
        assert!(median <= 0.01, "{table}");
        let inexact = rows.iter().filter(|row| row.error() > 0.05).count();
        assert!(inexact * 4 <= rows.len(), "{table}");
    }
    println!("{table}");
}
