//! The compared tools, with the commands to run them and the parsers of their output.

use super::figures::{Figures, array};
use super::install::Peers;
use super::session::Session;
use serde_json::Value;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// A tool and its output.
pub(super) struct Tool {
    pub(super) name: &'static str,
    /// The fields that it shows for every device and process.
    pub(super) fields: &'static [&'static str],
    /// Whether it omits processes that NVML lists but /proc no longer has.
    pub(super) drops_gone: bool,
    pub(super) run: fn(&Peers, &Session) -> Outcome,
}

/// The result of running a tool.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Outcome {
    NotInstalled,
    /// It failed with this message.
    Failed(String),
    Shown(Figures),
}

const BYTES: &[&str] = &[
    "name",
    "uuid",
    "memory_used_bytes",
    "memory_total_bytes",
    "utilization_percent",
    "temperature_c",
    "power_draw_mw",
    "memory_bytes",
];

const SMI: &[&str] = &[
    "name",
    "uuid",
    "memory_used_mib",
    "memory_total_mib",
    "utilization_percent",
    "temperature_c",
    "power_draw_10mw",
];

pub(super) const TOOLS: &[Tool] = &[
    Tool { name: "gpuws on NVML", fields: BYTES, drops_gone: false, run: gpuws },
    Tool { name: "nvidia-ml-py", fields: BYTES, drops_gone: false, run: nvidia_ml_py },
    Tool {
        name: "gpustat",
        fields: &[
            "name",
            "uuid",
            "memory_used_mib",
            "memory_total_mib",
            "utilization_percent",
            "temperature_c",
            "power_draw_w",
            "memory_mib",
        ],
        drops_gone: true,
        run: gpustat,
    },
    Tool { name: "nvitop", fields: BYTES, drops_gone: false, run: nvitop },
    Tool {
        name: "nvtop",
        fields: &[
            "name",
            "memory_used_milligib",
            "memory_total_milligib",
            "utilization_percent",
            "temperature_c",
            "power_draw_w",
            "memory_mib",
        ],
        drops_gone: false,
        run: nvtop,
    },
    Tool { name: "nvidia-smi CSV", fields: SMI, drops_gone: false, run: smi_csv },
    Tool { name: "nvidia-smi -q -x", fields: SMI, drops_gone: false, run: smi_xml },
];

fn gpuws(_: &Peers, session: &Session) -> Outcome {
    session.run(session.gpuws(), &["status", "--json"]).map_or_else(Outcome::Failed, |text| {
        let status: Value = serde_json::from_str(&text).unwrap_or_default();
        match status["driver_error"]["what"].as_str() {
            Some(what) => Outcome::Failed(what.to_owned()),
            None => Outcome::Shown(Figures::of_status(&status, &Default::default())),
        }
    })
}

fn nvidia_ml_py(peers: &Peers, session: &Session) -> Outcome {
    script(peers, session, include_str!("../../peers/nvml_figures.py"), &[])
}

fn nvitop(peers: &Peers, session: &Session) -> Outcome {
    script(peers, session, include_str!("../../peers/nvitop_figures.py"), &[])
}

fn nvtop(peers: &Peers, session: &Session) -> Outcome {
    let Some(nvtop) = peers.nvtop() else { return Outcome::NotInstalled };
    script(peers, session, include_str!("../../peers/nvtop_figures.py"), &[nvtop.as_os_str()])
}

/// Runs a Python script that prints figures.
fn script(peers: &Peers, session: &Session, script: &str, arguments: &[&OsStr]) -> Outcome {
    let Some(python) = peers.python() else { return Outcome::NotInstalled };
    let mut all = vec![OsStr::new("-c"), OsStr::new(script)];
    all.extend(arguments);
    session.run(&python, &all).map_or_else(Outcome::Failed, |text| {
        Figures::from_json(&text).map_or_else(|| Outcome::Failed(text), Outcome::Shown)
    })
}

fn gpustat(peers: &Peers, session: &Session) -> Outcome {
    let Some(gpustat) = peers.gpustat() else { return Outcome::NotInstalled };
    session.run(&gpustat, &["--json"]).map_or_else(Outcome::Failed, |text| {
        match serde_json::from_str(&text) {
            Ok(query) => Outcome::Shown(of_gpustat(&query)),
            Err(_) => Outcome::Failed(text),
        }
    })
}

