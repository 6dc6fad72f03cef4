//! Queries NVML for a program that embeds this crate; see `gpu_nvidia::Helper`.
//!
//! The only argument is the path of the library; without it, the installed one is loaded.

use std::path::PathBuf;

fn main() {
    let library = std::env::args_os().nth(1).map(PathBuf::from);
    gpu_nvidia::serve(library.as_deref())
}
