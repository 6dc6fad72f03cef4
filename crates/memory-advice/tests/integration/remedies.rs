//! The reasons and remedies for a message, in the terms of its program.

use MessageSource::{
    CuPy, LlamaCpp, Rmm, TensorFlow, Torch, TorchExpandable, TorchMetal, TorchWithSplit,
    TorchWithoutSettings, Vllm, Xla,
};
use gpu_core::{Bytes, Pid};
use gpu_memory_advice::explain::*;

const GIB: u64 = 1 << 30;

fn gib(count: u64) -> Option<Bytes> {
    Some(Bytes(count * GIB))
}

fn mib(count: u64) -> Option<Bytes> {
    Some(Bytes::from_mib(count))
}

/// A message with the requested, total, free, used and cached memory, in GiB.
fn message(speaker: MessageSource, figures: [u64; 5]) -> OomFigures {
    let [asked, total, free, in_use, unused] = figures.map(gib);
    OomFigures { asked, total, free, in_use, unused, ..OomFigures::by(speaker) }
}

fn sets(diagnosis: &Diagnosis) -> Vec<&str> {
    diagnosis.remedies.iter().filter_map(|remedy| remedy.set.as_deref()).collect()
}

#[track_caller]
fn assert_reason(shown: &OomFigures, cause: Cause, reason: &str) {
    let diagnosis = explain(shown, None);
    assert_eq!((diagnosis.cause, diagnosis.reasons[0].as_str()), (cause, reason), "{shown:?}");
}

#[test]
fn reasons_state_the_figures() {
    let torch = |figures| message(TorchExpandable, figures);
    let others = |sizes: &[u64], shown: OomFigures| {
        let other = |(pid, size): (u32, &u64)| Other { pid: Pid(pid), memory: mib(*size) };
        OomFigures { others: (7..).zip(sizes).map(other).collect(), ..shown }
    };
    assert_reason(
        &torch([100, 24, 2, 20, 0]),
        Cause::LargerThanDevice,
        "It requested 100 GiB in one allocation, more than the 24 GiB of the device; no setting \
         helps.",
    );
    assert_reason(
        &OomFigures { process: gib(19), ..torch([6, 24, 5, 18, 0]) },
        Cause::TooBig,
        "Too big: 18 GiB in use plus 6 GiB requested plus 1 GiB context is 25 GiB; the device has 24 \
         GiB.",
    );
    assert_reason(
        &OomFigures { process: gib(19), ..torch([6, 24, 5, 19, 0]) },
        Cause::TooBig,
        "Too big: 19 GiB in use plus 6 GiB requested is 25 GiB; the device has 24 GiB.",
    );
    assert_reason(
        &torch([3, 24, 2, 20, 2]),
        Cause::Fragmented,
        "Fragmented: 2 GiB free and 2 GiB reserved but unused, not contiguous; short by 1 GiB.",
    );
    assert_reason(
        &others(&[8192], OomFigures { process: gib(11), ..torch([6, 24, 5, 10, 0]) }),
        Cause::OtherProcesses,
        "Short by 1 GiB, which other processes hold: PID 7 8 GiB.",
    );
    assert_reason(
        &others(&[1024, 1024, 1024], OomFigures { process: gib(19), ..torch([3, 24, 2, 18, 0]) }),
        Cause::ManyContexts,
        "Short by 1 GiB; 3 other processes together hold 3 GiB, a small amount each, typical of \
         one CUDA context per process.",
    );
    assert_reason(
        &OomFigures { process: gib(5), ..torch([14, 24, 8, 4, 0]) },
        Cause::Unnamed,
        "Short by 6 GiB; 11 GiB of the device is not attributed to any process in the message.",
    );
    assert_reason(
        &OomFigures { limit: gib(5), ..torch([1, 24, 18, 4, 1]) },
        Cause::Limit,
        "Limit: it holds 5 GiB and requested 1 GiB; its limit is 5 GiB, though 18 GiB are free on \
         the device.",
    );
    assert_reason(
        &torch([1, 24, 9, 1, 0]),
        Cause::FreeEnough,
        "9 GiB were free when the message was written, but 1 GiB were requested: memory was freed \
         in between, or another limit applies (platform, container, or driver limit for a single \
         allocation).",
    );
    let needs =
        OomFigures { needs: gib(10), limit: gib(9), ..OomFigures::by(MessageSource::Other) };
    let reason = "Limit: with the request it would hold 10 GiB, above its limit of 9 GiB.";
    assert_reason(&needs, Cause::Limit, reason);
    let exact = OomFigures { needs: gib(9), ..needs };
    assert_eq!(explain(&exact, None).cause, Cause::NotTold, "it is within the limit");
    let left = OomFigures { asked: gib(4), left: gib(3), ..OomFigures::by(Vllm) };
    assert_reason(&left, Cause::Limit, "Limit: it requested 4 GiB, but its limit leaves 3 GiB.");
    let exact = OomFigures { left: gib(4), ..left };
    assert_eq!(explain(&exact, None).cause, Cause::NotTold);
}

