//! `gpuws query` through the simulated NVML, with the fields of every release of nvidia-smi.

use crate::program::{Ended, ended, skipped};
use std::fs;
use std::process::{Command, Stdio};

/// A machine with a driver and one GPU; more lines describe the GPU.
fn query(driver: &str, gpu: &str, words: &[&str]) -> Ended {
    let dir = tempfile::tempdir().expect("temporary directory");
    let text = format!(
        "description = 'made'\nclock = 2025-03-03T10:00:00Z\n[driver]\nversion = '{driver}'\n\
         [[gpu]]\nindex = 0\nuuid = 'GPU-0'\nmemory_total_mib = 100\n{gpu}"
    );
    fs::create_dir(dir.path().join("box")).unwrap();
    fs::write(dir.path().join("box/machine.toml"), text).unwrap();
    let own = env!("CARGO_BIN_EXE_gpuws");
    let mut command = Command::new(own);
    command.args(["sim", "./box", "--", own, "query", "--format=csv"]).args(words);
    command.current_dir(dir.path()).env_remove("GPUWS_SIM_SESSION").stdin(Stdio::null());
    ended(command.output().expect("gpuws runs"))
}

/// Complete recordings of 590 to 610: the same header, and the same placeholder for each value that
/// neither machine has.
#[test]
fn recorded_headers_and_placeholders_are_those_of_nvidia_smi() {
    let Some(corpus) = std::env::var_os("GPUWS_CORPUS") else {
        return skipped("GPUWS_CORPUS names no collection of real outputs");
    };
    let mut releases = std::collections::BTreeSet::new();
    for file in fs::read_dir(std::path::Path::new(&corpus).join("query_gpu")).unwrap() {
        let path = file.unwrap().path();
        let recorded = fs::read_to_string(&path).unwrap();
        let Some((head, row)) = recorded.trim_end().split_once('\n') else { continue };
        let row: Vec<&str> = row.split(", ").collect();
        // Others have few fields.
        if head.split(", ").count() < 200 {
            continue;
        }
        let names = head.split(", ").map(|field| field.split(" [").next().unwrap());
        let fields = format!("--query-gpu={}", names.collect::<Vec<_>>().join(","));
        let ours = query(row[1], "", &[&fields]);
        let mut lines = ours.stdout.lines();
        assert_eq!(lines.next(), Some(head), "{}: {}", path.display(), ours.stderr);
        let cells: Vec<&str> = lines.next().expect("a row").split(", ").collect();
        assert_eq!(cells.len(), row.len(), "{}", path.display());
        for ((name, ours), theirs) in head.split(", ").zip(cells).zip(&row) {
            let both_lack = ours.contains("N/A") && theirs.contains("N/A");
            assert!(!both_lack || ours == *theirs, "{name}: {ours} instead of {theirs}");
        }
        releases.insert(row[1].split('.').next().unwrap_or_default().to_owned());
    }
    assert!(releases.contains("590") && releases.contains("610"), "{releases:?}");
}

