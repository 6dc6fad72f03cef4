//! How the program ends.

use gpu_machine::Served;
pub(crate) use gpu_report::Exit;

/// Returns how the program ends that kept something for another one.
pub(crate) fn served(served: Served) -> Exit {
    match served {
        Served::Done => Exit::Done,
        Served::Misused => Exit::Usage,
        Served::Failed => Exit::Own,
    }
}
