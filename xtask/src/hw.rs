//! Packs everything needed to test gpuws on a machine with a GPU and without Rust into one
//! directory.

use crate::cargo::{self, Built};
use std::fs;
use std::io::{self, Error, Write};
use std::path::Path;

/// The maximum size of the directory in bytes.
const MAX: u64 = 45 << 20;

/// The builds that fill the directory of programs.
const BUILDS: &[&[&str]] = &[
    &[
        "build",
        "--profile=dist",
        "--package=gpuws",
        "--package=gpu-nvml-sim",
        "--package=gpu-nvidia",
        cargo::FULL,
    ],
    &[
        "test",
        "--profile=dist",
        "--no-run",
        "--package=gpuws-tests",
        "--features=gpuws-tests/hw",
        "--test=nvml",
    ],
    &[
        "bench",
        "--profile=dist",
        "--no-run",
        "--package=gpuws-benches",
        "--bench=status",
        "--bench=cuda",
    ],
];

/// The build output to pack.
const NEEDED: &[&str] = &[
    "gpuws",
    "libnvml_sim.so",
    "nvml-test",
    "nvml-helper",
    "nvml-sim-process",
    "status-bench",
    "cuda-bench",
    "plain-loop",
];

/// The scripts, from the directory `hw`.
const SCRIPTS: &[&str] = &["run.sh", "ghosts.py", "ghost.py", "compare.py", "jobs.py", "job.py"];

/// Builds and packs everything into `hw-pack` in the target directory. Returns whether it is
/// complete and small enough.
///
/// # Errors
/// If cargo fails, or a file cannot be written.
pub fn hw(root: &Path, out: &mut dyn Write) -> io::Result<bool> {
    let mut all = Vec::new();
    for arguments in BUILDS {
        writeln!(out, "hw: cargo {}", arguments.join(" "))?;
        all.extend(cargo::build(root, arguments)?);
    }
    let pack = cargo::target_dir(root).join("hw-pack");
    let violations = fill(&pack, &all, &root.join("hw"))?;
    for violation in &violations {
        writeln!(out, "hw: {violation}")?;
    }
    if violations.is_empty() {
        let mib = size(&pack)?.div_ceil(1 << 20);
        writeln!(out, "hw: {} is {mib} MiB; run run.sh there", pack.display())?;
    }
    Ok(violations.is_empty())
}

/// Recreates the directory; returns its problems.
fn fill(pack: &Path, built: &[Built], scripts: &Path) -> io::Result<Vec<String>> {
    if pack.exists() {
        fs::remove_dir_all(pack)?;
    }
    let bin = pack.join("bin");
    fs::create_dir_all(&bin)?;
    let mut packed: Vec<String> = Vec::new();
    for built in built {
        let Some(name) = name_of(built) else { continue };
        if !NEEDED.contains(&name.as_str()) {
            continue;
        }
        copy(&built.path, &bin.join(&name))?;
        packed.push(name);
    }
    for script in SCRIPTS {
        copy(&scripts.join(script), &pack.join(script))?;
    }
    let missing = NEEDED.iter().filter(|needed| !packed.iter().any(|name| name == *needed));
    let mut violations: Vec<String> =
        missing.map(|name| format!("cargo built no '{name}'")).collect();
    let size = size(pack)?;
    if size > MAX {
        violations.push(format!("the directory is {size} bytes, more than {MAX}"));
    }
    Ok(violations)
}

/// Returns the name that a file has in the directory; `None` if it is not packed.
fn name_of(built: &Built) -> Option<String> {
    match built.kind.as_str() {
        "bin" => Some(built.target.clone()),
        "test" | "bench" => Some(format!("{}-{}", built.target, built.kind)),
        "cdylib" => Some(format!("lib{}.so", built.target)),
        _ => None,
    }
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::copy(from, to).map(drop).map_err(|error| {
        Error::new(error.kind(), format!("failed to copy '{}': {error}", from.display()))
    })
}

/// Returns the total size of the files in a directory.
fn size(dir: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        bytes += if entry.file_type()?.is_dir() {
            size(&entry.path())?
        } else {
            entry.metadata()?.len()
        };
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn built(dir: &Path, target: &str, kind: &str) -> Built {
        let path = dir.join(format!("{target}-{kind}"));
        fs::write(&path, target).unwrap();
        Built { target: target.into(), kind: kind.into(), path }
    }

    #[test]
    fn pack_is_complete_and_small() {
        let dir = tempfile::tempdir().unwrap();
        let (pack, scripts) = (dir.path().join("pack"), crate::workspace_root().join("hw"));
        let mut all = vec![
            built(dir.path(), "gpuws", "bin"),
            built(dir.path(), "nvml_sim", "cdylib"),
            built(dir.path(), "nvml", "test"),
            built(dir.path(), "nvml-helper", "bin"),
            built(dir.path(), "nvml-sim-process", "bin"),
            built(dir.path(), "another-helper", "bin"),
            built(dir.path(), "status", "bench"),
            built(dir.path(), "cuda", "bench"),
        ];
        let missing = fill(&pack, &all, &scripts).unwrap();
        assert_eq!(missing, ["cargo built no 'plain-loop'"]);
        all.push(built(dir.path(), "plain-loop", "bin"));
        fs::File::create(&all[0].path).unwrap().set_len(MAX).unwrap();
        assert!(fill(&pack, &all, &scripts).unwrap()[0].contains("more than 47185920"));
        fs::File::create(&all[0].path).unwrap();
        assert_eq!(fill(&pack, &all, &scripts).unwrap(), Vec::<String>::new());
        assert!(pack.join("bin/libnvml_sim.so").is_file() && pack.join("run.sh").is_file());
        assert!(!pack.join("bin/another-helper").exists());
    }

    #[test]
    #[expect(clippy::print_stderr, reason = "a skipped test prints a note")]
    fn scripts_pass_their_tests() {
        let scripts = crate::workspace_root().join("hw");
        let tests = Command::new("python3")
            .args(["-B", "-W", "error", "-m", "unittest", "test_ghosts", "test_jobs"])
            .current_dir(scripts)
            .output();
        match tests {
            Ok(output) => {
                let stderr = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "{stderr}");
            }
            Err(error) => eprintln!("skipped: python3 cannot be run: {error}"),
        }
    }
}
