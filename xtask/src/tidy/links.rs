//! Links in documents refer to existing files.

use crate::{Tree, Violation};

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let documents = tree.files().iter().filter(|file| {
        file.path.ends_with(".md") && !file.path.starts_with("sim-fixtures/machines/")
    });
    let mut violations = Vec::new();
    for file in documents {
        let dir = file.path.rsplit_once('/').map_or("", |(dir, _)| dir);
        for (line, target) in links(&file.text) {
            let path = target.split('#').next().unwrap_or_default();
            let outside = target.contains("://") || target.starts_with("mailto:");
            if outside || path.is_empty() {
                continue;
            }
            match resolve(dir, path) {
                Some(resolved) if tree.exists(&resolved) => {}
                _ => violations.push(Violation {
                    path: file.path.clone(),
                    line,
                    what: format!("a link to '{target}', which does not exist"),
                    remedy: "correct the path or remove the link".to_owned(),
                }),
            }
        }
    }
    violations
}

/// Returns the targets of `[text](target)` outside code, with their lines, counted from 1.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut in_code = false;
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_code || line.starts_with("    ") {
            continue;
        }
        // Every second piece, between backticks, is code.
        for prose in line.split('`').step_by(2) {
            for (at, _) in prose.match_indices("](") {
                if let Some((target, _)) = prose[at + 2..].split_once(')') {
                    found.push((number + 1, target.trim()));
                }
            }
        }
    }
    found
}

/// Resolves a path relative to a directory; `None` if it leaves the root.
fn resolve(dir: &str, path: &str) -> Option<String> {
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
        let text = "[a](architecture.md) [b](../README.md#top) [c](https://example.org)\n\
                    [d](gone.md) `[e](code.md)` [f](#here)\n```\n[g](fenced.md)\n```\n\
                    [h](../../outside.md) [`i`](architecture.md) [j](../docs)\n";
        let found = check(&Tree::of(&[
            ("README.md", ""),
            ("docs/architecture.md", ""),
            ("docs/guide.md", text),
        ]));
        let lines: Vec<_> = found.iter().map(|v| v.line).collect();
        assert_eq!(lines, [2, 6], "{found:?}");
    }
}
