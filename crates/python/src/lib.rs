//! The extension module of the Python package gpuws.
//!
//! The main decision is to give Python the libraries instead of a program's output, except for
//! parts that must not run in a Python process: NVML, because its calls may hang, and the
//! supervisor of a job, because it ends its descendants. Both run in the program `gpuws`, which the
//! package includes. Views are passed as the JSON that the program prints, so an object in Python
//! equals `--json`. `gpuws.reap` also starts the program, so that only the program ends processes of
//! others.
//!
//! Every call that can wait runs on its own thread, while the calling thread has released the GIL
//! and checks for signals, so that Ctrl-C ends every wait.

mod claim;
mod explain;
mod failure;
mod interruptible;
mod isolated;
mod keeper;
mod machine;
mod request;
mod session;
mod views;

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
    use crate::request::parse_bytes;
    #[pymodule_export]
    use crate::session::{Simulated, simulate};
    #[pymodule_export]
    use crate::views::{doctor, leases, own_gpu_files, status};
}
