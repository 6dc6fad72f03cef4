//! Parses the collected outputs of other tools and compares them with their expected values.

use gpu_core::{Absent, Reading};
use gpu_text::{Document, Gpu, Hint, Kind, Process, parse};
use serde_json::Value;
use std::io::Write;
use std::path::Path;

const TOOLS: [&str; 6] =
    ["rocm-smi", "amd-smi", "xpu-smi", "intel_gpu_top", "radeontop", "amdgpu_top"];

/// Values that a document does not have, or has in another form, with the reason.
const DIFFERENCES: [(&str, &str, &str); 4] = [
    ("telegraf_rx6700xt_rocm430.json", "0 name", "the text has a number in place of a name"),
    ("dump_max1550.csv", "0 power_w", "the last sample counts"),
    ("dump_max1550.csv", "1 power_w", "the last sample counts"),
    ("metric_usage_6.3_cpx.txt", "devices", "the text starts a second device"),
];

/// Names of an expected value, and the value in a document; `null` if it is missing.
type Field = (&'static [&'static str], fn(&Gpu) -> Value);

fn number<T: Into<Value>>(reading: Reading<T>) -> Value {
    reading.map_or(Value::Null, Into::into)
}

const FIELDS: [Field; 14] = [
    (&["index", "gpu", "device_id"], |gpu| gpu.index.into()),
    (&["name"], |gpu| gpu.name.clone().into()),
    (&["pci"], |gpu| gpu.bus_id.clone().map(|bus| bus.to_lowercase()).into()),
    (&["unique_id"], |gpu| gpu.uuid.as_deref().map(|uuid| uuid.replace("GPU-", "0x")).into()),
    (&["uuid"], |gpu| gpu.uuid.clone().into()),
    (&["busy", "gfx_activity"], |gpu| number(gpu.utilization_percent)),
    (&["power_w"], |gpu| number(gpu.power_draw_w)),
    (&["cap_w"], |gpu| number(gpu.power_limit_w)),
    (&["vram_total", "vram_total_mb", "mem_total_mb", "mem_total_mib", "gtt_total"], |gpu| {
        number(gpu.memory_total_mib)
    }),
    (&["vram_used", "vram_used_mb", "mem_used_mb", "mem_used_mib"], |gpu| {
        number(gpu.memory_used_mib)
    }),
    (&["temp_edge", "temp_junction", "temp_hotspot", "temp", "temp_core"], |gpu| {
        number(gpu.temperature_c)
    }),
    (&["compute_partition"], |gpu| mode(gpu, |mode| mode.compute.clone().into())),
    (&["memory_partition"], |gpu| mode(gpu, |mode| mode.memory.clone().into())),
    (&["partition", "xcp"], |gpu| mode(gpu, |mode| mode.id.into())),
];

fn mode(gpu: &Gpu, of: fn(&gpu_text::PartitionMode) -> Value) -> Value {
    gpu.partition.as_ref().map_or(Value::Null, of)
}

/// Returns an expected value in the units of a document; `other` is the total behind it.
fn converted(name: &str, value: &Value, total: Option<&Value>) -> Value {
    let mib = |text: &str, unit: &str| -> Value {
        let number: f64 = text.trim().parse().expect("a number");
        let factor = match unit {
            "GB" => 1024.0,
            "MB" => 1.0,
            "KB" => 1.0 / 1024.0,
            "B" => 1.0 / (1024.0 * 1024.0),
            _ => panic!("unit {unit}"),
        };
        ((number * factor).round() as u64).into()
    };
    match (name, value) {
        (_, Value::Null) => Value::Null,
        ("vram_total" | "vram_used" | "gtt_total" | "vram", Value::String(text)) => {
            let unit = total.and_then(Value::as_str).unwrap_or(text).rsplit(' ').next().unwrap();
            mib(text.trim_end_matches(|c: char| !c.is_ascii_digit()), unit)
        }
        ("vram_total" | "vram_used" | "vram", Value::Number(_)) => mib(&value.to_string(), "B"),
        ("pci", Value::String(text)) => text.to_lowercase().into(),
        ("power_w" | "cap_w", _) => value.as_f64().into(),
        (_, Value::Number(number)) => (number.as_f64().unwrap().round() as i64).into(),
        _ => value.clone(),
    }
}

struct Check<'a> {
    file: &'a str,
    wrong: Vec<String>,
}

