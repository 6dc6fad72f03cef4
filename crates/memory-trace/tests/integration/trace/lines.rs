//! The line formats: RMM's log and the project's own.

use crate::trace::real;
use gpu_allocator_policy::BlockState;
use gpu_core::Bytes;
use gpu_memory_trace::trace::{
    Action, Event, Format, Limits, Location, Problem, RecordedBlock, Recording, Segment,
    SegmentKind, Writer,
};
use std::collections::BTreeMap;

fn read(text: &str) -> Recording {
    Recording::read(text.as_bytes()).unwrap_or_else(|error| panic!("{error}"))
}

fn refusal(text: &str) -> String {
    Recording::read(text.as_bytes()).expect_err("it is refused").to_string()
}

const RMM: &str = "Thread,Time,Action,Pointer,Size,Stream\n";

#[test]
fn rmm_logs_of_all_versions_are_read() {
    let log = format!(
        "{RMM}1979932,23:59:59.998533,allocate,0x30a000000,256,0x2\n\
         1979933,23:59:59.999000,allocate failure,0x0,9223372036854775807,0x2\n\
         1979932,00:00:01:000001,free,30a000000,256,0\n\
         1979932,00:00:01.000002,allocate failure,(nil),64,7f8a38001020\n\
         1979932,00:00:01.000003,allocate,0x0,0,0x0\n"
    );
    let recording = read(&log);
    assert_eq!(recording.format, Format::RmmLog);
    let [trace] = &recording.devices[..] else { panic!("one device") };
    assert_eq!(trace.segments, None, "the log does not list held memory");
    let event =
        |action, address, size, stream, time_us| Event { action, address, size, stream, time_us };
    let (day, none) = (86_400_000_000, Event::NOT_REPORTED);
    let expected = [
        event(Action::Alloc, 0x3_0a00_0000, 256, 2, day - 1_467),
        event(Action::OutOfMemory, none, i64::MAX as u64, 2, day - 1_000),
        event(Action::FreeRequested, 0x3_0a00_0000, 256, 0, day + 1_000_001),
        event(Action::FreeCompleted, 0x3_0a00_0000, 256, 0, day + 1_000_001),
        event(Action::OutOfMemory, none, 64, 0x7f8a_3800_1020, day + 1_000_002),
    ];
    assert_eq!(
        trace.events, expected,
        "no bytes are no memory, and after midnight is the next day"
    );
    assert!(trace.events.iter().all(|event| event.device_free().is_none()));

    let documented = "140573312345856,1634567890.123456,allocate,0x7f8a40000000,1024,0x7f8a38001020\n\
                      140573312345856,1634567890.345678,deallocate,0x7f8a40000000,1024,0x7f8a38001020";
    let events = &read(documented).devices[0].events;
    assert_eq!(events.len(), 3, "without a heading and as RMM's guide has it");
    assert_eq!(events[0].time_us, 1_634_567_890_123_456);
    assert!(read(RMM).devices[0].events.is_empty());
}

#[test]
fn out_of_order_rmm_lines_do_not_start_a_new_day() {
    let log = format!(
        "{RMM}1,10:00:00.000002,allocate,0x100,8,0\n2,10:00:00.000001,allocate,0x200,8,0\n"
    );
    let times: Vec<_> = read(&log).devices[0].events.iter().map(|event| event.time_us).collect();
    assert_eq!(times, [36_000_000_002, 36_000_000_001]);
}

