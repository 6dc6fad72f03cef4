//! The text and the JSON of out-of-memory messages, memory limits and needs.

use gpu_core::{Bytes, Pid};
use gpu_memory_advice::environment::{Advice, Framework, Keeper, Snippet, Variable};
use gpu_memory_advice::explain::{Account, Cause, Diagnosis, Other, Remedy, RemedyKind};
use gpu_memory_trace::{Level, Need, Needs, Outcome, Sparkline};
use gpu_report::json::{self, Fit, Fitted};
use gpu_report::wording::{limit, oom as words};
use gpu_text::oom::{
    Bin, Block, ChunkSum, Event, Figure, Framework as Source, Pool, Rematerialization, Report,
    Tensor, Wording,
};

fn figure(text: &str) -> Figure {
    let bytes = text.split(' ').next().and_then(|number| number.parse().ok()).map(Bytes::from_mib);
    Figure { text: text.to_owned(), bytes, slack: Bytes(0) }
}

fn mib(number: u64) -> Option<Bytes> {
    Some(Bytes::from_mib(number))
}

/// Returns a message without any figure.
fn bare() -> Event {
    let text = b"RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB.\n";
    let event = gpu_text::oom::read(text).events.remove(0);
    Event { wording: None, backend: None, gpu: None, tried: None, ..event }
}

/// Returns a message with every figure.
fn full() -> Event {
    let mut event = bare();
    event.backend = Some("cuda".to_owned());
    event.gpu = Some(3);
    event.tried = Some(figure("20 MiB"));
    event.total = Some(figure("24000 MiB"));
    event.free = Some(figure("21 MiB"));
    event.allocated = Some(figure("22 MiB"));
    event.private_pools = Some(figure("23 MiB"));
    event.reserved_unallocated = Some(figure("24 MiB"));
    event.reserved_total = Some(figure("25 MiB"));
    event.cached = Some(figure("26 MiB"));
    event.this_process = Some(figure("27 MiB"));
    event.other = Some(figure("28 MiB"));
    event.limit = Some(figure("29 MiB"));
    event.needed = Some(figure("30 MiB"));
    event.processes = vec![(100, figure("31 MiB")), (200, figure("32 MiB"))];
    event.allocator = Some("GPU_0_bfc".to_owned());
    event.tensor = Some(Tensor { shape: vec![2, 3], kind: Some("float".to_owned()) });
    event.ladder = vec![figure("33 MiB"), figure("34 MiB")];
    let (limit, reduced) = (figure("35 MiB"), Some(figure("36 MiB")));
    event.rematerialization = Some(Rematerialization { limit, reduced });
    let dump = &mut event.dump;
    dump.bins = vec![Bin { size: Bytes(256), blocks: 4, in_use: 3 }];
    dump.sums = vec![ChunkSum { count: 5, size: Bytes(512), total: figure("37 MiB") }];
    dump.sum_in_use = Some(figure("38 MiB"));
    let stats = [("InUse", 39), ("Limit", 40), ("MaxInUse", 41)];
    dump.stats = stats.map(|(name, mib)| (name.to_owned(), mib << 20)).into();
    let block = |size, in_use| Block { address: 0, size: Bytes::from_mib(size), in_use };
    dump.blocks = vec![block(1, false), block(9, true), block(2, false)];
    dump.pool = Some(Pool { held: None, limit: mib(43), available: mib(44) });
    event
}

fn diagnosis(account: Account) -> Diagnosis {
    Diagnosis {
        cause: Cause::Fragmented,
        verdict: "a verdict".to_owned(),
        account,
        reasons: vec!["a reason".to_owned()],
        contradictions: vec!["a contradiction".to_owned()],
        now: vec!["now".to_owned()],
        remedies: vec![Remedy {
            kind: RemedyKind::Environment,
            set: Some("A=1".to_owned()),
            why: "it helps".to_owned(),
        }],
    }
}

