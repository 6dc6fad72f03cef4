//! The header of a GGUF file: key-value pairs and tensor descriptions, before the data.
//!
//! Source of the rules: `docs/gguf.md` and `src/gguf.cpp` of ggml. Vocabulary arrays are skipped,
//! so that a header takes memory only for its tensors and a few numbers.

mod architecture;
mod cursor;
mod error;
mod split;
mod value;

pub use architecture::architecture;
pub use error::GgufError;
pub use split::{Split, join, split_name};
pub use value::{Value, Values};

use super::name::shown;
use crate::tensor::{Encoding, Tensor};
use cursor::Cursor;
use gpu_core::Bytes;
use std::collections::HashSet;
use std::io::{BufReader, Read};

/// The maximum length of a tensor name in bytes, and the maximum number of dimensions.
const MAX_NAME_BYTES: u64 = 63;
const MAX_DIMENSIONS: u32 = 4;
/// The maximum numbers of pairs and tensors in a file. Models have some dozens of pairs and some
/// thousands of tensors.
const MAX_PAIRS: u64 = 1 << 16;
const MAX_TENSORS: u64 = 1 << 20;
/// The minimum number of bytes of a pair (length, type, and one byte) and of a tensor.
const MIN_PAIR_BYTES: u64 = 8 + 4 + 1;
const MIN_TENSOR_BYTES: u64 = 8 + 4 + 4 + 8;

/// The header of one file.
#[derive(Clone, Debug, PartialEq)]
pub struct Header {
    /// The version of the format: 2 or 3.
    pub version: u32,
    /// The pairs that describe the architecture, and the lengths of the others.
    pub values: Values,
    /// The tensors, in the order of their data.
    pub tensors: Vec<Tensor>,
    /// The position of the file in a split model.
    pub split: Option<Split>,
    /// The offset of the data in the file.
    pub data_start: u64,
}

/// Reads the header of a file.
///
/// `length` is the length of the file in bytes; if given, the data of all tensors must be within
/// it. Reads only the header.
///
/// # Errors
/// If the file cannot be read or violates the format.
pub fn read(file: impl Read, length: Option<u64>) -> Result<Header, GgufError> {
    let mut cursor = Cursor::new(BufReader::new(file), length);
    if &cursor.array("the magic number").map_err(|error| match error {
        GgufError::Truncated { .. } => GgufError::Magic,
        other => other,
    })? != b"GGUF"
    {
        return Err(GgufError::Magic);
    }
    let version = cursor.u32("the version")?;
    match version {
        2 | 3 => {}
        version if version != 0 && version & 0xffff == 0 => return Err(GgufError::BigEndian),
        version => return Err(GgufError::Version(version)),
    }
    let tensors = count(&mut cursor, (MAX_TENSORS, MIN_TENSOR_BYTES), "the number of tensors")?;
    let pairs = count(&mut cursor, (MAX_PAIRS, MIN_PAIR_BYTES), "the number of pairs")?;
    let values = Values::read(&mut cursor, pairs)?;
    let alignment = alignment(&values)?;
    let split = Split::of(&values)?;
    let placed = read_tensors(&mut cursor, tensors, alignment)?;
    let data_start = cursor.at.next_multiple_of(alignment);
    if let Some(length) = length {
        within(&placed, data_start, length)?;
    }
    let tensors = placed.into_iter().map(|(tensor, _)| tensor).collect();
    Ok(Header { version, values, tensors, split, data_start })
}

/// Reads a count of at most `most` items that take at least `least` bytes each.
fn count<R: Read>(
    cursor: &mut Cursor<R>,
    (most, least): (u64, u64),
    what: &'static str,
) -> Result<u64, GgufError> {
    let count = cursor.u64(what)?;
    cursor.limit(count, most, what)?;
    cursor.fits(count.saturating_mul(least), what)?;
    Ok(count)
}

fn alignment(values: &Values) -> Result<u64, GgufError> {
    let alignment = values.integer("general.alignment")?.unwrap_or(32);
    if alignment.is_power_of_two() && alignment <= u64::from(u32::MAX) {
        Ok(alignment)
    } else {
        Err(GgufError::Value {
            key: "general.alignment".to_owned(),
            wanted: "a power of two that fits in 32 bits",
        })
    }
}

/// Reads the descriptions of tensors, each with the offset of its data.
fn read_tensors<R: Read>(
    cursor: &mut Cursor<R>,
    count: u64,
    alignment: u64,
) -> Result<Vec<(Tensor, u64)>, GgufError> {
    let mut tensors = Vec::new();
    let mut names = HashSet::new();
    let mut expected = 0u64;
    for _ in 0..count {
        let (tensor, found) = read_tensor(cursor)?;
        value::unique(&mut names, &tensor.name)?;
        if found != expected {
            let tensor = shown(&tensor.name);
            return Err(GgufError::Offset { tensor, found, expected });
        }
        expected = (tensor.bytes.0.checked_next_multiple_of(alignment))
            .and_then(|padded| expected.checked_add(padded))
            .ok_or_else(|| GgufError::Overflow(shown(&tensor.name)))?;
        tensors.push((tensor, found));
    }
    Ok(tensors)
}

fn read_tensor<R: Read>(cursor: &mut Cursor<R>) -> Result<(Tensor, u64), GgufError> {
    let name = cursor.text(MAX_NAME_BYTES, "the name of a tensor")?;
    let dimensions = cursor.u32("the dimensions of a tensor")?;
    cursor.limit(dimensions.into(), MAX_DIMENSIONS.into(), "the dimensions of a tensor")?;
    let mut shape = Vec::new();
    for _ in 0..dimensions {
        let dimension = cursor.u64("a dimension of a tensor")?;
        cursor.limit(dimension, i64::MAX as u64, "a dimension of a tensor")?;
        shape.push(dimension);
    }
    let number = cursor.u32("the type of a tensor")?;
    let offset = cursor.u64("the offset of a tensor")?;
    let encoding = Encoding::of_ggml(number)
        .ok_or_else(|| GgufError::TensorType { tensor: shown(&name), found: number })?;
    let columns = shape.first().copied().unwrap_or(1);
    let block = encoding.block();
    if !columns.is_multiple_of(block) {
        return Err(GgufError::Block { tensor: shown(&name), columns, block });
    }
    let bytes = (shape.iter())
        .try_fold(1u64, |product, dimension| product.checked_mul(*dimension))
        .filter(|elements| *elements < i64::MAX as u64)
        .and_then(|elements| encoding.bytes(elements))
        .ok_or_else(|| GgufError::Overflow(shown(&name)))?;
    // ggml lists the fastest dimension first.
    shape.reverse();
    Ok((Tensor { name, encoding, shape, bytes: Bytes(bytes) }, offset))
}

/// Checks that the data of all tensors is in the file. The padding of the last tensor may be
/// missing.
fn within(tensors: &[(Tensor, u64)], data_start: u64, length: u64) -> Result<(), GgufError> {
    for (tensor, offset) in tensors {
        let end = data_start.saturating_add(*offset).saturating_add(tensor.bytes.0);
        if tensor.bytes > Bytes(0) && end > length {
            return Err(GgufError::Beyond { tensor: shown(&tensor.name), end, length });
        }
    }
    Ok(())
}

#[cfg(test)]
pub(super) mod tests;
