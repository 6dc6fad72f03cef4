//! `gpuws export` as a program: its pages, its timing, its files, and a real Prometheus.

mod exporter;
mod prometheus;

use crate::program::{gpuws, is_deep};
use exporter::{Exporter, page_value};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

#[test]
fn textfile_is_the_page_without_timestamps() {
    let dir = tempfile::tempdir().unwrap();
    let ended = gpuws(dir.path(), &["--sim", "labbox", "export", "--textfile", "gpuws.prom"]);
    assert_eq!((ended.code, &*ended.stdout, &*ended.stderr), (0, "", ""));
    let page = fs::read_to_string(dir.path().join("gpuws.prom")).unwrap();
    assert_eq!(crate::program::files(dir.path()), ["gpuws.prom"], "no temporary file is left");
    let printed = gpuws(dir.path(), &["--sim", "labbox", "export", "--textfile", "-"]);
    assert_eq!(printed.stdout, page);
    assert!(page.ends_with('\n') && !page.contains("# EOF"));
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        let value =
            line.rsplit_once('}').map_or_else(|| line.split_once(' ').unwrap().1, |(_, v)| v);
        assert!(value.trim().parse::<f64>().is_ok(), "a timestamp would follow the value: {line}");
    }
    // It has taken one snapshot, so it does not know what happened between snapshots.
    assert!(!page.contains("gpuws_claim_wait_seconds"));
    let refused = gpuws(dir.path(), &["--sim", "labbox", "export", "--textfile", "no/dir/x.prom"]);
    assert_ne!(refused.code, 0);
    assert!(refused.stderr.contains("no/dir/x.prom"), "{}", refused.stderr);
    let refused = gpuws(dir.path(), &["--json", "--sim", "labbox", "export"]);
    assert!(refused.code == 2 && refused.stderr.contains("formats of Prometheus"));
}

#[test]
fn memory_of_foreign_pids_is_not_unexplained() {
    let words = ["--sim", "inside-container", "export", "--textfile", "-"];
    let page = gpuws(Path::new("."), &words).stdout;
    let values = |start: &str| -> Vec<&str> {
        let lines = page.lines().filter(|line| line.starts_with(start));
        lines.filter_map(|line| Some(line.rsplit_once(' ')?.1)).collect()
    };
    assert_eq!(values("gpuws_gpu_memory_unexplained_bytes{"), ["0.0", "0.0"]);
    assert_eq!(values("gpuws_gpu_free{"), ["0.0", "0.0"]);
    assert!(!page.contains("memory=\"unlisted\""), "a holder may be listed by its host PID");
}

#[test]
fn values_are_those_of_status() {
    for machine in ["labbox", "p100-ghost", "healthy-box", "mig-a100", "sick-gpus"] {
        let dir = Path::new(".");
        let page = gpuws(dir, &["--sim", machine, "export", "--textfile", "-"]).stdout;
        let status = gpuws(dir, &["--sim", machine, "status", "--json"]).stdout;
        let status: Value = serde_json::from_str(&status).unwrap();
        let gpus = status["gpus"].as_array().unwrap();
        assert!(!gpus.is_empty());
        for gpu in gpus {
            let labels = format!("{{gpu=\"{}\",uuid={}}}", gpu["index"], gpu["uuid"]);
            for (metric, field, unit) in [
                ("gpuws_gpu_memory_used_bytes", "memory_used_bytes", 1.0),
                ("gpuws_gpu_memory_total_bytes", "memory_total_bytes", 1.0),
                ("gpuws_gpu_memory_unexplained_bytes", "memory_unexplained_bytes", 1.0),
                ("gpuws_gpu_temperature_celsius", "temperature_c", 1.0),
                ("gpuws_gpu_power_watts", "power_draw_mw", 0.001),
                ("gpuws_gpu_utilization_ratio", "utilization_percent", 0.01),
            ] {
                let exported = page_value(&page, &format!("{metric}{labels}"));
                let shown = gpu[field].as_f64().map(|value| value * unit);
                let is_same = match (exported, shown) {
                    (Some(exported), Some(shown)) => (exported - shown).abs() < 1e-9,
                    (exported, shown) => exported == shown,
                };
                assert!(is_same, "{machine} {metric}{labels}: {exported:?}, {shown:?}");
            }
            let free = page_value(&page, &format!("gpuws_gpu_free{labels}"));
            assert_eq!(free, Some(f64::from(u8::from(gpu["free"] == true))), "{machine} {labels}");
        }
    }
}

