//! Links in documents refer to existing files and headings, here and on the site that mdbook makes
//! of `docs/`.

use crate::{Tree, Violation};
use std::collections::BTreeSet;

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let documents = tree.files().iter().filter(|file| {
        file.path.ends_with(".md") && !file.path.starts_with("sim-fixtures/machines/")
    });
    let mut violations = Vec::new();
    for file in documents {
        for (line, target) in links(&file.text) {
            if let Some((what, remedy)) = fault(tree, &file.path, target) {
                let (path, remedy) = (file.path.clone(), remedy.to_owned());
                violations.push(Violation { path, line, what, remedy });
            }
        }
    }
    violations
}

/// Returns the fault of a link in a file, and its remedy.
fn fault(tree: &Tree, file: &str, target: &str) -> Option<(String, &'static str)> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, heading) = target.split_once('#').unwrap_or((target, ""));
    let resolved = match path {
        "" => Some(file.to_owned()),
        path => resolve(dir(file), path),
    };
    let Some(resolved) = resolved.filter(|resolved| tree.exists(resolved)) else {
        let what = format!("broken link to '{target}'");
        return Some((what, "correct the path or remove the link"));
    };
    let is_page = resolved.ends_with(".md");
    if is_page && file.starts_with("docs/") && !resolved.starts_with("docs/") {
        let what = format!("link to the page '{target}', which is outside docs");
        return Some((what, "link to its directory: mdbook replaces .md with .html"));
    }
    let page = tree.file(&resolved).filter(|_| is_page && !heading.is_empty())?;
    let what = format!("link to '{target}', which has no such heading");
    (!anchors(&page.text).contains(heading)).then_some((what, "correct the part after #"))
}

/// Returns the directory of a file; empty for the root.
fn dir(file: &str) -> &str {
    file.rsplit_once('/').map_or("", |(dir, _)| dir)
}

/// Returns the targets of `[text](target)` outside code, with their lines, counted from 1.
pub(super) fn links(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        // Every second piece, between backticks, is code.
        for prose in line.split('`').step_by(2) {
            for (at, _) in prose.match_indices("](") {
                if let Some((target, _)) = prose[at + 2..].split_once(')') {
                    found.push((number, target.trim()));
                }
            }
        }
    }
    found
}

/// Returns the anchors of the headings, as GitHub and mdbook derive them: letters and digits in
/// lower case, hyphens for spaces, and a number after a repeated one.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for (_, line) in prose(text).filter(|(_, line)| line.starts_with('#')) {
        let heading = line.trim_start_matches('#').trim().to_lowercase();
        let kept = |c: &char| c.is_alphanumeric() || matches!(c, '-' | '_' | ' ');
        let anchor = heading.chars().filter(kept).collect::<String>().replace(' ', "-");
        let numbered = (1..).map(|number| format!("{anchor}-{number}"));
        let mut names = std::iter::once(anchor.clone()).chain(numbered);
        anchors.extend(names.find(|name| !anchors.contains(name)));
    }
    anchors
}

/// Returns the lines outside code blocks, with their numbers, counted from 1.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        in_code ^= line.trim_start().starts_with("```");
        (!in_code && !line.starts_with("    ")).then_some((index + 1, line))
    })
}

/// Resolves a path relative to a directory; `None` if it leaves the root.
pub(super) fn resolve(dir: &str, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = dir.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_links_are_reported_outside_code_blocks() {
        let text = "[a](architecture.md) [b](../crates#top) [c](https://example.org)\n\
                    [d](gone.md) `[e](code.md)`\n```\n[g](fenced.md)\n```\n\
                    [h](../../outside.md) [`i`](architecture.md) [j](../docs)\n";
        let found = check(&Tree::of(&[
            ("crates/a/src/lib.rs", ""),
            ("docs/architecture.md", ""),
            ("docs/guide.md", text),
        ]));
        let lines: Vec<_> = found.iter().map(|v| v.line).collect();
        assert_eq!(lines, [2, 6], "{found:?}");
    }

    #[test]
    fn missing_headings_are_reported() {
        let page = "# Page\n## What `reap` does\n## A, b: (c)\n## Twice\n## Twice\n\
                    ```\n# comment\n```\n";
        let text = "[a](page.md#what-reap-does) [b](page.md#a-b-c) [c](page.md#twice-1)\n\
                    [d](page.md#twice-2)\n[e](page.md#comment)\n[f](#page)\n[g](#here)\n# Here\n";
        let found = check(&Tree::of(&[("docs/page.md", page), ("docs/guide.md", text)]));
        let lines: Vec<_> = found.iter().map(|v| v.line).collect();
        assert_eq!(lines, [2, 3, 4], "{found:?}");
    }

    #[test]
    fn pages_outside_docs_are_reported_in_docs_only() {
        let files = [
            ("docs/a.md", "[a](../README.md)\n[b](../crates/x) [c](b/c.md)\n"),
            ("docs/b/c.md", "[a](../../crates/x/README.md) [b](../a.md)\n"),
            ("crates/x/README.md", "[a](../../README.md) [b](../../docs/a.md)\n"),
            ("README.md", "[a](docs/a.md)\n"),
        ];
        let found = check(&Tree::of(&files));
        let places: Vec<_> = found.iter().map(|v| (v.path.as_str(), v.line)).collect();
        assert_eq!(places, [("docs/a.md", 1), ("docs/b/c.md", 1)], "{found:?}");
    }
}
