//! What an explanation says: the cause and the remedies.

use serde::Serialize;

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// One request is larger than the device.
    LargerThanDevice,
    /// The memory in use and the request together exceed the device.
    TooBig,
    /// The program itself fills the device.
    Full,
    /// The total free memory suffices, but it is not contiguous.
    Fragmented,
    /// Other processes hold the missing memory.
    OtherProcesses,
    /// Many processes hold the memory, each with a small amount, such as a context.
    ManyContexts,
    /// A process that the message does not name holds the memory.
    Unnamed,
    /// The allocator reached its limit, not the device's.
    Limit,
    /// One buffer is larger than the device or its driver allows, regardless of the free memory.
    BufferLimit,
    /// Memory was sufficient: other programs changed the free memory while the engine measured it.
    Disturbed,
    /// The figure that caused the failure is impossible: memory was sufficient.
    ImpossibleFigure,
    /// The memory was in use before the program started.
    TakenBefore,
    /// Host memory ran out.
    HostMemory,
    /// The program continued without the memory.
    NoFailure,
    /// Enough memory was free when the message was written.
    FreeEnough,
    /// The figures do not suffice.
    NotTold,
}

/// A remedy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Remedy {
    /// Its kind.
    pub kind: RemedyKind,
    /// The exact text to type or set; `None` if only the author of the program can determine it.
    pub set: Option<String>,
    /// Its effect.
    pub why: String,
}

/// The kind of a remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RemedyKind {
    /// An environment variable of the program.
    Environment,
    /// A command to type.
    Command,
    /// An option of the program.
    Option,
    /// A line in the program.
    Code,
    /// A change of the workload.
    Work,
}
