//! Models split into several GGUF files.

use super::{GgufError, Header, Values};
use crate::read::name::numbered;
use crate::tensor::Tensor;

/// The position of a file in a split model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    /// The number of the file, counted from 0 (`split.no`).
    pub number: u64,
    /// The number of files (`split.count`).
    pub count: u64,
    /// The number of tensors in all files (`split.tensors.count`).
    pub tensors: u64,
}

impl Split {
    /// Reads the position from the pairs of a header; `None` for a model in one file.
    pub(super) fn of(values: &Values) -> Result<Option<Split>, GgufError> {
        let count = values.integer("split.count")?.unwrap_or(0);
        if count <= 1 {
            return Ok(None);
        }
        let wanted =
            |key: &str| values.integer(key)?.ok_or_else(|| GgufError::Missing(key.to_owned()));
        let (number, tensors) = (wanted("split.no")?, wanted("split.tensors.count")?);
        if count > u64::from(u16::MAX) || number >= count {
            let problem = format!("there cannot be a file {number} of {count}");
            return Err(GgufError::Split(problem));
        }
        Ok(Some(Split { number, count, tensors }))
    }
}

/// Returns the prefix, the number (counted from 1) and the count in a name such as
/// `llama-00001-of-00003.gguf`.
pub fn split_name(name: &str) -> Option<(&str, u64, u64)> {
    numbered(name.strip_suffix(".gguf")?)
}

/// Joins the headers of a split model, in the order of their numbers.
///
/// Returns all tensors, and the pairs of the first file, which describe the architecture. A single
/// header is a complete model.
///
/// # Errors
/// If a file is missing, duplicated or from another model, or if a tensor is missing.
pub fn join(headers: Vec<Header>) -> Result<(Values, Vec<Tensor>), GgufError> {
    let files = headers.len() as u64;
    let mut joined: Option<(Values, Option<Split>, Vec<Tensor>)> = None;
    for (index, header) in headers.into_iter().enumerate() {
        let Header { values, tensors, split, .. } = header;
        let (number, count) = split.map_or((0, 1), |split| (split.number, split.count));
        if number != index as u64 || count != files {
            let wrong = format!(
                "file {} of {files} claims to be file {} of {count}",
                index + 1,
                number + 1
            );
            return Err(GgufError::Split(wrong));
        }
        match &mut joined {
            None => joined = Some((values, split, tensors)),
            Some((_, _, all)) => all.extend(tensors),
        }
    }
    let (values, split, tensors) =
        joined.ok_or_else(|| GgufError::Split("there are no files".to_owned()))?;
    if let Some(split) = split
        && split.tensors != tensors.len() as u64
    {
        let (wanted, found) = (split.tensors, tensors.len());
        return Err(GgufError::Split(format!(
            "{wanted} tensors are announced, but {found} are present"
        )));
    }
    let mut names = std::collections::HashSet::new();
    for tensor in &tensors {
        super::value::unique(&mut names, &tensor.name)?;
    }
    Ok((values, tensors))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_splits_have_five_digits() {
        assert_eq!(split_name("a-b-00002-of-00003.gguf"), Some(("a-b", 2, 3)));
        for name in [
            "a.gguf",
            "a-1-of-2.gguf",
            "a-00000-of-00002.gguf",
            "a-00003-of-00002.gguf",
            "-00001-of-00001.gguf",
        ] {
            assert_eq!(split_name(name), None, "{name}");
        }
    }
}
