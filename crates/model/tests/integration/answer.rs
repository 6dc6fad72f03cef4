//! Which encodings fit, and with how much context.

use crate::models::{LLAMA_2_70B, LLAMA_8B, MOE_30B};
use gpu_core::Bytes;
use gpu_model::Model;
use gpu_model::need::{Engine, Run, Unknown, chain};
use gpu_model::split::llama::{FitOptions, arguments, fit};
use gpu_model::split::{
    Objective, Room, RoomKind, Rooms, Split, Use, answer, candidates, largest_context, optimal,
    vllm,
};

fn two(mib: u64) -> Rooms {
    let gpu = |name: &str| Room::gpu(name, Bytes::from_mib(mib));
    Rooms::new(vec![gpu("CUDA0"), gpu("CUDA1"), Room::cpu(Bytes::from_mib(1 << 20))])
}

fn without_overhead(context: u64) -> Run {
    Run { overhead: Some(Bytes(0)), op_offload: false, ..Run::new(Engine::LlamaCpp, context) }
}

#[test]
fn search_finds_more_context_than_llama_fit() {
    let model = LLAMA_8B.gguf("Q8_0");
    // The margin of `--fit` on devices with 8000 MiB.
    let (rooms, run) = (two(8000 - 1024), without_overhead(0));
    let context = largest_context(&model, &run, &rooms, RoomKind::Gpu).unwrap();
    assert_eq!(context, Some(43_776));
    let chain = chain(&model, &without_overhead(43_776)).unwrap();
    let split = optimal(&chain, &rooms, Objective::Latency);
    assert_eq!(arguments(&chain, &rooms, &split).unwrap().tensor_split, [17, 16]);
    // Measured with llama.cpp, which rounds each part down.
    let parts = |used: &Use| used.weights.mib() + used.context.mib() + used.buffer.mib();
    let used: Vec<u64> = split.used[..2].iter().map(parts).collect();
    assert_eq!(used, [6975, 6905]);
    let fitted = fit(&model, &run, &two(8000), &FitOptions::default()).unwrap();
    assert_eq!(fitted.context, 41_472);
}

#[test]
fn narrower_encodings_fit_when_stored_one_does_not() {
    let model = LLAMA_2_70B.gguf("F16");
    let run = Run::new(Engine::LlamaCpp, 4096);
    let rooms = two(24_000);
    let encodings = candidates(&model, Engine::LlamaCpp, &rooms);
    assert_eq!(encodings.first().map(|scheme| scheme.name()), Some("Q8_0"));
    let answers = answer(&model, &run, &rooms, &encodings, Objective::Throughput).unwrap();
    let on_gpus = |name: Option<&str>| {
        let found = answers.iter().find(|answer| answer.scheme.map(|scheme| scheme.name()) == name);
        found.map(|answer| answer.split.fits() && answer.split.last_resort == RoomKind::Gpu)
    };
    assert_eq!(on_gpus(None), Some(false));
    assert_eq!(on_gpus(Some("Q6_K")), Some(false));
    assert_eq!(on_gpus(Some("Q4_K_M")), Some(true));
    for pair in answers.windows(2) {
        assert!(pair[0].estimate.weights > pair[1].estimate.weights);
        assert!(pair[0].largest_context <= pair[1].largest_context);
    }
    for found in &answers {
        assert!(found.fits() && found.largest_context.is_some_and(|context| context >= 4096));
    }
}

#[test]
fn largest_context_is_independent_of_requested_context() {
    let model = LLAMA_8B.gguf("Q8_0");
    let rooms = Rooms::new(vec![Room::gpu("CUDA0", Bytes::from_mib(20_000))]);
    for engine in [Engine::LlamaCpp, Engine::Vllm, Engine::Transformers] {
        let of = |asked| {
            largest_context(&model, &Run::new(engine, asked), &rooms, RoomKind::Gpu).unwrap()
        };
        assert!(of(512).is_some_and(|largest| largest > 4096), "{engine:?}");
        assert_eq!(of(512), of(65_536), "{engine:?}");
    }
}

