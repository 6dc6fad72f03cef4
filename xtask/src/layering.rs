//! Which package may depend on which: the layers of `docs/architecture.md`, held by `cargo tree`.
//!
//! The rule counts every edge, those of tests and build scripts too. What must see several
//! adapters or policies at once belongs into `tests/` or `benches/`.

use crate::{Tree, Violation};
use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::process::Command;

/// A package of the workspace and what it depends on directly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// Its directory, from the workspace's.
    pub dir: String,
    /// Packages it depends on, of the workspace and of others.
    pub depends_on: BTreeSet<String>,
}

/// Returns the packages of the workspace that a package may depend on; `None` for a package that
/// has no place in the layers.
pub fn may_depend_on(package: &str) -> Option<&'static [&'static str]> {
    Some(match package {
        // Ports and plain data know nobody.
        "gpu-core" => &[],
        // Adapters know the ports and not each other; the simulated machine reads recordings with
        // the parsers, and the NVML interface stands in front of the simulated machine.
        "gpu-nvidia" | "gpu-cuda" | "gpu-host" | "gpu-text" => &["gpu-core"],
        "gpu-sim" => &["gpu-core", "gpu-text"],
        "gpu-nvml-sim" => &["gpu-core", "gpu-sim"],
        // Policies know the ports, no adapter and not each other.
        "gpu-reaper" | "gpu-placement" | "gpu-claim" | "gpu-allocator-policy" => &["gpu-core"],
        // Formats are plain data: advice is given on messages that the parsers have read.
        "gpu-memory-advice" => &["gpu-core", "gpu-text"],
        // Recordings are replayed under the allocators; some are printed text.
        "gpu-memory-trace" => &["gpu-core", "gpu-text", "gpu-allocator-policy"],
        // The steward combines the policies that a job needs and knows no adapter.
        "gpu-steward" => {
            &["gpu-core", "gpu-reaper", "gpu-placement", "gpu-claim", "gpu-memory-advice"]
        }
        // What is printed is made of what the libraries know, and of no adapter.
        "gpu-report" => &[
            "gpu-core",
            "gpu-text",
            "gpu-reaper",
            "gpu-placement",
            "gpu-claim",
            "gpu-memory-advice",
            "gpu-memory-trace",
            "gpu-steward",
        ],
        // One library opens machines: it chooses adapters for all that stand above.
        "gpu-machine" => &[
            "gpu-core",
            "gpu-host",
            "gpu-nvidia",
            "gpu-cuda",
            "gpu-sim",
            "gpu-reaper",
            "gpu-steward",
        ],
        // Beside it only the program on top, the tests, the benches and the examples choose adapters.
        "gpuws" | "gpuws-benches" | "gpuws-examples" => &LIBRARIES_AND_XTASK[..LIBRARIES],
        "gpuws-tests" => LIBRARIES_AND_XTASK,
        "xtask" => &[],
        _ => return None,
    })
}

/// Every library, nvml-sim too, which tests and benches load; and, for the test of the layers, this.
const LIBRARIES_AND_XTASK: &[&str] = &[
    "gpu-core",
    "gpu-nvidia",
    "gpu-cuda",
    "gpu-host",
    "gpu-text",
    "gpu-sim",
    "gpu-nvml-sim",
    "gpu-reaper",
    "gpu-placement",
    "gpu-claim",
    "gpu-allocator-policy",
    "gpu-memory-advice",
    "gpu-memory-trace",
    "gpu-steward",
    "gpu-machine",
    "gpu-report",
    "xtask",
];
const LIBRARIES: usize = LIBRARIES_AND_XTASK.len() - 1;

/// All that the ports may use of the outside: serialization, errors, mocks, and in their tests
/// proptest and JSON; nothing that does I/O.
pub const OUTSIDE_OF_CORE: &[&str] = &["serde", "thiserror", "mockall", "proptest", "serde_json"];

/// Packages that reach the operating system, and who may use them.
pub const SYSTEM: &[&str] = &["rustix", "nix", "procfs", "libc"];
const SYSTEM_USERS: &[&str] = &[
    "gpu-host",
    "gpu-nvidia",
    "gpu-nvml-sim",
    // It reads a session's directory only if its owner is trusted.
    "gpu-sim",
    "gpu-machine",
    "gpuws",
    "gpuws-tests",
    "gpuws-benches",
    "xtask",
];

/// Asks `cargo tree` for the packages of the workspace at `root`, with every feature, for every
/// target.
///
/// # Errors
/// When cargo cannot be run or fails; its own words are the text.
pub fn read(root: &Path) -> io::Result<Vec<Package>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .current_dir(root)
        .args(["tree", "--workspace", "--all-features", "--target", "all"])
        .args(["--edges", "normal,build,dev", "--depth", "1", "--prefix", "depth"])
        // Otherwise a package that stood below another one before is shown without its own.
        .arg("--no-dedupe")
        .args(["--format", "{p}"])
        .output()?;
    if !output.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&output.stderr)));
    }
    Ok(parse(&String::from_utf8_lossy(&output.stdout), root))
}

