use super::*;
use crate::document::{Gpu, Kind, PartitionMode};
use crate::text::clean;
use crate::{Hint, differing, sections, snapshot};
use gpu_core::{Absent, Bytes, Reading, Timestamp};
use proptest::prelude::*;

/// Parses a text whose kind is detected; every line of it has a meaning.
fn read(text: &str) -> Document {
    let document = crate::parse(text.as_bytes(), &Hint::default()).unwrap();
    assert_eq!((document.kind, &document.unread[..]), (Kind::Other, &[][..]), "{text}");
    assert_eq!(document.others, [], "{text}");
    document
}

/// Index, bus, memory in use and in total, utilisation, temperature, power and its limit.
type Row<'a> = (
    Option<u32>,
    Option<&'a str>,
    [Reading<u64>; 2],
    Reading<u64>,
    Reading<i64>,
    [Reading<f64>; 2],
);

fn row(gpu: &Gpu) -> Row<'_> {
    (
        gpu.index,
        gpu.bus_id.as_deref(),
        [gpu.memory_used_mib, gpu.memory_total_mib],
        gpu.utilization_percent,
        gpu.temperature_c,
        [gpu.power_draw_w, gpu.power_limit_w],
    )
}

/// PID, device, name and memory.
type ProcessRow<'a> = (u32, Option<u32>, Option<&'a str>, Reading<u64>);

fn processes(document: &Document) -> Vec<ProcessRow<'_>> {
    let rows = document.processes.as_ref().expect("a list of processes").iter();
    rows.map(|p| (p.pid.unwrap(), p.gpu_index, p.name.as_deref(), p.memory_mib)).collect()
}

const NONE: [Reading<u64>; 2] = [Err(Absent::NotRecorded); 2];
const NO_POWER: [Reading<f64>; 2] = [Err(Absent::NotRecorded); 2];

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
    let document = read(CONCISE);
    let [first, second] = &document.gpus[..] else { panic!("{document:?}") };
    assert_eq!(row(first), (Some(0), None, NONE, Ok(7), Ok(42), [Ok(120.0), Ok(750.0)]));
    let mode =
        PartitionMode { compute: Some("CPX".into()), memory: Some("NPS4".into()), id: Some(1) };
    assert_eq!(first.partition, Some(mode));
    let none = Err(Absent::NotSupported);
    assert_eq!(
        row(second),
        (
            Some(1),
            None,
            NONE,
            none,
            Err(Absent::NotSupported),
            [Err(Absent::NotSupported), Err(Absent::Failed)]
        )
    );
    let old = "GPU  Temp   AvgPwr  SCLK    Fan     Perf  PwrCap  VRAM%  GPU%\n\
               1    24.0c  3.0W    852Mhz  13.73%  auto  170.0W  N/A    0%\n";
    let document = read(old);
    assert_eq!(row(&document.gpus[0]), (Some(1), None, NONE, Ok(0), Ok(24), [Ok(3.0), Ok(170.0)]));
    let named = "Device  [Model : Revision]  Temp    Perf  GPU%\n\
                 \x20       Name (20 chars)     (Edge)\n\
                 0       [0x7408 : 0x01]     40.0°C  auto  5%\n\
                 \x20       Test MI200 (MCM) OA\n";
    assert_eq!(read(named).gpus[0].name.as_deref(), Some("Test MI200 (MCM) OA"));
}

