//! The worked examples of docs/memory.md, run line by line.
//!
//! Each table follows a comment that names the policy, its settings and the device. The first
//! column is a step of a program; the address, the length and the held memory after the step must
//! match the policy's decisions.

mod amount;
mod subject;

use amount::{amount, bytes};
use gpu_allocator_policy::{Allocation, Retired};
use std::collections::BTreeMap;
use subject::Subject;

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/memory.md");

/// A worked example: its configuration and its rows.
struct Example {
    on: String,
    rows: Vec<[String; 4]>,
}

fn examples(text: &str) -> Vec<Example> {
    let mut examples = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(on) = line.strip_prefix("<!-- example: ") else { continue };
        let on = on.trim_end_matches(" -->").to_owned();
        let rows = lines
            .by_ref()
            .skip_while(|line| !line.starts_with("|---"))
            .skip(1)
            .take_while(|line| line.starts_with('|'))
            .map(|line| {
                let mut cells = line.split('|').skip(1).map(|cell| cell.trim().to_owned());
                std::array::from_fn(|_| cells.next().unwrap_or_default())
            })
            .collect();
        examples.push(Example { on, rows });
    }
    examples
}

/// A program that executes the first column.
struct Program {
    subject: Subject,
    /// Its allocations by name.
    live: BTreeMap<String, Allocation>,
    /// Memory that the program freed while work may still use it.
    retired: BTreeMap<String, Retired>,
}

impl Program {
    fn on(description: &str) -> Self {
        let subject = Subject::named(description);
        Program { subject, live: BTreeMap::new(), retired: BTreeMap::new() }
    }

    /// Executes a row; returns the columns that follow.
    fn step(&mut self, step: &str) -> [String; 3] {
        let words: Vec<&str> = step.split(' ').collect();
        match words[..] {
            ["free", name] => {
                let allocation = self.live.remove(name).expect("it is live");
                self.subject.policy().free(allocation).expect("it belongs to this policy");
            }
            ["retire", name] => {
                let allocation = self.live.remove(name).expect("it is live");
                let retired = self.subject.policy().retire(allocation);
                self.retired.insert(name.to_owned(), retired.expect("it belongs to this policy"));
            }
            ["complete", name] => {
                let retired = self.retired.remove(name).expect("it was retired");
                self.subject.policy().complete(retired).expect("it belongs to this policy");
            }
            ["empty", "the", "cache"] => {
                self.subject.policy().empty_cache().expect("the device works");
            }
            ["synchronize"] => {
                self.subject.synchronize();
            }
            ["stream", number, "uses", name] => {
                self.subject.record(&self.live[name], parsed(number));
            }
            ["stream", number, "is", "done"] => {
                self.subject.finish(parsed(number));
            }
            [name, "=", number, unit, ref rest @ ..] => {
                return self.take(name, bytes(&format!("{number} {unit}")), rest);
            }
            _ => panic!("'{step}'"),
        }
        ["–".to_owned(), "–".to_owned(), self.held()]
    }

    fn take(&mut self, name: &str, size: u64, how: &[&str]) -> [String; 3] {
        let given = match *how {
            [] => self.subject.allocate(size, 0),
            ["on", "stream", stream] => self.subject.allocate(size, parsed(stream)),
            ["behind"] => self.subject.allocate_behind(size),
            _ => panic!("'{name}' taken {how:?}"),
        };
        let (address, length) = match given {
            Some(allocation) => {
                let address = amount(allocation.address() - subject::BASE);
                let length = amount(allocation.size().0);
                self.live.insert(name.to_owned(), allocation);
                (address, length)
            }
            None => ("–".to_owned(), "refused".to_owned()),
        };
        [address, length, self.held()]
    }

    fn held(&mut self) -> String {
        amount(self.subject.policy().reserved().0)
    }
}

fn parsed<T: std::str::FromStr>(number: &str) -> T {
    number.parse().ok().expect("it is a number")
}

#[test]
fn documented_examples_match_policies() {
    let text = std::fs::read_to_string(DOCUMENT).expect("the document is there");
    let examples = examples(&text);
    for policy in ["caching", "bfc", "direct", "stream-ordered"] {
        assert!(examples.iter().any(|example| example.on.starts_with(policy)), "{policy}");
    }
    for Example { on, rows } in examples {
        assert!(rows.len() > 2, "{on}: the table is there");
        let mut program = Program::on(&on);
        for [step, documented @ ..] in rows {
            let found = program.step(&step.replace('`', ""));
            assert_eq!(documented, found, "{on}: {step}");
        }
    }
}
