use super::*;
use crate::document::{Gpu, Kind};
use crate::text::clean;
use crate::{Hint, differing, sections, snapshot};
use gpu_core::{Absent, Bytes, Reading, Timestamp};
use proptest::prelude::*;
use std::fmt::Display;

/// Parses a text whose kind is detected; every line of it has a meaning.
fn read(text: &str) -> Document {
    let document = crate::parse(text.as_bytes(), &Hint::default()).unwrap();
    assert_eq!((document.kind, &document.unread[..]), (Kind::Other, &[][..]), "{text}");
    assert_eq!(document.others, [], "{text}");
    document
}

/// A value, or a letter for the reason: `-` for a value that is not in the text.
fn show<T: Display>(value: Reading<T>) -> String {
    match value {
        Ok(value) => value.to_string(),
        Err(Absent::NotRecorded) => "-".into(),
        Err(Absent::NotSupported) => "n".into(),
        Err(Absent::Implausible) => "i".into(),
        Err(Absent::Asleep) => "a".into(),
        Err(_) => "f".into(),
    }
}

fn option<T: Display>(value: Option<T>) -> String {
    show(value.ok_or(Absent::NotRecorded))
}

/// Index, bus, memory in use/in total, utilisation, temperature, power/limit, name.
fn device(gpu: &Gpu) -> String {
    format!(
        "{} {} {}/{} {} {} {}/{} {}",
        option(gpu.index),
        option(gpu.bus_id.as_ref()),
        show(gpu.memory_used_mib),
        show(gpu.memory_total_mib),
        show(gpu.utilization_percent),
        show(gpu.temperature_c),
        show(gpu.power_draw_w),
        show(gpu.power_limit_w),
        option(gpu.name.as_ref()),
    )
}

fn devices(text: &str) -> Vec<String> {
    read(text).gpus.iter().map(device).collect()
}

/// PID, device, name and memory of each process.
fn processes(text: &str) -> Vec<String> {
    let rows = read(text).processes.expect("a list of processes");
    let process = |p: &crate::document::Process| {
        let (pid, gpu) = (option(p.pid), option(p.gpu_index));
        format!("{pid} {gpu} {} {}", option(p.name.as_ref()), show(p.memory_mib))
    };
    rows.iter().map(process).collect()
}

const CONCISE: &str = "\
============ ROCm System Management Interface ============
====================== Concise Info ======================
Device  Node  IDs              Temp        Power     Partitions          SCLK    Perf  PwrCap   VRAM%  GPU%
              (DID,     GUID)  (Junction)  (Socket)  (Mem, Compute, ID)
==========================================================
0       2     0x74a1,   1234   41.5°C      120.0W    NPS4, CPX, 1        131Mhz  auto  750.0W   3%     7%
1       3     0x74a1,   56789  N/A         N/A       N/A, N/A, 0         None    auto  UNKNOWN  0%     N/A
==========================================================
================= End of ROCm SMI Log ====================
";

#[test]
fn concise_tables_of_all_versions_are_parsed() {
    assert_eq!(devices(CONCISE), ["0 - -/- 7 42 120/750 -", "1 - -/- n n n/f -"]);
    let mode = read(CONCISE).gpus[0].partition.clone().unwrap();
    assert_eq!(
        (mode.compute.unwrap(), mode.memory.unwrap(), mode.id),
        ("CPX".into(), "NPS4".into(), Some(1))
    );
    let old = "GPU  Temp   AvgPwr  SCLK    Fan     Perf  PwrCap       VRAM%  GPU%\n\
               1    24.0c  3.0W    852Mhz  13.73%  auto  Unsupported  N/A    0%\n";
    assert_eq!(devices(old), ["1 - -/- 0 24 3/n -"]);
    let named = "Device  [Model : Revision]  Temp    Perf  GPU%\n\
                 \x20       Name (20 chars)     (Edge)\n\
                 0       [0x7408 : 0x01]     40.0°C  auto  5%\n\
                 \x20       Test MI200 (MCM) OA\n";
    assert_eq!(devices(named), ["0 - -/- 5 40 -/- Test MI200 (MCM) OA"]);
    let hardware = "GPU  DID   GFX RAS  VBIOS      BUS           PARTITION ID\n\
                    0    66af  ENABLED  113-D3-06  0000:03:00.0  0\n";
    assert_eq!(devices(hardware), ["0 0000:03:00.0 -/- - - -/- -"]);
}

