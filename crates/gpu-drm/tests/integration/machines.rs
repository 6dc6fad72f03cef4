//! The files of real machines, and a tree that notes what is read.

use gpu_core::Reading;
use gpu_drm::{Root, Tree};
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use tempfile::TempDir;

/// Returns the directory of the machines, or says that the test is skipped.
pub(crate) fn data() -> Option<PathBuf> {
    let data = std::env::var_os("GPUWS_DRM");
    if data.is_none() {
        // Bypasses the test harness, which hides the output of passing tests.
        let mut stderr = std::io::stderr();
        writeln!(stderr, "skipped: GPUWS_DRM names no files of real machines").unwrap();
    }
    data.map(PathBuf::from)
}

/// Returns the lines of TRUTH.jsonl of a kind.
pub(crate) fn truth(data: &Path, kind: &str) -> Vec<Value> {
    let text = fs::read_to_string(data.join("TRUTH.jsonl")).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    let lines: Vec<Value> = lines.filter(|line: &Value| line["kind"] == kind).collect();
    assert!(!lines.is_empty(), "{kind}");
    lines
}

/// Copies a machine with its lists of product names. A copy of the data may have lost its links, as
/// git does without `core.symlinks`: a file then has the target of the link as its content.
pub(crate) fn machine(data: &Path, name: &str) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    copy(&data.join(name), root.path());
    for (list, dir) in [("amdgpu.ids", "usr/share/libdrm"), ("pci.ids", "usr/share/misc")] {
        fs::create_dir_all(root.path().join(dir)).unwrap();
        fs::copy(data.join("ids").join(list), root.path().join(dir).join(list)).unwrap();
    }
    root
}

fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let (from, to) = (entry.as_ref().unwrap().path(), to.join(entry.unwrap().file_name()));
        if from.is_symlink() {
            symlink(fs::read_link(from).unwrap(), to).unwrap();
        } else if from.is_dir() {
            fs::create_dir(&to).unwrap();
            copy(&from, &to);
        } else {
            let content = fs::read(from).unwrap();
            match str::from_utf8(&content) {
                Ok(target) if target.starts_with("../") && !target.contains('\n') => {
                    symlink(target, to).unwrap();
                }
                _ => fs::write(to, content).unwrap(),
            }
        }
    }
}

/// A tree that notes the files that are read.
pub(crate) struct Noting {
    root: Root,
    files: Mutex<Vec<String>>,
}

impl Noting {
    pub(crate) fn new(path: &Path) -> Self {
        Noting { root: Root::open(path).unwrap(), files: Mutex::default() }
    }

    /// Returns the files that were read since the last call.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.files.lock().unwrap())
    }
}

impl Tree for Noting {
    fn read(&self, path: &str, limit: usize) -> Reading<Vec<u8>> {
        self.files.lock().unwrap().push(path.to_owned());
        self.root.read(path, limit)
    }

    fn names(&self, path: &str) -> Reading<Vec<String>> {
        self.root.names(path)
    }

    fn target(&self, path: &str) -> Reading<String> {
        self.root.target(path)
    }
}

/// No file is read that resets a device, clears a counter or blocks.
pub(crate) fn check_files(files: &[String]) {
    assert!(files.len() > 10, "{files:?}");
    for part in ["debug", "pcie_bw", "xgmi_error", "sdma_"] {
        assert!(!files.iter().any(|file| file.contains(part)), "{part}: {files:?}");
    }
}
