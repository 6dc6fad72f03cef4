//! What an explanation says: the cause and the remedies.

use serde::Serialize;

/// Why an allocation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// The request alone exceeds the memory of the device.
    LargerThanDevice,
    /// The memory in use and the request together exceed the memory of the device.
    TooBig,
    /// The program itself fills the device.
    Full,
    /// Enough memory was free, but not contiguous.
    Fragmented,
    /// Other processes hold the missing memory.
    OtherProcesses,
    /// Many processes hold the missing memory, each with little more than a CUDA context.
    ManyContexts,
    /// A process that the message does not name holds the missing memory.
    Unnamed,
    /// The allocator reached its limit.
    Limit,
    /// One buffer is larger than the device or its driver allows.
    BufferLimit,
    /// Memory was sufficient: other programs changed the free memory while the engine measured it.
    Disturbed,
    /// Memory was sufficient: the figure in the message is impossible.
    ImpossibleFigure,
    /// The memory was in use before the program started.
    TakenBefore,
    /// Host memory ran out.
    HostMemory,
    /// The program continued without the memory.
    NoFailure,
    /// Enough memory was free when the message was printed.
    FreeEnough,
    /// The message has too few figures.
    NotTold,
}

/// A remedy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Remedy {
    /// Kind of the remedy.
    pub kind: RemedyKind,
    /// What to type or set. Null if the author of the program must decide.
    pub set: Option<String>,
    /// What it does, as a sentence fragment.
    pub why: String,
}

/// Kind of a remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum RemedyKind {
    /// An environment variable of the program.
    Environment,
    /// A command to run.
    Command,
    /// A command-line option of the program.
    Option,
    /// A line of code in the program.
    Code,
    /// A change of the workload.
    Work,
}
