//! Finds the model among the files of a directory.

mod error;
mod group;
mod total;

pub use error::ReadError;

use super::config::{self, Config, Quantization};
use super::detect::{Format, detect};
use super::gguf;
use super::index::{self, Index};
use super::name::shown;
use super::safetensors;
use super::torch;
use crate::model::{Doubt, Figure, Model};
use crate::tensor::Tensor;
use error::list;
use group::{Group, choose};
use std::collections::HashSet;
use std::io::{self, Read, Seek};

/// A file from any source.
pub trait Source: Read + Seek {}

impl<T: Read + Seek> Source for T {}

/// Opens a file of a listing by its name. The reader performs no I/O of its own.
pub type Open<'a> = dyn Fn(&str) -> io::Result<Box<dyn Source>> + 'a;

/// A file of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Its name, without a path.
    pub name: String,
    /// Its length in bytes.
    pub bytes: u64,
}

/// A model found in a directory.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The model.
    pub model: Model,
    /// The format of its tensors; [`Format::Config`] if they are derived from the configuration.
    pub format: Format,
    /// The configuration, if there is a valid one.
    pub config: Option<Config>,
    /// The files that contain the tensors.
    pub files: Vec<String>,
    /// What was ignored or is approximate.
    pub notes: Vec<String>,
}

/// Reads the model among the files of a directory.
///
/// Safetensors files are preferred to GGUF files, and GGUF files to PyTorch files. Without any of
/// these, the tensors are derived from `config.json`. If there are several models, `wanted` is the
/// name of a file of the requested one.
///
/// # Errors
/// If there is no model or more than one, one of its files is missing, or a header is malformed.
pub fn model(files: &[File], wanted: Option<&str>, open: &Open<'_>) -> Result<Found, ReadError> {
    let listing = Listing { files, open };
    let mut notes = Vec::new();
    let config = listing.config(&mut notes)?;
    let mut groups = listing.groups(wanted)?;
    let Some(group) = choose(&mut groups, wanted)? else {
        return match config {
            Some(config) if wanted.is_none_or(|wanted| wanted == "config.json") => {
                let names = files.iter().map(|file| file.name.as_str());
                let index = names.filter(|name| name.ends_with(".safetensors.index.json")).min();
                listing.derived(config, index, notes)
            }
            _ => Err(ReadError::Nothing),
        };
    };
    for other in groups {
        notes.push(format!("ignored: {}", list(&other.files)));
    }
    let auxiliary = listing.auxiliary(wanted);
    if !auxiliary.is_empty() {
        notes.push(format!("ignored: {}", list(&auxiliary)));
    }
    match (group.format, config) {
        (Format::Gguf, config) => listing.gguf(group, config, notes),
        // An index without any of its files describes a model that has not been downloaded.
        (_, Some(config)) if group.index.is_some() && !listing.has_shard(&group)? => {
            listing.derived(config, group.index.as_deref(), notes)
        }
        (_, config) => listing.weights(group, config, notes),
    }
}

