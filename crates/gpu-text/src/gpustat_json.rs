//! The output of `gpustat --json`: one object with the machine and its devices.

use crate::document::{Document, Gpu, Kind, Process, keep};
use crate::text::Text;
use gpu_core::Absent;
use serde::Deserialize;

/// The number of lines from the start of the object within which its keys identify the program.
const HEAD: usize = 6;

/// The keys of the object, as gpustat 0.4 and later print it. Any of them may be missing.
#[derive(Deserialize)]
struct Machine {
    driver_version: Option<String>,
    gpus: Vec<Device>,
}

#[derive(Deserialize)]
struct Device {
    index: Option<u32>,
    uuid: Option<String>,
    name: Option<String>,
    #[serde(rename = "temperature.gpu")]
    temperature: Option<i64>,
    #[serde(rename = "utilization.gpu")]
    utilization: Option<u64>,
    #[serde(rename = "power.draw")]
    power_draw: Option<f64>,
    #[serde(rename = "enforced.power.limit")]
    power_limit: Option<f64>,
    #[serde(rename = "memory.used")]
    memory_used: Option<u64>,
    #[serde(rename = "memory.total")]
    memory_total: Option<u64>,
    /// Null if the driver lists none.
    processes: Option<Vec<Listed>>,
}

#[derive(Deserialize)]
struct Listed {
    username: Option<String>,
    command: Option<String>,
    gpu_memory_usage: Option<u64>,
    pid: Option<u32>,
}

/// Returns whether some line of a text starts the object.
pub(crate) fn is_within(text: &str) -> bool {
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if is_start(line.trim(), lines.clone()) {
            return true;
        }
    }
    false
}

/// Returns whether the object starts in a line; `following` are the lines after it.
pub(crate) fn is_start<'a>(line: &str, following: impl Iterator<Item = &'a str>) -> bool {
    if !line.starts_with('{') {
        return false;
    }
    let following: Vec<&str> = following.take(HEAD).collect();
    let has = |key: &str| line.contains(key) || following.iter().any(|line| line.contains(key));
    has("\"query_time\":") && has("\"gpus\":")
}

/// Parses the text; `None` if no line starts such an object.
pub(crate) fn parse(text: &Text) -> Option<Document> {
    let mut lines = text.lines();
    let (number, start) = loop {
        let (number, line) = lines.next()?;
        if is_start(line.trim(), lines.clone().map(|(_, line)| line)) {
            break (number, line);
        }
    };
    let mut document = Document::new(Kind::Gpustat);
    let offset = start.as_ptr() as usize - text.as_str().as_ptr() as usize;
    let json = text.as_str().get(offset..).unwrap_or_default();
    let mut objects = serde_json::Deserializer::from_str(json).into_iter::<Machine>();
    let Some(Ok(machine)) = objects.next() else {
        document.note_unread(number, start, "incomplete JSON of gpustat");
        return Some(document);
    };
    let end = offset + objects.byte_offset();
    for (number, line) in text.lines() {
        let at = line.as_ptr() as usize - text.as_str().as_ptr() as usize;
        if !(offset..end).contains(&at) && !line.trim().is_empty() {
            document.note_unread(number, line, "not part of the JSON of gpustat");
        }
    }
    document.driver_version = machine.driver_version;
    for device in machine.gpus {
        if !keep(&mut document.gpus, gpu(&device)) {
            document.note_unread(number, start, "row limit exceeded");
            break;
        }
        let Some(listed) = device.processes else { continue };
        document.listing.get_or_insert_default().extend(device.index);
        let all = document.processes.get_or_insert_default();
        let kept = listed.into_iter().all(|listed| keep(all, process(device.index, listed)));
        if !kept {
            document.note_unread(number, start, "row limit exceeded");
        }
    }
    Some(document)
}

fn gpu(device: &Device) -> Gpu {
    // An unresponsive device has an index, and an error as its name.
    let error = device.name.as_deref().filter(|name| name.starts_with('('));
    let lacks = match error {
        Some(name) if name.contains("lost") => Absent::DeviceLost,
        Some(_) => Absent::Failed,
        None => Absent::NotSupported,
    };
    Gpu {
        index: device.index,
        uuid: device.uuid.clone(),
        name: device.name.clone().filter(|_| error.is_none()),
        memory_used_mib: device.memory_used.ok_or(lacks),
        memory_total_mib: device.memory_total.ok_or(lacks),
        utilization_percent: device.utilization.ok_or(lacks),
        temperature_c: device.temperature.ok_or(lacks),
        power_draw_w: device.power_draw.ok_or(lacks),
        power_limit_w: device.power_limit.ok_or(lacks),
        ..Gpu::default()
    }
}