#[test]
fn keys_of_rocm_smi_are_read_in_each_format() {
    let json = r#"{"card3": {"Unique ID": "0xab01", "Temperature (Sensor junction) (c)": "60.0",
        "Temperature (Sensor edge) (c)": "50.4", "GPU use (%)": "20.6", "PCI Bus": "0000:C3:00.0",
        "Average Graphics Package Power (W)": "N/A (Secondary die)", "0": "8.0GT/s x16 *",
        "VRAM Total Memory (B)": "2097152", "VRAM Total Used Memory (B)": "1048576",
        "Max Graphics Package Power (W)": "225.0", "Card series": "0x1002"},
        "system": {"Driver version": "6.1.2", "PID77": "run, 1, 3145728, 0, 0"}}"#;
    let document = read(json);
    let want: Row<'_> = (
        Some(3),
        Some("0000:C3:00.0"),
        [Ok(1), Ok(2)],
        Ok(21),
        Ok(50),
        [Err(Absent::NotSupported), Ok(225.0)],
    );
    assert_eq!(row(&document.gpus[0]), want);
    assert_eq!(
        (document.gpus[0].uuid.as_deref(), &document.gpus[0].name),
        (Some("GPU-ab01"), &None)
    );
    assert_eq!(
        (document.tool, document.driver_version.as_deref()),
        (Some(Tool::RocmSmi), Some("6.1.2"))
    );
    assert_eq!(processes(&document), [(77, None, Some("run"), Ok(3))]);

    let lines = "Driver version: 6.1.2\nGPU[3]\t\t: Temperature (Sensor edge) (C): 50.4\n\
                 GPU[3]\t\t: VRAM Total Memory (B): 2097152\nGPU[3]\t\t: GPU use (%): 20.6\n\
                 GPU[3]\t\t: VRAM Total Used Memory (B): 1048576\n";
    let want = (Some(3), None, [Ok(1), Ok(2)], Ok(21), Ok(50), NO_POWER);
    assert_eq!(row(&read(lines).gpus[0]), want);
    let csv = "device,Temperature (Sensor edge) (C),(Topology) Numa Node,GPU use (%),VRAM Total \
               Memory (B),VRAM Total Used Memory (B)\ncard3,50.4,0,20.6,2097152,1048576\n";
    assert_eq!(row(&read(csv).gpus[0]), want);
}

#[test]
fn process_lists_of_rocm_smi_are_parsed() {
    let text = "KFD process information:\n\
                PID     PROCESS NAME    GPU(s)  VRAM USED       SDMA USED       CU OCCUPANCY\n\
                3722222 test_ref        0       0               0               0\n\
                99\tpython\t2\t7340032\tUNKNOWN\t4\t\n\
                55      gmx_mpi         1       UNKNOWN         UNKNOWN         UNKNOWN\n";
    let document = read(text);
    let want = [
        (3_722_222, None, Some("test_ref"), Ok(0)),
        (99, None, Some("python"), Ok(7)),
        (55, None, Some("gmx_mpi"), Err(Absent::Failed)),
    ];
    assert_eq!(processes(&document), want);
    assert_eq!(processes(&read("No KFD PIDs currently running\n")), []);
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
| 0000:15:00.0    Test Instinct MI325 | 0 %      N/A     0                49 W |
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
    let document = read(AMD_TABLE);
    let [first, second] = &document.gpus[..] else { panic!("{document:?}") };
    let bus = Some("0000:05:00.0");
    let want = (Some(0), bus, [Ok(46_111), Ok(262_128)], Ok(12), Ok(31), [Ok(141.0), Ok(1000.0)]);
    assert_eq!(row(first), want);
    assert_eq!(first.name.as_deref(), Some("Test Instinct MI325"));
    let none = Err(Absent::NotSupported);
    assert_eq!((second.memory_used_mib, second.utilization_percent), (none, none));
    assert_eq!((second.power_draw_w, second.power_limit_w), (Ok(49.0), Err(Absent::NotRecorded)));
    assert_eq!(document.driver_version.as_deref(), Some("6.14.1"));
    let want = [
        (4711, Some(0), Some("python3.12"), Ok(40 * 1024)),
        (12, Some(0), Some("a"), Err(Absent::Implausible)),
    ];
    assert_eq!(processes(&document), want);

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
    let document = read(xpu);
    let gpu = &document.gpus[0];
    let power = [Ok(41.0), Ok(190.0)];
    let want = (Some(0), Some("0000:03:00.0"), [Ok(32), Ok(10_172)], none, Ok(41), power);
    assert_eq!((row(gpu), gpu.name.as_deref()), (want, Some("Test B5 Graphics")));
    assert_eq!(document.tool, Some(Tool::XpuSmi));
}