#[test]
fn skips_truncated_last_rmm_line_and_names_invalid_line() {
    let whole = format!("{RMM}1,10:00:00.000002,allocate,0x100,8,0\n");
    assert_eq!(read(&format!("{whole}1,10:00:00.0000")), read(&whole));
    for (line, expected) in [
        ("1,10:00:00.000002,allocate,0x100,8,0,x", "unexpected 'x' after the stream"),
        ("1,10:00:00.000002,allocate,0x100,8", "the stream is missing"),
        ("1,10:00:00.000002,steal,0x100,8,0", "the action 'steal' is unknown"),
        ("1,10:00:00.000002,allocate,0x100,-8,0", "the size is '-8'"),
        ("1,10:00:00.000002,allocate,0x100,9223372036854775808,0", "which no device has"),
        ("1,10:00:00.000002,allocate,0x8000000000000000,8,0", "the pointer is '0x8"),
        ("1,25:00:00.000002,allocate,0x100,8,0", "the time is '25:00:00.000002'"),
        ("1,10:00:00.02,allocate,0x100,8,0", "the time is"),
        ("1,99999999999999999999.000002,allocate,0x100,8,0", "the time is"),
        ("\u{1b}[2J,10:00:00.000002,allocate,0x100,8,0", "the thread is '\\u{1b}[2J'"),
    ] {
        let message = refusal(&format!("{whole}{line}\n"));
        assert!(message.contains("at line 3") && message.contains(expected), "{line}: {message}");
    }
    // An event is 40 bytes.
    let limits = Limits { memory: Some(100), ..Limits::default() };
    let many = format!("{whole}{}", "1,10:00:00.000002,allocate,0x100,8,0\n".repeat(3));
    let error = Recording::read_within(many.as_bytes(), limits).unwrap_err();
    assert_eq!(error.problem(), &Problem::Memory { what: "an event".to_owned(), limit: 100 });
}

