//! The layers of `docs/architecture.md`: the packages that each package may depend on, checked with
//! `cargo tree`.
//!
//! Every edge counts, including those of tests and build scripts, but for `IN_TESTS`. Code that
//! needs several adapters or policies at once belongs in `tests/` or `benches/`.

use crate::{Tree, Violation, cargo};
use std::collections::BTreeSet;
use std::io;
use std::path::Path;

/// A package of the workspace and its direct dependencies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// Its directory, relative to the workspace.
    pub dir: String,
    /// The packages it depends on, in the workspace and outside, tests included.
    pub depends_on: BTreeSet<String>,
    /// Those that only its tests need.
    pub only_in_tests: BTreeSet<String>,
}

/// Returns the packages of the workspace that a package may depend on; `None` for a package without
/// a layer.
pub fn may_depend_on(package: &str) -> Option<&'static [&'static str]> {
    Some(match package {
        // Ports and plain data depend on no other package.
        "gpu-core" => &[],
        // Adapters depend on the ports, not on each other. The simulated machine reads recordings
        // with the parsers, and the simulated NVML wraps the simulated machine.
        "gpu-cuda" | "gpu-host" | "gpu-kubelet" => &["gpu-core"],
        // What a vendor's driver leaves on a machine is tables and functions of plain data, so the
        // adapters of live, simulated and pasted machines share them.
        "gpu-nvidia-driver" | "gpu-drm-driver" => &["gpu-core"],
        "gpu-nvidia" => &["gpu-core", "gpu-nvidia-driver"],
        "gpu-drm" => &["gpu-core", "gpu-drm-driver"],
        "gpu-text" => &["gpu-core", "gpu-nvidia-driver", "gpu-drm-driver"],
        "gpu-sim" => &["gpu-core", "gpu-drm", "gpu-nvidia-driver", "gpu-text"],
        "gpu-nvml-sim" => &["gpu-core", "gpu-nvidia-driver", "gpu-sim"],
        // The history of a machine consists of files in their own format.
        "gpu-history" => &["gpu-core"],
        // Other machines are queried by ssh.
        "gpu-fleet" => &["gpu-core"],
        // Policies depend on the ports, not on adapters or on each other.
        "gpu-reaper"
        | "gpu-placement"
        | "gpu-claim"
        | "gpu-accounting"
        | "gpu-allocator-policy"
        | "gpu-graph"
        | "gpu-model" => &["gpu-core"],
        // The executor runs placed graphs.
        "gpu-executor" => &["gpu-core", "gpu-graph"],
        // Formats are plain data: advice is based on parsed messages.
        "gpu-memory-advice" => &["gpu-core", "gpu-text"],
        // Recordings, some of them printed text, are replayed under the allocators.
        "gpu-memory-trace" => &["gpu-core", "gpu-text", "gpu-allocator-policy"],
        // The steward combines the policies that a job needs and depends on no adapter.
        "gpu-steward" => {
            &["gpu-core", "gpu-reaper", "gpu-placement", "gpu-claim", "gpu-memory-advice"]
        }
        // The watcher's policy decides what the reaper plans.
        "gpu-watch" => &["gpu-core", "gpu-reaper"],
        // The reaper also plans the end of leftovers of Slurm jobs.
        "gpu-slurm" => &["gpu-core", "gpu-reaper"],
        // Reports are built from the data of the libraries, without an adapter.
        "gpu-report" => &[
            "gpu-core",
            "gpu-text",
            "gpu-reaper",
            "gpu-placement",
            "gpu-claim",
            "gpu-memory-advice",
            "gpu-memory-trace",
            "gpu-steward",
            "gpu-watch",
            "gpu-graph",
            "gpu-model",
            "gpu-executor",
            "gpu-accounting",
            "gpu-history",
            "gpu-fleet",
        ],
        // Views draw the data of the libraries, without an adapter.
        "gpu-top" => &["gpu-core", "gpu-reaper", "gpu-steward", "gpu-report"],
        "gpu-export" => &["gpu-core", "gpu-reaper", "gpu-claim", "gpu-steward"],
        // A single library opens machines and selects the adapters for the layers above.
        "gpu-machine" => &[
            "gpu-core",
            "gpu-drm",
            // It takes snapshots of the opened machine.
            "gpu-export",
            "gpu-history",
            "gpu-host",
            "gpu-kubelet",
            "gpu-nvidia",
            "gpu-nvidia-driver",
            "gpu-cuda",
            "gpu-sim",
            "gpu-reaper",
            "gpu-slurm",
            "gpu-steward",
        ],
        // The Python extension module.
        "gpu-python" => &[
            "gpu-core",
            "gpu-host",
            "gpu-nvidia-driver",
            "gpu-sim",
            "gpu-text",
            "gpu-reaper",
            "gpu-placement",
            "gpu-memory-advice",
            "gpu-steward",
            "gpu-machine",
            "gpu-report",
        ],
        // Otherwise only the program, the tests, the benches and the examples select adapters.
        "gpuws-benches" | "gpuws-examples" => &LIBRARIES_AND_XTASK[..LIBRARIES],
        // Their tests check the layers and pack the program.
        "gpuws-tests" | "gpuws" => LIBRARIES_AND_XTASK,
        "gpuws-protocol" => &["gpu-core", "gpu-host", "gpu-claim"],
        "xtask" => &[],
        _ => return None,
    })
}

