//! Pictures of small jobs, compared with golden files.

use gpu_allocator_policy::PolicyConfig;
use gpu_core::Bytes;
use gpu_memory_trace::trace::Recording;
use gpu_memory_trace::{Timeline, Workload, page};

const MIB: u64 = 1 << 20;

/// A recording with stacks, spans and memory from before it, in JSON lines. An event is an action,
/// the number of a block, its size in MiB and a stack.
fn recording(events: &[(&str, u64, u64, Option<u32>)], live: &[(u64, u64)]) -> Recording {
    let mut lines = vec![
        r#"{"schema":1,"kind":"memory-trace"}"#.to_owned(),
        r#"{"frame":{"function":"forward","file":"/home/ann/model/train.py","line":12}}"#
            .to_owned(),
        r#"{"frame":{"function":"main","file":"train.py","line":3}}"#.to_owned(),
        r#"{"frame":{"function":"linear","file":"/usr/dist-packages/nn.py","line":5}}"#.to_owned(),
        r#"{"frame":{"function":"at::detail::empty(long)","file":"??"}}"#.to_owned(),
        r#"{"frame":{"function":"at::bmm(at::Tensor)","file":"bmm.cpp"}}"#.to_owned(),
        r#"{"stack":[2,0,1]}"#.to_owned(),
        r#"{"stack":[3,4]}"#.to_owned(),
        r#"{"stack":[1,1,1,1,1,1,1,1,1,1]}"#.to_owned(),
    ];
    for (number, mib) in live {
        let (address, size) = (number << 32, mib * MIB);
        let block = format!(
            r#"{{"size_bytes":{size},"requested_bytes":{},"state":"active","stack":0}}"#,
            size - 512
        );
        lines.push(format!(r#"{{"segment":{{"address":{address},"size_bytes":{size},"pool":"large","blocks":[{block}]}}}}"#));
    }
    for (name, begins, time_us) in [
        ("step", true, 5_001_500),
        ("forward", true, 5_003_000),
        ("forward", false, 5_007_500),
        ("step", false, 5_015_000),
        ("backward", true, 5_016_500),
    ] {
        lines.push(format!(
            r#"{{"annotation":{{"name":"{name}","begins":{begins},"time_us":{time_us}}}}}"#
        ));
    }
    for (index, (action, number, mib, stack)) in events.iter().enumerate() {
        let stack = stack.map_or(String::new(), |stack| format!(r#","stack":{stack}"#));
        let (time, size) = (5_000_000 + 1500 * index as u64, mib * MIB);
        let address = if *action == "oom" {
            String::new()
        } else {
            format!(r#","address":{}"#, number << 32)
        };
        lines.push(format!(r#"{{"event":{{"action":"{action}"{address},"size_bytes":{size},"time_us":{time}{stack}}}}}"#));
    }
    Recording::read((lines.join("\n") + "\n").as_bytes()).expect("it is well-formed")
}

/// A job that empties its cache once, fails once and makes room once.
fn complete() -> Recording {
    recording(
        &[
            ("alloc", 1, 60, Some(0)),
            ("alloc", 2, 30, Some(1)),
            ("alloc", 3, 21, Some(0)),
            ("free_requested", 2, 30, None),
            ("free_completed", 2, 30, None),
            ("alloc", 4, 24, Some(2)),
            ("free_requested", 1, 60, None),
            ("alloc", 5, 50, None),
            ("oom", 0, 400, Some(1)),
            ("free_completed", 1, 60, None),
            ("free_completed", 4, 24, None),
            ("alloc", 6, 90, Some(0)),
            ("free_completed", 9, 7, None),
            ("segment_free", 20, 10, None),
            ("free_completed", 5, 50, None),
            ("free_requested", 3, 21, None),
            ("alloc", 7, 1, Some(0)),
            ("alloc", 8, 1, Some(0)),
            ("free_requested", 6, 90, None),
        ],
        &[(3, 21), (6, 90), (7, 2), (8, 2), (10, 13)],
    )
}

/// A job that runs out of memory in the middle.
fn out_of_memory() -> Recording {
    recording(
        &[
            ("alloc", 1, 40, Some(0)),
            ("alloc", 2, 30, Some(1)),
            ("free_completed", 1, 40, None),
            ("alloc", 3, 25, Some(2)),
            ("free_requested", 2, 30, None),
            ("alloc", 4, 60, Some(0)),
            ("alloc", 5, 70, None),
            ("alloc", 6, 20, None),
        ],
        &[(2, 30), (3, 25), (4, 60), (5, 70), (6, 20)],
    )
}

fn with_timeline<T>(
    recording: &Recording,
    policy: &str,
    mib: u64,
    take: impl FnOnce(Timeline<'_>) -> T,
) -> T {
    let trace = &recording.devices[0];
    let workload = Workload::of(trace, &recording.stacks).expect("it is consistent");
    let choice = PolicyConfig::named(policy).expect("there is one");
    let device = Some(Bytes::from_mib(mib));
    let timeline = Timeline::new(trace, &recording.stacks, &workload, &choice, device);
    let mut timeline = timeline.expect("the policy can be created");
    timeline.name = "job.pickle".to_owned();
    take(timeline)
}

/// Removes the style, which is the same for every picture.
fn without_style(svg: &str) -> String {
    let (head, rest) = svg.split_once("<style>").expect("it has a style");
    let (_, body) = rest.split_once("</style>\n").expect("it ends");
    head.to_owned() + body
}

fn assert_picture(name: &str, drawn: &str, expected: &str) {
    let path = format!("{}/{name}", env!("CARGO_TARGET_TMPDIR"));
    std::fs::write(&path, drawn).unwrap();
    assert!(drawn == expected, "{path} differs from tests/integration/pictures/{name}");
}

#[test]
fn job_with_limit_spans_and_marks_is_drawn() {
    let svg = with_timeline(&complete(), "caching", 200, |timeline| without_style(&timeline.svg()));
    assert_picture("complete.svg", &svg, include_str!("pictures/complete.svg"));
}

#[test]
fn draws_failed_job_up_to_out_of_memory() {
    let svg =
        with_timeline(&out_of_memory(), "caching", 128, |timeline| without_style(&timeline.svg()));
    assert_picture("out-of-memory.svg", &svg, include_str!("pictures/out-of-memory.svg"));
}

#[test]
fn job_far_below_its_limit_is_drawn_without_it() {
    let svg =
        with_timeline(&out_of_memory(), "bfc", 4096, |timeline| without_style(&timeline.svg()));
    assert_picture("roomy.svg", &svg, include_str!("pictures/roomy.svg"));
}

#[test]
fn page_lists_largest_allocations_by_call() {
    let html = with_timeline(&complete(), "caching", 200, |timeline| page(&[timeline]));
    let (_, table) = html.split_once("<table>").expect("it has a list");
    let (table, _) = table.split_once("</table>").expect("it ends");
    assert_picture("list.html", table, include_str!("pictures/list.html"));
}

#[test]
fn labels_early_peak_on_right_and_keeps_last_event_separate() {
    let mut events = vec![
        ("alloc", 1, 200, None),
        ("free_completed", 1, 200, None),
        ("segment_free", 99, 1, None),
    ];
    for number in 2..125 {
        events.extend([("alloc", number, 1, None), ("free_completed", number, 1, None)]);
    }
    let svg = with_timeline(&recording(&events, &[]), "caching", 4096, |timeline| timeline.svg());
    // After 249 events, the axis extends for 3 more.
    assert!(svg.contains("<text class=\"small middle\" x=\"1155\" y=\"592\">250</text>"), "{svg}");
    assert!(svg.contains("<text class=\"\" x=\"92\" y=\"156\">peak: 200 MiB reserved"), "{svg}");
}
