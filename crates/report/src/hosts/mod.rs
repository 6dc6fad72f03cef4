//! The answers of several hosts, as one table or one list of findings.
//!
//! An answer is a JSON object from another machine, perhaps from another version of gpuws. Only the
//! displayed values are read from it; an answer without them is invalid. All text in it is hostile,
//! and lines of styled text escape it.

mod doctor;
pub mod run;
mod status;

pub use doctor::Diagnosed;
pub use status::Seen;

use crate::text::{Line, Tone, wrapped};
use crate::{Exit, json};
use gpu_fleet::{Answer, HostName, NoAnswer, Reply};
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// The hosts and their answers, with the displayed values as `T`.
pub struct Hosts<T> {
    hosts: Vec<(HostName, Result<Said<T>, NoAnswer>)>,
}

/// A host's answer.
struct Said<T> {
    reply: Reply,
    head: Head,
    shown: T,
}

/// A failure in an answer.
#[derive(Debug, Deserialize)]
struct What {
    what: String,
}

/// The common beginning of every answer.
#[derive(Debug, Deserialize)]
struct Head {
    origin: String,
    machine: Option<String>,
    driver_error: Option<What>,
}

impl Head {
    /// Returns a line that names a simulated machine; `None` for a real one.
    fn label(&self, host: &HostName) -> Option<Line> {
        let machine = self.machine.as_deref().unwrap_or_default();
        let label = || Line::new().plain(host).plain(": ").accent(&self.origin).plain(" machine ");
        (self.origin != "live").then(|| label().accent(machine))
    }
}

impl<T: DeserializeOwned> Hosts<T> {
    /// Reads the answers.
    pub fn of(answers: Vec<Answer>) -> Self {
        // Parse each separately: flattening one into the other would buffer fields that neither
        // has.
        let read = |reply: Reply| {
            let text = reply.object.get();
            match (serde_json::from_str(text), serde_json::from_str(text)) {
                (Ok(head), Ok(shown)) => Ok(Said { reply, head, shown }),
                (Err(error), _) | (_, Err(error)) => {
                    Err(NoAnswer::Unreadable(error.to_string().chars().take(200).collect()))
                }
            }
        };
        let hosts =
            answers.into_iter().map(|Answer { host, answer }| (host, answer.and_then(read)));
        Hosts { hosts: hosts.collect() }
    }
}

impl<T> Hosts<T> {
    /// Returns the exit code of the hosts that did not answer, and of those where gpuws could not
    /// observe: a deadline only if nothing else failed. `None` if every host answered.
    fn failure(&self) -> Option<Exit> {
        let failed = self.hosts.iter().filter_map(|(_, said)| match said {
            Ok(said) if said.reply.exit_code <= i32::from(Exit::Remains.code()) => None,
            Err(NoAnswer::TimedOut(_)) => Some(Exit::Deadline),
            Ok(said) if said.reply.exit_code == i32::from(Exit::Deadline.code()) => {
                Some(Exit::Deadline)
            }
            _ => Some(Exit::CannotObserve),
        });
        failed.reduce(|one, other| if one == Exit::Deadline { other } else { one })
    }

