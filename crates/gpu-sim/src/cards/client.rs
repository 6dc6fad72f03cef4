//! The text of a client in `/proc/PID/fdinfo`, as each driver prints it.

use crate::cards::SimulatedCard;
use crate::holding::Holding;
use gpu_core::{Bytes, DeviceProcessKind};
use gpu_drm::CardDriver;
use std::fmt::Write;
use std::time::Duration;

/// How long a client has used its engine at the start of the simulation.
const USED: Duration = Duration::from_secs(60);

/// Returns the lines of a client: its identity, its memory, and its use of engines.
pub(super) fn text(
    card: &SimulatedCard,
    id: u64,
    holding: Option<&Holding>,
    now: Duration,
) -> String {
    let mut text = format!(
        "drm-driver:\t{}\ndrm-client-id:\t{id}\ndrm-pdev:\t{}\n",
        card.driver.name(),
        card.address()
    );
    let (own, host) = match card.driver {
        CardDriver::Amdgpu | CardDriver::Radeon => ("vram", "gtt"),
        CardDriver::I915 => ("local0", "system0"),
        CardDriver::Xe => ("vram0", "system"),
    };
    let memory = holding.map_or(Bytes(0), |holding| holding.memory);
    let of_host = holding.and_then(|holding| holding.client).unwrap_or_default().host;
    for (region, bytes) in [(own, memory), (host, of_host)] {
        let kib = bytes.0 >> 10;
        for amount in ["total", "shared", "resident"] {
            // What a client shares with another process is one handle.
            let kib = if amount == "shared" { 0 } else { kib };
            add(&mut text, format_args!("drm-{amount}-{region}:\t{kib} KiB"));
        }
    }
    if let Some(holding) = holding {
        let used = USED + now * u32::from(holding.load) / 100;
        for engine in engines(card, holding) {
            match card.driver {
                CardDriver::Xe => {
                    // The clock of the counters has 19.2 MHz.
                    let cycles = |time: Duration| time.as_micros() * 192 / 10;
                    add(&mut text, format_args!("drm-cycles-{engine}:\t{}", cycles(used)));
                    let total = cycles(USED * 60 + now);
                    add(&mut text, format_args!("drm-total-cycles-{engine}:\t{total}"));
                }
                _ => add(&mut text, format_args!("drm-engine-{engine}:\t{} ns", used.as_nanos())),
            }
        }
    }
    text
}

fn add(text: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to a string does not fail.
    _ = writeln!(text, "{line}");
}

/// Returns the engines that a client has used. Compute through KFD moves no counter of amdgpu.
fn engines(card: &SimulatedCard, holding: &Holding) -> Vec<&'static str> {
    use DeviceProcessKind::{Compute, ComputeAndGraphics, Graphics};
    let (graphics, compute) = match card.driver {
        CardDriver::Amdgpu | CardDriver::Radeon => ("gfx", "compute"),
        CardDriver::I915 => ("render", "compute"),
        CardDriver::Xe => ("rcs", "ccs"),
    };
    let counted = card.part(holding).is_none_or(|part| part.kfd.is_none());
    match holding.listed {
        Some(Graphics) => vec![graphics],
        Some(Compute) if counted => vec![compute],
        Some(ComputeAndGraphics) if counted => vec![graphics, compute],
        Some(ComputeAndGraphics) => vec![graphics],
        _ => Vec::new(),
    }
}
