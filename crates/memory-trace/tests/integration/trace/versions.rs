//! Snapshots as each version of PyTorch wrote them.

use crate::trace::pickler::{Py, dict, pickle};
use gpu_allocator_policy::BlockState;
use gpu_memory_trace::trace::{
    Action, Event, Frame, RecordedBlock, Recording, SegmentKind, TraceError,
};

const MIB: i64 = 1 << 20;
const BASE: i64 = 0x7f00_0000_0000;

fn read(value: &Py) -> Result<Recording, TraceError> {
    Recording::read(&pickle(value, 4))
}

fn refusal(value: &Py) -> String {
    read(value).expect_err("it is refused").to_string()
}

fn frames(function: &'static str) -> Py {
    let frame = |name: &'static str, line| {
        dict([("name", name.into()), ("filename", "train.py".into()), ("line", Py::Int(line))])
    };
    Py::List(vec![frame(function, 7), frame("main", 42)])
}

/// A block in the form of 2.1 and later.
fn block(address: i64, size: i64, state: &'static str) -> Py {
    dict([
        ("address", address.into()),
        ("size", size.into()),
        ("requested_size", (size - 100).into()),
        ("state", state.into()),
        ("frames", frames("forward")),
    ])
}

fn segment(device: i64, address: i64, size: i64, blocks: Vec<Py>) -> Py {
    dict([
        ("device", device.into()),
        ("address", address.into()),
        ("total_size", size.into()),
        ("allocated_size", 0.into()),
        ("stream", 3.into()),
        ("segment_type", "small".into()),
        ("segment_pool_id", Py::Tuple(vec![0.into(), 1.into()])),
        ("is_expandable", true.into()),
        ("frames", Py::List(vec![])),
        ("blocks", Py::List(blocks)),
    ])
}

fn event(action: &'static str, key: &'static str, address: i64, size: i64) -> Py {
    dict([
        ("action", action.into()),
        (key, address.into()),
        ("size", size.into()),
        ("stream", 3.into()),
        ("time_us", 1_700_000_000_000_000.into()),
        ("compile_context", "N/A".into()),
        ("user_metadata", "step 1".into()),
        ("frames", frames("forward")),
    ])
}

/// A snapshot in the form of 2.5 and later.
fn newest() -> Py {
    let blocks = vec![
        block(BASE, MIB, "active_allocated"),
        block(BASE + MIB, MIB / 2, "active_awaiting_free"),
        block(BASE + MIB * 3 / 2, MIB / 2, "inactive"),
    ];
    let other = segment(1, BASE, 2 * MIB, vec![block(BASE, 2 * MIB, "active_pending_free")]);
    let actions = ["segment_map", "segment_unmap", "segment_alloc", "segment_free", "alloc"];
    let mut events: Vec<Py> =
        actions.iter().map(|action| event(action, "addr", BASE, MIB)).collect();
    events.extend(
        ["free_requested", "free_completed", "snapshot"]
            .map(|action| event(action, "addr", BASE, MIB)),
    );
    events.push(event("oom", "device_free", 5 * MIB, i64::MAX));
    dict([
        ("segments", Py::List(vec![other, segment(0, BASE, 2 * MIB, blocks)])),
        ("device_traces", Py::List(vec![Py::List(vec![]), Py::List(events), Py::List(vec![])])),
        (
            "allocator_settings",
            dict([
                ("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:64".into()),
                ("max_split_size", (64 * MIB).into()),
                ("garbage_collection_threshold", Py::Float(0.8)),
                ("expandable_segments", true.into()),
                ("roundup_power2_divisions", dict([("1", 0.into()), ("2", 4.into())])),
                ("of_a_later_version", Py::None),
            ]),
        ),
        (
            "external_annotations",
            Py::List(vec![dict([
                ("stage", "START".into()),
                ("name", "Optimizer.step".into()),
                ("device", 1.into()),
                ("time_us", 9.into()),
            ])]),
        ),
        ("of_a_later_version", Py::List(vec![Py::None])),
    ])
}

