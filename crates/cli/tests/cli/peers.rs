//! Drop-in formats compared with the original tools: on the same simulated machine with stopped
//! time, `gpuws query` prints the output of nvidia-smi, and `--format gpustat-json` that of
//! gpustat.
//!
//! `tests/peers` contains the output of nvidia-smi 535.261.03 and gpustat 1.1.1. To update it, name
//! the programs and build the simulated NVML:
//!
//!     cargo build -p gpuws -p gpu-nvml-sim
//!     GPUWS_NVIDIA_SMI=/…/nvidia-smi GPUWS_GPUSTAT=/…/gpustat SNAPSHOTS=overwrite \
//!         cargo test -p gpuws peers::
//!
//! With the variables and without `SNAPSHOTS`, the tools are run and compared directly.
//!
//! Differences that are excluded from the comparison:
//! - time: the tools print the real time, gpuws that of the simulated machine;
//! - a lost device: nvidia-smi stops there, gpuws keeps its row and prints `[GPU is lost]`;
//! - fields and names that newer nvidia-smi versions added to `--query-gpu`;
//! - values that nvidia-smi 535 queries with functions that the library does not export and the
//!   simulated one lacks: `enforced.power.limit`, `pcie.link.gen.hostmax`, `addressing_mode`,
//!   `temperature.gpu.tlimit`, and the processes of `--query-compute-apps`, of which only the
//!   header is compared. Current drivers report `addressing_mode` and `temperature.gpu.tlimit` with
//!   functions that gpuws calls;
//! - `memory.reserved` of a machine that does not report it: the interface cannot express this, and
//!   nvidia-smi prints 17592186044415 MiB;
//! - values that NVML returns in one struct with others (device IDs, memory utilisation, a pending
//!   mode): if the recording lacks one, nvidia-smi prints zero or the other value, gpuws `[N/A]`;
//! - the host name in gpustat's JSON is that of the real machine, and without placeholders no
//!   simulated process is in `/proc`, so gpustat lists none.

use snapbox::Data;
use std::path::Path;
use std::process::{Command, Stdio};

/// Fields that are not compared, for the reasons above.
const LEFT_OUT: &[&str] = &[
    "timestamp",
    "memory.reserved",
    "enforced.power.limit",
    "pcie.link.gen.hostmax",
    "addressing_mode",
    "temperature.gpu.tlimit",
];

/// Fields whose format nvidia-smi 580 changed: not compared on machines with that driver.
const CHANGED: &[&str] = &["display_mode", "fabric.state", "fabric.status"];

const APP_FIELDS: &str =
    "pid,process_name,used_gpu_memory,gpu_name,gpu_bus_id,gpu_serial,gpu_uuid,name,used_memory";

/// Returns the names of the fields of a row in gpuws, with the aliases of each field, without the
/// aliases that nvidia-smi 535 lacks.
fn names(help: &str) -> Vec<Vec<String>> {
    let listed = printed(&mut gpuws(&["query", help]));
    let of_535 = |name: &&str| !name.starts_with("gpu.power.");
    let named = listed.lines().filter_map(names_in);
    named.map(|names| names.filter(of_535).map(str::to_owned).collect()).collect()
}

/// Returns the names of a field, if the line of the help has them.
fn names_in(line: &str) -> Option<impl Iterator<Item = &str>> {
    Some(line.strip_prefix('"')?.strip_suffix('"')?.split("\" or \""))
}

/// Returns the names of the fields of nvidia-smi 535, a line each.
fn kept_names(kept: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers").join(kept);
    std::fs::read_to_string(path).expect("the names are kept")
}

/// Returns the compared fields; `pick` selects from the names of each.
fn compared(pick: impl Fn(&[String]) -> &[String]) -> String {
    let (all, kept) = (names("--help-query-gpu"), kept_names("query-gpu.names"));
    let of_535 = |name: &str| kept.split([' ', '\n']).any(|known| known == name);
    let is_compared = |name: &str| !LEFT_OUT.contains(&name) && of_535(name);
    let compared = all.iter().filter(|names| is_compared(&names[0]));
    compared.flat_map(|names| pick(names)).map(String::as_str).collect::<Vec<_>>().join(",")
}

fn gpuws(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpuws"));
    command.args(words).env("TZ", "UTC").stdin(Stdio::null());
    command
}

fn printed(command: &mut Command) -> String {
    let output = command.output().expect("gpuws runs");
    let text = String::from_utf8(output.stdout).expect("output is UTF-8");
    let code = output.status.code().expect("not ended by a signal");
    format!("{text}=> {code}\n")
}

