//! What ran short.

/// What ran short, or what else happened, in the words of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Short {
    /// At startup, the device had less free memory than the engine was configured to take.
    Startup,
    /// One device of the job has less free memory than the others.
    Unbalanced,
    /// The weights did not fit.
    Weights,
    /// The weights left nothing for the KV cache.
    NoCache,
    /// The KV cache holds less than one request of the configured length.
    Cache,
    /// More sequences than the engine has blocks of state for.
    Sequences,
    /// Tensors of a computation did not fit: a prefill, a warm-up, compute buffers.
    Compute,
    /// The capture of CUDA graphs did not fit.
    Graphs,
    /// The component that [`Event::part`](super::Event::part) names did not fit.
    Component,
    /// Memory that the engine gave back was taken when it woke up.
    WakeUp,
    /// A single buffer exceeds the device's limit, regardless of free memory.
    OneBuffer,
    /// A limit on the device memory of the process or container.
    Quota,
    /// A pool of the program that is smaller than the device.
    Pool,
    /// The program as a whole: it needs more than the device has.
    Program,
    /// Requests compete for the KV cache, which is full.
    Crowded,
    /// The KV cache has too little room for the next batch.
    Batch,
    /// The context of a sequence is full, not the device.
    Context,
    /// Pinned memory of the host.
    Pinned,
    /// Memory of the host.
    Host,
    /// The memory of a control group, a job or a container on the host.
    HostLimit,
    /// A signal that the kernel's killer shares with other senders ended a process.
    Killed,
    /// A former process has not given its memory back.
    NotReturned,
    /// Other programs changed the free memory while the engine measured it; nothing ran short.
    Disturbed,
    /// An error that may or may not concern memory.
    Unclear,
}

impl Short {
    /// Returns whether two messages may be parts of one failure: one of them names it more
    /// precisely.
    pub(super) fn is_part_of(self, other: Short) -> bool {
        let is_open = |short| matches!(short, Short::Unclear | Short::Compute);
        let has_parts = |short| {
            !matches!(
                short,
                Short::NotReturned | Short::Disturbed | Short::Crowded | Short::Context
            )
        };
        let is_host = |short| matches!(short, Short::Host | Short::HostLimit | Short::Killed);
        let is_one = self == other || is_open(self) || is_open(other);
        has_parts(self) && has_parts(other) && (is_one || (is_host(self) && is_host(other)))
    }
}
