//! Figures other than the sizes of a request and a device.

/// The unit of a [`Fact`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes; negative if the program computed a deficit.
    Bytes,
    /// Tokens.
    Tokens,
    /// Millionths of a whole.
    Millionths,
    /// A number of things.
    Count,
}

macro_rules! facts {
    ($( $(#[$doc:meta])* $fact:ident, $unit:ident, $name:literal; )*) => {
        /// A further figure of a message, with a fixed unit.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Fact { $( $(#[$doc])* $fact, )* }

        impl Fact {
            /// All facts.
            pub const ALL: &[Fact] = &[$( Fact::$fact, )*];

            /// Returns the name in lowercase, with `_` between its words.
            pub const fn name(self) -> &'static str {
                match self { $( Fact::$fact => $name, )* }
            }

            /// Returns the unit.
            pub const fn unit(self) -> Unit {
                match self { $( Fact::$fact => Unit::$unit, )* }
            }
        }
    };
}

facts! {
    /// The configured length of a sequence.
    ContextLength, Tokens, "context_length";
    /// The length that fits, as the program computed it.
    FittingLength, Tokens, "fitting_length";
    /// The configured number of sequences at once.
    Sequences, Count, "sequences";
    /// The number of sequences that fit.
    FittingSequences, Count, "fitting_sequences";
    /// Tokens of one prefill or one batch.
    PrefillTokens, Tokens, "prefill_tokens";
    /// Tokens for which the KV cache has room.
    FreeTokens, Tokens, "free_tokens";
    /// The fraction of the device that the engine may take.
    Utilization, Millionths, "memory_fraction";
    /// The memory for the KV cache.
    CacheBytes, Bytes, "cache_memory";
    /// Free memory of the device before the program took its own.
    FreeBefore, Bytes, "free_before";
    /// Free memory of the device at another time.
    FreeLater, Bytes, "free_later";
    /// Free memory of the other devices of the job.
    FreeElsewhere, Bytes, "free_on_other_devices";
    /// Free memory after the weights were loaded.
    FreeAfterWeights, Bytes, "free_after_weights";
    /// The weights on the device.
    Weights, Bytes, "weights";
    /// The buffer of the weights on the device.
    ModelBuffer, Bytes, "model_buffer";
    /// The buffer of the KV cache on the device.
    CacheBuffer, Bytes, "cache_buffer";
    /// Layers on devices.
    LayersOnDevices, Count, "layers_on_devices";
    /// Arguments of a compiled program.
    Arguments, Bytes, "arguments";
    /// Constants of a compiled program.
    Constants, Bytes, "constants";
    /// Results of a compiled program.
    Results, Bytes, "results";
    /// Temporary memory of a compiled program.
    Temporary, Bytes, "temporary";
    /// The tokens of one block of the KV cache.
    BlockLength, Tokens, "block_length";
    /// Memory of the KV cache that one block takes.
    BlockBytes, Bytes, "block";
    /// Blocks of the KV cache.
    Blocks, Count, "blocks";
    /// Anonymous memory of a process on the host.
    Anonymous, Bytes, "anonymous_memory";
    /// Shared memory of a process on the host.
    Shared, Bytes, "shared_memory";
    /// Ended processes.
    Killed, Count, "killed";
    /// The process that was ended.
    ProcessId, Count, "process_id";
    /// The share of a limit that was in use.
    Share, Millionths, "share_in_use";
    /// A requested amount on the host, as a pod declares it.
    HostRequest, Bytes, "host_request";
}
