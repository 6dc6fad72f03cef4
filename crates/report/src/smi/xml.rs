//! The document of `nvidia-smi -q -x`.
//!
//! It has the entries of [`details`] under the names of NVIDIA's document type
//! `nvsmi_device_v12.dtd`. Elements for which gpuws has no value are left out, and so are entries
//! that the document type does not have. A missing value is `N/A`.

use crate::details::{self, Entry, Value};
use crate::local_time;
use gpu_core::{DeviceState, Snapshot};
use jiff::tz::TimeZone;
use std::fmt::Write;

/// Returns the document for these devices, which are some or all of the snapshot.
pub fn document(snapshot: &Snapshot, devices: &[DeviceState], zone: &TimeZone) -> String {
    let mut text = String::from(
        "<?xml version=\"1.0\" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM \"nvsmi_device_v12.dtd\">\n\
         <nvidia_smi_log>\n",
    );
    let mut writer = Writer { text: &mut text, depth: 1 };
    let at = local_time::format(snapshot.taken_at, zone, "%a %b %e %H:%M:%S %Y");
    writer.leaf("timestamp", &at);
    for entry in details::head(snapshot, snapshot.devices.len(), zone) {
        writer.entry("", &entry);
    }
    for device in devices {
        let bus = device.id().bus.map_or("N/A".to_owned(), |bus| bus.to_string());
        writer.inside(&format!("gpu id=\"{bus}\""), |writer| {
            for entry in details::entries(snapshot, device) {
                writer.entry("", &entry);
            }
        });
    }
    text.push_str("</nvidia_smi_log>\n");
    text
}

struct Writer<'a> {
    text: &'a mut String,
    depth: usize,
}

impl Writer<'_> {
    fn line(&mut self, line: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "{}{line}", "\t".repeat(self.depth));
    }

    fn leaf(&mut self, tag: &str, value: &str) {
        self.line(&format!("<{tag}>{}</{tag}>", escaped(value)));
    }

    fn inside(&mut self, tag: &str, write: impl FnOnce(&mut Writer<'_>)) {
        self.line(&format!("<{tag}>"));
        write(&mut Writer { text: self.text, depth: self.depth + 1 });
        let name = tag.split(' ').next().unwrap_or_default();
        self.line(&format!("</{name}>"));
    }

    /// Writes an entry of a group, unless the document type does not have it.
    fn entry(&mut self, group: &str, entry: &Entry) {
        let (name, number) = unnumbered(&entry.name);
        let path = if group.is_empty() { name.to_owned() } else { format!("{group}/{name}") };
        let Some(tag) = tag(&path) else { return };
        match &entry.value {
            Value::Known(value) => self.leaf(tag, plain(&path, value)),
            Value::Absent(_) => self.leaf(tag, "N/A"),
            Value::Group(entries) if entries.is_empty() && path == "MIG Devices" => {
                self.inside(tag, |writer| writer.line("None"));
            }
            Value::Group(entries) => self.inside(tag, |writer| {
                if let Some((tag, number)) = number {
                    writer.leaf(tag, number);
                }
                // The groups below have the same names wherever they are.
                let group =
                    if path.ends_with("FB Memory Usage") { "FB Memory Usage" } else { &path };
                entries.iter().for_each(|entry| writer.entry(group, entry));
            }),
        }
    }
}

/// Splits `Process ID 7` into the name of the group and the element for its number.
fn unnumbered(name: &str) -> (&str, Option<(&str, &str)>) {
    for (group, tag) in [("Process ID", "pid"), ("MIG Device", "index")] {
        let number = name.strip_prefix(group).and_then(|rest| rest.strip_prefix(' '));
        if let Some(number) = number {
            return (group, Some((tag, number)));
        }
    }
    (name, None)
}

/// Returns a value without the parts that only the text form has.
fn plain<'a>(path: &str, value: &'a str) -> &'a str {
    match path {
        "PCI/Bus" | "PCI/Device" | "PCI/Domain" | "PCI/Device Id" | "PCI/Sub System Id" => {
            value.trim_start_matches("0x")
        }
        "Encoder Stats/Average Latency" => value.trim_end_matches(" us"),
        _ => value,
    }
}

