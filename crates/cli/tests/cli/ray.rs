//! A real Ray on a simulated machine. `GPUWS_RAY_PYTHON` is a Python that has Ray installed.

use super::live::GPUWS;
use super::program::skipped;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Starts a head node, queries each node through a task, and inspects an idle worker and its
/// parent.
const SCRIPT: &str = r#"
bin=$(dirname "$PYTHON")
"$bin/ray" start --head --port 0 --include-dashboard=false --temp-dir "$PWD/ray" \
    --disable-usage-stats >log 2>&1 || { cat log >&2; exit 98; }
trap '"$bin/ray" stop --force >>log 2>&1' EXIT
n=0; until "$bin/ray" status 2>>log | tee resources | grep -q GPU; do
    n=$((n+1)); [ $n -lt 60 ] || break; sleep 0.5
done
"$PYTHON" "$EXAMPLE" --gpuws "$0" >answered; echo $? >code
"$PYTHON" "$EXAMPLE" --gpuws /nonexistent >missing; echo $? >code-of-missing
"$PYTHON" - >worker 2>>log <<'END'
import os, ray, time
ray.init(address="auto", log_to_driver=False, logging_level="error")
@ray.remote(num_gpus=0)
def pid():
    return os.getpid()
worker = ray.get(pid.remote())
read = lambda pid, name: open(f"/proc/{pid}/{name}").read()
for _ in range(200):
    if read(worker, "comm").strip() == "ray::IDLE":
        break
    time.sleep(0.05)
parent = int(read(worker, "stat").rpartition(")")[2].split()[1])
print(read(worker, "comm").strip(), read(parent, "comm").strip())
print(read(parent, "cmdline").split("\0")[0])
print(os.stat(f"/proc/{worker}").st_uid == os.stat(f"/proc/{parent}").st_uid)
END
"#;

#[test]
fn task_on_each_node_of_ray_reports_its_gpus() {
    let Some(python) = std::env::var_os("GPUWS_RAY_PYTHON") else {
        skipped("GPUWS_RAY_PYTHON does not name a Python that has Ray");
        return;
    };
    // The path is short, because Ray's socket paths contain it.
    let dir = tempfile::tempdir_in("/tmp").unwrap();
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/ray/fleet_status.py");
    let output = Command::new(GPUWS)
        .args(["sim", "labbox", "--live", "--", "sh", "-c", SCRIPT, GPUWS])
        .current_dir(dir.path())
        .envs([("RAY_AUTH_MODE", "disabled"), ("RAY_USAGE_STATS_ENABLED", "0")])
        .env("PYTHON", python)
        .env("EXAMPLE", example)
        .env_remove("GPUWS_SIM_SESSION")
        .output()
        .unwrap();
    let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap_or_default();
    assert!(output.status.success(), "{output:?}\n{}", read("log"));
    assert!(read("resources").contains("/4.0 GPU"), "{}", read("resources"));

    let message: Value = serde_json::from_str(&read("answered")).unwrap();
    assert_eq!((read("code").trim(), &message["answered_count"]), ("0", &1.into()), "{message}");
    let answer = &message["hosts"][0]["answer"];
    assert_eq!(
        (&answer["machine"], answer["gpus"].as_array().unwrap().len()),
        (&"labbox".into(), 4)
    );

    let message: Value = serde_json::from_str(&read("missing")).unwrap();
    assert_eq!(read("code-of-missing").trim(), "3");
    assert_eq!(message["hosts"][0]["error"]["what"], "gpuws not found");

    // In the way that doctor identifies an idle worker.
    let worker = read("worker");
    let lines: Vec<&str> = worker.lines().collect();
    assert_eq!((lines[0], lines[2]), ("ray::IDLE raylet", "True"), "{worker}{}", read("log"));
    assert!(lines[1].ends_with("/raylet/raylet"), "{worker}");
}
