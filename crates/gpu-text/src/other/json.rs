//! The JSON of rocm-smi, amd-smi, xpu-smi, intel_gpu_top and amdgpu_top.
//!
//! An object with the index of a device starts that device; the names of the objects around a value
//! are its sections. intel_gpu_top prints an array that grows, before some versions without commas;
//! amdgpu_top prints one object per line. Both forms are read as a list of objects.

use super::keys::words;
use super::listing::{Key, Listing, index};
use crate::document::Tool;
use crate::work_meter;
use serde_json::{Map, Value};

/// The number of lines from the start of a text within which its keys identify the program.
const HEAD: usize = 10;

/// Keys that only the JSON of a program has in its first lines. Logs are JSON too, so a key that
/// other programs may print needs a second one.
const SIGNS: [(&[&str], Tool); 11] = [
    (&["\"amdgpu_top_version\":"], Tool::AmdgpuTop),
    (&["\"GRBM\":"], Tool::AmdgpuTop),
    (&["\"gpu_data\":"], Tool::AmdSmi),
    (&["[", "\"gpu\":"], Tool::AmdSmi),
    (&["[", "\"pid\":", "\"gpus\":"], Tool::AmdSmi),
    (&["\"device_list\":"], Tool::XpuSmi),
    (&["\"device_level\":"], Tool::XpuSmi),
    (&["\"device_stepping\":"], Tool::XpuSmi),
    (&["\"device_util_by_proc_list\":"], Tool::XpuSmi),
    (&["\"process_list\":", "\"process_name\":"], Tool::XpuSmi),
    (&["\"period\":", "\"duration\":"], Tool::IntelGpuTop),
];

/// Returns the program whose JSON starts in a line; `following` are the lines after it.
pub(super) fn tool<'a>(line: &str, following: impl Iterator<Item = &'a str>) -> Option<Tool> {
    if !line.starts_with(['{', '[']) {
        return None;
    }
    let head: Vec<&str> = following.take(HEAD).collect();
    work_meter::add(line.len() + head.iter().map(|line| line.len()).sum::<usize>());
    let any = |has: &dyn Fn(&str) -> bool| has(line) || head.iter().any(|line| has(line));
    if any(&|line| has_numbered(line, "\"card") || has_numbered(line, "\"PID")) {
        return Some(Tool::RocmSmi);
    }
    let has = |sign: &&str| match *sign {
        "[" => line.starts_with('['),
        sign => any(&|line| line.contains(sign)),
    };
    SIGNS.iter().find(|(signs, _)| signs.iter().all(has)).map(|(_, tool)| *tool)
}

/// Returns whether a line has a key such as `"card0":`; `start` is `"card`.
fn has_numbered(line: &str, start: &str) -> bool {
    line.split(start).skip(1).any(|rest| {
        let end = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        end.len() < rest.len() && end.starts_with("\":")
    })
}

/// Reads the objects of a text that starts with JSON. Returns the number of bytes read, and whether
/// an object is cut there.
pub(super) fn read(text: &str, listing: &mut Listing) -> (usize, bool) {
    let rest = |rest: &'_ str| text.len() - rest.len();
    let mut left = text.strip_prefix('[').unwrap_or(text);
    loop {
        left = left.trim_start_matches(|c: char| c.is_whitespace() || c == ',');
        if let Some(after) = left.strip_prefix(']').filter(|_| text.starts_with('[')) {
            return (rest(after), false);
        }
        let mut objects = serde_json::Deserializer::from_str(left).into_iter::<Map<_, _>>();
        let Some(Ok(object)) = objects.next() else {
            return (rest(left), left.starts_with('{'));
        };
        let end = objects.byte_offset();
        top(&object, listing);
        left = left.get(end..).unwrap_or_default();
    }
}

fn top(object: &Map<String, Value>, listing: &mut Listing) {
    if let (Some(Value::Object(engines)), Some(_)) = (object.get("engines"), object.get("period")) {
        listing.tool(Tool::IntelGpuTop);
        listing.forget_processes();
        intel_gpu_top(object, engines, listing);
    } else if let Some(Value::Array(devices)) = object.get("devices") {
        listing.tool(Tool::AmdgpuTop);
        listing.forget_processes();
        let asleep = object.get("suspended_devices").and_then(Value::as_array);
        for (at, device) in devices.iter().filter_map(Value::as_object).enumerate() {
            amdgpu_top(device, &at.to_string(), listing);
        }
        for device in asleep.into_iter().flatten().filter_map(Value::as_object) {
            amdgpu_device(device, "asleep", listing);
            listing.asleep();
        }
    } else {
        fields(object, None, listing);
    }
}

