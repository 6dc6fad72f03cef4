//! Initialisation, shutdown, and functions that need neither.

use crate::entry::guard;
use crate::{code, library};
use std::ffi::{c_char, c_uint};

#[unsafe(no_mangle)]
extern "C" fn nvmlInit_v2() -> u32 {
    guard(|| library::initialise("nvmlInit_v2"))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlInit() -> u32 {
    guard(|| library::initialise("nvmlInit"))
}

/// The flags are NO_GPUS (do not fail without devices: this library never does) and NO_ATTACH (do
/// not attach to devices: this library has no such step).
#[unsafe(no_mangle)]
extern "C" fn nvmlInitWithFlags(_flags: c_uint) -> u32 {
    guard(|| library::initialise("nvmlInitWithFlags"))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlShutdown() -> u32 {
    guard(|| library::shut_down("nvmlShutdown"))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlErrorString(result: u32) -> *const c_char {
    library::lock().counts.add("nvmlErrorString");
    code::text(result).as_ptr()
}
