//! The child that queries NVML, for tests; in production this is `gpuws` itself.

use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    let library = std::env::args_os().nth(1).map(PathBuf::from);
    gpu_nvidia::serve(library.as_deref())
}
