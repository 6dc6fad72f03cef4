//! Claimed devices in containers of a real podman, in separate namespaces, if `cargo xtask podman`
//! has fetched it.

use std::io::Write;
use std::path::PathBuf;

#[test]
fn container_gets_claimed_devices_and_ends_with_its_run() {
    let skip = |why: &str| {
        writeln!(std::io::stderr(), "skipped: containers: {why}").expect("standard error is open");
    };
    if !rustix::process::geteuid().is_root() {
        return skip("podman in namespaces of its own needs root");
    }
    let Some(tree) = xtask::unpacked_podman(xtask::workspace_root()) else {
        return skip("no podman here; cargo xtask podman fetches it");
    };
    let Some(gpuws) = program() else {
        return skip("gpuws or the simulated NVML is not built beside this test");
    };
    assert!(xtask::run_containers(&tree, &gpuws).expect("namespaces can be made"));
}

/// Returns the program that cargo built next to this test.
fn program() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    let dir = own.parent()?.parent()?;
    let files = ["gpuws", "libnvml_sim.so", "nvml-sim-process"].map(|name| dir.join(name));
    let are_there = files.iter().all(|file| file.is_file());
    files.into_iter().next().filter(|_| are_there)
}
