//! Text about the memory that recorded jobs need.

use gpu_core::{Bytes, amount};
use gpu_memory_trace::{Fitting, Needs};

/// Memory sizes of current devices in GiB.
const SIZES: [u64; 14] = [4, 6, 8, 12, 16, 24, 32, 40, 48, 80, 96, 141, 180, 288];

/// Describes whether a job fits on a device, or on which devices it fits, with this much memory for
/// the CUDA context.
pub fn verdict(needs: &Needs, context: Bytes, device_memory: Option<Bytes>) -> String {
    let fitting = needs.fitting(context, device_memory);
    let verdict = match (device_memory, fitting.setting) {
        (Some(total), Some(_)) => format!(
            "fits {} with expandable_segments:True, not with the settings of the job",
            amount(total)
        ),
        (Some(total), None) if fitting.fits => format!("fits {}", amount(total)),
        (Some(total), None) => format!("does not fit {}", amount(total)),
        (None, _) => devices_that_fit(needs, fitting, context),
    };
    format!("{verdict}, assuming {} for the CUDA context (--context)", amount(context))
}

/// Describes which device size suffices under the first allocator, and which is too small under
/// all.
fn devices_that_fit(needs: &Needs, fitting: Fitting, context: Bytes) -> String {
    let best = needs.by_policy.iter().map(|(_, need, _)| need.least).min().unwrap_or(needs.live);
    let gib = |size: u64| Bytes(size << 30);
    let suffices = SIZES.iter().find(|size| fitting.mem <= gib(**size));
    let too_small = SIZES.iter().rfind(|size| gib(**size) < best + context);
    match (suffices, too_small) {
        (Some(enough), Some(small)) => {
            format!(
                "fits a {enough} GiB GPU; fits no {small} GiB GPU under any of these allocators"
            )
        }
        (Some(enough), None) => format!("fits a {enough} GiB GPU"),
        (None, _) => "fits no current GPU".to_owned(),
    }
}

/// Returns the command that runs the job within its need.
pub fn next(fitting: Fitting) -> String {
    let setting = fitting.setting.map_or(String::new(), |setting| format!("{setting} "));
    format!("{setting}gpuws run --mem {}MiB -- COMMAND", fitting.mem.mib())
}