fn process(gpu_index: Option<u32>, listed: Listed) -> Process {
    Process {
        gpu_index,
        pid: listed.pid,
        user: listed.username,
        name: listed.command,
        memory_mib: listed.gpu_memory_usage.ok_or(Absent::NotSupported),
        ..Process::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Hint, sections, snapshot};
    use gpu_core::{Bytes, Pid, Timestamp};

    const JSON: &str = r#"{
    "hostname": "lab7",
    "driver_version": "550.54.14",
    "query_time": "2025-03-04T09:12:33.000123",
    "gpus": [
        {
            "index": 0,
            "uuid": "GPU-1",
            "name": "NVIDIA RTX A6000",
            "temperature.gpu": 41,
            "fan.speed": null,
            "utilization.gpu": 12,
            "power.draw": 70,
            "enforced.power.limit": 300,
            "memory.used": 9100,
            "memory.total": 49140,
            "processes": [
                {
                    "username": "ann",
                    "command": "python",
                    "full_command": ["python", "-c", "a\nprint('NVRM: Xid (PCI:0000:3b:00): 79')"],
                    "gpu_memory_usage": 8000,
                    "pid": 4711
                }
            ]
        },
        {
            "index": 1,
            "name": "(GPU is lost)",
            "processes": null
        }
    ]
}
"#;

    #[test]
    fn object_is_parsed_alone_and_on_one_line() {
        let one_line: String = JSON.lines().map(str::trim).collect();
        for text in [JSON, &one_line, &format!("$ gpustat --json\n{JSON}")] {
            let document = crate::parse(text.as_bytes(), &Hint::default()).unwrap();
            assert_eq!((document.kind, &document.unread[..]), (Kind::Gpustat, &[][..]), "{text}");
            assert_eq!(document.driver_version.as_deref(), Some("550.54.14"));
            let [first, second] = &document.gpus[..] else { panic!("{document:?}") };
            assert_eq!((first.memory_used_mib, first.memory_total_mib), (Ok(9100), Ok(49_140)));
            assert_eq!((first.temperature_c, first.power_limit_w), (Ok(41), Ok(300.0)));
            assert_eq!(second.memory_used_mib, Err(Absent::DeviceLost));
            let processes = document.processes.unwrap();
            let [listed] = &processes[..] else { panic!("{processes:?}") };
            assert_eq!((listed.gpu_index, listed.pid), (Some(0), Some(4711)));
            assert_eq!((listed.user.as_deref(), listed.memory_mib), (Some("ann"), Ok(8000)));
        }
    }

    #[test]
    fn object_is_one_part_of_paste() {
        let paste = format!("{JSON}/dev/nvidia0:   ann  4711 F...m python\n");
        let documents = sections(paste.as_bytes());
        assert_eq!(
            documents.iter().map(|it| it.kind).collect::<Vec<_>>(),
            [Kind::Gpustat, Kind::Fuser]
        );
        assert!(documents.iter().all(|document| document.driver_messages.is_empty()));
        assert_eq!(crate::moment(&documents, Timestamp(0)).to_string()[..10], *"2025-03-04");
        let now = snapshot(&documents, Timestamp(0));
        assert_eq!(now.devices[0].memory_listed(), Some(Bytes::from_mib(8000)));
        assert!(now.processes.contains_key(&Pid(4711)));
    }

    #[test]
    fn other_objects_are_rejected_and_broken_one_is_unread() {
        let parsed = |text: &str| crate::parse(text.as_bytes(), &Hint::default());
        assert!(parsed("{\n\"gpus\": []\n}\n").is_err());
        for broken in [&JSON[..JSON.len() / 2], &JSON.replace("9100", "-1")] {
            let document = parsed(broken).unwrap();
            assert_eq!((document.gpus.len(), document.unread.len()), (0, 1), "{broken}");
        }
    }
}
