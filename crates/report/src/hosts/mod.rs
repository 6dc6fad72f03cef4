//! The answers of several hosts, as one table or one list of findings.
//!
//! An answer is a JSON object from another machine, perhaps from another version of gpuws. Only the
//! displayed values are read from it; an answer without them is invalid. All text in it is hostile,
//! and lines of styled text escape it.

mod doctor;
mod few;
mod leases;
pub mod run;
mod status;

pub use doctor::Diagnosed;
pub use leases::Claims;
pub use status::Seen;

use crate::text::{Line, Tone, wrapped};
use crate::{Exit, json};
use gpu_fleet::{Answer, HostName, NoAnswer, Reply};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::time::Duration;

/// The hosts and their answers, with the displayed values as `T`.
pub struct Hosts<T> {
    hosts: Vec<Host<T>>,
}

/// A host, its last answer with the time of its arrival, and why it has not answered since.
struct Host<T> {
    name: HostName,
    said: Option<(Said<T>, Duration)>,
    error: Option<NoAnswer>,
}

/// A host's answer.
struct Said<T> {
    reply: Reply,
    head: Head,
    shown: T,
}

/// The most rows of a host that are shown.
const ROWS: usize = 1024;
/// The most parts of a row that are read.
const PARTS: usize = 64;

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
        let label = || Line::new().plain(host).plain(": ").accent(&self.origin).plain(" machine");
        (self.origin != "live").then(|| label().accent(format!(" {machine}").trim_end()))
    }
}

impl<T: DeserializeOwned> Hosts<T> {
    /// Reads the answers.
    pub fn of(answers: Vec<Answer>) -> Self {
        let hosts = answers.into_iter().map(|Answer { host, answer }| {
            let mut host = Host { name: host, said: None, error: None };
            host.hear(answer, Duration::ZERO);
            host
        });
        Hosts { hosts: hosts.collect() }
    }

    /// Returns hosts that have not answered yet.
    pub fn asked(names: &[HostName]) -> Self {
        let host = |name: &HostName| Host { name: name.clone(), said: None, error: None };
        Hosts { hosts: names.iter().map(host).collect() }
    }

    /// Replaces the answer of a host. Without an answer, the last one stays, with the reason. `at` is
    /// the arrival time on the monotonic clock.
    pub fn hear(&mut self, Answer { host, answer }: Answer, at: Duration) {
        if let Some(known) = self.hosts.iter_mut().find(|known| known.name == host) {
            known.hear(answer, at);
        }
    }
}

impl<T: DeserializeOwned> Host<T> {
    fn hear(&mut self, answer: Result<Reply, NoAnswer>, at: Duration) {
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
        match answer.and_then(read) {
            Ok(said) => (self.said, self.error) = (Some((said, at)), None),
            Err(why) => self.error = Some(why),
        }
    }
}

