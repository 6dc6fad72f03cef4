//! The values that are shown only on request: those of the second line of each device, and the load
//! of the host.

use gpu_core::{Absent, Bytes, DeviceDetails, Group, Groups, HostLoad, Percent, Reading};

/// Returns the groups of details that the second line shows. None of them waits for a measurement,
/// as the driver does for a throughput: the PCIe traffic follows from two counters.
pub fn groups() -> Groups {
    Groups::from_iter([Group::Activity, Group::Clocks, Group::Thermal, Group::Pcie])
}

/// The values of the second line of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct More {
    /// The clocks of the SMs and of the memory, in MHz.
    pub clocks: [Reading<u32>; 2],
    /// The PCIe traffic from and to the host so far.
    pub traffic: [Reading<Bytes>; 2],
    /// The PCIe traffic since the previous snapshot, in bytes per second.
    pub rates: [Reading<u64>; 2],
    /// The speed of the fan and the utilization of the encoder and the decoder, in percent.
    pub shares: [Reading<u32>; 3],
}

/// The reason for a value that was not read.
pub(crate) const UNKNOWN: Absent = Absent::NotRecorded;

impl Default for More {
    fn default() -> Self {
        More::absent(UNKNOWN)
    }
}

impl More {
    /// Returns values that are all absent for the same reason.
    pub(crate) fn absent(reason: Absent) -> Self {
        let (clocks, shares) = ([Err(reason); 2], [Err(reason); 3]);
        More { clocks, traffic: [Err(reason); 2], rates: [Err(reason); 2], shares }
    }

    /// Returns the values of a device, without the rates.
    pub(crate) fn of(details: &DeviceDetails) -> Self {
        let unknown = More::default();
        let clocks = details.clocks.as_ref().map(|clocks| [clocks.sm, clocks.memory]);
        let traffic = details.pcie.as_ref().map(|pcie| [pcie.received, pcie.sent]);
        let fan = details.thermal.as_ref().map(|thermal| thermal.fan_speed);
        let share = |percent: Percent| u32::from(percent.get());
        let engines = details.activity.as_ref();
        let engines = engines.map(|is| [is.encoder.map(share), is.decoder.map(share)]);
        let [encoder, decoder] = engines.unwrap_or([Err(UNKNOWN); 2]);
        More {
            clocks: clocks.unwrap_or(unknown.clocks),
            traffic: traffic.unwrap_or(unknown.traffic),
            rates: unknown.rates,
            shares: [fan.unwrap_or(Err(UNKNOWN)), encoder, decoder],
        }
    }

    /// Returns the parts of the line, the most important first.
    pub(crate) fn parts(&self) -> [Part; 3] {
        let ([sm, memory], [fan, encoder, decoder]) = (self.clocks, self.shares);
        let [received, sent] = self.rates.map(|rate| rate.map(|bytes| bytes / 1_000_000));
        let wide = |value: Reading<u32>| value.map(u64::from);
        [
            Part {
                name: "clocks",
                begin: "",
                values: vec![("SM", wide(sm), 4), ("mem", wide(memory), 5)],
                unit: "MHz",
            },
            Part {
                name: "PCIe",
                begin: "PCIe ",
                values: vec![("rx", received, 5), ("tx", sent, 5)],
                unit: "MB/s",
            },
            Part {
                name: "fan/enc/dec",
                begin: "",
                values: vec![
                    ("fan", wide(fan), 3),
                    ("enc", wide(encoder), 3),
                    ("dec", wide(decoder), 3),
                ],
                unit: "%",
            },
        ]
    }
}

/// Values of a device with the same unit.
pub(crate) struct Part {
    name: &'static str,
    begin: &'static str,
    /// Each with its name and its width in columns.
    values: Vec<(&'static str, Reading<u64>, usize)>,
    unit: &'static str,
}

impl Part {
    /// Returns the width in columns, whatever the values are.
    pub(crate) fn width(&self) -> usize {
        let values = self.values.iter().map(|(name, _, width)| name.len() + width + 2);
        self.begin.len() + values.sum::<usize>() + self.unit.len()
    }

