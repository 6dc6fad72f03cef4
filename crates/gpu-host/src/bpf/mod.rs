//! Finds the processes that can have a device, from the kernel's own tables, with two BPF iterators
//! (`Documentation/bpf/bpf_iterators.rst` of the kernel).
//!
//! The iterators visit each open file and each mapping inside the kernel, which takes a tenth of
//! the time that `/proc` takes. Their answer selects the processes to read and proves nothing: each
//! selected process is then read through `/proc` like any other. They require `CAP_BPF` and
//! `CAP_PERFMON`, Linux 5.12, the kernel's type information and no seccomp filter; on any error the
//! caller reads all processes.

mod btf;
mod program;

use crate::syscall::{MappedSysfs, is_filtered, load_iterator_program, start_iterator};
use btf::Wanted;
use gpu_core::FileId;
use program::{Object, program};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::thread::{CapabilitySet, capabilities};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::ops::RangeInclusive;
use std::path::Path;

/// If there are more ranges of device numbers, they are merged: a container host has hundreds of
/// capability files.
const RANGES: usize = 64;

/// The program calls helpers that the kernel reserves for programs under the GPL.
const LICENSE: &std::ffi::CStr = c"Dual MIT/GPL";

/// How often to try to load a program: a signal interrupts the kernel's check of it.
const LOADS: usize = 5;

const DESCRIPTORS: &str = "bpf_iter_task_file";
const MAPPINGS: &str = "bpf_iter_task_vma";

const WANTED: Wanted<'static> = Wanted {
    functions: &[DESCRIPTORS, MAPPINGS],
    fields: &[
        ("task_struct", &["group_leader", "thread_pid"]),
        ("pid", &["level", "numbers"]),
        ("upid", &["nr"]),
        ("vm_area_struct", &["vm_file"]),
        ("file", &["f_inode"]),
        ("inode", &["i_rdev"]),
    ],
};

/// Offsets of the fields that the programs read, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Offsets {
    leader_of_task: i16,
    pid_of_task: i16,
    level_of_pid: i16,
    /// The first `upid.nr` of `pid.numbers`.
    first_number_of_pid: i32,
    number_size: i32,
    file_of_mapping: i16,
    inode_of_file: i16,
    device_of_inode: i16,
}

/// Returns the PIDs, in the caller's namespace, of all processes that may have one of these devices
/// open or mapped, and perhaps of a few others. `None` if BPF cannot determine them: the files are
/// not devices, the caller lacks the capabilities, or the kernel refuses.
pub(crate) fn device_users(files: &[FileId], sys: &Path) -> Option<BTreeSet<u32>> {
    let ranges = ranges(files)?;
    if cfg!(target_endian = "big") || is_filtered() || !is_capable() {
        return None;
    }
    let layout = layout(&sys.join("kernel/btf/vmlinux"))?;
    let offsets = Offsets::of(&layout)?;
    let users = |function, object| {
        let function = *layout.functions.get(function)?;
        let instructions = program(object, &ranges, &offsets)?;
        let load = || load_iterator_program(&instructions, LICENSE, function);
        let mut loads = std::iter::repeat_with(load).take(LOADS);
        let program = loads.find(|loaded| !matches!(loaded, Err(Errno::AGAIN)))?.ok()?;
        read_pids(&start_iterator(program.as_fd()).ok()?)
    };
    std::thread::scope(|scope| {
        let mapped = || users(MAPPINGS, Object::Mapping);
        let other = std::thread::Builder::new().spawn_scoped(scope, mapped);
        let mut all = users(DESCRIPTORS, Object::Descriptor)?;
        let mapped = match other {
            Ok(thread) => thread.join().ok()?,
            Err(_) => mapped(),
        };
        all.extend(mapped?);
        Some(all)
    })
}

/// Reads the kernel's type information.
fn layout(path: &Path) -> Option<btf::Layout<'static>> {
    let mut file = File::open(path).ok()?;
    if let Ok(types) = MappedSysfs::new(&file) {
        return btf::look_up(&types, WANTED);
    }
    let mut types = Vec::new();
    file.read_to_end(&mut types).ok()?;
    btf::look_up(&types, WANTED)
}

