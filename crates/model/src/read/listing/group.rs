//! Files of a directory that belong together.

use super::{File, Listing, ReadError};
use crate::read::detect::{Format, detect};
use crate::read::name::numbered;
use std::collections::BTreeMap;

/// Files that belong together.
pub(super) struct Group {
    pub(super) format: Format,
    /// The part of the name before the numbers and the extension.
    pub(super) prefix: String,
    /// The index, if there is one.
    pub(super) index: Option<String>,
    pub(super) files: Vec<String>,
    /// The number of files according to the names, if they state it.
    pub(super) count: u64,
}

/// Selects the group to read: the requested one, the only one, or the one with the usual name.
pub(super) fn choose(
    groups: &mut Vec<Group>,
    wanted: Option<&str>,
) -> Result<Option<Group>, ReadError> {
    if let Some(wanted) = wanted {
        let has = |group: &Group| {
            group.index.as_deref() == Some(wanted) || group.files.iter().any(|file| file == wanted)
        };
        let found = groups.iter().position(has).map(|at| groups.swap_remove(at));
        groups.clear();
        return Ok(found);
    }
    for format in [Format::Safetensors, Format::Gguf, Format::Torch] {
        let of_format = |group: &&Group| group.format == format;
        let count = groups.iter().filter(of_format).count();
        if count == 0 {
            continue;
        }
        let usual = |group: &Group| {
            group.format == format
                && (group.index.is_some()
                    || matches!(group.prefix.as_str(), "model" | "pytorch_model"))
        };
        let at = groups.iter().position(usual).or_else(|| {
            let only = count == 1;
            only.then(|| groups.iter().position(|group| group.format == format)).flatten()
        });
        let names = |groups: &[Group]| {
            let first = |group: &Group| group.files.first().cloned();
            groups.iter().filter(of_format).filter_map(first).collect()
        };
        return match at {
            Some(at) => Ok(Some(groups.swap_remove(at))),
            None => Err(ReadError::Several(names(groups))),
        };
    }
    Ok(None)
}

/// Returns whether a file has the extension of weights but other content.
fn is_auxiliary(name: &str) -> bool {
    let starts =
        ["optimizer", "scheduler", "rng_state", "training_args", "scaler", "adapter_", "mmproj"];
    starts.iter().any(|start| name.starts_with(start))
}

impl Listing<'_> {
    /// Groups weight files that belong together, by format and prefix.
    pub(super) fn groups(&self, wanted: Option<&str>) -> Result<Vec<Group>, ReadError> {
        let mut groups: BTreeMap<(Format, String, u64), Group> = BTreeMap::new();
        let mut indexes = Vec::new();
        for file in self.files {
            let format = match self.format(file, wanted)? {
                Some(format @ (Format::Safetensors | Format::Gguf | Format::Torch)) => format,
                Some(Format::Index) => {
                    indexes.push(file.name.as_str());
                    continue;
                }
                _ => continue,
            };
            if is_auxiliary(&file.name) && wanted != Some(file.name.as_str()) {
                continue;
            }
            let stem = file.name.rsplit_once('.').map_or(file.name.as_str(), |(stem, _)| stem);
            let (prefix, count) = match numbered(stem) {
                Some((prefix, _, count)) => (prefix.to_owned(), count),
                None => (stem.to_owned(), 1),
            };
            let key = (format, prefix.clone(), count);
            let empty = || Group { format, prefix, index: None, files: Vec::new(), count };
            groups.entry(key).or_insert_with(empty).files.push(file.name.clone());
        }
        let mut groups: Vec<Group> = groups.into_values().collect();
        for index in indexes {
            let (format, prefix) = match index.strip_suffix(".safetensors.index.json") {
                Some(prefix) => (Format::Safetensors, prefix),
                None => (Format::Torch, index.strip_suffix(".bin.index.json").unwrap_or(index)),
            };
            let same = |group: &&mut Group| group.format == format && group.prefix == prefix;
            match groups.iter_mut().find(same) {
                Some(group) => group.index = Some(index.to_owned()),
                None => groups.push(Group {
                    format,
                    prefix: prefix.to_owned(),
                    index: Some(index.to_owned()),
                    files: Vec::new(),
                    count: 1,
                }),
            }
        }
        for group in &mut groups {
            group.files.sort();
        }
        Ok(groups)
    }

    /// Returns the files that have the extension of weights but other content.
    pub(super) fn auxiliary(&self, wanted: Option<&str>) -> Vec<String> {
        let other = |name: &&str| {
            is_auxiliary(name) && wanted != Some(*name) && detect(name, b"").is_some()
        };
        self.files.iter().map(|file| file.name.as_str()).filter(other).map(str::to_owned).collect()
    }

    /// Returns the format by name, or by the first bytes of a requested file without a known
    /// extension, as in stores that name files by digest.
    fn format(&self, file: &File, wanted: Option<&str>) -> Result<Option<Format>, ReadError> {
        match detect(&file.name, b"") {
            None if wanted == Some(file.name.as_str()) => {
                let mut start = self.bytes(&file.name, 15)?;
                start.truncate(16);
                Ok(detect(&file.name, &start))
            }
            format => Ok(format),
        }
    }
}
