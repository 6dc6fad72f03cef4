use super::*;
use gpu_core::{Bytes, Pid};
use proptest::prelude::*;

const GIB: f64 = (1u64 << 30) as f64;

fn gib(value: f64) -> Option<Bytes> {
    Some(Bytes((value * GIB) as u64))
}

/// A message of PyTorch 2: requested, total, free, in use, cached.
fn torch(asked: f64, total: f64, free: f64, in_use: f64, unused: f64) -> OomFigures {
    OomFigures {
        backend: Some("cuda".to_owned()),
        asked: gib(asked),
        total: gib(total),
        free: gib(free),
        in_use: gib(in_use),
        unused: gib(unused),
        slack: Bytes((0.005 * GIB) as u64),
        room_slack: Bytes((0.015 * GIB) as u64),
        ..OomFigures::by(MessageSource::TorchExpandable)
    }
}

fn other(pid: u32, memory: f64) -> Other {
    Other { pid: Pid(pid), memory: gib(memory) }
}

fn sets(diagnosis: &Diagnosis) -> Vec<&str> {
    diagnosis.remedies.iter().filter_map(|remedy| remedy.set.as_deref()).collect()
}

#[test]
fn each_cause_is_derived_from_figures() {
    let own = |process: f64, shown: OomFigures| OomFigures { process: gib(process), ..shown };
    let with =
        |others: &[Other], shown: OomFigures| OomFigures { others: others.to_vec(), ..shown };
    let contexts = [other(1, 0.5), other(2, 0.5), other(3, 0.5), other(4, 0.5)];
    for (shown, cause) in [
        (torch(100.0, 24.0, 2.0, 20.0, 0.1), Cause::LargerThanDevice),
        (own(18.3, torch(6.0, 24.0, 5.2, 18.0, 0.0)), Cause::TooBig),
        (own(22.0, torch(2.0, 24.0, 1.5, 20.0, 1.5)), Cause::Fragmented),
        (
            own(10.3, with(&[other(7, 8.0)], torch(6.0, 24.0, 5.5, 10.0, 0.0))),
            Cause::OtherProcesses,
        ),
        (own(20.3, with(&contexts, torch(3.0, 24.0, 1.6, 20.0, 0.0))), Cause::ManyContexts),
        (own(4.2, torch(14.0, 24.0, 8.0, 4.0, 0.0)), Cause::Unnamed),
        (own(2.0, torch(0.1, 24.0, 9.0, 1.0, 0.0)), Cause::FreeEnough),
        (OomFigures { limit: gib(5.0), ..torch(1.0, 24.0, 18.0, 4.5, 0.1) }, Cause::Limit),
        (OomFigures { went_on: true, ..torch(1.0, 24.0, 0.5, 4.5, 0.1) }, Cause::NoFailure),
        (OomFigures::by(MessageSource::Host), Cause::HostMemory),
        (OomFigures::by(MessageSource::Other), Cause::NotTold),
        (
            OomFigures {
                ladder: Some((Bytes(9), Bytes(7), 3)),
                ..OomFigures::by(MessageSource::TensorFlow)
            },
            Cause::TakenBefore,
        ),
        (
            OomFigures { needs_at_least: gib(31.0), ..OomFigures::by(MessageSource::Xla) },
            Cause::TooBig,
        ),
    ] {
        let diagnosis = explain(&shown, None);
        assert_eq!(diagnosis.cause, cause, "{shown:?}\n{diagnosis:?}");
        assert!(!diagnosis.reasons.is_empty(), "{shown:?}");
    }
}

#[test]
fn account_follows_from_message_figures() {
    let shown = OomFigures {
        process: gib(18.25),
        others: vec![other(7, 0.25)],
        ..torch(6.0, 24.0, 5.25, 17.5, 0.5)
    };
    let account = explain(&shown, None).account;
    assert_eq!(account.held, gib(18.0));
    assert_eq!(account.context, gib(0.25));
    assert_eq!(account.others, gib(0.25));
    assert_eq!(account.unnamed, gib(0.25));
    assert_eq!(account.lacking, gib(0.75));
    assert_eq!(account.lacking_after_cache, gib(0.25));
    assert_eq!(account.needed, gib(23.75));
}

#[test]
fn settings_are_recommended_only_to_supporting_versions() {
    let with = |speaker, backend: &str| {
        let shown = OomFigures {
            speaker,
            backend: Some(backend.to_owned()),
            ..torch(2.0, 24.0, 1.5, 20.0, 1.5)
        };
        let diagnosis = explain(&shown, None);
        assert_eq!(diagnosis.cause, Cause::Fragmented);
        diagnosis.remedies.into_iter().find_map(|remedy| remedy.set)
    };
    let set = |text: &str| Some(text.to_owned());
    assert_eq!(
        with(MessageSource::TorchExpandable, "cuda"),
        set("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True")
    );
    assert_eq!(
        with(MessageSource::TorchExpandable, "hip"),
        set("PYTORCH_HIP_ALLOC_CONF=expandable_segments:True")
    );
    assert_eq!(
        with(MessageSource::TorchWithSplit, "cuda"),
        set("PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:512")
    );
    assert_eq!(with(MessageSource::TorchWithoutSettings, "cuda"), None);
}