impl<T> Hosts<T> {
    /// Returns the exit code of the hosts that did not answer, and of those where gpuws could not
    /// observe: a deadline only if nothing else failed. `None` if every host answered.
    fn failure(&self) -> Option<Exit> {
        let failed = self.hosts.iter().filter_map(|host| match host.answer()? {
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
        let hosts = self.hosts.iter().filter_map(|host| {
            let said = host.answer()?.map(|said| (&*said.reply.object, said.reply.exit_code));
            Some(json::hosts::Host::of(&host.name, said))
        });
        json::Hosts {
            schema: json::Version,
            answered_count: self.answered_count(),
            hosts: hosts.collect(),
        }
    }

    /// Returns the hosts with an answer, even if it is not the last one.
    fn answered(&self) -> impl Iterator<Item = (&HostName, &Said<T>)> {
        self.hosts.iter().filter_map(|host| Some((&host.name, &host.said.as_ref()?.0)))
    }

    fn answered_count(&self) -> usize {
        self.hosts.iter().filter(|host| matches!(host.answer(), Some(Ok(_)))).count()
    }

    /// Returns lines for the hosts that did not answer.
    fn unanswered(&self, room: usize) -> Vec<Line> {
        let lines = self.hosts.iter().filter_map(|host| {
            let why = host.error.as_ref()?;
            let head = Line::new().accent(&host.name).plain("  no answer: ");
            let mut lines = wrapped(head, Tone::Plain, &why.to_string(), room);
            let hint = |hint| wrapped(Line::new().dim("  hint: "), Tone::Dim, hint, room);
            lines.extend(why.remedy().into_iter().flat_map(hint));
            Some(lines)
        });
        lines.flatten().collect()
    }

    /// Returns lines for the hosts with more rows than are shown.
    fn left_out(&self, count: impl Fn(&T) -> usize, room: usize) -> Vec<Line> {
        let counts = self.answered().map(|(host, said)| (host, count(&said.shown)));
        let lines = counts.filter(|(_, count)| *count > 0).flat_map(|(host, count)| {
            let head = Line::new().plain(host).plain(": ");
            wrapped(head, Tone::Accent, &format!("{count} more rows are not shown"), room)
        });
        lines.collect()
    }

    /// Formats `3 of 4 hosts answered`.
    fn summary(&self) -> Line {
        let (answered, all) = (self.answered_count(), self.hosts.len());
        let hosts = if all == 1 { "host" } else { "hosts" };
        let text = format!("{answered} of {all} {hosts} answered");
        if answered < all { Line::new().accent(text) } else { Line::new().plain(text) }
    }
}

impl<T> Host<T> {
    /// Returns the last answer, or why there is none; `None` before it.
    fn answer(&self) -> Option<Result<&Said<T>, &NoAnswer>> {
        match (&self.error, &self.said) {
            (Some(why), _) => Some(Err(why)),
            (None, said) => said.as_ref().map(|(said, _)| Ok(said)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

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
        let output = serde_json::to_value(hosts.json()).unwrap();
        assert_eq!(output["hosts"][0]["error"]["kind"], "unreadable");
        assert_eq!(output["hosts"][0]["answer"], Value::Null);
    }

    #[test]
    fn long_name_of_a_host_leaves_room_for_its_gpus() {
        let gpu = json!({ "index": 5, "name": "NVIDIA A100-SXM4-80GB", "temperature_c": 56,
            "utilization_percent": 98, "memory_used_bytes": 71_u64 << 30,
            "memory_total_bytes": 80_u64 << 30, "free": true, "defects": [], "leases": null,
            "processes": [], "error": null });
        let host = "gpu01.very-long-department.institute.university.example";
        let hosts = Hosts::<Seen>::of(vec![said(host, 0, &json!({ "gpus": [gpu] }))]);
        let output = text(&hosts.lines(80));
        let row = "gpu01.very-long-dep…    5  NVIDIA A100-SXM4-80GB  56 °C  98 %  71.0/80.0 GiB";
        assert!(output.contains(row), "{output}");
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
        let output = text(&Hosts::<Diagnosed>::of(vec![answer]).lines(60));
        assert!(!output.contains(['\u{1b}', '\u{202e}']), "{output}");
        assert!(output.contains(r"ssh a ''\''; reboot; '\'''"), "{output}");
    }

    fn claim(more: &Value) -> Value {
        let mut claim = json!({ "id": "1-a", "user": "alice", "uid": 1000, "pid": 71,
            "alive": true, "command": "python train.py", "since": "2025-03-03T08:00:00.000Z",
            "count": 2, "share_bytes": null, "within": null });
        claim.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        claim
    }

    #[test]
    fn leases_and_claims_of_hosts_are_one_table() {
        let gpu = |index: u32| json!({ "index": index, "uuid": null });
        let whole = claim(&json!({ "gpus": [gpu(3), gpu(0), gpu(0)], "unseen_gpus": ["GPU-a"] }));
        let part = claim(&json!({ "gpus": [], "unseen_gpus": ["GPU-b", "GPU-c"], "alive": false,
            "share_bytes": 3_u64 << 30, "lease_count": 4 }));
        let waits = claim(&json!({ "user": "bob", "ahead_count": 1, "is_stopped": false }));
        let stopped = claim(&json!({ "user": "eve", "ahead_count": 0, "is_stopped": true }));
        let queue = [waits, stopped];
        // An earlier version, which prints no time, on a simulated machine.
        let old = json!({ "leases": [claim(&json!({ "gpus": [gpu(1)] }))], "queue": [],
            "origin": "simulated" });
        let hosts = Hosts::<Claims>::of(vec![
            said(
                "a",
                0,
                &json!({ "leases": [whole, part], "queue": queue,
                "taken_at": "2025-03-03T10:00:00.000Z" }),
            ),
            said("b", 0, &old),
            said("c", 0, &json!({ "leases": [], "queue": [] })),
            silent(NoAnswer::NoProgram),
        ]);
        assert_eq!(hosts.exit(), Exit::CannotObserve);
        let output = "\
b: simulated machine
HOST  USER   GPUS                      SHARE  SINCE  PROCESS  COMMAND
a     alice  0, 3 and 1 not visible    whole    2 h       71  python train.py
      alice  2 not visible           3.0 GiB    2 h     71 ?  python train.py
      bob    waits: 2nd, 2 GPUs        whole    2 h       71  python train.py
      eve    waits: stopped, 2 GPUs    whole    2 h       71  python train.py
b     alice  1                         whole      –       71  python train.py
no leases and no waiting claims: c
z  no answer: gpuws not found
  hint: install gpuws there, in the PATH of: ssh HOST command -v gpuws
3 of 4 hosts answered  ·  6 leases  ·  2 claims waiting
";
        assert_eq!(text(&hosts.lines(100)), output);
        let hosts = Hosts::<Claims>::of(vec![said("c", 0, &json!({ "leases": [], "queue": [] }))]);
        let none = "no leases and no waiting claims: c\n\
                    1 of 1 host answered  ·  0 leases  ·  0 claims waiting\n";
        assert_eq!((text(&hosts.lines(100)).as_str(), hosts.exit()), (none, Exit::Done));
    }

    #[test]
    fn hostile_leases_are_escaped_and_bounded() {
        let evil = "\u{1b}[2J\u{202e}\n".repeat(50);
        let hostile = claim(&json!({ "user": evil, "command": evil, "since": evil,
            "pid": u32::MAX, "count": u32::MAX, "share_bytes": u64::MAX,
            "gpus": [{ "index": u32::MAX }], "lease_count": usize::MAX,
            "ahead_count": usize::MAX }));
        let late = claim(&json!({ "since": "9999-12-31T23:59:59Z" }));
        let more = json!({ "leases": [hostile, hostile, late], "queue": [hostile],
            "taken_at": "-9999-01-01T00:00:00Z" });
        let lines = Hosts::<Claims>::of(vec![said("a", 0, &more)]).lines(60);
        assert!(!text(&lines).contains(['\u{1b}', '\u{202e}']), "{}", text(&lines));
        assert_eq!(text(&lines).lines().count(), lines.len());
        assert!(lines.iter().all(|line| line.width() <= 60), "{}", text(&lines));
        let wrong = json!({ "leases": [{ "user": "alice" }], "queue": [] });
        let hosts = Hosts::<Claims>::of(vec![said("a", 0, &wrong)]);
        assert!(text(&hosts.lines(80)).starts_with("a  no answer: its answer cannot be read"));
    }

    #[test]
    fn age_grows_from_the_last_answer_on_and_a_failure_keeps_it() {
        let names: Vec<HostName> = ["a", "z", "slow"].map(|name| name.parse().unwrap()).into();
        let mut hosts = Hosts::<Seen>::asked(&names);
        let shown = |hosts: &Hosts<Seen>, seconds| {
            let (summary, lines) = hosts.lines_at(Duration::from_secs(seconds), 80);
            format!("{}\n{}", summary.text(), text(&lines))
        };
        let nothing = "0 of 3 hosts answered  ·  0 GPUs, 0 free\n\
                       a  asking …\nz  asking …\nslow  asking …\n";
        assert_eq!(shown(&hosts, 9), nothing);
        let gpu = |index: u32, free| {
            json!({ "index": index, "name": "GPU", "temperature_c": 56,
            "utilization_percent": 98, "memory_used_bytes": 1_u64 << 30,
            "memory_total_bytes": 80_u64 << 30, "free": free, "defects": [], "leases": null,
            "processes": [], "error": null })
        };
        let both = json!({ "gpus": [gpu(0, true), gpu(1, false)] });
        hosts.hear(said("a", 0, &both), Duration::from_secs(10));
        hosts.hear(silent(NoAnswer::TooMuch), Duration::from_secs(11));
        // This host was not asked.
        hosts.hear(said("b", 0, &both), Duration::from_secs(11));
        let one = "\
1 of 3 hosts answered  ·  2 GPUs, 1 free
HOST  AGE  GPU  NAME   TEMP  UTIL        MEMORY  USED BY
a     5 s    0  GPU   56 °C  98 %  1.0/80.0 GiB  free
             1  GPU   56 °C  98 %  1.0/80.0 GiB
z  no answer: its answer is too long
slow  asking …
";
        assert_eq!(shown(&hosts, 15), one);
        hosts.hear(said("z", 0, &json!({ "gpus": [gpu(7, false)] })), Duration::from_secs(70));
        let why = NoAnswer::TimedOut(Duration::from_secs(9));
        let late = Answer { host: names[0].clone(), answer: Err(why) };
        hosts.hear(late, Duration::from_secs(71));
        let screen = shown(&hosts, 75);
        for part in [
            "1 of 3 hosts answered  ·  3 GPUs, 1 free\n",
            "a     1 min    0  GPU ",
            "z       5 s    7  GPU ",
            "\na  no answer: no answer within 9 s\n  hint: allow more time with --deadline\n",
        ] {
            assert!(screen.contains(part), "{part}: {screen}");
        }
        let (_, lines) = hosts.lines_at(Duration::ZERO, 80);
        assert!(text(&lines).contains("a     0 s"), "a clock never shows a negative age");
    }
}