#[test]
fn keys_of_rocm_smi_are_read_in_each_format() {
    let json = r#"{"card3": {"Unique ID": "0xab01", "Temperature (Sensor junction) (c)": "60.0",
        "Temperature (Sensor edge) (c)": "50.4", "GPU use (%)": "20.6", "PCI Bus": "0000:C3:00.0",
        "Average Graphics Package Power (W)": "N/A (Secondary die)", "0": "8.0GT/s x16 *",
        "VRAM Total Memory (B)": "2097152", "VRAM Total Used Memory (B)": "1048576",
        "Max Graphics Package Power (W)": "225.0", "Card series": "0x1002"},
        "system": {"Driver version": "6.1.2", "PID77": "run, 1, 3145728, 0, 0"}}"#;
    assert_eq!(devices(json), ["3 0000:C3:00.0 1/2 21 50 n/225 -"]);
    assert_eq!(processes(json), ["77 - run 3"]);
    let document = read(json);
    assert_eq!(document.gpus[0].uuid.as_deref(), Some("GPU-ab01"));
    assert_eq!(
        (document.tool, document.driver_version),
        (Some(Tool::RocmSmi), Some("6.1.2".into()))
    );
    assert_eq!(processes("{\"system\": {\"PID77\": \"run, 1, 3145728, 0, 0\"}}"), ["77 - run 3"]);
    let lines = "Driver version: 6.1.2\nGPU[3]\t\t: Temperature (Sensor edge) (C): 50.4\n\
                 GPU[3]\t\t: VRAM Total Memory (B): 2097152\nGPU[3]\t\t: GPU use (%): 20.6\n\
                 GPU[3]\t\t: VRAM Total Used Memory (B): 1048576\n";
    let csv = "device,Temperature (Sensor edge) (C),(Topology) Numa Node,GPU use (%),VRAM Total \
               Memory (B),VRAM Total Used Memory (B)\ncard3,50.4,0,20.6,2097152,1048576\n";
    for text in [lines, csv] {
        assert_eq!(devices(text), ["3 - 1/2 21 50 -/- -"]);
    }
}

#[test]
fn process_lists_of_rocm_smi_are_parsed() {
    let text = "KFD process information:\n\
                PID     PROCESS NAME    GPU(s)  VRAM USED       SDMA USED       CU OCCUPANCY\n\
                3722222 test_ref        0       0               0               0\n\
                99\tpython\t2\t7340032\tUNKNOWN\t4\t\n\
                55      gmx_mpi         1       UNKNOWN         UNKNOWN         UNKNOWN\n";
    assert_eq!(processes(text), ["3722222 - test_ref 0", "99 - python 7", "55 - gmx_mpi f"]);
    assert!(processes("No KFD PIDs currently running\n").is_empty());
}

const AMD_TABLE: &str = "\
+------------------------------------------------------------------------------+
| AMD-SMI 26.2.0+1a2b      amdgpu version: 6.14.1  ROCm version: 7.1.0         |
| VBIOS version: 00123                                                         |
| Platform: Linux Baremetal                                                    |
|-------------------------------------+----------------------------------------|
| BDF                        GPU-Name | Mem-Uti   Temp   UEC       Power-Usage |
| GPU  HIP-ID  OAM-ID  Partition-Mode | GFX-Uti    Fan               Mem-Usage |
|=====================================+========================================|
| 0000:05:00.0    Test Instinct MI325 | 0 %      31 °C   0          141/1000 W |
|   0       1       6        SPX/NPS1 | 12 %       N/A         46111/262128 MB |
|-------------------------------------+----------------------------------------|
| 0000:15:00.0 Test Instinct MI325 OA | 0 %      N/A     0                49 W |
|   1       0       7        SPX/NPS1 | N/A        N/A                     N/A |
+-------------------------------------+----------------------------------------+
+------------------------------------------------------------------------------+
| Processes:                                                                   |
|  GPU        PID  Process Name          GTT_MEM  VRAM_MEM  MEM_USAGE     CU % |
|==============================================================================|
|    0       4711  python3.12             3.9 MB   40.0 GB    16.0 EB  N/A     |
|    0         12  a                      3.9 MB   16.0 EB    16.0 EB  N/A     |
+------------------------------------------------------------------------------+
";