/// Returns the figures of gpustat's JSON.
fn of_gpustat(query: &Value) -> Figures {
    let mut figures = Figures::default();
    for gpu in array(&query["gpus"]) {
        let index = &gpu["index"];
        // For a lost device, gpustat shows this placeholder instead of a name.
        let name = Some(&gpu["name"]).filter(|name| name.as_str() != Some("((GPU is lost))"));
        figures.put(format!("{index} name"), name.cloned().unwrap_or_default());
        for (theirs, field) in [
            ("uuid", "uuid"),
            ("memory.used", "memory_used_mib"),
            ("memory.total", "memory_total_mib"),
            ("utilization.gpu", "utilization_percent"),
            ("temperature.gpu", "temperature_c"),
            ("power.draw", "power_draw_w"),
        ] {
            figures.put(format!("{index} {field}"), gpu[theirs].clone());
        }
        for process in array(&gpu["processes"]) {
            let name = format!("{index} pid {} memory_mib", process["pid"]);
            figures.put(name, process["gpu_memory_usage"].clone());
        }
    }
    figures
}

/// The fields queried from nvidia-smi, in this order.
const QUERY_GPU: &str = "--query-gpu=index,uuid,name,memory.used,memory.total,utilization.gpu,\
                         temperature.gpu,power.draw";

fn smi_csv(peers: &Peers, session: &Session) -> Outcome {
    let Some(smi) = peers.nvidia_smi() else { return Outcome::NotInstalled };
    session
        .run(&smi, &[QUERY_GPU, "--format=csv,noheader,nounits"])
        .map_or_else(Outcome::Failed, |text| Outcome::Shown(of_csv(&text)))
}

/// Returns the figures of nvidia-smi's table.
fn of_csv(gpus: &str) -> Figures {
    let mut figures = Figures::default();
    for line in gpus.lines() {
        let cells: Vec<&str> = line.split(", ").collect();
        let &[index, uuid, name, used, total, utilization, temperature, power] = &cells[..] else {
            continue;
        };
        figures.put(format!("{index} uuid"), words(uuid));
        figures.put(format!("{index} name"), words(name));
        figures.put(format!("{index} memory_used_mib"), whole(used));
        figures.put(format!("{index} memory_total_mib"), whole(total));
        figures.put(format!("{index} utilization_percent"), whole(utilization));
        figures.put(format!("{index} temperature_c"), whole(temperature));
        figures.put(format!("{index} power_draw_10mw"), hundredths(power));
    }
    figures
}

fn smi_xml(peers: &Peers, session: &Session) -> Outcome {
    let Some(smi) = peers.nvidia_smi() else { return Outcome::NotInstalled };
    session
        .run(&smi, &["-q", "-x"])
        .map_or_else(Outcome::Failed, |text| Outcome::Shown(of_xml(&text)))
}

/// Returns the figures of nvidia-smi's XML.
fn of_xml(text: &str) -> Figures {
    let mut figures = Figures::default();
    for (index, gpu) in text.split("<gpu id=").skip(1).enumerate() {
        let memory = inside(gpu, "fb_memory_usage").unwrap_or_default();
        let power = inside(gpu, "gpu_power_readings").or(inside(gpu, "power_readings"));
        figures.put(format!("{index} uuid"), inside(gpu, "uuid").and_then(words));
        figures.put(format!("{index} name"), inside(gpu, "product_name").and_then(words));
        figures.put(format!("{index} memory_used_mib"), inside(memory, "used").and_then(whole));
        figures.put(format!("{index} memory_total_mib"), inside(memory, "total").and_then(whole));
        for (tag, field) in [("gpu_util", "utilization_percent"), ("gpu_temp", "temperature_c")] {
            figures.put(format!("{index} {field}"), inside(gpu, tag).and_then(whole));
        }
        let power = power.and_then(|power| inside(power, "power_draw"));
        figures.put(format!("{index} power_draw_10mw"), power.and_then(hundredths));
    }
    figures
}

/// Returns the text of the first element with this tag.
fn inside<'a>(text: &'a str, tag: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("<{tag}>"))?;
    rest.split_once(&format!("</{tag}>")).map(|(inside, _)| inside.trim())
}

