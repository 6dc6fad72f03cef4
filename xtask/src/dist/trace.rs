//! Traces one run of a program, stopping at the first entry of each function.

use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

/// The breakpoint instruction of x86-64.
const BREAKPOINT: u8 = 0xcc;

/// Runs a command with breakpoints in a program, wherever the command executes it, and in its
/// forks. The file contains the start addresses of the program's functions, one hexadecimal number
/// per line. Afterwards it contains only those of the entered functions, in order of entry. Returns
/// whether the command succeeded.
///
/// # Errors
/// If the kernel does not permit tracing, or this is not x86-64.
pub fn trace(functions: &Path, program: &str, command: &[&str]) -> io::Result<bool> {
    let text = fs::read_to_string(functions)?;
    let begins: Vec<u64> = text.lines().filter_map(|l| u64::from_str_radix(l, 16).ok()).collect();
    // The child stops itself, is attached, and only then executes the command.
    let child = Command::new("sh")
        .args(["-c", "kill -STOP $$; exec \"$@\"", "sh"])
        .args(command)
        .spawn()?;
    let first = Pid::from_raw(child.id().cast_signed());
    waitpid(first, Some(WaitPidFlag::WUNTRACED))?;
    let copies = Options::PTRACE_O_TRACEFORK
        | Options::PTRACE_O_TRACEVFORK
        | Options::PTRACE_O_TRACECLONE
        | Options::PTRACE_O_TRACEEXEC
        | Options::PTRACE_O_EXITKILL;
    ptrace::seize(first, copies)?;
    kill(first, Signal::SIGCONT)?;
    let mut covered = BTreeMap::new();
    let mut entered = Vec::new();
    let mut well = false;
    loop {
        let status = match waitpid(None, Some(WaitPidFlag::__WALL)) {
            Ok(status) => status,
            Err(nix::Error::ECHILD) => break,
            Err(error) => return Err(error.into()),
        };
        let (pid, signal) = match status {
            WaitStatus::Exited(pid, code) => {
                well |= pid == first && code == 0;
                continue;
            }
            WaitStatus::PtraceEvent(pid, _, event) => {
                if event == ptrace::Event::PTRACE_EVENT_EXEC as i32 {
                    // The command may also execute other programs.
                    covered.append(&mut unless_gone(cover(pid, program, &begins))?);
                }
                (pid, None)
            }
            WaitStatus::Stopped(pid, Signal::SIGTRAP) => {
                entered.extend(unless_gone(uncover(pid, program, &covered))?);
                (pid, None)
            }
            WaitStatus::Stopped(pid, signal) => (pid, Some(signal)),
            _ => continue,
        };
        match ptrace::cont(pid, signal) {
            Ok(()) | Err(nix::Error::ESRCH) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let mut file = io::BufWriter::new(File::create(functions)?);
    for begins in entered {
        writeln!(file, "{begins:x}")?;
    }
    file.flush()?;
    Ok(well)
}

/// Ignores a process that was killed since it stopped; it is waited for like the others.
fn unless_gone<T: Default>(result: io::Result<T>) -> io::Result<T> {
    // If its `mem` is already open, reads and writes transfer nothing.
    let gone = [io::ErrorKind::NotFound, io::ErrorKind::UnexpectedEof, io::ErrorKind::WriteZero];
    let is_gone = |error: &io::Error| {
        error.raw_os_error() == Some(nix::Error::ESRCH as i32) || gone.contains(&error.kind())
    };
    result.or_else(|error| if is_gone(&error) { Ok(T::default()) } else { Err(error) })
}

/// Sets a breakpoint at each of these functions; returns the original bytes.
fn cover(pid: Pid, program: &str, begins: &[u64]) -> io::Result<BTreeMap<u64, u8>> {
    let Some(base) = mapped_at(pid, program)? else { return Ok(BTreeMap::new()) };
    let memory = memory(pid)?;
    let cover = |begins: &u64| {
        let mut byte = [0];
        memory.read_exact_at(&mut byte, base + begins)?;
        memory.write_all_at(&[BREAKPOINT], base + begins)?;
        Ok((*begins, byte[0]))
    };
    begins.iter().map(cover).collect()
}

/// Removes the breakpoint at which a process stopped, and resets the process to the function's
/// first instruction; returns the start of the function.
#[cfg(target_arch = "x86_64")]
fn uncover(pid: Pid, program: &str, covered: &BTreeMap<u64, u8>) -> io::Result<Option<u64>> {
    let mut registers = ptrace::getregs(pid)?;
    let Some(base) = mapped_at(pid, program)? else { return Ok(None) };
    let at = registers.rip.wrapping_sub(1);
    let Some(byte) = covered.get(&at.wrapping_sub(base)) else { return Ok(None) };
    memory(pid)?.write_all_at(&[*byte], at)?;
    registers.rip = at;
    ptrace::setregs(pid, registers)?;
    Ok(Some(at - base))
}

#[cfg(not(target_arch = "x86_64"))]
fn uncover(_: Pid, _: &str, _: &BTreeMap<u64, u8>) -> io::Result<Option<u64>> {
    Err(io::Error::other("failed to trace a program: only x86-64 is supported"))
}

fn memory(pid: Pid) -> io::Result<File> {
    File::options().read(true).write(true).open(format!("/proc/{pid}/mem"))
}

/// Returns the address at which a process has mapped the start of a program; `None` if it is not
/// executing that program.
fn mapped_at(pid: Pid, program: &str) -> io::Result<Option<u64>> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let line = maps.lines().find(|line| line.ends_with(program));
    let begins = line.and_then(|line| line.split('-').next());
    Ok(begins.and_then(|begins| u64::from_str_radix(begins, 16).ok()))
}