#[test]
fn tables_between_bars_are_parsed() {
    let want = [
        "0 0000:05:00.0 46111/262128 12 31 141/1000 Test Instinct MI325",
        "1 0000:15:00.0 n/n n n 49/- Test Instinct MI325 OA",
    ];
    assert_eq!(devices(AMD_TABLE), want);
    assert_eq!(processes(AMD_TABLE), ["4711 0 python3.12 40960", "12 0 a i"]);
    assert_eq!(read(AMD_TABLE).driver_version.as_deref(), Some("6.14.1"));
    let xpu = "\
+------------------------------+-----------------------+-------------------+
|       Intel XPU-SMI v2.3    Driver: 1A2B    Level Zero: 1.28             |
+------------------------------+-----------------------+-------------------+
| GPU  Name     Persistence-M  | Bus-Id        Disp.A  |  Uncorr. ECC      |
| Fan   Temp  Pwr:Usage/Cap    | Memory-Usage          |  GPU-Util  Mode   |
+------------------------------+-----------------------+-------------------+
|   0  Test B5  Off            | 0000:03:00.0  Off     |  Disabled         |
|      Graphics                |                       |                   |
| 0%    41C   41W / 190W       | 32MiB / 10172MiB      |  N/A       Default|
+------------------------------+-----------------------+-------------------+
";
    assert_eq!(devices(xpu), ["0 0000:03:00.0 32/10172 n 41 41/190 Test B5 Graphics"]);
    assert_eq!(read(xpu).tool, Some(Tool::XpuSmi));
}

#[test]
fn lists_and_samples_of_xpu_smi_are_parsed() {
    let border = "+-----------+--------------------------------------------+\n";
    let list = format!(
        "{border}| Device ID | Device Information                         |\n{border}\
         | 0         | Device Name: Test Max 1550                 |\n\
         |           | PCI BDF Address: 0000:4d:00.0              |\n\
         |           | Memory Physical Size: 65536.00 MiB         |\n{border}\
         | 1         | Device Name: Test Max                      |\n{border}"
    );
    let want = ["0 0000:4d:00.0 -/65536 - - -/- Test Max 1550", "1 - -/- - - -/- Test Max"];
    assert_eq!(devices(&list), want);
    let stats = format!(
        "{border}| Device ID | 2                                        |\n{border}\
         | GPU Utilization (%)        | 7; Tile 0: 9              |\n\
         | GPU Power (W)              | Tile 0: 9; Tile 1: 8      |\n\
         | GPU Core Temperature (C)   |                           |\n\
         | GPU Memory Used (MiB)      | 24                        |\n{border}"
    );
    assert_eq!(devices(&stats), ["2 - 24/- 7 - -/- -"]);
    let stats = r#"{"device_id": 2, "device_level": [{"metrics_type": "XPUM_STATS_POWER", "value": 42.5}],
        "tile_level": [{"data_list": [{"metrics_type": "XPUM_STATS_POWER", "value": 9.5}]}]}"#;
    assert_eq!(devices(stats), ["2 - -/- - - 42.5/- -"]);
    let dump = "Timestamp, DeviceId, GPU Utilization (%), GPU Power (W), GPU Memory Used (MiB)\n\
                08:08:16.817,    0,  N/A, 281.13,\n08:08:17.817,    0,  5.50, 270.00, 82.44\n\
                08:08:18.817,    0,     ,  N/A, 90.00\n";
    assert_eq!(devices(dump), ["0 - 90/- 6 - 270/- -"]);
    let tiles = "Timestamp, DeviceId, TileId, GPU Power (W)\n08:08:16.817, 0, 1, 9.5\n";
    assert_eq!(devices(tiles), ["0 - -/- - - -/- -"]);
    let json = r#"{
        "device_util_by_proc_list": [
            {"device_id": 1, "mem_size": 2097152, "process_id": 7, "process_name": "py"}]}"#;
    let table = "PID       Command             DeviceID       SHR            MEM\n\
                 7         py                  1              0              2097152\n";
    for text in [json, table] {
        assert_eq!(processes(text), ["7 1 py 2000"]);
    }
    assert!(processes("{\n    \"device_util_by_proc_list\": []\n}\n").is_empty());
}