fn method(config: Option<&Config>) -> Option<String> {
    config?.quantization.as_ref().map(|quantization| quantization.method.clone())
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

    /// Reads a whole file, up to one byte past a limit.
    fn bytes(&self, name: &str, limit: u64) -> Result<Vec<u8>, ReadError> {
        let mut bytes = Vec::new();
        let read = self.open(name)?.take(limit.saturating_add(1)).read_to_end(&mut bytes);
        read.map_err(|source| ReadError::Open { file: shown(name), source })?;
        Ok(bytes)
    }

    /// Reads the configuration. An invalid one is an error only if there are no other files.
    fn config(&self, notes: &mut Vec<String>) -> Result<Option<Config>, ReadError> {
        let name = "config.json";
        if self.length(name).is_none() {
            return Ok(None);
        }
        match config::read(&self.bytes(name, config::MAX_CONFIG_BYTES)?) {
            Ok(mut config) => {
                if config.quantization.is_none() {
                    self.quantization(&mut config)?;
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

    /// Reads the quantization from a file next to the configuration.
    fn quantization(&self, config: &mut Config) -> Result<(), ReadError> {
        const NAMES: [&str; 3] =
            ["hf_quant_config.json", "quantize_config.json", "quant_config.json"];
        for name in NAMES.into_iter().filter(|name| self.length(name).is_some()) {
            let text = self.bytes(name, config::MAX_CONFIG_BYTES)?;
            if let Some(found) = Quantization::of_file(name, &text) {
                config.set_quantization(found);
                return Ok(());
            }
        }
        Ok(())
    }

    /// Returns an error that names missing numbered files, if any.
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

    fn index(&self, name: &str) -> Result<Index, ReadError> {
        let read = index::read(&self.bytes(name, index::MAX_INDEX_BYTES)?);
        read.map_err(|source| ReadError::Index { file: shown(name), source })
    }

    /// Returns whether any file of an index exists.
    fn has_shard(&self, group: &Group) -> Result<bool, ReadError> {
        let Some(index) = &group.index else { return Ok(!group.files.is_empty()) };
        Ok(self.index(index)?.files.keys().any(|file| self.length(file).is_some()))
    }

    /// Returns the model of a configuration alone, with the total of an index if there is one.
    fn derived(
        &self,
        config: Config,
        index: Option<&str>,
        mut notes: Vec<String>,
    ) -> Result<Found, ReadError> {
        let mut doubts = config.doubts.clone();
        let tensors = config.tensors().unwrap_or_else(|error| {
            // An unknown type already has a doubt.
            if !config.generic {
                doubts.push(Doubt::of_weights(format!("failed to {error}")));
            }
            config.assumed()
        });
        if !tensors.is_empty() {
            notes.push("no weight files: sizes computed from config.json".to_owned());
        }
        notes.extend(config.notes.iter().cloned());
        let mut model = Model {
            name: config.model_type.clone(),
            architecture: config.model_type.clone(),
            tensors,
            shape: Some(config.architecture.clone()),
            method: method(Some(&config)),
            doubts,
        };
        let index = index.map(|index| self.index(index)).transpose()?;
        if let Some(index) = &index {
            total::compare(&mut model, index);
        }
        // Quantized checkpoints keep the other tensors in 16 bits.
        let is_known = config.architecture.encoding.is_some()
            || config.quantization.is_some()
            || index.is_some_and(|index| index.total_bytes.is_some())
            || model.doubts.iter().any(|doubt| doubt.about == Figure::Element);
        if !is_known {
            let text = "the configuration does not state torch_dtype; 16 bits are assumed";
            model.doubts.push(Doubt::of_element(text));
        }
        Ok(Found { model, format: Format::Config, config: Some(config), files: Vec::new(), notes })
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
            notes.push("the file has no language model layers".to_owned());
        }
        let name = values.text("general.name").unwrap_or(&group.prefix);
        let architecture = values.text("general.architecture").unwrap_or("unknown");
        let model = Model {
            name: shown(name),
            architecture: shown(architecture),
            tensors,
            shape,
            method: None,
            doubts: Vec::new(),
        };
        Ok(Found { model, format: Format::Gguf, config, files: group.files, notes })
    }

    /// Reads safetensors or PyTorch files.
    fn weights(
        &self,
        mut group: Group,
        config: Option<Config>,
        mut notes: Vec<String>,
    ) -> Result<Found, ReadError> {
        let index = match &group.index {
            None => None,
            Some(name) => Some(self.index(name)?),
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
                // A PyTorch file may share tensors, or only its sizes may be known.
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
            notes.push(format!("{unlisted} tensors are not in the index and are omitted"));
        }
        let kind =
            config.as_ref().map_or("unknown", |config| config.model_type.as_str()).to_owned();
        let model = Model {
            name: shown(&group.prefix),
            architecture: kind,
            tensors: all,
            shape: config.as_ref().map(|config| config.architecture.clone()),
            method: method(config.as_ref()),
            // The files determine the bytes of the weights.
            doubts: (config.iter().flat_map(|config| &config.doubts))
                .filter(|doubt| doubt.about == Figure::Context)
                .cloned()
                .collect(),
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