/// Returns the stored output of a tool on a machine with stopped time. If the variable names the
/// tool, runs it and compares its output with the stored one.
fn tool(variable: &str, machine: &str, words: &[&str], kept: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers").join(kept);
    if let Some(program) = std::env::var_os(variable) {
        let mut command = gpuws(&["sim", machine, "--at", "0", "--"]);
        let now = steady(&printed(command.arg(program).args(words)));
        snapbox::assert_data_eq!(now, Data::read_from(&path, None).raw());
    }
    std::fs::read_to_string(&path).expect("what the tool printed is kept")
}

/// Compares gpuws with the stored output of a tool, which it never updates.
fn hold(ours: &str, kept: &str, what: &dyn std::fmt::Debug) {
    assert!(ours == kept, "{what:?}: gpuws prints\n{ours}\nand the tool\n{kept}");
}

/// Returns the machines that answer every query and have output of a tool, stored or made now.
fn machines() -> Vec<&'static str> {
    let names = gpu_sim::machines().into_iter().map(|machine| machine.name);
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers");
    let is_made = std::env::var_os("GPUWS_NVIDIA_SMI").is_some();
    let is_stored = |name: &&str| is_made || dir.join(format!("{name}.query-gpu.csv")).exists();
    let names: Vec<&str> = names
        .filter(|name| !["no-driver", "driver-mismatch", "lost-gpu"].contains(name))
        .filter(is_stored)
        .collect();
    assert!(names.len() >= 27, "{names:?}");
    names
}

#[test]
fn device_rows_match_nvidia_smi() {
    let all = compared(|names| &names[..1]);
    for machine in machines() {
        let fields = match machine {
            "gb10-unified" | "h200-jobs" => without(&all, CHANGED),
            _ => all.clone(),
        };
        let words = [&*format!("--query-gpu={fields}"), "--format=csv"];
        let kept = tool("GPUWS_NVIDIA_SMI", machine, &words, &format!("{machine}.query-gpu.csv"));
        let ours = printed(&mut gpuws(&[&["--sim", machine, "query"][..], &words].concat()));
        hold(&without_doubt(&ours), &without_doubt(&kept), &machine);
        // Machines that report all values need no exception.
        if machine == "labbox" {
            hold(&ours, &kept, &machine);
        }
    }
}

/// Removes fields from a list.
fn without(fields: &str, left_out: &[&str]) -> String {
    let kept = fields.split(',').filter(|field| !left_out.contains(field));
    kept.collect::<Vec<_>>().join(",")
}

/// Replaces values that nvidia-smi cannot distinguish from absent ones.
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

/// gpuws has every field of nvidia-smi 535, with the same name.
#[test]
fn field_names_match_nvidia_smi() {
    for (help, kept) in [
        ("--help-query-gpu", "query-gpu.names"),
        ("--help-query-compute-apps", "query-compute-apps.names"),
    ] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers").join(kept);
        if let Some(program) = std::env::var_os("GPUWS_NVIDIA_SMI") {
            let mut command = gpuws(&["sim", "labbox", "--"]);
            let text = printed(command.arg(program).arg(help));
            let quoted = |line| Some(names_in(line)?.map(str::to_owned).collect());
            let now: Vec<_> = text.lines().filter_map(quoted).map(each_once).collect();
            snapbox::assert_data_eq!(now.join("\n") + "\n", Data::read_from(&path, None).raw());
        }
        let kept = kept_names(kept);
        let ours = names(help).into_iter().map(each_once);
        let ours: Vec<_> = ours.filter(|names| kept.lines().any(|line| line == names)).collect();
        assert_eq!(ours, kept.lines().collect::<Vec<_>>(), "{help}");
    }
}

/// Joins the names of a field; nvidia-smi lists one of them twice.
fn each_once(mut names: Vec<String>) -> String {
    names.dedup();
    names.join(" or ")
}

