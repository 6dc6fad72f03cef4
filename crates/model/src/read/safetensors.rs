//! The header of a safetensors file: its length, a JSON object of tensors, and their offsets.
//!
//! Source of the rules: the format's README and `safetensors/src/tensor.rs` of
//! huggingface/safetensors.

use super::name::shown;
use crate::tensor::{Encoding, Tensor};
use gpu_core::Bytes;
use serde::de::{self, Deserializer, MapAccess, Visitor};
use std::collections::HashSet;
use std::fmt;
use std::io::{self, Read};

/// The longest header that the format permits, in bytes.
pub const MAX_HEADER_BYTES: u64 = 100_000_000;

/// The element types of the format.
const TYPES: &[&str] = &[
    "F4",
    "F6_E2M3",
    "F6_E3M2",
    "BOOL",
    "U8",
    "I8",
    "F8_E5M2",
    "F8_E4M3",
    "F8_E8M0",
    "F8_E4M3FNUZ",
    "F8_E5M2FNUZ",
    "I16",
    "U16",
    "F16",
    "BF16",
    "I32",
    "U32",
    "F32",
    "I64",
    "U64",
    "F64",
    "C64",
];

/// Why a header was rejected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SafetensorsError {
    /// The file could not be read.
    #[error("read the file")]
    Io(#[from] io::Error),
    /// The file is shorter than a header length.
    #[error("read the header's length: the file has {0} bytes, fewer than 8")]
    TooSmall(u64),
    /// The file is a Git LFS pointer.
    #[error("read the header: the file is a Git LFS pointer; fetch its data")]
    Pointer,
    /// The header is longer than the format permits.
    #[error("read the header: {0} bytes are more than the format's 100,000,000")]
    TooLarge(u64),
    /// The file ends before the header does.
    #[error("read the header: it claims {claimed} bytes, but only {present} follow")]
    Truncated {
        /// The claimed length.
        claimed: u64,
        /// The bytes that are present.
        present: u64,
    },
    /// The header is not UTF-8.
    #[error("read the header: it is not UTF-8")]
    NotText,
    /// The header is not a JSON object of tensors.
    #[error("parse the header")]
    Json(#[source] serde_json::Error),
    /// The header does not start with `{`.
    #[error("parse the header: it does not start with '{{'")]
    NotAnObject,
    /// A tensor has an element type outside the format.
    #[error("read tensor '{tensor}': unknown element type '{encoding}'")]
    UnknownType {
        /// The tensor.
        tensor: String,
        /// The element type.
        encoding: String,
    },
    /// A tensor overlaps another, leaves a gap before it, or ends before it starts.
    #[error(
        "read tensor '{tensor}': it is at {start}..{end}, but the previous data ends at {expected}"
    )]
    Offset {
        /// The tensor.
        tensor: String,
        /// The offset of its first byte.
        start: u64,
        /// The offset after its last byte.
        end: u64,
        /// The offset at which it must start.
        expected: u64,
    },
    /// The offsets of a tensor do not span the bytes of its shape.
    #[error(
        "read tensor '{tensor}': its shape needs {needed} bytes, but its offsets span {spanned}"
    )]
    Size {
        /// The tensor.
        tensor: String,
        /// The bytes that its shape requires.
        needed: u64,
        /// The bytes between its offsets.
        spanned: u64,
    },
    /// The elements of a tensor do not fill whole bytes.
    #[error("read tensor '{0}': its elements do not fill whole bytes")]
    Misaligned(String),
    /// The size of a tensor is too large to count.
    #[error("read tensor '{0}': its size is too large to count")]
    Overflow(String),
    /// The file is shorter or longer than its header and tensors.
    #[error("read the data: header and tensors take {needed} bytes, but the file has {length}")]
    Length {
        /// The bytes of header and tensors.
        needed: u64,
        /// The length of the file in bytes.
        length: u64,
    },
}