#[test]
fn lists_and_samples_of_xpu_smi_are_parsed() {
    let border = "+-----------+--------------------------------------------+\n";
    let list = format!(
        "{border}| Device ID | Device Information                         |\n{border}\
         | 0         | Device Name: Test Max 1550                 |\n\
         |           | PCI BDF Address: 0000:4d:00.0              |\n\
         |           | Memory Physical Size: 65536.00 MiB         |\n{border}\
         | 1         | Device Name: Test Max 1550                 |\n{border}"
    );
    let document = read(&list);
    let want = (
        Some(0),
        Some("0000:4d:00.0"),
        [NONE[0], Ok(65_536)],
        NONE[0],
        Err(Absent::NotRecorded),
        NO_POWER,
    );
    assert_eq!((row(&document.gpus[0]), document.gpus.len()), (want, 2));
    let stats = format!(
        "{border}| Device ID | 2                                        |\n{border}\
         | GPU Utilization (%)        | 7; Tile 0: 9              |\n\
         | GPU Core Temperature (C)   |                           |\n\
         | GPU Memory Used (MiB)      | 24                        |\n{border}"
    );
    let want = (Some(2), None, [Ok(24), NONE[0]], Ok(7), Err(Absent::NotRecorded), NO_POWER);
    assert_eq!(row(&read(&stats).gpus[0]), want);
    let dump = "Timestamp, DeviceId, GPU Utilization (%), GPU Power (W), GPU Memory Used (MiB)\n\
                08:08:16.817,    0,  N/A, 281.13,\n08:08:17.817,    0,  5.50, 270.00, 82.44\n\
                08:08:18.817,    0,     ,  N/A, 90.00\n";
    let want = (
        Some(0),
        None,
        [Ok(90), NONE[0]],
        Ok(6),
        Err(Absent::NotRecorded),
        [Ok(270.0), NO_POWER[1]],
    );
    assert_eq!(row(&read(dump).gpus[0]), want);
    let json = r#"{
        "device_util_by_proc_list": [
            {"device_id": 1, "mem_size": 2097152, "process_id": 7, "process_name": "py"}]}"#;
    let want = [(7, Some(1), Some("py"), Ok(2000))];
    assert_eq!(processes(&read(json)), want);
    let table = "PID       Command             DeviceID       SHR            MEM\n\
                 7         py                  1              0              2097152\n";
    assert_eq!(processes(&read(table)), want);
    assert_eq!(processes(&read("{\n    \"device_util_by_proc_list\": []\n}\n")), []);
}

#[test]
fn trees_and_json_of_amd_smi_are_parsed() {
    let tree = "GPU: 0\n    PROCESS_INFO:\n        NAME: python3\n        PID: 12\n        \
                MEMORY_USAGE:\n            GTT_MEM: 1.0 MB\n            VRAM_MEM: 4.0 GB\n        \
                MEM: 4.13 GB\n        USAGE:\n            GFX: 5 ns\n    PROCESS_INFO:\n        \
                NAME: N/A\n        PID: 13\n        MEM_USAGE: 2.0 MB\n\nGPU: 1\n    \
                PROCESS_INFO:\n        No running processes detected\n";
    let document = read(tree);
    let want = [(12, Some(0), Some("python3"), Ok(4096)), (13, Some(0), None, Ok(2))];
    assert_eq!(processes(&document), want);
    assert_eq!(document.listing, Some([0, 1].into()));

    let metric = "GPU: 4\n    USAGE:\n        GFX_ACTIVITY: 3 %\n        JPEG: [N/A, N/A,\n            \
                  N/A]\n    POWER:\n        SOCKET_POWER: 20 W\n    LIMIT:\n        MAX_POWER: 500 W\n        \
                  SOCKET_POWER: 450 W\n    TEMPERATURE:\n        EDGE: N/A\n        HOTSPOT: 43 °C\n    \
                  DRIVER:\n        NAME: amdgpu\n    MEM_USAGE:\n        TOTAL_VRAM: 16304 MB\n        \
                  USED_VRAM: 26 MB\n    UUID: <redacted>\n";
    let document = read(metric);
    let want = (Some(4), None, [Ok(26), Ok(16_304)], Ok(3), Ok(43), [Ok(20.0), Ok(450.0)]);
    assert_eq!((row(&document.gpus[0]), document.gpus[0].name.as_deref()), (want, None));
    let json = r#"[{"gpu": 4, "usage": {"gfx_activity": {"value": 3, "unit": "%"}, "vcn": [{"value": 1, "unit": "%"}, "N/A"]},
        "power": {"socket_power": {"value": 20, "unit": "W"}},
        "temperature": {"edge": "N/A", "hotspot": {"value": 43, "unit": "C"}},
        "limit": {"max_power": {"value": 500, "unit": "W"}, "socket_power": {"value": 450, "unit": "W"}},
        "mem_usage": {"total_vram": {"value": 16304, "unit": "MB"}, "used_vram": {"value": 26, "unit": "MB"}}}]"#;
    assert_eq!(row(&read(json).gpus[0]), want);

    let by_pid = r#"[{"pid": 12, "name": "python3", "container_name": "", "gpus": [
        {"gpu_index": 3, "mem": {"value": 9, "unit": "B"}, "memory_usage": {"vram_mem": {"value": 8388608, "unit": "B"}}},
        {"gpu_index": 5, "memory_usage": {"vram_mem": "N/A"}}]}]"#;
    let want = [
        (12, Some(3), Some("python3"), Ok(8)),
        (12, Some(5), Some("python3"), Err(Absent::NotSupported)),
    ];
    assert_eq!(processes(&read(by_pid)), want);
    let by_device = r#"[{"gpu": 3, "process_list": [{"process_info": {"name": "a", "pid": 12,
        "memory_usage": {"vram_mem": {"value": 8388608, "unit": "B"}}}}]},
        {"gpu": 5, "process_list": [{"process_info": "No running processes detected"}]}]"#;
    let document = read(by_device);
    assert_eq!(processes(&document), [(12, Some(3), Some("a"), Ok(8))]);
    assert_eq!(document.listing, Some([3, 5].into()));
}