/// Reads the values of an object, which `section` names. Afterwards, the current device is again
/// that of the object around it.
fn fields(object: &Map<String, Value>, section: Option<&str>, listing: &mut Listing) {
    let outer = listing.at;
    inner_fields(object, section, listing);
    listing.at = outer;
}

fn inner_fields(object: &Map<String, Value>, section: Option<&str>, listing: &mut Listing) {
    let number = |name: &&str| object.get(*name).and_then(Value::as_u64);
    let device = ["gpu", "gpu_id", "device_id"].iter().find_map(number);
    let device = device.and_then(|index| u32::try_from(index).ok());
    if object.contains_key("pid") || object.contains_key("process_id") {
        return process(object, device, listing);
    }
    if let Some(index) = device {
        listing.device(Key::Index(index));
    }
    // The lists of xpu-smi.
    if let (Some(Value::String(name)), Some(value)) =
        (object.get("metrics_type"), object.get("value"))
    {
        return listing.value(None, name, &scalar(value).unwrap_or_default());
    }
    let section = section.filter(|_| device.is_none());
    for (name, value) in object {
        let card = name.strip_prefix("card").and_then(index);
        match (value, card) {
            (Value::Object(card), Some(index)) => {
                listing.tool(Tool::RocmSmi);
                listing.device(Key::Index(index));
                fields(card, None, listing);
            }
            (Value::String(row), _) if name.starts_with("PID") => rocm_process(name, row, listing),
            _ => field(name, value, section, listing),
        }
    }
}

fn field(name: &str, value: &Value, section: Option<&str>, listing: &mut Listing) {
    if let Some(value) = scalar(value) {
        if name == "process_info" {
            // In place of an object: no process runs.
            listing.lists_own_processes();
        }
        return listing.value(section, name, &value);
    }
    match value {
        // The figures of a part are not those of its device.
        _ if name == "tile_level" => {}
        Value::Object(object) => fields(object, Some(name), listing),
        Value::Array(all) => {
            if name == "process_list" {
                listing.lists_own_processes();
            } else if name == "device_util_by_proc_list" {
                listing.lists_processes();
            }
            all.iter().for_each(|value| field(name, value, section, listing));
        }
        _ => {}
    }
}

/// Returns the text of a value, with its unit.
fn scalar(value: &Value) -> Option<String> {
    Some(match value {
        Value::Null => "N/A".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(value) => value.to_string(),
        Value::String(value) => value.clone(),
        Value::Object(object) if !object.contains_key("metrics_type") => {
            let text = scalar(object.get("value")?)?;
            match object.get("unit") {
                Some(Value::String(unit)) if text != "N/A" => format!("{text} {unit}"),
                _ => text,
            }
        }
        Value::Object(_) | Value::Array(_) => return None,
    })
}

/// Reads a process of amd-smi or xpu-smi, on the device `index` or on the current one. From ROCm 7
/// on, amd-smi lists a process once, with each of its devices.
fn process(object: &Map<String, Value>, index: Option<u32>, listing: &mut Listing) {
    let Some(Value::Array(devices)) = object.get("gpus") else {
        if let Some(index) = index {
            listing.device(Key::Index(index));
        }
        return process_values([object], listing, None);
    };
    listing.lists_processes();
    for device in devices.iter().filter_map(Value::as_object) {
        let index = ["gpu_index", "gpu"].iter().find_map(|name| device.get(*name)?.as_u64());
        let Some(index) = index.and_then(|index| u32::try_from(index).ok()) else { continue };
        listing.device(Key::Index(index));
        process_values([object, device], listing, None);
    }
}

