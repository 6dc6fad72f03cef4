//! The model's files.

use crate::exit::Exit;
use crate::failure::Failure;
use gpu_model::read::{self, File, Found, ReadError, Source};
use gpu_report::wording::place::repository;
use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};
use std::io;
use std::path::Path;

/// The most entries of a directory.
const MOST: usize = 100_000;

/// Reads the headers of a model: of a directory, or of the one that a file belongs to.
///
/// # Errors
/// If there is none, or a header is malformed.
pub(super) fn read(path: &Path) -> Result<Found, Failure> {
    let what = || format!("read '{}'", path.display());
    let meta = std::fs::metadata(path).map_err(|error| {
        let failure = Failure::io(what(), error);
        repository(path).into_iter().fold(failure, Failure::with_hint)
    })?;
    let (dir, wanted) = match (meta.is_dir(), path.parent(), path.file_name()) {
        (true, ..) => (path, None),
        (false, Some(dir), Some(name)) if dir.as_os_str().is_empty() => {
            (Path::new("."), Some(name))
        }
        (false, Some(dir), Some(name)) => (dir, Some(name)),
        (false, ..) => {
            return Err(Failure::new(Exit::Usage, what()).with_source("not a regular file"));
        }
    };
    let wanted = wanted.map(|name| name.to_string_lossy());
    let files = list(dir).map_err(|error| Failure::io(what(), error))?;
    let open = |name: &str| open(&dir.join(name)).map(|file| Box::new(file) as Box<dyn Source>);
    read::model(&files, wanted.as_deref(), &open).map_err(|error| match error {
        ReadError::Open { file, source } => {
            Failure::io(format!("read '{}'", dir.join(file).display()), source)
        }
        error => Failure::new(Exit::Usage, what()).with_source(error).with_hint(
            "pass a directory of safetensors, GGUF or PyTorch files with config.json, or one of \
             these files",
        ),
    })
}

/// Lists the regular files of a directory.
fn list(dir: &Path) -> io::Result<Vec<File>> {
    let mut files = Vec::new();
    for (at, entry) in std::fs::read_dir(dir)?.enumerate() {
        if at >= MOST {
            return Err(io::Error::other(format!("it has more than {MOST} entries")));
        }
        let entry = entry?;
        // Caches of models are directories of links. Files of /proc and /sys have no length.
        let meta = std::fs::metadata(entry.path());
        if let (Ok(meta), Ok(name)) = (meta, entry.file_name().into_string())
            && meta.is_file()
            && meta.len() > 0
        {
            files.push(File { name, bytes: meta.len() });
        }
    }
    files.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(files)
}

/// Opens a regular file. Since it was listed, another user may have replaced it with a pipe or a
/// device, which could block forever.
fn open(path: &Path) -> io::Result<std::fs::File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = openat(CWD, path, flags, Mode::empty())?;
    let stat = fstat(&file)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile if stat.st_size > 0 => Ok(file.into()),
        FileType::RegularFile => Err(io::Error::other("it is empty")),
        _ => Err(io::Error::other("not a regular file")),
    }
}
