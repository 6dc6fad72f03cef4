//! Properties that hold for any text.

use super::*;
use proptest::prelude::*;

#[test]
fn report_is_bounded() {
    let many: String =
        (0..=MAX_EVENTS).map(|n| format!("Tried to allocate {n}.00 MiB.\n")).collect();
    let report = read(many.as_bytes());
    assert_eq!((report.events.len(), report.is_cut), (MAX_EVENTS, true));
    let (before, after) = ("x".repeat(1 << 16), " y".repeat(1 << 15));
    let long = format!("{before}CUDA out of memory. Tried to allocate 2.00 GiB.{after}");
    assert_eq!(text(&one(&long).tried), "2.00 GiB");
    let digits = format!("Tried to allocate {} GiB", "9".repeat(1 << 16));
    assert_eq!(all(&digits), []);
    let again = "CUDA out of memory. Tried to allocate 2.00 GiB.\n".repeat(MAX_EVENTS + 1);
    let report = read(again.as_bytes());
    assert_eq!((report.events[0].times, report.is_cut), (MAX_EVENTS + 1, false));
}

proptest! {
    #[test]
    fn arbitrary_bytes_give_deterministic_bounded_report(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let report = read(&bytes);
        prop_assert!(report.events.len() <= bytes.len());
        prop_assert_eq!(read(&bytes), report);
    }

    #[test]
    fn shuffled_message_fragments_never_panic(
        pieces in prop::collection::vec((0usize..4, 0usize..3000, 0usize..400), 0..12),
    ) {
        let sources = [TORCH_2, DUMP, "RESOURCE_EXHAUSTED: Out of memory allocating 7 bytes (total", "(\u{e9}\u{20ac} 9.9.9 GiB * \\n"];
        let log: String = pieces
            .iter()
            .filter_map(|(source, from, length)| {
                let source = sources[*source];
                let from = from % source.len();
                source.get(from..(from + length).min(source.len()))
            })
            .collect();
        let report = read(log.as_bytes());
        for event in &report.events {
            prop_assert!(event.times >= 1 && event.line >= 1);
        }
    }

    #[test]
    fn pytorch_figures_round_trip(asked in 1u64..1 << 20, free in 0u64..1 << 20, pid in any::<u32>()) {
        let log = format!("CUDA out of memory. Tried to allocate {asked}.25 MiB. GPU 0 has a total capacity of \
            80.00 GiB of which {free}.50 MiB is free. Process {pid} has 1.00 GiB memory in use.");
        let event = one(&log);
        prop_assert_eq!(text(&event.tried), format!("{asked}.25 MiB"));
        prop_assert_eq!(text(&event.free), format!("{free}.50 MiB"));
        prop_assert_eq!(event.processes[0].0, pid);
    }
}