/// Returns the text of a value; `None` if nvidia-smi marks it as missing.
fn words(text: &str) -> Option<String> {
    let none = text.starts_with('[') || ["N/A", "Unknown Error", "GPU is lost"].contains(&text);
    (!none).then(|| text.to_owned())
}

/// Returns a number without its unit.
fn whole(text: &str) -> Option<u64> {
    text.split(' ').next()?.parse().ok()
}

/// Returns a number with two decimals, in hundredths.
fn hundredths(text: &str) -> Option<u64> {
    let number: f64 = text.split(' ').next()?.parse().ok()?;
    Some((number * 100.0).round() as u64)
}

/// Returns the name of a machine's directory.
pub(super) fn machine_name(dir: &Path) -> Option<String> {
    dir.join("machine.toml").is_file().then_some(())?;
    dir.file_name()?.to_str().map(str::to_owned)
}

/// Returns the shipped machines, by name.
///
/// # Errors
/// If the directory cannot be read.
pub(super) fn machines(root: &Path) -> std::io::Result<Vec<String>> {
    let dir = std::fs::read_dir(root.join("sim-fixtures/machines"))?;
    let paths: Vec<PathBuf> = dir.filter_map(|entry| Some(entry.ok()?.path())).collect();
    let mut names: Vec<String> = paths.iter().filter_map(|path| machine_name(path)).collect();
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn figures(value: Value) -> Figures {
        Figures::from_json(&value.to_string()).unwrap()
    }

    #[test]
    fn nvidia_smi_csv_becomes_figures() {
        let gpus = "0, GPU-1, NVIDIA L4, 101, 1000, 7, 30, 31.96\n\
                    1, [GPU is lost], [GPU is lost], [N/A], [N/A], [N/A], [N/A], [N/A]\n";
        assert_eq!(
            of_csv(gpus),
            figures(json!({
                "0 uuid": "GPU-1", "0 name": "NVIDIA L4", "0 memory_used_mib": 101,
                "0 memory_total_mib": 1000, "0 utilization_percent": 7, "0 temperature_c": 30,
                "0 power_draw_10mw": 3196,
                "1 uuid": null, "1 name": null, "1 memory_used_mib": null,
                "1 memory_total_mib": null, "1 utilization_percent": null,
                "1 temperature_c": null, "1 power_draw_10mw": null,
            }))
        );
    }

    #[test]
    fn nvidia_smi_xml_becomes_figures() {
        let xml = "<nvidia_smi_log><gpu id=\"0\"><product_name>NVIDIA L4</product_name>\
                   <uuid>GPU-1</uuid><fb_memory_usage><total>1000 MiB</total><used>101 MiB</used>\
                   </fb_memory_usage><bar1_memory_usage><total>5 MiB</total><used>1 MiB</used>\
                   </bar1_memory_usage><utilization><gpu_util>N/A</gpu_util></utilization>\
                   <temperature><gpu_temp>30 C</gpu_temp></temperature><gpu_power_readings>\
                   <power_draw>31.96 W</power_draw></gpu_power_readings></gpu>";
        assert_eq!(
            of_xml(xml),
            figures(json!({
                "0 uuid": "GPU-1", "0 name": "NVIDIA L4", "0 memory_used_mib": 101,
                "0 memory_total_mib": 1000, "0 utilization_percent": null, "0 temperature_c": 30,
                "0 power_draw_10mw": 3196,
            }))
        );
    }

    #[test]
    fn gpustat_json_becomes_figures() {
        let query = json!({ "gpus": [
            { "index": 0, "name": "A", "uuid": "GPU-1", "memory.used": 1, "memory.total": 2,
              "utilization.gpu": null, "temperature.gpu": 3, "power.draw": 4,
              "processes": [{ "pid": 7, "gpu_memory_usage": null }] },
            { "index": 1, "name": "((GPU is lost))", "processes": null },
        ]});
        assert_eq!(
            of_gpustat(&query),
            figures(json!({
                "0 name": "A", "0 uuid": "GPU-1", "0 memory_used_mib": 1, "0 memory_total_mib": 2,
                "0 utilization_percent": null, "0 temperature_c": 3, "0 power_draw_w": 4,
                "0 pid 7 memory_mib": null,
                "1 name": null, "1 uuid": null, "1 memory_used_mib": null,
                "1 memory_total_mib": null, "1 utilization_percent": null, "1 temperature_c": null,
                "1 power_draw_w": null,
            }))
        );
    }
}
