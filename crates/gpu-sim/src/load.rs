//! Loads machines from directories: on disk, or embedded in the program.

use crate::assemble::{assemble, unreadable};
use crate::cards::Cards;
use crate::file::MachineFile;
use crate::machine::Machine;
use crate::recording::Recording;
use crate::toml_source::{TomlSource, date};
use gpu_core::{Absent, Error, ErrorKind, Result};
use gpu_text::Hint;
use include_dir::{Dir, include_dir};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::ErrorKind::{NotADirectory, NotFound};
use std::io::Read;
use std::path::{Component, Path};
use toml::Spanned;

/// The maximum size of a machine's file, in bytes.
const MAX_FILE: u64 = 4 << 20;

static EMBEDDED: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/sim-fixtures/machines");

impl Machine {
    /// Reads an embedded machine by name.
    ///
    /// # Errors
    /// `Invalid` if no embedded machine has this name.
    pub fn embedded(name: &str) -> Result<Self> {
        let Some(dir) = EMBEDDED.get_dir(name) else {
            let known: Vec<&str> = names().collect();
            let meant = crate::toml_error::nearest(name, &known);
            let hint = match meant {
                Some(meant) => format!("; did you mean '{meant}'?"),
                None => String::new(),
            };
            let what = format!("find machine '{name}'{hint}");
            return Err(Error::new(ErrorKind::Invalid, what));
        };
        let read = |file: &str| match dir.get_file(dir.path().join(file)) {
            Some(found) => Ok(found.contents().to_vec()),
            None => Err(Error::new(ErrorKind::Io, format!("file '{file}' not found"))),
        };
        load(name, &read).map_err(|error| unreadable(name, error))
    }

    /// Reads a machine: an embedded machine or a [`crowd`](Machine::crowd) by name, otherwise a
    /// directory, its `machine.toml`, or a file from `gpuws record` by path.
    ///
    /// # Errors
    /// `Invalid`, with the closest name, if no machine has this name; `Io` if the path cannot be
    /// searched, for example without permission; otherwise the errors of reading its format.
    pub fn named(machine: &Path) -> Result<Self> {
        match Found::of(machine) {
            Found::Embedded(name) => Machine::embedded(name),
            Found::Crowd(name) => Machine::crowd_named(name),
            Found::Dir(dir) => Machine::from_dir(dir),
            Found::Recording(file) => Ok(Machine::from_recording(
                &last_part(file.file_stem(), file),
                Recording::open(file)?,
            )),
            Found::Unreachable(error) => {
                let what = format!("find machine '{}'", machine.display());
                Err(Error::new(ErrorKind::Io, what).with_source(error))
            }
            Found::Nowhere => {
                let known: Vec<&str> = names().collect();
                let mut why = "no built-in machine, directory or file has this name".to_owned();
                if let Some(meant) = crate::toml_error::nearest(&machine.to_string_lossy(), &known)
                {
                    why.push_str(&format!("; did you mean '{meant}'?"));
                }
                let what = format!("find machine '{}'", machine.display());
                Err(Error::new(ErrorKind::Invalid, what).with_source(why))
            }
        }
    }

    /// Returns the name of a machine, without reading it; `None` if the machine certainly does not
    /// exist.
    pub fn name_of(machine: &Path) -> Option<String> {
        Some(match Found::of(machine) {
            Found::Embedded(name) | Found::Crowd(name) => name.to_owned(),
            Found::Dir(dir) => last_part(dir.file_name(), dir),
            Found::Recording(file) => last_part(file.file_stem(), file),
            Found::Unreachable(_) => last_part(machine.file_name(), machine),
            Found::Nowhere => return None,
        })
    }

    /// Reads a machine from a directory: `machine.toml` and the recordings that it names.
    ///
    /// # Errors
    /// `Io` if a file cannot be read; `Invalid` without a `machine.toml`, or, with file and line,
    /// if its text is invalid.
    pub fn from_dir(dir: &Path) -> Result<Self> {
        let name = last_part(dir.file_name(), dir);
        let found = std::fs::symlink_metadata(dir.join("machine.toml"));
        if found.is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
            let what = format!("find 'machine.toml' in '{}'", dir.display());
            let why = "only simulated machines have this file; use --replay for a history";
            return Err(Error::new(ErrorKind::Invalid, what).with_source(why));
        }
        load(&name, &|file| read_file(&dir.join(file), file))
            .map_err(|error| unreadable(&name, error))
    }
}

