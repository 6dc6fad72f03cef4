use super::*;
use crate::text::clean;
use gpu_core::Absent;
use proptest::prelude::*;

fn of(kind: Kind, text: &str) -> Document {
    parse(&clean(text.as_bytes()), kind, None)
}

#[test]
fn health_columns_match_log() {
    let document = of(
        Kind::QueryGpu,
        "index, remapped_rows.pending, remapped_rows.failure, gpu_recovery_action, \
         ecc.errors.uncorrected.volatile.total, clocks_event_reasons.hw_thermal_slowdown, \
         fabric.state, compute_mode\n\
         0, Yes, No, Node Reboot, 3, Active, In Progress, Prohibited\n\
         1, [N/A], [N/A], [N/A], [N/A], [N/A], [N/A], [N/A]\n",
    );
    let details = &document.gpus[0].details;
    let health = details.memory_health.as_ref().unwrap();
    assert_eq!((health.remapped_pending, health.remapped_failure), (Ok(true), Ok(false)));
    assert_eq!(health.uncorrected, Ok(3));
    let recovery = details.reset_status.as_ref().unwrap().recovery;
    assert_eq!(recovery, Ok(gpu_core::RecoveryAction::Reboot));
    let fabric = details.fabric.as_ref().unwrap();
    assert_eq!(fabric.state, Ok(gpu_core::FabricState::InProgress));
    let modes = details.modes.as_ref().unwrap();
    assert_eq!(modes.compute_mode, Ok(gpu_core::ComputeMode::Prohibited));
    assert!(details.activity.as_ref().unwrap().throttle.is_ok());
    let none = &document.gpus[1].details;
    assert_eq!(none.memory_health.as_ref().unwrap().uncorrected, Err(Absent::NotSupported));
}

#[test]
fn columns_may_be_in_any_order_with_units() {
    let document = of(
        Kind::QueryGpu,
        "memory.used [MiB], name, index, power.draw [W], driver_version\n\
         11 MiB, Test K80, 3, [N/A], 470.1\n",
    );
    let gpu = &document.gpus[0];
    assert_eq!((gpu.index, gpu.memory_used_mib), (Some(3), Ok(11)));
    assert_eq!(gpu.power_draw_w, Err(Absent::NotSupported));
    assert_eq!(gpu.power_limit_w, Err(Absent::NotRecorded));
    assert_eq!(document.driver_version.as_deref(), Some("470.1"));
    assert_eq!(document.processes, None);
}

#[test]
fn given_fields_replace_header_and_errors_are_kept() {
    let fields = ["index", "memory.used", "utilization.gpu [%]"].map(str::to_owned);
    let text = "0, 11, 7   # the first\n\
                Unable to determine the device handle for GPU0000:02:00.0: Unknown Error\n\
                [Unknown Error], [Unknown Error], [Unknown Error]\n2, 12\n3, 1";
    let document = parse(&clean(text.as_bytes()), Kind::QueryGpu, Some(&fields));
    let used: Vec<_> = document.gpus.iter().map(|gpu| gpu.memory_used_mib).collect();
    assert_eq!(used, [Ok(11), Err(Absent::Failed), Ok(12), Err(Absent::NotRecorded)]);
    assert_eq!(document.gpus[0].utilization_percent, Ok(7));
    assert_eq!(document.gpus[2].utilization_percent, Err(Absent::NotRecorded));
    assert_eq!((document.errors.len(), document.unread.len()), (1, 0));
}

#[test]
fn comma_in_name_is_kept() {
    let document = of(
        Kind::QueryApps,
        "gpu_name, pid, process_name, used_gpu_memory [MiB]\n\
         Test K80, 7, /opt/a, b,c, 5 MiB\nTest K80, 8, [Not Found], [N/A]\n",
    );
    let processes = document.processes.unwrap();
    assert_eq!(processes[0].name.as_deref(), Some("/opt/a, b,c"));
    assert_eq!((processes[0].pid, processes[0].memory_mib), (Some(7), Ok(5)));
    assert_eq!(processes[1].name.as_deref(), Some("[Not Found]"));
    assert_eq!(processes[1].memory_mib, Err(Absent::NotSupported));
}

#[test]
fn surplus_cells_without_free_text_are_unread() {
    let document = of(Kind::QueryGpu, "index, memory.used [MiB]\n0, 1 MiB, 2\n");
    assert_eq!((document.gpus.len(), document.unread.len()), (0, 1));
}

