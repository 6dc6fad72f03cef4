//! The log of all contenders, and its invariants.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// A claim and its grant.
#[derive(Clone)]
struct Request {
    process: String,
    count: usize,
    memory: Option<u64>,
    among: Vec<String>,
    devices: Vec<String>,
}

/// The state of all claims during the line-by-line reading of the log.
///
/// The line about the end of an entry is written before the end, even for a kill, so an entry
/// without such a line exists.
pub(crate) struct Reader {
    machine: BTreeMap<String, u64>,
    leases: BTreeMap<String, Request>,
    held: BTreeMap<String, Request>,
    waiters: BTreeMap<String, Request>,
    doomed: BTreeSet<String>,
    /// The queue at the time when a process drew its ticket.
    drawn: BTreeMap<String, BTreeSet<String>>,
    pub(crate) grants: usize,
    pub(crate) withdrawn: usize,
    pub(crate) waited: usize,
    pub(crate) passed: usize,
    pub(crate) violations: Vec<String>,
    pub(crate) disorder: Vec<String>,
}

impl Reader {
    /// Creates a reader for the log of a machine with these devices and their memory.
    pub(crate) fn new(machine: BTreeMap<String, u64>) -> Self {
        Reader {
            machine,
            leases: BTreeMap::new(),
            held: BTreeMap::new(),
            waiters: BTreeMap::new(),
            doomed: BTreeSet::new(),
            drawn: BTreeMap::new(),
            grants: 0,
            withdrawn: 0,
            waited: 0,
            passed: 0,
            violations: Vec::new(),
            disorder: Vec::new(),
        }
    }

    /// Processes a line.
    pub(crate) fn read(&mut self, line: &str) {
        let line: Value = serde_json::from_str(line).expect("each line is JSON");
        let process = line["process"].as_str().expect("each line names a process").to_owned();
        if line["event"] == "kill" {
            for all in [&mut self.leases, &mut self.held, &mut self.waiters] {
                all.retain(|_, request| request.process != process);
            }
            self.doomed.insert(process);
            return;
        }
        if self.doomed.contains(&process) {
            // This was its last action before the signal arrived.
            return;
        }
        if line["event"] == "draw" {
            self.drawn.insert(process, self.waiters.keys().cloned().collect());
            return;
        }
        let names = |field: &str| -> Vec<String> {
            let list = line[field].as_array().expect("the field is a list");
            list.iter().map(|name| name.as_str().expect("the field is a name").to_owned()).collect()
        };
        let request = Request {
            process,
            count: line["count"]
                .as_u64()
                .and_then(|n| n.try_into().ok())
                .expect("the field is a count"),
            memory: line["memory"].as_u64(),
            among: names("among"),
            devices: names("devices"),
        };
        let id = line["id"].as_str().expect("each line has an ID").to_owned();
        match line["event"].as_str().expect("each line has an event") {
            "queue" => {
                self.waited += 1;
                self.waiters.insert(id, request);
            }
            "leave" => {
                self.waiters.remove(&id);
            }
            "lease" => {
                self.waiters.remove(&id);
                // A claim that does not wait may take devices that the waiting claims leave.
                if line["waits"] == true {
                    self.check_order(&id, &request);
                }
                self.leases.insert(id, request);
            }
            "hold" => {
                self.grants += 1;
                for device in &request.devices {
                    self.check_device(&id, device, &request);
                }
                self.held.insert(id, request);
            }
            "drop" => {
                self.held.remove(&id);
                self.leases.remove(&id);
            }
            "withdraw" => self.withdrawn += 1,
            "end" => {
                self.leases.remove(&id);
            }
            event => panic!("'{event}' is unknown"),
        }
    }

    /// Checks that no other claim has the device, or that all claims together do not exceed its
    /// memory.
    fn check_device(&mut self, id: &str, device: &str, request: &Request) {
        let others: Vec<&Request> = self
            .held
            .values()
            .filter(|held| held.devices.iter().any(|name| name == device))
            .collect();
        let room = self.room(others.iter().copied(), device);
        if !request.fits(room, others.is_empty()) {
            self.violations.push(format!("{id} got {device}, which was not free"));
        }
    }