/// Reads what `cargo tree --depth 1 --prefix depth --format {p}` prints.
fn parse(text: &str, root: &Path) -> Vec<Package> {
    let mut packages: Vec<Package> = Vec::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let Some(name) = words.next() else { continue };
        if let Some(name) = name.strip_prefix('0') {
            let path = line.split_once('(').and_then(|(_, rest)| rest.split_once(')'));
            let path = path.map_or("", |(path, _)| path);
            let dir = Path::new(path).strip_prefix(root).unwrap_or(Path::new(path));
            packages.push(Package {
                name: name.to_owned(),
                dir: dir.to_string_lossy().into_owned(),
                depends_on: BTreeSet::new(),
            });
        } else if let (Some(name), Some(last)) = (name.strip_prefix('1'), packages.last_mut())
            // The tests of a package may use its optional features.
            && name != last.name
        {
            last.depends_on.insert(name.to_owned());
        }
    }
    packages
}

/// Returns every edge that the rule forbids, at its line in `Cargo.toml`.
pub fn check(packages: &[Package], tree: &Tree) -> Vec<Violation> {
    let members: BTreeSet<&str> = packages.iter().map(|package| package.name.as_str()).collect();
    let mut violations = Vec::new();
    for package in packages {
        let mut say = |dependency: &str, what: String, remedy: &str| {
            let path = format!("{}/Cargo.toml", package.dir);
            let line = line_of_dependency(tree, &path, dependency);
            violations.push(Violation { path, line, what, remedy: remedy.to_owned() });
        };
        let name = package.name.as_str();
        if let Some(dir) = package.dir.strip_prefix("crates/") {
            let expected = package_name(dir);
            if name != expected {
                let what = format!("package '{name}' in crates/{dir}");
                say("name", what, &format!("call it '{expected}'"));
            }
        }
        let Some(allowed) = may_depend_on(name) else {
            let what = format!("package '{name}' has no place in the layers");
            say("name", what, "name its layer in xtask/src/layering.rs and docs/architecture.md");
            continue;
        };
        for dependency in &package.depends_on {
            let dependency = dependency.as_str();
            let inside = members.contains(dependency) || may_depend_on(dependency).is_some();
            if inside && !allowed.contains(&dependency) {
                let what = format!("'{name}' depends on '{dependency}'");
                say(
                    dependency,
                    what,
                    "go through a port of gpu-core, or move the code up to cli or tests",
                );
            }
            if name == "gpu-core" && !OUTSIDE_OF_CORE.contains(&dependency) && !inside {
                let what = format!("gpu-core depends on '{dependency}'");
                say(dependency, what, "keep ports and plain data free of it; adapters may use it");
            } else if SYSTEM.contains(&dependency) && !SYSTEM_USERS.contains(&name) {
                let what = format!("'{name}' reaches the operating system by '{dependency}'");
                say(dependency, what, "ask the Host port of gpu-core instead");
            }
        }
    }
    violations
}

/// Returns the name of the package in a directory under `crates/`.
fn package_name(dir: &str) -> String {
    match dir {
        "cli" => "gpuws".to_owned(),
        _ if dir.starts_with("gpu-") => dir.to_owned(),
        _ => format!("gpu-{dir}"),
    }
}

fn line_of_dependency(tree: &Tree, path: &str, dependency: &str) -> usize {
    let text = tree.file(path).map_or("", |file| file.text.as_str());
    let is_key = |line: &str| {
        line.strip_prefix(dependency).is_some_and(|rest| rest.starts_with([' ', '.', '=']))
    };
    text.lines().position(is_key).map_or(1, |line| line + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, dir: &str, depends_on: &[&str]) -> Package {
        Package {
            name: name.to_owned(),
            dir: dir.to_owned(),
            depends_on: depends_on.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    #[test]
    fn cargo_tree_is_parsed_by_depth() {
        let text = "0gpu-core v0.1.0 (/r/crates/gpu-core) (*)\n1serde v1.0.0\n\n\
                    0gpu-reaper v0.1.0 (/r/crates/reaper)\n1gpu-core v0.1.0 (/r/crates/gpu-core) (*)\n";
        assert_eq!(
            parse(text, Path::new("/r")),
            [
                package("gpu-core", "crates/gpu-core", &["serde"]),
                package("gpu-reaper", "crates/reaper", &["gpu-core"]),
            ]
        );
    }

    #[test]
    fn violation_names_manifest_line() {
        let tree = Tree::of(&[(
            "crates/reaper/Cargo.toml",
            "[package]\nname = \"gpu-reaper\"\n[dependencies]\ngpu-sim.workspace = true\n",
        )]);
        let found = check(&[package("gpu-reaper", "crates/reaper", &["gpu-sim"])], &tree);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].path.as_str(), found[0].line), ("crates/reaper/Cargo.toml", 4));
    }

    #[test]
    fn package_names_follow_dirs_and_have_a_layer() {
        let tree = Tree::default();
        assert_eq!(check(&[package("reaper", "crates/reaper", &[])], &tree).len(), 2);
        assert_eq!(check(&[package("gpu-extra", "crates/gpu-extra", &[])], &tree).len(), 1);
        assert_eq!(check(&[package("gpuws", "crates/cli", &["gpu-host"])], &tree).len(), 0);
        assert_eq!(check(&[package("gpuws-examples", "examples", &["gpu-host"])], &tree).len(), 0);
    }
}
