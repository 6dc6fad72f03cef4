//! Checks the invariants against the reports of honest processes, without any code of the library.

use super::layout::TOTAL;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The maximum memory that a reader may use for names written by other users, in bytes.
const MOST_KEPT: u64 = 2 << 20;

/// A lease that an honest process holds.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Hold {
    participant: String,
    owner: u64,
    devices: BTreeSet<String>,
    /// `None` for whole devices.
    memory: Option<u64>,
    within: Option<String>,
}

/// The reports of honest processes, and the violations in them.
#[derive(Debug, Default)]
pub(crate) struct Oracle {
    holds: BTreeMap<String, Hold>,
    /// All entries made by honest users, with their devices; a repeated attempt may have different
    /// devices.
    made: BTreeMap<(u64, String), BTreeSet<BTreeSet<String>>>,
    killed: BTreeSet<String>,
    /// The number of leases granted, including leases taken out of another lease.
    pub(crate) grants: u64,
    /// The number of claims that each process has started.
    pub(crate) asked: BTreeMap<String, u64>,
    /// The number of entries of other users that the readers saw.
    pub(crate) foreign: u64,
    pub(crate) violations: Vec<String>,
}

/// An honest lease, by owner and ID.
pub(crate) type Name = (u64, String);

impl Oracle {
    /// Processes a line of an honest process.
    pub(crate) fn hear(&mut self, line: &Value) {
        let participant = line["participant"].as_str().unwrap_or_default().to_owned();
        if self.killed.contains(&participant) {
            // The process wrote this after the test had recorded the decision to kill it.
            if line["event"] == "publish" {
                self.make(&line["more"]);
            }
            return;
        }
        match line["event"].as_str().unwrap_or_default() {
            "ask" => *self.asked.entry(participant).or_default() += 1,
            "publish" => self.make(&line["more"]),
            "hold" => self.hold(participant, &line["more"]),
            "drop" => {
                let id = text(&line["more"]["id"]);
                if self.holds.remove(&id).is_none() {
                    self.violations
                        .push(format!("{participant} released {id}, which it did not have"));
                }
            }
            "kill" => {
                self.holds.retain(|_, hold| hold.participant != participant);
                self.killed.insert(participant);
            }
            "refused" => {}
            other => self.violations.push(format!("{participant} {other}: {}", line["more"])),
        }
    }

    fn make(&mut self, entry: &Value) {
        let name = (entry["owner"].as_u64().unwrap_or(u64::MAX), text(&entry["id"]));
        self.made.entry(name).or_default().insert(devices(entry));
    }

    fn hold(&mut self, participant: String, entry: &Value) {
        self.grants += 1;
        let id = text(&entry["id"]);
        let hold = Hold {
            participant,
            owner: entry["owner"].as_u64().unwrap_or(u64::MAX),
            devices: devices(entry),
            memory: entry["memory"].as_u64(),
            within: entry["within"]["id"].as_str().or(entry["within"].as_str()).map(str::to_owned),
        };
        if let Some(outer) = &hold.within {
            let is_inside = self.holds.get(outer).is_some_and(|outer| {
                outer.participant == hold.participant && hold.devices.is_subset(&outer.devices)
            });
            if !is_inside {
                self.violations.push(format!("{id} is not inside of {outer}: {hold:?}"));
            }
        }
        self.holds.insert(id, hold);
        let devices: BTreeSet<&String> = self.holds.values().flat_map(|h| &h.devices).collect();
        let double: Vec<String> =
            devices.into_iter().filter_map(|device| self.conflict(device)).collect();
        self.violations.extend(double);
    }

    /// Returns the conflict between the honest leases on a device, if any.
    fn conflict(&self, device: &str) -> Option<String> {
        let on =
            |(_, hold): &(&String, &Hold)| hold.within.is_none() && hold.devices.contains(device);
        let on: Vec<(&String, &Hold)> = self.holds.iter().filter(on).collect();
        let whole = on.iter().any(|(_, hold)| hold.memory.is_none());
        let shared: u64 = on.iter().filter_map(|(_, hold)| hold.memory).sum();
        let wrong = whole && on.len() > 1 || shared > TOTAL;
        wrong.then(|| format!("{device} is granted twice: {on:?}"))
    }

    /// Returns the living honest leases.
    pub(crate) fn living(&self) -> BTreeSet<Name> {
        self.holds.iter().map(|(id, hold)| (hold.owner, id.clone())).collect()
    }