#[test]
fn non_cuda_backend_gets_no_advice_from_current_state() {
    let now = Now {
        devices: vec![Device {
            index: 0,
            total: Bytes(1 << 36),
            free: Bytes(1 << 36),
            ghost: None,
        }],
        residents: Vec::new(),
    };
    let with = |backend: &str| {
        let shown =
            OomFigures { backend: Some(backend.to_owned()), ..torch(6.0, 24.0, 5.2, 10.0, 0.0) };
        explain(&shown, Some(&now))
    };
    let own = |diagnosis: &Diagnosis| {
        let sets = diagnosis.remedies.iter().filter_map(|remedy| remedy.set.as_deref());
        sets.filter(|set| set.starts_with("gpuws ")).count()
    };
    let says =
        |diagnosis: &Diagnosis| diagnosis.reasons.iter().any(|r| r.contains("Not an NVIDIA"));
    let cuda = with("cuda");
    assert!(own(&cuda) > 0 && !cuda.now.is_empty() && !says(&cuda));
    for backend in ["hip", "xpu", "npu", "hpu", "tpu"] {
        let other = with(backend);
        assert!(own(&other) == 0 && other.now.is_empty() && says(&other), "{backend}");
    }
}

#[test]
fn nvenc_failure_mentions_session_limit() {
    let shown =
        OomFigures { backend: Some("nvenc".to_owned()), ..OomFigures::by(MessageSource::Other) };
    let diagnosis = explain(&shown, None);
    assert_eq!(diagnosis.cause, Cause::NotTold);
    assert!(diagnosis.reasons[0].contains("session limit"));
    let first = diagnosis.remedies[0].set.as_deref().unwrap();
    assert!(first.contains("encoder.stats.sessionCount"));
}

#[test]
fn unreported_cache_is_not_mentioned() {
    let reported = OomFigures { process: gib(18.3), ..torch(6.0, 24.0, 5.2, 18.0, 0.0) };
    let says =
        |shown: &OomFigures| explain(shown, None).reasons.iter().any(|r| r.contains("cache"));
    assert!(says(&reported));
    assert!(!says(&OomFigures { unused: None, ..reported }));
}

#[test]
fn advice_uses_variable_named_in_message() {
    let shown =
        OomFigures { variable: Some("PYTORCH_ALLOC_CONF"), ..torch(2.0, 24.0, 1.5, 20.0, 1.5) };
    assert_eq!(sets(&explain(&shown, None))[0], "PYTORCH_ALLOC_CONF=expandable_segments:True");
}

#[test]
fn rounding_slack_applies_only_to_summed_figures() {
    let mib = |value: f64| gib(value / 1024.0);
    let others = [other(1, 1.0), other(2, 1.0), other(3, 1.0)];
    // The total is printed to 5 MiB, the summands to 5 KiB each. The remainder is large enough to
    // be fragmented.
    let shown = |free: f64, unused: f64| OomFigures {
        asked: mib(800.0),
        free: mib(free),
        unused: mib(unused),
        others: others.to_vec(),
        process: gib(6.99),
        room_slack: Bytes(3 * 5_243),
        ..torch(0.0, 10.0, 0.0, 6.5, 0.0)
    };
    assert_eq!(explain(&shown(410.5, 5.0), None).cause, Cause::ManyContexts);
    assert_eq!(explain(&shown(410.5, 389.5), None).cause, Cause::Fragmented);
    assert_eq!(explain(&shown(410.5, 389.49), None).cause, Cause::Fragmented);
    assert_eq!(explain(&shown(410.5, 389.4), None).cause, Cause::ManyContexts);
    let enough = explain(&shown(804.06, 5.0), None);
    assert_eq!(enough.cause, Cause::FreeEnough);
    assert!(enough.reasons[0].contains("804.06 MiB were free"), "{enough:?}");
}

#[test]
fn limit_is_diagnosed_from_remaining_or_total_need() {
    let left =
        OomFigures { asked: gib(4.0), left: gib(1.25), ..OomFigures::by(MessageSource::Vllm) };
    let diagnosis = explain(&left, None);
    assert_eq!(diagnosis.cause, Cause::Limit);
    assert!(diagnosis.reasons[0].contains("leaves 1.25 GiB"), "{diagnosis:?}");
    assert!(sets(&diagnosis).contains(&"--gpu-memory-utilization"));
    let all =
        OomFigures { needs: gib(10.0), limit: gib(9.5), ..OomFigures::by(MessageSource::Other) };
    let diagnosis = explain(&all, None);
    assert_eq!((diagnosis.cause, diagnosis.account.needed), (Cause::Limit, gib(10.0)));
}