fn written(recording: &Recording) -> String {
    let mut bytes = Vec::new();
    recording.write(&mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn real_snapshots_round_trip_through_json_lines() {
    for (name, bytes, _) in real::snapshots().unwrap_or_default() {
        let recording = Recording::read(&bytes).unwrap();
        assert!(read(&written(&recording)) == recording, "{name}");
    }
}

const HEAD: &str =
    r#"{"schema":1,"kind":"memory-trace","recorded_by":"bfc-dump","settings":{"a":"b"}}"#;

#[test]
fn documented_example_round_trips() {
    let document = include_str!("../../../../../docs/memory-trace.md");
    let example = document.split("```json\n").nth(1).and_then(|rest| rest.split("```").next());
    let example = example.expect("the document has an example");
    let recording = read(example);
    assert_eq!(recording.format, Format::TorchSnapshot);
    assert_eq!(recording.settings["max_split_size"], "-1");
    let [trace] = &recording.devices[..] else { panic!("one device") };
    assert_eq!((trace.device, trace.total), (0, Some(Bytes(17_179_869_184))));
    let [segment] = &trace.segments.as_ref().unwrap()[..] else { panic!("one segment") };
    assert_eq!(segment.kind, SegmentKind::Small);
    assert_eq!(segment.blocks.len(), 2);
    assert_eq!(segment.blocks[1].state, BlockState::Free);
    assert_eq!(trace.events.len(), 3);
    assert_eq!(trace.events[2].device_free(), Some(1_048_576));
    let stack = trace.event_stacks[1].unwrap();
    assert_eq!(&*recording.stacks.frames(stack).next().unwrap().function, "forward");
    assert_eq!(trace.annotations.len(), 2);
    assert_eq!(written(&recording), example);
}

#[test]
fn writer_streams_recording() {
    let settings = BTreeMap::from([("limit".to_owned(), "1073741824".to_owned())]);
    let mut writer = Writer::new(Vec::new(), Format::Own, &settings).unwrap();
    let event = |action, address| Event { action, address, size: 512, stream: 3, time_us: 9 };
    let events = [
        event(Action::Alloc, 0x1000),
        event(Action::FreeRequested, 0x1000),
        event(Action::OutOfMemory, Event::NOT_REPORTED),
    ];
    events.iter().for_each(|event| writer.event(1, event).unwrap());
    let block = |address, state| RecordedBlock { address, size: 512, requested: None, state };
    let blocks = vec![block(0x1000, BlockState::AwaitingFree), block(0x1200, BlockState::Active)];
    let segment = Segment {
        address: 0x1000,
        size: 1024,
        stream: 3,
        pool: (0, 4),
        blocks,
        ..Segment::default()
    };
    writer.segment(1, &segment).unwrap();
    let text = String::from_utf8(writer.into_inner()).unwrap();
    let recording = read(&text);
    assert_eq!((recording.format, &recording.settings), (Format::Own, &settings));
    let [trace] = &recording.devices[..] else { panic!("one device") };
    assert_eq!((trace.device, &trace.events[..]), (1, &events[..]));
    assert_eq!(trace.segments.as_deref(), Some(&[segment][..]));

    // The program is killed in the middle of a line.
    let cut = &text[..text.len() - 9];
    let error = Recording::read(cut.as_bytes()).unwrap_err();
    assert_eq!(error.location(), &Location::Line(5));
    assert!(matches!(error.problem(), Problem::Truncated { .. }), "{error}");
}

#[test]
fn inconsistent_lines_are_rejected_by_number() {
    let block = r#"{"size_bytes":512,"state":"free"}"#;
    let segment = |address: u64, blocks: &str| {
        format!(r#"{{"segment":{{"address":{address},"size_bytes":512,"blocks":[{blocks}]}}}}"#)
    };
    let event = |rest: &str| format!(r#"{{"event":{{"action":"alloc"{rest}}}}}"#);
    for (line, expected) in [
        (segment(0, ""), "the blocks cover 0 bytes of a segment of 512"),
        (segment(0, &format!("{block},{block}")), "after its segment"),
        (segment(1 << 63, block), "the address 0x8000000000000000 is larger than any device has"),
        (format!("{}\n{}", segment(0, block), segment(256, block)), "0x0 and 0x100 overlap"),
        (segment(0, r#"{"size_bytes":512,"state":"lost"}"#), "unknown variant `lost`"),
        (
            segment(0, r#"{"size_bytes":512,"state":"active","stack":0}"#),
            "a stack that no earlier line",
        ),
        (event(r#","address":5"#), "missing field `size_bytes`"),
        (event(r#","size_bytes":5"#), "the address is missing"),
        (event(r#","address":5,"size_bytes":9223372036854775808"#), "more than any device has"),
        (event(r#","address":5,"size_bytes":-8"#), "invalid value: integer `-8`"),
        (event(r#","address":5,"size_bytes":8,"stack":1"#), "a stack that no earlier line defines"),
        (r#"{"stack":[0]}"#.to_owned(), "a frame that no earlier line defines"),
        (r#"{"teleport\u001b":{}}"#.to_owned(), r"unknown variant `teleport\u{1b}`"),
        (
            r#"{"device":{"device":0,"events":2}}"#.to_owned(),
            "truncated: 0 of 2 events of device 0",
        ),
        (r#"{"device":{"device":0,"segments":1}}"#.to_owned(), "truncated: 0 of 1 segments"),
        ("[".repeat(1_000_000), "in column"),
    ] {
        let error = refusal(&format!("{HEAD}\n{line}\n"));
        assert!(error.contains(expected), "{line:.200}: {error}");
        assert!(error.contains("at line 2") || error.contains("overlap"), "{error}");
        assert!(error.len() < 400 && !error.contains('\u{1b}'));
    }
    let message = refusal("{\"schema\":2,\"kind\":\"memory-trace\"}\n");
    assert!(
        message.contains("at line 1: the schema is 2; this program knows up to 1"),
        "{message}"
    );
    let long = HEAD.replace("\"b\"", &format!("\"{}\"", "b".repeat(1 << 20)));
    assert!(refusal(&format!("{long}\n")).contains("at line 1: more than 1048576 bytes"));
    assert!(refusal("{\"schema\":1,\"kind\":\"x\"}\n").contains("the kind is 'x'"));
    assert!(refusal("{\"schema\":1}\n").contains("missing field `kind`"));
    let limits = Limits { memory: Some(100), ..Limits::default() };
    let lines = format!("{HEAD}\n{}\n", vec![segment(0, block); 2].join("\n"));
    let error = Recording::read_within(lines.as_bytes(), limits).unwrap_err();
    assert_eq!(
        error.problem(),
        &Problem::Memory { what: "the content of the line".to_owned(), limit: 100 }
    );
}

#[test]
fn missing_fields_are_unknown_and_unknown_keys_are_ignored() {
    let recording = read(&format!(
        "{HEAD}\n\n{}\n{}",
        r#"{"event":{"action":"alloc","address":1,"size_bytes":2,"colour":"red"}}"#,
        r#"{"device":{"device":1,"segments":0}}"#
    ));
    assert_eq!((recording.format, recording.settings["a"].as_str()), (Format::BfcDump, "b"));
    let [first, second] = &recording.devices[..] else { panic!("two devices") };
    assert_eq!((&first.segments, first.total), (&None, None));
    assert_eq!(second.segments, Some(vec![]), "nothing was held");
}

#[test]
fn unknown_format_error_suggests_known_formats() {
    for text in ["hello\n", "2026-01-01 00:00:00 INFO start\n", "PK\u{3}\u{4}zip", "\n{}"] {
        let error = Recording::read(text.as_bytes()).unwrap_err();
        assert_eq!(
            (error.location(), error.problem()),
            (&Location::Whole, &Problem::UnknownFormat)
        );
        assert!(error.remedy().contains("_dump_snapshot"));
    }
    let error = Recording::read(b"").unwrap_err();
    assert_eq!(error.to_string(), "read the recording: the file is truncated: it is empty");
}

#[test]
fn listed_counts_and_late_stacks_are_checked() {
    let event = |rest: &str| {
        format!("{{\"event\":{{\"action\":\"alloc\",\"address\":1,\"size_bytes\":2{rest}}}}}\n")
    };
    let message =
        refusal(&format!("{HEAD}\n{{\"device\":{{\"device\":0,\"events\":0}}}}\n{}", event("")));
    assert!(
        message.contains("1 of 0 events of device 0") && !message.contains("truncated"),
        "{message}"
    );
    let stack =
        "{\"frame\":{\"function\":\"f\",\"file\":\"x\"}}\n{\"stack\":[0]}\n{\"stack\":[]}\n";
    let lines = [event(""), event(",\"stack\":0"), event(""), event(",\"stack\":1")].concat();
    let recording = read(&format!("{HEAD}\n{stack}{lines}"));
    let trace = &recording.devices[0];
    let stacks: Vec<_> =
        trace.event_stacks.iter().map(|stack| stack.map(|stack| stack.index())).collect();
    assert_eq!(stacks, [None, Some(0), None, None], "a stack of no frames is none");
    assert_eq!((recording.stacks.len(), recording.stacks.is_empty()), (1, false));
    assert_eq!(
        &*recording.stacks.frames(trace.event_stacks[1].unwrap()).next().unwrap().function,
        "f"
    );
    let without = read(&format!("{HEAD}\n{}", event("")));
    assert!(without.devices[0].event_stacks.is_empty() && without.stacks.is_empty());
    let long = |length: usize| HEAD.replace("\"b\"", &format!("\"{}\"", "b".repeat(length)));
    let room = (1 << 20) - HEAD.len();
    assert_eq!(read(&format!("{}\n", long(room))).settings["a"].len(), room);
    assert!(refusal(&format!("{}\n", long(room + 1))).contains("more than 1048576 bytes"));
}

#[test]
fn largest_sizes_and_addresses_are_read() {
    let event = |address: u64, size: u64| {
        format!(
            "{HEAD}\n{{\"event\":{{\"action\":\"alloc\",\"address\":{address},\"size_bytes\":{size}}}}}\n"
        )
    };
    let (most, pebibyte) = ((1 << 63) - 1, 1 << 50);
    assert_eq!(read(&event(most, pebibyte)).devices[0].events[0].size, pebibyte);
    assert!(refusal(&event(most + 1, 1)).contains("larger than any device"));
    assert!(refusal(&event(0, pebibyte + 1)).contains("more than any device has"));
}