#[test]
fn monitors_of_amd_smi_are_parsed() {
    let text = "GPU  XCP  POWER   GPU_T   MEM_T   GFX_CLK   GFX%   MEM%      VRAM_USAGE\n  \
                0    0  183 W   49 °C   48 °C  1427 MHz    4 %    0 %    0.3/192.0 GB\n  \
                1    1    N/A     N/A     N/A       N/A    N/A    N/A    0.5/ 48.0 GB\n\n\
                PROCESS INFO:\nGPU                  NAME      PID   GTT_MEM  VRAM_MEM  MEM_USAGE\n  \
                0                   N/A      266     0.0 B    2.8 GB      0.0 B\n";
    let document = read(text);
    let memory = [Ok(307), Ok(192 * 1024)];
    let want = (Some(0), None, memory, Ok(4), Ok(49), [Ok(183.0), NO_POWER[1]]);
    assert_eq!(row(&document.gpus[0]), want);
    assert_eq!(document.gpus[1].memory_total_mib, Ok(48 * 1024));
    assert_eq!(processes(&document), [(266, Some(0), None, Ok(2867))]);
    let csv = "gpu,power_usage,hotspot_temperature,gfx,vcn,vram_used,vram_total\n\
               0,183,49,4,\"[1, N/A]\",307,196608\n";
    assert_eq!(row(&read(csv).gpus[0]), want);
}

