//! Where the memory of NVIDIA's devices is, by what their driver reports.

use gpu_core::{Absent, Bytes, MemoryKind, Reading};

/// The compute capabilities of devices within a processor: Orin, Thor (by two numbers), GB10 and
/// N1X.
const INTEGRATED: [(u32, u32); 4] = [(8, 7), (10, 1), (11, 0), (12, 1)];

/// Words in the names of devices within a processor.
const INTEGRATED_NAMES: [&str; 4] = ["Orin", "Thor", "GB10", "N1X"];

/// Words in the names of devices that can expose their memory as a NUMA node of the host.
const COHERENT_NAMES: [&str; 3] = ["GH200", "GB200", "GB300"];

/// Returns where the memory of a device is, by its name, its compute capability if known, and the
/// total that the driver reports. A device within a processor has no memory of its own: its driver
/// reports none, or only the part that is set aside.
pub fn memory_kind(
    name: Option<&str>,
    capability: Option<(u32, u32)>,
    total: Reading<Bytes>,
) -> MemoryKind {
    let words = || name.unwrap_or_default().split_ascii_whitespace();
    let has = |known: &[&str]| words().any(|word| known.contains(&word));
    let is_integrated = capability.map_or_else(
        || has(&INTEGRATED_NAMES),
        |capability| INTEGRATED.contains(&capability) || has(&INTEGRATED_NAMES),
    );
    match total {
        Err(Absent::NotSupported) if is_integrated => MemoryKind::Host,
        Ok(_) if is_integrated => MemoryKind::CarveOut,
        _ if has(&COHERENT_NAMES) => MemoryKind::NumaNode(None),
        _ if words().last().is_some_and(is_profile) => MemoryKind::VirtualGpu,
        _ => MemoryKind::Dedicated,
    }
}

/// Returns whether a word ends as the profile of a virtual GPU: `T4-4C`, `P40-12Q`, `A100-1-5CME`.
fn is_profile(word: &str) -> bool {
    let Some((_, size)) = word.rsplit_once('-') else { return false };
    let size = size.strip_suffix("ME").unwrap_or(size);
    let digits = size.trim_end_matches(['A', 'B', 'C', 'Q']);
    digits.len() + 1 == size.len()
        && !digits.is_empty()
        && digits.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Reading<Bytes> = Err(Absent::NotSupported);
    const SOME: Reading<Bytes> = Ok(Bytes(8 << 30));

    #[test]
    fn kind_follows_from_name_capability_and_total() {
        use MemoryKind::{CarveOut, Dedicated, Host, NumaNode, VirtualGpu};
        for (name, capability, total, kind) in [
            ("NVIDIA GB10", None, NONE, Host),
            ("NVIDIA Thor", Some((11, 0)), NONE, Host),
            ("Orin (nvgpu)", Some((8, 7)), NONE, Host),
            ("NVIDIA Graphics Device", Some((12, 1)), NONE, Host),
            ("NVIDIA N1X", Some((12, 1)), SOME, CarveOut),
            ("NVIDIA GB10", None, Err(Absent::Failed), Dedicated),
            ("NVIDIA B200", Some((10, 0)), NONE, Dedicated),
            ("NVIDIA GeForce RTX 5090", Some((12, 0)), SOME, Dedicated),
            ("NVIDIA GH200 480GB", Some((9, 0)), SOME, NumaNode(None)),
            ("GRID T4-4C", None, SOME, VirtualGpu),
            ("GRID V100D-8C", None, SOME, VirtualGpu),
            ("NVIDIA A100-1-5CME", None, SOME, VirtualGpu),
            ("GRID K520", None, SOME, Dedicated),
            ("Tesla P100-PCIE-16GB", None, SOME, Dedicated),
            ("NVIDIA A100-SXM4-40GB", None, SOME, Dedicated),
        ] {
            assert_eq!(memory_kind(Some(name), capability, total), kind, "{name}");
        }
        assert_eq!(memory_kind(None, None, NONE), Dedicated);
    }
}
