//! Reasons and warnings in words.

use super::fixture;
use gpu_graph::placer::{self, Options};

/// Places lines of the notation on one device of each type; returns the reasons and the warnings.
fn words(lines: &str, soft: bool) -> (Vec<String>, Vec<String>) {
    let registry = fixture::registry();
    let devices = fixture::devices("2");
    let graph = fixture::graph(lines.lines().map(str::trim), &registry);
    let options = Options { soft, ..Options::default() };
    let placement = placer::place(&graph, &registry, &devices, &options).unwrap();
    let reason = |id| format!("{}: {}", graph.node(id).name, placement.explain(&graph, id));
    let reasons = graph.ids().map(reason).collect();
    let short = |line: String| line.replace("/job:a/replica:0/task:0", "");
    (reasons, placement.warning_lines(&graph, &devices).map(short).collect())
}

#[test]
fn every_device_has_its_reason() {
    let lines = "in = In
        a = Rectify in @G1
        b = RectifyC in ~in
        c = Rectify in
        d = RectifyC in @G0
        s = Shape in
        g = Out
        v = VarG !G1
        use = SetVar v g
        h = HandleC";
    let (reasons, warnings) = words(lines, true);
    assert_eq!(
        reasons,
        [
            "in: first device with a kernel",
            "a: requests /device:FakeGPU:1",
            "b: must be on the device of in",
            "c: first device with a kernel",
            "d: no device /device:FakeGPU:0 supports it; first device that does",
            "s: follows its input in",
            "g: follows its consumer use",
            "v: already placed there",
            "use: must be on the device of v",
            "h: first device with a kernel",
        ]
    );
    assert_eq!(
        warnings,
        ["d: no available device /device:FakeGPU:0 supports it; soft placement chose \
          /device:FakeCPU:0"]
    );
}

#[test]
fn warnings_name_nodes_and_requests() {
    for (lines, soft, warning) in [
        (
            "ds = SetSP @C0\nit = IterG ds",
            true,
            "it: a resource was moved from /device:FakeCPU:0 to /device:FakeGPU:0, because that \
             device does not support the operations on it",
        ),
        (
            "in = In\nx = RectifyG in ~in",
            true,
            "x: not colocated with in: because no device type supports both of those nodes and the \
             other nodes colocated with them",
        ),
        (
            "in = In\na = Rectify in @G0\nb = Rectify in @G1 ~a",
            true,
            "b: colocated with a, but requests /device:FakeGPU:1 and /device:FakeGPU:0 differ; \
             the differing parts are ignored",
        ),
        (
            "in = Out\nv = Var @G0\nset = SetVar v in @C0",
            false,
            "set: request /device:FakeCPU:0 ignored for /device:FakeGPU:0, the device of the \
             reference or resource from v",
        ),
    ] {
        let warnings = words(lines, soft).1;
        assert_eq!(warnings, [warning], "{lines}");
    }
}