#[test]
fn samples_of_tops_are_parsed() {
    let client = r#""clients": {"9": {"name": "x", "pid": "77", "memory": {
        "system": {"total": "1", "resident": "1"}, "local0": {"total": "9", "resident": "5242880"}}}}"#;
    let sample = format!(
        "{{\n\"period\": {{\"duration\": 1.0}},\n\"power\": {{\"GPU\": 1.5, \"unit\": \"W\"}},\n\
         \"engines\": {{\"Render/3D/0\": {{\"busy\": 7.2}}, \"Video/0\": {{\"busy\": 3.0}}}},\n{client}\n}}\n"
    );
    for text in [
        sample.clone(),
        format!("[\n{sample},\n{sample}\n]\n"),
        format!("{sample}{sample}"),
        format!("[{sample}{sample}"),
    ] {
        let document = read(&text);
        let want = (None, None, NONE, Ok(7), Err(Absent::NotRecorded), [Ok(1.5), NO_POWER[1]]);
        assert_eq!(row(&document.gpus[0]), want, "{text}");
        assert_eq!(processes(&document), [(77, None, Some("x"), Ok(5))]);
    }
    let top = r#"{"devices":[{"GRBM":{},"DeviceName":"Test RX","VRAM":{"Total VRAM":{"unit":"MiB","value":8176},"Total VRAM Usage":{"unit":"MiB","value":686}},"gpu_activity":{"GFX":{"unit":"%","value":9}},"Sensors":{"Edge Temperature":null,"Junction Temperature":{"unit":"C","value":50}},"fdinfo":{"RDD (22)":{"name":"RDD","usage":{"VRAM":{"unit":"MiB","value":9}}}}}],"suspended_devices":[{"DeviceName":"Test 2","pci":"0000:03:00.0"}]}"#;
    let document = read(top);
    let [awake, asleep] = &document.gpus[..] else { panic!("{document:?}") };
    assert_eq!(row(awake), (None, None, [Ok(686), Ok(8176)], Ok(9), Ok(50), NO_POWER));
    assert_eq!(
        (asleep.bus_id.as_deref(), asleep.memory_used_mib),
        (Some("0000:03:00.0"), Err(Absent::Asleep))
    );
    assert_eq!(processes(&document), [(22, None, Some("RDD"), Ok(9))]);
    let radeontop = "1.25: bus 0a, gpu 5.00%, ee 0.00%, vram 2.97% 242.41mb, gtt 0.06% 17.50mb\n\
                     2.25: bus 0a, gpu 6.00%, ee 0.00%, vram 2.97% 250.00mb, gtt 0.06% 17.50mb\n";
    let want = (None, None, [Ok(250), NONE[0]], Ok(6), Err(Absent::NotRecorded), NO_POWER);
    assert_eq!(row(&read(radeontop).gpus[0]), want);
}

/// The memory of each device that its processes do not account for.
fn unlisted(texts: &[&str]) -> Vec<Option<Bytes>> {
    let documents = sections(texts.join("\n").as_bytes());
    let now = snapshot(&documents, Timestamp(0));
    now.devices.iter().map(|device| device.memory_unlisted()).collect()
}

fn meminfo(gpu: u32, used_mib: u64) -> String {
    format!(
        "GPU[{gpu}]\t\t: VRAM Total Memory (B): 34359738368\n\
         GPU[{gpu}]\t\t: VRAM Total Used Memory (B): {}\n",
        used_mib << 20
    )
}

fn showpids(rows: &str) -> String {
    format!(
        "KFD process information:\nPID\tPROCESS NAME\tGPU(s)\tVRAM USED\tSDMA USED\tCU OCCUPANCY\n{rows}"
    )
}

#[test]
fn process_list_without_devices_is_judged_as_far_as_it_goes() {
    let (idle, leak) = (Some(Bytes(0)), Some(Bytes::from_mib(20_000)));
    let (one, two) = (meminfo(0, 20_000), meminfo(0, 20_000) + &meminfo(1, 9));
    let user = showpids("7\tpy\t1\t20971520000\t0\t0\n");
    let monitor = showpids("8\tmon\t0\t0\t0\t0\n");
    assert_eq!(unlisted(&[&one, &user]), [idle]);
    assert_eq!(unlisted(&[&one, &monitor]), [leak]);
    // The list does not say which device the process uses.
    assert_eq!(unlisted(&[&two, &user]), [None, None]);
    assert_eq!(unlisted(&[&two, &monitor]), [leak, idle]);
    assert_eq!(unlisted(&[&two, "No KFD PIDs currently running"]), [leak, idle]);
    let unknown = showpids("8\tmon\t1\tUNKNOWN\tUNKNOWN\tUNKNOWN\n");
    assert_eq!(unlisted(&[&two, &unknown]), [None, None]);
}