#[test]
fn every_figure_of_a_message_has_its_words() {
    let itself = Some(Other { pid: Pid(200), memory: None });
    let account = Account { context: mib(45), unnamed: mib(64), itself, ..Account::default() };
    let lines = words::figures(&full(), &diagnosis(account));
    assert_eq!(
        lines,
        [
            "asked 20 MiB · for a tensor [2,3] of float, 24 bytes · free on the device 21 MiB · \
             all memory 30 MiB · may have 29 MiB · left of its limit 44 MiB · limit of the \
             program: 35 MiB",
            "this process 27 MiB: 22 MiB in use, 23 MiB of that in private pools, 24 MiB cached, \
             26 MiB cached, 25 MiB reserved in total, 45 MiB context",
            "its allocator GPU_0_bfc: 39 MiB in use of 40 MiB, 41 MiB at the peak, 3 blocks \
             listed, 2 of them free, the largest 2 MiB",
            "another process, 100: 31 MiB",
            "listed as process 200: 32 MiB",
            "others: 28 MiB",
            "not attributed to a named process: 64 MiB",
        ]
    );
    assert!(words::figures(&bare(), &diagnosis(Account::default())).is_empty());
}

#[test]
fn missing_figures_are_left_out() {
    let lines = |event: &Event, account: Account| words::figures(event, &diagnosis(account));
    let own = |change: fn(&mut Event)| {
        let mut event = bare();
        change(&mut event);
        lines(&event, Account { context: Some(Bytes(0)), ..Account::default() })
    };
    let process = own(|event| event.this_process = Some(figure("1 MiB")));
    assert_eq!(process, ["this process 1 MiB"]);
    assert_eq!(own(|event| event.cached = Some(figure("1 MiB"))), ["this process: 1 MiB cached"]);
    assert_eq!(own(|event| event.allocator = Some("a".into())), ["its allocator a"]);
    let sum = own(|event| event.dump.sum_in_use = Some(figure("1 MiB")));
    assert_eq!(sum, ["its allocator: 1 MiB in use"]);
    let held = own(|event| {
        event.dump.pool = Some(Pool { held: mib(1), limit: None, available: mib(2) });
    });
    assert!(held.is_empty(), "what is left is of no limit");
    let shapeless = own(|event| event.tensor = Some(Tensor { shape: vec![7], kind: None }));
    assert_eq!(shapeless, ["for a tensor [7]"]);

    let unnamed = |bytes, context| {
        let account = Account { unnamed: Some(Bytes(bytes)), context, ..Account::default() };
        lines(&bare(), account).pop()
    };
    let least = 64 << 20;
    assert_eq!(unnamed(least - 1, None), None);
    let with_context = "not attributed to a named process: 64 MiB, with the context";
    assert_eq!(unnamed(least, None).as_deref(), Some(with_context));
}

#[test]
fn at_most_eight_other_processes_are_named() {
    for (count, last) in [
        (8, "another process, 8: 1 MiB"),
        (9, "and 1 other process"),
        (11, "and 3 other processes"),
    ] {
        let mut event = bare();
        event.processes = (1..=count).map(|pid| (pid, figure("1 MiB"))).collect();
        let lines = words::figures(&event, &diagnosis(Account::default()));
        assert_eq!(lines.last().map(String::as_str), Some(last));
        assert_eq!(lines.len(), 8 + usize::from(count > 8));
    }
}

