//! Pictures of synthetic jobs: their content, and their resistance to hostile text.

use super::page::allowed;
use super::*;
use crate::trace::{Annotation, Recording};
use std::io::Write;
use std::process::{Command, Stdio};

const MIB: u64 = 1 << 20;

/// Creates a recording without regions: numbered blocks that are allocated (`+`) and freed (`-`),
/// failed requests (`!`), and points where the program empties the cache (`x`).
fn recording(steps: &[(char, u64, u64)], function: &str) -> Recording {
    let mut lines = "{\"schema\":1,\"kind\":\"memory-trace\"}\n".to_owned();
    let frame = serde_json::json!({"frame": {"function": function, "file": "a/b.py", "line": 7}});
    lines.push_str(&format!("{frame}\n{{\"stack\":[0]}}\n"));
    for (time, &(kind, number, mib)) in steps.iter().enumerate() {
        let action = match kind {
            '+' => "alloc",
            '-' => "free_completed",
            '!' => "oom",
            _ => "segment_free",
        };
        let event = serde_json::json!({"event": {
            "action": action, "address": number << 36, "size_bytes": mib * MIB,
            "time_us": 1000 + time, "stack": 0,
        }});
        let event = match kind {
            '!' => event.to_string().replace(&format!("\"address\":{},", number << 36), ""),
            // The stack shows what freed the regions. Without a stack, the program did.
            'x' => event.to_string().replace("\"stack\":0,", ""),
            _ => event.to_string(),
        };
        lines.push_str(&format!("{event}\n"));
    }
    Recording::read(lines.as_bytes()).expect("it is well-formed")
}

