//! The extension module of the Python package gpuws.
//!
//! The main decision is that Python gets the libraries and not a program's output, except for what
//! must not run in a Python process: NVML, whose calls may hang, and the supervisor of a job, which
//! ends what descends from it. Both are the program `gpuws`, which the package carries. Views cross
//! the border as the JSON that the program prints, so an object in Python equals `--json`.
//!
//! Every call that can wait runs on a thread of its own, while the calling thread has released the
//! GIL and looks for signals: Ctrl-C ends each wait.

mod claim;
mod explain;
mod failure;
mod interruptible;
mod isolated;
mod keeper;
mod look;
mod machine;
mod ports;
mod request;
mod session;

/// The module `gpuws._gpuws`.
#[pyo3::pymodule]
mod _gpuws {
    #[pymodule_export]
    use crate::claim::{Lease, claim};
    #[pymodule_export]
    use crate::explain::explain;
    #[pymodule_export]
    use crate::interruptible::Stop;
    #[pymodule_export]
    use crate::isolated::run_isolated;
    #[pymodule_export]
    use crate::look::{doctor, leases, own_gpu_files, status};
    #[pymodule_export]
    use crate::request::parse_bytes;
    #[pymodule_export]
    use crate::session::{Simulated, simulate};
}