#[test]
fn newest_snapshot_is_read_in_every_pickle_protocol() {
    let of_protocol = |protocol| Recording::read(&pickle(&newest(), protocol)).unwrap();
    let recording = of_protocol(4);
    for protocol in [0, 1, 2, 3, 5] {
        assert_eq!(of_protocol(protocol), recording, "protocol {protocol}");
    }
    let [first, second] = &recording.devices[..] else { panic!("two devices of three") };
    assert_eq!((first.device, second.device), (0, 1));
    let [segment] = &first.segments.as_ref().unwrap()[..] else { panic!("one segment") };
    assert_eq!((segment.address, segment.size), (BASE as u64, 2 << 20));
    assert_eq!((segment.stream, segment.kind), (3, SegmentKind::Small));
    assert_eq!((segment.pool, segment.expandable), ((0, 1), true));
    let states: Vec<_> =
        segment.blocks.iter().map(|block| (block.state, block.requested)).collect();
    assert_eq!(states[0], (BlockState::Active, Some((1 << 20) - 100)));
    assert_eq!(states[1], (BlockState::AwaitingFree, Some((1 << 19) - 100)));
    assert_eq!(states[2], (BlockState::Free, None), "the last owner's request no longer counts");
    assert!(first.events.is_empty() && first.event_stacks.is_empty());

    let actions: Vec<_> = second.events.iter().map(|event| event.action).collect();
    let all = [
        Action::SegmentMap,
        Action::SegmentUnmap,
        Action::SegmentAlloc,
        Action::SegmentFree,
        Action::Alloc,
        Action::FreeRequested,
        Action::FreeCompleted,
        Action::Snapshot,
        Action::OutOfMemory,
    ];
    assert_eq!(actions, all);
    let oom = second.events.last().unwrap();
    assert_eq!((oom.address, oom.size), (5 << 20, i64::MAX as u64));
    assert_eq!((oom.stream, oom.time_us), (3, 1_700_000_000_000_000));
    let [span] = &second.annotations[..] else { panic!("one annotation") };
    assert_eq!((&*span.name, span.begins, span.time_us), ("Optimizer.step", true, 9));
    let settings: Vec<_> = recording.settings.iter().map(|(k, v)| (&**k, &**v)).collect();
    let expected = [
        ("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:64"),
        ("expandable_segments", "True"),
        ("garbage_collection_threshold", "0.8"),
        ("max_split_size", "67108864"),
        ("roundup_power2_divisions", "1:0,2:4"),
    ];
    assert_eq!(settings, expected);
}

#[test]
fn equal_stacks_are_deduplicated() {
    let recording = read(&newest()).unwrap();
    assert_eq!(recording.stacks.len(), 1);
    let stack = recording.devices[1].event_stacks[0].unwrap();
    assert!(recording.devices[1].event_stacks.iter().all(|other| *other == Some(stack)));
    assert_eq!(recording.devices[0].block_stacks[&(BASE as u64)], stack);
    let called: Vec<_> = recording.stacks.frames(stack).collect();
    let frame =
        |function: &str, line| Frame { function: function.into(), file: "train.py".into(), line };
    assert_eq!(called, [&frame("forward", 7), &frame("main", 42)]);
}

/// A block in the form of 1.13 and 2.0: without an address, and with the requested size and stack
/// in its history.
fn block_with_history(size: i64, state: &'static str) -> Py {
    let entry = dict([
        ("addr", BASE.into()),
        ("real_size", (size - 8).into()),
        ("frames", frames("backward")),
    ]);
    let older = dict([("addr", BASE.into()), ("real_size", 1.into())]);
    dict([("size", size.into()), ("state", state.into()), ("history", vec![entry, older].into())])
}

#[test]
fn block_history_of_pytorch_before_2_1_is_read() {
    let segment = dict([
        ("device", 0.into()),
        ("address", BASE.into()),
        ("total_size", 2048.into()),
        ("segment_type", "large".into()),
        (
            "blocks",
            vec![
                block_with_history(512, "active_allocated"),
                block_with_history(1024, "inactive"),
                dict([("size", 512.into()), ("state", "active_allocated".into())]),
            ]
            .into(),
        ),
    ]);
    let event = |action: &'static str| {
        dict([("action", action.into()), ("addr", BASE.into()), ("size", 504.into())])
    };
    let snapshot = dict([
        ("segments", vec![segment.clone()].into()),
        ("device_traces", vec![vec![event("alloc"), event("free")].into()].into()),
    ]);
    let recording = read(&snapshot).unwrap();
    let trace = &recording.devices[0];
    let base = BASE as u64;
    let block = |address, size, requested, state| RecordedBlock { address, size, requested, state };
    let blocks = [
        block(base, 512, Some(504), BlockState::Active),
        block(base + 512, 1024, None, BlockState::Free),
        block(base + 1536, 512, None, BlockState::Active),
    ];
    assert_eq!(trace.segments.as_ref().unwrap()[0].blocks, blocks);
    assert_eq!(trace.block_stacks.len(), 1, "a free block is of nobody");
    let at = |action| Event { action, address: base, size: 504, stream: 0, time_us: 0 };
    let both = [Action::Alloc, Action::FreeRequested, Action::FreeCompleted].map(at);
    assert_eq!(trace.events, both, "the first version's 'free' was request and completion");

    let list = read(&vec![segment].into()).unwrap();
    assert_eq!(list.devices[0].segments, trace.segments, "memory_snapshot() is the list alone");
    assert!(list.devices[0].events.is_empty());
    let empty = read(&Py::List(vec![])).unwrap();
    assert!(empty.devices.is_empty());
}