/// All libraries, including nvml-sim, which tests and benches load, and xtask for tests.
const LIBRARIES_AND_XTASK: &[&str] = &[
    "gpu-core",
    "gpu-nvidia",
    "gpu-nvidia-driver",
    "gpu-cuda",
    "gpu-drm",
    "gpu-drm-driver",
    "gpu-host",
    "gpu-kubelet",
    "gpu-text",
    "gpu-sim",
    "gpu-nvml-sim",
    "gpu-history",
    "gpu-fleet",
    "gpu-reaper",
    "gpu-placement",
    "gpu-claim",
    "gpu-accounting",
    "gpu-graph",
    "gpu-model",
    "gpu-executor",
    "gpu-allocator-policy",
    "gpu-memory-advice",
    "gpu-memory-trace",
    "gpu-steward",
    "gpu-watch",
    "gpu-slurm",
    "gpu-machine",
    "gpu-report",
    "gpu-top",
    "gpu-export",
    "xtask",
];
const LIBRARIES: usize = LIBRARIES_AND_XTASK.len() - 1;

/// What every package but gpu-core may use in its tests: they describe the files of a driver.
const IN_TESTS: &[&str] = &["gpu-nvidia-driver", "gpu-drm-driver"];

/// All external packages that the ports may use: serialization, errors, mocks, and proptest and
/// serde_json in tests; none of them does I/O.
pub const OUTSIDE_OF_CORE: &[&str] =
    &["serde", "schemars", "thiserror", "mockall", "proptest", "serde_json"];

/// Packages that access the operating system, and their permitted users.
pub const SYSTEM: &[&str] = &["rustix", "nix", "procfs", "libc"];
const SYSTEM_USERS: &[&str] = &[
    "gpu-host",
    "gpu-nvidia",
    "gpu-nvml-sim",
    // It reads the files of the kernel.
    "gpu-drm",
    // It checks the owner of session directories.
    "gpu-sim",
    // It opens history files without following links, and locks them.
    "gpu-history",
    // It supervises ssh.
    "gpu-fleet",
    "gpu-machine",
    // It waits for connections and for the end of a snapshot.
    "gpu-export",
    // It restores the terminal, and stops its process group on Ctrl-Z.
    "gpu-top",
    // It reads the kernel's clock.
    "gpu-python",
    "gpuws",
    "gpuws-tests",
    "gpuws-benches",
    "xtask",
];

/// Reads the packages of the workspace at `root` from `cargo tree`, with all features and targets.
///
/// # Errors
/// If cargo cannot be run or fails; the error contains its message.
pub fn read(root: &Path) -> io::Result<Vec<Package>> {
    let mut packages = dependencies(root, "normal,build,dev")?;
    let built = dependencies(root, "normal,build")?;
    for package in &mut packages {
        let built = built.iter().find(|built| built.name == package.name);
        let built = built.map(|built| built.depends_on.clone()).unwrap_or_default();
        package.only_in_tests = package.depends_on.difference(&built).cloned().collect();
    }
    Ok(packages)
}

/// Reads the packages of the workspace with their dependencies of these kinds.
fn dependencies(root: &Path, edges: &str) -> io::Result<Vec<Package>> {
    let words = ["--workspace", "--all-features", "--target", "all", "--edges", edges];
    // `--no-dedupe`: otherwise the dependencies of a package are omitted after its first occurrence.
    let form = ["--depth", "1", "--prefix", "depth", "--no-dedupe", "--format", "{p}"];
    let text = cargo::tree(root, &[&words[..], &form].concat())?;
    Ok(parse(&text, root))
}

/// Parses the output of `cargo tree --depth 1 --prefix depth --format {p}`.
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
                only_in_tests: BTreeSet::new(),
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

/// Returns every forbidden edge, at its line in `Cargo.toml`.
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
                say("name", what, &format!("rename it to '{expected}'"));
            }
        }
        let Some(allowed) = may_depend_on(name) else {
            let what = format!("package '{name}' has no layer");
            say("name", what, "add its layer to xtask/src/layering.rs and docs/architecture.md");
            continue;
        };
        for dependency in &package.depends_on {
            let dependency = dependency.as_str();
            let inside = members.contains(dependency) || may_depend_on(dependency).is_some();
            let is_test_data = IN_TESTS.contains(&dependency)
                && package.only_in_tests.contains(dependency)
                && name != "gpu-core";
            if inside && !allowed.contains(&dependency) && !is_test_data {
                let what = format!("'{name}' depends on '{dependency}'");
                say(
                    dependency,
                    what,
                    "go through a port of gpu-core, or move the code up to cli or tests",
                );
            }
            if name == "gpu-core" && !OUTSIDE_OF_CORE.contains(&dependency) && !inside {
                let what = format!("gpu-core depends on '{dependency}'");
                say(dependency, what, "only adapters may use it, not ports or plain data");
            } else if SYSTEM.contains(&dependency) && !SYSTEM_USERS.contains(&name) {
                let what = format!("'{name}' accesses the operating system through '{dependency}'");
                say(dependency, what, "use the Host port of gpu-core instead");
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
            only_in_tests: BTreeSet::new(),
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
    fn policy_uses_driver_tables_only_in_tests() {
        let mut reaper = package("gpu-reaper", "crates/reaper", &["gpu-nvidia-driver"]);
        assert_eq!(check(std::slice::from_ref(&reaper), &Tree::default()).len(), 1);
        reaper.only_in_tests = reaper.depends_on.clone();
        assert_eq!(check(&[reaper], &Tree::default()), []);
        let mut core = package("gpu-core", "crates/gpu-core", &["gpu-nvidia-driver"]);
        core.only_in_tests = core.depends_on.clone();
        assert_eq!(check(&[core], &Tree::default()).len(), 1);
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
