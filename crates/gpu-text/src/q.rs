//! `nvidia-smi -q`: sections by indentation, leaves as `Key : Value`.

use crate::document::{Document, Kind};
use crate::field;
use crate::report::Report;
use crate::text::Text;
use gpu_core::PciBusId;

/// Parses the log, whole or limited to the parts selected with `-d`.
pub(crate) fn parse(text: &Text) -> Document {
    let mut reader = Reader {
        report: Report::new(Kind::Q),
        margin: margin(text),
        indents: Vec::new(),
        path: Vec::new(),
        device: 0,
        above: None,
        flat: false,
    };
    let ended = text.as_str().ends_with(['\n', '\r']);
    let mut lines = text.lines().peekable();
    while let Some((number, line)) = lines.next() {
        reader.line(number, line, !ended && lines.peek().is_none());
    }
    reader.report.finish()
}

/// Returns the length of the prefix that all lines share: the prefix of another log, or a comment
/// mark.
fn margin(text: &Text) -> usize {
    const TOP: [&str; 4] =
        ["======NVSMI LOG", "Timestamp  ", "Driver Version  ", "Attached GPUs  "];
    text.lines()
        .filter(|(_, line)| line.len() > 12)
        .find_map(|(_, line)| {
            let at = TOP.iter().find_map(|top| line.find(top))?;
            let (prefix, _) = line.split_at_checked(at)?;
            Some(prefix.trim_end_matches('=').chars().count())
        })
        .unwrap_or(0)
}

struct Reader {
    report: Report,
    margin: usize,
    /// The indentation of each open section.
    indents: Vec<usize>,
    /// The names of the open sections.
    path: Vec<String>,
    /// The indentation of the line that starts the device.
    device: usize,
    /// The indentation of the previous line, if it started a section.
    above: Option<usize>,
    /// Whether the text lost its indentation: a line below a section name is not indented further.
    flat: bool,
}

impl Reader {
    fn line(&mut self, number: usize, line: &str, last: bool) {
        let line = line.char_indices().nth(self.margin).and_then(|(at, _)| line.get(at..));
        let line = line.unwrap_or_default();
        let text = line.trim();
        if !text.contains(|c: char| c.is_ascii_alphanumeric()) || text.starts_with("==") {
            return;
        }
        let indent = line.chars().take_while(|c| c.is_whitespace()).count();
        if let Some(bus_id) = device(text).filter(|id| !last || id.parse::<PciBusId>().is_ok()) {
            self.report.device(bus_id);
            (self.device, self.above, self.flat) = (indent, Some(indent), false);
            self.close(0);
            self.open(indent, "gpu".to_owned());
            return;
        }
        if self.above.take().is_some_and(|above| indent <= above) {
            self.flat = true;
            if let [_, section, ..] = self.indents.as_mut_slice() {
                *section = self.device + 1;
            }
        }
        match leaf(text) {
            Some((_, value)) if last && !is_whole(value) => {
                self.report.unread(number, text, "the text ends in the middle of this value");
            }
            // An empty value is not a value: `Processes :` differs from `Processes : None`.
            Some((_, "")) => {}
            Some((key, value)) => {
                // Without indentation, leaves belong to the last named section.
                self.close(if self.flat { self.device + 2 } else { indent });
                self.report.leaf(&self.path, &name(key), value);
            }
            None => {
                self.above = Some(indent);
                let indent = if self.flat { self.device + 1 } else { indent };
                self.close(indent);
                self.open(indent, name(text));
            }
        }
    }

    fn open(&mut self, indent: usize, name: String) {
        self.report.section(&name);
        self.indents.push(indent);
        self.path.push(name);
    }

    /// Closes the sections that are indented by `indent` or more.
    fn close(&mut self, indent: usize) {
        let kept = self.indents.iter().take_while(|open| **open < indent).count();
        self.indents.truncate(kept);
        self.path.truncate(kept);
    }
}

/// Parses the line that starts a device: `GPU 00000000:01:00.0`, in the oldest logs `GPU 0:1:0`, in
/// some posts `GPU 0000:xx:00.0`.
fn device(text: &str) -> Option<&str> {
    let bus_id = text.strip_prefix("GPU ")?.trim();
    let address = bus_id.trim_end_matches(':').contains(':');
    (address && !bus_id.contains(char::is_whitespace)).then_some(bus_id)
}

