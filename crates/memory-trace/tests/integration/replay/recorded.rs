//! Replays of real snapshots, decision by decision.

use gpu_allocator_policy::caching::Settings;
use gpu_memory_trace::trace::Recording;
use gpu_memory_trace::{Agreement, Workload, compare};
use std::io::Write;
use std::path::PathBuf;

fn agreement(dir: &std::path::Path, name: &str) -> Agreement {
    let bytes = std::fs::read(dir.join(name)).expect("the snapshot is there");
    let recording = Recording::read(&bytes).expect("it is a snapshot");
    let trace = recording
        .devices
        .iter()
        .find(|trace| !trace.events.is_empty())
        .expect("a device has events");
    let settings = Settings::from_recording(&recording.settings).expect("PyTorch wrote them");
    let workload = Workload::of(trace, &recording.stacks).expect("it is consistent");
    compare(trace, &workload, &settings).expect("the recording is complete")
}

#[test]
fn replay_predicts_every_decision_of_real_snapshots() {
    let Some(dir) = std::env::var_os("GPUWS_TRACES").map(PathBuf::from) else {
        writeln!(std::io::stderr(), "skipped: GPUWS_TRACES names no directory of real snapshots")
            .expect("stderr can be written");
        return;
    };
    // Counts and peaks (MiB reserved, tenths of MiB allocated) as published with the snapshots.
    for (name, addresses, segments, freed, reserved, allocated) in [
        ("torch-forward-ctx128.pickle", 2_058, 289, 0, 18_756, 185_951),
        ("torch-forward-ctx128-long.pickle", 3_113, 178, 0, 17_050, 169_164),
        ("torch-forward-mixed-ctx512.pickle", 2_702, 638, 597, 38_638, 381_438),
        ("torch-fullstep-ctx256.pickle", 6_769, 791, 780, 58_280, 524_153),
    ] {
        let agreement = agreement(&dir, name);
        assert!(agreement.is_complete(), "{name}: {agreement:?}");
        assert_eq!(agreement.first, None, "{name}");
        assert_eq!(agreement.addresses.of, addresses, "{name}");
        assert_eq!(
            (agreement.segments.of, agreement.segments_freed.of),
            (segments, freed),
            "{name}"
        );
        let peak = agreement.outcome.peak;
        assert_eq!(peak.reserved.mib(), reserved, "{name}");
        assert_eq!((peak.in_use.0 * 10 + (1 << 19)) >> 20, allocated, "{name}");
        assert!(agreement.outcome.survived(), "{name}");
    }
}
