//! The outputs of nvidia-smi: its table, `-L`, `-q -x` and `topo -p2p`.

mod table;
mod words;
mod xml;

pub use table::{groups as table_groups, table};
pub use words::{SETTERS, as_gpuws, usual_spelling};
pub use xml::document;

use gpu_core::{Absent, ComputeMode, DeviceState, Partition, PeerAccess};

/// Returns nvidia-smi's word for a compute mode.
pub(crate) fn compute_mode(mode: ComputeMode) -> &'static str {
    match mode {
        ComputeMode::Default => "Default",
        ComputeMode::ExclusiveThread => "Exclusive_Thread",
        ComputeMode::Prohibited => "Prohibited",
        ComputeMode::ExclusiveProcess => "Exclusive_Process",
    }
}

/// Returns the lines of `nvidia-smi -L`: one for each device, and below it one for each of its MIG
/// devices. An absent name or UUID is `[N/A]`.
pub fn list(devices: &[DeviceState]) -> Vec<String> {
    let lines = devices.iter().flat_map(|device| {
        let instances = device.partitions.iter().flatten().map(mig_line);
        std::iter::once(device_line(device)).chain(instances)
    });
    lines.collect()
}

fn device_line(device: &DeviceState) -> String {
    let id = device.id();
    let (name, uuid) = (device.info.name.as_ref(), id.uuid.as_ref());
    if let (Err(_), Err(reason), Ok(bus)) = (name, uuid, id.bus) {
        let why = match reason {
            Absent::DeviceLost => "GPU is lost.  Reboot the system to recover this GPU",
            _ => "Unknown Error",
        };
        let bus = bus.to_string();
        // nvidia-smi prints the domain with four digits.
        let bus = bus.strip_prefix("0000").unwrap_or(&bus);
        return format!("Unable to determine the device handle for GPU {bus}: {why}");
    }
    let name = name.map_or(ABSENT, String::as_str);
    format!("GPU {}: {name} (UUID: {})", id.index, uuid.map_or(ABSENT, |uuid| uuid.0.as_str()))
}

const ABSENT: &str = "[N/A]";

fn mig_line(mig: &Partition) -> String {
    let profile = mig.profile.as_ref().map_or(ABSENT, String::as_str);
    let uuid = mig.uuid.as_ref().map_or(ABSENT, |uuid| uuid.0.as_str());
    format!("  MIG {profile:<11} Device {:>2}: (UUID: {uuid})", mig.index)
}

/// Returns the table of `nvidia-smi topo -p2p`, with tabs, and its legend.
pub fn peer_table(peers: &[Vec<PeerAccess>]) -> String {
    let mut text = String::from(" \t");
    for index in 0..peers.len() {
        text.push_str(&format!("GPU{index}\t"));
    }
    text.push('\n');
    for (index, row) in peers.iter().enumerate() {
        let cells: String = row.iter().map(|access| format!("{access}\t")).collect();
        text.push_str(&format!(" GPU{index}\t{cells}\n"));
    }
    text + LEGEND
}

const LEGEND: &str = "
Legend:

  X    = Self
  OK   = Status Ok
  CNS  = Chipset not supported
  GNS  = GPU not supported
  TNS  = Topology not supported
  NS   = Not supported
  DR   = Disabled by regkey
  U    = Unknown
";

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_core::{
        DeviceDetails, DeviceId, DeviceInfo, DeviceSample, DeviceUuid, Error, PciBusId,
    };

    fn device(index: u32, name: &str) -> DeviceState {
        let uuid = Ok(DeviceUuid("GPU-63d1e50a-b952-d15c-0740-12bc14859142".to_owned()));
        let info = DeviceInfo::unknown(DeviceId { uuid, ..DeviceId::from_index(index) });
        DeviceState {
            info: DeviceInfo { name: Ok(name.to_owned()), ..info },
            sample: Err(Error::new(Absent::NotRecorded, "sample it").fault()),
            processes: Ok(Vec::new()),
            partitions: Ok(Vec::new()),
            details: Ok(DeviceDetails::default()),
        }
    }

    /// As driver 590.48.01 prints them on H100 and A100 (with other identifiers).
    #[test]
    fn list_has_the_bytes_of_nvidia_smi() {
        let mig = |index, profile: Result<&str, Absent>| Partition {
            index,
            uuid: Ok(DeviceUuid(format!("MIG-0000000{index}-0000-0000-0000-000000000003"))),
            profile: profile.map(str::to_owned),
            gpu_instance: None,
            compute_instance: None,
            memory: DeviceSample::absent(Absent::NotRecorded).memory,
        };
        let mut parts = device(0, "NVIDIA H100 80GB HBM3");
        parts.partitions = Ok(vec![
            mig(0, Ok("3g.40gb")),
            mig(1, Ok("1g.5gb")),
            mig(10, Ok("1c.3g.20gb+me")),
            mig(3, Err(Absent::NotSupported)),
        ]);
        let mut lost = device(1, "");
        lost.info = DeviceInfo::unknown(DeviceId {
            uuid: Err(Absent::DeviceLost),
            bus: Ok(PciBusId { domain: 0, bus: 2, device: 0, function: 0 }),
            ..DeviceId::from_index(1)
        });
        let mut nameless = device(2, "");
        nameless.info.name = Err(Absent::Failed);
        assert_eq!(
            list(&[parts, lost, nameless]),
            [
                "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-63d1e50a-b952-d15c-0740-12bc14859142)",
                "  MIG 3g.40gb     Device  0: (UUID: MIG-00000000-0000-0000-0000-000000000003)",
                "  MIG 1g.5gb      Device  1: (UUID: MIG-00000001-0000-0000-0000-000000000003)",
                "  MIG 1c.3g.20gb+me Device 10: (UUID: MIG-000000010-0000-0000-0000-000000000003)",
                "  MIG [N/A]       Device  3: (UUID: MIG-00000003-0000-0000-0000-000000000003)",
                "Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost.  Reboot \
                 the system to recover this GPU",
                "GPU 2: [N/A] (UUID: GPU-63d1e50a-b952-d15c-0740-12bc14859142)",
            ]
        );
    }

    #[test]
    fn peer_table_has_the_cells_of_nvidia_smi() {
        use PeerAccess::{ChipsetNotSupported, Itself, Ok as Granted};
        let table = peer_table(&[vec![Itself, Granted], vec![ChipsetNotSupported, Itself]]);
        let head = " \tGPU0\tGPU1\t\n GPU0\tX\tOK\t\n GPU1\tCNS\tX\t\n\nLegend:\n\n  X    = Self\n";
        assert!(table.starts_with(head), "{table:?}");
    }
}
