//! Why a GGUF header was rejected.

use std::io;

/// Why a GGUF header was rejected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GgufError {
    /// The file could not be read.
    #[error("read the file")]
    Io(#[from] io::Error),
    /// The file does not start with `GGUF`.
    #[error("read the header: it does not start with 'GGUF'")]
    Magic,
    /// The version is unknown.
    #[error("read the header: version {0} is neither 2 nor 3")]
    Version(u32),
    /// The file was written for machines of the opposite byte order.
    #[error("read the header: the file is big-endian")]
    BigEndian,
    /// The file ends within the header, or a count or length exceeds the rest of it.
    #[error("read {what} at byte {at}: the file ends too early")]
    Truncated {
        /// The item being read.
        what: &'static str,
        /// The offset of the item.
        at: u64,
    },
    /// A count, a length or the header exceeds the limit.
    #[error("read {what} at byte {at}: {found} is more than {limit}")]
    TooMuch {
        /// The item being read.
        what: &'static str,
        /// The offset of the item.
        at: u64,
        /// The number in the file.
        found: u64,
        /// The limit.
        limit: u64,
    },
    /// A name is not UTF-8, is empty, or is duplicated.
    #[error("read '{name}': the name {problem}")]
    Name {
        /// The name.
        name: String,
        /// The problem with it.
        problem: &'static str,
    },
    /// A value has a type that does not exist or is not allowed here.
    #[error("read '{key}': unknown or wrong type {found}")]
    ValueType {
        /// The key.
        key: String,
        /// The number of the type.
        found: u32,
    },
    /// A value is not valid for its key.
    #[error("read '{key}': it is not {wanted}")]
    Value {
        /// The key.
        key: String,
        /// The expected value.
        wanted: &'static str,
    },
    /// A key is missing.
    #[error("read '{0}': it is missing")]
    Missing(String),
    /// A tensor has a type that ggml lacks.
    #[error("read tensor '{tensor}': unknown type {found}")]
    TensorType {
        /// The tensor.
        tensor: String,
        /// The number of the type.
        found: u32,
    },
    /// A tensor's first dimension is not a multiple of its type's block size.
    #[error(
        "read tensor '{tensor}': {columns} columns are not a multiple of the block size {block}"
    )]
    Block {
        /// The tensor.
        tensor: String,
        /// Its first dimension.
        columns: u64,
        /// The number of elements in a block.
        block: u64,
    },
    /// The size of a tensor, or of all tensors up to it, is too large to count.
    #[error("read tensor '{0}': its size is too large to count")]
    Overflow(String),
    /// A tensor does not start where the previous one ends.
    #[error(
        "read tensor '{tensor}': it starts at {found}, but the previous data ends at {expected}"
    )]
    Offset {
        /// The tensor.
        tensor: String,
        /// The offset in the file.
        found: u64,
        /// The offset that follows from the preceding tensors.
        expected: u64,
    },
    /// The data of a tensor extends beyond the end of the file.
    #[error("read tensor '{tensor}': its data ends at byte {end}, but the file has {length}")]
    Beyond {
        /// The tensor.
        tensor: String,
        /// The offset of the end of the data.
        end: u64,
        /// The length of the file in bytes.
        length: u64,
    },
    /// The files of a split model do not belong together.
    #[error("read the files of a split model: {0}")]
    Split(String),
}
