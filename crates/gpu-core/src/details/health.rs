//! The health of device memory.

use super::readings::groups;

groups! {
    /// Errors of device memory and what was done about them.
    MemoryHealth {
        /// Corrected errors since the driver was loaded.
        corrected: u64,
        /// Uncorrected errors since the driver was loaded.
        uncorrected: u64,
        /// Corrected errors in the device's life.
        corrected_lifetime: u64,
        /// Uncorrected errors in the device's life.
        uncorrected_lifetime: u64,
        /// Pages retired after several single-bit errors.
        retired_single_bit: u32,
        /// Pages retired after a double-bit error.
        retired_double_bit: u32,
        /// A page waits for a reset to be retired.
        retired_pending: bool,
        /// Rows remapped after corrected errors.
        remapped_corrected: u32,
        /// Rows remapped after uncorrected errors.
        remapped_uncorrected: u32,
        /// A row waits for a reset to be remapped.
        remapped_pending: bool,
        /// A row could not be remapped: the device is to be replaced.
        remapped_failure: bool,
    }
}
