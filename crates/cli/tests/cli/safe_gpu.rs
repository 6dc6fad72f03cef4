//! gpuws and the published safe-gpu together: neither gets devices of the other.
//!
//! `cargo xtask peers --install-only` installs both versions; if one is missing, its tests print a
//! note and end.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

const GPUWS: &str = env!("CARGO_BIN_EXE_gpuws");

/// The directory where `cargo xtask peers` installs a version.
fn installed(version: &str) -> Option<PathBuf> {
    let target = PathBuf::from(GPUWS).parent()?.parent()?.to_owned();
    let dir = target.join("peers").join(format!("safe-gpu-{version}"));
    if dir.join("requirements.txt").is_file() {
        return Some(dir);
    }
    // Bypasses the test harness, which hides the output of passing tests.
    let mut stderr = std::io::stderr();
    let _ = writeln!(stderr, "skipped: safe-gpu {version} is not there");
    None
}

/// A user of safe-gpu, with a real process on the simulated device instead of a CUDA context:
/// claims the number of devices of its first argument, prints them, and keeps them until the file
/// of the second argument exists; without one it ends.
const USER: &str = r#"
import os, subprocess, sys, time
from safe_gpu import safe_gpu

# The lock file lies in the session, so that no test keeps this machine's own users waiting.
session = os.environ["GPUWS_SIM_SESSION"]
safe_gpu.LOCK_FILENAME = session + safe_gpu.LOCK_FILENAME.removeprefix("/tmp")
claim = safe_gpu.claim_gpus

started = []

def placeholder(number):
    device = os.environ["CUDA_VISIBLE_DEVICES"].split(",")[number]
    actor = os.path.join(os.environ["GPUWS_SIM_SESSION"], "nvml-sim-process")
    actor = os.environ.get("ACTOR", actor)
    child = subprocess.Popen([actor, "--use", device + ":500"])
    walk_ons = os.path.join(os.environ["GPUWS_SIM_SESSION"], "walk-ons")
    for _ in range(400):
        if any(name.startswith("%d-" % child.pid) for name in os.listdir(walk_ons)):
            break
        time.sleep(0.02)
    time.sleep(0.05)
    started.append(child)
    return child

try:
    claim(int(sys.argv[1]), placeholder)
    print("safe_gpu", os.environ["CUDA_VISIBLE_DEVICES"], flush=True)
    for _ in range(2000):
        if len(sys.argv) < 3 or os.path.exists(sys.argv[2]):
            break
        time.sleep(0.05)
except RuntimeError as error:
    print("refused", flush=True)
finally:
    for child in started:
        child.kill()
        child.wait()
"#;

/// A job that uses each device of its arguments until the file `done` exists.
const JOB: &str = r#"
for device; do "$GPUWS_SIM_SESSION/nvml-sim-process" --use $device:500 & all="$all $!"; done
n=0; until [ -e done ] || [ $n = 2000 ]; do n=$((n+1)); sleep 0.05; done
kill $all; wait
"#;

/// An nvidia-smi that supports the queries of safe-gpu.
const NVIDIA_SMI: &str = r#"#!/bin/sh
if [ "$1" = -q ]; then
  echo "Attached GPUs : $("$GPUWS" query --query-gpu=index --format=csv,noheader 2>/dev/null | wc -l)"
  echo "Display Mode : $("$GPUWS" query --query-gpu=display_mode --format=csv,noheader 2>/dev/null | head -1)"
  exit 0
fi
exec "$GPUWS" query "$@" 2>/dev/null
"#;

