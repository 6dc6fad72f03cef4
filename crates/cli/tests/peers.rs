//! The drop-ins beside the tools that they stand in for: for the same simulated machine, standing
//! still, `gpuws query` prints what nvidia-smi prints, and `--format gpustat-json` what gpustat
//! does.
//!
//! `tests/peers` keeps what nvidia-smi 535.261.03 and gpustat 1.1.1 printed. To write it anew, name
//! the programs and build the simulated NVML:
//!
//!     cargo build -p gpuws -p gpu-nvml-sim
//!     GPUWS_NVIDIA_SMI=/…/nvidia-smi GPUWS_GPUSTAT=/…/gpustat SNAPSHOTS=overwrite \
//!         cargo test -p gpuws --test peers
//!
//! With the variables and without `SNAPSHOTS`, the tools are run and compared on the spot.
//!
//! What differs, and is left out of the comparison:
//! - time: the tools print the real one, gpuws that of the simulated machine;
//! - a lost device: nvidia-smi ends at it, gpuws keeps its row and says `[GPU is lost]`;
//! - what a driver no longer tells, as one of today `power.management`: nvidia-smi says
//!   `[Requested functionality has been deprecated]`, gpuws `[N/A]`;
//! - `remapped_rows.*`: fields of `--query-gpu` only since a later nvidia-smi;
//! - what nvidia-smi 535 asks for by functions that the library does not export, and the simulated
//!   one lacks: `enforced.power.limit`, and the processes of `--query-compute-apps`, of which only
//!   the head is compared;
//! - `memory.reserved` of a machine that does not tell it: the interface has no way to say so, and
//!   nvidia-smi prints 17592186044415 MiB;
//! - where a recording does not tell a value that NVML hands out beside another one (device ids,
//!   the memory's utilisation, a pending mode), it cannot be told as absent: nvidia-smi reads zero or
//!   the other value, gpuws says `[N/A]`;
//! - the machine's name in gpustat's JSON is that of the real machine, and without placeholders no
//!   simulated process is in `/proc`, so that gpustat lists none.

use snapbox::Data;
use std::path::Path;
use std::process::{Command, Stdio};

/// Every field of nvidia-smi 535 that gpuws answers, each under its first name.
const FIELDS: &str = "driver_version,count,name,serial,uuid,pci.bus_id,pci.domain,pci.bus,\
    pci.device,pci.device_id,pci.sub_device_id,pcie.link.gen.current,pcie.link.gen.gpucurrent,\
    pcie.link.gen.max,pcie.link.width.current,pcie.link.width.max,index,display_mode,\
    display_active,persistence_mode,accounting.mode,accounting.buffer_size,vbios_version,\
    inforom.img,gom.current,gom.pending,fan.speed,\
    pstate,clocks_event_reasons.active,clocks_event_reasons.gpu_idle,\
    clocks_event_reasons.applications_clocks_setting,clocks_event_reasons.sw_power_cap,\
    clocks_event_reasons.hw_slowdown,clocks_event_reasons.hw_thermal_slowdown,\
    clocks_event_reasons.hw_power_brake_slowdown,clocks_event_reasons.sw_thermal_slowdown,\
    clocks_event_reasons.sync_boost,memory.total,memory.used,memory.free,\
    compute_mode,compute_cap,utilization.gpu,utilization.memory,utilization.encoder,\
    utilization.decoder,utilization.jpeg,utilization.ofa,encoder.stats.sessionCount,encoder.stats.averageFps,\
    encoder.stats.averageLatency,ecc.mode.current,ecc.mode.pending,\
    ecc.errors.corrected.volatile.total,ecc.errors.corrected.aggregate.total,\
    ecc.errors.uncorrected.volatile.total,ecc.errors.uncorrected.aggregate.total,\
    retired_pages.single_bit_ecc.count,retired_pages.double_bit.count,retired_pages.pending,\
    temperature.gpu,temperature.memory,power.management,power.draw,power.draw.average,\
    power.draw.instant,power.limit,\
    power.default_limit,power.min_limit,power.max_limit,clocks.current.graphics,clocks.current.sm,\
    clocks.current.memory,clocks.current.video,clocks.max.graphics,clocks.max.sm,\
    clocks.max.memory,mig.mode.current,mig.mode.pending";

/// Every other name of a field.
const OTHER_NAMES: &str = "gpu_name,gpu_serial,gpu_uuid,gpu_bus_id,inforom.image,\
    gpu_operation_mode.current,gpu_operation_mode.pending,\
    clocks_throttle_reasons.active,clocks_throttle_reasons.gpu_idle,\
    clocks_throttle_reasons.sw_power_cap,clocks_throttle_reasons.hw_slowdown,retired_pages.sbe,\
    retired_pages.dbe,clocks.gr,clocks.sm,clocks.mem,clocks.video,clocks.max.gr,clocks.max.mem";

const APP_FIELDS: &str =
    "pid,process_name,used_gpu_memory,gpu_name,gpu_bus_id,gpu_serial,gpu_uuid,name,used_memory";