#[test]
fn suggested_run_limit_covers_context_and_rounding() {
    for (total, context) in [(24.0, None), (24.0, Some(0.3)), (141.0, Some(2.0)), (400.0, None)] {
        let base = torch(total * 0.5, total, total * 0.3, total * 0.4, 0.0);
        let process = context.and_then(|context| gib(total * 0.4 + context));
        let shown = OomFigures { process, others: vec![other(7, total * 0.3)], ..base };
        let diagnosis = explain(&shown, None);
        let words =
            sets(&diagnosis).into_iter().find_map(|set| set.strip_prefix("gpuws run --mem "));
        let mib = words.and_then(|words| words.split_once("MiB")).unwrap().0.parse().unwrap();
        let allocators = Bytes::from_mib(mib).saturating_sub(Bytes::from_mib(512)).0;
        let device = shown.total.unwrap().0;
        let share = u128::from(allocators) * 10_000 / u128::from(device);
        let may_take = share * u128::from(device) / 10_000;
        let needs = shown.in_use.unwrap() + shown.asked.unwrap();
        assert!(may_take >= u128::from(needs.0), "{total} {context:?} {mib}");
    }
}

#[test]
fn suggested_split_size_is_valid_for_pytorch() {
    let shown = OomFigures {
        speaker: MessageSource::TorchWithSplit,
        asked: Some(Bytes::from_mib(2)),
        free: Some(Bytes::from_mib(1)),
        slack: Bytes(1),
        ..torch(0.0, 24.0, 0.0, 20.0, 1.5)
    };
    assert!(sets(&explain(&shown, None)).contains(&"PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:21"));
}

#[test]
fn suggested_limit_covers_held_and_requested() {
    let shown = OomFigures { limit: gib(5.0), ..torch(1.0, 20.0, 14.0, 4.5, 0.5) };
    let diagnosis = explain(&shown, None);
    assert_eq!(sets(&diagnosis), ["torch.cuda.set_per_process_memory_fraction(0.30)"]);
    let cupy = OomFigures {
        limit: Some(Bytes(100)),
        in_use: Some(Bytes(90)),
        asked: Some(Bytes(20)),
        ..OomFigures::by(MessageSource::CuPy)
    };
    assert_eq!(sets(&explain(&cupy, None)), ["CUPY_GPU_MEMORY_LIMIT=110"]);
}

#[test]
fn zero_process_memory_is_reported_as_contradiction() {
    let shown = OomFigures { process: Some(Bytes(0)), ..torch(14.0, 22.0, 8.4, 4.0, 0.1) };
    let diagnosis = explain(&shown, None);
    assert_eq!(diagnosis.account.context, None);
    assert_eq!(diagnosis.contradictions.len(), 1, "{diagnosis:?}");
    assert!(diagnosis.contradictions[0].contains("0 bytes"));
    assert_eq!(diagnosis.cause, Cause::Unnamed);
}

#[test]
fn impossible_figures_are_reported() {
    let lent = explain(&torch(0.3, 10.0, 0.0, 24.0, 0.0), None);
    assert!(lent.contradictions[0].contains("oversubscribes"));
    let apart = OomFigures { process: gib(20.0), ..torch(6.0, 24.0, 5.0, 19.0, 0.0) };
    assert!(explain(&apart, None).contradictions[0].contains("different times"));
    let absurd = Other { pid: Pid(9), memory: None };
    let shown = OomFigures { others: vec![absurd], ..torch(6.0, 24.0, 5.0, 18.0, 0.0) };
    assert!(explain(&shown, None).contradictions[0].contains("process 9"));
}

#[test]
fn listed_process_may_be_self_in_container() {
    let shown =
        OomFigures { others: vec![other(2_110_062, 15.4)], ..torch(0.2, 15.6, 0.1, 14.6, 0.7) };
    let diagnosis = explain(&shown, None);
    assert_eq!(diagnosis.account.itself.map(|itself| itself.pid), Some(Pid(2_110_062)));
    assert_eq!(diagnosis.cause, Cause::Fragmented);
    assert!(diagnosis.reasons.iter().any(|reason| reason.contains("2110062")), "{diagnosis:?}");
    // If both fit on the device, it is another process.
    let apart = OomFigures { others: vec![other(5, 8.0)], ..torch(6.0, 24.0, 5.0, 7.0, 0.0) };
    assert_eq!(explain(&apart, None).account.itself, None);
}