impl Check<'_> {
    fn equal(&mut self, what: &str, got: Value, want: Value) {
        let file = self.file.rsplit('/').next().unwrap();
        let explained = DIFFERENCES.iter().any(|(of, name, _)| *of == file && *name == what);
        let same = got == want || got.as_f64().is_some_and(|got| Some(got) == want.as_f64());
        if same == explained {
            self.wrong.push(format!("{}: {what} is {got}, expected {want}", self.file));
        }
    }

    fn device(&mut self, at: usize, got: Option<&Gpu>, want: &Value) {
        let Some(gpu) = got else {
            self.wrong.push(format!("{}: no device {at}", self.file));
            return;
        };
        // The edge is preferred to the junction.
        let has_edge = want.get("temp_edge").is_some();
        for (names, value) in FIELDS {
            for name in names {
                let Some(expected) = want.get(name) else { continue };
                let is_host_memory = *name == "gtt_total" && expected.is_number();
                let is_chip = *name == "device_id" && !expected.is_number();
                let is_junction = has_edge && (*name == "temp_junction" || *name == "temp_hotspot");
                if !is_chip && !is_junction && !is_host_memory {
                    let expected = converted(name, expected, want.get("vram_total"));
                    self.equal(&format!("{at} {name}"), value(gpu), expected);
                }
            }
        }
    }

    fn process(&mut self, got: &Process, want: &Value) {
        self.equal("pid", got.pid.into(), want["pid"].clone());
        if let Some(raw) = want.get("raw").and_then(Value::as_str) {
            self.equal("name", got.name.clone().into(), raw.split(',').next().into());
        }
        if let Some(name) = want.get("name") {
            self.equal("name", got.name.clone().into(), name.clone());
        }
        if let Some(gpu) = want.get("gpu") {
            self.equal("gpu", got.gpu_index.into(), gpu.clone());
        }
        if let Some(vram) = want.get("vram") {
            self.equal("vram", number(got.memory_mib), converted("vram", vram, None));
        }
        if let Some(bytes) = want.pointer("/memory/system/resident") {
            self.equal("vram", number(got.memory_mib), converted("vram", bytes, None));
        }
        if let Some(mib) = want.get("vram_mib") {
            self.equal("vram_mib", number(got.memory_mib), mib.clone());
        }
    }

    fn text(&mut self, document: &Document, want: &Value) {
        let devices = want["devices"].as_array().map_or(&[][..], Vec::as_slice);
        if want.get("devices").is_some() {
            let is_awake = |gpu: &&Gpu| gpu.memory_used_mib != Err(Absent::Asleep);
            let awake = document.gpus.iter().filter(is_awake);
            self.equal("devices", awake.count().into(), devices.len().into());
        }
        for (at, device) in devices.iter().enumerate() {
            self.device(at, document.gpus.get(at), device);
        }
        if let Some(driver) = want.get("driver").filter(|driver| !driver.is_null()) {
            self.equal("driver", document.driver_version.clone().into(), driver.clone());
        }
        let sample = want["samples"].as_array().and_then(|samples| samples.last());
        let processes = sample.map_or(&want["processes"], |sample| &sample["clients"]);
        let processes = processes.as_array().map_or(&[][..], Vec::as_slice);
        let got = document.processes.as_deref().unwrap_or_default();
        self.equal("processes", got.len().into(), processes.len().into());
        got.iter().zip(processes).for_each(|(got, want)| self.process(got, want));
        // A stream of samples is the last of them.
        if let Some(sample) = sample {
            let gpu = &document.gpus[0];
            self.equal("power", number(gpu.power_draw_w), sample["power_gpu"].clone());
            let engines = sample["engines"].as_object().unwrap().values();
            let busiest = engines.filter_map(Value::as_f64).fold(0.0, f64::max);
            self.equal("busy", number(gpu.utilization_percent), busiest.into());
        }
    }
}

/// Returns whether a line of a collected text is no output of these tools' formats.
fn is_foreign(line: &str) -> bool {
    line == "..." || line.starts_with("WARNING: ") || line.starts_with("get_compute_process")
}

#[test]
fn collected_outputs_have_their_expected_values() {
    // Bypasses the test harness, which hides the output of passing tests.
    let mut stderr = std::io::stderr();
    let Some(folder) = std::env::var_os("GPUWS_DRM") else {
        writeln!(stderr, "skipped: GPUWS_DRM names no collection of outputs").unwrap();
        return;
    };
    let folder = Path::new(&folder);
    let truth = std::fs::read_to_string(folder.join("TRUTH.jsonl")).unwrap();
    let (mut read, mut wrong) = (0, Vec::new());
    for line in truth.lines() {
        let want: Value = serde_json::from_str(line).unwrap();
        let (Some("text"), Some(file)) = (want["kind"].as_str(), want["file"].as_str()) else {
            continue;
        };
        let tool = file.split('/').nth(1).unwrap_or_default();
        if !TOOLS.contains(&tool) || file.ends_with("topology_matrix.txt") {
            continue;
        }
        let text = std::fs::read(folder.join(file)).unwrap();
        match parse(&text, &Hint::default()) {
            Ok(document) if document.kind == Kind::Other => {
                let mut check = Check { file, wrong: Vec::new() };
                if document.tool.map(|tool| serde_json::to_value(tool).unwrap())
                    != Some(tool.replace('_', "-").into())
                {
                    check.wrong.push(format!("{file}: tool is {:?}", document.tool));
                }
                check.text(&document, &want);
                for unread in document.unread.iter().filter(|unread| !is_foreign(&unread.text)) {
                    check
                        .wrong
                        .push(format!("{file}: line {} is unread: {}", unread.line, unread.text));
                }
                wrong.extend(check.wrong);
            }
            other => wrong.push(format!("{file}: {:?}", other.map(|d| (d.kind, d.unread)))),
        }
        read += 1;
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    writeln!(stderr, "{read} outputs of other tools").unwrap();
}
