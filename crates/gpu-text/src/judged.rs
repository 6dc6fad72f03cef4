//! Decides whether texts have enough data to judge a machine.

use crate::document::{Document, Kind};
use gpu_core::{DeviceState, Snapshot};

/// Returns whether the texts show the health of a device: by its figures, by driver messages, or by
/// a failure that names it. `snapshot` is the snapshot of the texts.
pub fn shows_health(documents: &[Document], snapshot: &Snapshot) -> bool {
    let is_logged = snapshot.driver_messages.iter().any(|messages| !messages.is_empty());
    let is_named = documents.iter().any(|document| !document.device_failures.is_empty());
    is_logged || is_named || snapshot.devices.iter().any(can_be_judged)
}

fn can_be_judged(device: &DeviceState) -> bool {
    let has_figures = device.sample.as_ref().is_ok_and(|sample| {
        // An implausible figure still shows that the text has one.
        sample.memory.used.is_ok() || sample.memory.used == Err(gpu_core::Absent::Implausible)
    });
    let of_instances = device.partitions.iter().flatten().any(|mig| mig.memory.used.is_ok());
    let has_details = device.details.as_ref().is_ok_and(|known| !known.is_empty());
    has_figures || of_instances || has_details
}

/// Returns, as a sentence fragment, what is missing from texts that do not show the health of a
/// device.
pub fn lacking(documents: &[Document]) -> &'static str {
    if documents.is_empty() {
        return "it contains no output of nvidia-smi, fuser or lsof, and no Xid";
    }
    if documents.iter().all(|document| document.kind == Kind::Placement) {
        "it is a log of placed operations; gpuws parse --json has them"
    } else if documents.iter().all(|document| document.kind == Kind::Mig) {
        "it lists profiles or instances of MIG (nvidia-smi mig), which do not show memory in use"
    } else {
        "it has no GPU memory figures and no Xid"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{sections, snapshot};
    use gpu_core::Timestamp;

    #[test]
    fn figures_messages_and_failures_show_health() {
        let shows = |text: &str| {
            let documents = sections(text.as_bytes());
            shows_health(&documents, &snapshot(&documents, Timestamp(0)))
        };
        for (text, want) in [
            ("index, memory.used [MiB]\n0, 5 MiB\n", true),
            ("index, memory.used [MiB], memory.total [MiB]\n0, 7 MiB, 5 MiB\n", true),
            ("index, memory.used [MiB]\n0, [N/A]\n", false),
            ("index, remapped_rows.pending\n0, Yes\n", true),
            ("NVRM: Xid (PCI:0000:3b:00): 79, x\n", true),
            ("Unable to determine the device handle for GPU 0000:3B:00.0: x\n", true),
            ("GPU 0: Test K80 (UUID: GPU-1)\n", false),
            ("", false),
        ] {
            assert_eq!(shows(text), want, "{text}");
        }
    }

    #[test]
    fn missing_data_is_named() {
        let of = |text: &str| lacking(&sections(text.as_bytes()));
        assert!(of("words\n").starts_with("it contains no output"));
        assert!(of("| GPU instances:        |\n").contains("profiles or instances of MIG"));
        assert!(of("GPU 0: Test K80 (UUID: GPU-1)\n").starts_with("it has no GPU memory"));
    }
}
