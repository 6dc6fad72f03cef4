//! Installs other tools into the target directory.
//!
//! pip and apt download them from the sources configured on this machine; nothing is installed in
//! the system, and root is not required.

use super::sources;
use crate::program::output_of;
use crate::venv::{Venv, pip};
use std::fs;
use std::io::{self, Error, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The Python tools and their dependencies, with checksums.
const REQUIREMENTS: &str = include_str!("../../peers/requirements.txt");

/// A Debian package.
struct Package {
    /// Its name for apt, with a version if only that version works.
    name: &'static str,
    /// The program to use from the package.
    program: &'static str,
}

const PACKAGES: &[Package] = &[
    Package { name: "nvtop", program: NVTOP },
    Package { name: "nvidia-smi=535.261.03-1", program: NVIDIA_SMI },
    Package { name: "prometheus", program: "usr/bin/prometheus" },
    Package { name: "prometheus-node-exporter", program: "usr/bin/prometheus-node-exporter" },
];

const NVTOP: &str = "usr/bin/nvtop";
const NVIDIA_SMI: &str = "usr/lib/nvidia/current/nvidia-smi";

/// The SHA-256 checksums of packages by file name.
const PINNED: &[(&str, &str)] = &[
    (
        "nvidia-smi_535.261.03-1_amd64.deb",
        "9b4392fa97957603d96f3cf1141fe78d871f5bcdd2e6bf810bce278cc14cb6d4",
    ),
    (
        "prometheus_2.42.0+ds-5+deb12u1_amd64.deb",
        "81d59a24fce84f7fbe97a45a4f2914b6a5881b5cd1db2a6a0e129e515e1a5f55",
    ),
    (
        "prometheus-node-exporter_1.5.0-1+b6_amd64.deb",
        "8cb5b39627595ea2cf3cd27be593e0e9af87023d29e1c5b8487e2f9510097e09",
    ),
    ("nvtop_3.0.1-1_amd64.deb", "cbb1158617a8a8429836539cf91b2d98f22189f24d2fb2da1ea58743398fd266"),
];

/// The versions of safe-gpu to test claims with, and their checksums. They conflict, so each has
/// its own directory.
const SAFE_GPU: &[(&str, &str)] = &[
    ("1.5.1", "85c35ead2c8cbf61b08bbfc2243b5306e29f00b19f15bcf27104c1e17b30c5d0"),
    ("2.0.0", "ac132e23e15a28419f25d127d93525fa8d3331a8838f2a6bfbbdc805807f5ddd"),
];

/// The directory of the tools.
#[derive(Clone, Debug)]
pub(super) struct Peers {
    dir: PathBuf,
}

impl Peers {
    /// Returns the tools in a directory, installed or not.
    pub(super) fn in_dir(dir: PathBuf) -> Self {
        Peers { dir }
    }

    /// Returns the Python interpreter with the tools; `None` if it is not installed.
    pub(super) fn python(&self) -> Option<PathBuf> {
        self.installed("python")
    }

    /// Returns the program `gpustat`.
    pub(super) fn gpustat(&self) -> Option<PathBuf> {
        self.installed("gpustat")
    }

    /// Returns the path of the tools' session.
    pub(super) fn session(&self) -> PathBuf {
        self.dir.join("session")
    }

    /// Returns the program `nvtop`.
    pub(super) fn nvtop(&self) -> Option<PathBuf> {
        self.unpacked(NVTOP)
    }

    /// Returns the program `nvidia-smi`.
    pub(super) fn nvidia_smi(&self) -> Option<PathBuf> {
        self.unpacked(NVIDIA_SMI)
    }

    fn unpacked(&self, program: &str) -> Option<PathBuf> {
        Some(self.dir.join("root").join(program)).filter(|path| path.is_file())
    }

    /// Returns the environment of the Python tools.
    fn venv(&self) -> Venv {
        Venv::new(self.dir.join("venv"), REQUIREMENTS)
    }

    fn installed(&self, program: &str) -> Option<PathBuf> {
        let venv = self.venv();
        venv.is_installed().then(|| venv.program(program))
    }

    /// Installs missing tools, and prints successes and failures.
    ///
    /// # Errors
    /// If the directory or `out` cannot be written.
    pub(super) fn install(&self, out: &mut dyn Write) -> io::Result<()> {
        fs::create_dir_all(&self.dir)?;
        if self.venv().is_installed() {
            writeln!(out, "peers: gpustat, nvitop and nvidia-ml-py are installed")?;
        } else {
            writeln!(out, "peers: installing gpustat, nvitop and nvidia-ml-py with pip …")?;
            if let Err(error) = self.venv().renew() {
                writeln!(out, "peers: not installed: gpustat, nvitop, nvidia-ml-py: {error}")?;
            }
        }
        for (version, _) in SAFE_GPU {
            let message = match install_safe_gpu(&self.dir, version) {
                Ok(()) => format!("safe-gpu {version} is installed"),
                Err(error) => format!("not installed: safe-gpu {version}: {error}"),
            };
            writeln!(out, "peers: {message}")?;
        }
        let missing: Vec<&Package> =
            PACKAGES.iter().filter(|package| self.unpacked(package.program).is_none()).collect();
        if missing.is_empty() {
            return writeln!(out, "peers: nvtop, nvidia-smi and Prometheus are unpacked");
        }
        writeln!(out, "peers: updating the apt package lists …")?;
        if let Err(error) = self.set_up_apt() {
            return writeln!(out, "peers: not installed: Debian packages: {error}");
        }
        for package in missing {
            writeln!(out, "peers: fetching {} …", package.name)?;
            match self.unpack(package) {
                Ok(message) => writeln!(out, "peers: {message}")?,
                Err(error) => writeln!(out, "peers: not installed: {}: {error}", package.name)?,
            }
        }
        Ok(())
    }

    fn apt(&self) -> PathBuf {
        self.dir.join("apt")
    }

    /// Creates a separate apt state with the sources of this machine, and updates its lists.
    fn set_up_apt(&self) -> io::Result<()> {
        let apt = self.apt();
        for dir in ["state/lists/partial", "cache/archives/partial", "sources", "debs"] {
            fs::create_dir_all(apt.join(dir))?;
        }
        let release = fs::read_to_string("/etc/os-release")?;
        let release = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
        let release =
            release.ok_or_else(|| Error::other("/etc/os-release has no VERSION_CODENAME"))?;
        let (lines, paragraphs) = read_sources(Path::new("/etc/apt"), release.trim_matches('"'))?;
        fs::write(apt.join("sources/machine.list"), lines)?;
        fs::write(apt.join("sources/machine.sources"), paragraphs)?;
        fs::write(apt.join("state/status"), "")?;
        fs::write(apt.join("apt.conf"), configuration(&apt))?;
        self.apt_get(&["update"]).map(drop)
    }

    fn apt_get(&self, arguments: &[&str]) -> io::Result<String> {
        let mut command = Command::new("apt-get");
        command.current_dir(self.apt().join("debs"));
        command.arg("-qq").arg("-c").arg(self.apt().join("apt.conf")).args(arguments);
        output_of(&mut command)
    }

    /// Downloads, verifies and unpacks a package; returns a description of the result.
    fn unpack(&self, package: &Package) -> io::Result<String> {
        let debs = self.apt().join("debs");
        self.apt_get(&["download", package.name])?;
        let name = package.name.split('=').next().unwrap_or(package.name);
        let file = fs::read_dir(&debs)?
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .find(|file| file.starts_with(&format!("{name}_")))
            .ok_or_else(|| Error::other("apt-get download produced no file"))?;
        let path = debs.join(&file);
        let sum = output_of(Command::new("sha256sum").arg(&path))?;
        let sum = sum.split_whitespace().next().unwrap_or_default();
        let message = match PINNED.iter().find(|(pinned, _)| *pinned == file) {
            Some((_, expected)) if *expected != sum => {
                fs::remove_file(&path)?;
                return Err(Error::other(format!("{file} has sha256 {sum}, not {expected}")));
            }
            Some(_) => format!("{file} matches the pinned sha256"),
            None => format!("{file} is not pinned (its sha256 is {sum}); apt has checked it"),
        };
        output_of(Command::new("dpkg").arg("-x").arg(&path).arg(self.dir.join("root")))?;
        match self.unpacked(package.program) {
            Some(_) => Ok(message),
            None => Err(Error::other(format!("{file} does not contain {}", package.program))),
        }
    }
}

/// Reads the sources of a machine, in the one-line format and in deb822.
fn read_sources(etc: &Path, release: &str) -> io::Result<(String, String)> {
    let mut files = vec![etc.join("sources.list")];
    if let Ok(parts) = fs::read_dir(etc.join("sources.list.d")) {
        files.extend(parts.filter_map(|part| Some(part.ok()?.path())));
    }
    files.sort();
    let (mut lines, mut paragraphs) = (String::new(), String::new());
    for file in files {
        let Ok(text) = fs::read_to_string(&file) else { continue };
        match file.extension().and_then(|extension| extension.to_str()) {
            Some("list") => lines.push_str(&sources::of_lines(&text, release)),
            Some("sources") => paragraphs.push_str(&sources::of_paragraphs(&text, release)),
            _ => {}
        }
    }
    if lines.is_empty() && paragraphs.is_empty() {
        return Err(Error::other(format!("apt has no sources for release '{release}'")));
    }
    Ok((lines, paragraphs))
}

/// Returns settings that confine apt to a directory; apt reads them after those of the machine.
fn configuration(apt: &Path) -> String {
    let apt = apt.display();
    // The machine's post-update hooks concern its own lists, so they are cleared.
    format!(
        "#clear APT::Update::Post-Invoke;\n\
         #clear APT::Update::Post-Invoke-Success;\n\
         #clear DPkg::Post-Invoke;\n\
         APT::Sandbox::User \"root\";\n\
         Acquire::Languages \"none\";\n\
         Dir::State \"{apt}/state\";\n\
         Dir::State::lists \"{apt}/state/lists\";\n\
         Dir::State::status \"{apt}/state/status\";\n\
         Dir::Cache \"{apt}/cache\";\n\
         Dir::Etc::SourceList \"/dev/null\";\n\
         Dir::Etc::SourceParts \"{apt}/sources\";\n"
    )
}

/// Installs a version of safe-gpu, if it is missing, into a directory in `dir` for `PYTHONPATH`.
///
/// # Errors
/// If the version is not pinned, or pip fails.
pub(crate) fn install_safe_gpu(dir: &Path, version: &str) -> io::Result<()> {
    let pinned = SAFE_GPU.iter().find(|(known, _)| *known == version);
    let (_, checksum) = pinned.ok_or_else(|| Error::other("that version is not pinned"))?;
    let to = dir.join(format!("safe-gpu-{version}"));
    let stamp = to.join("requirements.txt");
    let requirement = format!("safe-gpu=={version} --hash=sha256:{checksum}\n");
    if fs::read_to_string(&stamp).is_ok_and(|stamp| stamp == requirement) {
        return Ok(());
    }
    let wanted = dir.join(format!("safe-gpu-{version}.txt"));
    fs::write(&wanted, &requirement)?;
    let mut pip = pip(Path::new("python3"));
    pip.args(["install", "--quiet", "--no-deps", "--upgrade"]).arg("--target").arg(&to);
    output_of(pip.args(["--require-hashes", "--requirement"]).arg(&wanted))?;
    fs::write(stamp, requirement)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_apt_source_formats_are_read() {
        let etc = tempfile::tempdir().unwrap();
        let parts = etc.path().join("sources.list.d");
        fs::create_dir(&parts).unwrap();
        assert!(read_sources(etc.path(), "bookworm").is_err());
        fs::write(etc.path().join("sources.list"), "deb http://a.example bookworm main\n").unwrap();
        let paragraph = "Types: deb\nURIs: http://b.example\nSuites: bookworm\nComponents: main\n";
        fs::write(parts.join("b.sources"), paragraph).unwrap();
        fs::write(parts.join("c.list.old"), "deb http://c.example bookworm main\n").unwrap();
        let (lines, paragraphs) = read_sources(etc.path(), "bookworm").unwrap();
        assert_eq!(lines, "deb http://a.example bookworm main contrib non-free\n");
        assert!(paragraphs.contains("http://b.example"), "{paragraphs}");
    }
}