#[test]
fn reasons_of_pools_and_compilers_state_the_figures() {
    let pool = |figures: [u64; 3], limit| {
        let [asked, in_use, unused] = figures.map(gib);
        let limit = gib(limit);
        OomFigures { asked, in_use, unused, limit, ..OomFigures::by(TensorFlow) }
    };
    assert_reason(
        &pool([2, 14, 1], 15),
        Cause::TooBig,
        "Too big: 14 GiB in use plus 2 GiB requested is 16 GiB, above the allocator limit of 15 \
         GiB.",
    );
    let fragments = "Fragmented: 5 GiB of the allocator's memory is unused, but the request needs \
                     2 GiB in one block; ";
    let pieces = pool([2, 10, 5], 15);
    let reason = format!("{fragments}no single block is large enough.");
    assert_reason(&pieces, Cause::Fragmented, &reason);
    let largest = OomFigures { largest_free: gib(1), ..pieces };
    let reason = format!("{fragments}the largest block has 1 GiB.");
    assert_reason(&largest, Cause::Fragmented, &reason);
    assert_reason(
        &pool([2, 10, 0], 15),
        Cause::Unnamed,
        "The allocator was below its limit, but the device was full: other processes hold the \
         memory.",
    );
    let compiled = OomFigures { needs_at_least: gib(31), ..OomFigures::by(Xla) };
    let reason =
        "The compiled program needs at least 31 GiB; the compiler could not reduce it further.";
    assert_reason(&compiled, Cause::TooBig, reason);
    let attempts = |count| OomFigures {
        ladder: Some((Bytes(9 * GIB), Bytes(8 * GIB), count)),
        ..OomFigures::by(TensorFlow)
    };
    assert_reason(
        &attempts(1),
        Cause::TakenBefore,
        "The driver refused 9 GiB: the memory was already in use, by another process or this one.",
    );
    assert_reason(
        &attempts(3),
        Cause::TakenBefore,
        "It requested 9 GiB from the driver and retried 2 times with 10 % less, down to 8 GiB: the \
         memory was already in use, by another process or this one.",
    );
    let vllm = OomFigures { unused: None, in_use: None, ..message(Vllm, [20, 24, 9, 0, 0]) };
    let reason =
        "15 GiB of the device were in use at startup; the message does not name the processes.";
    assert_reason(&vllm, Cause::Unnamed, reason);
}

#[test]
fn missing_figures_are_named() {
    let asked = |asked| OomFigures { asked: gib(asked), ..OomFigures::by(MessageSource::Other) };
    let reason = "It requested 3 GiB; the message has no further figures.";
    assert_reason(&asked(3), Cause::NotTold, reason);
    let short = OomFigures { free: gib(1), ..asked(3) };
    let reason = "Short by 2 GiB; the message does not name the holders of the rest.";
    assert_reason(&short, Cause::NotTold, reason);
    let reason = "The message states neither the requested nor the free memory.";
    assert_reason(&OomFigures::by(MessageSource::Other), Cause::NotTold, reason);
}

#[test]
fn further_reasons_follow_the_first() {
    let too_big = OomFigures { process: gib(19), ..message(TorchExpandable, [6, 24, 5, 18, 0]) };
    let reasons = |shown: &OomFigures| explain(shown, None).reasons[1..].to_vec();
    assert_eq!(reasons(&too_big), ["The cache is empty, so emptying it does not help."]);
    let cached = OomFigures { unused: mib(512), process: gib(19), ..too_big.clone() };
    let cache = "Not fragmentation: 1 GiB are missing and the cache has 512 MiB.";
    assert_eq!(reasons(&cached), [cache]);
    let pools = OomFigures { private_pools: gib(3), unused: None, ..too_big.clone() };
    let graphs = "3 GiB of the memory in use belong to private pools (CUDA graphs) and cannot \
                  serve other requests.";
    assert_eq!(reasons(&pools), [graphs]);
    let none = OomFigures { private_pools: gib(0), unused: None, ..too_big.clone() };
    assert_eq!(reasons(&none), [""; 0]);
    let elsewhere = OomFigures { backend: Some("hip".into()), unused: None, ..too_big.clone() };
    let own = "Not an NVIDIA device: gpuws has only this message to go by.";
    assert_eq!(reasons(&elsewhere), [own]);
    let shared = OomFigures {
        others: vec![
            Other { pid: Pid(7), memory: mib(100) },
            Other { pid: Pid(8), memory: mib(50) },
        ],
        unused: None,
        ..too_big
    };
    assert_eq!(reasons(&shared), ["Other processes hold 150 MiB: PID 7 100 MiB, PID 8 50 MiB."]);
}

