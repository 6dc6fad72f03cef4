//! The driver's messages in the kernel log of a simulated machine.

use crate::file::DriverMessageEntry;
use crate::machine::Machine;
use crate::state::State;
use crate::toml_source::TomlSource;
use gpu_core::{
    Absent, DeviceEventKind, DriverMessage, ErrorKind, Fault, PciBusId, Result, Snapshot, Timestamp,
};

/// The driver's text for a device that fell off the bus.
const OFF_BUS: &str = "GPU has fallen off the bus.";

/// Parses a `[[driver_message]]`.
///
/// # Errors
/// `Invalid` if it does not name exactly one device of the machine and one error, or if its time is
/// after the machine's clock or before its boot.
pub(crate) fn message(
    machine: &Machine,
    source: TomlSource<'_>,
    entry: &DriverMessageEntry,
) -> Result<DriverMessage> {
    let complain = |what: &str| source.error(None, &format!("a driver message {what}"));
    let bus = match (entry.gpu, &entry.bus) {
        (Some(index), None) => address(machine, index)
            .ok_or_else(|| complain(&format!("names GPU {index}, which is not in this machine"))),
        (None, Some(bus)) => bus.get_ref().parse::<PciBusId>().map_err(|error| {
            source.error(
                Some(bus.span()),
                &format!("a driver message has an invalid bus ID: {error}"),
            )
        }),
        _ => Err(complain("requires exactly one of 'gpu' and 'bus'")),
    }?;
    if entry.xid.is_some() == entry.fallen_off_bus {
        return Err(complain("requires exactly one of 'xid' and 'fallen_off_bus = true'"));
    }
    let at = match (&entry.at, entry.seconds_ago) {
        (Some(at), None) => crate::toml_source::date(source, "at", at)?,
        (None, ago) => {
            let millis = ago.unwrap_or(0).saturating_mul(1000);
            Timestamp(machine.clock.0.saturating_sub(millis))
        }
        _ => return Err(complain("requires exactly one of 'at' and 'seconds_ago'")),
    };
    if at < machine.booted || at > machine.clock {
        return Err(complain("is earlier than the boot of the machine or later than its clock"));
    }
    if entry.fallen_off_bus && (entry.pid.is_some() || entry.process.is_some()) {
        return Err(complain("without an Xid must not name a process"));
    }
    if entry.process.is_some() && entry.pid.is_none() {
        return Err(complain("requires 'pid' if 'process' is set"));
    }
    gpu_nvidia_driver::parse_message(&line(bus, entry), at)
        .ok_or_else(|| complain("is not a message that the driver writes"))
}

/// Returns the line of the log, from which the message is parsed as from a real driver's log.
fn line(bus: PciBusId, entry: &DriverMessageEntry) -> String {
    let PciBusId { domain, bus, device, .. } = bus;
    let Some(code) = entry.xid else {
        let text = entry.text.as_deref().unwrap_or(OFF_BUS);
        return format!("NVRM: GPU {domain:04x}:{bus:02x}:{device:02x}.0: {text}");
    };
    let mut line = format!("NVRM: Xid (PCI:{domain:04x}:{bus:02x}:{device:02x}");
    let mut add = |part: String| line.push_str(&part);
    entry.gpu_instance.into_iter().for_each(|id| add(format!(" GPU-I:{id:02}")));
    entry.compute_instance.into_iter().for_each(|id| add(format!(" GPU-CI:{id:02}")));
    add(format!("): {code}, "));
    entry.pid.into_iter().for_each(|pid| add(format!("pid={pid}, ")));
    entry.process.iter().for_each(|name| add(format!("name={name}, ")));
    let default = if code == 79 { OFF_BUS } else { "" };
    add(entry.text.clone().unwrap_or_else(|| default.to_owned()));
    line
}

fn address(machine: &Machine, index: u32) -> Option<PciBusId> {
    let device = machine.devices.iter().find(|device| device.info.id.index == index)?;
    device.info.id.bus.ok()
}

/// Returns the messages of a recorded machine. A recording without messages does not show that the
/// driver logged none.
pub(crate) fn recorded(snapshot: &Snapshot) -> Result<Vec<DriverMessage>, Fault> {
    snapshot.driver_messages.clone().map_err(|fault| match fault.kind {
        ErrorKind::NotRequested => Fault { kind: Absent::NotRecorded.into(), ..fault },
        _ => fault,
    })
}

impl State {
    /// Returns the messages that the viewer can read: root sees those logged so far.
    ///
    /// # Errors
    /// `Field(NotPermitted)` for any other viewer, as with `kernel.dmesg_restrict` = 1; or the
    /// recorded failure.
    pub(crate) fn driver_messages(&self) -> Result<Vec<DriverMessage>> {
        if !self.machine.viewer.privileged {
            let refused = gpu_core::Error::new(Absent::NotPermitted, "read the kernel log");
            return Err(refused.with_source("it requires CAP_SYSLOG on this machine"));
        }
        self.machine.driver_messages.clone().map_err(|fault| crate::devices::failure(&fault))
    }

    /// Logs an error that a device reports. Only an Xid of a device with a known address is logged.
    pub(crate) fn log(&mut self, index: u32, event: DeviceEventKind) {
        let DeviceEventKind::Error(code) = event else { return };
        let at = self.wall();
        let (Ok(code), Some(bus)) = (u32::try_from(code), address(&self.machine, index)) else {
            return;
        };
        let entry = DriverMessageEntry { xid: Some(code), ..DriverMessageEntry::default() };
        if let Ok(messages) = &mut self.machine.driver_messages {
            messages.extend(gpu_nvidia_driver::parse_message(&line(bus, &entry), at));
        }
    }
}