/// Reads the tensors of a file of `length` bytes, in the order of their data.
///
/// Reads only the header. Uses memory in proportion to the header that is present, regardless of
/// what the file claims.
///
/// # Errors
/// If the file cannot be read or violates the format. This includes the length: an incomplete
/// download is rejected.
pub fn read(mut file: impl Read, length: u64) -> Result<Vec<Tensor>, SafetensorsError> {
    let mut size = [0; 8];
    if length < 8 {
        return Err(SafetensorsError::TooSmall(length));
    }
    file.read_exact(&mut size)?;
    if &size == b"version " {
        return Err(SafetensorsError::Pointer);
    }
    let claimed = u64::from_le_bytes(size);
    if claimed > MAX_HEADER_BYTES {
        return Err(SafetensorsError::TooLarge(claimed));
    }
    let present = length - 8;
    if claimed > present {
        return Err(SafetensorsError::Truncated { claimed, present });
    }
    let mut header = Vec::new();
    file.take(claimed).read_to_end(&mut header)?;
    if (header.len() as u64) < claimed {
        let present = header.len() as u64;
        return Err(SafetensorsError::Truncated { claimed, present });
    }
    let header = String::from_utf8(header).map_err(|_| SafetensorsError::NotText)?;
    if !header.starts_with('{') {
        return Err(SafetensorsError::NotAnObject);
    }
    let entries: Entries = serde_json::from_str(&header).map_err(SafetensorsError::Json)?;
    tensors(entries, present - claimed, length)
}

/// Checks the entries against each other and against the bytes of data.
fn tensors(entries: Entries, data: u64, length: u64) -> Result<Vec<Tensor>, SafetensorsError> {
    let Entries(mut entries) = entries;
    entries.sort_by_key(|(_, entry)| entry.data_offsets);
    let mut tensors = Vec::with_capacity(entries.len());
    let mut expected = 0;
    for (name, entry) in entries {
        let (start, end) = entry.data_offsets;
        if start != expected || end < start {
            return Err(SafetensorsError::Offset { tensor: shown(&name), start, end, expected });
        }
        let needed = bytes(&name, &entry)?;
        let encoding = encoding(&name, &entry)?;
        let spanned = end - start;
        if needed != spanned {
            return Err(SafetensorsError::Size { tensor: shown(&name), needed, spanned });
        }
        expected = end;
        tensors.push(Tensor { name, encoding, shape: entry.shape, bytes: Bytes(needed) });
    }
    if expected != data {
        let needed = (length - data).saturating_add(expected);
        return Err(SafetensorsError::Length { needed, length });
    }
    Ok(tensors)
}

fn encoding(name: &str, entry: &Entry) -> Result<Encoding, SafetensorsError> {
    let known = TYPES.contains(&entry.dtype.as_str()).then(|| Encoding::named(&entry.dtype));
    known.flatten().ok_or_else(|| SafetensorsError::UnknownType {
        tensor: shown(name),
        encoding: shown(&entry.dtype),
    })
}

fn bytes(name: &str, entry: &Entry) -> Result<u64, SafetensorsError> {
    let encoding = encoding(name, entry)?;
    let bits = (entry.shape.iter())
        .try_fold(1u64, |product, dimension| product.checked_mul(*dimension))
        .and_then(|elements| elements.checked_mul(encoding.block_bits()))
        .ok_or_else(|| SafetensorsError::Overflow(shown(name)))?;
    if bits.is_multiple_of(8) {
        Ok(bits / 8)
    } else {
        Err(SafetensorsError::Misaligned(shown(name)))
    }
}

/// A tensor as stored in the JSON.
#[derive(serde::Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

/// The tensors of the JSON, without its metadata.
struct Entries(Vec<(String, Entry)>);

impl<'de> de::Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(EntriesVisitor)
    }
}

struct EntriesVisitor;

impl<'de> Visitor<'de> for EntriesVisitor {
    type Value = Entries;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
        let mut entries = Vec::new();
        let mut names = HashSet::new();
        while let Some(name) = map.next_key::<String>()? {
            if !names.insert(name.clone()) {
                return Err(de::Error::custom(format!("'{}' occurs twice", shown(&name))));
            }
            if name == "__metadata__" {
                map.next_value::<Metadata>()?;
            } else {
                entries.push((name, map.next_value()?));
            }
        }
        Ok(Entries(entries))
    }
}

/// The metadata, a map of strings that is discarded.
struct Metadata;

impl<'de> de::Deserialize<'de> for Metadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MetadataVisitor)
    }
}

