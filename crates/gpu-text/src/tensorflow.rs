//! TensorFlow's log of the devices at start-up.
//!
//! Version 1 prints `Found device 0 with properties`, lines of `key: value` pairs, and a matrix
//! `DMA: 0 1 2 …` of `Y` and `N`; later versions print `edge matrix` without that word. The
//! properties of one device are consecutive, so they belong to the last named device.

use crate::document::{Document, Gpu, Kind, LogicalDevice, TensorFlowDevice, Topology};
use crate::field;
use crate::text::Text;
use std::collections::BTreeMap;

/// The maximum number of devices.
const MAX_DEVICES: usize = 256;

/// Returns whether a line belongs to such a log.
pub(crate) fn is_row(line: &str) -> bool {
    let line = message(line);
    found(line).is_some() || created(line).is_some() || is_matrix(line)
}

/// Parses the log.
pub(crate) fn parse(text: &Text) -> Document {
    let mut document = Document::new(Kind::Topo);
    let mut gpus: BTreeMap<u32, Gpu> = BTreeMap::new();
    let mut topology: Option<Topology> = None;
    let mut current = None;
    let mut in_matrix = false;
    for (number, line) in text.lines() {
        let line = message(line);
        if line.is_empty() || line == "Device peer to peer matrix" {
            continue;
        }
        if let Some(index) = found(line).filter(|_| gpus.len() < MAX_DEVICES) {
            gpus.entry(index).or_insert_with(|| Gpu { index: Some(index), ..Gpu::default() });
            (current, in_matrix) = (Some(index), false);
        } else if let Some(created) = created(line) {
            if gpus.len() >= MAX_DEVICES && !gpus.contains_key(&created.index) {
                document.note_unread(number, line, "device limit exceeded");
                continue;
            }
            let gpu = gpus.entry(created.index).or_default();
            gpu.index = Some(created.index);
            gpu.name = gpu.name.take().or_else(|| field::text(created.name));
            gpu.bus_id = gpu.bus_id.take().or_else(|| field::text(created.bus_id));
            created.note(gpu.tensorflow.get_or_insert_default());
            (current, in_matrix) = (None, false);
        } else if is_matrix(line) {
            (current, in_matrix) = (None, true);
            // A repeated matrix has the same content.
            let matrix = topology.get_or_insert_default();
            matrix.columns.clear();
            if line.starts_with("DMA:") {
                matrix.columns.extend(columns(line));
            }
        } else if let Some(topology) = topology.as_mut().filter(|_| in_matrix) {
            if !read_matrix(line, topology) {
                in_matrix = false;
                document.note_unread(number, line, "not a row of the matrix");
            }
        } else if let Some(gpu) = current.and_then(|index| gpus.get_mut(&index)) {
            if !read_properties(line, gpu) {
                document.note_unread(number, line, "not a device property");
            }
        } else {
            document.note_unread(number, line, "contains no device data");
        }
    }
    document.gpus = gpus.into_values().collect();
    for gpu in &mut document.gpus {
        let free = gpu.tensorflow.as_ref().and_then(|device| device.memory_free_mib);
        if let (Ok(total), Some(free)) = (gpu.memory_total_mib, free) {
            gpu.memory_used_mib = Ok(total.saturating_sub(free));
        }
    }
    document.topology = topology;
    document
}

/// Removes the time and the source location from a log line.
pub(crate) fn message(line: &str) -> &str {
    let line = line.trim();
    match line.split_once(".cc:") {
        Some((_, rest)) => rest.split_once(']').map_or(line, |(_, message)| message.trim()),
        None => line,
    }
}

/// Parses `Found device 0 with properties:`.
fn found(line: &str) -> Option<u32> {
    let rest = line.strip_prefix("Found device ")?;
    let (index, rest) = rest.split_once(' ')?;
    rest.starts_with("with properties").then(|| index.parse().ok())?
}

/// A line that assigns a device of TensorFlow to a GPU.
struct Created<'a> {
    index: u32,
    name: &'a str,
    bus_id: &'a str,
    capability: Option<&'a str>,
    logical: Option<LogicalDevice>,
}

impl Created<'_> {
    fn note(self, device: &mut TensorFlowDevice) {
        let capability = self.capability.and_then(field::text);
        device.compute_capability = device.compute_capability.take().or(capability);
        let known = &mut device.logical_devices;
        let new = self.logical.filter(|new| known.iter().all(|known| known.name != new.name));
        known.extend(new.filter(|_| known.len() < MAX_DEVICES));
    }
}