#[test]
fn distinguishes_fragmented_pool_from_full_pool() {
    let pool = |in_use: f64, unused: f64, largest: f64, limit: f64| OomFigures {
        asked: gib(2.0),
        in_use: gib(in_use),
        unused: gib(unused),
        largest_free: gib(largest),
        limit: gib(limit),
        ..OomFigures::by(MessageSource::TensorFlow)
    };
    assert_eq!(explain(&pool(10.0, 5.0, 1.0, 15.0), None).cause, Cause::Fragmented);
    assert_eq!(explain(&pool(14.0, 1.0, 1.0, 15.0), None).cause, Cause::TooBig);
    assert_eq!(explain(&pool(10.0, 0.5, 0.5, 15.0), None).cause, Cause::Unnamed);
}

#[test]
fn higher_fraction_is_suggested_only_if_sufficient() {
    let xla = |in_use: f64| OomFigures {
        asked: gib(3.0),
        in_use: gib(in_use),
        limit: gib(18.0),
        ..OomFigures::by(MessageSource::Xla)
    };
    let enough = explain(&xla(16.0), None);
    assert!(sets(&enough).contains(&"XLA_PYTHON_CLIENT_MEM_FRACTION=.95"), "{enough:?}");
    let never = explain(&xla(25.0), None);
    assert!(!sets(&never).iter().any(|set| set.starts_with("XLA")), "{never:?}");
}

#[test]
fn snapshot_names_gpu_with_room_and_ghost() {
    let shown = OomFigures {
        process: gib(18.3),
        others: vec![other(7, 0.2)],
        ..torch(6.0, 24.0, 5.2, 18.0, 0.0)
    };
    let device = |index, total: f64, free: f64, ghost: Option<f64>| Device {
        index,
        total: gib(total).unwrap(),
        free: gib(free).unwrap(),
        ghost: ghost.and_then(gib),
    };
    let resident = Resident {
        pid: Pid(7),
        owner: "alice".to_owned(),
        name: "python".to_owned(),
        device: 0,
        memory: gib(0.2),
    };
    let now = Now {
        devices: vec![device(0, 24.0, 5.0, Some(3.0)), device(1, 80.0, 40.0, None)],
        residents: vec![resident],
    };
    let diagnosis = explain(&shown, Some(&now));
    assert_eq!(diagnosis.now.len(), 3, "{diagnosis:?}");
    assert!(diagnosis.now[0].contains("process 7 is python"));
    assert!(diagnosis.now[1].contains("GPU 0: 3 GiB"));
    assert!(diagnosis.now[2].contains("GPU 1 (40 GiB)"));
    let run = diagnosis
        .remedies
        .iter()
        .find(|r| r.set.as_deref() == Some("gpuws run --mem 25248MiB -- COMMAND"));
    assert!(run.is_some_and(|run| run.why.contains("GPU 1")), "{diagnosis:?}");
    // No device of this machine is large enough.
    let small = Now { devices: vec![device(0, 8.0, 8.0, None)], residents: vec![] };
    assert!(!sets(&explain(&shown, Some(&small))).iter().any(|set| set.starts_with("gpuws run")));
}

fn maybe() -> impl Strategy<Value = Option<Bytes>> {
    prop_oneof![
        Just(None),
        any::<u64>().prop_map(|n| Some(Bytes(n))),
        (0u64..1 << 37).prop_map(|n| Some(Bytes(n)))
    ]
}

proptest! {
    #[test]
    fn arbitrary_figures_yield_bounded_answer_without_invented_sums(
        (asked, total, free, in_use, unused) in (maybe(), maybe(), maybe(), maybe(), maybe()),
        (process, limit, largest_free, outside) in (maybe(), maybe(), maybe(), maybe()),
        others in prop::collection::vec((any::<u32>(), maybe()), 0..6),
        speaker in prop::sample::select(vec![
            MessageSource::TorchExpandable, MessageSource::TorchWithSplit, MessageSource::TensorFlow, MessageSource::Xla,
            MessageSource::CuPy, MessageSource::Vllm, MessageSource::Other, MessageSource::TorchMetal,
        ]),
    ) {
        let others: Vec<Other> =
            others.into_iter().map(|(pid, memory)| Other { pid: Pid(pid), memory }).collect();
        let shown = OomFigures {
            asked, total, free, in_use, unused, process, limit, largest_free, outside, others,
            ..OomFigures::by(speaker)
        };
        let diagnosis = explain(&shown, None);
        prop_assert!(diagnosis.reasons.len() <= 8 && diagnosis.remedies.len() <= 8);
        prop_assert_eq!(&explain(&shown, None), &diagnosis);
        if asked.is_none() {
            prop_assert_eq!(diagnosis.cause, Cause::NotTold);
        }
        if free.is_none() || asked.is_none() {
            prop_assert_eq!(diagnosis.account.lacking, None);
        }
    }
}
