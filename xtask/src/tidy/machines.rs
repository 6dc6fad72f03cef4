//! Every shipped machine defines the behaviour of its processes, and is in the list of machines.

use crate::{Tree, Violation};
use std::collections::BTreeSet;

const DIR: &str = "sim-fixtures/machines/";
const LIST: &str = "sim-fixtures/README.md";

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let machines: BTreeSet<&str> = tree
        .paths()
        .filter_map(|path| path.strip_prefix(DIR)?.split_once('/'))
        .map(|(machine, _)| machine)
        .collect();
    let list = tree.file(LIST).map_or("", |file| file.text.as_str());
    let mut violations = Vec::new();
    for machine in machines {
        let settings = format!("{DIR}{machine}/machine.toml");
        if !tree.exists(&settings) {
            violations.push(Violation {
                path: settings,
                line: 1,
                what: format!("machine '{machine}' has no machine.toml"),
                remedy: "add one with the values that its recordings lack".to_owned(),
            });
        }
        if !list.contains(&format!("`{machine}`")) {
            violations.push(Violation {
                path: LIST.to_owned(),
                line: 1,
                what: format!("machine '{machine}' is not in the list"),
                remedy: format!("add `{machine}` and describe what it shows"),
            });
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_without_settings_or_mention_are_reported() {
        let found = check(&Tree::of(&[
            ("sim-fixtures/README.md", "| `whole` | all well |\n"),
            ("sim-fixtures/machines/whole/machine.toml", ""),
            ("sim-fixtures/machines/unnamed/machine.toml", ""),
            ("sim-fixtures/machines/bare/nvidia-smi.txt", ""),
        ]));
        let whats: Vec<_> = found.iter().map(|v| v.what.as_str()).collect();
        assert_eq!(
            whats,
            [
                "machine 'bare' has no machine.toml",
                "machine 'bare' is not in the list",
                "machine 'unnamed' is not in the list",
            ]
        );
    }
}
