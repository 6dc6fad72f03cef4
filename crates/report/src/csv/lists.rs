//! The columns of the queries for lists: compute processes, accounted processes, retired pages and
//! supported clocks.

use super::field::{Field, Item, Row, plain};
use super::gpu;
use gpu_core::{Absent, AccountedProcess, DeviceProcess, Group, ProcessInfo, Reading};

/// The first columns of every list.
pub(super) const DEVICE: &[Field] = &[
    Field::new("timestamp", "timestamp of the query, local time", |row| Ok(row.time.to_owned())),
    Field::new("gpu_name", "name of the product", gpu::name),
    Field::new("gpu_bus_id", "PCI address of the device", gpu::bus_id),
    Field::new("gpu_serial", "serial number of the board", gpu::serial).from(Group::Product),
    Field::new("gpu_uuid", "UUID of the device", gpu::uuid),
];

/// The columns of a compute process.
pub(super) const COMPUTE: &[Field] = &[
    Field::new("pid", "process ID", |row| process(row).map(|(process, _)| plain(&process.pid))),
    Field::new("process_name", "executable path or process name", name).or(&["name"]),
    Field::new("used_gpu_memory", "device memory used by the process", |row| {
        row.mib(process(row)?.0.memory)
    })
    .unit("MiB")
    .or(&["used_memory"]),
];

/// Makes a column for an accounted process.
macro_rules! accounted {
    ($name:literal, $about:literal, $get:expr) => {
        Field::new($name, $about, |row| accounted(row).and_then($get)).from(Group::Accounting)
    };
}

/// The columns of an accounted process.
pub(super) const ACCOUNTED: &[Field] = &[
    Field::unreported("vgpu_instance", "vGPU of the process"),
    accounted!("pid", "process ID", |process| process.pid.map(|pid| plain(&pid))),
    accounted!("gpu_utilization", "share of its time with running kernels", |process| {
        process.utilization.map(|share| plain(&share.get()))
    })
    .unit("%")
    .or(&["gpu_util"]),
    accounted!("mem_utilization", "share of its time with memory accesses", |process| {
        process.memory_utilization.map(|share| plain(&share.get()))
    })
    .unit("%")
    .or(&["mem_util"]),
    Field::new("max_memory_usage", "highest memory use", |row| row.mib(accounted(row)?.memory_max))
        .from(Group::Accounting)
        .unit("MiB"),
    // The driver reports 0 while the process runs.
    accounted!("time", "time with a CUDA context; 0 while the process runs", |process| {
        match process.running {
            Ok(true) => Ok(plain(&process.time.unwrap_or(0))),
            _ => process.time.map(|time| plain(&time)),
        }
    })
    .unit("ms"),
];

/// The columns of a retired page.
pub(super) const PAGES: &[Field] = &[
    Field::new("retired_pages.address", "address of the page, in hex", |row| match row.item {
        Item::Page(page, _) => page.map(|page| format!("0x{:016x}", page.address)),
        _ => Err(Absent::NotFound),
    })
    .from(Group::MemoryHealth),
    Field::unreported("retired_pages.timestamp", "time of the retirement"),
    Field::new("retired_pages.cause", "Single Bit ECC or Double Bit ECC", |row| match row.item {
        Item::Page(_, cause) => Ok(cause.to_owned()),
        _ => Err(Absent::NotFound),
    })
    .from(Group::MemoryHealth),
];

/// Makes a column for one of a pair of clocks.
macro_rules! clock {
    ($name:literal, $about:literal, $get:expr) => {
        Field::new($name, $about, |row| match row.item {
            Item::Clocks(clocks) => clocks.map($get),
            _ => Err(Absent::NotFound),
        })
        .from(Group::SupportedClocks)
        .unit("MHz")
    };
}

/// The columns of a pair of supported clocks.
pub(super) const CLOCKS: &[Field] = &[
    clock!("memory", "memory clock", |(memory, _)| plain(&memory)).or(&["mem"]),
    clock!("graphics", "graphics clock", |(_, graphics)| plain(&graphics)).or(&["gr"]),
];

fn process<'a>(row: &Row<'a>) -> Reading<(&'a DeviceProcess, &'a Reading<ProcessInfo>)> {
    match row.item {
        Item::Process(process, info) => Ok((process, info)),
        _ => Err(Absent::NotFound),
    }
}

fn accounted<'a>(row: &Row<'a>) -> Reading<&'a AccountedProcess> {
    match row.item {
        Item::Accounted(process) => Ok(process),
        _ => Err(Absent::NotFound),
    }
}

fn name(row: &Row<'_>) -> Reading<String> {
    let (process, info) = process(row)?;
    let info = match info {
        Ok(info) => info,
        Err(absent) => return process.name.clone().map_err(|_| *absent),
    };
    let line = info.command_line.as_ref().ok();
    let program = line.and_then(|line| line.first()).filter(|program| !program.is_empty());
    Ok(program.unwrap_or(&info.name).clone())
}
