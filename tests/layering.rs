//! The layers of the workspace, from `cargo tree`. The rule is in `xtask/src/layering.rs`; this
//! test applies it to the workspace, and shows that it can fail on a violation.

use xtask::layering::{self, Package, may_depend_on};
use xtask::{Tree, workspace_root};

const POLICIES: &[&str] =
    &["gpu-reaper", "gpu-placement", "gpu-claim", "gpu-allocator-policy", "gpu-memory-advice"];
const ADAPTERS: &[&str] = &["gpu-nvidia", "gpu-cuda", "gpu-host", "gpu-sim"];
/// Parsers without I/O, which any package that reads the output of other tools may use.
const FORMATS: &[&str] = &["gpu-text"];

fn packages() -> Vec<Package> {
    layering::read(workspace_root()).expect("cargo tree runs")
}

fn allowed(from: &str, to: &str) -> bool {
    may_depend_on(from).is_some_and(|allowed| allowed.contains(&to))
}

#[test]
fn workspace_respects_layers() {
    let packages = packages();
    for member in ["gpu-core", "gpu-text", "gpu-sim", "gpu-host", "gpu-reaper", "gpuws"] {
        assert!(
            packages.iter().any(|package| package.name == member),
            "{member} was not looked at"
        );
    }
    let core = packages
        .iter()
        .find(|package| package.name == "gpu-core")
        .expect("gpu-core is in the workspace");
    assert!(core.depends_on.contains("thiserror"), "its own dependencies are seen: {core:?}");
    let tree = Tree::read(workspace_root()).expect("the repository can be read");
    let violations: Vec<String> =
        layering::check(&packages, &tree).iter().map(ToString::to_string).collect();
    assert!(violations.is_empty(), "\n{}", violations.join("\n"));
}

#[test]
fn forbidden_dependency_is_detected() {
    let tree = Tree::default();
    for (from, to) in [
        ("gpu-core", "gpu-host"),
        ("gpu-core", "rustix"),
        ("gpu-text", "gpu-sim"),
        ("gpu-host", "gpu-text"),
        ("gpu-sim", "gpu-reaper"),
        ("gpu-reaper", "gpu-sim"),
        ("gpu-reaper", "gpu-claim"),
        ("gpu-reaper", "rustix"),
        ("gpu-reaper", "gpuws"),
        ("gpu-sim", "gpuws-examples"),
        ("gpuws-examples", "gpuws"),
        ("gpuws-examples", "rustix"),
        ("gpu-steward", "gpu-allocator-policy"),
        ("gpu-allocator-policy", "gpu-memory-trace"),
        ("gpu-memory-trace", "gpu-memory-advice"),
    ] {
        let mut packages = packages();
        let before = layering::check(&packages, &tree).len();
        let package = packages.iter_mut().find(|package| package.name == from);
        package.expect("a package of the workspace").depends_on.insert(to.to_owned());
        assert_eq!(layering::check(&packages, &tree).len(), before + 1, "{from} -> {to}");
    }
}

#[test]
fn policies_and_adapters_depend_only_on_core() {
    let all = || POLICIES.iter().chain(ADAPTERS).chain(FORMATS);
    for from in all() {
        assert!(allowed(from, "gpu-core"), "{from}");
        for to in all() {
            let reads_text = ["gpu-sim", "gpu-memory-advice"].contains(from) && *to == "gpu-text";
            assert_eq!(allowed(from, to), reads_text, "{from} -> {to}");
        }
    }
    assert_eq!(may_depend_on("gpu-core"), Some(&[][..]));
    let of_trace = ["gpu-core", "gpu-text", "gpu-allocator-policy"];
    assert_eq!(may_depend_on("gpu-memory-trace"), Some(&of_trace[..]));
    let of_nvml_sim = ["gpu-core", "gpu-nvidia-driver", "gpu-sim"];
    assert_eq!(may_depend_on("gpu-nvml-sim"), Some(&of_nvml_sim[..]));
}

#[test]
fn steward_depends_on_policies_of_jobs_but_no_adapter() {
    for policy in POLICIES {
        // The steward starts programs that bring their own allocator.
        let is_of_jobs = *policy != "gpu-allocator-policy";
        assert_eq!(allowed("gpu-steward", policy), is_of_jobs, "{policy}");
    }
    assert!(!allowed("gpu-steward", "gpu-memory-trace"));
    for adapter in ADAPTERS.iter().chain(FORMATS) {
        assert!(!allowed("gpu-steward", adapter), "{adapter}");
    }
}

#[test]
fn only_permitted_packages_choose_adapters() {
    for package in packages() {
        let chosen = ADAPTERS.iter().filter(|adapter| package.depends_on.contains(**adapter));
        let chooses = matches!(
            package.name.as_str(),
            "gpu-machine"
                | "gpuws"
                | "gpu-python"
                | "gpuws-tests"
                | "gpuws-protocol"
                | "gpuws-benches"
                | "gpuws-examples"
        );
        // gpu-nvml-sim serves a machine that another package simulates.
        let exception = package.name == "gpu-nvml-sim";
        assert!(chooses || exception || chosen.count() == 0, "{} chooses an adapter", package.name);
    }
}
