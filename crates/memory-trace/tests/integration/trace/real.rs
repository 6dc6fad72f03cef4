//! Real snapshots, if available, compared with the table of their content.

use gpu_memory_trace::trace::{Action, DeviceTrace, Format, Recording};
use std::io::Write;
use std::path::PathBuf;

/// Returns the directory of real snapshots. Without one, prints a note directly to standard error,
/// because the test harness hides the output of passing tests.
pub(crate) fn dir() -> Option<PathBuf> {
    let dir = std::env::var_os("GPUWS_TRACES").map(PathBuf::from);
    if dir.is_none() {
        let mut stderr = std::io::stderr();
        writeln!(stderr, "skipped: GPUWS_TRACES names no directory of real snapshots").unwrap();
    }
    dir
}

/// A row of the table: the name, the file's content, and the cells after the name.
pub(crate) type Row = (String, Vec<u8>, Vec<f64>);

/// Returns the snapshots with their table rows: the cells after the name, as numbers.
pub(crate) fn snapshots() -> Option<Vec<Row>> {
    let dir = dir()?;
    let table = std::fs::read_to_string(dir.join("README.md")).unwrap();
    let rows: Vec<_> = table
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split_once(" | "))
        .filter(|(name, _)| name.ends_with(".pickle"))
        .map(|(name, cells)| {
            let cells = cells.trim_end_matches('|').split('|').map(|cell| {
                cell.trim().replace(',', "").parse().expect("a cell of the table is a number")
            });
            let bytes = std::fs::read(dir.join(name)).unwrap();
            (name.to_owned(), bytes, cells.collect())
        })
        .collect();
    assert!(rows.len() >= 4, "the table has its rows");
    Some(rows)
}

#[test]
fn real_snapshots_match_table() {
    for (name, bytes, cells) in snapshots().unwrap_or_default() {
        let recording = Recording::read(&bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(recording.format, Format::TorchSnapshot);
        assert_eq!(recording.settings["max_split_size"], "-1");
        assert_eq!(recording.settings["expandable_segments"], "False");
        assert!(recording.settings["roundup_power2_divisions"].starts_with("1:0,2:0,4:0,"));
        let [trace] = &recording.devices[..] else { panic!("{name}: one device") };
        let count = |action| trace.events.iter().filter(|event| event.action == action).count();
        let counted = [
            trace.events.len(),
            count(Action::Alloc),
            count(Action::SegmentAlloc),
            count(Action::SegmentFree),
        ];
        assert_eq!(counted.map(|count| count as f64)[..], cells[..4], "{name}");
        assert_eq!(peak_reserved(trace) / 1_048_576, cells[4] as u64, "{name}");
        assert!(trace.events.windows(2).all(|pair| pair[0].time_us <= pair[1].time_us), "{name}");
        assert_eq!(trace.event_stacks.len(), trace.events.len());
        for stack in trace
            .event_stacks
            .iter()
            .chain(&trace.block_stacks.values().map(|s| Some(*s)).collect::<Vec<_>>())
        {
            let stack = stack.expect("each event of these files has frames");
            let outermost = recording.stacks.frames(stack).next_back().expect("and not none");
            assert!(!outermost.function.is_empty(), "{name}");
        }
    }
}

/// Returns the maximum held memory by walking back from the final segments.
fn peak_reserved(trace: &DeviceTrace) -> u64 {
    let segments = trace.segments.as_ref().expect("the file lists the segments");
    let mut reserved: u64 = segments.iter().map(|segment| segment.size).sum();
    let mut peak = reserved;
    for event in trace.events.iter().rev() {
        match event.action {
            Action::SegmentAlloc => reserved -= event.size,
            Action::SegmentFree => reserved += event.size,
            _ => {}
        }
        peak = peak.max(reserved);
    }
    peak
}