    /// Checks the view of a reader: each entry of an honest user was made by this user, and each
    /// lease that lived throughout is present.
    pub(crate) fn judge(
        &mut self,
        reader: &str,
        honest: &[u64],
        seen: &Value,
        lived: &BTreeSet<Name>,
    ) {
        if let Some(error) = seen["error"].as_str() {
            self.violations.push(format!("{reader} cannot read the leases: {error}"));
            return;
        }
        let kept = seen["kept"].as_u64().unwrap_or(0);
        if kept > MOST_KEPT {
            self.violations.push(format!("{reader} keeps {kept} bytes of names of devices"));
        }
        let mut leases = BTreeSet::new();
        for kind in ["attempts", "leases", "waiters"] {
            for entry in seen[kind].as_array().map(Vec::as_slice).unwrap_or_default() {
                let name = (entry["owner"].as_u64().unwrap_or(u64::MAX), text(&entry["id"]));
                if kind == "leases" {
                    leases.insert(name.clone());
                }
                if !honest.contains(&name.0) {
                    self.foreign += 1;
                    continue;
                }
                let is_made = self
                    .made
                    .get(&name)
                    .is_some_and(|made| kind == "waiters" || made.contains(&devices(entry)));
                if !is_made {
                    let what = format!(
                        "{reader} sees {entry} among the {kind}, which user {} did not make",
                        name.0
                    );
                    self.violations.push(what);
                }
            }
        }
        for (owner, id) in lived.difference(&leases) {
            self.violations.push(format!("{reader} does not see lease {id} of user {owner}"));
        }
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn devices(entry: &Value) -> BTreeSet<String> {
    entry["devices"].as_array().into_iter().flatten().map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn reported(event: &str, participant: &str, more: Value) -> Value {
        json!({ "event": event, "participant": participant, "more": more })
    }

    fn lease(id: &str, memory: Option<u64>, devices: &[&str]) -> Value {
        json!({ "id": id, "owner": 0, "devices": devices, "memory": memory, "within": null })
    }

    fn violations(lines: &[Value]) -> usize {
        let mut oracle = Oracle::default();
        lines.iter().for_each(|line| oracle.hear(line));
        oracle.violations.len()
    }

    #[test]
    fn device_granted_twice_is_a_violation() {
        let hold = |participant: &str, memory| {
            reported("hold", participant, lease(participant, memory, &["a"]))
        };
        assert_eq!(violations(&[hold("1", None), hold("2", None)]), 1);
        assert_eq!(violations(&[hold("1", None), hold("2", Some(1))]), 1);
        assert_eq!(violations(&[hold("1", Some(TOTAL)), hold("2", Some(1))]), 1);
        assert_eq!(violations(&[hold("1", Some(TOTAL / 2)), hold("2", Some(TOTAL / 2))]), 0);
        let ended = reported("drop", "1", lease("1", None, &["a"]));
        assert_eq!(violations(&[hold("1", None), ended, hold("2", None)]), 0);
        let killed = reported("kill", "1", Value::Null);
        assert_eq!(violations(&[hold("1", None), killed.clone(), hold("2", None)]), 0);
        assert_eq!(
            violations(&[killed, hold("1", None), hold("2", None)]),
            0,
            "after the kill was recorded"
        );
    }

    #[test]
    fn unowned_and_hidden_leases_are_violations() {
        let judged = |seen: Value| {
            let mut oracle = Oracle::default();
            oracle.hear(&reported("publish", "1", lease("x", None, &["a"])));
            oracle.hear(&reported("hold", "1", lease("x", None, &["a"])));
            let lived = oracle.living();
            oracle.judge("root", &[0], &seen, &lived);
            oracle.violations.len()
        };
        let seen = |leases: &[Value]| json!({ "attempts": [], "leases": leases, "waiters": [] });
        let own = lease("x", None, &["a"]);
        assert_eq!(judged(seen(std::slice::from_ref(&own))), 0);
        assert_eq!(judged(seen(&[])), 1);
        assert_eq!(judged(seen(&[own.clone(), lease("y", None, &["a"])])), 1);
        assert_eq!(judged(seen(&[lease("x", None, &["b"])])), 1);
        let mut foreign = lease("y", None, &["a"]);
        foreign["owner"] = json!(7);
        assert_eq!(judged(seen(&[own.clone(), foreign])), 0);
        assert_eq!(judged(json!({ "error": "no" })), 1);
        let mut large = seen(std::slice::from_ref(&own));
        large["kept"] = json!(MOST_KEPT + 1);
        assert_eq!(judged(large), 1);
    }

    #[test]
    fn failed_or_starved_claim_is_a_violation() {
        assert_eq!(violations(&[reported("failed", "1", json!({ "error": "no" }))]), 1);
        assert_eq!(violations(&[reported("starved", "1", Value::Null)]), 1);
        assert_eq!(
            violations(&[reported("ask", "1", Value::Null), reported("refused", "1", Value::Null)]),
            0
        );
    }
}
