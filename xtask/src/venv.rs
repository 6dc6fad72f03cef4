//! Python virtual environments, each with the packages of a list.

use crate::program::output_of;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A virtual environment.
#[derive(Clone, Debug)]
pub(crate) struct Venv {
    dir: PathBuf,
    requirements: &'static str,
}

impl Venv {
    /// Returns the environment in a directory, installed or not.
    pub(crate) fn new(dir: PathBuf, requirements: &'static str) -> Self {
        Venv { dir, requirements }
    }

    /// Returns whether its packages are installed in the versions of the list.
    pub(crate) fn is_installed(&self) -> bool {
        fs::read_to_string(self.stamp()).is_ok_and(|stamp| stamp == self.requirements)
    }

    /// Installs its packages if they are missing.
    ///
    /// # Errors
    /// If there is no Python, or pip fails.
    pub(crate) fn install(&self) -> io::Result<()> {
        if self.is_installed() { Ok(()) } else { self.renew() }
    }

    /// Clears the environment and installs its packages; if the list has any checksum, all packages
    /// need one.
    ///
    /// # Errors
    /// If there is no Python, or pip fails.
    pub(crate) fn renew(&self) -> io::Result<()> {
        output_of(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&self.dir))?;
        let wanted = self.dir.join("wanted.txt");
        fs::write(&wanted, self.requirements)?;
        let mut install = self.pip();
        install.args(["install", "--quiet"]);
        install.args(self.requirements.contains("--hash=").then_some("--require-hashes"));
        output_of(install.arg("--requirement").arg(&wanted))?;
        fs::rename(wanted, self.stamp())
    }

    /// Returns a command for its pip, without arguments.
    pub(crate) fn pip(&self) -> Command {
        pip(&self.program("python"))
    }

    /// Returns the directory of its programs.
    pub(crate) fn bin(&self) -> PathBuf {
        self.dir.join("bin")
    }

    /// Returns the path of a program.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.bin().join(name)
    }

    fn stamp(&self) -> PathBuf {
        self.dir.join("requirements.txt")
    }
}

/// Returns a command for pip, without arguments.
pub(crate) fn pip(python: &Path) -> Command {
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", "--disable-pip-version-check"]);
    pip
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_versions_of_the_list_count_as_installed() {
        let dir = tempfile::tempdir().unwrap();
        let venv = Venv::new(dir.path().to_owned(), "gpustat==1.1.1\n");
        assert!(!venv.is_installed());
        fs::write(venv.stamp(), "gpustat==1.0.0\n").unwrap();
        assert!(!venv.is_installed());
        fs::write(venv.stamp(), "gpustat==1.1.1\n").unwrap();
        assert!(venv.is_installed() && venv.install().is_ok());
    }
}