/// Draws a job under an allocator on a device with this many MiB.
fn drawn<T>(
    recording: &Recording,
    device: Option<u64>,
    take: impl FnOnce(&Timeline<'_>) -> T,
) -> T {
    let trace = &recording.devices[0];
    let workload = Workload::of(trace, &recording.stacks).expect("it is consistent");
    let choice = PolicyConfig::named("caching").expect("there is one");
    let device = device.map(Bytes::from_mib);
    let timeline = Timeline::new(trace, &recording.stacks, &workload, &choice, device)
        .expect("the policy can be created");
    take(&Timeline { name: "job.pickle".to_owned(), ..timeline })
}

/// Parses a picture as XML; returns the texts of its elements by name.
fn texts(svg: &str) -> Vec<(String, String)> {
    let mut open: Vec<(&str, String)> = Vec::new();
    let mut found = Vec::new();
    for part in svg.split('<').skip(1) {
        let (tag, text) = part.split_once('>').expect("each tag is closed");
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
        if let Some(name) = tag.strip_prefix('/') {
            let (opened, text) = open.pop().expect("what is closed was opened");
            assert_eq!(opened, name);
            found.push((name.to_owned(), text));
        } else if !tag.ends_with('/') {
            open.push((tag.split(' ').next().expect("a name"), text.to_owned()));
        }
    }
    assert!(open.is_empty(), "{open:?}");
    found
}

#[test]
fn svg_has_labels_for_its_content() {
    let job = [('+', 1, 100), ('+', 2, 50), ('-', 1, 100), ('+', 3, 30), ('x', 9, 20), ('+', 4, 1)];
    let svg = drawn(&recording(&job, "forward"), None, |timeline| timeline.svg());
    let texts = texts(&svg);
    let all = |name: &str| -> Vec<&str> {
        texts.iter().filter(|(tag, _)| tag == name).map(|(_, text)| text.as_str()).collect()
    };
    let titles = all("title");
    assert!(titles.contains(&"GPU memory of job.pickle under caching"), "{titles:?}");
    let bands: Vec<_> = titles.iter().filter(|title| title.contains("forward, a/b.py:7")).collect();
    assert_eq!(bands.len(), 4, "{titles:?}");
    assert!(bands.iter().any(|band| band.starts_with("100 MiB, from event 0, free at event 2\n")));
    assert!(
        titles.iter().any(|title| title.starts_with("cache emptied by the program")),
        "{titles:?}"
    );
    let words = all("text").join("\n");
    for reported in
        ["peak: 152 MiB reserved, 81 MiB allocated", "The segments at the peak, event 5"]
    {
        assert!(words.contains(reported), "{words}");
    }
    assert!(all("desc")[0].contains("It ran to completion."));
    assert!(svg.contains("prefers-color-scheme: dark"));
}

#[test]
fn oom_is_marked_with_event_and_request() {
    let job = [('+', 1, 100), ('!', 0, 900), ('+', 2, 50), ('+', 3, 20)];
    let svg = drawn(&recording(&job, "f"), Some(128), |timeline| timeline.svg());
    for reported in [
        "failed in the recording: 900 MiB",
        "out of memory: 50 MiB at event 2",
        "The segments where memory ran out, event 2",
        "failed request: 50 MiB",
        "not reached",
        "limit 128 MiB",
        "It ran out of memory requesting 50 MiB.",
    ] {
        assert!(svg.contains(reported), "{reported}: {svg}");
    }
    texts(&svg);
}

#[test]
fn segment_map_shows_peak() {
    let job = [('+', 1, 100), ('+', 2, 60), ('-', 2, 60), ('-', 1, 100), ('x', 9, 20), ('+', 3, 2)];
    drawn(&recording(&job, "f"), None, |timeline| {
        let sizes: Vec<_> = timeline.segments.iter().map(|segment| segment.size.mib()).collect();
        assert_eq!(sizes, [100, 60]);
        assert_eq!((timeline.map_time(), timeline.outcome.peak.reserved.mib()), (2, 160));
        assert_eq!(timeline.history.used.last(), Some(&(2 * MIB)));
        assert_eq!(timeline.history.reserved.last(), Some(&(20 * MIB)));
    });
}

#[test]
fn empty_or_failed_job_can_be_drawn() {
    let nothing = recording(&[('-', 1, 100)], "f");
    texts(&drawn(&nothing, None, |timeline| timeline.svg()));
    let svg = drawn(&nothing, Some(10), |timeline| timeline.svg());
    assert!(svg.contains("The segments where memory ran out, event 0"), "{svg}");
    texts(&svg);
}

const HOSTILE: &str = "</title></script><script>alert(1)</script>\"><img src=x onerror=alert(2)>'\u{0}\u{1b}]0;\u{202e}--><!--]]>&";

#[test]
fn recorded_text_is_escaped() {
    let mut job = recording(&[('+', 1, 100), ('+', 2, 50)], HOSTILE);
    let name: std::sync::Arc<str> = HOSTILE.into();
    job.devices[0].annotations.push(Annotation { name, begins: true, time_us: 0 });
    let (svg, html) = drawn(&job, None, |timeline| {
        let hostile = Timeline {
            name: HOSTILE.to_owned(),
            allocator: HOSTILE.to_owned(),
            history: timeline.history.clone(),
            outcome: timeline.outcome.clone(),
            segments: timeline.segments.clone(),
            ..*timeline
        };
        (timeline.svg() + &hostile.svg(), page(&[hostile]))
    });
    for text in [&svg, &html] {
        for harm in ["<img", "alert(1)</", "<script>alert", "--><!--", "]]>", "\"><"] {
            let within =
                text.replace("\"><text", "").replace("\"><title", "").replace("\"><path", "");
            assert!(!within.contains(harm), "{harm}");
        }
        let acts = |c: &char| (c.is_control() && *c != '\n') || *c == '\u{202e}';
        assert_eq!(text.chars().find(acts), None);
        assert!(text.contains("&lt;img src=x onerror=alert(2)&gt;&#39;\\u{0}\\u{1b}]0;\\u{202e}"));
    }
    assert_eq!(html.matches("<script>").count(), 1);
}

#[test]
fn page_csp_allows_only_own_script_and_style() {
    let html = drawn(&recording(&[('+', 1, 100)], "f"), None, |timeline| {
        page(std::slice::from_ref(timeline))
    });
    assert!(html.contains("default-src 'none'"));
    for (text, digest) in allowed() {
        assert_eq!(sha256(&text), digest);
        assert!(html.contains(&format!("'sha256-{digest}'")));
        assert!(html.contains(&format!(">{text}</")), "the page contains the digested text");
    }
    assert_eq!(html.matches("<style>").count() + html.matches("<script>").count(), 3);
    assert!(!html.contains(" style=") && !html.contains(" onclick") && !html.contains("unsafe"));
    let without_namespace = html.replace("http://www.w3.org/2000/svg", "");
    assert!(
        !without_namespace.contains("://") && !without_namespace.contains("src="),
        "the page loads no resources"
    );
    assert!(html.contains("<td>f, a/b.py:7</td>"), "{html}");
}

#[test]
fn page_lists_largest_groups() {
    let job = [
        ('+', 1, 100),
        ('+', 2, 30),
        ('+', 3, 40),
        ('-', 3, 40),
        ('+', 4, 30),
        ('+', 5, 90),
        ('+', 6, 30),
        ('+', 7, 30),
    ];
    let html = drawn(&recording(&job, "f"), None, |timeline| page(std::slice::from_ref(timeline)));
    let rows: Vec<_> = html.lines().filter(|line| line.starts_with("<tr><td>")).collect();
    let row = |cells: [&str; 4]| format!("<tr><td>{}</td></tr>", cells.join("</td><td>"));
    assert_eq!(
        rows,
        [
            row(["120 MiB", "4 of 30 MiB", "1 to 7", "f, a/b.py:7"]),
            row(["100 MiB", "1 of 100 MiB", "0", "f, a/b.py:7"]),
            row(["90 MiB", "1 of 90 MiB", "5", "f, a/b.py:7"]),
        ]
    );
}

#[test]
fn uninformative_cpp_frames_are_skipped() {
    let calls = [
        "torch::unwind::unwind()",
        "c10::cuda::CUDACachingAllocator::Native::NativeCachingAllocator::malloc(void**)",
        "at::detail::empty_cuda(c10::ArrayRef<long>)",
        "at::_ops::bmm::call(at::Tensor const&)",
        "torch::autograd::generated::BmmBackward0::apply(std::vector<at::Tensor>&&)",
    ];
    let mut job = recording(&[('+', 1, 100)], "f");
    let frames = |calls: &[&str]| {
        let mut lines = "{\"schema\":1,\"kind\":\"memory-trace\"}\n".to_owned();
        for call in calls {
            let frame = serde_json::json!({"frame": {"function": call, "file": "??"}});
            lines.push_str(&format!("{frame}\n"));
        }
        let all: Vec<usize> = (0..calls.len()).collect();
        lines.push_str(&format!("{}\n", serde_json::json!({"stack": all})));
        Recording::read(lines.as_bytes()).expect("it is well-formed").stacks
    };
    job.stacks = frames(&calls);
    let html = drawn(&job, None, |timeline| page(std::slice::from_ref(timeline)));
    assert!(html.contains("<td>torch::autograd::generated::BmmBackward0::apply</td>"), "{html}");
    assert!(html.contains("end\nat::_ops::bmm::call\ntorch::autograd"), "{html}");
    job.stacks = frames(&calls[..2]);
    let html = drawn(&job, None, |timeline| page(std::slice::from_ref(timeline)));
    assert!(html.contains("<td>torch::unwind::unwind()</td>"), "nothing else is known");
}

#[test]
fn svg_size_is_bounded_for_long_job() {
    let mut job = Vec::new();
    for number in 0..3000 {
        job.push(('+', number + 1, 2 + number % 7));
        if number > 900 {
            job.push(('-', number - 900, 2 + (number - 901) % 7));
        }
    }
    let svg = drawn(&recording(&job, HOSTILE), None, |timeline| timeline.svg());
    assert!(svg.len() < 2_000_000, "{}", svg.len());
    texts(&svg);
}

/// Returns the base64 of a text's SHA-256 for the page's content security policy.
fn sha256(text: &str) -> String {
    let pipeline = "sha256sum | cut -c1-64 | tr a-f A-F | basenc --base16 -d | base64";
    let mut shell = Command::new("sh")
        .args(["-c", pipeline])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("there is a shell");
    let mut stdin = shell.stdin.take().expect("it is piped");
    stdin.write_all(text.as_bytes()).expect("it is read");
    drop(stdin);
    let output = shell.wait_with_output().expect("it ends").stdout;
    String::from_utf8(output).expect("base64 is ASCII").trim().to_owned()
}
