//! PyTorch weights (`.bin`, `.pt`, `.pth`): a zip file with a pickle and one entry per storage.
//!
//! Sizes come from the directory of the zip file and do not need the pickle. Names and shapes come
//! from walking the pickle without executing it; if it contains anything unknown, the result has
//! only sizes. Source of the layout: `torch/serialization.py` and
//! `caffe2/serialize/inline_container.h` of PyTorch.

mod pickle;

use super::name::shown;
use crate::tensor::{Encoding, Tensor};
use gpu_core::Bytes;
use pickle::View;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Seek, SeekFrom};
use zip::ZipArchive;
use zip::result::ZipError;

/// The maximum number of bytes read from a file: its directory, and the header of each entry.
const MAX_READ_BYTES: u64 = 96 << 20;
/// The maximum size of a pickle in bytes.
const MAX_PICKLE_BYTES: u64 = 32 << 20;
/// The maximum number of storages in a file.
const MAX_STORAGES: usize = 1 << 18;

/// Why a PyTorch file was rejected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TorchError {
    /// The file could not be read.
    #[error("read the file")]
    Io(#[from] io::Error),
    /// The directory of the zip file is malformed, or too large.
    #[error("read the directory of the zip file")]
    Zip(#[source] ZipError),
    /// The file has the format of PyTorch before 1.6.
    #[error(
        "read the file: it has the format of PyTorch before 1.6; save it again with a newer PyTorch"
    )]
    Legacy,
    /// The file was not saved by PyTorch.
    #[error("read the zip file: {0}")]
    Foreign(String),
    /// The storages claim more bytes than the file has.
    #[error("read the zip file: its storages claim {claimed} bytes, but the file has {length}")]
    Claimed {
        /// The bytes that the storages claim.
        claimed: u64,
        /// The length of the file in bytes.
        length: u64,
    },
}

/// The content of a PyTorch file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Weights {
    /// The tensors by name. A storage shared by two tensors is counted once, for the first; a
    /// storage without a known tensor becomes a byte tensor named `data/KEY`.
    pub tensors: Vec<Tensor>,
    /// What could not be read or was omitted.
    pub notes: Vec<String>,
}

/// Reads the weights of a file of `length` bytes.
///
/// # Errors
/// If the file cannot be read, is not a PyTorch zip file, or claims more than its length.
pub fn read(file: impl Read + Seek, length: u64) -> Result<Weights, TorchError> {
    let mut file = Metered { file, left: MAX_READ_BYTES };
    let mut start = Vec::new();
    (&mut file).take(16).read_to_end(&mut start)?;
    if is_legacy(&start) {
        return Err(TorchError::Legacy);
    }
    file.seek(SeekFrom::Start(0))?;
    let mut archive = ZipArchive::new(file).map_err(TorchError::Zip)?;
    let (top, storages) = storages(&mut archive, length)?;
    let mut weights = Weights::default();
    match views(&mut archive, &top) {
        Ok(views) => weights.fill(views, &storages),
        Err(problem) => {
            weights.fill(Vec::new(), &storages);
            weights.notes.push(format!("names and shapes are not read: data.pkl: {problem}"));
        }
    }
    Ok(weights)
}

/// Returns whether a file starts like PyTorch's older formats, with a pickle of the number
/// 0x1950A86A20F9469CFC6C.
pub(super) fn is_legacy(start: &[u8]) -> bool {
    start.get(2..14) == Some(b"\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19")
}

