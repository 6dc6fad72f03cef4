//! `nvidia-smi -L`: one line per device, and one per MIG device below it.

use crate::document::{Document, Gpu, Kind, MigDevice};
use crate::failure;
use crate::field;
use crate::text::Text;
use gpu_core::NvLink;

/// A line of the listing.
enum Line<'a> {
    Gpu { index: u32, name: &'a str, uuid: Option<&'a str> },
    Mig { profile: &'a str, index: u32, uuid: &'a str },
}

/// Parses the listing.
pub(crate) fn parse(text: &Text) -> Document {
    let mut document = Document::new(Kind::List);
    document.lists_mig = true;
    for (number, line) in text.lines() {
        if line.trim().is_empty() {
            continue;
        }
        match read(line) {
            Some(Line::Gpu { index, name, uuid }) if document.gpus.len() < Document::MAX_ROWS => {
                document.gpus.push(Gpu {
                    index: Some(index),
                    name: field::text(name),
                    uuid: uuid.map(str::to_owned),
                    ..Gpu::default()
                });
            }
            Some(Line::Mig { profile, index, uuid })
                if document.mig_devices.len() < Document::MAX_ROWS =>
            {
                let (gpu_instance_id, compute_instance_id) = instances(uuid);
                document.mig_devices.push(MigDevice {
                    gpu_index: document.gpus.last().and_then(|gpu| gpu.index),
                    mig_index: Some(index),
                    profile: field::text(profile),
                    uuid: Some(uuid.to_owned()),
                    gpu_instance_id,
                    compute_instance_id,
                    ..MigDevice::default()
                });
            }
            Some(_) => document.note_unread(number, line, "row limit exceeded"),
            None if nvlink(&mut document, line) => {}
            None if failure::note(&mut document, line) => {}
            None => document.note_unread(number, line, "not a line of a device list"),
        }
    }
    document
}

/// Reads a line of `nvidia-smi nvlink -s` below the line of its device: `Link 0: 25 GB/s` or `Link
/// 0: <inactive>`.
fn nvlink(document: &mut Document, line: &str) -> bool {
    const MAX_LINKS: usize = 64;
    let link = line.trim().strip_prefix("Link ").and_then(|rest| rest.split_once(": "));
    let Some((number, state)) = link else { return false };
    let is_active = state.ends_with("GB/s");
    let (Ok(number), Some(gpu)) = (number.parse::<usize>(), document.gpus.last_mut()) else {
        return false;
    };
    if number >= MAX_LINKS || !(is_active || state.to_lowercase().contains("inactive")) {
        return false;
    }
    let links = gpu.details.nvlinks.get_or_insert_default();
    links.resize(links.len().max(number + 1), NvLink::default());
    links[number].active = Ok(is_active);
    true
}

/// Returns whether a line belongs to such a listing.
pub(crate) fn is_row(line: &str) -> bool {
    read(line).is_some()
}

/// Parses `GPU 0: NAME (UUID: …)`, with `(S/N: …)` before driver 304, or `MIG PROFILE Device 0:
/// (UUID: …)`.
fn read(line: &str) -> Option<Line<'_>> {
    let line = line.trim();
    let (head, id) = line.rsplit_once('(')?;
    let (key, id) = id.split_once(':')?;
    // A truncated line ends with a partial identifier, which is useless.
    let id = id.split_once(')').map(|(id, _)| id.trim());
    let uuid = match key.trim() {
        "UUID" => id.and_then(|id| field::absent(id).is_none().then_some(id)),
        "S/N" | "Serial" => None,
        _ => return None,
    };
    let (label, name) = head.split_once(':').filter(|(_, name)| name.starts_with(' '))?;
    let mut words = label.split_whitespace();
    match words.next()? {
        "GPU" => {
            let index = words.next()?.parse().ok()?;
            words.next().is_none().then_some(Line::Gpu { index, name: name.trim(), uuid })
        }
        "MIG" => {
            let label = label.trim();
            let (before, index) = label.rsplit_once(' ')?;
            let profile = before.trim().strip_prefix("MIG")?.trim().strip_suffix("Device")?;
            Some(Line::Mig { profile: profile.trim(), index: index.parse().ok()?, uuid: uuid? })
        }
        _ => None,
    }
}

