//! Builds the program for distribution: hot code is laid out contiguously.
//!
//! A snapshot runs a fifth of the program's text, which the compiler scatters over the whole. The
//! kernel maps the surroundings of each touched page, so nearly all of the text is loaded, and from
//! a cold disk all of it is read. The program is therefore built, traced on a simulated machine,
//! and linked again with the entered functions in front. Nothing else changes, and no list of
//! functions needs maintenance, because each build creates it.

mod trace;

pub use trace::trace;

use crate::cargo;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Error, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The machine for the trace; a large one also runs the code for many devices and processes.
const MACHINE: &str = "crowd:64x32";
/// The traced commands of the program, as shell command lines. The view needs a terminal and ends
/// with a key.
const COMMANDS: &[&str] = &[
    "exec \"$0\" status",
    "exec \"$0\" doctor",
    "(sleep 5; printf q) | COLUMNS=120 LINES=40 script -qec \"'$0' top -d 500ms\" /dev/null",
];

/// A function of the program: its start, its end, and its name for the linker.
type Function = (u64, u64, String);

/// Builds the program with the functions of a snapshot in front, in cargo's output directory.
/// Returns whether this was possible.
///
/// # Errors
/// If cargo, the simulated machine or nm fails, or if the program cannot be traced: this requires
/// x86-64 and LLVM's linker, which is the default there.
pub fn dist(root: &Path, out: &mut dyn Write) -> io::Result<bool> {
    let dir = cargo::target_dir(root).join("dist");
    fs::create_dir_all(&dir)?;
    let (order, entered) = (dir.join("order.txt"), dir.join("entered.txt"));
    fs::write(&order, "")?;
    cargo::build(root, &["build", "--profile=dist", "--package=gpu-nvml-sim"])?;
    writeln!(out, "dist: build the program in the compiler's function order")?;
    let program = link(root, &order)?;
    let functions = functions(&program)?;
    let begins: String = functions.iter().map(|(begins, ..)| format!("{begins:x}\n")).collect();
    let mut first: Vec<&Function> = Vec::new();
    for command in COMMANDS {
        writeln!(out, "dist: trace {command}")?;
        fs::write(&entered, &begins)?;
        let status = Command::new(&program)
            .args(["sim", MACHINE, "--"])
            .arg(std::env::current_exe()?)
            .args(["trace".as_ref(), entered.as_os_str(), program.as_os_str()])
            .args(["sh".as_ref(), "-c".as_ref(), OsStr::new(command), program.as_os_str()])
            .env("NO_COLOR", "1")
            .stdout(Stdio::null())
            .status()?;
        if !status.success() {
            return Err(Error::other(format!("failed to trace '{command}': {status}")));
        }
        for function in which(&functions, &fs::read_to_string(&entered)?) {
            if !first.contains(&function) {
                first.push(function);
            }
        }
    }
    if first.is_empty() {
        writeln!(out, "dist: the traces contain no function")?;
        return Ok(false);
    }
    let names: Vec<&str> = first.iter().map(|(.., name)| name.as_str()).collect();
    fs::write(&order, names.join("\n") + "\n")?;
    let kib = |functions: &[&Function]| {
        functions.iter().map(|(begins, ends, _)| ends - begins).sum::<u64>().div_ceil(1024)
    };
    writeln!(
        out,
        "dist: {} of {} functions, {} of {} KiB, placed first; relinking",
        first.len(),
        functions.len(),
        kib(&first),
        kib(&functions.iter().collect::<Vec<_>>()),
    )?;
    // Cargo does not track the list, so it would find nothing to rebuild.
    cargo::clean(root, "gpuws")?;
    let program = link(root, &order)?;
    writeln!(out, "dist: {}", program.display())?;
    Ok(true)
}

/// Builds the program with these functions in front. Both builds use the same flags, because the
/// symbol names depend on them.
fn link(root: &Path, order: &Path) -> io::Result<PathBuf> {
    let order = format!("-Clink-arg=-Wl,--symbol-ordering-file={}", order.display());
    let words = ["rustc", "--profile=dist", "--package=gpuws", "--bin=gpuws", cargo::FULL];
    let linker = ["--", &order, "-Clink-arg=-Wl,--no-warn-symbol-ordering"];
    let built = cargo::build_with(root, &words, &linker)?;
    let program = built.into_iter().find(|built| built.target == "gpuws" && built.kind == "bin");
    Ok(program.ok_or_else(|| Error::other("cargo built no 'gpuws'"))?.path)
}

/// Returns the functions of a program in address order.
fn functions(program: &Path) -> io::Result<Vec<Function>> {
    let output = Command::new("nm")
        .args(["--defined-only", "--print-size", "--numeric-sort", "--"])
        .arg(program)
        .output()
        .map_err(|error| Error::new(error.kind(), format!("failed to run nm: {error}")))?;
    if !output.status.success() {
        return Err(Error::other(format!("failed to list functions: nm: {}", output.status)));
    }
    Ok(listed(&String::from_utf8_lossy(&output.stdout)))
}

/// Parses nm's lines: address, size, kind and name; a symbol without a size is not a function.
fn listed(text: &str) -> Vec<Function> {
    let function = |line: &str| {
        let mut words = line.split(' ');
        let (begins, size) = (words.next()?, words.next()?);
        let begins = u64::from_str_radix(begins, 16).ok()?;
        let size = u64::from_str_radix(size, 16).ok()?;
        matches!(words.next()?, "t" | "T" | "w" | "W").then_some(())?;
        Some((begins, begins + size, words.next()?.to_owned()))
    };
    text.lines().filter_map(function).collect()
}

/// Returns the functions that start at these addresses, one hexadecimal number per line.
fn which<'a>(functions: &'a [Function], entered: &str) -> Vec<&'a Function> {
    let beginning = |line: &str| {
        let address = u64::from_str_radix(line, 16).ok()?;
        let nth = functions.binary_search_by_key(&address, |(begins, ..)| *begins).ok()?;
        Some(&functions[nth])
    };
    entered.lines().filter_map(beginning).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executed_functions_are_found_by_address() {
        let text = "0000000000001000 0000000000000010 t _RNvC5gpuws4main\n\
            0000000000001020 0000000000000020 T _start\n\
            0000000000001040 0000000000000008 r a_table\n\
            0000000000001050 t without_size\n\
            0000000000001060 0000000000000004 W weak\n";
        let functions = listed(text);
        let names: Vec<&str> = functions.iter().map(|(.., name)| name.as_str()).collect();
        assert_eq!(names, ["_RNvC5gpuws4main", "_start", "weak"]);
        let entered = which(&functions, "1060\n1001\n1000\nfff\nnot a number\n");
        assert_eq!(entered, [&functions[2], &functions[0]], "in their order, and nowhere else");
    }
}
