//! Many concurrent runs, with gpuws, its supervisors and their jobs killed at random: no device
//! belongs to two jobs at the same time, and nothing remains.
//!
//! The check is independent of leases: each job locks a file for each of its devices with flock(1),
//! and the kernel releases the locks when the job ends.

use crate::program::is_deep;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

const GPUWS: &str = env!("CARGO_BIN_EXE_gpuws");

/// The number of concurrent runs.
const BESIDE: u64 = 12;

/// The number of consecutive runs of each, quick or deep.
fn each() -> u64 {
    if is_deep() { 12 } else { 5 }
}

/// Locks its devices. The process that it may leave uses none of them.
const JOB: &str = r#"
n=3
for gpu in $(echo "$CUDA_VISIBLE_DEVICES" | tr , ' '); do
  eval "exec $n> \"$LOCKS/$gpu\""
  flock -n $n || echo "two jobs have $gpu" >> "$LOCKS/doubles"
  n=$((n+1))
done
echo granted >> "$LOCKS/granted"
sleep $1 3>&- 4>&- 5>&- 6>&- &
sleep $1 3>&- 4>&- 5>&- 6>&-
wait
"#;

/// Returns a pseudo-random number (SplitMix64, Steele and others, 2014).
fn mixed(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn children(pid: u32) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|child| child.parse().ok()).collect()
}

fn kill(pid: u32) {
    // The PID of a grandchild was read a moment ago. It could only be reused if its parent had
    // waited for it since.
    let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).stderr(Stdio::null()).status();
}

fn start(dir: &Path, chance: u64) -> Child {
    let wish: &[&str] = match chance % 6 {
        0 => &["-n", "4"],
        1 => &["-n", "2"],
        2 => &["-n", "3"],
        _ => &["-n", "1"],
    };
    let death = if chance.is_multiple_of(5) { "keep" } else { "end" };
    let lasts = format!("0.{:02}", mixed(chance) % 30);
    Command::new(GPUWS)
        .args(["--quiet", "run", "--timeout", "120s", "--on-death", death, "--grace", "1s"])
        .args(wish)
        .args(["--", "sh", "-c", JOB, "job", &lasts])
        .env("LOCKS", dir)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Starts runs one after the other, and kills some of them, or their supervisors or jobs.
fn contend(dir: &Path, contender: u64) {
    for number in 0..each() {
        let chance = mixed(contender << 32 | number);
        let mut front = start(dir, chance);
        let supervisor = || children(front.id()).first().copied();
        if chance.is_multiple_of(3) {
            thread::park_timeout(Duration::from_millis(mixed(chance) % 400));
            match chance % 7 {
                0..=2 => kill(front.id()),
                3..=4 => supervisor().into_iter().for_each(kill),
                _ => {
                    let below = supervisor().map(children).unwrap_or_default();
                    below.into_iter().for_each(kill);
                }
            }
        }
        front.wait().unwrap();
    }
}

/// Runs inside the session that the test below starts.
#[test]
fn storm_inside_session() {
    let Some(dir) = std::env::var_os("GPUWS_STORM") else { return };
    let dir = Path::new(&dir);
    thread::scope(|scope| {
        for contender in 0..BESIDE {
            scope.spawn(move || contend(dir, contender));
        }
    });
    // All remaining processes end soon, and then all devices are available at once.
    let mut all = Command::new(GPUWS);
    all.args(["run", "-n", "12", "--timeout", "60s", "--", "true"]);
    assert!(all.status().unwrap().success(), "devices are left leased");
    let leases = Command::new(GPUWS).args(["leases", "--json"]).output().unwrap();
    let leases: serde_json::Value = serde_json::from_slice(&leases.stdout).unwrap();
    assert_eq!(
        (leases["leases"].as_array().map(Vec::len), leases["queue"].as_array().map(Vec::len)),
        (Some(0), Some(0)),
        "{leases}"
    );
}

#[test]
fn random_kills_never_grant_device_twice() {
    let dir = tempfile::tempdir().unwrap();
    let own = std::env::current_exe().unwrap();
    let output = Command::new(GPUWS)
        .args(["sim", "twelve-gpus", "--live", "--"])
        .arg(own)
        .args(["--exact", "random_kills::storm_inside_session", "--nocapture"])
        .env("GPUWS_STORM", dir.path())
        .env_remove("CUDA_VISIBLE_DEVICES")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let doubles = fs::read_to_string(dir.path().join("doubles")).unwrap_or_default();
    assert_eq!(doubles, "");
    let granted = fs::read_to_string(dir.path().join("granted")).unwrap_or_default();
    let granted = granted.lines().count() as u64;
    // Some are killed before they have devices.
    assert!(granted > BESIDE * each() / 2, "only {granted} had devices");
}
