//! The log of all contenders, and what must hold of it.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Who is known to have asked for, and got, what.
#[derive(Clone)]
struct Asked {
    process: String,
    ticket: u64,
    count: usize,
    memory: Option<u64>,
    among: Vec<String>,
    devices: Vec<String>,
}

/// The state of all claims while the log is read line by line.
///
/// A line about an end is written before it, one about a kill as well: what has neither is there.
pub(crate) struct Reader {
    machine: BTreeMap<String, u64>,
    leases: BTreeMap<String, Asked>,
    held: BTreeMap<String, Asked>,
    waiters: BTreeMap<String, Asked>,
    doomed: BTreeSet<String>,
    pub(crate) grants: usize,
    pub(crate) withdrawn: usize,
    pub(crate) waited: usize,
    pub(crate) passed: usize,
    pub(crate) violations: Vec<String>,
}

impl Reader {
    /// Returns a reader of the log of a machine with these devices and their memory.
    pub(crate) fn new(machine: BTreeMap<String, u64>) -> Self {
        Reader {
            machine,
            leases: BTreeMap::new(),
            held: BTreeMap::new(),
            waiters: BTreeMap::new(),
            doomed: BTreeSet::new(),
            grants: 0,
            withdrawn: 0,
            waited: 0,
            passed: 0,
            violations: Vec::new(),
        }
    }

    /// Reads a line. `ordered` says whether claims have to be served in order.
    pub(crate) fn read(&mut self, line: &str, ordered: bool) {
        let line: Value = serde_json::from_str(line).expect("a line is JSON");
        let process = line["process"].as_str().expect("a line names a process").to_owned();
        if line["event"] == "kill" {
            for all in [&mut self.leases, &mut self.held, &mut self.waiters] {
                all.retain(|_, asked| asked.process != process);
            }
            self.doomed.insert(process);
            return;
        }
        if self.doomed.contains(&process) {
            // What it did in the moment before the signal came.
            return;
        }
        let names = |field: &str| -> Vec<String> {
            let list = line[field].as_array().expect("it is a list");
            list.iter().map(|name| name.as_str().expect("it is a name").to_owned()).collect()
        };
        let asked = Asked {
            process,
            ticket: line["ticket"].as_u64().expect("it is a number"),
            count: line["count"].as_u64().and_then(|n| n.try_into().ok()).expect("it is a count"),
            memory: line["memory"].as_u64(),
            among: names("among"),
            devices: names("devices"),
        };
        let id = line["id"].as_str().expect("it has an id").to_owned();
        match line["event"].as_str().expect("it has an event") {
            "queue" => {
                self.waited += 1;
                self.waiters.insert(id, asked);
            }
            "leave" => {
                self.waiters.remove(&id);
            }
            "lease" => {
                self.waiters.remove(&id);
                if ordered {
                    self.check_order(&id, &asked);
                }
                self.leases.insert(id, asked);
            }
            "hold" => {
                self.grants += 1;
                for device in &asked.devices {
                    self.check_device(&id, device, &asked);
                }
                self.held.insert(id, asked);
            }
            "drop" => {
                self.held.remove(&id);
                self.leases.remove(&id);
            }
            "end" => {
                self.withdrawn += usize::from(self.leases.remove(&id).is_some());
            }
            event => panic!("'{event}' is unknown"),
        }
    }

    /// Nobody else has the device, or all of them together have no more than its memory.
    fn check_device(&mut self, id: &str, device: &str, asked: &Asked) {
        let others: Vec<&Asked> = self
            .held
            .values()
            .filter(|held| held.devices.iter().any(|name| name == device))
            .collect();
        let room = self.room(others.iter().copied(), device);
        if !asked.fits(room, others.is_empty()) {
            self.violations.push(format!("{id} got {device}, which was not free"));
        }
    }

    /// Who came earlier and still waits could not use any of these devices, or has enough others.
    fn check_order(&mut self, id: &str, asked: &Asked) {
        for (earlier_id, earlier) in &self.waiters {
            let before = (earlier.ticket, earlier_id.as_str()) < (asked.ticket, id);
            if !before {
                continue;
            }
            self.passed += 1;
            let could: Vec<&str> = self.could_use(earlier).collect();
            if !could.iter().any(|device| asked.devices.iter().any(|own| own == device)) {
                continue;
            }
            let free = could.iter().filter(|device| {
                let others = self.leases.values().chain([asked]);
                let others: Vec<&Asked> =
                    others.filter(|lease| lease.devices.iter().any(|own| own == *device)).collect();
                let room = self.room(others.iter().copied(), device);
                earlier.fits(room, others.is_empty())
            });
            if free.count() < earlier.count {
                self.violations.push(format!("{id} took what {earlier_id} waits for"));
            }
        }
    }

    fn could_use<'a>(&'a self, asked: &'a Asked) -> impl Iterator<Item = &'a str> {
        self.machine
            .keys()
            .map(String::as_str)
            .filter(|name| asked.among.is_empty() || asked.among.iter().any(|own| own == name))
    }

    /// Memory that is left beside shares; none beside a whole lease.
    fn room<'a>(&self, others: impl Iterator<Item = &'a Asked>, device: &str) -> Option<u64> {
        others.map(|other| other.memory).try_fold(self.machine[device], |room, memory| {
            memory.and_then(|memory| room.checked_sub(memory))
        })
    }
}

impl Asked {
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
            "count": 2, "among": [], "devices": devices,
        });
        line.to_string()
    }

    fn violations(lines: &[String]) -> Vec<String> {
        let machine = ["a", "b", "c"].map(|name| (name.to_owned(), 100)).into();
        let mut reader = Reader::new(machine);
        lines.iter().for_each(|line| reader.read(line, true));
        reader.violations
    }

    #[test]
    fn a_double_grant_is_seen() {
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
    fn shares_above_the_memory_are_seen() {
        let share = |id, ticket, memory| line("hold", id, ticket, Some(memory), &["a"]);
        assert!(violations(&[share("1", 1, 60), share("2", 2, 40)]).is_empty());
        assert_eq!(violations(&[share("1", 1, 60), share("2", 2, 41)]).len(), 1);
        assert_eq!(violations(&[share("1", 1, 60), line("hold", "2", 2, None, &["a"])]).len(), 1);
        assert_eq!(violations(&[line("hold", "2", 2, None, &["a"]), share("1", 1, 60)]).len(), 1);
    }

    #[test]
    fn a_later_claim_that_takes_what_an_earlier_one_lacks_is_seen() {
        let waits = line("queue", "1", 1, None, &[]);
        let first = line("lease", "2", 2, None, &["a"]);
        let second = line("lease", "3", 3, None, &["b"]);
        assert!(violations(&[waits.clone(), first.clone()]).is_empty(), "two are left for it");
        let seen = violations(&[waits, first, second]);
        assert_eq!(seen, ["3 took what 1 waits for"]);
    }
}
