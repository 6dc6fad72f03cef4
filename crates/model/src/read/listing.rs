//! The model among the files of a directory.

use super::config::{self, Config, ConfigError};
use super::detect::{Format, detect};
use super::gguf::{self, GgufError};
use super::index::{self, IndexError};
use super::name::{numbered, shown};
use super::safetensors::{self, SafetensorsError};
use super::torch::{self, TorchError};
use crate::model::Model;
use crate::tensor::Tensor;
use std::collections::{BTreeMap, HashSet};
use std::io::{self, Read, Seek};

/// A file that is read from any place.
pub trait Source: Read + Seek {}

impl<T: Read + Seek> Source for T {}

/// Opens a file of a listing by its name. The reader does no I/O of its own.
pub type Open<'a> = dyn Fn(&str) -> io::Result<Box<dyn Source>> + 'a;

/// A file of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Its name, without a path.
    pub name: String,
    /// Its length in bytes.
    pub bytes: u64,
}

/// Why no model was read from a directory.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// No file is one of a model.
    #[error("find a model: no file is one of a model that is read")]
    Nothing,
    /// There are several models.
    #[error("find the model: there are several: {}", list(.0))]
    Several(Vec<String>),
    /// Files of the model are missing.
    #[error("read the model: files are missing: {}", list(.0))]
    Missing(Vec<String>),
    /// A file has not the tensor that the index says it has.
    #[error("read '{file}': it has no tensor '{tensor}', and the index says that it has")]
    TensorMissing {
        /// The file.
        file: String,
        /// The tensor.
        tensor: String,
    },
    /// A tensor is in several files.
    #[error("read '{file}': tensor '{tensor}' is in another file too")]
    Twice {
        /// The file.
        file: String,
        /// The tensor.
        tensor: String,
    },
    /// A file could not be opened or read.
    #[error("read '{file}'")]
    Open {
        /// The file.
        file: String,
        /// The error.
        source: io::Error,
    },
    /// A file of safetensors is malformed.
    #[error("read '{file}'")]
    Safetensors {
        /// The file.
        file: String,
        /// The error.
        source: SafetensorsError,
    },
    /// A file of GGUF is malformed.
    #[error("read '{file}'")]
    Gguf {
        /// The file.
        file: String,
        /// The error.
        source: GgufError,
    },
    /// A file of PyTorch is malformed.
    #[error("read '{file}'")]
    Torch {
        /// The file.
        file: String,
        /// The error.
        source: TorchError,
    },
    /// The index is malformed.
    #[error("read '{file}'")]
    Index {
        /// The file.
        file: String,
        /// The error.
        source: IndexError,
    },
    /// The configuration is malformed, and there is nothing else.
    #[error("read '{file}'")]
    Config {
        /// The file.
        file: String,
        /// The error.
        source: ConfigError,
    },
}

/// Lists names in an error: at most eight.
fn list(names: &[String]) -> String {
    let start: Vec<String> = names.iter().take(8).map(|name| shown(name)).collect();
    match names.len().saturating_sub(8) {
        0 => start.join(", "),
        more => format!("{} and {more} more", start.join(", ")),
    }
}

/// A model that was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The model.
    pub model: Model,
    /// The format of its tensors; [`Format::Config`] if they are derived from the configuration.
    pub format: Format,
    /// The configuration, if there is one that can be read.
    pub config: Option<Config>,
    /// The files that have the tensors.
    pub files: Vec<String>,
    /// What was ignored, or is known less exactly.
    pub notes: Vec<String>,
}

/// Reads the model among the files of a directory.
///
/// Safetensors are preferred to GGUF, and GGUF to files of PyTorch; with none of them, the tensors
/// are derived from `config.json`. `wanted` is the name of a file of the model if there are
/// several.
///
/// # Errors
/// If there is no model or more than one, a file of it is missing, or its header is malformed.
pub fn model(files: &[File], wanted: Option<&str>, open: &Open<'_>) -> Result<Found, ReadError> {
    let listing = Listing { files, open };
    let mut notes = Vec::new();
    let config = listing.config(&mut notes)?;
    let mut groups = listing.groups(wanted)?;
    let Some(group) = choose(&mut groups, wanted)? else {
        return match config {
            Some(config) if wanted.is_none_or(|wanted| wanted == "config.json") => {
                Ok(derived(config, notes))
            }
            _ => Err(ReadError::Nothing),
        };
    };
    for other in groups {
        notes.push(format!("ignored: {}", list(&other.files)));
    }
    match group.format {
        Format::Gguf => listing.gguf(group, config, notes),
        _ => listing.weights(group, config, notes),
    }
}

