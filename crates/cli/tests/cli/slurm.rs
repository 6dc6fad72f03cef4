//! `gpuws slurm`, as slurmd starts it.

use crate::live::{GPUWS, out};
use crate::program::skipped;
use std::process::Command;

#[test]
fn script_failing_to_start_its_worker_does_not_drain_node() {
    let script = "for name in prolog epilog health; do\n\
                    (exec 3<&-; ulimit -n 4; exec \"$0\" slurm $name) 2> said; code=$?\n\
                    echo $name $code $(grep -c 'Too many open files' said)\n\
                  done";
    let dir = tempfile::tempdir().unwrap();
    let mut shell = Command::new("sh");
    let output = shell.args(["-c", script, GPUWS]).current_dir(dir.path()).output().unwrap();
    assert_eq!(out(&output), "prolog 0 1\nepilog 0 1\nhealth 3 1\n", "{output:?}");
}

#[test]
fn unfinished_health_check_drains_the_node() {
    // Consoles stand in for the devices, and the query for the processes that Slurm tracks hangs.
    let script = "cd \"$1\" && mkdir bin sbin && mknod nvidia0 c 4 40 && mknod nvidia-uvm c 4 44 &&\n\
                  true <> nvidia0 || { echo skipped; exit; }\n\
                  printf '#!/bin/sh\\necho \"$@\" >> %s/asked\\ncase \"$*\" in listpids) exec sleep 20;;\n\
                  *\"show node\"*) echo \"NodeName=n1 State=IDLE\" ;; esac\\n' \"$PWD\" > bin/scontrol\n\
                  printf '#!/bin/sh\\necho \"Gres Name=gpu Index=0 File=%s/nvidia0\"\\n' \"$PWD\" > sbin/slurmd\n\
                  printf '#!/bin/sh\\n' > bin/squeue\n\
                  chmod 755 bin/* sbin/*\n\
                  sleep 100 9<>nvidia0 8<>nvidia-uvm 2>/dev/null & holder=$!\n\
                  \"$0\" slurm health --slurm \"$PWD\" --node n1 --limit 6s 2>/dev/null\n\
                  echo $?; kill $holder; grep update asked";
    if !nix::unistd::geteuid().is_root() {
        return skipped("only root can make device files");
    }
    let dir = tempfile::tempdir().unwrap();
    let mut shell = Command::new("sh");
    let output = shell.args(["-c", script, GPUWS]).arg(dir.path()).output().unwrap();
    let message = out(&output);
    if message == "skipped\n" {
        return skipped("device files cannot be made here");
    }
    let update = "update NodeName=n1 State=DRAIN Reason=gpuws: GPU 0 not checked in time";
    assert_eq!(message, format!("1\n{update}\n"), "{output:?}");
}
