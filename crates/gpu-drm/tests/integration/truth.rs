//! Files of real machines, with the values that a correct reader gets.

use crate::metrics::shown;
use gpu_core::Pid;
use gpu_drm::{Client, HeldClient, Metrics, Root, clients};
use serde_json::{Value, json};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Returns the directory with the files, and the lines of this kind of its TRUTH.jsonl.
fn truth(kind: &str) -> Option<(PathBuf, Vec<Value>)> {
    let Some(data) = std::env::var_os("GPUWS_DRM").map(PathBuf::from) else {
        // Bypasses the test harness, which hides the output of passing tests.
        let mut stderr = std::io::stderr();
        writeln!(stderr, "skipped: GPUWS_DRM names no files of real machines").unwrap();
        return None;
    };
    let text = fs::read_to_string(data.join("TRUTH.jsonl")).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    let lines: Vec<Value> = lines.filter(|line: &Value| line["kind"] == kind).collect();
    Some((data, lines))
}

/// Compares a client with what a line says of it.
fn check(client: &Client, want: &Value) {
    let driver = client.driver.as_deref().ok();
    assert_eq!(json!(driver), want["driver"]);
    if let Some(bus) = want["pdev"].as_str() {
        assert_eq!(client.bus.ok(), bus.parse().ok(), "{want}");
        assert_eq!(json!(client.id.ok()), want["client_id"]);
    }
    assert!(want["gpu"].is_null() || want["gpu"] == client.is_gpu());
    type Read = fn(&Client, &str) -> Value;
    let figures: [(&str, Read); 7] = [
        ("bytes", |client, name| json!(client.regions[name].resident.unwrap().0)),
        ("resident", |client, name| json!(client.regions[name].resident.unwrap().0)),
        ("total", |client, name| json!(client.regions[name].total.unwrap().0)),
        ("shared", |client, name| json!(client.regions[name].shared.unwrap().0)),
        ("engine_ns", |client, name| json!(client.engines[name].nanos.unwrap())),
        ("capacity", |client, name| json!(client.engines[name].capacity.unwrap())),
        ("cycles", |client, name| {
            let engine = client.engines[name];
            json!([engine.cycles, engine.total_cycles, engine.capacity].map(Result::unwrap))
        }),
    ];
    for (key, read) in figures {
        for (name, figure) in want[key].as_object().into_iter().flatten() {
            assert_eq!(read(client, name), *figure, "{key} {name} {want}");
        }
    }
}

/// Writes what a line says of a table as [`shown`] does. Its energy has no certain unit, and nor has
/// the activity of an APU.
fn written(want: &Value) -> String {
    let apu = want["format"] == 2;
    let mut known = Vec::new();
    for (key, name, times, divided) in [
        ("temp_edge", "edge", 1, 1),
        ("temp_hotspot", "hot", 1, 1),
        ("temp_mem", "mem", 1, 1),
        ("temp_gfx_c100", "gfx", 1, 100),
        ("temp_soc_c100", "soc", 1, 100),
        ("gfx_busy", "busy", 1, 1),
        ("umc_busy", "umc", 1, 1),
        ("mm_busy", "mm", 1, 1),
        ("gfxclk", "MHz", 1, 1),
        ("link_width", "lanes", 1, 1),
        ("link_speed", "GT", 1, 1),
        ("fan_rpm", "rpm", 1, 1),
        ("power_w", "mW", 1_000, 1),
        (
            "socket_power",
            "mW",
            if want["socket_power"].as_u64() < Some(256) { 1_000 } else { 1 },
            1,
        ),
        ("clock_stamp", "ns", 1, 1),
        ("indep_throttle", "why", 1, 1),
        ("throttle", "chip", 1, 1),
    ] {
        // A board without a sensor has 0.
        let is_known =
            |value: &u64| !(apu && key.ends_with("_busy") || name == "mem" && *value == 0);
        if let Some(value) = want[key].as_u64().filter(is_known) {
            known.push(format!("{name} {}", value * times / divided));
        }
    }
    known.join(" ")
}

fn read_metrics(path: &Path) -> Option<String> {
    Metrics::parse(&fs::read(path).unwrap()).ok().map(|metrics| shown(&metrics))
}

#[test]
fn real_processes_have_their_clients() {
    let Some((data, lines)) = truth("proc_clients") else {
        return;
    };
    assert!(!lines.is_empty());
    for line in lines {
        let root = Root::open(&data.join(line["machine"].as_str().unwrap())).unwrap();
        let found = clients(&root).unwrap();
        let (gpu, other): (Vec<&HeldClient>, Vec<_>) =
            found.iter().partition(|held| held.client.is_gpu());
        let wanted = line["clients"].as_array().unwrap();
        assert_eq!(gpu.len(), wanted.len());
        for want in wanted {
            let is_it = |held: &&&HeldClient| json!(held.client.id.ok()) == want["client_id"];
            let held = gpu.iter().find(is_it).unwrap();
            check(&held.client, want);
            let pids: Vec<u32> = held.holders.iter().map(|pid| pid.0).collect();
            assert_eq!(
                (json!(pids), json!(held.descriptors)),
                (want["pids"].clone(), want["fds"].clone())
            );
            let known = held.holders.iter().all(|pid| found.processes[pid].name.is_ok());
            assert!(known && found.processes[&held.holders.first().copied().unwrap()].uids.is_ok());
        }
        let other = other.iter().map(|held| {
            let Pid(pid) = *held.holders.first().unwrap();
            json!({"pid": pid, "driver": held.client.driver.as_deref().unwrap()})
        });
        assert_eq!(Value::from_iter(other), line["not_gpu"]);
        assert!(found.unreadable.is_empty());
    }
}

#[test]
fn real_texts_and_tables_are_read() {
    let Some((data, lines)) = truth("text") else {
        return;
    };
    let (mut texts, mut tables) = (0, 0);
    for line in lines {
        let path = data.join(line["file"].as_str().unwrap());
        if !line["client"].is_null() {
            let want = &line["client"];
            match Client::parse(&fs::read(path).unwrap()) {
                Some(client) => check(&client, want),
                None => assert_eq!((&want["driver"], &want["gpu"]), (&Value::Null, &json!(false))),
            }
            texts += 1;
        } else if line["format"] == "gpu_metrics" {
            let want = line["metrics"].is_object().then(|| written(&line["metrics"]));
            assert_eq!(read_metrics(&path), want, "{}", line["file"]);
            tables += 1;
        }
    }
    assert!(texts > 4 && tables > 2);
}

#[test]
fn tables_of_real_devices_are_read() {
    let Some((data, lines)) = truth("device") else {
        return;
    };
    let mut tables = 0;
    for line in lines.iter().filter(|line| !line["metrics"].is_null()) {
        let [machine, bus] = ["machine", "pci"].map(|key| line[key].as_str().unwrap());
        let file = format!("{machine}/sys/devices/pci0000:00/{bus}/gpu_metrics");
        assert_eq!(read_metrics(&data.join(&file)), Some(written(&line["metrics"])), "{file}");
        tables += 1;
    }
    assert!(tables > 3);
}
