//! A user that only reads the leases, on request.

use super::broken;
use super::layout::Layout;
use gpu_core::{EntryKind, LeaseEntry, LeaseStore};
use serde_json::{Value, json};
use std::io::{BufRead, Write};

/// Answers each line of standard input with one line that has a reading.
///
/// The rule is `product`, or the name of a broken rule.
pub(crate) fn answer(layout: &Layout, rule: &str) {
    let locks = layout.locks();
    for line in std::io::stdin().lock().lines() {
        if line.is_err() {
            return;
        }
        let read = |kind| match rule {
            "product" => locks.entries(kind).map_err(|error| error.fault().text),
            broken => broken::entries(broken, layout, kind).map_err(|error| error.to_string()),
        };
        let reading = (|| {
            let attempts = read(EntryKind::Attempt)?;
            let leases = read(EntryKind::Lease)?;
            let waiters = read(EntryKind::Waiter)?;
            let kept: usize = attempts.iter().chain(&leases).map(size).sum();
            let [attempts, leases, waiters] = [attempts, leases, waiters].map(reported);
            Ok::<_, String>(json!({
                "attempts": attempts, "leases": leases, "waiters": waiters, "kept": kept,
            }))
        })();
        let reading = reading.unwrap_or_else(|error| json!({ "error": error }));
        if writeln!(std::io::stdout().lock(), "{reading}").is_err() {
            return;
        }
    }
}

/// Returns the number of bytes that device names take in an entry.
fn size(entry: &LeaseEntry) -> usize {
    let merged = entry.merged.as_ref().map_or(0, |merged| 4 * merged.names());
    merged + entry.devices.iter().map(|device| size_of_val(device) + device.0.len()).sum::<usize>()
}

fn reported(entries: Vec<LeaseEntry>) -> Vec<Value> {
    let one = |entry: &LeaseEntry| json!({ "id": entry.id, "owner": entry.owner, "devices": entry.devices });
    entries.iter().map(one).collect()
}