#[test]
fn smaller_workload_is_named_in_terms_of_the_program() {
    let batch =
        "a smaller batch with gradient accumulation, or activation (gradient) checkpointing";
    let chunks = "process less data at once, in smaller chunks";
    for (speaker, set, why) in [
        (TorchExpandable, None, batch),
        (CuPy, None, chunks),
        (Rmm, None, chunks),
        (MessageSource::Other, None, chunks),
        (LlamaCpp, Some("-ngl"), "lower: fewer layers on the GPU"),
        (Vllm, Some("--max-model-len"), "lower: a shorter context needs a smaller cache"),
    ] {
        let shown = OomFigures { process: gib(19), ..message(speaker, [6, 24, 5, 18, 0]) };
        let diagnosis = explain(&shown, None);
        assert_eq!(diagnosis.cause, Cause::TooBig, "{speaker:?}");
        let first = &diagnosis.remedies[0];
        assert_eq!((first.set.as_deref(), first.why.as_str()), (set, why), "{speaker:?}");
    }
    let larger =
        |speaker| explain(&message(speaker, [100, 24, 2, 20, 0]), None).remedies.remove(0).why;
    assert!(larger(LlamaCpp).starts_with("a smaller model or context"));
    assert!(larger(Torch).starts_with("find the tensor or buffer of this size"));
}

#[test]
fn remedies_against_fragmentation_fit_the_allocator() {
    for (speaker, expected) in [
        (TorchExpandable, &["PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"][..]),
        (TorchWithSplit, &["PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:512"]),
        (TorchWithoutSettings, &[]),
        (Torch, &[]),
        (Rmm, &[]),
    ] {
        let diagnosis = explain(&message(speaker, [3, 24, 2, 20, 2]), None);
        assert_eq!(diagnosis.cause, Cause::Fragmented);
        assert_eq!(sets(&diagnosis), expected, "{speaker:?}");
    }
    for speaker in [TensorFlow, Xla] {
        let pool = OomFigures {
            limit: gib(15),
            total: None,
            free: None,
            ..message(speaker, [2, 0, 0, 10, 5])
        };
        let diagnosis = explain(&pool, None);
        assert_eq!(diagnosis.cause, Cause::Fragmented);
        assert_eq!(sets(&diagnosis), ["TF_GPU_ALLOCATOR=cuda_malloc_async"], "{speaker:?}");
    }
}

#[test]
fn remedies_for_taken_memory_fit_the_framework() {
    let taken = |speaker| {
        let ladder = Some((Bytes(9), Bytes(7), 3));
        let diagnosis = explain(&OomFigures { ladder, ..OomFigures::by(speaker) }, None);
        assert_eq!(diagnosis.cause, Cause::TakenBefore);
        sets(&diagnosis).join(" | ")
    };
    assert_eq!(taken(TensorFlow), "gpuws doctor | TF_FORCE_GPU_ALLOW_GROWTH=true");
    assert_eq!(taken(Xla), "gpuws doctor | XLA_PYTHON_CLIENT_PREALLOCATE=false");
}

#[test]
fn limit_remedy_raises_the_original_setting() {
    let limited = |speaker, total| {
        let shown = OomFigures {
            limit: gib(5),
            total: gib(total),
            free: None,
            ..message(speaker, [1, 0, 0, 4, 1])
        };
        let diagnosis = explain(&shown, None);
        assert_eq!(diagnosis.cause, Cause::Limit, "{speaker:?}");
        let first = &diagnosis.remedies[0];
        first.set.clone().unwrap_or(first.why.clone())
    };
    assert_eq!(limited(TorchMetal, 20), "PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0");
    assert_eq!(limited(CuPy, 20), format!("CUPY_GPU_MEMORY_LIMIT={}", 6 * GIB));
    assert_eq!(limited(Vllm, 20), "--gpu-memory-utilization");
    assert_eq!(limited(Torch, 20), "torch.cuda.set_per_process_memory_fraction(0.30)");
    assert_eq!(limited(Torch, 6), "torch.cuda.set_per_process_memory_fraction(1.00)");
    assert_eq!(limited(Torch, 5), "a higher limit, where it was set");
}