fn gpuws(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpuws"));
    command.args(words).env("TZ", "UTC").stdin(Stdio::null());
    command
}

fn printed(command: &mut Command) -> String {
    let output = command.output().expect("it runs");
    let text = String::from_utf8(output.stdout).expect("it prints UTF-8");
    let code = output.status.code().expect("it ends by itself");
    format!("{text}=> {code}\n")
}

/// Returns what a tool prints on a machine that stands still, as it is kept. Where the variable
/// names the tool it is run, and what is kept must be what it prints now.
fn tool(variable: &str, machine: &str, words: &[&str], kept: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers").join(kept);
    if let Some(program) = std::env::var_os(variable) {
        let mut command = gpuws(&["sim", machine, "--at", "0", "--"]);
        let now = steady(&printed(command.arg(program).args(words)));
        snapbox::assert_data_eq!(now, Data::read_from(&path, None).raw());
    }
    std::fs::read_to_string(&path).expect("what the tool printed is kept")
}

/// Holds gpuws to what a tool printed; never writes that anew.
fn hold(ours: &str, kept: &str, what: &dyn std::fmt::Debug) {
    assert!(ours == kept, "{what:?}: gpuws prints\n{ours}\nand the tool\n{kept}");
}

/// The machines on which a driver answers and every device does.
fn machines() -> Vec<&'static str> {
    let names = gpu_sim::machines().into_iter().map(|machine| machine.name);
    names.filter(|name| !["no-driver", "driver-mismatch", "lost-gpu"].contains(name)).collect()
}

#[test]
fn a_row_per_device_is_that_of_nvidia_smi() {
    for machine in machines() {
        let words = [&*format!("--query-gpu={FIELDS}"), "--format=csv"];
        let kept = tool("GPUWS_NVIDIA_SMI", machine, &words, &format!("{machine}.query-gpu.csv"));
        let ours = printed(&mut gpuws(&[&["--sim", machine, "query"][..], &words].concat()));
        hold(&without_doubt(&ours), &without_doubt(&kept), &machine);
        // On machines that tell everything there is no such doubt.
        if machine == "labbox" {
            hold(&ours, &kept, &machine);
        }
    }
}

/// Writes what nvidia-smi reads for what it cannot tell from absent.
fn without_doubt(rows: &str) -> String {
    let head: Vec<&str> = rows.lines().next().unwrap_or_default().split(", ").collect();
    let row = |row: &str| {
        let cells: Vec<&str> = row.split(", ").collect();
        let at = |name: &str| cells[head.iter().position(|known| *known == name).unwrap()];
        let cell = |(cell, name): (&&str, &&str)| match *name {
            _ if *cell != "[N/A]" => (*cell).to_owned(),
            "pci.device_id" | "pci.sub_device_id" => "0x0000".to_owned(),
            "utilization.memory [%]" => "0 %".to_owned(),
            "ecc.mode.pending" => at("ecc.mode.current").to_owned(),
            "mig.mode.pending" => at("mig.mode.current").to_owned(),
            _ => (*cell).to_owned(),
        };
        cells.iter().zip(&head).map(cell).collect::<Vec<_>>().join(", ")
    };
    let (rows, code) = rows.rsplit_once("=> ").expect("a code");
    rows.lines().map(|line| row(line) + "\n").collect::<String>() + code
}

/// What none of the shipped machines tells, or not twice the same.
#[test]
fn what_few_devices_tell_is_in_the_words_of_nvidia_smi() {
    let folder = tempfile::tempdir().unwrap();
    let machine = "description = 'made: a device with every choice, and one with none'\n\
        clock = 2025-03-03T10:00:00Z\n\
        [[gpu]]\nindex = 0\nmemory_total_mib = 100\n\
        power_draw_mw = 250000\npower_limit_mw = 300000\n\
        details.product = { compute_capability = [8, 6] }\n\
        details.inforom = { image = 'G001.0000.03.07' }\n\
        details.operation_modes = { current = 'low-double-precision', pending = 'compute' }\n\
        details.engines = { jpeg_percent = 12, ofa_percent = 3 }\n\
        details.power_readings = { instant_mw = 241505 }\n\
        [[gpu]]\nindex = 1\nmemory_total_mib = 100\n\
        details.operation_modes = { current = 'all-on' }\n\
        details.power_readings = { managed = false }\n\
        [[gpu]]\nindex = 2\nmemory_total_mib = 100\n\
        unsupported = ['power-draw', 'power-limit']\n";
    std::fs::write(folder.path().join("machine.toml"), machine).unwrap();
    let machine = folder.path().to_str().unwrap();
    let fields = "--query-gpu=inforom.img,gom.current,gom.pending,utilization.jpeg,\
        utilization.ofa,power.management,power.draw,power.draw.average,power.draw.instant";
    let words = [fields, "--format=csv"];
    let kept = tool("GPUWS_NVIDIA_SMI", machine, &words, "few-devices.query-gpu.csv");
    let ours = printed(&mut gpuws(&[&["--sim", machine, "query"][..], &words].concat()));
    hold(&ours, &kept, &machine);
}

