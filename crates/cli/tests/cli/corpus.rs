//! The corpus of real outputs, if it is available: every record must be parsed correctly.

use std::io::Write;
use std::path::Path;
use std::process::Command;

#[test]
fn every_corpus_record_is_parsed_correctly() {
    // Bypasses the test harness, which hides the output of passing tests.
    let mut stderr = std::io::stderr();
    let Some(corpus) = std::env::var_os("GPUWS_CORPUS") else {
        writeln!(stderr, "skipped: GPUWS_CORPUS names no collection of real outputs").unwrap();
        return;
    };
    let check = Path::new(&corpus).join("check.py");
    // Out-of-memory messages belong to another command, so they are requested by kind.
    for kind in [&[][..], &["--kind", "oom"]] {
        let mut command = Command::new("python3");
        command.arg(&check).arg(env!("CARGO_BIN_EXE_gpuws")).args(kind);
        let output = command.output().expect("python3 runs the corpus's own check");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
        writeln!(stderr, "{}", text.lines().last().unwrap_or_default()).unwrap();
    }
}
