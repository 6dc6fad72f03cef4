//! The columns of `--query-compute-apps`.

use super::field::{Field, plain};
use super::gpu;
use gpu_core::{Absent, Reading};

/// All columns, with the names of nvidia-smi 535.
pub(super) const FIELDS: &[Field] = &[
    Field::new("timestamp", "timestamp of the query, local time", |row| Ok(row.time.to_owned())),
    Field::new("gpu_name", "name of the product", gpu::name),
    Field::new("gpu_bus_id", "PCI address of the device", gpu::bus_id),
    Field::new("gpu_serial", "serial number of the board", gpu::serial)
        .from(gpu_core::Group::Product),
    Field::new("gpu_uuid", "UUID of the device", gpu::uuid),
    Field::new("pid", "process ID", |row| {
        row.process.map(|(process, _)| plain(&process.pid)).ok_or(Absent::NotFound)
    }),
    Field::new("process_name", "executable path or process name", name).or(&["name"]),
    Field::new("used_gpu_memory", "device memory used by the process", |row| {
        let (process, _) = row.process.ok_or(Absent::NotFound)?;
        row.mib(process.memory)
    })
    .unit("MiB")
    .or(&["used_memory"]),
];

fn name(row: &super::Row<'_>) -> Reading<String> {
    let (process, info) = row.process.ok_or(Absent::NotFound)?;
    let info = match info {
        Ok(info) => info,
        Err(absent) => return process.name.clone().map_err(|_| *absent),
    };
    let line = info.command_line.as_ref().ok();
    let program = line.and_then(|line| line.first()).filter(|program| !program.is_empty());
    Ok(program.unwrap_or(&info.name).clone())
}