/// Runs a shell script in a live session of a machine, with `safe_gpu N [FILE]` for a user of
/// safe-gpu and `sh job DEVICE…` for a job; `None` if that version is not installed.
fn script(version: &str, machine: &str, script: &str) -> Option<Output> {
    let package = installed(version)?;
    let dir = tempfile::tempdir().unwrap();
    let smi = dir.path().join("nvidia-smi");
    std::fs::write(dir.path().join("smi"), NVIDIA_SMI).unwrap();
    let mut install = Command::new("install");
    install.args(["-m", "755"]).arg(dir.path().join("smi")).arg(&smi);
    assert!(install.status().unwrap().success());
    std::fs::write(dir.path().join("user.py"), USER).unwrap();
    std::fs::write(dir.path().join("job"), JOB).unwrap();
    let begin = "safe_gpu() { exec python3 user.py \"$@\"; }\n\
                 until_so() { n=0; until \"$@\"; do n=$((n+1)); [ $n -lt 1600 ] || exit 99; \
                 sleep 0.05; done; }\n\
                 waits() { grep -q -e \"-> POSIX .* $1 \" /proc/locks; }\n";
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new("timeout");
    command.args(["120", GPUWS, "sim", machine, "--live", "--", "sh", "-c"]);
    command.arg(format!("{begin}{script}")).arg(GPUWS).current_dir(dir.path());
    for name in ["LD_LIBRARY_PATH", "GPUWS_SIM_SESSION", "CUDA_VISIBLE_DEVICES", "GPUWS_CLAIMS"] {
        command.env_remove(name);
    }
    command.env("PATH", format!("{}:{path}", dir.path().display()));
    command.env("PYTHONPATH", package).env("GPUWS", GPUWS).env("NO_COLOR", "1");
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    Some(output)
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn with_both(machine: &str, body: &str, check: impl Fn(&Output)) {
    for version in ["1.5.1", "2.0.0"] {
        if let Some(output) = script(version, machine, body) {
            check(&output);
        }
    }
}

#[test]
fn devices_of_safe_gpu_are_not_free() {
    with_both(
        "rtx8000-x4",
        "safe_gpu 3 done > safe & until_so grep -q safe_gpu safe; cat safe\n\
         \"$0\" run --no-wait --visible index -- sh -c 'echo gpuws $CUDA_VISIBLE_DEVICES'\n\
         \"$0\" run -n 2 --no-wait -- true; echo $?; touch done; wait",
        |output| assert_eq!(out(output), "safe_gpu 0,1,2\ngpuws 3\n75\n", "{output:?}"),
    );
}

#[test]
fn leased_devices_are_not_free_for_safe_gpu() {
    with_both(
        "rtx8000-x4",
        "\"$0\" run -n 3 --gpu 0,1,2 -- sh job 0 1 2 & \n\
         leased() { \"$0\" leases --json | grep -q '\"count\": 3'; }; until_so leased\n\
         (safe_gpu 1); (safe_gpu 2); touch done; wait",
        |output| assert_eq!(out(output), "safe_gpu 3\nrefused\n", "{output:?}"),
    );
}

#[test]
fn safe_gpu_waits_until_starting_job_is_visible() {
    // The job uses its device after two seconds; safe-gpu comes in the meantime.
    with_both(
        "rtx8000-x4",
        "\"$0\" run --gpu 0 -- sh -c 'echo started > started; sleep 2; \
           exec sh job 0' & \n\
         until_so test -e started; (safe_gpu 1); touch done; wait",
        |output| assert_eq!(out(output), "safe_gpu 1\n", "{output:?}"),
    );
}

#[test]
fn safe_gpu_within_job_gets_leased_devices() {
    with_both(
        "rtx8000-x4",
        "\"$0\" run -n 2 --gpu 1,3 -- python3 user.py 2\n\
         \"$0\" run --gpu 2 -- python3 user.py 1\n\
         \"$0\" run --gpu 2 -- python3 user.py 2",
        |output| assert_eq!(out(output), "safe_gpu 1,3\nsafe_gpu 2\nrefused\n", "{output:?}"),
    );
}

/// A job that reports its start, and calls safe_gpu on request.
const CALLS_LATER: &str = "cat > calls-later <<'END'\n\
    echo $$ > job; n=0; until [ -e may ] || [ $n = 2000 ]; do n=$((n+1)); sleep 0.05; done\n\
    exec python3 user.py \"$@\"\nEND\n";

#[test]
fn handoff_gives_no_leased_device_to_earlier_outsider() {
    for (count, devices, outside) in [(1, "0", "1"), (2, "0,1", "2")] {
        let body = format!(
            "{CALLS_LATER}\"$0\" run -n {count} --gpu {devices} -- \
               sh calls-later {count} done > inside & \n\
             until_so test -s job; (safe_gpu 1 done > outside) & \n\
             until_so waits $!; touch may\n\
             output_text() {{ [ $(cat inside outside | wc -l) = 2 ]; }}; until_so output_text\n\
             touch done; wait; cat inside outside"
        );
        with_both("rtx8000-x4", &body, |output| {
            let expected = format!("safe_gpu {devices}\nsafe_gpu {outside}\n");
            assert_eq!(out(output), expected, "{output:?}");
        });
    }
}

#[test]
fn untaken_leased_device_goes_to_no_later_outsider() {
    with_both(
        "rtx8000-x4",
        &format!(
            "{CALLS_LATER}\"$0\" run -n 2 --gpu 0,1 -- sh calls-later 1 done > inside & \n\
             until_so test -s job; touch may; until_so grep -q safe_gpu inside\n\
             (safe_gpu 1); touch done; wait; cat inside"
        ),
        |output| assert_eq!(out(output), "safe_gpu 2\nsafe_gpu 0\n", "{output:?}"),
    );
}

#[test]
fn slow_job_keeps_device_after_handoff_timeout() {
    with_both(
        "rtx8000-x4",
        "\"$0\" run --gpu 0 --handoff-timeout 1s -- sh -c 'touch started; \
           until [ -e outside-has ]; do sleep 0.05; done; exec sh job 0' & \n\
         until_so test -e started; (safe_gpu 1 done > outside) & \n\
         until_so grep -q safe_gpu outside; touch outside-has\n\
         alone() { set -- $(nvidia-smi --query-compute-apps=pid --format=csv,noheader); \
           [ $# = 2 ] && ! cat /proc/$1/comm /proc/$2/comm | grep -q run-placeholder; }\n\
         until_so alone\n\
         touch done; wait; cat outside",
        |output| {
            assert_eq!(out(output), "safe_gpu 1\n", "{output:?}");
            let reported = String::from_utf8_lossy(&output.stderr);
            assert!(
                reported.contains("peak 0.5 GiB"),
                "the placeholder is not the job's: {reported}"
            );
        },
    );
}

#[test]
fn handoff_without_placeholder_waits_until_only_job_waits() {
    with_both(
        "rtx8000-x4",
        &format!(
            "{CALLS_LATER}export ACTOR=\"$PWD/actor\"\n\
             mv \"$GPUWS_SIM_SESSION/nvml-sim-process\" \"$ACTOR\"\n\
             \"$0\" run --gpu 0 --handoff-timeout 1h -- sh calls-later 1 2> message > inside & \n\
             until_so test -s job; (safe_gpu 1 done > outside) & outside=$!\n\
             trap 'kill $outside 2> /dev/null' EXIT\n\
             until_so waits $outside; touch may; until_so waits $(cat job)\n\
             until_so grep -q \"process $outside,\" message; cat inside outside\n\
             kill $outside; wait; cat inside outside"
        ),
        |output| assert_eq!(out(output), "safe_gpu 0\n", "{output:?}"),
    );
}

#[test]
fn held_device_goes_to_no_outsider() {
    with_both(
        "rtx8000-x4",
        "mkfifo keep; \"$0\" claim --gpu 0 --hold < keep > held & exec 3> keep\n\
         until_so grep -q CUDA_VISIBLE held\n\
         (safe_gpu 1 done > outside) & until_so grep -q safe_gpu outside\n\
         sh job 0 & (safe_gpu 1); touch done; wait %2 %3; exec 3>&-; wait; cat outside",
        |output| assert_eq!(out(output), "safe_gpu 2\nsafe_gpu 1\n", "{output:?}"),
    );
}

/// The job calls safe_gpu after an outsider has taken its device: no placeholder was possible.
#[test]
fn safe_gpu_within_job_does_not_take_device_of_outsider() {
    with_both(
        "rtx8000-x4",
        &format!(
            "{CALLS_LATER}export ACTOR=\"$PWD/actor\"\n\
             mv \"$GPUWS_SIM_SESSION/nvml-sim-process\" \"$ACTOR\"\n\
             \"$0\" run --gpu 0 --handoff-timeout 1ms -- sh calls-later 1 2> message > inside & \n\
             until_so test -s job; (safe_gpu 1 done > outside) & \n\
             until_so grep -q safe_gpu outside; touch may; until_so test -s inside\n\
             touch done; wait; cat outside inside"
        ),
        |output| assert_eq!(out(output), "safe_gpu 0\nrefused\n", "{output:?}"),
    );
}

#[test]
fn no_device_is_granted_twice_under_load() {
    with_both(
        "twelve-gpus",
        "for n in 1 2 3 4 5 6; do\n\
           (safe_gpu 1 done > safe-$n) & \n\
           \"$0\" run --visible index -- sh -c 'echo gpuws $CUDA_VISIBLE_DEVICES; \
             exec sh job visible' > gpuws-$n 2>/dev/null & \n\
         done\n\
         all_said() { [ $(cat safe-* gpuws-* | wc -l) = 12 ]; }; until_so all_said\n\
         touch done; wait; cat safe-* gpuws-*",
        |output| {
            let output_text = out(output);
            let devices: Vec<&str> = output_text
                .lines()
                .filter_map(|line| line.split_once(' '))
                .map(|(_, gpu)| gpu)
                .collect();
            let different: BTreeSet<&str> = devices.iter().copied().collect();
            assert_eq!((devices.len(), different.len()), (12, 12), "{output_text}");
        },
    );
}