#[test]
fn trees_and_json_of_amd_smi_are_parsed() {
    let tree = "GPU: 0\n    PROCESS_INFO:\n        NAME: python3\n        PID: 12\n        \
                MEMORY_USAGE:\n            GTT_MEM: 1.0 MB\n            VRAM_MEM: 4.0 GB\n        \
                MEM: 4.13 GB\n        USAGE:\n            GFX: 5 ns\n    PROCESS_INFO:\n        \
                NAME: N/A\n        PID: 13\n        MEM_USAGE: 2.0 MB\n\nGPU: 1\n    \
                PROCESS_INFO:\n        No running processes detected\n";
    assert_eq!(processes(tree), ["12 0 python3 4096", "13 0 - 2"]);
    assert_eq!(read(tree).listing, Some([0, 1].into()));
    let metric = "GPU: 4\n    USAGE:\n        GFX_ACTIVITY: 3 %\n        JPEG: [N/A,\n            \
                  N/A]\n    POWER:\n        SOCKET_POWER: 20 W\n    LIMIT:\n        MAX_POWER: 500 W\n        \
                  SOCKET_POWER: 450 W\n    TEMPERATURE:\n        EDGE: N/A\n        HOTSPOT: 43 °C\n    \
                  DRIVER:\n        NAME: amdgpu\n    MEM_USAGE:\n        TOTAL_VRAM: 16304 MB\n        \
                  USED_VRAM: 26 MB\n    UUID: <redacted>\n";
    let json = r#"[{"gpu": 4, "usage": {"gfx_activity": {"value": 3, "unit": "%"}, "vcn": [{"value": 1, "unit": "%"}, "N/A"]},
        "power": {"socket_power": {"value": 20, "unit": "W"}},
        "temperature": {"edge": "N/A", "hotspot": {"value": 43, "unit": "C"}},
        "limit": {"max_power": {"value": 500, "unit": "W"}, "socket_power": {"value": 450, "unit": "W"}},
        "mem_usage": {"total_vram": {"value": 16304, "unit": "MB"}, "used_vram": {"value": 26, "unit": "MB"}}}]"#;
    for text in [metric, json] {
        assert_eq!(devices(text), ["4 - 26/16304 3 43 20/450 -"]);
    }
    let links = r#"[{"gpu": 0, "links": [{"gpu": 1, "bdf": "0000:26:00.0"}], "usage": {"gfx_activity": 5}}]"#;
    assert_eq!(devices(links), ["0 - -/- 5 - -/- -", "1 0000:26:00.0 -/- - - -/- -"]);
    let by_pid = r#"[{"pid": 12, "name": "a", "container_name": "", "gpus": [
        {"gpu_index": 3, "mem": {"value": 9, "unit": "B"}, "memory_usage": {"vram_mem": {"value": 8388608, "unit": "B"}}},
        {"gpu_index": 5, "memory_usage": {"vram_mem": "N/A"}}]}]"#;
    assert_eq!(processes(by_pid), ["12 3 a 8", "12 5 a n"]);
    let by_device = r#"[{"gpu": 3, "process_list": [{"process_info": {"name": "a", "pid": 12,
        "memory_usage": {"vram_mem": {"value": 8388608, "unit": "B"}}}}]},
        {"gpu": 5, "process_list": [{"process_info": "No running processes detected"}]}]"#;
    assert_eq!(processes(by_device), ["12 3 a 8"]);
    assert_eq!(read(by_device).listing, Some([3, 5].into()));
}