struct MetadataVisitor;

impl<'de> Visitor<'de> for MetadataVisitor {
    type Value = Metadata;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with string values")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Metadata, A::Error> {
        let mut names = HashSet::new();
        while let Some((name, _)) = map.next_entry::<String, String>()? {
            if names.contains(&name) {
                return Err(de::Error::custom(format!("'{}' occurs twice", shown(&name))));
            }
            names.insert(name);
        }
        Ok(Metadata)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn file(header: &str, data: usize) -> Vec<u8> {
        let mut file = (header.len() as u64).to_le_bytes().to_vec();
        file.extend(header.as_bytes());
        file.resize(file.len() + data, 0);
        file
    }

    fn read_bytes(file: &[u8]) -> Result<Vec<Tensor>, SafetensorsError> {
        read(file, file.len() as u64)
    }

    fn refusal(header: &str, data: usize) -> SafetensorsError {
        read_bytes(&file(header, data)).expect_err(header)
    }

    fn one(dtype: &str, shape: &str, start: u64, end: u64) -> String {
        format!(r#"{{"a":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{start},{end}]}}}}"#)
    }

    #[test]
    fn tensors_are_in_the_order_of_their_data() {
        let header = r#"{"__metadata__":{"format":"pt"},
            "b":{"dtype":"BF16","shape":[2,3],"data_offsets":[4,16]},
            "none":{"dtype":"F32","shape":[0,9],"data_offsets":[4,4]},
            "a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},
            "c":{"dtype":"F4","shape":[4],"data_offsets":[16,18]}}   "#;
        let tensors = read_bytes(&file(header, 18)).unwrap();
        let names: Vec<_> = tensors.iter().map(|tensor| tensor.name.as_str()).collect();
        assert_eq!(names, ["a", "none", "b", "c"]);
        assert_eq!(tensors[2].shape, [2, 3]);
        assert_eq!(tensors[2].encoding.name(), "BF16");
        assert_eq!(tensors.iter().map(|tensor| tensor.bytes).sum::<Bytes>(), Bytes(18));
        assert_eq!(tensors[0].elements(), 1);
    }

    #[test]
    fn rejects_two_gigabyte_header_without_reading_it() {
        let mut file = (2u64 << 30).to_le_bytes().to_vec();
        file.extend(b"{}");
        let error = read(file.as_slice(), 3 << 30).unwrap_err();
        assert!(matches!(error, SafetensorsError::TooLarge(claimed) if claimed == 2 << 30));
    }

    #[test]
    fn reports_git_lfs_pointer() {
        let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n";
        assert!(matches!(read_bytes(pointer), Err(SafetensorsError::Pointer)));
    }

    #[test]
    fn rejects_false_lengths() {
        let mut bytes = 90_000_000u64.to_le_bytes().to_vec();
        bytes.extend(b"{}");
        let lie = bytes.as_slice();
        assert!(matches!(
            read_bytes(lie),
            Err(SafetensorsError::Truncated { claimed: 90_000_000, present: 2 })
        ));
        // The length of the file is also false.
        assert!(matches!(
            read(lie, 1 << 40),
            Err(SafetensorsError::Truncated { claimed: 90_000_000, present: 2 })
        ));
        // Data past the length of the file is never read, even if there is more.
        let endless = lie.chain(std::io::repeat(0));
        assert!(matches!(
            read(endless, 10),
            Err(SafetensorsError::Truncated { claimed: 90_000_000, present: 2 })
        ));
        let lengths = [u64::MAX, u64::MAX - 7, 1 << 63];
        for length in lengths {
            let file = length.to_le_bytes();
            assert!(matches!(read_bytes(&file), Err(SafetensorsError::TooLarge(_))));
        }
    }

    #[test]
    fn every_truncation_is_an_error() {
        let whole = file(&one("F32", "[2]", 0, 8), 8);
        assert!(read_bytes(&whole).is_ok());
        for length in 0..whole.len() {
            assert!(read_bytes(&whole[..length]).is_err(), "{length}");
        }
        let mut longer = whole;
        longer.push(0);
        assert!(matches!(read_bytes(&longer), Err(SafetensorsError::Length { .. })));
    }