#[test]
fn fields_of_later_releases_have_their_values() {
    let gpu = "details.pcie = { base_class = 3, sub_class = 2 }\n\
        details.inforom = { valid = false }\n\
        details.virtual_gpus = { mig_timeslicing = 1 }\n\
        details.throttle_times = { software_power_cap_ns = 1234999, sync_boost_ns = 999 }\n\
        details.rare_modes = { c2c = true, memory_encryption = false, \
            memory_encryption_pending = false }\n\
        details.sram_errors = { parity = 3, pcie = 4 }\n\
        details.power = { limit_mw = 250000 }\n\
        details.power_readings = { peak_share_percent = 80 }\n\
        details.module_power = { enforced_limit_mw = 1000500 }\n\
        details.fabric = { state = 'completed', status_code = 0, clique = 32766, \
            cluster = '00000001-0000-0000-0000-00000000000f', health = 'Healthy', \
            bandwidth_degraded = false, route_unhealthy = true, incorrect_configuration = '' }\n\
        details.platform = { chassis_serial = '1820', slot = 21, tray = 5, host = 1, \
            switched = true, module = 2, fabric_guid = 0xab }\n";
    let fields = [
        ("kmd_version", "kmd_version", "610.57.04"),
        ("pci.baseClass", "pci.baseClass", "0x3"),
        ("pci.subClass", "pci.subClass", "0x2"),
        ("vgpu_device_capability.mig_timeSlicing", "vgpu_device_capability.mig_timeSlicing", "1"),
        ("inforom.checksum_validation", "inforom.checksum_validation", "invalid"),
        (
            "clocks_event_reasons_counters.sw_power_cap",
            "clocks_event_reasons_counters.sw_power_cap [us]",
            "1234 us",
        ),
        (
            "clocks_event_reasons_counters.sync_boost",
            "clocks_event_reasons_counters.sync_boost [us]",
            "0 us",
        ),
        ("dramEncryption.mode.current", "dramEncryption.mode.current", "Disabled"),
        (
            "ecc.errors.uncorrected.volatile.sram.parity",
            "ecc.errors.uncorrected.volatile.sram.parity",
            "3",
        ),
        (
            "ecc.errors.uncorrected.aggregate.sram.thresholdExceeded",
            "ecc.errors.uncorrected.aggregate.sram.thresholdExceeded",
            "No",
        ),
        (
            "ecc.errors.uncorrected.aggregate.sram.pcie",
            "ecc.errors.uncorrected.aggregate.sram.pcie",
            "4",
        ),
        ("remapped_rows.sbe", "remapped_rows.correctable", "[N/A]"),
        ("gpu.power.requested_limit", "power.limit [W]", "250.00 W"),
        ("module.power.current_limit", "module.enforced.power.limit [W]", "1000.50 W"),
        ("module.power.draw.average", "module.power.draw.average [W]", "[N/A]"),
        ("power_smoothing.priv_level", "power_smoothing.priv_level", "[N/A]"),
        ("edpp_multiplier", "edpp_multiplier [%]", "80.00 %"),
        ("c2c.mode", "c2c.mode", "Enabled"),
        ("fabric.status", "fabric.status", "Success"),
        ("fabric.cliqueId", "fabric.cliqueId", "32766"),
        ("fabric.clusterUuid", "fabric.clusterUuid", "00000001-0000-0000-0000-00000000000f"),
        ("fabric.health.summary", "fabric.health.summary", "Healthy"),
        ("fabric.health.bandwidth", "fabric.health.bandwidth", "Full"),
        ("fabric.health.route_unhealthy", "fabric.health.route_unhealthy", "True"),
        (
            "fabric.health.route_recovery_in_progress",
            "fabric.health.route_recovery_in_progress",
            "N/A",
        ),
        ("fabric.health.incorrect_configuration", "fabric.health.incorrect_configuration", "None"),
        ("fabric.health.partition_assigned", "fabric.health.partition_assigned", "N/A"),
        ("platform.chassis_serial_number", "platform.chassis_serial_number", "1820"),
        ("platform.tray_index", "platform.tray_index", "5"),
        ("platform.peer_type", "platform.peer_type", "Switch Connected"),
        ("platform.gpu_fabric_guid", "platform.gpu_fabric_guid", "0x00000000000000AB"),
        ("bbx.time_run", "bbx.time_run [seconds]", "[N/A]"),
    ];
    let list = |of: fn(&(&'static str, &'static str, &'static str)) -> &'static str| {
        fields.iter().map(of).collect::<Vec<_>>()
    };
    let option = format!("--query-gpu={}", list(|field| field.0).join(","));
    let ours = query("610.57.04", gpu, &[&option]);
    let expected = [list(|field| field.1).join(", "), list(|field| field.2).join(", ")];
    assert_eq!(ours.stdout.lines().collect::<Vec<_>>(), expected, "{}", ours.stderr);
}

#[test]
fn other_queries_list_their_items() {
    let gpu = "details.modes = { accounting = true }\n\
        details.memory_health = { retired_single_bit = 1, retired_double_bit = 1, \
            remapped_corrected = 2, remapped_uncorrected = 0, \
            remapped_pending = true, remapped_failure = false }\n\
        details.supported_clocks.combinations = [\
            { memory_mhz = 1593, graphics_mhz = [1410, 1395] }, \
            { memory_mhz = 405, graphics_mhz = [345] }]\n\
        [[gpu.details.accounting.processes]]\npid = 4711\nrunning = false\n\
        memory_max_bytes = 5231345664\nutilization_percent = 55\nmemory_utilization_percent = 8\n\
        time_ms = 14193\n";
    for (option, rows) in [
        (
            "--query-accounted-apps=gpu_uuid,pid,gpu_util,mem_util,max_memory_usage,time",
            "gpu_uuid, pid, gpu_utilization [%], mem_utilization [%], max_memory_usage [MiB], \
             time [ms]\nGPU-0, 4711, 55 %, 8 %, 4989 MiB, 14193 ms\n",
        ),
        (
            "--query-retired-pages=gpu_uuid,retired_pages.address,retired_pages.cause",
            "gpu_uuid, retired_pages.address, retired_pages.cause\n\
             GPU-0, 0x0000000040000000, Single Bit ECC\nGPU-0, 0x0000000080000000, Double Bit ECC\n",
        ),
        (
            "--query-remapped-rows=gpu_uuid,remapped_rows.correctable,remapped_rows.pending",
            "gpu_uuid, remapped_rows.correctable, remapped_rows.pending\nGPU-0, 2, Yes\n",
        ),
        (
            "--query-supported-clocks=mem,gr",
            "memory [MHz], graphics [MHz]\n1593 MHz, 1410 MHz\n1593 MHz, 1395 MHz\n405 MHz, 345 MHz\n",
        ),
    ] {
        let ours = query("610.57.04", gpu, &[option]);
        assert_eq!((ours.code, ours.stdout.as_str()), (0, rows), "{option}: {}", ours.stderr);
    }
    // A device that reports none: as nvidia-smi, a row for each cause.
    let none = query("610.57.04", "", &["--query-retired-pages=retired_pages.address"]);
    assert_eq!(none.stdout, "retired_pages.address\n[N/A]\n[N/A]\n");
    let none = query("610.57.04", "", &["--query-supported-clocks=mem"]);
    assert_eq!(none.stdout, "memory [MHz]\n[N/A]\n");
    let none = query("610.57.04", "", &["--query-accounted-apps=pid"]);
    assert_eq!((none.code, none.stdout.as_str()), (0, "pid\n"));
}