#[test]
fn rows_keep_each_cell_of_a_time_series() {
    let fields = ["timestamp", "gpu_name", "pid", "name", "used_gpu_memory"].map(str::to_owned);
    let text = "2026/01/02 03:04:05.678, Test K80, 7, python, 11 MiB\n\
                2026/01/02 03:04:06.678, Test K80, 7, 007, 12 MiB\n";
    let document = parse(&clean(text.as_bytes()), Kind::QueryApps, Some(&fields));
    let [first, second] = &document.rows[..] else { panic!("{:?}", document.rows) };
    assert_eq!(first["timestamp"], text_of("2026/01/02 03:04:05.678"));
    assert_eq!((&first["gpu_name"], &first["name"]), (&text_of("Test K80"), &text_of("python")));
    assert_eq!(
        (&first["pid"], &first["used_gpu_memory"]),
        (&Value::Integer(7), &text_of("11 MiB"))
    );
    assert_eq!(
        (&second["timestamp"], &second["name"]),
        (&text_of("2026/01/02 03:04:06.678"), &text_of("007"))
    );
    let document = of(Kind::QueryGpu, "timestamp, index\n2026/01/02 03:04:05.678, [N/A]\n");
    assert_eq!(document.rows[0]["index"], Value::Null);
    assert_eq!(document.rows[0]["timestamp"], text_of("2026/01/02 03:04:05.678"));
}

fn text_of(text: &str) -> Value {
    Value::Text(text.to_owned())
}

#[test]
fn single_field_query_is_parsed() {
    let document = of(Kind::QueryGpu, "name\nTest K80\nNo devices were found\n");
    assert_eq!(document.gpus[0].name.as_deref(), Some("Test K80"));
    assert_eq!((document.gpus.len(), document.errors.len()), (1, 1));
}

#[test]
fn headers_are_distinguished_from_rows_and_prose() {
    for (line, kind) in [
        ("index, name", Some(Kind::QueryGpu)),
        ("pid,used_memory", Some(Kind::QueryApps)),
        ("gpu_uuid, pid, process_name, used_gpu_memory [MiB]", Some(Kind::QueryApps)),
        ("utilization.gpu [%]", Some(Kind::QueryGpu)),
        ("clocks.current.sm [MHz], clocks_event_reasons.active", Some(Kind::QueryGpu)),
        ("0, Test K80", None),
        ("powerful, clocks", None),
        ("index.html", None),
        ("", None),
    ] {
        assert_eq!(kind_of_header(line), kind, "{line}");
    }
}

#[test]
fn known_fields_are_recognised() {
    for (name, is) in [
        ("timestamp", true),
        ("Index", true),
        ("memory.used", true),
        ("clocks_event_reasons.active", true),
        ("clocks.sm", true),
        ("power.draw", true),
        ("vgpu_device_capability", true),
        ("memory.", false),
        ("vgpu_", false),
        ("power.", false),
        ("power", false),
        ("clocksm", false),
        ("memories.used", false),
        ("", false),
    ] {
        assert_eq!(is_field(name), is, "{name}");
    }
    for (line, is) in [
        ("index, my-column", true),
        ("index, 1st", false),
        ("index, a b", false),
        ("other, names", false),
    ] {
        assert_eq!(header(line).is_some(), is, "{line}");
    }
    let long = |length: usize| header(&format!("index, {}", "a".repeat(length)));
    assert!(long(MAX_NAME).is_some() && long(MAX_NAME + 1).is_none());
    let many = |count: usize| header(&vec!["index"; count].join(","));
    assert!(many(MAX_COLUMNS).is_some() && many(MAX_COLUMNS + 1).is_none());
    for name in ["pid", "process_name", "used_memory", "used_gpu_memory [MiB]", "max_memory_usage"]
    {
        assert_eq!(kind_of_fields(&["index".to_owned(), name.to_owned()]), Kind::QueryApps);
    }
}