/// Values that no shipped machine reports, or only one.
#[test]
fn rare_field_values_match_nvidia_smi() {
    let dir = tempfile::tempdir().unwrap();
    let places = |first: u32| {
        let places = [
            "device_memory",
            "register_file",
            "l1_cache",
            "l2_cache",
            "texture_memory",
            "cbu",
            "sram",
        ];
        let counts = places.iter().zip(first..).map(|(place, count)| format!("{place} = {count}"));
        format!("{{ {} }}", counts.collect::<Vec<_>>().join(", "))
    };
    let machine = format!(
        "description = 'made: a device with every choice, and some with few'\n\
        clock = 2025-03-03T10:00:00Z\n\
        [[gpu]]\nindex = 0\nuuid = 'GPU-0'\nmemory_total_mib = 100\n\
        power_draw_mw = 250000\npower_limit_mw = 300000\n\
        details.product = {{ compute_capability = [8, 6] }}\n\
        details.inforom = {{ image = 'G001.0000.03.07', oem = '2.0', ecc = '7.16', power = 'N' }}\n\
        details.operation_modes = {{ current = 'low-double-precision', pending = 'compute' }}\n\
        details.engines = {{ jpeg_percent = 12, ofa_percent = 3 }}\n\
        details.power_readings = {{ instant_mw = 241505 }}\n\
        details.pcie = {{ generation = 3, generation_max = 4, device_generation_max = 5 }}\n\
        details.activity = {{ throttle = 0x44, throttle_supported = 0x1ef }}\n\
        details.application_clocks = {{ graphics_mhz = 1410, memory_mhz = 1593, \
            default_graphics_mhz = 1275, default_memory_mhz = 1593 }}\n\
        details.gsp_firmware = {{ enabled = true, enabled_by_default = false }}\n\
        details.virtual_gpus = {{ heterogeneous = 1, fractional = 0, timeslice_profiles = 1, \
            timeslice_sizes = 0 }}\n\
        details.reset_status = {{ required = false, drain_recommended = true }}\n\
        details.protected_memory = {{ total_bytes = 104857600, used_bytes = 40894469 }}\n\
        details.fabric = {{ state = 'completed', status_code = 0 }}\n\
        details.modes = {{ ecc = true }}\n\
        details.memory_errors.corrected = {}\n\
        details.memory_errors.uncorrected = {}\n\
        details.memory_errors.corrected_lifetime = {}\n\
        details.memory_errors.uncorrected_lifetime = {}\n\
        [[gpu]]\nindex = 1\nuuid = 'GPU-1'\nmemory_total_mib = 100\n\
        details.virtual_gpus = {{ heterogeneous = 1 }}\n\
        details.operation_modes = {{ current = 'all-on' }}\n\
        details.power_readings = {{ managed = {{ absent = 'deprecated' }} }}\n\
        details.reset_status = {{ required = true }}\n\
        details.fabric = {{ state = 'completed', status_code = 9 }}\n\
        [[gpu]]\nindex = 2\nuuid = 'GPU-2'\nmemory_total_mib = 100\n\
        details.virtual_gpus = {{ heterogeneous = 1 }}\n\
        details.fabric = {{ state = 'in-progress' }}\n\
        unsupported = ['power-draw', 'power-limit']\n\
        [[gpu]]\nindex = 3\nuuid = 'GPU-3'\nmemory_total_mib = 100\n\
        details.virtual_gpus = {{ heterogeneous = 1 }}\n\
        details.fabric = {{ state = 'not-started' }}\n\
        [[gpu]]\nindex = 4\nuuid = 'GPU-4'\nmemory_total_mib = 100\n\
        details.virtual_gpus = {{ heterogeneous = 1 }}\n\
        details.fabric = {{ state = 'none' }}\n",
        places(100),
        places(200),
        places(300),
        places(400),
    );
    std::fs::write(dir.path().join("machine.toml"), machine).unwrap();
    let machine = dir.path().to_str().unwrap();
    let fields = format!("--query-gpu={}", compared(|names| &names[..1]));
    let words = [fields.as_str(), "--format=csv"];
    let kept = tool("GPUWS_NVIDIA_SMI", machine, &words, "few-devices.query-gpu.csv");
    let ours = printed(&mut gpuws(&[&["--sim", machine, "query"][..], &words].concat()));
    hold(&without_doubt(&ours), &without_doubt(&kept), &machine);
}

#[test]
fn process_header_matches_nvidia_smi() {
    let words = [&*format!("--query-compute-apps={APP_FIELDS}"), "--format=csv", "-i", "0"];
    let kept = tool("GPUWS_NVIDIA_SMI", "labbox", &words, "labbox.query-compute-apps.csv");
    let ours = printed(&mut gpuws(&[&["--sim", "labbox", "query"][..], &words].concat()));
    assert_eq!(ours.lines().next(), kept.lines().next());
    // The row format is that of real machines: H100, driver 590.48.01.
    let row = ours.lines().nth(1).expect("a row");
    assert!(row.starts_with("21044, python, 72704 MiB, NVIDIA A100-SXM4-80GB, 00000000:04:00.0, "));
}

/// Aliases, styles, selected devices and errors.
#[test]
fn nvidia_smi_options_behave_identically() {
    let other_names = format!("--query-gpu={}", compared(|names| &names[1..]));
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

/// Devices in gpustat's JSON, byte for byte.
#[test]
fn device_json_matches_gpustat() {
    for machine in machines() {
        let kept = tool("GPUWS_GPUSTAT", machine, &["--json"], &format!("{machine}.gpustat.json"));
        let words = ["--sim", machine, "status", "--format", "gpustat-json"];
        hold(&steady(&printed(&mut gpuws(&words))), &kept, &machine);
    }
}

/// Removes the host name, the time, and the processes from gpustat's JSON.
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

/// The format of a process, which gpustat only shows for real processes.
#[test]
fn process_fields_match_gpustat() {
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
fn timestamps_match_tool_formats() {
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
