//! The contents page lists every page of `docs/` once: mdbook omits the others from the site.

use super::links::{links, resolve};
use crate::{Tree, Violation};
use std::collections::BTreeMap;

/// Lists the chapters for mdbook, and is the first of them.
const CONTENTS: &str = "docs/SUMMARY.md";

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let contents = tree.file(CONTENTS).map_or("", |file| file.text.as_str());
    let mut listed: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (index, line) in contents.lines().enumerate() {
        // mdbook reads the first link of an item; others belong to its description.
        let chapter = ["- [", "["].iter().any(|start| line.trim_start().starts_with(start));
        let target = links(line.trim_start()).first().map(|(_, target)| *target);
        if let Some(page) = target.filter(|_| chapter).and_then(|path| resolve("docs", path)) {
            listed.entry(page).or_default().push(index + 1);
        }
    }
    let mut violations = Vec::new();
    let mut say = |line, what, remedy: &str| {
        let (path, remedy) = (CONTENTS.to_owned(), remedy.to_owned());
        violations.push(Violation { path, line, what, remedy });
    };
    for page in tree.paths().filter(|path| path.starts_with("docs/") && path.ends_with(".md")) {
        match listed.get(page).map_or(&[][..], Vec::as_slice) {
            [] => say(1, format!("'{page}' is not listed"), "add it to a group"),
            [_] => {}
            [.., line] => say(*line, format!("'{page}' is listed twice"), "remove one of them"),
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_listed_never_or_twice_are_reported() {
        let contents = "# Contents\n[Contents](SUMMARY.md)\n# Use\n- [A](a.md): as [b](b.md)\n  \
                        - [C](d/c.md)\n    - [E](e.md)\n- [A again](./a.md)\nSee [f](f.md).\n";
        let pages =
            ["docs/a.md", "docs/b.md", "docs/d/c.md", "docs/e.md", "docs/f.md", "README.md"];
        let mut files: Vec<_> = pages.map(|page| (page, "")).into();
        files.push((CONTENTS, contents));
        let found = check(&Tree::of(&files));
        let found: Vec<_> = found.iter().map(|v| (v.line, v.what.as_str())).collect();
        assert_eq!(
            found,
            [
                (7, "'docs/a.md' is listed twice"),
                (1, "'docs/b.md' is not listed"),
                (1, "'docs/f.md' is not listed"),
            ]
        );
        assert_eq!(check(&Tree::of(&files[..5])).len(), 5, "without a contents page");
    }
}