#[test]
fn monitors_of_amd_smi_are_parsed() {
    let text = "GPU  XCP  POWER   GPU_T   MEM_T   GFX_CLK   GFX%   MEM%      VRAM_USAGE\n  \
                0    0  183 W   49 °C   48 °C  1427 MHz    4 %    0 %    0.3/192.0 GB\n  \
                1    1    N/A     N/A     N/A       N/A    N/A    N/A    0.5/ 48.0 GB\n\n\
                PROCESS INFO:\nGPU                  NAME      PID   GTT_MEM  VRAM_MEM  MEM_USAGE\n  \
                0                   N/A      266     0.0 B    2.8 GB      0.0 B\n";
    assert_eq!(devices(text), ["0 - 307/196608 4 49 183/- -", "1 - 512/49152 n n n/- -"]);
    assert_eq!(processes(text), ["266 0 - 2867"]);
    let csv = "gpu,power_usage,hotspot_temperature,gfx,vcn,vram_used,vram_total\n\
               0,183,49,4,\"[1, N/A]\",307,196608\n";
    assert_eq!(devices(csv), ["0 - 307/196608 4 49 183/- -"]);
}

#[test]
fn samples_of_tops_are_parsed() {
    let sample = r#"{
"period": {"duration": 1.0},
"power": {"GPU": 1.5, "unit": "W"},
"engines": {"Render/3D/0": {"busy": 7.2}, "Video/0": {"busy": 3.0}},
"clients": {"9": {"name": "x", "pid": "77", "memory": {
  "system": {"total": "1", "resident": "1"}, "local0": {"total": "9", "resident": "5242880"}}}}
}
"#;
    let forms = ["S", "[\nS,\nS\n]\n", "SS", "[SS"].map(|form| form.replace('S', sample));
    for text in forms {
        assert_eq!(devices(&text), ["- - -/- 7 - 1.5/- -"]);
        assert_eq!(processes(&text), ["77 - x 5"]);
    }
    let top = r#"{"devices": [{"GRBM": {}, "DeviceName": "Test RX", "VRAM": {"Total VRAM": {"unit": "MiB", "value": 8176},
        "Total VRAM Usage": {"unit": "MiB", "value": 686}}, "gpu_activity": {"GFX": {"unit": "%", "value": 9}},
        "Sensors": {"Edge Temperature": null, "Junction Temperature": {"unit": "C", "value": 50}},
        "fdinfo": {"RDD (22)": {"name": "RDD", "usage": {"VRAM": {"unit": "MiB", "value": 9}}}}}],
        "suspended_devices": [{"DeviceName": "Test 2", "pci": "0000:03:00.0"}]}"#;
    let want = ["- - 686/8176 9 50 -/- Test RX", "- 0000:03:00.0 a/a a a a/- Test 2"];
    assert_eq!(
        (devices(top), processes(top)),
        (want.map(str::to_owned).into(), vec!["22 - RDD 9".to_owned()])
    );
    let radeontop = "1.25: bus 0a, gpu 5.00%, ee 0.00%, vram 2.97% 242.41mb, gtt 0.06% 17.50mb\n\
                     2.25: bus 0a, gpu 6.00%, ee 0.00%, vram 2.97% 250.00mb, gtt 0.06% 17.50mb\n";
    assert_eq!(devices(radeontop), ["- - 250/- 6 - -/- -"]);
}

/// The memory of each device that its processes do not account for.
fn unlisted(texts: &[&str]) -> Vec<Option<Bytes>> {
    let documents = sections(texts.join("\n").as_bytes());
    let now = snapshot(&documents, Timestamp(0));
    now.devices.iter().map(|device| device.memory_unlisted()).collect()
}

fn meminfo(gpu: u32, used_mib: u64) -> String {
    let line =
        |name: &str, mib: u64| format!("GPU[{gpu}]\t\t: VRAM Total {name} (B): {}\n", mib << 20);
    line("Memory", 32_768) + &line("Used Memory", used_mib)
}