    /// Checks that no claim with the same request that was queued before this one drew its ticket
    /// is still waiting: of equal claims, the earliest is served first.
    fn check_order(&mut self, id: &str, request: &Request) {
        for earlier in self.drawn.remove(&request.process).unwrap_or_default() {
            let Some(waiter) = self.waiters.get(&earlier) else { continue };
            self.passed += 1;
            let same = (waiter.count, waiter.memory, &waiter.among);
            if same == (request.count, request.memory, &request.among) {
                self.disorder.push(format!("{id} was served before {earlier}, its equal"));
            }
        }
    }

    /// Returns the memory left by shares; `None` if there is a whole lease.
    fn room<'a>(&self, others: impl Iterator<Item = &'a Request>, device: &str) -> Option<u64> {
        others.map(|other| other.memory).try_fold(self.machine[device], |room, memory| {
            memory.and_then(|memory| room.checked_sub(memory))
        })
    }
}

impl Request {
    fn fits(&self, room: Option<u64>, alone: bool) -> bool {
        match self.memory {
            None => alone,
            Some(memory) => room.is_some_and(|room| memory <= room),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(event: &str, id: &str, ticket: u64, memory: Option<u64>, devices: &[&str]) -> String {
        let line = serde_json::json!({
            "event": event, "process": id, "id": id, "ticket": ticket, "memory": memory,
            "count": 2, "among": [], "devices": devices, "waits": true,
        });
        line.to_string()
    }

    fn violations(lines: &[String]) -> Vec<String> {
        let machine = ["a", "b", "c"].map(|name| (name.to_owned(), 100)).into();
        let mut reader = Reader::new(machine);
        lines.iter().for_each(|line| reader.read(line));
        [reader.violations, reader.disorder].concat()
    }

    #[test]
    fn double_grant_is_detected() {
        let second = line("hold", "2", 2, None, &["b"]);
        let seen = violations(&[line("hold", "1", 1, None, &["a", "b"]), second.clone()]);
        assert_eq!(seen, ["2 got b, which was not free"]);
        let first = line("hold", "1", 1, None, &["a", "b"]);
        let gone = line("drop", "1", 1, None, &["a", "b"]);
        assert!(violations(&[first.clone(), gone, second.clone()]).is_empty());
        let killed = serde_json::json!({"event": "kill", "process": "1"}).to_string();
        assert!(violations(&[first, killed, second]).is_empty());
    }

    #[test]
    fn shares_exceeding_memory_are_detected() {
        let share = |id, ticket, memory| line("hold", id, ticket, Some(memory), &["a"]);
        assert!(violations(&[share("1", 1, 60), share("2", 2, 40)]).is_empty());
        assert_eq!(violations(&[share("1", 1, 60), share("2", 2, 41)]).len(), 1);
        assert_eq!(violations(&[share("1", 1, 60), line("hold", "2", 2, None, &["a"])]).len(), 1);
        assert_eq!(violations(&[line("hold", "2", 2, None, &["a"]), share("1", 1, 60)]).len(), 1);
    }

    #[test]
    fn equal_claims_served_out_of_order_are_detected() {
        let waits = line("queue", "1", 1, None, &[]);
        let draw = serde_json::json!({"event": "draw", "process": "2"}).to_string();
        let granted = line("lease", "2", 2, None, &["a"]);
        let seen = violations(&[waits.clone(), draw.clone(), granted.clone()]);
        assert_eq!(seen, ["2 was served before 1, its equal"]);
        let left = line("leave", "1", 1, None, &[]);
        assert!(violations(&[waits.clone(), draw.clone(), left, granted.clone()]).is_empty());
        assert!(
            violations(&[draw.clone(), waits.clone(), granted]).is_empty(),
            "it joined the queue later"
        );
        let other = line("lease", "2", 2, Some(7), &["a"]);
        assert!(violations(&[waits, draw, other]).is_empty());
    }
}
