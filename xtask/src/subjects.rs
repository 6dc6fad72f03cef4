//! Commit subjects are short and imperative, so that a list of them reads as a summary.

use crate::{Violation, mutants};
use std::io;
use std::path::Path;

/// The longest subject that git's and GitHub's lists show whole.
const LONGEST: usize = 72;

/// Returns the commits since the branch left `origin/HEAD`, otherwise the last one: the short hash
/// and the subject of each, separated by a space.
///
/// # Errors
/// If git cannot be run, or there is no history.
pub(crate) fn read(root: &Path) -> io::Result<String> {
    let range = format!("{}..HEAD", mutants::base(root)?);
    let log = mutants::git(root, &["log", "--no-merges", "--format=%h %s", &range])?;
    Ok(String::from_utf8_lossy(&log).into_owned())
}

/// Reports long subjects, and those that are neither a sentence nor `part: …`, or end like one.
pub(crate) fn check(log: &str) -> Vec<Violation> {
    let commits = log.lines().filter_map(|line| line.split_once(' '));
    commits.filter_map(|(hash, subject)| violation(hash, subject)).collect()
}

fn violation(hash: &str, subject: &str) -> Option<Violation> {
    let length = subject.chars().count();
    let parts = subject.split_once(": ").map(|(parts, _)| parts.split(", "));
    let has_parts = parts.is_some_and(|mut parts| parts.all(|part| !part.contains(' ')));
    let what = if length > LONGEST {
        format!("a subject of {length} characters, more than {LONGEST}")
    } else if subject.starts_with(char::is_lowercase) && !has_parts {
        format!("the subject '{subject}' starts in lowercase")
    } else if subject.ends_with('.') {
        format!("the subject '{subject}' ends with a full stop")
    } else {
        return None;
    };
    let remedy = "reword it: a capitalised imperative, or 'part: imperative'".to_owned();
    Some(Violation { path: format!("commit {hash}"), line: 1, what, remedy })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lowercase_and_stopped_subjects_are_reported() {
        let whole = "é".repeat(LONGEST);
        let good = format!("a1 Fix it\na2 gpu-sim, docs: fix it\na3 {}\n", whole.to_uppercase());
        assert!(check(&good).is_empty(), "{:?}", check(&good));
        let bad =
            format!("b1 E{whole}\nb2 fix it\nb3 fix the sim: again\nb4 Fix it.\nb5 docs: end.");
        let found: Vec<String> = check(&bad).into_iter().map(|found| found.path).collect();
        assert_eq!(found, ["commit b1", "commit b2", "commit b3", "commit b4", "commit b5"]);
    }
}