#[test]
fn user_defined_events_become_annotations() {
    let span = |stage: &'static str| {
        let frame = dict([
            ("name", "Optimizer.step#Adam".into()),
            ("filename", stage.into()),
            ("line", Py::Int(0)),
        ]);
        dict([
            ("action", "user_defined".into()),
            ("addr", 0.into()),
            ("size", 0.into()),
            ("time_us", 5.into()),
            ("frames", Py::List(vec![frame])),
        ])
    };
    let events = vec![span("START"), event("alloc", "addr", BASE, 8), span("END")];
    let recording = read(&dict([("device_traces", vec![events.into()].into())])).unwrap();
    let trace = &recording.devices[0];
    let spans: Vec<_> =
        trace.annotations.iter().map(|span| (&*span.name, span.begins, span.time_us)).collect();
    assert_eq!(spans, [("Optimizer.step#Adam", true, 5), ("Optimizer.step#Adam", false, 5)]);
    assert_eq!(trace.events.len(), 1);
}

#[test]
fn missing_segments_mean_unknown_initial_state() {
    let traces =
        dict([("device_traces", vec![vec![event("alloc", "addr", BASE, 8)].into()].into())]);
    assert_eq!(read(&traces).unwrap().devices[0].segments, None);
    let both = dict([
        ("device_traces", vec![vec![event("alloc", "addr", BASE, 8)].into()].into()),
        ("segments", Py::List(vec![])),
    ]);
    assert_eq!(read(&both).unwrap().devices[0].segments, Some(vec![]), "nothing was held");
}

#[test]
fn inconsistent_snapshot_is_rejected_by_field() {
    let active = "active_allocated";
    let segments = |list: Vec<Py>| refusal(&dict([("segments", list.into())]));
    let one = |blocks: Vec<Py>| segments(vec![segment(0, BASE, 2 * MIB, blocks)]);
    let whole = || segment(0, BASE, 2 * MIB, vec![block(BASE, 2 * MIB, active)]);

    let message = one(vec![block(BASE, MIB, active)]);
    assert!(message.contains("at segments[0]: the blocks cover 1048576 bytes"), "{message}");
    let message = one(vec![block(BASE, 3 * MIB, active)]);
    assert!(
        message.contains("segments[0]['blocks'][0]: a block that ends at 0x7f0000300000"),
        "{message}"
    );
    let message = one(vec![block(BASE, MIB, active), block(BASE, MIB, active)]);
    assert!(message.contains("['blocks'][1]: a block at 0x7f0000000000, expected at"), "{message}");
    let message = one(vec![block(BASE, 2 * MIB, "lost")]);
    assert!(message.contains("the state 'lost' is unknown"), "{message}");
    let empty = dict([("size", 0.into()), ("state", active.into())]);
    let message = one(vec![empty]);
    assert!(message.contains("['blocks'][0]: a block of zero bytes"), "{message}");
    let message = segments(vec![segment(0, BASE, 0, vec![])]);
    assert!(message.contains("segments[0]: a segment of zero bytes"), "{message}");
    let message =
        segments(vec![whole(), segment(0, BASE + MIB, MIB, vec![block(BASE + MIB, MIB, active)])]);
    assert!(message.contains("0x7f0000000000 and 0x7f0000100000 of device 0 overlap"), "{message}");
    let message = segments(vec![segment(0, BASE, i64::MAX, vec![])]);
    assert!(
        message.contains("'total_size' is 9223372036854775807 bytes, more than any"),
        "{message}"
    );
    let message = segments(vec![segment(-1, BASE, MIB, vec![])]);
    assert!(message.contains("segments[0]: 'device' is -1"), "{message}");
    let message = segments(vec![segment(1 << 32, BASE, MIB, vec![])]);
    assert!(message.contains("'device' is 4294967296"), "{message}");

    let traced = |events: Vec<Py>| {
        refusal(&dict([("device_traces", vec![Py::List(vec![]), events.into()].into())]))
    };
    let fine = || event("alloc", "addr", BASE, 8);
    let message = traced(vec![fine(), event("teleport\u{1b}[2J", "addr", BASE, 8)]);
    assert!(
        message.contains(r"device_traces[1][1]: the action 'teleport\u{1b}[2J' is unknown"),
        "{message}"
    );
    let message = traced(vec![event("alloc", "addr", BASE, -8)]);
    assert!(message.contains("'size' is -8, not a nonnegative number"), "{message}");
    let message = traced(vec![event("alloc", "addr", BASE, i64::MAX)]);
    assert!(message.contains("more than any device has"), "{message}");
    let message = traced(vec![event("alloc", "where", BASE, 8)]);
    assert!(message.contains("device_traces[1][0]: 'addr' is missing"), "{message}");
    let message = traced(vec!["alloc".into()]);
    assert!(message.contains("device_traces[1][0]: 'alloc' instead of a dictionary"), "{message}");
    let message = refusal(&dict([("segments", 5.into())]));
    assert!(message.contains("at segments: 5 instead of a list"), "{message}");
    assert!(refusal(&dict([("weights", 5.into())])).contains("no 'segments'"));
    assert!(refusal(&Py::Float(1.5)).contains("it is 1.5, not a snapshot"));
}