#[test]
fn raises_xla_fraction_only_on_possibly_unshared_device() {
    let with = |totals: &[u64]| {
        let device = |total: &u64| Device {
            index: 0,
            total: Bytes(total * GIB),
            free: Bytes(0),
            ghost: None,
        };
        let now = Now { devices: totals.iter().map(device).collect(), residents: vec![] };
        let shown = OomFigures {
            limit: gib(18),
            total: None,
            free: None,
            unused: None,
            ..message(Xla, [3, 0, 0, 16, 0])
        };
        let diagnosis = explain(&shown, Some(&now));
        sets(&diagnosis).iter().any(|set| set.starts_with("XLA_PYTHON_CLIENT_MEM_FRACTION"))
    };
    assert!(with(&[8, 24]));
    assert!(with(&[18]));
    assert!(!with(&[8, 17]), "its limit exceeds every device here");
}

#[test]
fn vllm_utilization_matches_free_memory() {
    let suggested = |free, total| {
        let shown = OomFigures {
            free: gib(free),
            total: gib(total),
            unused: None,
            in_use: None,
            ..message(Vllm, [total, total, free, 0, 0])
        };
        let diagnosis = explain(&shown, None);
        assert_eq!(diagnosis.cause, Cause::Unnamed);
        sets(&diagnosis).join(" | ")
    };
    let first = "gpuws doctor | gpuws status";
    assert_eq!(suggested(10, 20), format!("{first} | --gpu-memory-utilization 0.49"));
    assert_eq!(suggested(31, 100), format!("{first} | --gpu-memory-utilization 0.30"));
    assert_eq!(suggested(30, 100), first, "no model fits into so little");
}

#[test]
fn doctor_is_recommended_for_nvidia_devices_only() {
    let free = |backend: &str| {
        let shown = OomFigures {
            backend: Some(backend.into()),
            ..message(TorchExpandable, [1, 24, 9, 1, 0])
        };
        let diagnosis = explain(&shown, None);
        assert_eq!(diagnosis.cause, Cause::FreeEnough);
        sets(&diagnosis).join(" | ")
    };
    assert_eq!(free("cuda"), "gpuws doctor");
    assert_eq!(free("hip"), "");
    assert_eq!(free("xpu"), "UR_L0_USE_RELAXED_ALLOCATION_LIMITS=1");
}

#[test]
fn suggests_other_gpu_only_with_known_need_and_device() {
    let shown = OomFigures { process: gib(19), ..message(TorchExpandable, [6, 24, 5, 18, 0]) };
    let why = |shown: &OomFigures, devices: &[(u64, u64)]| {
        let device = |(index, (total, free)): (u32, &(u64, u64))| Device {
            index,
            total: Bytes(total * GIB),
            free: Bytes(free * GIB),
            ghost: None,
        };
        let now = Now { devices: (0..).zip(devices).map(device).collect(), residents: vec![] };
        let now = (!devices.is_empty()).then_some(&now);
        let remedies = explain(shown, now).remedies;
        let run = remedies.into_iter().find(|remedy| {
            remedy.set.as_deref().is_some_and(|set| set.starts_with("gpuws run --mem"))
        });
        run.map(|remedy| remedy.why)
    };
    let waits = Some("waits for a GPU with that much free memory".to_owned());
    assert_eq!(why(&shown, &[]), None, "a GPU like this one is too small");
    assert_eq!(why(&shown, &[(80, 10)]), waits);
    assert_eq!(why(&shown, &[(80, 30), (80, 40)]), Some("GPU 1 has 40 GiB free now".into()));
    assert_eq!(why(&shown, &[(24, 24)]), None, "it would never fit");
    let small = OomFigures {
        process: gib(11),
        others: vec![Other { pid: Pid(7), memory: gib(8) }],
        ..message(TorchExpandable, [6, 24, 5, 10, 0])
    };
    assert_eq!(why(&small, &[]), waits);
    let hip = OomFigures { backend: Some("hip".into()), ..shown };
    assert_eq!(why(&hip, &[]), None);
    let ladder = OomFigures { ladder: Some((Bytes(9), Bytes(7), 3)), ..OomFigures::by(Xla) };
    assert_eq!(why(&ladder, &[]), None, "it is unknown how much it needs");
}

