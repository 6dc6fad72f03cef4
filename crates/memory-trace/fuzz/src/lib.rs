//! The invariants of every fuzz target: reading is deterministic, its result is consistent, and
//! survives a round trip.

use gpu_memory_trace::trace::{Limits, Recording};

/// Small limits, so that files that expand are detected quickly.
const LIMITS: Limits = Limits { bytes: 1 << 20, memory: Some(8 << 20) };

/// Parses bytes as a recording.
///
/// # Panics
/// If an invariant is violated.
pub fn read(bytes: &[u8]) {
    let recording = match Recording::read_within(bytes, LIMITS) {
        Ok(recording) => recording,
        Err(error) => {
            let message = error.to_string();
            assert!(message.len() < 1_000 && !message.contains(char::is_control), "{message:?}");
            assert!(!error.remedy().is_empty());
            assert_eq!(Recording::read_within(bytes, LIMITS), Err(error));
            return;
        }
    };
    recording.check().expect("the input is consistent");
    // The factor is four, because each reference in a pickle takes at least a byte and may be
    // visited twice.
    let most = 4 * bytes.len() + 1_000;
    for trace in &recording.devices {
        let blocks = trace.segments.iter().flatten().map(|segment| segment.blocks.len());
        assert!(blocks.sum::<usize>() + trace.events.len() <= most);
        let stacks = trace.event_stacks.len();
        assert!(stacks == 0 || stacks == trace.events.len());
        for stack in trace.event_stacks.iter().flatten().chain(trace.block_stacks.values()) {
            assert!(recording.stacks.frames(*stack).len() > 0, "a stack has its frames");
        }
    }
    let mut lines = Vec::new();
    recording.write(&mut lines).expect("writing to memory succeeds");
    assert!(lines.iter().all(|byte| matches!(byte, b'\n' | b' '..=b'~')));
    assert_eq!(Recording::read(&lines).as_ref(), Ok(&recording));
}
