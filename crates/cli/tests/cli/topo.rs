//! `gpuws topo`: the matrix and the picture of shipped machines, and the error for an unknown
//! topology. `SNAPSHOTS=overwrite cargo test -p gpuws topo::` updates the golden files.

use serde_json::{Value, json};
use snapbox::Data;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const OWN: &str = env!("CARGO_BIN_EXE_gpuws");

fn gpuws(words: &[&str]) -> Output {
    let mut command = Command::new(OWN);
    command.args(words).stdin(Stdio::null()).env("NO_COLOR", "1");
    command.env_remove("LD_LIBRARY_PATH").env_remove("GPUWS_SIM_SESSION");
    command.output().expect("gpuws runs")
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).expect("gpuws prints UTF-8")
}

fn hold(name: &str, what: String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    snapbox::assert_data_eq!(what, Data::read_from(&path, None).raw());
}

#[test]
fn matrix_and_svg_match_golden_files() {
    for machine in ["dgx1-v100", "hgx-h100-x8", "rtx8000-x4", "gtx1080ti-x8", "labbox"] {
        let matrix = gpuws(&["--sim", machine, "topo"]);
        assert!(matrix.status.success() && matrix.stderr.is_empty(), "{matrix:?}");
        hold(&format!("{machine}.topo.txt"), text(matrix.stdout));
    }
    for machine in ["dgx1-v100", "hgx-h100-x8"] {
        let picture = gpuws(&["--sim", machine, "topo", "--svg", "-"]);
        assert!(picture.status.success(), "{picture:?}");
        let picture = text(picture.stdout);
        assert!(picture.contains(&format!("simulated machine {machine}")), "{picture}");
        hold(&format!("{machine}.topo.svg"), picture);
    }
}

#[test]
fn svg_is_written_to_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("topo.svg");
    let name = file.to_str().unwrap();
    let drawn = gpuws(&["--sim", "rtx8000-x4", "topo", "--svg", name]);
    assert!(drawn.status.success() && drawn.stdout.is_empty(), "{drawn:?}");
    let written = std::fs::read(&file).unwrap();
    assert_eq!(written, gpuws(&["--sim", "rtx8000-x4", "topo", "--svg", "-"]).stdout);
    let refused = gpuws(&["--sim", "labbox", "topo", "--svg", name]);
    assert_eq!((refused.status.code(), std::fs::read(&file).unwrap()), (Some(2), written));
    assert!(text(refused.stderr).contains("it already exists"));
    let nowhere = dir.path().join("none/topo.svg");
    let failed = gpuws(&["--sim", "rtx8000-x4", "topo", "--svg", nowhere.to_str().unwrap()]);
    assert_eq!(failed.status.code(), Some(3), "{failed:?}");
    assert!(text(failed.stderr).starts_with("gpuws: failed to write '"));
}

#[test]
fn json_has_links_paths_and_scores() {
    let reported: Value =
        serde_json::from_slice(&gpuws(&["--sim", "rtx8000-x4", "topo", "--json"]).stdout).unwrap();
    assert_eq!((&reported["schema"], &reported["machine"]), (&json!(1), &json!("rtx8000-x4")));
    assert_eq!(reported["links"][0], json!(["X", "NODE", "SYS", "NV2"]));
    assert_eq!(reported["paths"][0], json!(["X", "NODE", "SYS", "SYS"]));
    assert_eq!(reported["scores"][0], json!([0, 20, 10, 210]));
    assert_eq!(reported["gpus"].as_array().unwrap().len(), 4);
    assert_eq!(reported["gpus"][3]["index"], 3);
    let refused = gpuws(&["--sim", "rtx8000-x4", "topo", "--json", "--svg", "-"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
}

#[test]
fn topo_in_session_matches_direct_simulation() {
    let here = text(gpuws(&["--sim", "dgx1-v100", "topo", "--quiet"]).stdout);
    let there = gpuws(&["sim", "dgx1-v100", "--at", "0", "--", OWN, "topo", "--quiet"]);
    assert!(there.status.success(), "{there:?}");
    let matrix = |shown: &str| shown.split_once("\n\n").map(|(_, matrix)| matrix.to_owned());
    assert_eq!(matrix(&text(there.stdout)), matrix(&here));
    assert!(here.contains("GPU7  SYS   SYS   SYS   NV1"), "{here}");
}

#[test]
fn missing_topology_has_hint() {
    for (machine, output_text) in [
        ("no-driver", "no NVIDIA driver is installed\nhint: install the driver"),
        ("driver-mismatch", "hint: the driver was upgraded without a reboot"),
        ("gtx1080ti-x8-hoarder", "hint: the recording has no topology"),
    ] {
        let failed = gpuws(&["--sim", machine, "topo"]);
        assert_eq!(failed.status.code(), Some(3), "{failed:?}");
        assert!(failed.stdout.is_empty(), "{failed:?}");
        let reported = text(failed.stderr);
        assert!(
            reported.starts_with("gpuws: failed to query ") && reported.contains(output_text),
            "{reported}"
        );
    }
}

#[test]
fn each_device_of_the_svg_has_its_own_name() {
    let dir = tempfile::tempdir().unwrap();
    let machine = "description = 'made'\nclock = 2025-03-03T10:00:00Z\ntopology = ['X NV2', 'NV2 X']\n\
                [[gpu]]\nindex = 0\nname = 'First'\nmemory_total_mib = 100\n\
                [[gpu]]\nindex = 1\nname = 'Second'\nmemory_total_mib = 100\n";
    std::fs::write(dir.path().join("machine.toml"), machine).unwrap();
    let drawn = gpuws(&["--sim", dir.path().to_str().unwrap(), "topo", "--svg", "-"]);
    let picture = text(drawn.stdout);
    let names = [picture.find("First"), picture.find("Second")];
    assert!(names[0].is_some() && names[0] < names[1], "{picture}");
}
