//! The content of the audit log.

use crate::catalog::Metric;
use crate::metrics::{Metrics, from_milli, number};
use serde::Deserialize;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// The most names of a label; gpuws writes a dozen.
const MOST_NAMES: usize = 32;

/// Counts of the signals, outcomes and resets in audit logs.
///
/// Each name that gpuws writes starts with zero, because Prometheus does not see the increase of a
/// counter that appears with its first event.
#[derive(Clone, Debug, PartialEq)]
pub struct Reaps {
    signals: BTreeMap<String, u64>,
    outcomes: BTreeMap<String, u64>,
    resets: BTreeMap<String, u64>,
    /// The time of the last occurrence of each outcome in the audit log, in seconds since 1970.
    last: BTreeMap<String, f64>,
}

/// The parts of a line that are counted (docs/safety.md).
#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    event: Cow<'a, str>,
    #[serde(borrow, default)]
    signal: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    outcome: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    time: Option<Cow<'a, str>>,
    /// The line is about a GPU.
    #[serde(default)]
    gpu_index: Option<u32>,
}

impl Default for Reaps {
    fn default() -> Self {
        let zeros = |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), 0)).collect();
        Reaps {
            signals: zeros(&["SIGTERM", "SIGKILL"]),
            outcomes: zeros(&["ended", "survived", "failed"]),
            resets: zeros(&["reset", "failed"]),
            last: BTreeMap::new(),
        }
    }
}

impl Reaps {
    /// Returns the counts of an empty log.
    pub fn new() -> Self {
        Reaps::default()
    }

    /// Counts a line of an audit log; ignores a line that it cannot parse.
    pub fn add(&mut self, line: &str) {
        let Ok(line) = serde_json::from_str::<Line<'_>>(line) else { return };
        match (&*line.event, line.signal, line.outcome) {
            ("signal", Some(signal), _) => {
                count(&mut self.signals, &signal);
            }
            ("outcome", _, Some(outcome)) if line.gpu_index.is_some() => {
                count(&mut self.resets, &outcome);
            }
            ("outcome", _, Some(outcome)) if count(&mut self.outcomes, &outcome) => {
                let time = line.time.and_then(|time| time.parse::<jiff::Timestamp>().ok());
                if let Some(time) = time {
                    let last = self.last.entry(outcome.into_owned()).or_default();
                    *last = last.max(from_milli(time.as_millisecond().max(0).unsigned_abs()));
                }
            }
            _ => {}
        }
    }
}

/// Counts a name, and returns whether it is one of the counted ones.
fn count(counts: &mut BTreeMap<String, u64>, name: &str) -> bool {
    if let Some(count) = counts.get_mut(name) {
        *count += 1;
    } else if counts.len() < MOST_NAMES {
        counts.insert(name.to_owned(), 1);
    } else {
        return false;
    }
    true
}

pub(crate) fn add(reaps: &Reaps, metrics: &mut Metrics) {
    for (metric, label, counts) in [
        (Metric::ReapSignals, "signal", &reaps.signals),
        (Metric::ReapOutcomes, "outcome", &reaps.outcomes),
        (Metric::Resets, "outcome", &reaps.resets),
    ] {
        for (name, count) in counts {
            metrics.add(metric, [(label, name)], number(*count));
        }
    }
    for (outcome, at) in &reaps.last {
        metrics.add(Metric::ReapTimestamp, [("outcome", outcome)], *at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_outcomes_and_resets_are_counted_apart() {
        let mut reaps = Reaps::new();
        let lines = "\
            {\"schema\":1,\"time\":\"2026-11-21T01:04:43.000Z\",\"event\":\"signal\",\"signal\":\"SIGTERM\",\"pid\":7,\"name\":\"a\\u001b\",\"outcome\":null}\n\
            {\"schema\":1,\"time\":\"2026-11-21T01:04:53.500Z\",\"event\":\"outcome\",\"signal\":null,\"pid\":7,\"outcome\":\"survived\"}\n\
            {\"schema\":1,\"time\":\"2026-11-21T01:04:43.000Z\",\"event\":\"reset\",\"gpu_index\":0,\"outcome\":null}\n\
            {\"schema\":1,\"time\":\"2026-11-21T01:04:43.000Z\",\"event\":\"outcome\",\"gpu_index\":0,\"outcome\":\"reset\"}\n\
            {\"torn\":\n\
            [[[[\n\
            {\"event\":7}\n";
        lines.lines().for_each(|line| reaps.add(line));
        let mut metrics = Metrics::default();
        add(&reaps, &mut metrics);
        let value = |metric, label, name| metrics.value(metric, &[(label, name)]);
        assert_eq!(value(Metric::ReapSignals, "signal", "SIGTERM"), Some(1.0));
        assert_eq!(value(Metric::ReapSignals, "signal", "SIGKILL"), Some(0.0));
        assert_eq!(value(Metric::ReapOutcomes, "outcome", "survived"), Some(1.0));
        assert_eq!(value(Metric::ReapOutcomes, "outcome", "reset"), None);
        assert_eq!(value(Metric::Resets, "outcome", "reset"), Some(1.0));
        let at = value(Metric::ReapTimestamp, "outcome", "survived");
        assert_eq!(at, Some(1_795_223_093.5));
    }

    #[test]
    fn log_with_endless_names_is_bounded() {
        let mut reaps = Reaps::new();
        for number in 0..10_000 {
            reaps.add(&format!("{{\"event\":\"outcome\",\"outcome\":\"x{number}\",\"time\":\"1970-01-01T00:00:00Z\"}}"));
            reaps.add(&format!("{{\"event\":\"signal\",\"signal\":\"x{number}\"}}"));
        }
        let mut metrics = Metrics::default();
        add(&reaps, &mut metrics);
        assert_eq!(metrics.count(Metric::ReapOutcomes), MOST_NAMES);
        assert_eq!(metrics.count(Metric::ReapSignals), MOST_NAMES);
        assert!(metrics.count(Metric::ReapTimestamp) < MOST_NAMES);
    }
}