#[test]
fn alternative_names_of_columns_are_read() {
    let gpu = |columns: &str, cells: &str| {
        let mut document = of(Kind::QueryGpu, &format!("{columns}\n{cells}\n"));
        assert_eq!(document.gpus.len(), 1, "{columns}");
        document.gpus.remove(0)
    };
    let first = gpu(
        "gpu_name, gpu_uuid, gpu_bus_id, power.draw.average, enforced.power.limit, mig.mode, \
         memory.total, memory.reserved, persistence_mode, display_active, temperature.gpu",
        "K80, GPU-a, 0:1:0.0, 5 W, 9 W, Enabled, 8 MiB, 1 MiB, Enabled, Disabled, 40",
    );
    assert_eq!((first.name.as_deref(), first.uuid.as_deref()), (Some("K80"), Some("GPU-a")));
    assert_eq!(first.bus_id.as_deref(), Some("0:1:0.0"));
    assert_eq!((first.power_draw_w, first.power_limit_w), (Ok(5.0), Ok(9.0)));
    assert_eq!((first.memory_total_mib, first.memory_reserved_mib), (Ok(8), Ok(1)));
    assert_eq!((first.mig_enabled, first.persistence), (Ok(true), Ok(true)));
    assert_eq!((first.display_active, first.temperature_c), (Ok(false), Ok(40)));
    let second = gpu(
        "pci.bus_id, uuid, power.draw.instant, power.limit, mig.mode.current, index, INDEX",
        "0:2:0.0, GPU-b, 6 W, 10 W, Disabled, 3, 4",
    );
    assert_eq!(
        (second.bus_id.as_deref(), second.uuid.as_deref()),
        (Some("0:2:0.0"), Some("GPU-b"))
    );
    assert_eq!((second.power_draw_w, second.power_limit_w), (Ok(6.0), Ok(10.0)));
    assert_eq!((second.mig_enabled, second.index), (Ok(false), Some(3)));
    for columns in [
        "gpu_uuid, pid, name, used_memory, gpu_bus_id",
        "uuid, pid, process_name, used_gpu_memory, pci.bus_id",
    ] {
        let document = of(Kind::QueryApps, &format!("{columns}\nGPU-a, 7, x, 5 MiB, 0:1:0.0\n"));
        let process = &document.processes.unwrap()[0];
        assert_eq!((process.gpu_uuid.as_deref(), process.pid), (Some("GPU-a"), Some(7)));
        assert_eq!((process.name.as_deref(), process.memory_mib), (Some("x"), Ok(5)));
        assert_eq!(process.gpu_bus_id.as_deref(), Some("0:1:0.0"));
    }
}

#[test]
fn driver_version_is_latest_of_kernel_module() {
    let text = "index, driver_version, kmd_version\n0, 1.1, 2.1\n1, 1.2, 2.2\n2, 1.3, [N/A]\n";
    assert_eq!(of(Kind::QueryGpu, text).driver_version.as_deref(), Some("1.3"));
    let text = "index, driver_version, kmd_version\n0, 1.1, 2.1\n1, [N/A], [N/A]\n";
    assert_eq!(of(Kind::QueryGpu, text).driver_version.as_deref(), Some("2.1"));
}

#[test]
fn last_cell_of_open_line_is_dropped_if_cells_are_missing() {
    let used = |text: &str| {
        let document = of(Kind::QueryGpu, &format!("index, memory.used, memory.total\n{text}"));
        document.gpus.last().map(|gpu| (gpu.index, gpu.memory_used_mib.ok()))
    };
    assert_eq!(used("0, 16"), Some((Some(0), None)));
    assert_eq!(used("0, 16\n"), Some((Some(0), Some(16))));
    assert_eq!(used("0, 16, 3"), Some((Some(0), Some(16))));
    assert_eq!(used("1, 2, 3\n0, 16"), Some((Some(0), None)));
    assert_eq!(used("0,16,3\n"), Some((Some(0), Some(16))), "without blanks");
    assert_eq!(used("0"), None, "one cell of three");
}

const PIECES: &[&str] = &["0", "7", ",", ", ", "[N/A]", " ", "x", "MiB", "\n"];

proptest! {
    #[test]
    fn every_line_is_row_header_or_unread(pieces in prop::collection::vec(prop::sample::select(PIECES), 0..120)) {
        let rows = pieces.concat();
        let text = clean(format!("index, name, memory.used [MiB]\n{rows}").as_bytes());
        let document = parse(&text, Kind::QueryGpu, None);
        let filled = text.lines().skip(1).filter(|(_, line)| !line.trim().is_empty()).count();
        prop_assert_eq!(document.gpus.len() + document.unread.len(), filled);
    }

    #[test]
    fn arbitrary_bytes_never_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..500),
        fields in prop::collection::vec("[a-z._]{0,8}", 0..4),
    ) {
        let text = clean(&bytes);
        parse(&text, Kind::QueryGpu, Some(&fields));
        parse(&text, Kind::QueryApps, None);
    }
}

#[test]
fn reading_ends_at_the_limits() {
    let rows = Document::MAX_ROWS + Document::MAX_UNREAD;
    let of = |more: usize| of(Kind::QueryGpu, &format!("name\n{}", "a\n".repeat(rows + more)));
    let (short, long) = (of(0), of(5_000));
    assert_eq!((short.gpus.len(), short.unread.len()), (Document::MAX_ROWS, Document::MAX_UNREAD));
    assert_eq!((long.gpus, long.unread), (short.gpus, short.unread));
}