/// Returns the GPU and compute instance that drivers before 470 include in the identifier,
/// `MIG-GPU-…/3/0`.
fn instances(uuid: &str) -> (Option<u32>, Option<u32>) {
    let mut parts = uuid.rsplit('/');
    match (parts.next(), parts.next(), parts.next()) {
        (Some(compute), Some(gpu), Some(_)) => (gpu.parse().ok(), compute.parse().ok()),
        _ => (None, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::clean;
    use proptest::prelude::*;

    fn of(text: &str) -> Document {
        parse(&clean(text.as_bytes()))
    }

    #[test]
    fn devices_and_mig_devices_are_parsed() {
        let document = of("GPU 0: Test A100 (SXM) (UUID: GPU-aa)\n\
                           \x20 MIG 1c.3g.20gb  Device  4: (UUID: MIG-bb)\n\
                           GPU 1: Test A100 (UUID: GPU-cc)   # the second\n\
                           \x20 MIG 2g.10gb+me Device 0: (UUID: MIG-GPU-cc/3/1)\n");
        let names: Vec<_> = document.gpus.iter().map(|gpu| gpu.name.as_deref()).collect();
        assert_eq!(names, [Some("Test A100 (SXM)"), Some("Test A100")]);
        let mig = &document.mig_devices;
        assert_eq!((mig[0].gpu_index, mig[0].mig_index), (Some(0), Some(4)));
        assert_eq!(mig[0].profile.as_deref(), Some("1c.3g.20gb"));
        assert_eq!((mig[1].gpu_index, mig[1].profile.as_deref()), (Some(1), Some("2g.10gb+me")));
        assert_eq!((mig[1].gpu_instance_id, mig[1].compute_instance_id), (Some(3), Some(1)));
        assert_eq!(document.unread, []);
    }

    #[test]
    fn serial_numbers_truncated_lines_and_errors_are_parsed() {
        let document = of("GPU 0: Test C2050 (S/N: 0123)\n\
                           Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost.\n\
                           GPU 2: Test C2050 (UUID: GPU-123\n");
        assert_eq!(document.gpus.len(), 2);
        assert!(document.gpus.iter().all(|gpu| gpu.uuid.is_none()));
        assert_eq!(document.errors.len(), 1);
    }

    #[test]
    fn prose_and_other_tools_are_not_a_listing() {
        for line in ["GPU 0: Test A100", "GPU 0000:01:00.0 (UUID: x)", "CPU 0: x (UUID: y)", "("] {
            assert!(!is_row(line), "{line}");
        }
    }

    #[test]
    fn rows_are_distinguished_from_similar_lines() {
        for (line, is) in [
            ("GPU 0: K80 (Serial: 12)", true),
            ("GPU 0: K80 (UUID: [N/A])", true),
            ("GPU 0 1: K80 (UUID: GPU-a)", false),
            ("GPU 0:K80 (UUID: GPU-a)", false),
            ("GPU x: K80 (UUID: GPU-a)", false),
            ("CPU 0: K80 (UUID: GPU-a)", false),
            ("GPU 0: K80 (Bus: 1)", false),
            ("MIG 1g.5gb Device 0: (UUID: MIG-a)", true),
            ("MIG 1g.5gb Device 0: (UUID: MIG-a", false),
            ("MIG 1g.5gb Unit 0: (UUID: MIG-a)", false),
        ] {
            assert_eq!(is_row(line), is, "{line}");
        }
        let gpu = &of("GPU 0: K80 (UUID: GPU-a").gpus[0];
        assert_eq!((gpu.index, gpu.uuid.as_ref()), (Some(0), None));
        for (uuid, want) in [
            ("MIG-GPU-a/3/1", (Some(3), Some(1))),
            ("MIG-GPU-a/b/3/1", (Some(3), Some(1))),
            ("3/1", (None, None)),
            ("MIG-a", (None, None)),
        ] {
            let mig = &of(&format!("MIG 1g.5gb Device 0: (UUID: {uuid})")).mig_devices[0];
            assert_eq!((mig.gpu_instance_id, mig.compute_instance_id), want, "{uuid}");
            assert_eq!((mig.uuid.as_deref(), mig.gpu_index), (Some(uuid), None));
        }
    }

    const PIECES: &[&str] = &["GPU", "MIG", " ", "0", "7", ":", "(UUID", ")", "a", "z", "\n"];

    proptest! {
        #[test]
        fn every_line_is_parsed_or_unread(pieces in prop::collection::vec(prop::sample::select(PIECES), 0..200)) {
            let text = pieces.concat();
            let text = clean(text.as_bytes());
            let filled = text.lines().filter(|(_, line)| !line.trim().is_empty()).count();
            let document = parse(&text);
            let read = document.gpus.len() + document.mig_devices.len() + document.errors.len();
            prop_assert_eq!(read + document.unread.len(), filled);
        }

        #[test]
        fn printed_devices_round_trip(index in 0u32..64, name in "[A-Z][A-Za-z0-9 ()-]{0,20}[a-z]") {
            prop_assume!(field::absent(&name).is_none());
            let document = of(&format!("GPU {index}: {name} (UUID: GPU-{index})"));
            prop_assert_eq!(document.gpus[0].index, Some(index));
            prop_assert_eq!(document.gpus[0].name.as_deref(), Some(name.as_str()));
        }
    }
}