/// The location of a machine.
enum Found<'a> {
    Embedded(&'a str),
    Crowd(&'a str),
    Dir(&'a Path),
    Recording(&'a Path),
    /// The path cannot be searched, so a machine may exist there.
    Unreachable(std::io::Error),
    Nowhere,
}

impl<'a> Found<'a> {
    fn of(machine: &'a Path) -> Self {
        // A string with a slash is a path.
        let name = machine.to_str().filter(|name| !name.contains('/'));
        if let Some(name) = name.filter(|name| names().any(|known| known == *name)) {
            return Found::Embedded(name);
        }
        if let Some(name) = name.filter(|name| Machine::is_crowd(name)) {
            return Found::Crowd(name);
        }
        match machine.metadata() {
            Ok(found) if found.is_dir() => Found::Dir(machine),
            Ok(_) if machine.file_name() == Some("machine.toml".as_ref()) => {
                let dir = machine.parent().filter(|dir| !dir.as_os_str().is_empty());
                Found::Dir(dir.unwrap_or(Path::new(".")))
            }
            Ok(_) => Found::Recording(machine),
            Err(error) if [NotFound, NotADirectory].contains(&error.kind()) => Found::Nowhere,
            Err(error) => Found::Unreachable(error),
        }
    }
}

/// Returns the last part of a path, or the whole path if it has no such part.
fn last_part(part: Option<&OsStr>, path: &Path) -> String {
    part.unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// An embedded machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmbeddedMachine {
    /// Its name.
    pub name: &'static str,
    /// A one-line description of what it shows.
    pub description: String,
}

/// Returns the embedded machines, by name.
pub fn machines() -> Vec<EmbeddedMachine> {
    let description = |name| match Machine::embedded(name) {
        Ok(machine) => machine.description,
        Err(error) => error.fault().text,
    };
    names().map(|name| EmbeddedMachine { name, description: description(name) }).collect()
}

fn names() -> impl Iterator<Item = &'static str> {
    EMBEDDED.dirs().filter_map(|dir| dir.path().file_name()?.to_str())
}

fn read_file(path: &Path, name: &str) -> Result<Vec<u8>> {
    let failed = |error| Error::new(ErrorKind::Io, format!("read '{name}'")).with_source(error);
    let metadata = std::fs::symlink_metadata(path).map_err(failed)?;
    if !metadata.is_file() {
        return Err(Error::new(ErrorKind::Invalid, format!("'{name}' is not a regular file")));
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_FILE {
        let what = format!("'{name}' is larger than {} MiB", MAX_FILE >> 20);
        return Err(Error::new(ErrorKind::Invalid, what));
    }
    Ok(bytes)
}

fn load(name: &str, read: &dyn Fn(&str) -> Result<Vec<u8>>) -> Result<Machine> {
    let text = String::from_utf8(read("machine.toml")?);
    let text =
        text.map_err(|_| Error::new(ErrorKind::Invalid, "machine.toml is not valid UTF-8"))?;
    let file = MachineFile::parse(&text)?;
    let source = TomlSource(&text);

    let mut recordings = BTreeMap::new();
    let named = &file.recordings;
    for entry in named.state.iter().chain(&named.reset_refused).chain(&named.other) {
        let text = read_recording(source, entry, read)?;
        recordings.insert(entry.get_ref().clone(), text);
    }
    let mut shown = Vec::new();
    for entry in &named.state {
        let bytes = recordings.get(entry.get_ref()).map_or(&[][..], Vec::as_slice);
        let document = gpu_text::parse(bytes, &Hint::default()).map_err(|error| {
            let what = format!("recording '{}' cannot be read", entry.get_ref());
            source.error(Some(entry.span()), &what).with_source(error)
        })?;
        shown.push(document);
    }
    let clock = date(source, "clock", &file.clock)?;
    let base = (!shown.is_empty()).then(|| gpu_text::snapshot(&shown, clock));
    let refusal = named.reset_refused.as_ref().and_then(|entry| recordings.get(entry.get_ref()));
    let refusal = refusal.map(|bytes| {
        let text = String::from_utf8_lossy(bytes);
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    });
    let cards = match &file.cards {
        Some(entry) => {
            let bytes = read_recording(source, entry, read)?;
            let text = str::from_utf8(&bytes).map_err(|_| {
                let what = format!("'{}' is not valid UTF-8", entry.get_ref());
                Error::new(ErrorKind::Invalid, what)
            })?;
            Cards::parse(entry.get_ref(), text)?
        }
        None => Cards::default(),
    };
    let mut machine = assemble(name, &text, file, base.as_ref(), cards)?;
    machine.reset_refusal = refusal.unwrap_or(machine.reset_refusal);
    let topology = shown.iter().rev().find_map(gpu_text::topology);
    machine.topology = machine.topology.or(topology.ok_or(Absent::NotRecorded));
    machine.recordings = recordings;
    Ok(machine)
}

fn read_recording(
    source: TomlSource<'_>,
    entry: &Spanned<String>,
    read: &dyn Fn(&str) -> Result<Vec<u8>>,
) -> Result<Vec<u8>> {
    let name = entry.get_ref();
    let mut parts = Path::new(name).components();
    let (Some(Component::Normal(part)), None) = (parts.next(), parts.next()) else {
        let what = format!("recording '{name}' is not in the machine's own directory");
        return Err(source.error(Some(entry.span()), &what));
    };
    if part != name.as_str() {
        let what = format!("recording '{name}' is not a plain file name");
        return Err(source.error(Some(entry.span()), &what));
    }
    read(name).map_err(|error| {
        let what = format!("recording '{name}' cannot be read");
        source.error(Some(entry.span()), &what).with_source(error)
    })
}