#[test]
fn process_list_without_devices_is_judged_as_far_as_it_goes() {
    let showpids = |row: &str| {
        let header = "PID\tPROCESS NAME\tGPU(s)\tVRAM USED\tSDMA USED\tCU OCCUPANCY";
        format!("KFD process information:\n{header}\n{row}\n")
    };
    let (idle, leak) = (Some(Bytes(0)), Some(Bytes::from_mib(20_000)));
    let (one, two) = (meminfo(0, 20_000), meminfo(0, 20_000) + &meminfo(1, 9));
    let user = showpids("7\tpy\t1\t20971520000\t0\t0");
    let monitor = showpids("8\tmon\t0\t0\t0\t0");
    assert_eq!(unlisted(&[&one, &user]), [idle]);
    assert_eq!(unlisted(&[&one, &monitor]), [leak]);
    // The list does not say which device the process uses.
    assert_eq!(unlisted(&[&two, &user]), [None, None]);
    assert_eq!(unlisted(&[&two, &monitor]), [leak, idle]);
    assert_eq!(unlisted(&[&two, "No KFD PIDs currently running"]), [leak, idle]);
    let unknown = showpids("8\tmon\t1\tUNKNOWN\tUNKNOWN\tUNKNOWN");
    assert_eq!(unlisted(&[&two, &unknown]), [None, None]);
}

#[test]
fn devices_of_several_vendors_are_kept_apart() {
    let nvidia = "index, pci.bus_id, memory.used [MiB], memory.total [MiB]\n\
                  0, 00000000:01:00.0, 9000 MiB, 16000 MiB\n";
    let amd = meminfo(0, 5) + "GPU[0]\t\t: PCI Bus: 0000:03:00.0\n";
    let intel = "{\n\"period\": {\"duration\": 1.0},\n\"engines\": {},\n\"clients\": {}\n}\n";
    let paste = [nvidia, "No KFD PIDs currently running\n", &amd, intel].join("\n");
    let documents = sections(paste.as_bytes());
    assert_eq!(differing(&documents), None);
    let now = snapshot(&documents, Timestamp(0));
    let used: Vec<_> = now.devices.iter().map(|device| device.memory_used()).collect();
    let mib = |mib| Ok(Bytes::from_mib(mib));
    assert_eq!(used, [mib(9000), mib(5), Err(Absent::NotRecorded)]);
    let listed: Vec<_> = now.devices.iter().map(|device| device.processes.is_ok()).collect();
    assert_eq!(listed, [false, true, true], "AMD's list does not cover a device of NVIDIA");
}