#[test]
fn message_source_is_named_with_version_and_backend() {
    for (framework, wording, backend, name) in [
        (Source::PyTorch, None, None, "PyTorch"),
        (Source::PyTorch, Some(Wording::Torch13), Some("cuda"), "PyTorch up to 1.3"),
        (Source::PyTorch, Some(Wording::Torch14), None, "PyTorch 1.4–1.9"),
        (Source::PyTorch, Some(Wording::Torch110), None, "PyTorch 1.10–2.0"),
        (Source::PyTorch, Some(Wording::Torch21), None, "PyTorch 2.1"),
        (Source::PyTorch, Some(Wording::Torch22), Some("hip"), "PyTorch 2.2 or later on HIP"),
        (Source::PyTorch, Some(Wording::Torch29), Some("mps"), "PyTorch 2.9 or later on Metal"),
        (Source::TensorFlow, None, None, "TensorFlow"),
        (Source::Xla, None, None, "XLA's allocator"),
        (Source::Jax, Some(Wording::XlaHost), None, "JAX/XLA on the host"),
        (Source::Jax, None, None, "JAX/XLA"),
        (Source::CuPy, None, None, "CuPy"),
        (Source::Rmm, None, None, "RAPIDS Memory Manager"),
        (Source::LlamaCpp, None, Some("vulkan"), "llama.cpp on Vulkan"),
        (Source::LlamaCpp, None, Some("cpu"), "llama.cpp, host memory"),
        (Source::Vllm, None, None, "vLLM"),
        (Source::Paddle, None, None, "PaddlePaddle"),
        (Source::OnnxRuntime, None, None, "ONNX Runtime"),
        (Source::TensorRt, None, None, "TensorRT"),
        (Source::CudaJl, None, None, "CUDA.jl"),
        (Source::Cuda, None, None, "a program on the GPU"),
        (Source::Cuda, None, Some("cuda"), "CUDA"),
        (Source::Cuda, None, Some("xpu"), "Level Zero"),
        (Source::Cuda, None, Some("vulkan"), "Vulkan"),
        (Source::Cuda, None, Some("opencl"), "OpenCL"),
        (Source::Cuda, None, Some("wgpu"), "wgpu"),
        (Source::Cuda, None, Some("nvenc"), "NVENC"),
        (Source::Cuda, None, Some("sycl"), "SYCL"),
    ] {
        let backend = backend.map(str::to_owned);
        let event = Event { framework, wording, backend, ..bare() };
        assert_eq!(words::name(&event), name);
    }
}

#[test]
fn json_of_a_message_has_every_figure() {
    let account = Account {
        held: mib(51),
        context: mib(52),
        others: mib(53),
        unnamed: mib(54),
        lacking: mib(55),
        lacking_after_cache: mib(56),
        needed: mib(57),
        ..Account::default()
    };
    let report = Report { events: vec![full(), bare()], is_cut: true };
    let diagnoses = [diagnosis(account), diagnosis(Account::default())];
    let explained = json::Explained::of(&report, &diagnoses, None);
    crate::forms::assert_golden("explain.json", &crate::forms::pretty(&explained));
}

#[test]
fn memory_limit_names_its_settings() {
    let variable = |name, kept_by| Variable { name, value: "1".to_owned(), kept_by };
    let code = |framework| Snippet { framework, lines: vec!["line".to_owned()] };
    let share = Bytes::from_mib(6144);
    for (variables, code, text) in [
        (
            vec![variable("A", Keeper::Allocator), variable("M", Keeper::Server)],
            vec![],
            "limited to 6 GiB by M if the program uses the MPS server; for details: gpuws mem env",
        ),
        (
            vec![
                variable("A", Keeper::Allocator),
                variable("N", Keeper::Nobody),
                variable("B", Keeper::Allocator),
            ],
            vec![code(Framework::Torch)],
            "limited to 6 GiB by A and B (cooperative); for details: gpuws mem env",
        ),
        (
            vec![variable("N", Keeper::Nobody)],
            vec![code(Framework::Torch), code(Framework::Jax)],
            "warning: set the limit of 6 GiB for PyTorch and JAX in the program itself; for \
             details: gpuws mem env",
        ),
        (vec![], vec![], "warning: the 6 GiB limit is not enforced: a note"),
    ] {
        let advice = Advice { variables, code, notes: vec!["a note".to_owned()] };
        assert_eq!(limit::reported(&advice, share), text);
        let (used, seen) =
            (Vec::new(), |totals| json::Seen { snapshot: None, totals, is_served: true });
        let known = json::Known { used, python: None };
        let totals = [share, share];
        for (totals, expected) in [(&totals[..], "[6442450944,6442450944]"), (&[], "null")] {
            let limits = (share, Bytes::from_mib(500));
            let bounded = json::Bounded::of(limits, &known, &seen(totals), &advice);
            let found = serde_json::to_value(&bounded).unwrap()["device_memory_bytes"].to_string();
            assert_eq!(found, expected);
        }
    }
}