/// Returns the model of a configuration alone.
fn derived(config: Config, mut notes: Vec<String>) -> Found {
    let tensors = config.tensors().unwrap_or_else(|error| {
        notes.push(format!("no tensors: failed to {error}"));
        Vec::new()
    });
    if !tensors.is_empty() {
        notes.push("the tensors are derived from the configuration".to_owned());
    }
    let model = Model {
        name: config.model_type.clone(),
        architecture: config.model_type.clone(),
        tensors,
        shape: Some(config.architecture.clone()),
    };
    Found { model, format: Format::Config, config: Some(config), files: Vec::new(), notes }
}

/// Files that belong together.
struct Group {
    format: Format,
    /// What is before the numbers and the extension.
    prefix: String,
    /// The index, if there is one.
    index: Option<String>,
    files: Vec<String>,
    /// The number of files that the names tell, if they do.
    count: u64,
}

/// Takes the group to read: the one wanted, the only one, or the one that has the usual name.
fn choose(groups: &mut Vec<Group>, wanted: Option<&str>) -> Result<Option<Group>, ReadError> {
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

/// Returns whether a file has the extension of weights but other contents.
fn is_beside(name: &str) -> bool {
    let starts =
        ["optimizer", "scheduler", "rng_state", "training_args", "scaler", "adapter_", "mmproj"];
    starts.iter().any(|start| name.starts_with(start))
}

struct Listing<'a> {
    files: &'a [File],
    open: &'a Open<'a>,
}

