//! The content of `-q` and `-q -x`, in either form.
//!
//! Both print the same tree: `-q` as indented keys, `-q -x` as elements. Their front ends pass
//! leaves with the names of the enclosing sections in XML form (`fb_memory_usage` for `FB Memory
//! Usage`); only this module knows the names.

use crate::document::{Document, Gpu, Kind, MigDevice, Process, keep};
use crate::field;
use crate::health;
use crate::work_meter;
use gpu_core::{Absent, Reading};

/// A document that is being filled from leaves.
pub(crate) struct Report {
    document: Document,
    /// MIG instances of the next process; they precede its PID.
    instances: [Option<u32>; 2],
    /// Whether the last process or MIG device exceeded the limit; its leaves are then dropped.
    full: bool,
}

impl Report {
    pub(crate) fn new(kind: Kind) -> Self {
        let document = Document { lists_mig: true, ..Document::new(kind) };
        Report { document, instances: [None; 2], full: false }
    }

    /// Starts a device; its index is its position in the text.
    pub(crate) fn device(&mut self, bus_id: &str) {
        let gpu = Gpu {
            index: u32::try_from(self.document.gpus.len()).ok(),
            bus_id: field::identifier(bus_id),
            ..Gpu::default()
        };
        self.full = !keep(&mut self.document.gpus, gpu);
        self.instances = [None; 2];
    }

    /// Starts a section; the section of a MIG device starts that device.
    pub(crate) fn section(&mut self, name: &str) {
        if name == "mig_device" {
            let mig = MigDevice { gpu_index: self.gpu_index(), ..MigDevice::default() };
            self.full |= !keep(&mut self.document.mig_devices, mig);
        }
    }

    /// Reads a leaf within the sections `path`, the innermost last.
    pub(crate) fn leaf(&mut self, path: &[String], key: &str, value: &str) {
        let inside = |name: &str| path.iter().any(|section| section == name);
        let section = path.last().map_or("", String::as_str);
        if self.full {
        } else if matches!(key, "processes" | "compute_processes") {
            // Rows, if any, are separate leaves; any other value, except a reason, is the prefix of
            // another log.
            if value.eq_ignore_ascii_case("none") || !refuses(value) {
                self.document.processes.get_or_insert_default();
            }
        } else if inside("processes") || inside("compute_processes") {
            self.process_leaf(key, value);
        } else if inside("mig_device") || section == "shared_fb_memory_usage" {
            self.mig_leaf(section, key, value);
        } else {
            // Drivers from 610 on have a separate section for the limits.
            let power = ["power_readings", "gpu_power_readings", "gpu_ceiling_power_limit"];
            let power = power.into_iter().any(inside);
            self.device_leaf(section, power, key, value);
            if let Some(gpu) = self.document.gpus.last_mut() {
                health::leaf(&mut gpu.details, path, key, value);
            }
        }
    }

    /// Records a line that could not be read.
    pub(crate) fn unread(&mut self, line: usize, text: &str, why: &'static str) {
        self.document.note_unread(line, text, why);
    }

    pub(crate) fn finish(self) -> Document {
        self.document
    }

    fn gpu_index(&self) -> Option<u32> {
        self.document.gpus.last().and_then(|gpu| gpu.index)
    }

    fn device_leaf(&mut self, section: &str, power: bool, key: &str, value: &str) {
        match key {
            "driver_version" | "kmd_version" => {
                set_version(&mut self.document.driver_version, value)
            }
            "cuda_version" | "cuda_umd_version" => {
                set_version(&mut self.document.cuda_version, value);
            }
            _ => {}
        }
        if self.document.gpus.is_empty() && matches!(key, "product_name" | "uuid" | "gpu_uuid") {
            // The text lost its start.
            self.device("");
        }
        let Some(gpu) = self.document.gpus.last_mut() else { return };
        match (section, key) {
            (_, "product_name") => gpu.name = field::text(value),
            (_, "gpu_uuid") | ("gpu", "uuid") => gpu.uuid = field::identifier(value),
            (_, "minor_number") => gpu.minor = field::number(value).ok(),
            (_, "persistence_mode") => gpu.persistence = field::switch(value),
            (_, "display_active") => gpu.display_active = field::switch(value),
            ("pci", "bus_id" | "pci_bus_id") => {
                gpu.bus_id = gpu.bus_id.take().or_else(|| field::identifier(value));
            }
            ("mig_mode", "current" | "current_mig") | (_, "mig_mode") => {
                gpu.mig_enabled = field::switch(value);
            }
            ("fb_memory_usage" | "memory_usage", "total") => gpu.memory_total_mib = mib(value),
            ("fb_memory_usage" | "memory_usage", "used") => gpu.memory_used_mib = mib(value),
            ("fb_memory_usage" | "memory_usage", "reserved") => {
                gpu.memory_reserved_mib = mib(value);
            }
            (_, "fb_memory_usage" | "memory_usage") => {
                gpu.memory_total_mib = mib(value);
                gpu.memory_used_mib = mib(value);
                gpu.memory_reserved_mib = mib(value);
            }
            ("utilization", "gpu" | "gpu_util") | (_, "utilization") => {
                gpu.utilization_percent = unit(value, field::percent);
            }
            ("temperature", "gpu" | "gpu_temp" | "gpu_current_temp") | (_, "temperature") => {
                gpu.temperature_c = unit(value, field::celsius);
            }
            (
                "power_readings" | "gpu_power_readings",
                "power_draw"
                | "average_power_draw"
                | "instant_power_draw"
                | "instantaneous_power_draw",
            ) => prefer_first(&mut gpu.power_draw_w, unit(value, field::watts)),
            (_, "power_limit" | "current_power_limit" | "enforced_power_limit") if power => {
                prefer_first(&mut gpu.power_limit_w, unit(value, field::watts));
            }
            (_, "power_readings" | "gpu_power_readings") => {
                gpu.power_draw_w = unit(value, field::watts);
                gpu.power_limit_w = unit(value, field::watts);
            }
            _ => {}
        }
    }

