//! `unsafe` is allowed only where foreign functions are called.

use crate::code::{find_word, line_of};
use crate::{Tree, Violation};

const ALLOWED: &[&str] = &[
    "crates/gpu-nvidia/",
    "crates/gpu-cuda/",
    "crates/nvml-sim/",
    "crates/gpu-host/src/syscall.rs",
];

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for file in tree.files().iter().filter(|file| file.is_rust()) {
        if ALLOWED.iter().any(|dir| file.path.starts_with(dir)) {
            continue;
        }
        let code = file.masked();
        // The lint name counts too, because `allow(unsafe_code)` shows the intention.
        let locations = find_word(code, "unsafe")
            .map(|at| (at, "unsafe"))
            .chain(find_word(code, "unsafe_code").map(|at| (at, "unsafe_code")));
        violations.extend(locations.map(|(at, word)| Violation {
            path: file.path.clone(),
            line: line_of(code, at),
            what: format!("'{word}' outside of {}", ALLOWED.join(", ")),
            remedy: "use a safe wrapper (rustix, nix), or move the call there".to_owned(),
        }));
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsafe_code_is_reported_but_prose_is_not() {
        let found = check(&Tree::of(&[
            ("crates/gpu-host/src/a.rs", "// unsafe\nfn f() { g(\"unsafe\") }\nunsafe fn g() {}\n"),
            ("crates/gpu-host/src/b.rs", "#![allow(unsafe_code)]\n"),
            ("crates/gpu-nvidia/src/a.rs", "unsafe fn g() {}\n"),
        ]));
        let locations: Vec<_> = found.iter().map(|v| (v.path.as_str(), v.line)).collect();
        assert_eq!(locations, [("crates/gpu-host/src/a.rs", 3), ("crates/gpu-host/src/b.rs", 1)]);
    }
}