#[test]
fn machine_without_driver_is_down_and_says_no_value() {
    let page = gpuws(Path::new("."), &["--sim", "no-driver", "export", "--textfile", "-"]);
    assert_eq!(page.code, 0, "the page tells it, not the exit code: {}", page.stderr);
    assert_eq!(page_value(&page.stdout, "gpuws_up"), Some(0.0));
    assert_eq!(page_value(&page.stdout, "gpuws_readable{part=\"driver\"}"), Some(0.0));
    assert!(!page.stdout.contains("gpuws_gpu_memory") && !page.stdout.contains("gpuws_findings"));
}

#[test]
fn server_says_where_it_is_and_ends_at_sigterm() {
    let exporter = Exporter::start(&["--sim", "p100-ghost", "export"]);
    let page = exporter.scrape("");
    assert_eq!(page_value(&page, "gpuws_findings{kind=\"ghost\"}"), Some(1.0));
    let taken = gpuws(
        Path::new("."),
        &["--sim", "labbox", "export", "--listen", &exporter.address.to_string()],
    );
    assert_eq!(taken.code, 3, "{}", taken.stderr);
    assert!(taken.stderr.contains("choose another address with --listen"), "{}", taken.stderr);
    let port = gpuws(Path::new("."), &["export", "--listen", "9836"]);
    assert!(port.stderr.contains("such as 127.0.0.1:9836"), "{}", port.stderr);
    assert_eq!(exporter.end(), Some(0));
}

#[test]
fn hanging_driver_yields_up_zero_and_rest_of_page_in_time() {
    let fault = "nvmlDeviceGetTemperature=hang,gpu=1";
    let exporter = Exporter::in_session(&["healthy-box", "--fault", fault], &["--reuse", "1ms"]);
    for _ in 0..2 {
        // Prometheus would have given up after 3 s: the page came earlier.
        let page = exporter.scrape_within("3");
        assert_eq!(page_value(&page, "gpuws_up"), Some(0.0), "{page}");
        assert_eq!(page_value(&page, "gpuws_readable{part=\"holders\"}"), Some(1.0));
        let up: Vec<&str> = page.lines().filter(|line| line.starts_with("gpuws_gpu_up{")).collect();
        assert!(up[0].ends_with(" 1.0") && up[1].ends_with(" 0.0"), "{up:?}");
        assert!(page.contains("gpuws_gpu_temperature_celsius{gpu=\"0\""), "{page}");
    }
    assert_eq!(exporter.end(), Some(0), "it ends although the driver hangs");
}

#[test]
fn recovered_driver_is_up_again() {
    // Too slow for one scrape, but not for the next.
    let fault = "nvmlDeviceGetTemperature=delay:1500,gpu=1";
    let exporter = Exporter::in_session(&["healthy-box", "--fault", fault], &["--reuse", "1ms"]);
    assert_eq!(page_value(&exporter.scrape_within("1.5"), "gpuws_up"), Some(0.0));
    // The next scrape may still get the slow snapshot.
    let mut ups = (0..3).map(|_| page_value(&exporter.scrape_within("60"), "gpuws_up"));
    assert!(ups.any(|up| up == Some(1.0)));
}

