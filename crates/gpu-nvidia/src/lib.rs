//! NVML behind the ports of gpu-core.
//!
//! The main decision is that every call of the C interface goes through one place. A driver may
//! keep any call waiting for ever, be too old for any function, and answer any question with any
//! of thirty codes: so that place alone looks the function up, which may be missing; says what is
//! being asked while the driver works ([`Nvml::current_call`]), counts it, and keeps the code with
//! the question; and each question then says how far a code reaches: one value, one device, the
//! machine. A safe wrapper of the whole interface would take that place away. nvml-wrapper asks
//! only for the newest version of each function, has no retry where a list grows, and nobody can
//! tell which of its calls is under way. Of nvml-wrapper-sys the structs are taken, and not its
//! table of functions, which looks up four hundred names before the first question; the few that
//! are called are declared here and looked up when first needed.

mod backend;
mod call;
mod child;
mod code;
mod details;
mod device;
mod event;
mod functions;
mod info;
mod library;
mod mig;
mod process;
mod process_utilization;
mod reset;
mod sample;
mod session;
mod snapshot;
mod topology;
mod value;

pub use backend::Nvml;
pub use call::CurrentCall;
pub use child::{Helper, NvmlChild, Waiting, serve};
pub use library::SimulatedNvml;
