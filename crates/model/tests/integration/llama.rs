//! llama.cpp's placements, compared with its output for synthetic models on simulated GPUs.

use crate::models::{GEMMA_4B, LLAMA_1B, LLAMA_8B, MOE_30B, deepseek_16b};
use gpu_core::Bytes;
use gpu_model::Model;
use gpu_model::need::{Engine, Run, chain};
use gpu_model::split::llama::{FitError, FitOptions, arguments, fit, placed};
use gpu_model::split::{Objective, Room, Rooms, Split, optimal};

fn run(context: u64) -> Run {
    Run { overhead: Some(Bytes(0)), op_offload: false, ..Run::new(Engine::LlamaCpp, context) }
}

/// GPUs with this much free memory in MiB, and a CPU with plenty.
fn rooms(free: &[u64]) -> Rooms {
    let mut rooms: Vec<Room> = Vec::new();
    for (index, free) in free.iter().enumerate() {
        rooms.push(Room::gpu(format!("CUDA{index}"), Bytes::from_mib(*free)));
    }
    rooms.push(Room::cpu(Bytes::from_mib(1 << 20)));
    Rooms::new(rooms)
}

/// Weights, context and buffer of each room, in whole MiB.
fn use_mib(split: &Split) -> Vec<(u64, u64, u64)> {
    split
        .used
        .iter()
        .map(|used| (used.weights.mib(), used.context.mib(), used.buffer.mib()))
        .collect()
}

#[test]
fn layer_shares_match_llama() {
    let model = LLAMA_8B.gguf("Q8_0");
    let chain = chain(&model, &run(32768)).unwrap();
    let two = rooms(&[24000, 24000]);
    let split = placed(&chain, &two, None, &[]);
    assert_eq!(use_mib(&split)[..2], [(3757, 2176, 268), (3847, 1920, 450)]);
    let split = placed(&chain, &two, None, &[3.0, 1.0]);
    assert_eq!(use_mib(&split)[..2], [(5525, 3200, 268), (2079, 896, 450)]);
    let split = placed(&chain, &rooms(&[24000]), Some(16), &[]);
    assert_eq!(use_mib(&split)[0], (3847, 1920, 258));
    assert_eq!(use_mib(&split)[1].0, 4289);
    let split = placed(&chain, &rooms(&[24000]), Some(0), &[]);
    assert_eq!(split.used[0].total(), Bytes(0));
}

#[test]
fn shares_of_four_devices_are_close_to_llama_output() {
    let chain = chain(&LLAMA_8B.gguf("F16"), &run(16384)).unwrap();
    let split = placed(&chain, &rooms(&[8000; 4]), None, &[]);
    let used = use_mib(&split);
    assert_eq!(used[1..4], [(3328, 512, 236), (3328, 512, 236), (3914, 448, 386)]);
}

#[test]
fn arguments_reproduce_placement() {
    let model = LLAMA_8B.gguf("Q8_0");
    let chain = chain(&model, &run(8192)).unwrap();
    let rooms = rooms(&[4000, 4000]);
    let split = optimal(&chain, &rooms, Objective::Latency);
    assert!(split.fits());
    let found = arguments(&chain, &rooms, &split).unwrap();
    let shares: Vec<f32> = found.tensor_split.iter().map(|layers| *layers as f32).collect();
    assert_eq!(placed(&chain, &rooms, Some(found.layers), &shares).rooms, split.rooms);
    assert_eq!(found.words()[..2], ["-ngl".to_owned(), found.layers.to_string()]);
}

/// A measured decision. The input is the free MiB of the GPUs, the model and the options; the
/// output is the context, the layers of each GPU, the moved parts of partial layers, and the layers
/// of which only the experts are on the CPU.
struct Case {
    free: &'static [u64],
    model: &'static str,
    options: FitOptions,
    context: u64,
    layers: &'static [usize],
    moved: &'static [&'static str],
    experts: std::ops::Range<usize>,
}

fn options(context: Option<u64>) -> FitOptions {
    FitOptions { context, ..FitOptions::default() }
}

fn dense_cases() -> Vec<Case> {
    let case = |free, model, options, context, layers| Case {
        free,
        model,
        options,
        context,
        layers,
        moved: &[],
        experts: 0..0,
    };
    let least = FitOptions { least_context: 32768, ..FitOptions::default() };
    let fixed = FitOptions { layers: Some(20), ..FitOptions::default() };
    let tight = FitOptions { margin: Bytes::from_mib(512), ..FitOptions::default() };
    let none = || options(None);
    let tokens = |context| options(Some(context));
    vec![
        case(&[8000], "llama8b", none(), 4096, &[27]),
        case(&[8000], "llama8b", tokens(8192), 8192, &[25]),
        case(&[8000], "llama8b", least, 32768, &[18]),
        case(&[8000], "llama8b", fixed, 26624, &[20]),
        case(&[10000], "llama8b", none(), 8704, &[33]),
        case(&[12000], "llama8b", none(), 24832, &[33]),
        case(&[24000], "llama8b", none(), 120_832, &[33]),
        case(&[8000, 8000], "llama8b", none(), 41472, &[16, 17]),
        case(&[8000, 8000], "llama8b", tight, 49152, &[16, 17]),
        case(&[8000, 8000], "llama8b", tokens(65536), 65536, &[14, 13]),
        case(&[12000, 8000], "llama8b", none(), 71680, &[20, 13]),
        case(&[8000, 4000], "llama8b", tokens(8192), 8192, &[24, 9]),
        case(&[4000, 4000], "llama8b", tokens(8192), 8192, &[11, 9]),
        case(&[12000, 8000, 6000], "llama8b f16", none(), 51712, &[15, 11, 7]),
        case(&[4000], "gemma4b", none(), 4096, &[18]),
        case(&[6000], "gemma4b", none(), 17920, &[35]),
        case(&[2000], "llama1b", none(), 4096, &[7]),
        case(&[1200], "llama1b", none(), 4096, &[]),
        case(&[900], "llama1b", none(), 4096, &[]),
    ]
}