    /// Formats `PCIe rx  1208 tx   422 MB/s`, with a dash for an unknown value, or `PCIe not
    /// supported`. A value that is not read yet shows a dash.
    pub(crate) fn text(&self, replays: bool) -> String {
        let first = self.values.first().and_then(|(_, value, _)| value.err());
        let is_first = |(_, value, _): &(_, Reading<u64>, _)| value.err() == first;
        let reason = first.filter(|reason| *reason != UNKNOWN || replays);
        if let Some(reason) = reason.filter(|_| self.values.iter().all(is_first)) {
            return format!("{} {reason}", self.name);
        }
        let value = |(name, value, width): &(&str, Reading<u64>, usize)| match value {
            Ok(value) => format!("{name} {value:>width$} "),
            Err(_) => format!("{name} {:>width$} ", "–"),
        };
        let values: String = self.values.iter().map(value).collect();
        format!("{}{values}{}", self.begin, self.unit)
    }
}

/// Describes the load of the host, and its busy processors in percent: `load 1.20 0.80 0.50 · CPU
/// 35 % of 64 · memory 120.0/503.0 GiB`.
pub(crate) fn host(load: Option<HostLoad>, busy: Option<u8>) -> String {
    let load = load.unwrap_or(HostLoad::absent(UNKNOWN));
    if let Some(reason) = load.averages.err().filter(|reason| load == HostLoad::absent(*reason)) {
        return format!("host load {reason}");
    }
    let hundredths = |value: u32| format!("{}.{:02}", value / 100, value % 100);
    let averages = match load.averages {
        Ok(averages) => format!("load {}", averages.map(hundredths).join(" ")),
        Err(reason) => format!("load {reason}"),
    };
    let cpu = match (load.cpu, busy) {
        (Ok(cpu), Some(busy)) => format!("CPU {busy:>3} % of {}", cpu.count),
        (Ok(cpu), None) => format!("CPU   – % of {}", cpu.count),
        (Err(reason), _) => format!("CPU {reason}"),
    };
    let memory = match load.memory {
        Ok((used, total)) => gpu_report::wording::used_of(used, total, (0, 0)),
        Err(reason) => reason.to_string(),
    };
    format!("{averages} · {cpu} · memory {memory}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_core::CpuTime;

    const NO: Absent = Absent::NotSupported;

    #[test]
    fn parts_have_the_same_width_whatever_their_values() {
        let more = More {
            clocks: [Ok(1410), Err(NO)],
            rates: [Ok(63_015_000_000), Ok(999_999)],
            shares: [Err(NO), Ok(0), Ok(100)],
            ..More::default()
        };
        let texts = more.parts().map(|part| part.text(false));
        let shown =
            ["SM 1410 mem     – MHz", "PCIe rx 63015 tx     0 MB/s", "fan   – enc   0 dec 100 %"];
        assert_eq!(texts, shown);
        for (part, text) in more.parts().iter().zip(texts) {
            assert_eq!(part.width(), text.chars().count(), "{text}");
        }
        // With a label of three columns, all of them fit into 80.
        let all: usize = more.parts().iter().map(|part| part.width() + 2).sum();
        assert_eq!(3 + all - 2, 80);
    }

    #[test]
    fn common_reason_of_absence_replaces_the_values() {
        let more = More { clocks: [Err(NO), Err(NO)], ..More::default() };
        let texts = |replays| more.parts().map(|part| part.text(replays));
        let pending =
            ["clocks not supported", "PCIe rx     – tx     – MB/s", "fan   – enc   – dec   – %"];
        assert_eq!(texts(false), pending);
        let recorded = ["clocks not supported", "PCIe not recorded", "fan/enc/dec not recorded"];
        assert_eq!(texts(true), recorded);
    }

    #[test]
    fn load_of_the_host_has_a_reason_for_each_missing_part() {
        let load = HostLoad {
            averages: Ok([120, 5, 10_000]),
            cpu: Ok(CpuTime { busy: 1, total: 2, count: 64 }),
            memory: Ok((Bytes(3 << 30), Bytes(8 << 30))),
        };
        let text = "load 1.20 0.05 100.00 · CPU  35 % of 64 · memory 3.0/8.0 GiB";
        assert_eq!(host(Some(load), Some(35)), text);
        let text = "load 1.20 0.05 100.00 · CPU   – % of 64 · memory 3.0/8.0 GiB";
        assert_eq!(host(Some(load), None), text);
        let part = HostLoad { cpu: Err(Absent::NotPermitted), memory: Err(NO), ..load };
        let text = "load 1.20 0.05 100.00 · CPU not permitted · memory not supported";
        assert_eq!(host(Some(part), None), text);
        assert_eq!(host(Some(HostLoad::absent(NO)), None), "host load not supported");
        assert_eq!(host(None, None), "host load not recorded");
    }
}