    /// Returns the object of `--json`.
    pub fn json(&self) -> json::Hosts<'_> {
        let hosts = self.hosts.iter().map(|(host, said)| {
            let said = said.as_ref().map(|said| (&*said.reply.object, said.reply.exit_code));
            json::hosts::Host::of(host, said)
        });
        json::Hosts {
            schema: json::Version,
            answered_count: self.answered().count(),
            hosts: hosts.collect(),
        }
    }

    fn answered(&self) -> impl Iterator<Item = (&HostName, &Said<T>)> {
        self.hosts.iter().filter_map(|(host, said)| Some((host, said.as_ref().ok()?)))
    }

    /// Returns lines for the hosts that did not answer.
    fn unanswered(&self, room: usize) -> Vec<Line> {
        let lines = self.hosts.iter().filter_map(|(host, said)| {
            let why = said.as_ref().err()?;
            let head = Line::new().accent(host).plain("  no answer: ");
            let mut lines = wrapped(head, Tone::Plain, &why.to_string(), room);
            let hint = |hint| wrapped(Line::new().dim("  hint: "), Tone::Dim, hint, room);
            lines.extend(why.remedy().into_iter().flat_map(hint));
            Some(lines)
        });
        lines.flatten().collect()
    }

    /// Formats `3 of 4 hosts answered`.
    fn summary(&self) -> Line {
        let (answered, all) = (self.answered().count(), self.hosts.len());
        let hosts = if all == 1 { "host" } else { "hosts" };
        let text = format!("{answered} of {all} {hosts} answered");
        if answered < all { Line::new().accent(text) } else { Line::new().plain(text) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::time::Duration;

    fn said(host: &str, exit_code: i32, more: &Value) -> Answer {
        let mut object = json!({ "schema": 1, "origin": "live", "machine": null,
            "driver_error": null, "gpus": [], "finding_count": 0, "findings": [],
            "unknown_users": [] });
        let more = more.as_object().unwrap().clone();
        object.as_object_mut().unwrap().extend(more);
        let object = serde_json::value::to_raw_value(&object).unwrap();
        Answer { host: host.parse().unwrap(), answer: Ok(Reply { object, exit_code }) }
    }

    fn silent(why: NoAnswer) -> Answer {
        Answer { host: "z".parse().unwrap(), answer: Err(why) }
    }

    fn text(lines: &[Line]) -> String {
        lines.iter().map(|line| format!("{}\n", line.text())).collect()
    }

    #[test]
    fn exit_code_says_whether_all_is_known() {
        let late = || silent(NoAnswer::TimedOut(Duration::from_secs(1)));
        let fine = || said("a", 0, &json!({}));
        let finding = json!({ "findings": [{ "kind": "ghost", "confidence": "high", "gpus": [],
            "memory_bytes": null, "suspects": [], "evidence": [], "next": [] }] });
        for (answers, status, doctor) in [
            (vec![fine()], Exit::Done, Exit::Done),
            (vec![fine(), said("b", 1, &finding)], Exit::Done, Exit::Remains),
            (vec![said("b", 1, &finding), late()], Exit::Deadline, Exit::Deadline),
            (vec![late(), silent(NoAnswer::NoProgram)], Exit::CannotObserve, Exit::CannotObserve),
            (vec![silent(NoAnswer::NoProgram), late()], Exit::CannotObserve, Exit::CannotObserve),
            (vec![fine(), said("b", 3, &json!({}))], Exit::CannotObserve, Exit::CannotObserve),
        ] {
            assert_eq!(Hosts::<Seen>::of(answers.clone()).exit(), status, "{answers:?}");
            assert_eq!(Hosts::<Diagnosed>::of(answers.clone()).exit(), doctor, "{answers:?}");
        }
    }

    #[test]
    fn answer_without_the_shown_values_is_none() {
        let hosts = Hosts::<Seen>::of(vec![said("a", 0, &json!({ "gpus": "none" }))]);
        assert_eq!(hosts.exit(), Exit::CannotObserve);
        assert!(text(&hosts.lines(80)).starts_with("a  no answer: its answer cannot be read"));
        let told = serde_json::to_value(hosts.json()).unwrap();
        assert_eq!(told["hosts"][0]["error"]["kind"], "unreadable");
        assert_eq!(told["hosts"][0]["answer"], Value::Null);
    }

    #[test]
    fn long_name_of_a_host_leaves_room_for_its_gpus() {
        let gpu = json!({ "index": 5, "name": "NVIDIA A100-SXM4-80GB", "temperature_c": 56,
            "utilization_percent": 98, "memory_used_bytes": 71_u64 << 30,
            "memory_total_bytes": 80_u64 << 30, "free": true, "defects": [], "leases": null,
            "processes": [], "error": null });
        let host = "gpu01.very-long-department.institute.university.example";
        let hosts = Hosts::<Seen>::of(vec![said(host, 0, &json!({ "gpus": [gpu] }))]);
        let told = text(&hosts.lines(80));
        let row = "gpu01.very-long-dep…    5  NVIDIA A100-SXM4-80GB  56 °C  98 %  71.0/80.0 GiB";
        assert!(told.contains(row), "{told}");
        assert!(text(&hosts.lines(usize::MAX)).contains(host), "whole where there is room");
    }

    #[test]
    fn lines_escape_host_text_and_fit_the_width() {
        let evil = "\u{1b}[2J\u{202e}\n".repeat(50);
        let gpu = json!({ "index": u32::MAX, "name": evil, "temperature_c": -1,
            "utilization_percent": 255, "memory_used_bytes": u64::MAX, "memory_total_bytes": 0,
            "free": false, "defects": [evil], "leases": [{ "user": evil }],
            "processes": [{ "pid": 1, "name": evil, "user": evil, "memory_bytes": u64::MAX,
            "listed": false, "role": evil }], "error": null });
        let answer = said("a", 0, &json!({ "gpus": [gpu], "origin": evil, "machine": evil }));
        let lines = Hosts::<Seen>::of(vec![answer]).lines(60);
        assert!(!text(&lines).contains(['\u{1b}', '\u{202e}']), "{}", text(&lines));
        assert_eq!(text(&lines).lines().count(), lines.len());
        let finding = json!({ "kind": evil, "confidence": evil, "gpus": [{ "index": 1 }],
            "memory_bytes": u64::MAX, "evidence": [evil], "next": [{ "command": "'; reboot; '" }],
            "suspects": [{ "pid": 1, "name": evil, "user": null, "evidence": [evil] }] });
        let answer = said("a", 1, &json!({ "findings": [finding] }));
        let told = text(&Hosts::<Diagnosed>::of(vec![answer]).lines(60));
        assert!(!told.contains(['\u{1b}', '\u{202e}']), "{told}");
        assert!(told.contains(r"ssh a ''\''; reboot; '\'''"), "{told}");
    }
}