#[test]
fn devices_of_several_vendors_are_kept_apart() {
    let nvidia = "index, pci.bus_id, memory.used [MiB], memory.total [MiB]\n\
                  0, 00000000:01:00.0, 9000 MiB, 16000 MiB\n";
    let amd = meminfo(0, 5) + "GPU[0]\t\t: PCI Bus: 0000:03:00.0\n";
    let intel =
        "{\n\"period\": {},\n\"engines\": {\"Video\": {\"busy\": 3.0}},\n\"clients\": {}\n}\n";
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
fn parts_of_a_chip_are_devices_without_memory_in_use() {
    let table = AMD_TABLE.replace("SPX/NPS1", "CPX/NPS4");
    let used = |text: &str| {
        let now = snapshot(&sections(text.as_bytes()), Timestamp(0));
        now.devices.iter().map(|device| device.memory_used()).collect::<Vec<_>>()
    };
    assert_eq!(used(&table), [Err(Absent::NotSupported); 2]);
    assert_eq!(used(AMD_TABLE), [Ok(Bytes::from_mib(46_111)), Err(Absent::NotSupported)]);
    // A unique ID of both dies of a card does not make them one device.
    let die = |gpu: u32| {
        format!(
            "\"card{gpu}\": {{\"Unique ID\": \"0x7a\", \"VRAM Total Used Memory (B)\": \"{}\"}}",
            gpu << 20
        )
    };
    let pair = format!("{{{}, {}}}", die(0), die(1));
    assert_eq!(used(&pair), [Ok(Bytes(0)), Ok(Bytes::from_mib(1))]);
    // The figures of a processor's device are no memory of its own.
    assert_eq!(
        used(&table.replace("Test Instinct MI325", "Test Radeon 780M   ")),
        [Err(Absent::NotSupported); 2]
    );
}

#[test]
fn outputs_of_these_tools_are_split_from_others() {
    let fuser = "/dev/kfd:   ann  7 F...m x\n";
    let nvidia = "+-----------------------------------------------------------------+\n\
                  | NVIDIA-SMI 400.1       Driver Version: 400.1                    |\n";
    let kinds = |text: &str| {
        let documents = sections(text.as_bytes());
        documents.iter().map(|document| document.kind).collect::<Vec<_>>()
    };
    for text in
        [CONCISE, AMD_TABLE, "{\"card0\": {\"GPU use (%)\": \"1\"}}\n", "[\n{\n\"gpu\": 0\n}\n]\n"]
    {
        let paste = format!("{text}{fuser}{text}{nvidia}");
        let want = [Kind::Other, Kind::Fuser, Kind::Other, Kind::Table];
        assert_eq!(kinds(&paste), want, "{text}");
    }
}

#[test]
fn broken_outputs_lose_only_their_broken_part() {
    let cut = |text: &str| crate::parse(text.as_bytes(), &Hint::default()).unwrap();
    let json = "[\n{\"gpu\": 0, \"bdf\": \"0000:01:00.0\"},\n{\"gpu\": 1, \"bd";
    let document = cut(json);
    assert_eq!(document.gpus.len(), 1);
    assert_eq!(document.unread[0].why, "incomplete JSON");
    let open = cut("GPU  GPU_T   POWER   MEM_T\n  0  49 °C   183 W   49 °C\n  1  50 °C   18");
    assert_eq!((open.gpus[1].temperature_c, open.gpus[1].power_draw_w.ok()), (Ok(50), None));
    let row = cut("GPU  POWER   GPU_T\n  0  183 W\n");
    assert_eq!((row.gpus.len(), row.unread.len()), (0, 1));
    for line in
        ["GPU: 0", "GPU[x]: a: b", "gpu, name", "Device  Name", "1.5: gpu", "[1, 2]", "{\"a\": 1}"]
    {
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
        let known = text.contains('0') || text.contains('7');
        prop_assert!(known || rows == 0, "a device or process has a number");
        snapshot(&sections(text.as_bytes()), Timestamp(0));
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        parse(&clean(&bytes));
    }

    #[test]
    fn figures_survive_every_format(used in 0_u64..1 << 20, busy in 0_u64..=100, watts in 0_u32..2000) {
        let tree = format!("GPU: 0\n    MEM_USAGE:\n        USED_VRAM: {used} MB\n    USAGE:\n        GFX_ACTIVITY: {busy} %\n    POWER:\n        SOCKET_POWER: {watts} W\n");
        let table = format!("GPU   POWER   GFX%   VRAM_USED\n  0  {watts:>4} W  {busy:>3} %  {used:>8} MB\n");
        let json = format!("{{\"card0\": {{\"VRAM Total Used Memory (B)\": \"{}\", \"GPU use (%)\": \"{busy}\", \"Average Graphics Package Power (W)\": \"{watts}\"}}}}", used << 20);
        for text in [tree, table, json] {
            let document = read(&text);
            let gpu = &document.gpus[0];
            prop_assert_eq!((gpu.memory_used_mib, gpu.utilization_percent, gpu.power_draw_w), (Ok(used), Ok(busy), Ok(watts.into())), "{}", text);
        }
    }
}
