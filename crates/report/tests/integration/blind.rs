//! Samples without GPUs.

use crate::fixture::snapshot;
use gpu_core::{ErrorKind, Fault};
use gpu_report::Blind;

#[test]
fn samples_without_gpus_are_counted_with_the_last_reason() {
    let mut blind = Blind::default();
    let sees = snapshot();
    blind.add(&sees);
    assert_eq!(blind.text(), None);
    for (text, expected) in [
        ("query a", "1 sample has no GPU: failed to query a"),
        ("query b", "2 samples have no GPU: failed to query b"),
    ] {
        let fault = Fault { kind: ErrorKind::TimedOut, text: text.to_owned() };
        let mut sample = snapshot();
        sample.driver = Err(fault);
        blind.add(&sample);
        blind.add(&sees);
        assert_eq!(blind.text().as_deref(), Some(expected));
    }
}