#[test]
fn advised_limit_never_exceeds_the_device() {
    let sets_of = |process: u64, now: Option<&Now>| {
        let shown = OomFigures {
            process: mib(process),
            total: mib(81_050),
            asked: mib(1_000),
            free: mib(500),
            in_use: mib(process - 400),
            others: vec![Other { pid: Pid(7), memory: mib(81_050 - 500 - process) }],
            ..OomFigures::by(TorchExpandable)
        };
        let diagnosis = explain(&shown, now);
        sets(&diagnosis).join(" | ")
    };
    let device = |mib| Device {
        index: 0,
        total: Bytes::from_mib(mib),
        free: Bytes::from_mib(mib),
        ghost: None,
    };
    let now = |mib| Now { devices: vec![device(mib)], residents: vec![] };
    assert_eq!(sets_of(50_000, None), "gpuws status | gpuws run --mem 51272MiB -- COMMAND");
    assert_eq!(sets_of(79_950, None), "gpuws status | gpuws run -- COMMAND");
    assert_eq!(sets_of(79_950, Some(&now(81_050))), "gpuws status | gpuws run -- COMMAND");
    assert_eq!(
        sets_of(79_950, Some(&now(90_000))),
        "gpuws status | gpuws run --mem 81222MiB -- COMMAND"
    );
}

#[test]
fn largest_process_takes_precedence_over_fragmentation() {
    let shown = |theirs| OomFigures {
        total: mib(24_259),
        asked: mib(20),
        free: mib(8),
        in_use: mib(3_000),
        unused: mib(300),
        process: mib(3_737),
        others: vec![Other { pid: Pid(2_006_998), memory: mib(theirs) }],
        ..OomFigures::by(TorchExpandable)
    };
    let diagnosis = explain(&shown(20_480), None);
    assert_eq!(diagnosis.cause, Cause::OtherProcesses);
    assert_eq!(diagnosis.verdict, "Process 2006998 holds 84 % of this GPU.");
    assert_eq!(
        diagnosis.reasons,
        [
            "Short by 12 MiB, which other processes hold: PID 2006998 20 GiB.",
            "The cache has 300 MiB, but not contiguous with the free memory."
        ]
    );
    assert!(sets(&diagnosis)[1].starts_with("gpuws run --mem"), "{diagnosis:?}");
    // A full device is not fragmented; a device with a significant cache is.
    assert_eq!(explain(&shown(10_000), None).cause, Cause::OtherProcesses);
    let cached = OomFigures { in_use: mib(1_300), unused: mib(2_000), ..shown(10_000) };
    assert_eq!(explain(&cached, None).cause, Cause::Fragmented);
    let small = explain(&OomFigures { unused: mib(0), ..shown(10_000) }, None);
    assert_eq!(small.verdict, "Process 2006998 holds the missing memory.");
}

#[test]
fn rough_figures_are_rounded() {
    let shown = OomFigures {
        process: mib(19_389),
        slack: Bytes::from_mib(5),
        lacking_slack: Bytes::from_mib(5),
        ..message(TorchExpandable, [6, 24, 5, 18, 0])
    };
    let diagnosis = explain(&OomFigures { in_use: mib(19_000), ..shown }, None);
    assert!(diagnosis.reasons[0].contains("plus ≈ 390 MiB context"), "{diagnosis:?}");
    let slack = Bytes::from_mib(5);
    for (mib, text) in [(3, "less than 10 MiB"), (307, "≈ 310 MiB"), (2048, "2 GiB")] {
        assert_eq!(approximate(Bytes::from_mib(mib), slack), text);
    }
    assert_eq!(approximate(Bytes::from_mib(307), Bytes(5000)), "307 MiB");
}

#[test]
fn smaller_batch_helps_tensorflow_too() {
    for shown in [
        OomFigures { ladder: Some((Bytes(9), Bytes(7), 3)), ..OomFigures::by(TensorFlow) },
        OomFigures { asked: gib(1), ..OomFigures::by(TensorFlow) },
        OomFigures {
            limit: gib(20),
            in_use: gib(4),
            unused: gib(0),
            asked: gib(2),
            ..OomFigures::by(TensorFlow)
        },
    ] {
        let remedies = explain(&shown, None).remedies;
        assert!(remedies.iter().any(|remedy| remedy.why.contains("smaller batch")), "{shown:?}");
    }
}