impl Listing<'_> {
    fn length(&self, name: &str) -> Option<u64> {
        self.files.iter().find(|file| file.name == name).map(|file| file.bytes)
    }

    fn open(&self, name: &str) -> Result<Box<dyn Source>, ReadError> {
        (self.open)(name).map_err(|source| ReadError::Open { file: shown(name), source })
    }

    /// Reads a whole file, but never more than one byte past a limit.
    fn bytes(&self, name: &str, limit: u64) -> Result<Vec<u8>, ReadError> {
        let mut bytes = Vec::new();
        let read = self.open(name)?.take(limit.saturating_add(1)).read_to_end(&mut bytes);
        read.map_err(|source| ReadError::Open { file: shown(name), source })?;
        Ok(bytes)
    }

    /// Reads the configuration. A bad one is an error only if there is nothing else.
    fn config(&self, notes: &mut Vec<String>) -> Result<Option<Config>, ReadError> {
        let name = "config.json";
        if self.length(name).is_none() {
            return Ok(None);
        }
        match config::read(&self.bytes(name, config::MAX_CONFIG_BYTES)?) {
            Ok(config) => {
                if config.generic {
                    let kind = &config.model_type;
                    notes.push(format!("model type '{kind}' is unknown and read as Llama's"));
                }
                Ok(Some(config))
            }
            Err(source) => {
                let weights = self.files.iter().any(|file| {
                    let format = detect(&file.name, b"");
                    matches!(format, Some(Format::Safetensors | Format::Gguf | Format::Torch))
                });
                if !weights {
                    return Err(ReadError::Config { file: name.to_owned(), source });
                }
                notes.push(format!("config.json is ignored: failed to {source}"));
                Ok(None)
            }
        }
    }

    /// Returns the files of weights in groups that belong together, by format and prefix.
    fn groups(&self, wanted: Option<&str>) -> Result<Vec<Group>, ReadError> {
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
            if is_beside(&file.name) && wanted != Some(file.name.as_str()) {
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

    /// Returns the format by the name, or by the first bytes of a wanted file whose name has no
    /// known extension, as in stores that name files by their digest.
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

    /// Returns the error that names the numbered files that are missing, if any are.
    fn complete(&self, group: &Group) -> Result<(), ReadError> {
        let first = group.files.first().map_or("", String::as_str);
        let Some((_, extension)) = first.rsplit_once('.').filter(|_| group.count > 1) else {
            return Ok(());
        };
        let present: HashSet<&str> = group.files.iter().map(String::as_str).collect();
        let missing: Vec<String> = (1..=group.count)
            .map(|number| format!("{}-{number:05}-of-{:05}.{extension}", group.prefix, group.count))
            .filter(|name| !present.contains(name.as_str()))
            .collect();
        if missing.is_empty() { Ok(()) } else { Err(ReadError::Missing(missing)) }
    }

    fn gguf(
        &self,
        group: Group,
        config: Option<Config>,
        mut notes: Vec<String>,
    ) -> Result<Found, ReadError> {
        self.complete(&group)?;
        let mut headers = Vec::new();
        for file in &group.files {
            let header = gguf::read(self.open(file)?, self.length(file));
            headers.push(header.map_err(|source| ReadError::Gguf { file: shown(file), source })?);
        }
        let error = |source| ReadError::Gguf { file: shown(&group.prefix), source };
        let (values, tensors) = gguf::join(headers).map_err(error)?;
        let shape = gguf::architecture(&values, &tensors).map_err(error)?;
        if shape.is_none() {
            notes.push("the file has no layers of a language model".to_owned());
        }
        let name = values.text("general.name").unwrap_or(&group.prefix);
        let architecture = values.text("general.architecture").unwrap_or("unknown");
        let model = Model { name: shown(name), architecture: shown(architecture), tensors, shape };
        Ok(Found { model, format: Format::Gguf, config, files: group.files, notes })
    }

    /// Reads safetensors or files of PyTorch.
    fn weights(
        &self,
        mut group: Group,
        config: Option<Config>,
        mut notes: Vec<String>,
    ) -> Result<Found, ReadError> {
        let index = match &group.index {
            None => None,
            Some(name) => {
                let read = index::read(&self.bytes(name, index::MAX_INDEX_BYTES)?);
                Some(read.map_err(|source| ReadError::Index { file: shown(name), source })?)
            }
        };
        match &index {
            Some(index) => {
                let names = || index.files.keys().cloned();
                let missing: Vec<String> =
                    names().filter(|name| self.length(name).is_none()).collect();
                if !missing.is_empty() {
                    return Err(ReadError::Missing(missing));
                }
                group.files = names().collect();
            }
            None => self.complete(&group)?,
        }
        let (mut all, mut names, mut unlisted) = (Vec::new(), HashSet::new(), 0usize);
        for file in &group.files {
            let mut tensors = self.tensors(group.format, file, &mut notes)?;
            if let Some(listed) = index.as_ref().and_then(|index| index.files.get(file)) {
                let listed: HashSet<&str> = listed.iter().map(String::as_str).collect();
                // A file of PyTorch may share tensors, or be known by its sizes alone.
                if group.format == Format::Safetensors {
                    let before = tensors.len();
                    tensors.retain(|tensor| listed.contains(tensor.name.as_str()));
                    unlisted += before - tensors.len();
                    let present: HashSet<&str> =
                        tensors.iter().map(|tensor| tensor.name.as_str()).collect();
                    if let Some(tensor) = listed.iter().find(|name| !present.contains(*name)) {
                        let (file, tensor) = (shown(file), shown(tensor));
                        return Err(ReadError::TensorMissing { file, tensor });
                    }
                }
            }
            for tensor in &tensors {
                let nameless = tensor.name.starts_with("data/");
                if !names.insert(tensor.name.clone()) && !nameless {
                    let (file, tensor) = (shown(file), shown(&tensor.name));
                    return Err(ReadError::Twice { file, tensor });
                }
            }
            all.extend(tensors);
        }
        if unlisted > 0 {
            notes.push(format!("{unlisted} tensors are not in the index and are left out"));
        }
        let kind =
            config.as_ref().map_or("unknown", |config| config.model_type.as_str()).to_owned();
        let model = Model {
            name: shown(&group.prefix),
            architecture: kind,
            tensors: all,
            shape: config.as_ref().map(|config| config.architecture.clone()),
        };
        Ok(Found { model, format: group.format, config, files: group.files, notes })
    }

    fn tensors(
        &self,
        format: Format,
        file: &str,
        notes: &mut Vec<String>,
    ) -> Result<Vec<Tensor>, ReadError> {
        let length = self.length(file).unwrap_or(0);
        let source = self.open(file)?;
        if format == Format::Safetensors {
            let read = safetensors::read(source, length);
            return read.map_err(|source| ReadError::Safetensors { file: shown(file), source });
        }
        let weights = torch::read(source, length);
        let weights = weights.map_err(|source| ReadError::Torch { file: shown(file), source })?;
        notes.extend(weights.notes.into_iter().map(|note| format!("{}: {note}", shown(file))));
        Ok(weights.tensors)
    }
}

#[cfg(test)]
mod tests;