#[test]
fn inconsistent_annotation_is_rejected_by_field() {
    let refused = |pairs: Vec<(&'static str, Py)>| {
        refusal(&dict([
            ("segments", vec![].into()),
            ("external_annotations", vec![Py::Dict(pairs)].into()),
        ]))
    };
    let name = || ("name", "step".into());
    for (pairs, expected) in [
        (vec![("stage", "START".into())], "external_annotations[0]: 'name' is missing"),
        (vec![("name", 5.into()), ("stage", "START".into())], "'name' is not a string"),
        (vec![name()], "'stage' is neither 'START' nor 'END'"),
        (vec![name(), ("stage", "MIDDLE".into())], "'stage' is neither"),
        (vec![name(), ("stage", "END".into()), ("device", (-1).into())], "'device' is -1"),
        (vec![name(), ("stage", "END".into()), ("time_us", "now".into())], "'time_us' is 'now'"),
    ] {
        let error = refused(pairs);
        assert!(error.contains(expected), "{error}");
    }
    let refused = |key: &'static str, value: Py| {
        let Py::Dict(mut pairs) = segment(0, BASE, MIB, vec![block(BASE, MIB, "inactive")]) else {
            unreachable!()
        };
        pairs.retain(|(known, _)| *known != key);
        pairs.push((key, value));
        refusal(&dict([("segments", vec![Py::Dict(pairs)].into())]))
    };
    for (key, value, expected) in [
        ("segment_type", "tiny".into(), "the segment_type 'tiny' is unknown"),
        ("segment_pool_id", 5.into(), "'segment_pool_id' is not a pair"),
        (
            "segment_pool_id",
            vec![1.into(), 2.into(), 3.into()].into(),
            "'segment_pool_id' is not a pair",
        ),
        ("segment_pool_id", vec![1.into(), (-2).into()].into(), "'segment_pool_id' is -2"),
        ("is_expandable", "no".into(), "'is_expandable' is 'no'"),
        ("blocks", 5.into(), "segments[0]: 5 instead of a list"),
    ] {
        let error = refused(key, value);
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn annotation_of_each_stage_and_device_is_read() {
    let span = |stage: &'static str, device: i64| {
        dict([
            ("name", "step".into()),
            ("stage", stage.into()),
            ("device", device.into()),
            ("time_us", 5.into()),
        ])
    };
    let spans = vec![span("START", 0), span("END", 0), span("END", 2)];
    let recording =
        read(&dict([("segments", vec![].into()), ("external_annotations", spans.into())])).unwrap();
    let read: Vec<_> = recording
        .devices
        .iter()
        .flat_map(|trace| {
            trace.annotations.iter().map(|span| (trace.device, span.begins, span.time_us))
        })
        .collect();
    assert_eq!(read, [(0, true, 5), (0, false, 5), (2, false, 5)]);
}
