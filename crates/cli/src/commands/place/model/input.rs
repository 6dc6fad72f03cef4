//! The model's files.

use crate::exit::Exit;
use crate::failure::Failure;
use gpu_model::read::{self, File, Found, Source};
use std::io;
use std::path::Path;

/// Reads the headers of a model: of a directory, or of the one that a file belongs to.
///
/// # Errors
/// If there is none, or a header is malformed.
pub(super) fn read(path: &Path) -> Result<Found, Failure> {
    let what = || format!("read '{}'", path.display());
    let meta = std::fs::metadata(path).map_err(|error| Failure::io(what(), error))?;
    let (dir, wanted) = match (meta.is_dir(), path.parent(), path.file_name()) {
        (true, ..) => (path, None),
        (false, Some(dir), Some(name)) if dir.as_os_str().is_empty() => {
            (Path::new("."), Some(name))
        }
        (false, Some(dir), Some(name)) => (dir, Some(name)),
        (false, ..) => {
            return Err(Failure::new(Exit::Usage, what()).with_source("it is no file"));
        }
    };
    let wanted = wanted.map(|name| name.to_string_lossy());
    let files = list(dir).map_err(|error| Failure::io(what(), error))?;
    let open = |name: &str| -> io::Result<Box<dyn Source>> {
        Ok(Box::new(std::fs::File::open(dir.join(name))?))
    };
    read::model(&files, wanted.as_deref(), &open).map_err(|error| {
        Failure::new(Exit::Usage, what()).with_source(error).with_hint(
            "it reads a directory of safetensors, GGUF or PyTorch files with config.json, or one \
             of these files",
        )
    })
}

/// Lists the regular files of a directory.
fn list(dir: &Path) -> io::Result<Vec<File>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        // Caches of models are directories of links.
        let meta = std::fs::metadata(entry.path());
        if let (Ok(meta), Ok(name)) = (meta, entry.file_name().into_string())
            && meta.is_file()
        {
            files.push(File { name, bytes: meta.len() });
        }
    }
    files.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(files)
}
