//! The collection of real outputs, where it is at hand: every record must be read right.

use std::io::Write;
use std::path::Path;
use std::process::Command;

#[test]
fn every_corpus_record_is_parsed_correctly() {
    // Written past the test harness, which shows nothing of a test that passes.
    let mut stderr = std::io::stderr();
    let Some(corpus) = std::env::var_os("GPUWS_CORPUS") else {
        writeln!(stderr, "skipped: GPUWS_CORPUS names no collection of real outputs").unwrap();
        return;
    };
    let check = Path::new(&corpus).join("check.py");
    // The texts about memory that ran out are another command's, so they are asked for by name.
    for kind in [&[][..], &["--kind", "oom"]] {
        let mut command = Command::new("python3");
        command.arg(&check).arg(env!("CARGO_BIN_EXE_gpuws")).args(kind);
        let output = command.output().expect("python3 runs the corpus's own check");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
        writeln!(stderr, "{}", text.lines().last().unwrap_or_default()).unwrap();
    }
}
