//! The worked examples of docs/memory.md, run line by line.
//!
//! A table there follows a comment that names the policy, its settings and the device. Its first
//! column says what a program does; where the memory lies, how long it is and what is held of the
//! device afterwards must be what the policy decides.

mod amount;
mod subject;

use amount::{amount, bytes};
use gpu_allocator_policy::Allocation;
use std::collections::BTreeMap;
use subject::Subject;

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/memory.md");

/// A worked example: what it runs on, and its rows.
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

/// Does what the first column of a row says; returns the columns that follow.
fn done(
    subject: &mut Subject,
    live: &mut BTreeMap<String, (usize, Allocation)>,
    step: &str,
) -> [String; 3] {
    let words: Vec<&str> = step.split(' ').collect();
    let none = || "–".to_owned();
    let (place, size, part) = match words[..] {
        ["free", name] => {
            let (part, allocation) = live.remove(name).expect("it is live");
            subject.policy(part).free(allocation).expect("it is the policy's");
            (none(), none(), part)
        }
        ["empty", "the", "cache"] => {
            subject.policy(0).empty_cache().expect("the device works");
            (none(), none(), 0)
        }
        ["synchronize"] => {
            subject.synchronize();
            (none(), none(), 0)
        }
        ["stream", number, "uses", name] => {
            subject.record(&live[name].1, number.parse().expect("it is a number"));
            (none(), none(), 0)
        }
        ["stream", number, "is", "done"] => {
            subject.finish(number.parse().expect("it is a number"));
            (none(), none(), 0)
        }
        [name, "=", number, unit, ref rest @ ..] => {
            let (stream, part) = match *rest {
                [] => (0, 0),
                ["on", "stream", number] => (number.parse().expect("it is a number"), 0),
                ["in", "part", number] => (0, number.parse().expect("it is a number")),
                _ => panic!("'{step}'"),
            };
            let asked = bytes(&format!("{number} {unit}"));
            match subject.allocate(part, asked, stream) {
                Some(allocation) => {
                    let place = amount(allocation.address() - subject::BASE);
                    let size = amount(allocation.size().0);
                    live.insert(name.to_owned(), (part, allocation));
                    (place, size, part)
                }
                None => (none(), "refused".to_owned(), part),
            }
        }
        _ => panic!("'{step}'"),
    };
    [place, size, amount(subject.policy(part).reserved().0)]
}

#[test]
fn the_worked_examples_are_what_the_policies_decide() {
    let text = std::fs::read_to_string(DOCUMENT).expect("the document is there");
    let examples = examples(&text);
    for policy in ["caching", "bfc", "direct", "stream-ordered", "logical"] {
        assert!(examples.iter().any(|example| example.on.starts_with(policy)), "{policy}");
    }
    for Example { on, rows } in examples {
        assert!(rows.len() > 2, "{on}: the table is there");
        let (mut subject, mut live) = (Subject::named(&on), BTreeMap::new());
        for [step, documented @ ..] in rows {
            let found = done(&mut subject, &mut live, &step.replace('`', ""));
            assert_eq!(documented, found, "{on}: {step}");
        }
    }
}