/// Whole layers on the CPU would take their attention there too.
#[test]
fn experts_go_to_cpu_before_whole_layers() {
    let model = MOE_30B.gguf("Q4_0");
    let gpu = |at: usize| Room::gpu(format!("CUDA{at}"), Bytes::from_mib(6_000));
    for gpus in [1, 2] {
        let rooms: Vec<Room> = (0..gpus).map(gpu).chain([Room::cpu(Bytes(1 << 40))]).collect();
        let rooms = Rooms::new(rooms);
        let run = without_overhead(16_384);
        let found = &answer(&model, &run, &rooms, &[], Objective::FewestRooms).unwrap()[0];
        assert!(found.split.fits() && found.split.last_resort == RoomKind::Cpu);
        assert!(found.split.rooms.iter().skip(1).all(|room| *room != Some(gpus)));
        let whole = optimal(&found.chain, &rooms, Objective::FewestRooms);
        let time = |split: &Split| split.cost(Objective::Latency).first;
        assert!(whole.fits() && 2 * time(&found.split) < time(&whole), "{gpus} GPUs");
        let reasons = found.split.reasons(&found.chain, &rooms).join("\n");
        assert!(reasons.contains("the experts of block "), "{reasons}");
        let words = arguments(&found.chain, &rooms, &found.split).unwrap().words();
        let overrides = words.iter().filter(|word| *word == "-ot").count();
        assert!((1..=4).contains(&overrides), "{words:?}");
    }
}

#[test]
fn reasons_name_layers_and_shortage() {
    let model = LLAMA_8B.gguf("Q8_0");
    let gpu = Room::gpu("CUDA0", Bytes::from_mib(4000));
    let rooms = Rooms::new(vec![gpu, Room::cpu(Bytes::from_mib(2000))]);
    let chain = chain(&model, &without_overhead(4096)).unwrap();
    let split = optimal(&chain, &rooms, Objective::Latency);
    assert!(!split.fits() && !split.is_optimal);
    let reasons = split.reasons(&chain, &rooms).join("\n");
    assert!(reasons.contains("the engine keeps it there"), "{reasons}");
    assert!(reasons.contains(" on CUDA0"), "{reasons}");
    assert!(reasons.contains("cpu is short by "), "{reasons}");
    // This also holds for a host with unknown memory: the input is in it, not missing.
    let rooms = Rooms::new(vec![Room::gpu("CUDA0", Bytes(1 << 40))]);
    let split = optimal(&chain, &rooms, Objective::Latency);
    let reasons = split.reasons(&chain, &rooms).join("\n");
    assert!(reasons.contains("the engine keeps it there"), "{reasons}");
}

#[test]
fn vllm_fits_more_on_more_ranks() {
    let model = LLAMA_2_70B.safetensors("BF16");
    let run = Run { ubatch: Some(4096), ..Run::new(Engine::Vllm, 4096) };
    let gpu = |at: usize| Room::gpu(format!("GPU {at}"), Bytes::from_mib(81_000));
    let rooms = Rooms::new((0..8).map(gpu).collect());
    let sizes = vllm::sizes(&model, &run, &rooms).unwrap();
    let fits: Vec<(u64, bool)> =
        sizes.iter().map(|served| (served.size.ranks, served.size.fits)).collect();
    assert_eq!(fits, [(1, false), (2, true), (4, true), (8, true)]);
    assert!(sizes.windows(2).all(|pair| pair[0].size.tokens < pair[1].size.tokens));
    // All sequences must fit, not only one.
    let many = Run { sequences: 64, ..run };
    let found = &answer(&model, &many, &rooms, &[], Objective::FewestRooms).unwrap()[0];
    let served = found.served.as_ref().unwrap();
    assert_eq!((served.size.ranks, served.size.tokens.unwrap() >= 64 * 4096), (4, true));
    assert!(!vllm::sizes(&model, &many, &rooms).unwrap()[1].size.fits);
}

#[test]
fn error_names_model_without_dimensions() {
    let model = Model { name: "blob".to_owned(), ..Model::default() };
    let error = chain(&model, &without_overhead(4096)).unwrap_err();
    assert_eq!(error, Unknown::Shape("blob".to_owned()));
    assert!(error.to_string().contains("'blob'"));
}
