//! The index of a model in several files: `model.safetensors.index.json`, or PyTorch's
//! `pytorch_model.bin.index.json` in the same form.

use super::name::{is_plain, shown};
use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, Visitor};
use std::collections::BTreeMap;
use std::fmt;

/// The maximum size of an index in bytes. The index of a model with 100,000 tensors takes 10 MB.
pub const MAX_INDEX_BYTES: u64 = 64 << 20;

/// Why an index was rejected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IndexError {
    /// The text is not JSON of the right form, or a tensor is duplicated.
    #[error("parse the index")]
    Json(#[from] serde_json::Error),
    /// The index has more bytes than the limit.
    #[error("read the index: {0} bytes are more than 64 MiB")]
    TooLarge(u64),
    /// A file name is a path or a hidden file.
    #[error("read the index: '{0}' is not a file name in its directory")]
    Path(String),
    /// The index does not name any file.
    #[error("read the index: it does not name any file")]
    Empty,
}

/// The tensors in each file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Index {
    /// The tensor names in each file, by file name. File names are never paths.
    pub files: BTreeMap<String, Vec<String>>,
    /// The total bytes of all tensors that the index claims.
    pub total_bytes: Option<u64>,
    /// The number of parameters that the index claims.
    pub total_parameters: Option<u64>,
}

/// Reads an index.
///
/// # Errors
/// If the text is not an index, or names a file outside its directory.
pub fn read(text: &[u8]) -> Result<Index, IndexError> {
    if text.len() as u64 > MAX_INDEX_BYTES {
        return Err(IndexError::TooLarge(text.len() as u64));
    }
    let document: Document = serde_json::from_slice(text)?;
    let mut files: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (tensor, file) in document.weight_map.0 {
        if !is_plain(&file) {
            return Err(IndexError::Path(shown(&file)));
        }
        files.entry(file).or_default().push(tensor);
    }
    if files.is_empty() {
        return Err(IndexError::Empty);
    }
    let metadata = document.metadata.unwrap_or_default();
    let integer = |number: Option<serde_json::Number>| number?.as_u64();
    let total_bytes = integer(metadata.total_size);
    Ok(Index { files, total_bytes, total_parameters: integer(metadata.total_parameters) })
}

#[derive(Deserialize)]
struct Document {
    weight_map: Weights,
    metadata: Option<Metadata>,
}

#[derive(Default, Deserialize)]
struct Metadata {
    total_size: Option<serde_json::Number>,
    total_parameters: Option<serde_json::Number>,
}

/// The file of each tensor, by tensor name.
struct Weights(BTreeMap<String, String>);

impl<'de> Deserialize<'de> for Weights {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(WeightsVisitor)
    }
}

struct WeightsVisitor;

impl<'de> Visitor<'de> for WeightsVisitor {
    type Value = Weights;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of file names")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Weights, A::Error> {
        let mut weights = BTreeMap::new();
        while let Some((tensor, file)) = map.next_entry::<String, String>()? {
            if weights.contains_key(&tensor) {
                return Err(de::Error::custom(format!("'{}' occurs twice", shown(&tensor))));
            }
            weights.insert(tensor, file);
        }
        Ok(Weights(weights))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_are_listed_by_file() {
        let text = br#"{"metadata":{"total_size":12,"total_parameters":6},
            "weight_map":{"b":"model-2.safetensors","a":"model-1.safetensors","c":"model-1.safetensors"}}"#;
        let index = read(text).unwrap();
        assert_eq!(index.total_bytes, Some(12));
        assert_eq!(index.total_parameters, Some(6));
        assert_eq!(index.files["model-1.safetensors"], ["a", "c"]);
        assert_eq!(index.files["model-2.safetensors"], ["b"]);
        // Some tools write the size as a float.
        let float = br#"{"metadata":{"total_size":1.5e9},"weight_map":{"a":"b"}}"#;
        assert_eq!(read(float).unwrap().total_bytes, None);
    }

    #[test]
    fn rejects_paths() {
        for file in ["../../etc/shadow", "/dev/zero", "a/b", "..", ".", "a\\\\b", "c:b", ""] {
            let text = format!(r#"{{"weight_map":{{"a":"{file}"}}}}"#);
            assert!(matches!(read(text.as_bytes()), Err(IndexError::Path(_))), "{file}");
        }
    }

    #[test]
    fn rejects_malformed_indexes() {
        let twice = r#"{"weight_map":{"a":"b","a":"c"}}"#;
        for text in [twice, "", "[]", "{}", r#"{"weight_map":{"a":1}}"#] {
            assert!(matches!(read(text.as_bytes()), Err(IndexError::Json(_))), "{text}");
        }
        assert!(matches!(read(br#"{"weight_map":{}}"#), Err(IndexError::Empty)));
    }
}