/// Splits `Key : Value` at the first colon with blanks around it; a line without one names a
/// section. A colon without a blank before it counts too, because pastes may lose the gap.
fn leaf(text: &str) -> Option<(&str, &str)> {
    let blank = |c: Option<char>| c.is_none_or(char::is_whitespace);
    let colon = text
        .match_indices(':')
        .map(|(at, _)| text.split_at(at))
        .find(|(key, rest)| blank(key.chars().next_back()) && blank(rest.chars().nth(1)));
    let (key, rest) = colon.or_else(|| text.find(": ").map(|at| text.split_at(at)))?;
    Some((key.trim(), rest.get(1..)?.trim()))
}

/// Converts a key into the form of XML's element names.
fn name(key: &str) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
    key.chars().take(100).map(letter).collect()
}

/// Returns whether a value at the very end of a text is complete: a number is complete only with
/// its unit, and a name may continue.
fn is_whole(value: &str) -> bool {
    let unit = [" MiB", " MB", " W", " %", " C"].iter().any(|unit| {
        let number = value.strip_suffix(unit);
        number.is_some_and(|number| number.bytes().all(|b| matches!(b, b'0'..=b'9' | b'.' | b'-')))
    });
    unit || field::absent(value).is_some() || field::switch(value).is_ok_and(|_| value.len() > 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::clean;
    use gpu_core::Absent;

    fn read(text: &str) -> Document {
        parse(&clean(text.as_bytes()))
    }

    const LOG: &str = "\
==============NVSMI LOG==============

Timestamp                        : Mon Jan  1 00:00:00 2024
Driver Version                   : 610.1 [Deprecated; use KMD Version]
CUDA Version                     : 13.3
KMD Version                      : 610.1

Attached GPUs                    : 2
GPU 00000000:0A:00.0
    Product Name                 : Example 9000
    Display Active               : Disabled
    Persistence Mode             : Enabled
    MIG Mode
        Current                  : Enabled
        Pending                  : Disabled
    MIG Device
        Index                    : 1
        GPU Instance ID          : 7
        Compute Instance ID      : 0
        Device Attributes
            Shared
                Copy Engine count : 1
        Shared FB Memory Usage
            Total                : 9000 MiB
            Used                 : 13 MiB
        Shared BAR1 Memory
            Total                : 16000 MiB
    GPU UUID                     : GPU-00000000-1111-2222-3333-444444444444
    Minor Number                 : 5
    PCI
        Bus Id                   : 00000000:0A:00.0
    FB Memory Usage
        Total                    : 40000 MiB
        Reserved                 : 600 MiB
        Used                     : 2000 MiB
    BAR1 Memory Usage
        Total                    : 256 MiB
        Used                     : 2 MiB
    Utilization
        Gpu                      : 37 %
        Memory                   : 10 %
    GPU Utilization Samples
        Max                      : 15 %
    Temperature
        GPU Current Temp         : 36 C
        Memory Current Temp      : 41 C
    GPU Power Readings
        Average Power Draw       : N/A
        Instantaneous Power Draw : 97.75 W
        GPU Ceiling Power Limit
            Current Power Limit  : 250.00 W
        Max Power Limit          : 350.00 W
    Module Power Readings
        Average Power Draw       : 900.00 W
        Current Power Limit      : 999.00 W
    Processes
        GPU instance ID          : 7
        Compute instance ID      : 0
        Process ID               : 4711
            Type                 : C
            Name                 : C:\\Program Files\\a : b.exe
            Used GPU Memory      : Not available in WDDM driver model
        GPU instance ID          : N/A
        Compute instance ID      : N/A
        Process ID               : 4712
            Type                 : M+C
            Name                 : [Not Found]
            Used GPU Memory      : 77 MiB

GPU 00000000:0B:00.0
    Product Name                 : Example 9000
    FB Memory Usage              : N/A
    Utilization
        Gpu                      : GPU is lost
    Temperature
        Gpu                      : ERR!
    Power Readings
        Power Draw               : [Unknown Error]
        Power Limit              : 120.00 W
        Enforced Power Limit     : 100.00 W
    Accounted Processes
        Process ID               : 13
    Processes                    : None
";

    #[test]
    fn full_device_is_parsed() {
        let document = read(LOG);
        assert_eq!(document.driver_version.as_deref(), Some("610.1"));
        assert_eq!(document.cuda_version.as_deref(), Some("13.3"));
        let gpu = &document.gpus[0];
        assert_eq!((gpu.index, gpu.minor), (Some(0), Some(5)));
        assert_eq!(gpu.name.as_deref(), Some("Example 9000"));
        assert_eq!(gpu.bus_id.as_deref(), Some("00000000:0A:00.0"));
        assert!(gpu.uuid.as_deref().is_some_and(|uuid| uuid.ends_with("444")));
        assert_eq!((gpu.memory_used_mib, gpu.memory_total_mib), (Ok(2000), Ok(40_000)));
        assert_eq!(gpu.memory_reserved_mib, Ok(600));
        assert_eq!((gpu.utilization_percent, gpu.temperature_c), (Ok(37), Ok(36)));
        assert_eq!((gpu.power_draw_w, gpu.power_limit_w), (Ok(97.75), Ok(250.0)));
        assert_eq!((gpu.persistence, gpu.display_active), (Ok(true), Ok(false)));
        assert_eq!(gpu.mig_enabled, Ok(true));
    }

    #[test]
    fn absences_keep_their_reasons() {
        let gpu = &read(LOG).gpus[1];
        assert_eq!(gpu.memory_total_mib, Err(Absent::NotSupported));
        assert_eq!(gpu.utilization_percent, Err(Absent::DeviceLost));
        assert_eq!(gpu.temperature_c, Err(Absent::Failed));
        assert_eq!(gpu.power_draw_w, Err(Absent::Failed));
        assert_eq!(gpu.power_limit_w, Ok(120.0));
        assert_eq!(gpu.persistence, Err(Absent::NotRecorded));
    }

    #[test]
    fn mig_devices_and_processes_are_parsed() {
        let document = read(LOG);
        let [mig] = document.mig_devices.as_slice() else { panic!("one MIG device") };
        assert_eq!(
            (mig.gpu_index, mig.mig_index, mig.gpu_instance_id),
            (Some(0), Some(1), Some(7))
        );
        assert_eq!((mig.memory_used_mib, mig.memory_total_mib), (Ok(13), Ok(9000)));
        let processes = document.processes.unwrap();
        let [first, second] = processes.as_slice() else { panic!("{processes:?}") };
        assert_eq!((first.pid, first.gpu_instance_id), (Some(4711), Some(7)));
        assert_eq!(first.name.as_deref(), Some("C:\\Program Files\\a : b.exe"));
        assert_eq!(first.memory_mib, Err(Absent::NotSupported));
        assert_eq!((second.pid, second.gpu_instance_id), (Some(4712), None));
        assert_eq!(second.name.as_deref(), Some("[Not Found]"));
        assert_eq!((second.memory_mib, second.gpu_index), (Ok(77), Some(0)));
    }

    #[test]
    fn empty_and_missing_process_lists_differ() {
        let log =
            |value: &str| read(&format!("GPU 0000:01:00.0\n    Compute Processes : {value}\n"));
        assert_eq!(log("None").processes, Some(Vec::new()));
        assert_eq!(log("N/A").processes, None);
        assert_eq!(log("").processes, None);
        assert_eq!(read("GPU 0000:01:00.0\n").processes, None);
    }

    #[test]
    fn log_without_indentation_or_beginning_is_parsed() {
        let flat: String = LOG.lines().map(|line| format!("{}\n", line.trim())).collect();
        let (flat, log) = (read(&flat), read(LOG));
        assert_eq!(flat.gpus, log.gpus);
        assert_eq!(flat.processes, log.processes);
        let (_, rest) = LOG.split_once("GPU 00000000:0A:00.0\n").unwrap();
        assert_eq!(read(rest).gpus[0].memory_used_mib, Ok(2000));
        assert_eq!(read(rest).gpus.len(), 2);
        let tabs = LOG.replace("    ", "\t");
        assert_eq!(read(&tabs).gpus, log.gpus);
        let narrow: String = LOG
            .lines()
            .map(|line| {
                let blank = if line.starts_with(' ') { " " } else { "" };
                format!("{blank}{}\n", line.split_whitespace().collect::<Vec<_>>().join(" "))
            })
            .collect();
        assert_eq!(read(&narrow).gpus, log.gpus);
        assert_eq!(read(&narrow).processes, log.processes);
    }

    #[test]
    fn log_prefix_is_skipped() {
        for prefix in ["# ", "job-1 | ", "2024-01-01T00:00:00Z host x[1]: ", "\t"] {
            let log: String = LOG.lines().map(|line| format!("{prefix}{line}\n")).collect();
            assert_eq!(read(&log), read(LOG), "{prefix}");
        }
    }

    #[test]
    fn truncated_value_is_absent() {
        for cut in ["Total : 8", "Total : 81", "Total : 81559 Mi", "Total"] {
            let log = read(&format!("GPU 0000:01:00.0\n    FB Memory Usage\n        {cut}"));
            assert!(log.gpus[0].memory_total_mib.is_err(), "{cut}");
        }
        let log = read("GPU 0000:01:00.0\n    Processes\n        Process ID : 74");
        assert_eq!((log.processes, log.unread.len()), (None, 1));
        let log = read("GPU 0000:01:00.0\n    Product Name : Tesla C");
        assert_eq!((log.gpus[0].name.as_ref(), log.unread.len()), (None, 1));
        let log = read("GPU 0000:01:00.0\n    FB Memory Usage\n        Used : 7 MiB");
        assert_eq!(log.gpus[0].memory_used_mib, Ok(7));
    }

    #[test]
    fn keys_of_every_driver_are_read() {
        let gpu = |section: &str, key: &str, value: &str| {
            let log = format!("GPU 0000:01:00.0\n    {section}\n        {key} : {value}\n");
            read(&log).gpus[0].clone()
        };
        for section in ["FB Memory Usage", "Memory Usage"] {
            assert_eq!(gpu(section, "Total", "7 MiB").memory_total_mib, Ok(7), "{section}");
            assert_eq!(gpu(section, "Used", "7 MB").memory_used_mib, Ok(7), "{section}");
            assert_eq!(gpu(section, "Reserved", "7 MiB").memory_reserved_mib, Ok(7), "{section}");
        }
        assert!(gpu("BAR1 Memory Usage", "Total", "7 MiB").memory_total_mib.is_err());
        for key in ["Gpu", "GPU Current Temp", "GPU Temp"] {
            assert_eq!(gpu("Temperature", key, "50 C").temperature_c, Ok(50), "{key}");
        }
        assert!(gpu("Temperature", "Memory Current Temp", "50 C").temperature_c.is_err());
        for key in ["Gpu", "GPU Util"] {
            assert_eq!(gpu("Utilization", key, "5 %").utilization_percent, Ok(5), "{key}");
        }
        for section in ["Power Readings", "GPU Power Readings"] {
            for key in [
                "Power Draw",
                "Average Power Draw",
                "Instant Power Draw",
                "Instantaneous Power Draw",
            ] {
                assert_eq!(gpu(section, key, "5 W").power_draw_w, Ok(5.0), "{section}, {key}");
            }
            for key in ["Power Limit", "Current Power Limit", "Enforced Power Limit"] {
                assert_eq!(gpu(section, key, "5 W").power_limit_w, Ok(5.0), "{section}, {key}");
            }
        }
        assert!(gpu("Module Power Readings", "Power Limit", "5 W").power_limit_w.is_err());
        assert_eq!(gpu("MIG Mode", "Current", "Enabled").mig_enabled, Ok(true));
        assert!(gpu("MIG Mode", "Pending", "Enabled").mig_enabled.is_err());
        assert!(gpu("PCI", "Bus", "0x01").bus_id.is_some_and(|id| id == "0000:01:00.0"));
    }

    #[test]
    fn absent_section_makes_its_values_absent() {
        let gpu = |key: &str| read(&format!("GPU 0000:01:00.0\n    {key} : N/A\n")).gpus[0].clone();
        let none = Err(Absent::NotSupported);
        for key in ["FB Memory Usage", "Memory Usage"] {
            let gpu = gpu(key);
            assert_eq!(
                [gpu.memory_total_mib, gpu.memory_used_mib, gpu.memory_reserved_mib],
                [none; 3]
            );
        }
        assert_eq!(gpu("Utilization").utilization_percent, none);
        assert_eq!(gpu("Temperature").temperature_c, Err(Absent::NotSupported));
        assert_eq!(gpu("MIG Mode").mig_enabled, Err(Absent::NotSupported));
        for key in ["Power Readings", "GPU Power Readings"] {
            let gpu = gpu(key);
            assert_eq!([gpu.power_draw_w, gpu.power_limit_w], [Err(Absent::NotSupported); 2]);
        }
    }

    #[test]
    fn first_power_value_counts_unless_it_is_absent() {
        let limit = |first: &str, second: &str| {
            let log = format!(
                "GPU 0000:01:00.0\n    Power Readings\n        Power Limit : {first}\n        \
                Enforced Power Limit : {second}\n"
            );
            read(&log).gpus[0].power_limit_w
        };
        for (first, second, want) in [
            ("5 W", "6 W", Ok(5.0)),
            ("N/A", "6 W", Ok(6.0)),
            ("ERR!", "6 W", Ok(6.0)),
            ("ERR!", "N/A", Err(Absent::Failed)),
            ("N/A", "ERR!", Err(Absent::Failed)),
            ("5 W", "N/A", Ok(5.0)),
            ("5", "6 W", Ok(6.0)),
        ] {
            assert_eq!(limit(first, second), want, "{first} {second}");
        }
    }

    #[test]
    fn version_is_numbers_with_a_point() {
        let version = |value: &str| {
            read(&format!("Driver Version : {value}\nGPU 0000:01:00.0\n")).driver_version
        };
        for (value, want) in [
            ("610.1 [Deprecated]", Some("610.1")),
            ("610", None),
            (".610", None),
            ("610.", None),
            ("N/A", None),
        ] {
            assert_eq!(version(value).as_deref(), want, "{value}");
        }
        let log =
            "KMD Version : 1.1\nDriver Version : 2.2\nCUDA UMD Version : 3.3\nCUDA Version : 4.4\n";
        let document = read(log);
        assert_eq!(document.driver_version.as_deref(), Some("1.1"));
        assert_eq!(document.cuda_version.as_deref(), Some("3.3"));
    }

    #[test]
    fn value_cut_at_end_of_text_counts_if_it_is_whole() {
        let of = |section: &str, value: &str| {
            let log = format!("GPU 0000:01:00.0\n    {section} : {value}");
            let document = read(&log);
            (document.gpus[0].clone(), document.unread.len())
        };
        for (section, value, unread) in [
            ("Persistence Mode", "Enabled", 0),
            ("Persistence Mode", "Enable", 1),
            ("Minor Number", "1", 1),
            ("Utilization", "5 %", 0),
            ("Temperature", "5 C", 0),
            ("Utilization", "N/A", 0),
            ("Product Name", "A MiB", 1),
        ] {
            assert_eq!(of(section, value).1, unread, "{section} {value}");
        }
        for (line, gpus) in
            [("GPU 0000:01:00.0", 1), ("GPU 0000:01:00", 0), ("GPU 0000:01 :", 0), ("GPU word", 0)]
        {
            assert_eq!(read(line).gpus.len(), gpus, "{line}");
        }
    }

    #[test]
    fn leaves_belong_to_innermost_open_section() {
        let log = "GPU 0000:01:00.0\n    MIG Device\n        Index : 1\n        UUID : MIG-a\n    \
            UUID : GPU-a\n    Minor Number : 5\n    Processes\n        Process ID : 7\n            \
            Type : C\n    Accounted Processes\n        Process ID : 8\n    Display Active : Enabled\n";
        let document = read(log);
        assert_eq!(document.mig_devices[0].uuid.as_deref(), Some("MIG-a"));
        let gpu = &document.gpus[0];
        assert_eq!((gpu.uuid.as_deref(), gpu.minor), (Some("GPU-a"), Some(5)));
        assert_eq!(gpu.display_active, Ok(true));
        let processes = document.processes.unwrap();
        assert_eq!((processes.len(), processes[0].pid), (1, Some(7)));
        assert_eq!(processes[0].type_.as_deref(), Some("C"));
        assert_eq!(processes[0].gpu_uuid.as_deref(), Some("GPU-a"));
        let old = read(
            "GPU 0000:01:00.0\n    Compute Processes\n        Process ID : 7\n            Used Memory : 5 MiB\n",
        );
        assert_eq!(old.processes.unwrap()[0].memory_mib, Ok(5));
    }

    #[test]
    fn instance_ids_belong_only_to_next_process() {
        let ids = |gi: &str, ci: &str| {
            format!("        GPU instance ID : {gi}\n        Compute instance ID : {ci}\n")
        };
        let process = |pid: u32| format!("        Process ID : {pid}\n");
        let log = format!(
            "GPU 0000:01:00.0\n    Processes\n{}{}{}{}{}GPU 0000:02:00.0\n    Processes\n{}",
            ids("3", "1"),
            process(7),
            process(8),
            ids("4", "2"),
            "        GPU instance ID : 5\n",
            process(9)
        );
        let of = |document: Document| -> Vec<_> {
            let processes = document.processes.unwrap().into_iter();
            processes
                .map(|p| (p.pid, p.gpu_instance_id, p.compute_instance_id, p.gpu_index))
                .collect()
        };
        assert_eq!(
            of(read(&log)),
            [
                (Some(7), Some(3), Some(1), Some(0)),
                (Some(8), None, None, Some(0)),
                (Some(9), None, None, Some(1)),
            ]
        );
        let log = format!(
            "GPU 0000:01:00.0\n    Processes\n{}        GPU instance ID : 5\n{}",
            ids("4", "2"),
            process(9)
        );
        assert_eq!(of(read(&log)), [(Some(9), Some(5), None, Some(0))]);
    }
}