/// Parses `Created TensorFlow device (/device:GPU:0 with 10413 MB memory) -> physical GPU (device:
/// 0, name: …, pci bus id: …, compute capability: …)`. From version 2.5 on it begins with `Created
/// device /job:…` and has no parentheses; version 0 prints no memory.
fn created(line: &str) -> Option<Created<'_>> {
    let (head, rest) = line.split_once("device: ")?;
    let head = head.split_once("Created ").or_else(|| head.split_once("Creating "))?.1;
    let head = match head.strip_prefix("TensorFlow device (") {
        Some(head) => head,
        None => head.strip_prefix("device ").filter(|head| head.starts_with('/'))?,
    };
    let (index, rest) = rest.split_once(", name: ")?;
    let (name, rest) = rest.split_once(", pci bus id: ")?;
    let mut rest = rest.split([',', ')']);
    let logical = head.split([' ', ')']).next().filter(|name| name.starts_with('/'));
    let memory = head.split_once(" with ").and_then(|(_, memory)| memory.split_once(" MB"));
    Some(Created {
        index: index.trim().parse().ok()?,
        name,
        bus_id: rest.next()?,
        capability: rest.next().and_then(|rest| rest.trim().strip_prefix("compute capability: ")),
        logical: logical.and_then(field::identifier).map(|name| LogicalDevice {
            name,
            memory_mib: memory.and_then(|(memory, _)| memory.parse().ok()),
        }),
    })
}

fn is_matrix(line: &str) -> bool {
    line.starts_with("DMA:") || (line.starts_with("Device interconnect") && line.contains("matrix"))
}

/// Parses the column numbers of the matrix, after `DMA:` or in a separate line.
fn columns(line: &str) -> impl Iterator<Item = String> {
    let numbers = line.strip_prefix("DMA:").unwrap_or(line).split_whitespace();
    numbers.filter_map(|word| word.parse().ok()).map(device_name).take(MAX_DEVICES)
}

fn device_name(index: u32) -> String {
    format!("GPU{index}")
}

/// Parses a row `0:   Y Y N N`, or the line of column numbers; returns whether the line was either.
fn read_matrix(line: &str, topology: &mut Topology) -> bool {
    let Some((row, cells)) = line.split_once(':') else {
        let numbers: Option<Vec<u32>> = line.split_whitespace().map(|n| n.parse().ok()).collect();
        let is_header = topology.columns.is_empty() && numbers.is_some();
        topology.columns.extend(columns(if is_header { line } else { "" }));
        return is_header;
    };
    let Ok(row) = row.trim().parse() else { return false };
    let cells: Vec<&str> = cells.split_whitespace().collect();
    let fits = !cells.is_empty()
        && cells.len() <= topology.columns.len()
        && topology.matrix.len() < MAX_DEVICES
        && cells.iter().all(|cell| matches!(*cell, "Y" | "N"));
    if fits {
        let cells = cells.into_iter().map(|cell| Some(cell.to_owned()));
        let row_of_names = topology.columns.iter().cloned().zip(cells).collect();
        topology.matrix.insert(device_name(row), row_of_names);
    }
    fits
}

/// The prefixes of a property, in all versions.
const KEYS: &[&str] = &[
    "name:",
    "major:",
    "minor:",
    "memoryClockRate",
    "pciBusID",
    "totalMemory:",
    "Total memory:",
    "freeMemory:",
    "Free memory:",
    "computeCapability:",
    "coreClock:",
    "coreCount:",
    "deviceMemorySize:",
    "deviceMemoryBandwidth:",
];

/// Parses `key: value key: value`; returns whether the line has such a pair.
fn read_properties(line: &str, gpu: &mut Gpu) -> bool {
    let mut starts: Vec<(usize, &str)> =
        KEYS.iter().filter_map(|key| Some((line.find(key)?, *key))).collect();
    starts.sort_unstable();
    let device = gpu.tensorflow.get_or_insert_default();
    for (at, (start, key)) in starts.iter().enumerate() {
        let end = starts.get(at + 1).map_or(line.len(), |(next, _)| *next);
        let value = line.get(start + key.len()..end).unwrap_or_default();
        let value = value.trim_start_matches(':').trim();
        match *key {
            "name:" => gpu.name = field::text(value),
            "pciBusID" => gpu.bus_id = field::text(value),
            "totalMemory:" | "Total memory:" | "deviceMemorySize:" => {
                gpu.memory_total_mib = field::mib(value);
            }
            "freeMemory:" | "Free memory:" => device.memory_free_mib = field::mib(value).ok(),
            "major:" | "computeCapability:" => device.compute_capability = field::text(value),
            "minor:" => {
                let major = device.compute_capability.take();
                let both = major.zip(field::text(value));
                device.compute_capability = both.map(|(major, minor)| format!("{major}.{minor}"));
            }
            "memoryClockRate" | "coreClock:" => device.clock_mhz = mhz(value),
            _ => {}
        }
    }
    !starts.is_empty()
}