/// Reads a process from these objects; `memory` is memory that is not in them by a known name.
fn process_values<const N: usize>(
    objects: [&Map<String, Value>; N],
    listing: &mut Listing,
    memory: Option<String>,
) {
    listing.start_own_process();
    for (name, value) in objects.into_iter().flatten() {
        match (scalar(value), value) {
            (Some(value), _) => listing.process_value(name, &value),
            (None, Value::Object(inner)) if words(name).contains("mem") => {
                for (name, value) in inner {
                    listing.process_value(name, &scalar(value).unwrap_or_default());
                }
            }
            _ => {}
        }
    }
    memory.into_iter().for_each(|memory| listing.process_value("VRAM mem", &memory));
    listing.end_process();
}

/// Reads a process of rocm-smi: `"PID7": "name, GPUs, bytes of memory, …"`.
fn rocm_process(name: &str, row: &str, listing: &mut Listing) {
    let cells: Vec<&str> = row.split(',').map(str::trim).collect();
    let (Some(pid), [name, _, memory, ..]) = (name.strip_prefix("PID"), &cells[..]) else { return };
    listing.row(&[("pid", pid), ("process name", name), ("vram used", memory)]);
}

/// Reads a sample of intel_gpu_top.
fn intel_gpu_top(sample: &Map<String, Value>, engines: &Map<String, Value>, listing: &mut Listing) {
    listing.device(Key::Only);
    let busy = engines.values().filter_map(|engine| engine.get("busy")?.as_f64());
    if let Some(busiest) = busy.reduce(f64::max) {
        listing.value(None, "GPU Util", &format!("{busiest:.0} %"));
    }
    if let Some(power) = sample.get("power") {
        field("power", power, None, listing);
    }
    let Some(Value::Object(clients)) = sample.get("clients") else { return };
    listing.lists_processes();
    for client in clients.values().filter_map(Value::as_object) {
        process_values([client], listing, client.get("memory").and_then(intel_memory));
    }
}

/// Returns the memory of a client of intel_gpu_top: on the card, or without any, of the host.
fn intel_memory(regions: &Value) -> Option<String> {
    let amount = |region: &Value| -> Option<u64> {
        let amount = ["resident", "total"].iter().find_map(|name| region.get(*name));
        scalar(amount?)?.parse().ok()
    };
    let regions = regions.as_object()?;
    let is_listed = |kind: &&str| regions.keys().any(|name| name.starts_with(*kind));
    let kind = ["local", "system"].into_iter().find(is_listed)?;
    let mut of_kind = regions.iter().filter(|(name, _)| name.starts_with(kind));
    let sum = of_kind.try_fold(0_u64, |sum, (_, region)| sum.checked_add(amount(region)?))?;
    Some(format!("{sum} B"))
}

/// Reads a device of a sample of amdgpu_top; `position` distinguishes devices without an address.
fn amdgpu_top(device: &Map<String, Value>, position: &str, listing: &mut Listing) {
    let path = device.get("Info").and_then(|info| info.get("DevicePath"));
    amdgpu_device(path.and_then(Value::as_object).unwrap_or(device), position, listing);
    for (name, value) in device {
        match value {
            Value::Object(processes) if name == "fdinfo" => {
                listing.lists_processes();
                for (pid, process) in processes {
                    let usage = process.get("usage");
                    let usage = usage.and_then(|usage| usage.get("usage")).or(usage);
                    // Older versions print `name (7)`.
                    let pid = pid.rsplit('(').next().unwrap_or(pid).trim_end_matches(')');
                    listing.start_own_process();
                    listing.process_value("pid", pid);
                    for (from, name) in [(Some(process), "name"), (usage, "VRAM")] {
                        let value = from.and_then(|from| scalar(from.get(name)?));
                        listing.process_value(name, &value.unwrap_or_default());
                    }
                    listing.end_process();
                }
            }
            _ if matches!(name.as_str(), "Info" | "Sensors" | "VRAM" | "gpu_activity") => {
                field(name, value, None, listing);
            }
            _ => {}
        }
    }
}

/// Makes the device with these numbers and names the current one.
fn amdgpu_device(path: &Map<String, Value>, position: &str, listing: &mut Listing) {
    let text = |name: &str| path.get(name).and_then(Value::as_str);
    let bus = text("pci").filter(|bus| bus.len() <= 32);
    listing.device(Key::Bus(bus.unwrap_or(position).to_owned()));
    listing.value(None, "PCI bus", bus.unwrap_or_default());
    listing.value(None, "Device name", text("DeviceName").unwrap_or_default());
}
