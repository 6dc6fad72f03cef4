//! Asks NVML for a program that embeds this crate; see `gpu_nvidia::Helper`.
//!
//! Its one argument is the path of the library to load; without it, the machine's own.

use std::path::PathBuf;

fn main() {
    let library = std::env::args_os().nth(1).map(PathBuf::from);
    gpu_nvidia::serve(library.as_deref())
}