/// Parses a clock in GHz, in MHz: `(GHz): 1.582`, `(GHz) 0.8235`, `1.6GHz`.
fn mhz(value: &str) -> Option<u64> {
    let number = value.trim_start_matches("(GHz)").trim_start_matches(':').trim();
    let ghz: f64 = number.trim_end_matches("GHz").parse().ok()?;
    (0.0..=100.0).contains(&ghz).then(|| (ghz * 1000.0).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::clean;
    use proptest::prelude::*;

    fn of(text: &str) -> Document {
        parse(&clean(text.as_bytes()))
    }

    const LOG: &str = "2020-01-01 00:00:00.000000: I some/gpu_device.cc:1] Found device 1 with properties: \n\
        name: Test 1080 major: 6 minor: 1 memoryClockRate(GHz): 1.5\n\
        pciBusID: 0000:05:00.0\ntotalMemory: 10.92GiB freeMemory: 10.76GiB\n\
        I some/gpu_device.cc:2] DMA: 0 1 \n\
        I some/gpu_device.cc:3] 0:   Y N \n\
        I some/gpu_device.cc:3] 1:   N Y \n\
        I some/gpu_device.cc:4] Creating TensorFlow device (/device:GPU:0) -> \
        (device: 0, name: Test 980, pci bus id: 0000:04:00.0, compute capability: 5.2)\n";

    #[test]
    fn version_1_devices_and_matrix_are_parsed() {
        let document = of(LOG);
        let gpus: Vec<_> =
            document.gpus.iter().map(|gpu| (gpu.index, gpu.name.as_deref())).collect();
        assert_eq!(gpus, [(Some(0), Some("Test 980")), (Some(1), Some("Test 1080"))]);
        assert_eq!(document.gpus[1].bus_id.as_deref(), Some("0000:05:00.0"));
        assert_eq!(document.gpus[1].memory_total_mib, Ok(11_182));
        assert_eq!(document.gpus[1].memory_used_mib, Ok(164), "total - free");
        let start = document.gpus[1].tensorflow.as_ref().unwrap();
        assert_eq!((start.clock_mhz, start.memory_free_mib), (Some(1_500), Some(11_018)));
        assert_eq!(start.compute_capability.as_deref(), Some("6.1"));
        let start = document.gpus[0].tensorflow.as_ref().unwrap();
        assert_eq!(start.compute_capability.as_deref(), Some("5.2"));
        assert_eq!(start.logical_devices[0].name, "/device:GPU:0");
        let topology = document.topology.as_ref().unwrap();
        assert_eq!(topology.columns, ["GPU0", "GPU1"]);
        assert_eq!(topology.matrix["GPU1"]["GPU0"].as_deref(), Some("N"));
        assert_eq!(document.unread, []);
        assert!(LOG.lines().any(is_row));
    }

    #[test]
    fn older_and_newer_versions_are_parsed() {
        let document = of("Found device 0 with properties: \nname: Test K80\n\
            major: 3 minor: 7 memoryClockRate (GHz) 0.8\npciBusID 0000:06:00.0\n\
            Total memory: 11.17GiB\nFree memory: 11.1GiB\n\
            x.cc:1] Device interconnect StreamExecutor with strength 1 edge matrix:\n\
            x.cc:1]      0 1 \nx.cc:1] 0:   N Y \nx.cc:1] 1:   Y N \n\
            x.cc:1] Found device 1 with properties: \n\
            pciBusID: 0000:07:00.0 name: Test 3090 computeCapability: 8.6\n\
            coreClock: 1.6GHz coreCount: 82 deviceMemorySize: 23.70GiB deviceMemoryBandwidth: 871GiB/s\n");
        assert_eq!(document.gpus[0].bus_id.as_deref(), Some("0000:06:00.0"));
        assert_eq!(document.gpus[1].name.as_deref(), Some("Test 3090"));
        assert_eq!(document.gpus[1].memory_total_mib, Ok(24_269));
        assert_eq!(document.topology.unwrap().matrix["GPU0"]["GPU1"].as_deref(), Some("Y"));
        assert_eq!(document.unread, []);
    }

    #[test]
    fn logical_devices_are_those_of_their_gpu() {
        let line = |logical: &str, mb: u32, gpu: u32| {
            format!(
                "x.cc:1] Created TensorFlow device (/job:a/device:GPU:{logical} with {mb} MB memory) \
                 -> physical GPU (device: {gpu}, name: Test P4, pci bus id: 0000:0{gpu}:00.0, \
                 compute capability: 6.1)\n"
            )
        };
        let new = "x.cc:1] Created device /job:a/device:GPU:2 with 700 MB memory:  -> device: 3, \
                   name: Test A2, pci bus id: 0000:03:00.0, compute capability: 8.6\n";
        let text = [line("0", 500, 1), line("1", 600, 1), line("1", 600, 1), new.into()].concat();
        let document = of(&text);
        let devices = |at: usize| {
            let device = document.gpus[at].tensorflow.as_ref().unwrap();
            let devices = device.logical_devices.iter();
            devices.map(|one| (one.name.as_str(), one.memory_mib.unwrap())).collect::<Vec<_>>()
        };
        assert_eq!(devices(0), [("/job:a/device:GPU:0", 500), ("/job:a/device:GPU:1", 600)]);
        assert_eq!(devices(1), [("/job:a/device:GPU:2", 700)]);
        assert_eq!(document.gpus[1].name.as_deref(), Some("Test A2"));
        let capability = &document.gpus[1].tensorflow.as_ref().unwrap().compute_capability;
        assert_eq!((document.gpus[1].index, capability.as_deref()), (Some(3), Some("8.6")));
        assert!(document.unread.is_empty() && text.lines().all(is_row));
    }

    #[test]
    fn devices_are_bounded() {
        let line = |gpu: usize| {
            format!(
                "x.cc:1] Created device /x with 7 MB memory:  -> device: {gpu}, name: Test A2, pci \
                 bus id: 0000:03:00.0, compute capability: 8.6\n"
            )
        };
        let document = of(&(0..MAX_DEVICES + 3).map(line).collect::<String>());
        assert_eq!((document.gpus.len(), document.unread.len()), (MAX_DEVICES, 3));
    }

    #[test]
    fn clock_is_read_in_each_form() {
        for (text, want) in [
            ("(GHz): 1.582", Some(1_582)),
            ("(GHz) 0.8235", Some(824)),
            ("1.6GHz", Some(1_600)),
            ("fast", None),
            ("-1", None),
        ] {
            assert_eq!(mhz(text), want, "{text}");
        }
    }

    #[test]
    fn lines_of_the_log_are_recognised() {
        for (line, is) in [
            ("Found device 0 with properties: ", true),
            ("x.cc:1] Found device 0 with properties: ", true),
            ("Found device 0 without properties", false),
            ("Found device x with properties", false),
            ("x.cc:1 Found device 0 with properties", false),
            ("DMA: 0 1", true),
            ("Device interconnect StreamExecutor edge matrix:", true),
            ("Device interconnect", false),
            ("a matrix", false),
            ("Created TensorFlow device (device: 0, name: K, pci bus id: 1:0)", true),
            ("Created other device (device: 0, name: K, pci bus id: 1:0)", false),
            ("Created TensorFlow device (device: x, name: K, pci bus id: 1:0)", false),
        ] {
            assert_eq!(is_row(line), is, "{line}");
        }
    }

    #[test]
    fn lines_without_device_are_unread() {
        let document = of("name: stray\nDevice peer to peer matrix\n\
            Found device 0 with properties:\nnonsense\nname: K80\ndeviceMemorySize: 2.00GiB\n\
            DMA: 0 1\n0: Y N\n1: Y N Y\n\
            1: N Y\n");
        let unread: Vec<_> = document.unread.iter().map(|unread| unread.line).collect();
        assert_eq!(unread, [1, 4, 9, 10], "a matrix ends with a line that is no row");
        assert_eq!(document.gpus[0].name.as_deref(), Some("K80"));
        assert_eq!(document.gpus[0].memory_total_mib, Ok(2048));
        assert_eq!(document.topology.unwrap().matrix.len(), 1);
        for row in ["x: Y N", "0:", "0: Y X", "0 1 2"] {
            let document = of(&format!("DMA: 0 1\n{row}\n"));
            assert_eq!(document.unread.len(), 1, "{row}");
            assert!(document.topology.unwrap().matrix.is_empty());
        }
    }

    #[test]
    fn repeated_matrix_replaces_its_columns() {
        let matrix = "DMA: 0 1\n0: Y N\n1: N Y\n";
        let document = of(&format!("{matrix}{matrix}"));
        assert_eq!(document.topology.unwrap().columns, ["GPU0", "GPU1"]);
        let later = "Device interconnect with strength 1 edge matrix:\n0 1\n0: N Y\n1: Y N\n";
        let document = of(&format!("{later}{later}"));
        let topology = document.topology.unwrap();
        assert_eq!((topology.columns.len(), document.unread), (2, vec![]));
        assert_eq!(topology.matrix["GPU1"]["GPU0"].as_deref(), Some("Y"));
    }

    const PIECES: &[&str] = &[
        "Found device ",
        "with properties",
        "name: ",
        "x.cc:1] ",
        "DMA:",
        "0",
        "1",
        "9",
        " ",
        "Y",
        "N",
        ":",
        "totalMemory: ",
        "edge matrix",
        "\n",
    ];

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(pieces in prop::collection::vec(prop::sample::select(PIECES), 0..100)) {
            let text = pieces.concat();
            let document = of(&text);
            let filled = text.lines().filter(|line| !message(line).is_empty()).count();
            prop_assert!(document.unread.len() <= filled);
        }
    }
}