#[test]
fn the_head_of_processes_is_that_of_nvidia_smi() {
    let words = [&*format!("--query-compute-apps={APP_FIELDS}"), "--format=csv", "-i", "0"];
    let kept = tool("GPUWS_NVIDIA_SMI", "labbox", &words, "labbox.query-compute-apps.csv");
    let ours = printed(&mut gpuws(&[&["--sim", "labbox", "query"][..], &words].concat()));
    assert_eq!(ours.lines().next(), kept.lines().next());
    // The form of a row is that of real machines: H100, driver 590.48.01.
    let row = ours.lines().nth(1).expect("a row");
    assert!(row.starts_with("21044, python, 72704 MiB, NVIDIA A100-SXM4-80GB, 00000000:04:00.0, "));
}

/// The words around the fields: other names, styles, devices, what is refused.
#[test]
fn the_words_of_nvidia_smi_do_the_same() {
    let other_names = format!("--query-gpu={OTHER_NAMES}");
    for (name, words) in [
        ("other-names", &[other_names.as_str(), "--format=csv"][..]),
        ("noheader", &["--query-gpu=index,memory.used,power.draw", "--format=csv,noheader"]),
        ("nounits", &["--query-gpu=index,memory.used,power.draw", "--format=csv,nounits"]),
        ("neither", &["--query-gpu=index,fan.speed", "--format=noheader,csv,nounits"]),
        ("apart", &["--query-gpu", "index", "--format", "csv", "--id=2"]),
        ("order", &["--query-gpu=index", "--format=csv", "-i", "2,0"]),
        ("missing-one", &["--query-gpu=index", "--format=csv", "-i", "0,9"]),
        ("twice", &["--query-gpu=index,index,", "--format=csv", "-i", "1"]),
        ("unknown-field", &["--query-gpu=index,foo", "--format=csv"]),
        ("unknown-app-field", &["--query-compute-apps=index", "--format=csv"]),
        ("other-case", &["--query-gpu=INDEX", "--format=csv"]),
    ] {
        let kept = tool("GPUWS_NVIDIA_SMI", "labbox", words, &format!("labbox.{name}.csv"));
        let ours = printed(&mut gpuws(&[&["--sim", "labbox", "query"][..], words].concat()));
        hold(&ours, &kept, &words);
    }
}

/// Devices in gpustat's JSON, to the byte.
#[test]
fn the_json_of_devices_is_that_of_gpustat() {
    for machine in machines() {
        let kept = tool("GPUWS_GPUSTAT", machine, &["--json"], &format!("{machine}.gpustat.json"));
        let words = ["--sim", machine, "status", "--format", "gpustat-json"];
        hold(&steady(&printed(&mut gpuws(&words))), &kept, &machine);
    }
}

/// Leaves out of gpustat's JSON the machine's name, the time, and the processes in their lists.
fn steady(printed: &str) -> String {
    let mut kept = String::new();
    let mut lines = printed.lines();
    while let Some(line) = lines.next() {
        let text = line.trim_start();
        if text.starts_with("\"hostname\": \"") || text.starts_with("\"query_time\": \"") {
            continue;
        }
        kept.push_str(line);
        if text == "\"processes\": [" {
            let end = format!("{}]", " ".repeat(line.len() - text.len()));
            assert!(lines.any(|line| line == end), "the list of processes ends");
            kept.push(']');
        }
        kept.push('\n');
    }
    kept
}

/// The form of a process, which no tool shows without a real process to show.
#[test]
fn a_process_has_the_fields_of_gpustat() {
    let text =
        printed(&mut gpuws(&["--sim", "labbox", "status", "--format", "gpustat-json", "-i", "0"]));
    let begin = text.find("                {").expect("a process");
    let names = text[begin..].lines().filter_map(|line| {
        let line = line.strip_prefix("                    \"")?;
        line.split_once("\":").map(|(name, _)| name)
    });
    assert_eq!(
        names.collect::<Vec<_>>(),
        [
            "username",
            "command",
            "full_command",
            "gpu_memory_usage",
            "cpu_percent",
            "cpu_memory_usage",
            "pid"
        ]
    );
}

/// `2026/11/21 04:35:24.123` and `2026-11-21T04:35:24.123000`.
#[test]
fn times_have_the_forms_of_the_tools() {
    let row = printed(&mut gpuws(&[
        "--sim",
        "labbox",
        "query",
        "--query-gpu=timestamp",
        "--format=csv,noheader",
        "-i",
        "0",
    ]));
    assert_eq!(row, "2025/03/03 10:00:00.000\n=> 0\n");
    let json = printed(&mut gpuws(&["--sim", "labbox", "status", "--format", "gpustat-json"]));
    assert!(json.contains("    \"query_time\": \"2025-03-03T10:00:00.000000\",\n"), "{json}");
}
