//! Exit codes.

use gpu_machine::Served;
pub(crate) use gpu_report::Exit;

/// Returns the exit code of a process that kept a lease or a context.
pub(crate) fn served(served: Served) -> Exit {
    match served {
        Served::Done => Exit::Done,
        Served::Misused => Exit::Usage,
        Served::Failed => Exit::Own,
    }
}