#[test]
fn exports_leases_queue_and_jobs_and_writes_dcgm_mapping() {
    let Some(dir) = exporter::private_dir("jobs for dcgm-exporter") else { return };
    let jobs = dir.path().to_str().unwrap();
    let exporter = Exporter::in_live_session(
        "twelve-gpus",
        "\"$0\" run --gpu 3 -- sh -c 'touch runs; exec sleep 300' > /dev/null 2>&1 &\n\
         until_so test -e runs\n\
         \"$0\" run --gpu 3 -- true > /dev/null 2>&1 &\n\
         waits() { \"$0\" leases --json | tr -d ' \\n' | grep -q '\"queue\":.{'; }\n\
         until_so waits\n",
        &["--hpc-job-mapping-dir", jobs, "--reuse", "1ms"],
    );
    let page = exporter.scrape("");
    let one_with = |start: &str| {
        let mut lines = page.lines().filter(|line| line.starts_with(start));
        let line = lines.next().unwrap_or_else(|| panic!("{start}: {page}"));
        assert_eq!(lines.next(), None);
        line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()
    };
    assert_eq!(one_with("gpuws_leases{user="), 1.0);
    assert_eq!(one_with("gpuws_gpu_leases{gpu=\"3\""), 1.0);
    assert_eq!(one_with("gpuws_gpu_leases{gpu=\"4\""), 0.0);
    assert_eq!(one_with("gpuws_gpu_leases_unused{gpu=\"3\""), 1.0, "sleep uses no GPU");
    assert_eq!(one_with("gpuws_queue_claims{state=\"waiting\""), 1.0);
    assert_eq!(one_with("gpuws_queue_gpus"), 1.0);
    let since = one_with("gpuws_queue_oldest_timestamp_seconds");
    let now = one_with("gpuws_look_timestamp_seconds");
    assert!(since <= now && since > now - 120.0, "{since} {now}");
    assert_eq!(one_with("gpuws_claim_wait_seconds_count"), 0.0, "granted before the first look");
    let job = page.lines().find(|line| line.starts_with("gpuws_gpu_job_info{gpu=\"3\"")).unwrap();
    // The files are written after the snapshot.
    exporter.scrape("");
    assert_eq!(crate::program::files(dir.path()).len(), 12);
    let read = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
    let id = read("3");
    assert!(job.contains(&format!("hpc_job=\"{}\"", id.trim())), "{job} {id}");
    assert_eq!(read("4"), "", "an empty file, not none");
}

#[test]
fn linked_mapping_directory_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("real")).unwrap();
    fs::set_permissions(dir.path().join("real"), fs::Permissions::from_mode(0o755)).unwrap();
    symlink("real", dir.path().join("link")).unwrap();
    let export = |name: &str| {
        let words = ["--sim", "labbox", "export", "--textfile", "-", "--hpc-job-mapping-dir", name];
        gpuws(dir.path(), &words)
    };
    let refused = export("link");
    assert_eq!(refused.code, 2, "{}", refused.stderr);
    assert!(refused.stderr.contains("it is a symbolic link"), "{}", refused.stderr);
    let missing = export("missing");
    assert!(missing.stderr.contains("install -d"), "{}", missing.stderr);
    assert_eq!(fs::read_dir(dir.path().join("real")).unwrap().count(), 0);
}

#[test]
fn reap_is_counted_from_the_audit_log() {
    let exporter = Exporter::in_live_session("p100-ghost", "", &["--reuse", "1ms"]);
    let page = exporter.scrape("");
    let ended = "gpuws_reap_outcomes_total{outcome=\"ended\"}";
    assert_eq!(page_value(&page, ended), Some(0.0), "before its first event");
    exporter.run(&["reap", "--gpu", "0", "--grace", "1s", "--yes"]);
    let page = exporter.scrape("");
    assert_eq!(page_value(&page, ended), Some(1.0), "{page}");
    assert!(page_value(&page, "gpuws_reap_signals_total{signal=\"SIGTERM\"}") >= Some(1.0));
    let message = page_value(&page, "gpuws_reap_timestamp_seconds{outcome=\"ended\"}").unwrap();
    assert!(message > 1e9, "{message}");
    // NVML may report the memory of a moment ago.
    let ghosts = || page_value(&exporter.scrape(""), "gpuws_findings{kind=\"ghost\"}");
    assert!((0..200).any(|_| ghosts() == Some(0.0)));
}

#[test]
fn ten_thousand_scrapes_do_not_grow_the_exporter() {
    // The test detects a growth by one kilobyte for each scrape in either form, and by 60 bytes in
    // the deep one.
    let (warm, count) = if is_deep() { (1000, 10_000) } else { (100, 600) };
    let exporter = Exporter::start(&["--sim", "labbox", "export", "--reuse", "1ms", "--processes"]);
    let scrape = |count| (0..count).for_each(|_| drop(exporter.scrape("")));
    scrape(warm);
    let before = exporter.resident();
    scrape(count);
    let after = exporter.resident();
    assert!(after < before + 600, "{before} kB, {after} kB after {count} scrapes");
    assert!(exporter.descriptors() < 40);
}
