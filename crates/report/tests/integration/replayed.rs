//! What a history shows of the time before a moment.

use gpu_core::{Origin, Snapshot, Timestamp};
use gpu_history::{Frame, Reader, Retention, Writer};
use gpu_reaper::Past;
use gpu_report::replay::past;
use std::fs::File;
use std::time::Duration;

const START: u64 = 1_795_223_083_000;

#[test]
fn one_frame_a_minute_counts_also_after_the_clock_was_set_back() {
    let dir = tempfile::tempdir().unwrap();
    let open = || File::open(dir.path()).unwrap();
    let mut writer = Writer::open(open(), Retention::default()).unwrap();
    let mut expected = Past::every(Duration::from_secs(60));
    // Seconds, and whether the frame counts.
    let first = [(0, true), (30, false), (60, true), (120, true)];
    let set_back = [(40, true), (70, false), (100, true), (160, true)];
    for (second, counts) in first.into_iter().chain(set_back) {
        let snapshot = Snapshot::empty(Origin::Live, Timestamp(START + second * 1000));
        if counts {
            expected.add(&snapshot);
        }
        writer.add(&Frame { snapshot, leases: Ok(Vec::new()) }).unwrap();
    }
    drop(writer);
    let seen = past(&mut Reader::open(open()).unwrap(), Timestamp(START + 165_000));
    assert_eq!(format!("{seen:?}"), format!("{expected:?}"));
}
