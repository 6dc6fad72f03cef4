//! The plain program builds few crates.
//!
//! The build of the workspace hides how many: there, other packages enable every feature.

use crate::{Violation, cargo};
use std::collections::BTreeSet;
use std::io;
use std::path::Path;

/// The packages of which the plain program consists, its own included. It is what a newcomer
/// builds first, and each package costs about a second of that. The number decreases when one goes.
const PACKAGES: usize = 143;

/// Returns the packages that the plain program builds, with their versions.
///
/// # Errors
/// If `cargo tree` cannot be run or fails.
pub(crate) fn read(root: &Path) -> io::Result<BTreeSet<String>> {
    let text = cargo::tree(
        root,
        &["--package=gpuws", "--edges=normal,build", "--prefix=none", "--format={p}"],
    )?;
    Ok(parse(&text))
}

/// Parses lines such as `syn v2.0.119 (proc-macro) (*)`.
fn parse(text: &str) -> BTreeSet<String> {
    let package = |line: &str| line.split(' ').take(2).collect::<Vec<_>>().join(" ");
    text.lines().filter(|line| !line.is_empty()).map(package).collect()
}

/// Reports a program of more packages than before.
pub(crate) fn check(packages: &BTreeSet<String>) -> Vec<Violation> {
    check_against(packages, PACKAGES)
}

fn check_against(packages: &BTreeSet<String>, most: usize) -> Vec<Violation> {
    if packages.len() <= most {
        return Vec::new();
    }
    vec![Violation {
        path: "crates/cli/Cargo.toml".to_owned(),
        line: 1,
        what: format!("the plain program builds {} packages, past {most}", packages.len()),
        remedy: "make what needs the new ones a feature (cargo tree -p gpuws -e normal,build \
                 shows them)"
            .to_owned(),
    }]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn further_packages_and_versions_are_reported_once() {
        let text = "gpuws v0.1.0 (/src/crates/cli)\nsyn v2.0.1\nserde_derive v1.0.1 (proc-macro)\n\
                    syn v3.0.1\nsyn v2.0.1 (*)\n\n";
        let packages = parse(text);
        assert_eq!(packages.len(), 4, "{packages:?}");
        assert_eq!(check_against(&packages, 4), []);
        let violations = check_against(&packages, 3);
        assert_eq!(violations.len(), 1);
        assert_eq!(violations[0].what, "the plain program builds 4 packages, past 3");
    }
}
