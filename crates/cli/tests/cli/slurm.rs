//! `gpuws slurm`, as slurmd starts it.

use crate::live::{GPUWS, out};
use std::process::Command;

#[test]
fn script_that_cannot_start_its_worker_does_not_drain_the_node() {
    let script = "for name in prolog epilog health; do\n\
                    (ulimit -n 4; exec \"$0\" slurm $name) 2> said; code=$?\n\
                    echo $name $code $(grep -c 'Too many open files' said)\n\
                  done";
    let dir = tempfile::tempdir().unwrap();
    let mut shell = Command::new("sh");
    let output = shell.args(["-c", script, GPUWS]).current_dir(dir.path()).output().unwrap();
    assert_eq!(out(&output), "prolog 0 1\nepilog 0 1\nhealth 3 1\n", "{output:?}");
}
