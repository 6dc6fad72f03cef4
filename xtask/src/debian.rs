//! Unpacks programs from Debian packages without installing them.

use crate::program::output_of;
use std::fs;
use std::io::{self, Error};
use std::path::Path;
use std::process::Command;

/// Fetches packages and unpacks them into a directory, without running their scripts.
///
/// # Errors
/// If a package cannot be fetched or unpacked.
pub(crate) fn unpack(packages: &[&str], tree: &Path) -> io::Result<()> {
    let debs = tree.with_file_name("debs");
    for dir in [tree, &debs] {
        fs::create_dir_all(dir)?;
    }
    let mut fetch = Command::new("apt-get");
    let fetched = output_of(fetch.current_dir(&debs).args(["-qq", "download"]).args(packages));
    fetched.map_err(|error| Error::other(format!("{error}; try apt-get update first")))?;
    for deb in fs::read_dir(&debs)? {
        output_of(Command::new("dpkg").arg("-x").arg(deb?.path()).arg(tree))?;
    }
    Ok(())
}