    #[test]
    fn rejects_gaps_overlaps_and_wrong_sizes() {
        assert!(matches!(refusal(&one("U8", "[1]", 1, 2), 2), SafetensorsError::Offset { .. }));
        assert!(matches!(refusal(&one("U8", "[0]", 1, 0), 1), SafetensorsError::Offset { .. }));
        assert!(matches!(refusal(&one("U8", "[3]", 0, 2), 2), SafetensorsError::Size { .. }));
        let two = r#"{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},
                      "b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}"#;
        let error = refusal(two, 3);
        assert_eq!(
            error.to_string(),
            "read tensor 'b': it is at 1..3, but the previous data ends at 2"
        );
    }

    #[test]
    fn rejects_overflowing_sizes() {
        // 4 × (2^30 − 1) × (2^30 + 1) elements of 4 bytes are 16 bytes less than 2^64.
        let wraps = one("F32", "[4,1073741823,1073741825]", 0, 0);
        assert!(matches!(refusal(&wraps, 0), SafetensorsError::Overflow(_)));
        let product = one("U8", "[4294967296,4294967296]", 0, 0);
        assert!(matches!(refusal(&product, 0), SafetensorsError::Overflow(_)));
        assert!(matches!(refusal(&one("F4", "[3]", 0, 1), 1), SafetensorsError::Misaligned(_)));
    }

    #[test]
    fn rejects_json_without_tensors() {
        let twice = r#"{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},
                        "a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}"#;
        let metadata = r#"{"__metadata__":{"a":"b","a":"c"}}"#;
        let number = r#"{"__metadata__":{"a":1}}"#;
        let negative = one("U8", "[-1]", 0, 0);
        for header in [twice, metadata, number, negative.as_str(), "{", "{}x", r#"{"a":[]}"#] {
            assert!(matches!(refusal(header, 0), SafetensorsError::Json(_)), "{header}");
        }
        for header in ["", " {}", "[]"] {
            assert!(matches!(refusal(header, 0), SafetensorsError::NotAnObject), "{header}");
        }
        assert!(matches!(read_bytes(&file("{}", 0)), Ok(none) if none.is_empty()));
        let mut binary = file("{ }", 0);
        binary[9] = 0xff;
        assert!(matches!(read_bytes(&binary), Err(SafetensorsError::NotText)));
    }

    #[test]
    fn rejects_types_of_other_formats() {
        for dtype in ["Q4_0", "f32", "F128", ""] {
            let error = refusal(&one(dtype, "[0]", 0, 0), 0);
            assert!(matches!(error, SafetensorsError::UnknownType { .. }), "{dtype}");
        }
        for dtype in TYPES {
            assert!(read_bytes(&file(&one(dtype, "[0]", 0, 0), 0)).is_ok(), "{dtype}");
        }
    }

    proptest! {
        #[test]
        fn written_tensors_round_trip(
            shapes in prop::collection::vec((prop::collection::vec(0u64..5, 0..4), 0..TYPES.len()), 0..12)
        ) {
            let mut header = serde_json::Map::new();
            let (mut offset, mut wanted) = (0, Vec::new());
            for (index, (shape, dtype)) in shapes.into_iter().enumerate() {
                let encoding = Encoding::named(TYPES[dtype]).unwrap();
                let Some(bytes) = encoding.bytes(shape.iter().product()) else { continue };
                let name = format!("t{index:02}");
                header.insert(name.clone(), serde_json::json!({
                    "dtype": encoding.name(), "shape": shape, "data_offsets": [offset, offset + bytes],
                }));
                offset += bytes;
                wanted.push(Tensor { name, encoding, shape, bytes: Bytes(bytes) });
            }
            let bytes = file(&serde_json::Value::Object(header).to_string(), offset as usize);
            let mut read = read_bytes(&bytes).unwrap();
            // Tensors without bytes share an offset.
            read.sort_by(|a, b| a.name.cmp(&b.name));
            prop_assert_eq!(read, wanted);
        }

        #[test]
        fn random_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..64), text in ".{0,80}") {
            let _ = read_bytes(&bytes);
            let _ = read_bytes(&file(&format!("{{{text}"), 0));
        }
    }
}
