//! `pmon`: a row for each process of a device, and one for each device without processes.

use super::{Rows, Sample, cell, letters};
use gpu_core::{DeviceProcess, DeviceState, Groups, Pid, ProcessInfo};
use gpu_core::{Reading, clean};

/// The longest name that is printed, in characters: Linux's limit.
const NAME: usize = 15;

/// The columns of `nvidia-smi pmon`. For a process, only the memory and the share of the
/// multiprocessors are read.
#[derive(Clone, Debug)]
pub struct Pmon {
    /// The letters of the groups of columns, in their order.
    groups: Vec<char>,
}

impl Pmon {
    /// Parses the option `-s`: the letters of groups of columns, in the order of the letters. `u`
    /// is utilization, `m` memory.
    ///
    /// # Errors
    /// The first unknown letter.
    pub fn parse(select: &str) -> Result<Self, String> {
        Ok(Pmon { groups: letters(select, "um")? })
    }

    /// Returns a line with these cells.
    fn line(&self, first: String, memory: [&str; 2], shares: [&str; 6], name: &str) -> String {
        let cells = self.groups.iter().flat_map(|letter| match letter {
            'm' => &memory[..],
            _ => &shares[..],
        });
        let cells: String = cells.map(|cell| format!("{cell:>7}")).collect();
        format!("{first}{cells}    {name}")
    }

    fn row(&self, index: u32, process: &DeviceProcess, sample: &Sample<'_>) -> String {
        let kind = process.kind.letters().unwrap_or("-");
        let memory = cell(process.memory.map(|bytes| sample.release.mib(bytes)));
        let share = cell(process.utilization.map(|share| share.get()));
        let shares = [share.as_str(), "-", "-", "-", "-", "-"];
        let name = name(process, sample.process);
        let name = format!("{name:<NAME$}");
        self.line(
            format!("{index:>5}{:>11}{kind:>6}", process.pid.0),
            [&memory, "-"],
            shares,
            &name,
        )
    }
}

impl Rows for Pmon {
    fn groups(&self) -> Groups {
        Groups::NONE
    }

    fn head(&self) -> [String; 2] {
        let shares = ["sm", "mem", "enc", "dec", "jpg", "ofa"];
        let names = format!("# gpu{:>12}{:>7}", "pid", "type");
        let units = format!("# Idx{:>12}{:>7}", "#", "C/G");
        [
            self.line(names, ["fb", "ccpm"], shares, "command "),
            self.line(units, ["MB", "MB"], ["%"; 6], "name "),
        ]
    }

    fn rows(&self, sample: &Sample<'_>) -> Vec<String> {
        let rows = |device: &DeviceState| -> Vec<String> {
            let index = device.id().index;
            match device.processes.as_deref() {
                Ok(processes) if !processes.is_empty() => {
                    processes.iter().map(|process| self.row(index, process, sample)).collect()
                }
                _ => {
                    let name = format!("{:<NAME$}", "-");
                    let first = format!("{index:>5}{:>11}{:>6}", "-", "-");
                    vec![self.line(first, ["-"; 2], ["-"; 6], &name)]
                }
            }
        };
        sample.devices.iter().flat_map(rows).collect()
    }
}

/// Returns the short name of a process without control characters, or else the last part of the
/// path that the driver reports.
fn name(process: &DeviceProcess, process_info: &dyn Fn(Pid) -> Reading<ProcessInfo>) -> String {
    let known =
        process_info(process.pid).map(|info| info.name).ok().filter(|name| !name.is_empty());
    let listed = || {
        let path = process.name.as_deref().ok()?;
        Some(path.rsplit('/').next().unwrap_or(path).to_owned())
    };
    let name = known.or_else(listed).unwrap_or_else(|| "-".to_owned());
    clean(&name).chars().take(NAME).collect()
}