/// Returns the name of the top-level folder, and the bytes of each storage by key.
fn storages<R: Read + Seek>(
    archive: &mut ZipArchive<R>,
    length: u64,
) -> Result<(String, BTreeMap<String, u64>), TorchError> {
    let foreign = |text: &str| TorchError::Foreign(text.to_owned());
    let top = (archive.file_names())
        .filter_map(Result::ok)
        .find_map(|name| {
            let top = name.strip_suffix("/data.pkl").filter(|top| !top.contains('/'))?;
            Some(top.to_owned())
        })
        .ok_or_else(|| foreign("it has no data.pkl in a folder"))?;
    if archive.len() > MAX_STORAGES {
        return Err(foreign("it has more than 262,144 entries"));
    }
    let mut storages = BTreeMap::new();
    let mut claimed = 0u64;
    for index in 0..archive.len() {
        let entry = archive.by_index_raw(index).map_err(TorchError::Zip)?;
        let name = entry.name().map_err(TorchError::Zip)?;
        let key = name.strip_prefix(&top).and_then(|rest| rest.strip_prefix("/data/"));
        let Some(key) = key.filter(|key| !key.is_empty()) else { continue };
        if entry.compression() != zip::CompressionMethod::Stored || entry.encrypted() {
            return Err(foreign("a storage is compressed or encrypted"));
        }
        claimed = claimed.saturating_add(entry.size());
        storages.insert(key.to_owned(), entry.size());
    }
    if claimed > length {
        Err(TorchError::Claimed { claimed, length })
    } else {
        Ok((top, storages))
    }
}

/// Reads the tensors of the pickle, or describes what is unknown.
fn views<R: Read + Seek>(archive: &mut ZipArchive<R>, top: &str) -> Result<Vec<View>, String> {
    let entry = archive.by_name(&format!("{top}/data.pkl")).map_err(|error| error.to_string())?;
    if entry.size() > MAX_PICKLE_BYTES {
        return Err(format!("{} bytes are more than 32 MiB", entry.size()));
    }
    let mut bytes = Vec::new();
    entry.take(MAX_PICKLE_BYTES).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    pickle::read(&bytes)
}

impl Weights {
    /// Adds the views that fit in their storages, then the rest of each storage. The sum equals
    /// that of the storages.
    fn fill(&mut self, views: Vec<View>, storages: &BTreeMap<String, u64>) {
        let mut left = storages.clone();
        let mut seen: BTreeSet<(String, u64)> = BTreeSet::new();
        let mut shared = 0usize;
        for view in views {
            let Some(tensor) = view.within(storages) else {
                let name = shown(&view.name);
                self.notes
                    .push(format!("tensor '{name}' is omitted: it does not fit in its storage"));
                continue;
            };
            let room = left.entry(view.storage.clone()).or_default();
            let again = tensor.bytes > Bytes(0) && !seen.insert((view.storage, view.offset));
            match room.checked_sub(tensor.bytes.0) {
                Some(rest) if !again => {
                    *room = rest;
                    self.tensors.push(tensor);
                }
                _ => shared += 1,
            }
        }
        if shared > 0 {
            self.notes.push(format!("{shared} tensors share the storage of another"));
        }
        for (key, rest) in left {
            let Some(encoding) = Encoding::named("U8").filter(|_| rest > 0) else { continue };
            let name = format!("data/{key}");
            self.tensors.push(Tensor { name, encoding, shape: vec![rest], bytes: Bytes(rest) });
        }
    }
}

impl View {
    /// Returns the tensor, if it fits in its storage.
    fn within(&self, storages: &BTreeMap<String, u64>) -> Option<Tensor> {
        let encoding = Encoding::named(self.encoding)?;
        let elements = (self.shape.iter())
            .try_fold(1u64, |product, dimension| product.checked_mul(*dimension))?;
        let end = encoding.bytes(self.offset.checked_add(elements)?)?;
        (end <= *storages.get(&self.storage)?).then_some(())?;
        let bytes = Bytes(encoding.bytes(elements)?);
        Some(Tensor { name: self.name.clone(), encoding, shape: self.shape.clone(), bytes })
    }
}

/// A file with a limit on the bytes read from it.
struct Metered<R> {
    file: R,
    left: u64,
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 {
            return Err(io::Error::other("the directory takes more than 96 MiB"));
        }
        let most = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let read = self.file.read(buffer.get_mut(..most).unwrap_or_default())?;
        self.left = self.left.saturating_sub(read as u64);
        Ok(read)
    }
}

impl<R: Seek> Seek for Metered<R> {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        self.file.seek(position)
    }
}

#[cfg(test)]
pub(super) mod tests;
