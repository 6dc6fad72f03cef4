//! Builds with cargo, and finds its output.

use serde_json::Value;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The option with which gpuws has all its features, as in packages.
pub(crate) const FULL: &str = "--features=full";

fn cargo(root: &Path) -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(program);
    command.current_dir(root);
    command
}

/// Returns the target directory.
pub(crate) fn target_dir(root: &Path) -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root.join(dir),
        None => root.join("target"),
    }
}

/// Returns the output of `cargo metadata` for the packages of the workspace.
///
/// # Errors
/// If cargo cannot be run or fails; it prints the reason on standard error.
pub(crate) fn metadata(root: &Path) -> io::Result<Value> {
    let output = cargo(root)
        .args(["metadata", "--no-deps", "--format-version=1"])
        .stderr(Stdio::inherit())
        .output()?;
    if !output.status.success() {
        return Err(io::Error::other("failed to run cargo metadata"));
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Returns the output of `cargo tree` with these arguments.
///
/// # Errors
/// If cargo cannot be run or fails; the error contains its message.
pub(crate) fn tree(root: &Path, arguments: &[&str]) -> io::Result<String> {
    let output = cargo(root).arg("tree").args(arguments).output()?;
    if !output.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&output.stderr)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Installs this version of a program from the registry into `bin` of a directory.
///
/// # Errors
/// If cargo cannot be run or fails; it prints the reason on standard error.
pub(crate) fn install(root: &Path, name: &str, version: &str, tools: &Path) -> io::Result<()> {
    let status = cargo(root)
        .args(["install", name, "--locked", "--quiet", "--version", version, "--root"])
        .arg(tools)
        .status()?;
    if status.success() {
        Ok(())
    } else {
        Err(io::Error::other(format!("failed to install {name} {version}")))
    }
}

/// A file built by cargo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Built {
    /// The name of the target in its manifest.
    pub(crate) target: String,
    /// The kind of target: `bin`, `test`, `bench`, `cdylib`.
    pub(crate) kind: String,
    /// Its path.
    pub(crate) path: PathBuf,
}

/// Runs cargo with these arguments, and returns the programs and C libraries that it built.
///
/// # Errors
/// If cargo cannot be run or fails; it prints the reason on standard error.
pub(crate) fn build(root: &Path, arguments: &[&str]) -> io::Result<Vec<Built>> {
    build_with(root, arguments, &[])
}

/// Runs cargo like [`build`], with additional compiler flags.
///
/// # Errors
/// As [`build`].
pub(crate) fn build_with(
    root: &Path,
    arguments: &[&str],
    compiler: &[&str],
) -> io::Result<Vec<Built>> {
    let output = cargo(root)
        .args(arguments)
        .arg("--message-format=json-render-diagnostics")
        .args(compiler)
        .stderr(Stdio::inherit())
        .output()?;
    if !output.status.success() {
        return Err(io::Error::other(format!("failed to run cargo {}", arguments.join(" "))));
    }
    Ok(built(&String::from_utf8_lossy(&output.stdout)))
}

/// Removes the build output of a package in the profile `dist`.
///
/// # Errors
/// If cargo cannot be run or fails.
pub(crate) fn clean(root: &Path, package: &str) -> io::Result<()> {
    let status =
        cargo(root).args(["clean", "--quiet", "--profile=dist", "--package", package]).status()?;
    if status.success() {
        Ok(())
    } else {
        Err(io::Error::other(format!("failed to clean {package}")))
    }
}

/// Parses the output of `cargo --message-format=json`, one message per line.
fn built(messages: &str) -> Vec<Built> {
    let mut all = Vec::new();
    for message in messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        let (Some(target), Some(kind)) =
            (message["target"]["name"].as_str(), message["target"]["kind"].as_array())
        else {
            continue;
        };
        let mut push = |kind: &str, path: &str| {
            let (target, kind) = (target.to_owned(), kind.to_owned());
            all.push(Built { target, kind, path: PathBuf::from(path) });
        };
        let kinds: Vec<&str> = kind.iter().filter_map(Value::as_str).collect();
        if let Some(path) = message["executable"].as_str() {
            push(kinds.first().unwrap_or(&"bin"), path);
        } else if kinds.contains(&"cdylib") {
            let files = message["filenames"].as_array().into_iter().flatten();
            let library = files.filter_map(Value::as_str).find(|path| path.ends_with(".so"));
            library.into_iter().for_each(|path| push("cdylib", path));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn artifacts_are_read_from_cargo_messages() {
        let messages = r#"
{"reason":"compiler-artifact","target":{"kind":["lib"],"name":"gpu_core"},"filenames":["/t/libgpu_core.rlib"],"executable":null}
{"reason":"compiler-artifact","target":{"kind":["cdylib","rlib"],"name":"nvml_sim"},"filenames":["/t/libnvml_sim.rlib","/t/libnvml_sim.so"],"executable":null}
{"reason":"compiler-artifact","target":{"kind":["test"],"name":"contract"},"filenames":["/t/contract-1"],"executable":"/t/contract-1"}
not json
{"reason":"build-finished","success":true}"#;
        let names: Vec<_> = built(messages)
            .into_iter()
            .map(|built| (built.target, built.kind, built.path.display().to_string()))
            .collect();
        let built =
            |target: &str, kind: &str, path: &str| (target.into(), kind.into(), path.into());
        assert_eq!(
            names,
            [
                built("nvml_sim", "cdylib", "/t/libnvml_sim.so"),
                built("contract", "test", "/t/contract-1"),
            ]
        );
    }
}
