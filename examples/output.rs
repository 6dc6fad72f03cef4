//! Runs each example and checks its main output.

use std::io::Write;
use std::process::{Command, Output, Stdio};

/// Runs an example with text as its standard input.
fn run(program: &str, arguments: &[&str], input: &str) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the example starts");
    // An example that does not read its input may have exited already.
    let _ = child.stdin.take().expect("it is piped").write_all(input.as_bytes());
    child.wait_with_output().expect("the example ends")
}

/// Returns the lines that an example prints.
fn lines(program: &str, arguments: &[&str], input: &str) -> Vec<String> {
    let output = run(program, arguments, input);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program}: {errors}");
    String::from_utf8(output.stdout).expect("text").lines().map(str::to_owned).collect()
}

#[test]
fn ghost_hunt_finds_ghost_and_proves_freed_memory() {
    let lines = lines(env!("CARGO_BIN_EXE_ghost_hunt"), &[], "");
    let [finding, target, freed] = &lines[..] else { panic!("{lines:?}") };
    assert!(finding.starts_with("Ghost, High: 15,849 of 16,280 MiB used"), "{finding}");
    assert_eq!(target, "end 100562 \"t2t-decoder\": ghost");
    assert_eq!(freed, "GPU 0: 15824 MiB proven freed");
}

#[test]
fn ghost_hunt_fits_on_one_screen() {
    assert!(include_str!("ghost_hunt.rs").lines().count() <= 40);
}

#[test]
fn claim_leases_device_once_until_release() {
    let lines = lines(env!("CARGO_BIN_EXE_claim"), &[], "");
    let [leased, refused, released, again] = &lines[..] else { panic!("{lines:?}") };
    assert!(leased.starts_with("leased GPU 0: GPU-"), "{leased}");
    assert_eq!(refused, "second claim: none is available now");
    assert_eq!(released, "leases after the release: 0");
    assert_eq!(again, "second claim: leased GPU 0");
}

#[test]
fn sub_allocator_caches_segment_until_cache_is_emptied() {
    let lines = lines(env!("CARGO_BIN_EXE_sub_allocator"), &[], "");
    assert_eq!(
        lines,
        [
            "two tensors: 8 MiB in use, 20 MiB reserved, 20 MiB of the device",
            "one freed: 3 MiB in use, 20 MiB reserved, 20 MiB of the device",
            "cache empty: 0 MiB in use, 0 MiB reserved, 0 MiB of the device",
            "returned 20 MiB",
        ]
    );
}

#[test]
fn parse_smi_reads_recording_and_standard_input() {
    let parse_smi = env!("CARGO_BIN_EXE_parse_smi");
    let recorded = lines(parse_smi, &["k80-single"], "");
    let text = include_str!("../sim-fixtures/machines/k80-single/nvidia-smi.txt");
    assert_eq!(recorded, lines(parse_smi, &[], text));
    assert_eq!(recorded[0], "GPU 0 \"Tesla K80\": 2259 MiB of 11439 MiB");
    assert!(recorded[1].starts_with("  4631 ") && recorded[1].ends_with(": 2248 MiB"));

    let unknown = run(parse_smi, &[], "no GPU at all\n");
    assert!(!unknown.status.success() && unknown.stdout.is_empty());
}