#[test]
fn parts_of_chips_and_of_processors_have_no_memory_of_their_own() {
    let used = |text: &str| {
        let now = snapshot(&sections(text.as_bytes()), Timestamp(0));
        now.devices.iter().map(|device| device.memory_used()).collect::<Vec<_>>()
    };
    let none = Err(Absent::NotSupported);
    assert_eq!(used(AMD_TABLE), [Ok(Bytes::from_mib(46_111)), none]);
    assert_eq!(used(&AMD_TABLE.replace("SPX/NPS1", "CPX/NPS4")), [none; 2]);
    let processor = AMD_TABLE.replace("MI325 OA", "MI325").replace("Instinct MI325", "Radeon 780M");
    assert_eq!(used(&processor), [none; 2]);
    // The partition and the memory may be in different texts.
    let modes = "CURRENT_PARTITION:\nGPU_ID  MEMORY  ACCELERATOR_TYPE\n0       NPS1    DPX\n";
    assert_eq!(
        used(&format!("$ amd-smi partition\n{modes}$ rocm-smi -a\n{}", meminfo(0, 9))),
        [none]
    );
    // A unique ID of both dies of a card does not make them one device.
    let die = |gpu: u32| {
        let bytes = gpu << 20;
        format!(r#""card{gpu}": {{"Unique ID": "0x7a", "VRAM Total Used Memory (B)": "{bytes}"}}"#)
    };
    let pair = format!("{{{}, {}}}", die(0), die(1));
    assert_eq!(used(&pair), [Ok(Bytes(0)), Ok(Bytes::from_mib(1))]);
}

#[test]
fn outputs_of_these_tools_are_split_from_others() {
    let fuser = "/dev/kfd:   ann  7 F...m x\n";
    let nvidia = "+-----------------------------------------------------------------+\n\
                  | NVIDIA-SMI 400.1       Driver Version: 400.1                    |\n";
    let (object, array) = ("{\"card0\": {\"GPU use (%)\": \"1\"}}\n", "[\n{\n\"gpu\": 0\n}\n]\n");
    for text in [CONCISE, AMD_TABLE, object, array] {
        let documents = sections(format!("{text}{fuser}{text}{nvidia}").as_bytes());
        let kinds: Vec<_> = documents.iter().map(|document| document.kind).collect();
        assert_eq!(kinds, [Kind::Other, Kind::Fuser, Kind::Other, Kind::Table], "{text}");
    }
}

#[test]
fn broken_outputs_lose_only_their_broken_part() {
    let cut = |text: &str| crate::parse(text.as_bytes(), &Hint::default()).unwrap();
    let document = cut("[\n{\"gpu\": 0, \"bdf\": \"0000:01:00.0\"},\n{\"gpu\": 1, \"bd");
    assert_eq!((document.gpus.len(), document.unread[0].why), (1, "incomplete JSON"));
    let open = cut("GPU  GPU_T   POWER   MEM_T\n  0  49 °C   183 W   49 °C\n  1  50 °C   18");
    assert_eq!(device(&open.gpus[1]), "1 - -/- - 50 -/- -");
    let short = cut("GPU  POWER   GPU_T\n  0  183 W\n");
    assert_eq!((short.gpus.len(), short.unread.len()), (0, 1));
    for line in [
        "GPU: 0",
        "GPU[x]: a: b",
        "gpu, name",
        "Device  Name",
        "1.5: gpu",
        "[1, 2]",
        "{\"pid\": 1, \"gpu\": 2}",
    ] {
        assert!(!is_start(line, std::iter::empty()), "{line}");
    }
}

const PIECES: &[&str] = &[
    "GPU",
    "GPU: 0\n",
    "    PID: 7\n",
    "    PROCESS_INFO:\n",
    "GPU[0]: a: 1\n",
    "|",
    "+--+\n",
    "| ",
    "  ",
    "\n",
    "0",
    "7",
    "N/A",
    "{",
    "}",
    "[",
    "]",
    "\"card0\": ",
    "\"gpu\": 0",
    ",",
    "POWER",
    "PID  VRAM_MEM\n",
    "Device ID",
    "°",
    "\t",
    ":",
    "%",
];

proptest! {
    #[test]
    fn arbitrary_pieces_give_bounded_document(pieces in prop::collection::vec(prop::sample::select(PIECES), 0..80)) {
        let text = pieces.concat();
        let document = parse(&clean(text.as_bytes()));
        let rows = document.gpus.len() + document.processes.iter().flatten().count();
        prop_assert!(rows <= pieces.len());
        prop_assert!(text.contains(['0', '7']) || rows == 0, "a device or process has a number");
        snapshot(&sections(text.as_bytes()), Timestamp(0));
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        parse(&clean(&bytes));
    }

    #[test]
    fn figures_survive_every_format(used in 0_u64..1 << 20, busy in 0_u64..=100, watts in 0_u32..2000) {
        let tree = format!("GPU: 0\n    MEM_USAGE:\n        USED_VRAM: {used} MB\n    USAGE:\n        \
                            GFX_ACTIVITY: {busy} %\n    POWER:\n        SOCKET_POWER: {watts} W\n");
        let table = format!("GPU   POWER   GFX%   VRAM_USED\n  0  {watts:>4} W  {busy:>3} %  {used:>8} MB\n");
        let json = format!(r#"{{"card0": {{"VRAM Total Used Memory (B)": "{}", "GPU use (%)": "{busy}",
                               "Average Graphics Package Power (W)": "{watts}"}}}}"#, used << 20);
        for text in [tree, table, json] {
            prop_assert_eq!(devices(&text), [format!("0 - {used}/- {busy} - {watts}/- -")]);
        }
    }
}
