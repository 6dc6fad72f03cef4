//! The program stays small: code moved into libraries does not grow back.
//!
//! A command is a file or a directory, and each of its files has at most 200 lines. Both limits
//! decrease when code moves out, and the first one grows only with a new command.

use super::length::lengths;
use crate::{Tree, Violation};

const PROGRAM: &str = "crates/cli/src/";
const COMMANDS: &str = "crates/cli/src/commands/";

/// Lines of the whole program, without unit tests.
const PROGRAM_LINES: usize = 10_950;

const COMMAND_LINES: usize = 200;

/// Longer files that still need to be split.
const LONGER: &[&str] = &[];

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    check_against(tree, PROGRAM_LINES, LONGER)
}

fn check_against(tree: &Tree, program_lines: usize, longer: &[&str]) -> Vec<Violation> {
    let files: Vec<(&str, usize)> = lengths(tree)
        .map(|(file, lines)| (file.path.as_str(), lines))
        .filter(|(path, _)| path.starts_with(PROGRAM))
        .collect();
    let mut violations = Vec::new();
    let mut say = |path: &str, what: String, remedy: &str| {
        let (path, remedy) = (path.to_owned(), remedy.to_owned());
        violations.push(Violation { path, line: 1, what, remedy });
    };
    let sum: usize = files.iter().map(|(_, lines)| lines).sum();
    if sum > program_lines {
        let what = format!("the program has {sum} lines without tests, more than {program_lines}");
        say(PROGRAM, what, "move decisions and formatting into a library");
    }
    for (path, lines) in files.iter().filter(|(path, _)| path.starts_with(COMMANDS)) {
        if *lines > COMMAND_LINES && !longer.contains(path) {
            let what = format!("command file of {lines} lines, more than {COMMAND_LINES}");
            say(path, what, "split the command into a directory with one file per step");
        }
    }
    for path in longer {
        if !files.iter().any(|(other, lines)| other == path && *lines > COMMAND_LINES) {
            let what = format!("it has no more than {COMMAND_LINES} lines");
            say(path, what, "remove it from LONGER in xtask/src/tidy/sizes.rs");
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_command_and_long_program_are_reported() {
        let (long, fits) = ("fn f() {}\n".repeat(201), "fn f() {}\n".repeat(200));
        let (a, b) = ("crates/cli/src/commands/a.rs", "crates/cli/src/commands/b/mod.rs");
        let tree = Tree::of(&[(a, &long), (b, &fits), ("crates/cli/src/main.rs", &long)]);
        let paths = |lines, longer: &[&str]| -> Vec<String> {
            check_against(&tree, lines, longer).into_iter().map(|found| found.path).collect()
        };
        assert_eq!(paths(602, &[]), [a]);
        assert_eq!(paths(601, &[a]), [PROGRAM]);
        assert_eq!(paths(602, &[a, b]), [b], "the list only shrinks");
    }
}
