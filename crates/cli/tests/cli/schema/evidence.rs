//! The codes of the evidence in `doctor --json`, on every shipped machine.

use super::commands::run;
use crate::live::out;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;

/// Evidence codes that no shipped machine has; tests of gpu-reaper cover them.
const NOT_SHIPPED: [&str; 32] = [
    "below-slowdown-temperature",
    "device-error",
    "driver-unavailable",
    "ecc-mode-pending",
    "fabric-not-registered",
    "fabric-registration-failed",
    "fabric-unhealthy",
    "held-by-mps",
    "holders-unknown",
    "mapped-by-display-or-daemon",
    "memory-grows",
    "memory-not-measured",
    "mig-mode-pending",
    "never-computed",
    "no-answer",
    "no-spare-rows",
    "not-queried",
    "nvlinks-inactive",
    "persistence-mode-off",
    "pod",
    "ray-worker",
    "reboot-required",
    "recovery-required",
    "reset-recommended",
    "reset-required",
    "slurm-job",
    "sram-threshold-exceeded",
    "started-just-now",
    "stopped",
    "sxid",
    "unreadable-values",
    "zombie",
];

/// Returns the codes of the schema.
fn known() -> BTreeSet<String> {
    let text = fs::read_to_string(super::documents::dir().join("doctor.json")).expect("a schema");
    let schema: Value = serde_json::from_str(&text).expect("it is JSON");
    let codes = schema["$defs"]["EvidenceCode"]["oneOf"].as_array().expect("a list");
    let names = codes.iter().map(|code| code["const"].as_str().expect("a name").to_owned());
    names.collect()
}

/// Returns the items of a list of an object.
fn list<'a>(of: &'a Value, name: &str) -> &'a [Value] {
    of[name].as_array().unwrap_or_else(|| panic!("{name} is no list: {of}"))
}

/// Returns the codes of a finding or a suspect.
fn codes(of: &Value) -> impl Iterator<Item = String> {
    let (texts, codes) = (list(of, "evidence"), list(of, "evidence_codes"));
    assert_eq!(texts.len(), codes.len(), "{of}");
    codes.iter().map(|code| code.as_str().expect("a name").to_owned())
}

#[test]
fn every_fragment_of_evidence_has_a_code() {
    let mut found = BTreeSet::new();
    for machine in gpu_sim::machines() {
        for times in
            [&[][..], &["--looks", "3", "--every", "5"], &["--looks", "3", "--every", "300"]]
        {
            let words = [&["--json", "--sim", machine.name, "doctor"], times].concat();
            let output = run(&words);
            // The driver of some machines does not load.
            let Ok(doctor) = serde_json::from_str::<Value>(&out(&output)) else { continue };
            for finding in list(&doctor, "findings") {
                found.extend(codes(finding));
                found.extend(list(finding, "suspects").iter().flat_map(codes));
            }
        }
    }
    let missing: Vec<String> = known().difference(&found).cloned().collect();
    assert_eq!(missing, NOT_SHIPPED);
    assert!(found.is_subset(&known()), "{found:?}");
}
