//! The files of the repository, as plain data.

use crate::code::mask;
use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::io;
use std::path::Path;

/// A text file written in this project.
#[derive(Clone, Debug)]
pub(crate) struct File {
    /// Path relative to the workspace, with `/`.
    pub(crate) path: String,
    /// Its content.
    pub(crate) text: String,
    masked: OnceCell<String>,
}

impl File {
    fn new(path: &str, text: String) -> Self {
        File { path: path.to_owned(), text, masked: OnceCell::new() }
    }

    /// Returns the text with its comments and literals blanked.
    pub(crate) fn masked(&self) -> &str {
        self.masked.get_or_init(|| mask(&self.text))
    }

    /// Returns whether it is Rust code.
    pub(crate) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }
}

/// The paths of all files, and the content of files written in this project.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    paths: BTreeSet<String>,
    files: Vec<File>,
}

impl Tree {
    /// Reads the repository at `root`, without build output, the site of `docs/`, and hidden
    /// directories other than `.ci` and `.cargo`.
    ///
    /// # Errors
    /// If a directory or a file in it cannot be read.
    pub fn read(root: &Path) -> io::Result<Self> {
        let mut tree = Tree::default();
        tree.read_dir(root, "")?;
        tree.files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(tree)
    }

    fn read_dir(&mut self, root: &Path, dir: &str) -> io::Result<()> {
        for entry in std::fs::read_dir(root.join(dir))? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            let path = if dir.is_empty() { name.clone() } else { format!("{dir}/{name}") };
            let kind = entry.file_type()?;
            if kind.is_dir() {
                let hidden = name.starts_with('.') && name != ".ci" && name != ".cargo";
                let built = name == "target" || name.starts_with("target-") || path == "site";
                let fuzzed = dir.ends_with("/fuzz") && (name == "corpus" || name == "artifacts");
                if !hidden && !built && !fuzzed {
                    self.read_dir(root, &path)?;
                }
            } else if kind.is_file() {
                if is_written_here(&path) {
                    let text = std::fs::read_to_string(entry.path())?;
                    self.files.push(File::new(&path, text));
                }
                self.paths.insert(path);
            }
        }
        Ok(())
    }

    /// Returns the files with content, by path.
    pub(crate) fn files(&self) -> &[File] {
        &self.files
    }

    /// Returns the file with this path.
    pub(crate) fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    /// Returns the paths of all files.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &str> {
        self.paths.iter().map(String::as_str)
    }

    /// Returns whether a file or a nonempty directory has this path.
    pub(crate) fn exists(&self, path: &str) -> bool {
        let inside = format!("{path}/");
        self.paths.contains(path) || self.paths.iter().any(|other| other.starts_with(&inside))
    }
}

/// Returns whether a file is written in this project: code, documents and settings, but not
/// recordings.
fn is_written_here(path: &str) -> bool {
    let ours = [".rs", ".md", ".toml"].iter().any(|end| path.ends_with(end));
    ours || path == ".ci/run"
}

#[cfg(test)]
impl Tree {
    /// Returns a synthetic repository.
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        Tree {
            paths: files.iter().map(|(path, _)| (*path).to_owned()).collect(),
            files: files
                .iter()
                .filter(|(path, _)| is_written_here(path))
                .map(|(path, text)| File::new(path, (*text).to_owned()))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repository_is_read_without_build_output() {
        let tree = Tree::read(crate::workspace_root()).unwrap();
        assert!(tree.file("xtask/src/tree.rs").is_some());
        assert!(tree.exists("xtask/src"));
        assert!(!tree.paths().any(|path| path.starts_with("target/") || path.starts_with(".git/")));
    }
}