fn escaped(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for c in gpu_core::clean(value).chars() {
        match c {
            '&' => text.push_str("&amp;"),
            '<' => text.push_str("&lt;"),
            '>' => text.push_str("&gt;"),
            _ => text.push(c),
        }
    }
    text
}

fn tag(path: &str) -> Option<&'static str> {
    TAGS.iter().find(|(known, _)| *known == path).map(|(_, tag)| *tag)
}

/// The elements by the path of the entry.
const TAGS: &[(&str, &str)] = &[
    ("Driver Version", "driver_version"),
    ("CUDA Version", "cuda_version"),
    ("Attached GPUs", "attached_gpus"),
    ("Product Name", "product_name"),
    ("Product Brand", "product_brand"),
    ("Product Architecture", "product_architecture"),
    ("Display Mode", "display_mode"),
    ("Display Attached", "display_attached"),
    ("Display Active", "display_active"),
    ("Persistence Mode", "persistence_mode"),
    ("Addressing Mode", "addressing_mode"),
    ("MIG Mode", "mig_mode"),
    ("MIG Mode/Current", "current_mig"),
    ("MIG Mode/Pending", "pending_mig"),
    ("MIG Devices", "mig_devices"),
    ("MIG Devices/MIG Device", "mig_device"),
    ("MIG Devices/MIG Device/GPU Instance ID", "gpu_instance_id"),
    ("MIG Devices/MIG Device/Compute Instance ID", "compute_instance_id"),
    ("MIG Devices/MIG Device/FB Memory Usage", "fb_memory_usage"),
    ("Accounting Mode", "accounting_mode"),
    ("Accounting Mode Buffer Size", "accounting_mode_buffer_size"),
    ("Serial Number", "serial"),
    ("GPU UUID", "uuid"),
    ("Minor Number", "minor_number"),
    ("VBIOS Version", "vbios_version"),
    ("Board Part Number", "board_part_number"),
    ("Inforom Version", "inforom_version"),
    ("Inforom Version/Image Version", "img_version"),
    ("Inforom Version/OEM Object", "oem_object"),
    ("Inforom Version/ECC Object", "ecc_object"),
    ("Inforom Version/Power Management Object", "pwr_object"),
    ("GPU Operation Mode", "gpu_operation_mode"),
    ("GPU Operation Mode/Current", "current_gom"),
    ("GPU Operation Mode/Pending", "pending_gom"),
    ("GPU Reset Status", "gpu_reset_status"),
    ("GPU Reset Status/Reset Required", "reset_required"),
    ("GPU Reset Status/Drain and Reset Recommended", "drain_and_reset_recommended"),
    ("PCI", "pci"),
    ("PCI/Bus", "pci_bus"),
    ("PCI/Device", "pci_device"),
    ("PCI/Domain", "pci_domain"),
    ("PCI/Device Id", "pci_device_id"),
    ("PCI/Bus Id", "pci_bus_id"),
    ("PCI/Sub System Id", "pci_sub_system_id"),
    ("PCI/GPU Link Info", "pci_gpu_link_info"),
    ("PCI/GPU Link Info/PCIe Generation", "pcie_gen"),
    ("PCI/GPU Link Info/PCIe Generation/Max", "max_link_gen"),
    ("PCI/GPU Link Info/PCIe Generation/Current", "current_link_gen"),
    ("PCI/GPU Link Info/PCIe Generation/Device Max", "max_device_link_gen"),
    ("PCI/GPU Link Info/Link Width", "link_widths"),
    ("PCI/GPU Link Info/Link Width/Max", "max_link_width"),
    ("PCI/GPU Link Info/Link Width/Current", "current_link_width"),
    ("PCI/Replays Since Reset", "replay_counter"),
    ("PCI/Tx Throughput", "tx_util"),
    ("PCI/Rx Throughput", "rx_util"),
    ("Fabric", "fabric"),
    ("Fabric/State", "state"),
    ("Fabric/Status", "status"),
    ("Fan Speed", "fan_speed"),
    ("Performance State", "performance_state"),
    ("Clocks Event Reasons", "clocks_event_reasons"),
    ("Clocks Event Reasons/Idle", "clocks_event_reason_gpu_idle"),
    (
        "Clocks Event Reasons/Applications Clocks Setting",
        "clocks_event_reason_applications_clocks_setting",
    ),
    ("Clocks Event Reasons/SW Power Cap", "clocks_event_reason_sw_power_cap"),
    ("Clocks Event Reasons/HW Slowdown", "clocks_event_reason_hw_slowdown"),
    ("Clocks Event Reasons/HW Thermal Slowdown", "clocks_event_reason_hw_thermal_slowdown"),
    ("Clocks Event Reasons/HW Power Brake Slowdown", "clocks_event_reason_hw_power_brake_slowdown"),
    ("Clocks Event Reasons/Sync Boost", "clocks_event_reason_sync_boost"),
    ("Clocks Event Reasons/SW Thermal Slowdown", "clocks_event_reason_sw_thermal_slowdown"),
    ("Clocks Event Reasons/Display Clock Setting", "clocks_event_reason_display_clocks_setting"),
    ("FB Memory Usage", "fb_memory_usage"),
    ("FB Memory Usage/Total", "total"),
    ("FB Memory Usage/Reserved", "reserved"),
    ("FB Memory Usage/Used", "used"),
    ("FB Memory Usage/Free", "free"),
    ("BAR1 Memory Usage", "bar1_memory_usage"),
    ("BAR1 Memory Usage/Total", "total"),
    ("BAR1 Memory Usage/Used", "used"),
    ("Conf Compute Protected Memory Usage", "cc_protected_memory_usage"),
    ("Conf Compute Protected Memory Usage/Total", "total"),
    ("Conf Compute Protected Memory Usage/Used", "used"),
    ("Conf Compute Protected Memory Usage/Free", "free"),
    ("Compute Mode", "compute_mode"),
    ("Utilization", "utilization"),
    ("Utilization/Gpu", "gpu_util"),
    ("Utilization/Memory", "memory_util"),
    ("Utilization/Encoder", "encoder_util"),
    ("Utilization/Decoder", "decoder_util"),
    ("Utilization/JPEG", "jpeg_util"),
    ("Utilization/OFA", "ofa_util"),
    ("Encoder Stats", "encoder_stats"),
    ("Encoder Stats/Active Sessions", "session_count"),
    ("Encoder Stats/Average FPS", "average_fps"),
    ("Encoder Stats/Average Latency", "average_latency"),
    ("ECC Mode", "ecc_mode"),
    ("ECC Mode/Current", "current_ecc"),
    ("ECC Mode/Pending", "pending_ecc"),
    ("Remapped Rows", "remapped_rows"),
    ("Remapped Rows/Correctable Error", "remapped_row_corr"),
    ("Remapped Rows/Uncorrectable Error", "remapped_row_unc"),
    ("Remapped Rows/Pending", "remapped_row_pending"),
    ("Remapped Rows/Remapping Failure Occurred", "remapped_row_failure"),
    ("Remapped Rows/Bank Remap Availability Histogram", "row_remapper_histogram"),
    ("Remapped Rows/Bank Remap Availability Histogram/Max", "row_remapper_histogram_max"),
    ("Remapped Rows/Bank Remap Availability Histogram/High", "row_remapper_histogram_high"),
    ("Remapped Rows/Bank Remap Availability Histogram/Partial", "row_remapper_histogram_partial"),
    ("Remapped Rows/Bank Remap Availability Histogram/Low", "row_remapper_histogram_low"),
    ("Remapped Rows/Bank Remap Availability Histogram/None", "row_remapper_histogram_none"),
    ("Temperature", "temperature"),
    ("Temperature/GPU Current Temp", "gpu_temp"),
    ("Temperature/GPU T.Limit Temp", "gpu_temp_tlimit"),
    ("Temperature/GPU Shutdown Temp", "gpu_temp_max_threshold"),
    ("Temperature/GPU Slowdown Temp", "gpu_temp_slow_threshold"),
    ("Temperature/Memory Current Temp", "memory_temp"),
    ("GPU Power Readings", "gpu_power_readings"),
    ("GPU Power Readings/Power Draw", "power_draw"),
    ("GPU Power Readings/Average Power Draw", "average_power_draw"),
    ("GPU Power Readings/Instantaneous Power Draw", "instant_power_draw"),
    ("GPU Power Readings/Current Power Limit", "current_power_limit"),
    ("GPU Power Readings/Requested Power Limit", "requested_power_limit"),
    ("GPU Power Readings/Default Power Limit", "default_power_limit"),
    ("GPU Power Readings/Min Power Limit", "min_power_limit"),
    ("GPU Power Readings/Max Power Limit", "max_power_limit"),
    ("Clocks", "clocks"),
    ("Clocks/Graphics", "graphics_clock"),
    ("Clocks/SM", "sm_clock"),
    ("Clocks/Memory", "mem_clock"),
    ("Clocks/Video", "video_clock"),
    ("Applications Clocks", "applications_clocks"),
    ("Applications Clocks/Graphics", "graphics_clock"),
    ("Applications Clocks/Memory", "mem_clock"),
    ("Default Applications Clocks", "default_applications_clocks"),
    ("Default Applications Clocks/Graphics", "graphics_clock"),
    ("Default Applications Clocks/Memory", "mem_clock"),
    ("Max Clocks", "max_clocks"),
    ("Max Clocks/Graphics", "graphics_clock"),
    ("Max Clocks/SM", "sm_clock"),
    ("Max Clocks/Memory", "mem_clock"),
    ("Max Clocks/Video", "video_clock"),
    ("Processes", "processes"),
    ("Processes/Process ID", "process_info"),
    ("Processes/Process ID/GPU Instance ID", "gpu_instance_id"),
    ("Processes/Process ID/Compute Instance ID", "compute_instance_id"),
    ("Processes/Process ID/Type", "type"),
    ("Processes/Process ID/Name", "process_name"),
    ("Processes/Process ID/Used GPU Memory", "used_memory"),
    ("Accounted Processes", "accounted_processes"),
    ("Accounted Processes/Process ID", "accounted_process_info"),
    ("Accounted Processes/Process ID/GPU Utilization", "gpu_util"),
    ("Accounted Processes/Process ID/Max Memory Usage", "max_memory_usage"),
    ("Accounted Processes/Process ID/Time", "time"),
    ("Accounted Processes/Process ID/Running", "is_running"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_core::{Absent, DeviceId, Error, ErrorKind, Origin, Timestamp};

    /// The entries that the document type does not have, or has in another form.
    const LEFT_OUT: &[&str] = &[
        "Compute Capability",
        "CUDA Cores",
        "Index",
        "GSP Firmware Mode",
        "vGPU Capability",
        "GPU Reset Status/Recovery Action",
        "Memory Bus Width",
        "NUMA Node",
        "NVLink",
        "ECC Errors",
        "Retired Pages",
        "GPU Power Readings/Power Management",
        "GPU Power Readings/Energy Since Driver Load",
        "Holders of the Device File",
        "Host Name",
        "Timestamp",
    ];

    fn check(group: &str, entries: &[Entry]) {
        for entry in entries {
            let (name, _) = unnumbered(&entry.name);
            let path = if group.is_empty() { name.to_owned() } else { format!("{group}/{name}") };
            let is_left_out = LEFT_OUT.contains(&path.as_str());
            assert!(tag(&path).is_some() != is_left_out, "'{path}' has an element or is left out");
            if let (Value::Group(entries), false) = (&entry.value, is_left_out) {
                check(&path, entries);
            }
        }
    }

    #[test]
    fn every_entry_has_an_element_or_is_left_out_on_purpose() {
        let snapshot = Snapshot::empty(Origin::Live, Timestamp(0));
        check("", &details::head(&snapshot, 1, &TimeZone::UTC));
        let fault = || Error::new(ErrorKind::Invalid, "query the device").fault();
        let device = DeviceState {
            info: gpu_core::DeviceInfo::unknown(DeviceId::from_index(0)),
            sample: Err(fault()),
            processes: Err(fault()),
            partitions: Err(fault()),
            details: Err(fault()),
        };
        check("", &details::entries(&snapshot, &device));
        assert_eq!(device.id().bus, Err(Absent::NotRecorded));
        let text = document(&snapshot, &[device], &TimeZone::UTC);
        assert!(text.contains("<gpu id=\"N/A\">\n\t\t<product_name>N/A</product_name>"), "{text}");
    }

    #[test]
    fn values_are_escaped() {
        assert_eq!(escaped("a<b>&\u{1b}"), "a&lt;b&gt;&amp;\\x1b");
    }
}