fn expert_cases() -> Vec<Case> {
    let tokens = |context| options(Some(context));
    let case = |free, model, options: FitOptions, layers, moved, experts| Case {
        free,
        model,
        context: options.context.unwrap_or(4096),
        options,
        layers,
        moved,
        experts,
    };
    vec![
        case(&[8000], "moe30b", options(None), &[49], &["17 up|gate|gate_up|down CPU"], 18..48),
        case(&[8000], "moe30b", tokens(16384), &[49], &["13 down CPU"], 14..48),
        case(&[12000], "moe30b", tokens(16384), &[49], &["26 up|gate|gate_up|down CPU"], 27..48),
        case(
            &[8000, 8000],
            "moe30b",
            tokens(16384),
            &[19, 30],
            &["18 down CUDA1", "34 down CPU"],
            35..48,
        ),
        case(
            &[12000, 8000],
            "moe30b",
            tokens(16384),
            &[30, 19],
            &["29 gate|gate_up|down CUDA1", "47 up|gate|gate_up|down CPU"],
            48..48,
        ),
        case(
            &[8000, 8000],
            "ds16b",
            options(None),
            &[13, 15],
            &["12 gate|gate_up|down CUDA1", "23 up|gate|gate_up|down CPU"],
            24..27,
        ),
    ]
}

fn model(name: &str) -> Model {
    match name {
        "llama8b" => LLAMA_8B.gguf("Q8_0"),
        "llama8b f16" => LLAMA_8B.gguf("F16"),
        "llama1b" => LLAMA_1B.gguf("Q8_0"),
        "moe30b" => MOE_30B.gguf("Q4_0"),
        "gemma4b" => GEMMA_4B.gguf("Q8_0"),
        _ => deepseek_16b("Q8_0"),
    }
}

#[test]
fn fit_matches_llama() {
    for case in dense_cases().into_iter().chain(expert_cases()) {
        let name = format!("{:?} {}", case.free, case.model);
        let rooms = rooms(case.free);
        let found = fit(&model(case.model), &run(0), &rooms, &case.options).unwrap();
        assert_eq!(found.context, case.context, "{name}");
        let found = arguments(&found.chain, &rooms, &found.split).unwrap();
        let layers = match found.tensor_split.as_slice() {
            [] if found.layers > 0 => vec![found.layers],
            shares => shares.to_vec(),
        };
        assert_eq!(layers, case.layers, "{name}");
        let mut moved = Vec::new();
        for text in case.moved {
            let [layer, parts, room] = text.split(' ').collect::<Vec<_>>()[..] else { panic!() };
            moved.push((format!("blk\\.{layer}\\.ffn_({parts}).*"), room.to_owned()));
        }
        let experts = |layer| format!("blk\\.{layer}\\.ffn_(up|gate|gate_up|down)_(ch|)exps");
        moved.extend(case.experts.map(|layer| (experts(layer), "CPU".to_owned())));
        assert_eq!(found.overrides, moved, "{name}");
    }
}

#[test]
fn fit_keeps_fitting_placement() {
    for (free, model_name, tokens) in [
        (&[8000, 8000][..], "llama8b", Some(32768)),
        (&[24000, 12000, 8000], "llama8b", None),
        (&[4000, 8000], "llama8b", Some(8192)),
        (&[12000, 8000, 6000], "llama8b f16", Some(16384)),
        (&[12000, 8000], "ds16b", Some(32768)),
    ] {
        let found = fit(&model(model_name), &run(0), &rooms(free), &options(tokens)).unwrap();
        assert!(!found.replaced, "{free:?} {model_name}");
        assert_eq!(found.context, tokens.unwrap_or(131_072));
    }
}

#[test]
fn fit_keeps_user_settings() {
    let shares = FitOptions { shares: vec![1.0, 1.0], ..options(Some(131_072)) };
    let found = fit(&model("llama8b"), &run(0), &rooms(&[8000, 8000]), &shares);
    assert_eq!(found.unwrap_err(), FitError::Fixed("the shares of the GPUs"));
    let found = fit(&model("llama8b"), &run(0), &rooms(&[]), &options(None));
    assert_eq!(found.unwrap_err(), FitError::NoGpu);
}
