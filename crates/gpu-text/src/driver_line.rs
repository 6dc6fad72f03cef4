//! Where a message of the driver starts in a line.

/// The driver's prefix.
pub(crate) const DRIVER: &str = "NVRM: ";
/// The prefix of the driver of NVSwitches.
const SWITCH: &str = "nvidia-nvswitch";

/// The maximum length of a prefix, in bytes; a JSON object may have long fields before its message.
pub(crate) const MAX_PREFIX: usize = 4096;

/// Returns where a message of the driver would start in a line.
pub(crate) fn start_in(line: &str) -> Option<usize> {
    let nvidia = line.find(DRIVER).or_else(|| line.find(SWITCH));
    nvidia.into_iter().chain(gpu_drm_driver::start_in(line)).min()
}
