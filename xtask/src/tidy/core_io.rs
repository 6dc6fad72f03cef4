//! gpu-core does no I/O: it uses no standard library module that could.

use crate::code::{find_word, line_of, without_tests};
use crate::{Tree, Violation};

const FORBIDDEN: &[&str] = &[
    "std::env",
    "std::fs",
    "std::io",
    "std::net",
    "std::os",
    "std::process",
    "std::thread",
    "SystemTime",
    "Instant",
    "println!",
    "eprintln!",
];

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let core = tree.files().iter().filter(|file| file.path.starts_with("crates/gpu-core/src/"));
    core.flat_map(|file| {
        let code = without_tests(file.masked());
        let names = FORBIDDEN.iter().flat_map(|name| {
            find_word(&code, name).map(|at| (*name, line_of(&code, at))).collect::<Vec<_>>()
        });
        names
            .map(|(name, line)| Violation {
                path: file.path.clone(),
                line,
                what: format!("gpu-core uses {name}"),
                remedy: "make it a method of a port and do the I/O in an adapter".to_owned(),
            })
            .collect::<Vec<_>>()
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn io_is_reported_only_in_core_code() {
        let source =
            "//! No std::fs here.\nuse std::fmt;\n\nfn f() { std::fs::read(\"std::net\"); }\n";
        let found = check(&Tree::of(&[
            ("crates/gpu-core/src/a.rs", source),
            ("crates/gpu-host/src/a.rs", source),
        ]));
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].path.as_str(), found[0].line), ("crates/gpu-core/src/a.rs", 4));
    }
}
