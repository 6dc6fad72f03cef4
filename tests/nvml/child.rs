//! The child that queries NVML, for tests: `gpuws` itself at run time.

use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    let library = std::env::args_os().nth(1).map(PathBuf::from);
    gpu_nvidia::serve(library.as_deref())
}
