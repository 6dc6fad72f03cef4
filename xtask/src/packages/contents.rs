//! The built files of a package.

use crate::program::output_of;
use std::fs;
use std::io::{self, Error};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The names of the shells' completions, by shell.
const COMPLETIONS: &[(&str, &str)] =
    &[("bash", "gpuws.bash"), ("zsh", "_gpuws"), ("fish", "gpuws.fish")];

/// The files that cargo built for a package.
#[derive(Clone, Debug)]
pub struct Programs {
    /// The program.
    pub gpuws: PathBuf,
    /// The simulated NVML.
    pub library: PathBuf,
    /// The program that represents simulated processes.
    pub actor: PathBuf,
}

impl Programs {
    /// Returns the programs in an output directory of cargo.
    pub fn in_dir(dir: &Path) -> Self {
        Programs {
            gpuws: dir.join("gpuws"),
            library: dir.join("libnvml_sim.so"),
            actor: dir.join("nvml-sim-process"),
        }
    }
}

/// Recreates a directory with the programs, the manual pages and the completions.
///
/// # Errors
/// If the program cannot be run, or a file cannot be written.
pub fn fill(dir: &Path, programs: &Programs) -> io::Result<()> {
    if dir.exists() {
        fs::remove_dir_all(dir)?;
    }
    fs::create_dir_all(dir.join("man"))?;
    fs::create_dir_all(dir.join("completions"))?;
    for file in [&programs.gpuws, &programs.library, &programs.actor] {
        let name = file.file_name().unwrap_or(file.as_os_str());
        fs::copy(file, dir.join(name)).map_err(|error| {
            Error::new(error.kind(), format!("failed to copy '{}': {error}", file.display()))
        })?;
    }
    manual(&programs.gpuws, &mut Vec::new(), &dir.join("man"))?;
    for (shell, name) in COMPLETIONS {
        let script = output_of(Command::new(&programs.gpuws).args(["completions", shell]))?;
        fs::write(dir.join("completions").join(name), script)?;
    }
    Ok(())
}

/// Writes the manual page of a command, and those of its subcommands.
fn manual(program: &Path, command: &mut Vec<String>, dir: &Path) -> io::Result<()> {
    let page = output_of(Command::new(program).arg("man").args(&*command))?;
    let name = std::iter::once("gpuws").chain(command.iter().map(String::as_str));
    let name: Vec<&str> = name.collect();
    let listed = listed(&page, &name.join("-"));
    let file = dir.join(name.join("-") + ".1");
    fs::write(&file, page)?;
    output_of(Command::new("gzip").arg("-9n").arg(file))?;
    for sub in listed {
        command.push(sub);
        manual(program, command, dir)?;
        command.pop();
    }
    Ok(())
}

/// Returns the subcommands listed on the page with this name. `help` is omitted, because the pages
/// have its output.
fn listed(page: &str, name: &str) -> Vec<String> {
    let before = format!("{name}-");
    let command = |line: &str| {
        let line = line.replace('\\', "");
        Some(line.strip_prefix(&before)?.strip_suffix("(1)")?.to_owned())
    };
    page.lines().filter_map(command).filter(|command| command != "help").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_read_from_the_manual_page() {
        let page = "gpuws\\-mem\\-fit(1)\ngpuws\\-mem(1)\ngpuws\\-mem\\-help(1)\ngpuws-mem-x\n";
        assert_eq!(listed(page, "gpuws-mem"), ["fit"]);
        assert_eq!(listed("gpuws\\-dry\\-run(1)\n", "gpuws"), ["dry-run"]);
    }
}