    fn mig_leaf(&mut self, section: &str, key: &str, value: &str) {
        let Some(mig) = self.document.mig_devices.last_mut() else { return };
        match (section, key) {
            ("mig_device", "index") => mig.mig_index = field::number(value).ok(),
            ("mig_device", "gpu_instance_id") => mig.gpu_instance_id = field::number(value).ok(),
            ("mig_device", "compute_instance_id") => {
                mig.compute_instance_id = field::number(value).ok();
            }
            ("mig_device", "uuid" | "mig_uuid") => mig.uuid = field::text(value),
            ("fb_memory_usage" | "shared_fb_memory_usage", "total") => {
                mig.memory_total_mib = mib(value);
            }
            ("fb_memory_usage" | "shared_fb_memory_usage", "used") => {
                mig.memory_used_mib = mib(value);
            }
            _ => {}
        }
    }

    fn process_leaf(&mut self, key: &str, value: &str) {
        match key {
            "gpu_instance_id" => {
                self.instances = [field::number(value).ok(), None];
                return;
            }
            "compute_instance_id" => {
                self.instances[1] = field::number(value).ok();
                return;
            }
            "pid" | "process_id" => {
                let gpu_index = self.gpu_index();
                let gpu = self.document.gpus.last();
                let [gpu_instance_id, compute_instance_id] = std::mem::take(&mut self.instances);
                let process = Process {
                    gpu_index,
                    gpu_uuid: gpu.and_then(|gpu| gpu.uuid.clone()),
                    gpu_bus_id: gpu.and_then(|gpu| gpu.bus_id.clone()),
                    pid: field::number(value).ok(),
                    gpu_instance_id,
                    compute_instance_id,
                    ..Process::default()
                };
                work_meter::add(
                    [&process.gpu_uuid, &process.gpu_bus_id]
                        .into_iter()
                        .flatten()
                        .map(String::len)
                        .sum(),
                );
                let processes = self.document.processes.get_or_insert_default();
                self.full = !keep(processes, process);
                return;
            }
            _ => {}
        }
        let Some(process) = self.document.processes.as_mut().and_then(|all| all.last_mut()) else {
            return;
        };
        match key {
            "type" => process.type_ = field::text(value),
            // A placeholder such as `[Not Found]` is a name.
            "name" | "process_name" => {
                process.name = (!matches!(value, "" | "N/A")).then(|| value.to_owned());
            }
            "used_memory" | "used_gpu_memory" => process.memory_mib = mib(value),
            _ => {}
        }
    }
}

/// Returns whether a value is a reason for a missing value.
fn refuses(value: &str) -> bool {
    !matches!(field::absent(value), None | Some(Absent::NotRecorded))
}

/// Keeps the first version; a remark may follow it.
fn set_version(slot: &mut Option<String>, value: &str) {
    let end = value.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(value.len());
    let version = value.get(..end).filter(|version| {
        version.contains('.') && !version.starts_with('.') && !version.ends_with('.')
    });
    *slot = slot.take().or(version.map(str::to_owned));
}

/// Keeps the first value: the average power precedes the instantaneous power, and the requested
/// limit precedes the enforced one.
fn prefer_first(slot: &mut Reading<f64>, value: Reading<f64>) {
    if matches!(slot, Err(Absent::NotRecorded | Absent::NotSupported))
        || (slot.is_err() && value.is_ok())
    {
        *slot = value;
    }
}

fn mib(value: &str) -> Reading<u64> {
    unit(value, field::mib)
}

/// Parses a quantity; a number without its unit was cut and may have lost digits too.
fn unit<T>(value: &str, read: fn(&str) -> Reading<T>) -> Reading<T> {
    if value.ends_with(|c: char| c.is_ascii_digit() || c == '.') {
        return Err(Absent::NotRecorded);
    }
    read(value)
}
