//! Modules are named after their content; some names are meaningless.

use crate::code::{find_word, line_of};
use crate::{Tree, Violation};

const FORBIDDEN: &[&str] = &["util", "utils", "common", "manager", "helper", "helpers", "misc"];

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for file in tree.files().iter().filter(|file| file.is_rust()) {
        let mut say = |line, name: &str| {
            violations.push(Violation {
                path: file.path.clone(),
                line,
                what: format!("module named '{name}'"),
                remedy: "name it after its purpose".to_owned(),
            });
        };
        for part in file.path.trim_end_matches(".rs").split('/') {
            if FORBIDDEN.contains(&part) {
                say(1, part);
            }
        }
        let code = file.masked();
        for at in find_word(code, "mod") {
            let mut after = code[at + 3..].split_whitespace();
            let name = after.next().unwrap_or_default();
            let opened = name.trim_end_matches('{');
            // The file of `mod x;` is checked by its own name.
            if FORBIDDEN.contains(&opened) {
                say(line_of(code, at), opened);
            }
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meaningless_module_names_are_reported() {
        let found = check(&Tree::of(&[
            ("crates/a/src/util.rs", ""),
            ("crates/a/tests/common/mod.rs", ""),
            ("crates/a/src/lib.rs", "mod util;\n\nmod helper {\n}\n// mod manager {\n"),
            ("crates/a/src/utilization.rs", ""),
        ]));
        let locations: Vec<_> = found.iter().map(|v| (v.path.as_str(), v.line)).collect();
        assert_eq!(
            locations,
            [
                ("crates/a/src/util.rs", 1),
                ("crates/a/tests/common/mod.rs", 1),
                ("crates/a/src/lib.rs", 3),
            ]
        );
    }
}