fn is_capable() -> bool {
    let needed = CapabilitySet::BPF | CapabilitySet::PERFMON;
    capabilities(None).is_ok_and(|own| {
        own.effective.contains(needed) || own.effective.contains(CapabilitySet::SYS_ADMIN)
    })
}

/// Returns the ranges of the kernel's device numbers (`MKDEV` of linux/kdev_t.h) that cover all
/// files; `None` if one is not a device.
fn ranges(files: &[FileId]) -> Option<Vec<RangeInclusive<u32>>> {
    let number = |file: &FileId| match file {
        FileId::Device { major, minor } => {
            (*major < 1 << 12 && *minor < 1 << 20).then_some(major << 20 | minor)
        }
        FileId::Inode { .. } => None,
    };
    let numbers: BTreeSet<u32> = files.iter().map(number).collect::<Option<_>>()?;
    let mut gap = 1;
    loop {
        let mut ranges: Vec<RangeInclusive<u32>> = Vec::new();
        for number in &numbers {
            match ranges.last_mut() {
                Some(range) if number - range.end() <= gap => *range = *range.start()..=*number,
                _ => ranges.push(*number..=*number),
            }
        }
        if ranges.len() <= RANGES {
            return Some(ranges);
        }
        gap *= 2;
    }
}

/// Reads all numbers that a program writes; `None` if one is unknown.
fn read_pids(iterator: &OwnedFd) -> Option<BTreeSet<u32>> {
    let mut pids = BTreeSet::new();
    let mut buffer = vec![0; 16 << 10];
    // A number can be split between two reads.
    let mut held = 0;
    loop {
        match rustix::io::read(iterator, &mut buffer[held..]) {
            Ok(0) => return (held == 0 && !pids.contains(&0)).then_some(pids),
            Ok(count) => {
                let (whole, rest) = buffer[..held + count].as_chunks::<4>();
                pids.extend(whole.iter().map(|bytes| u32::from_ne_bytes(*bytes)));
                let start = whole.len() * 4;
                held = rest.len();
                buffer.copy_within(start..start + held, 0);
            }
            // The kernel ends a read after a million objects without output.
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => return None,
        }
    }
}

impl Offsets {
    fn of(layout: &btf::Layout<'_>) -> Option<Self> {
        let field = |structure, field| layout.fields.get(&(structure, field)).copied();
        let short = |structure, name| i16::try_from(field(structure, name)?).ok();
        let first = field("pid", "numbers")?.checked_add(field("upid", "nr")?)?;
        Some(Offsets {
            leader_of_task: short("task_struct", "group_leader")?,
            pid_of_task: short("task_struct", "thread_pid")?,
            level_of_pid: short("pid", "level")?,
            first_number_of_pid: i32::try_from(first).ok()?,
            number_size: i32::try_from(*layout.sizes.get("upid")?).ok()?,
            file_of_mapping: short("vm_area_struct", "vm_file")?,
            inode_of_file: short("file", "f_inode")?,
            device_of_inode: short("inode", "i_rdev")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::process::{Child, Command};

    /// A process that has a file open as its standard input until this is dropped.
    struct User(Child);

    impl User {
        fn of(device: &str) -> Self {
            let device = File::options().read(true).write(true).open(device).unwrap();
            User(Command::new("sleep").arg("1000").stdin(device).spawn().unwrap())
        }
    }

    impl Drop for User {
        fn drop(&mut self) {
            self.0.kill().and_then(|()| self.0.wait()).unwrap();
        }
    }

    const FULL: FileId = FileId::Device { major: 1, minor: 7 };

    #[test]
    fn process_with_open_device_is_found() {
        let user = User::of("/dev/full");
        let other = User::of("/dev/null");
        let Some(found) = device_users(&[FULL], Path::new("/sys")) else {
            let may_fail =
                is_filtered() || !is_capable() || !Path::new("/sys/kernel/btf/vmlinux").exists();
            assert!(may_fail, "the kernel refuses the programs");
            writeln!(std::io::stderr(), "skipped: BPF iterators are not available").unwrap();
            return;
        };
        assert!(found.contains(&user.0.id()), "{found:?}");
        assert!(!found.contains(&other.0.id()), "{found:?}");
    }
}
