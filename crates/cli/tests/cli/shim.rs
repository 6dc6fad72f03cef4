//! The nvidia-smi that a job finds first: it answers the two queries of safe-gpu inside a lease,
//! and passes all other queries to the real one.

use crate::live::{out, script};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, lchown};

/// A real nvidia-smi that repeats its arguments.
const REAL: &str = "mkdir bin; printf '#!/bin/sh\\necho \"real $*\"; exit 3\\n' > bin/nvidia-smi\n\
                    chmod +x bin/nvidia-smi; PATH=$PWD/bin:$PATH; export PATH\n";
const DEVICES: &str = "--query-gpu=index,gpu_bus_id --format=csv,noheader";
const PROCESSES: &str = "--query-compute-apps=pid,gpu_bus_id --format=csv,noheader";

#[test]
fn only_the_queries_of_safe_gpu_are_answered_inside_a_lease() {
    let output = script(
        "twelve-gpus",
        &format!(
            "{REAL}cat > job <<'END'\n\
             nvidia-smi {DEVICES}; echo $?\n\
             nvidia-smi {PROCESSES}; echo $?\n\
             nvidia-smi --format=csv,noheader --query-gpu=index,gpu_bus_id | wc -l\n\
             nvidia-smi {DEVICES} -i 0\n\
             nvidia-smi --query-gpu=index,gpu_bus_id --format=csv\n\
             nvidia-smi --query-gpu=index --format=csv,noheader\n\
             nvidia-smi --format=csv,noheader\n\
             nvidia-smi --query-gpu=index,gpu_bus_id\n\
             nvidia-smi; echo $?\n\
             END\n\
             \"$0\" run --quiet -n 2 --gpu 3,5 -- sh job\n\
             shim=$(\"$0\" run --quiet -- sh -c 'echo ${{PATH%%:*}}')\n\
             $shim/nvidia-smi {DEVICES}; PATH=$shim:/bin:/usr/bin env -u GPUWS_SIM_SESSION $shim/nvidia-smi; echo $?"
        ),
    );
    let expected = format!(
        "3, 00000000:34:00.0\n5, 00000000:54:00.0\n0\n0\n2\nreal {DEVICES} -i 0\n\
         real --query-gpu=index,gpu_bus_id --format=csv\n\
         real --query-gpu=index --format=csv,noheader\nreal --format=csv,noheader\n\
         real --query-gpu=index,gpu_bus_id\nreal \n3\nreal {DEVICES}\n127\n"
    );
    assert_eq!(out(&output), expected, "{output:?}");
}

/// Processes of another job that shares the device must not make it look used.
#[test]
fn only_processes_of_the_own_job_are_listed() {
    let output = script(
        "twelve-gpus",
        &format!(
            "cat > job <<'END'\n\
             \"$GPUWS_SIM_SESSION/nvml-sim-process\" --use visible:500 & own=$!\n\
             n=0; until nvidia-smi {PROCESSES} | grep -q . || [ $n = 400 ]; do n=$((n+1)); sleep 0.05; done\n\
             nvidia-smi {PROCESSES} | sed \"s/^$own,/own,/\"; kill $own\n\
             END\n\
             \"$0\" run --quiet --gpu 3 --mem 2GiB -- sh -c '\n\
             \"$GPUWS_SIM_SESSION/nvml-sim-process\" --use visible:500 & echo $! > other; wait' & front=$!\n\
             until_so test -s other\n\
             until_so sh -c '\"$0\" status --json | grep -q \"\\\"pid\\\": $(cat other),\"' \"$0\"\n\
             \"$0\" run --quiet --gpu 3 --mem 2GiB -- sh job; kill $front; wait $front"
        ),
    );
    assert_eq!(out(&output), "own, 00000000:34:00.0\n", "{output:?}");
}

#[test]
fn path_of_the_job_keeps_its_directories_and_the_link_stays() {
    let output = script(
        "twelve-gpus",
        "shim() { \"$0\" run --quiet -- /bin/sh -c 'echo $PATH'; }\n\
         first=$(shim); link=${first%%:*}/nvidia-smi; inode=$(stat -c %i $link)\n\
         (PATH=/nowhere:$PATH; shim | grep -c ':/nowhere:'); (PATH=; shim) | cut -d: -f2-\n\
         [ $(stat -c %i $link) = $inode ] && echo same; [ $link -ef \"$0\" ] && echo own\n\
         \"$0\" run --quiet --no-nvidia-smi -- sh -c '[ \"$PATH\" = \"$1\" ] && echo as before' sh \"$PATH\"",
    );
    assert_eq!(out(&output), "1\n/bin:/usr/bin\nsame\nown\nas before\n", "{output:?}");
}

/// A colon separates the directories in `PATH`, so the shim is in the next best place.
#[test]
fn shim_is_never_in_a_directory_with_a_colon() {
    const NOBODY: u32 = 65534;
    let place = match tempfile::tempdir_in("/run") {
        Ok(place) if rustix::process::geteuid().is_root() => place,
        _ => {
            let _ = writeln!(std::io::stderr(), "skipped: needs root and a writable /run");
            return;
        }
    };
    std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let [home, runtime] = ["home", "a:b"].map(|name| place.path().join(name));
    for dir in [&home, &runtime] {
        std::fs::create_dir(dir).unwrap();
        lchown(dir, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let output = script(
        "twelve-gpus",
        &format!(
            "cd /; exec setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups \
             env -u GPUWS_SIM_SESSION -u LD_LIBRARY_PATH -u XDG_CACHE_HOME \
             -u XDG_RUNTIME_DIR HOME='{}' NO_COLOR=1 \"$0\" sim twelve-gpus --live -- \
             env XDG_RUNTIME_DIR='{}' \"$0\" run --quiet -- sh -c 'echo \"${{PATH%%:*}}\"'",
            home.display(),
            runtime.display()
        ),
    );
    assert_eq!(out(&output), format!("{}/.cache/gpuws/bin\n", home.display()), "{output:?}");
}

/// The link in `PATH` and the session may belong to two installations of gpuws.
#[test]
fn two_installations_do_not_execute_each_other_forever() {
    let output = script(
        "labbox",
        "mkdir first; cp \"$0\" copy; ln -s ../copy first/nvidia-smi\n\
         PATH=$PWD/first:$PATH; export PATH\n\
         timeout 30 nvidia-smi -L | wc -l; timeout 30 \"$GPUWS_SIM_SESSION/nvidia-smi\" -L | wc -l",
    );
    assert_eq!(out(&output), "4\n4\n", "{output:?}");
}