fn outcome(reserved: u64, in_use: u64) -> Outcome {
    let (in_use, reserved) = (Bytes::from_mib(in_use), Bytes::from_mib(reserved));
    Outcome {
        peak: Level { in_use, reserved },
        peak_step: None,
        in_use_at_peak: in_use,
        stop: None,
        steps: 0,
        failures_avoided: 0,
    }
}

#[test]
fn needs_of_jobs_are_a_share_of_the_device() {
    let needs = |file: &str, least: u64| Needs {
        file: file.to_owned(),
        device: 2,
        events: 9,
        live: Bytes::from_mib(90),
        by_policy: vec![(
            "torch".to_owned(),
            Need {
                least: Bytes::from_mib(least),
                exact: true,
                replays: 4,
                unlimited: outcome(300, 100),
                tight: outcome(250, 100),
            },
            Sparkline::new(1),
        )],
        refused: None,
    };
    let (a, b) = (needs("a", 300), needs("b", 100));
    let (context, device) = (Bytes::from_mib(500), Bytes::from_mib(1200));
    let fits: Vec<Fit<'_>> = [&a, &b].map(|job| Fit::of(job, context, Some(device))).into();
    let least = &fits[0].policies[0];
    assert_eq!((least.share_percent, least.wasted_bytes), (Some(25.0), 150 << 20));
    assert_eq!(least.unlimited_reserved_bytes, 300 << 20);
    let all = [fits[0].mem_mib, fits[1].mem_mib];
    let fitted = Fitted::of(context, Some(device), fits, Some(vec![vec![0, 1], vec![1]]));
    let together = fitted.together.unwrap();
    let together: Vec<_> = together.iter().map(|set| (set.files.clone(), set.mem_mib)).collect();
    assert_eq!(together, [(vec!["a", "b"], all[0] + all[1]), (vec!["b"], all[1])]);
    assert_eq!(Fit::of(&a, context, None).policies[0].share_percent, None);
}

#[test]
fn ranks_with_one_cause_are_a_group() {
    let rank = |gpu: u32| Event { gpu: Some(gpu), line: gpu as usize + 5, ..bare() };
    let lacks = |mib: u64| {
        let account = Account { lacking: Some(Bytes::from_mib(mib)), ..Account::default() };
        diagnosis(account)
    };
    let other = Diagnosis { cause: Cause::Limit, ..lacks(9) };
    let events = [rank(2), rank(0), rank(1), rank(1), bare(), rank(3)];
    let diagnoses = [lacks(236), lacks(307), lacks(250), lacks(250), lacks(1), other];
    let groups = words::groups(&events, &diagnoses);
    let shown: Vec<_> = groups.iter().map(|group| (group.source(), group.position())).collect();
    let text = |source: &str, place: &str| (source.to_owned(), place.to_owned());
    assert_eq!(
        shown,
        [
            text("PyTorch, 3 ranks, GPUs 0–2, each short by 236–307 MiB", "lines 5–7"),
            text("PyTorch, GPU 1", "line 6"),
            text("PyTorch", "line 1"),
            text("PyTorch, GPU 3", "line 8"),
        ]
    );
    assert_eq!(groups[0].worst().0.gpu, Some(0));
    assert_eq!(groups[0].introduction().as_deref(), Some("GPU 0 lacks the most:"));
    assert_eq!(groups[1].introduction(), None);
    let same = [lacks(20), lacks(20)];
    let groups = words::groups(&events[..2], &same);
    assert_eq!(groups[0].source(), "PyTorch, 2 ranks, GPUs 0, 2, each short by 20 MiB");
}
