//! System calls that no safe wrapper offers: `kcmp`, `bpf`, `PROCMAP_QUERY`, and `mmap` of a file
//! of sysfs; and `malloc_trim` and `mallopt` of the C library.
//!
//! This is the only file of the crate with `unsafe`. Each function takes and returns safe types,
//! and no kernel object outlives its `OwnedFd`.
#![allow(unsafe_code)]
#![warn(clippy::undocumented_unsafe_blocks, clippy::multiple_unsafe_ops_per_block)]

use nix::libc;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::io::{Errno, Result};
use rustix::thread::{SecureComputingMode, secure_computing_mode};
use std::ffi::CStr;
use std::ops::Deref;
use std::ptr::{NonNull, from_mut, null_mut};
use std::sync::LazyLock;

/// `KCMP_FILES` of linux/kcmp.h: compare descriptor tables.
const KCMP_FILES: libc::c_long = 2;

/// Commands of linux/bpf.h (`enum bpf_cmd`).
const BPF_PROG_LOAD: libc::c_long = 5;
const BPF_LINK_CREATE: libc::c_long = 28;
const BPF_ITER_CREATE: libc::c_long = 33;

/// `BPF_PROG_TYPE_TRACING` of `enum bpf_prog_type`.
const TRACING: u32 = 26;

/// `BPF_TRACE_ITER` of `enum bpf_attach_type`.
const TRACE_ITER: u32 = 28;

/// One instruction, `struct bpf_insn` on a little-endian machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Instruction {
    pub(crate) code: u8,
    /// The destination in the low four bits, the source in the high ones.
    pub(crate) registers: u8,
    pub(crate) offset: i16,
    pub(crate) immediate: i32,
}

/// Returns the free memory of this process to the kernel, for a program that works rarely and waits
/// meanwhile. With a C library other than glibc it has no effect.
pub fn give_back_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it is safe to call at any time from any thread, with any number of bytes to keep.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Makes threads that start later allocate from the heap of the others: otherwise each has a heap
/// of its own, with nearly empty pages. For a program in which one thread works at a time. With a C
/// library other than glibc it has no effect.
pub fn share_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it is safe to call at any time from any thread; it changes a limit.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// Returns whether a seccomp filter restricts this process. Such a filter may end it for an
/// unexpected system call, as that of a systemd service does, so the calls here are not tried.
pub(crate) fn is_filtered() -> bool {
    static FILTERED: LazyLock<bool> =
        LazyLock::new(|| secure_computing_mode() != Ok(SecureComputingMode::Disabled));
    *FILTERED
}

/// Returns whether two threads of the caller's PID namespace share their descriptor table
/// (kcmp(2)).
///
/// # Errors
/// `ESRCH` when one has ended, `EPERM` when one may not be inspected, `ENOSYS` on a kernel without
/// `CONFIG_KCMP` and under a seccomp filter.
pub(crate) fn shares_files(one: u32, other: u32) -> Result<bool> {
    if is_filtered() {
        return Err(Errno::NOSYS);
    }
    let (one, other) = (libc::c_long::from(one), libc::c_long::from(other));
    // SAFETY: KCMP_FILES takes two thread IDs and no pointer; the two indices are unused.
    let order = unsafe { libc::syscall(libc::SYS_kcmp, one, other, KCMP_FILES, 0_i64, 0_i64) };
    if order < 0 { Err(last_error()) } else { Ok(order == 0) }
}

/// The fields of `union bpf_attr` for `BPF_PROG_LOAD`, up to the last one that is set.
#[derive(Default)]
#[repr(C)]
struct ProgramAttributes {
    kind: u32,
    count: u32,
    instructions: u64,
    license: u64,
    /// `log_level`, `log_size`, `log_buf`, `kern_version`, `prog_flags`, `prog_name`: no log, no
    /// flags, no name.
    _log: [u32; 4],
    _flags: [u32; 2],
    _name: [u32; 4],
    _interface: u32,
    attach_kind: u32,
    /// `prog_btf_fd` to `line_info_cnt`: no type information of its own.
    _types: [u32; 9],
    attach_function: u32,
    _attach_object: u32,
    _relocations: u32,
}

/// The fields of `union bpf_attr` for `BPF_LINK_CREATE`, without parameters of the iterator.
#[derive(Default)]
#[repr(C)]
struct LinkAttributes {
    program: u32,
    _target: u32,
    attach_kind: u32,
    _flags: u32,
    _parameters: [u64; 2],
}

/// The fields of `union bpf_attr` for `BPF_ITER_CREATE`.
#[repr(C)]
struct IteratorAttributes {
    link: u32,
    flags: u32,
}

/// Loads a program for an iterator, which the kernel verifies: `function` is the type number of the
/// iterator's function in the kernel's BTF.
///
/// # Errors
/// `EPERM` without the capabilities, `EACCES` or `EINVAL` when the verifier rejects it.
pub(crate) fn load_iterator_program(
    instructions: &[Instruction],
    license: &CStr,
    function: u32,
) -> Result<OwnedFd> {
    let attributes = ProgramAttributes {
        kind: TRACING,
        count: u32::try_from(instructions.len()).map_err(|_| Errno::TOOBIG)?,
        instructions: instructions.as_ptr().addr() as u64,
        license: license.as_ptr().addr() as u64,
        attach_kind: TRACE_ITER,
        attach_function: function,
        ..ProgramAttributes::default()
    };
    // SAFETY: the attributes have the layout of the command, and the two buffers that they point to
    // outlive the call, which only reads them.
    unsafe { bpf(BPF_PROG_LOAD, attributes) }
}

/// Returns a file with the output of the program for each object of its iterator. One reading is
/// one pass.
///
/// # Errors
/// `EPERM` without the capabilities, `ENOMEM`.
pub(crate) fn start_iterator(program: BorrowedFd<'_>) -> Result<OwnedFd> {
    let program = program.as_raw_fd().unsigned_abs();
    let attributes = LinkAttributes { program, attach_kind: TRACE_ITER, ..Default::default() };
    // SAFETY: the attributes have the layout of the command and no pointers.
    let link = unsafe { bpf(BPF_LINK_CREATE, attributes) }?;
    let link = link.as_raw_fd().unsigned_abs();
    // SAFETY: the attributes have the layout of the command and no pointers.
    unsafe { bpf(BPF_ITER_CREATE, IteratorAttributes { link, flags: 0 }) }
}

/// Calls bpf(2) for a new descriptor, which has close-on-exec set.
///
/// # Safety
/// `A` must be the layout of this command's part of `union bpf_attr`, without padding, and its
/// pointers must be valid for the command.
unsafe fn bpf<A>(command: libc::c_long, mut attributes: A) -> Result<OwnedFd> {
    let size = size_of::<A>();
    let attributes = from_mut(&mut attributes);
    // SAFETY: the pointer and the size describe one live value, which the caller vouches for.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, command, attributes, size) };
    let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0).ok_or_else(last_error)?;
    // SAFETY: the three commands return a new descriptor, and no other code owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// `PROCMAP_QUERY` of linux/fs.h: `_IOWR('f', 17, struct procmap_query)`, since Linux 6.11.
const PROCMAP_QUERY: libc::c_ulong = 0xc068_6611;

/// `PROCMAP_QUERY_COVERING_OR_NEXT_VMA | PROCMAP_QUERY_FILE_BACKED_VMA`.
const NEXT_WITH_FILE: u64 = 0x10 | 0x20;

/// `struct procmap_query`.
#[derive(Default)]
#[repr(C)]
struct MappingQuery {
    size: u64,
    flags: u64,
    address: u64,
    start: u64,
    end: u64,
    _permissions: u64,
    _page_size: u64,
    _offset: u64,
    inode: u64,
    major: u32,
    minor: u32,
    path_size: u32,
    _build_id_size: u32,
    path: u64,
    _build_id: u64,
}

/// A mapping of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileMapping {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// The device number of the file *system*, and the inode.
    pub(crate) file: (u64, u64),
}

/// Returns the first mapping of a file that contains or follows an address; `None` if there is none.
/// `maps` is `/proc/PID/maps`.
///
/// # Errors
/// `ESRCH` when the process has ended or has no memory, `ENOTTY` on older kernels and for another
/// file, `ENOSYS` under a seccomp filter.
pub(crate) fn next_file_mapping(maps: BorrowedFd<'_>, from: u64) -> Result<Option<FileMapping>> {
    match query_mapping(maps, from, &mut []) {
        Ok(found) => Ok(Some(FileMapping {
            start: found.start,
            end: found.end,
            file: (rustix::fs::makedev(found.major, found.minor), found.inode),
        })),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Returns the path of the file that is mapped at an address.
///
/// # Errors
/// As [`next_file_mapping`], and `ENOENT` when nothing is mapped there or behind it.
pub(crate) fn path_of_mapping(maps: BorrowedFd<'_>, at: u64) -> Result<Vec<u8>> {
    let mut path = vec![0; libc::PATH_MAX.unsigned_abs() as usize];
    let found = query_mapping(maps, at, &mut path)?;
    // It includes the terminating zero byte.
    path.truncate((found.path_size as usize).saturating_sub(1));
    Ok(path)
}

/// Queries the first mapping of a file from an address on. The path is written unless its buffer is
/// empty.
fn query_mapping(maps: BorrowedFd<'_>, from: u64, path: &mut [u8]) -> Result<MappingQuery> {
    if is_filtered() {
        return Err(Errno::NOSYS);
    }
    let mut query = MappingQuery {
        size: size_of::<MappingQuery>() as u64,
        flags: NEXT_WITH_FILE,
        address: from,
        path_size: u32::try_from(path.len()).map_err(|_| Errno::INVAL)?,
        path: if path.is_empty() { 0 } else { path.as_mut_ptr().expose_provenance() as u64 },
        ..MappingQuery::default()
    };
    // SAFETY: the number contains the size of the struct, which the kernel reads and writes; it
    // writes at most `path_size` bytes to `path`. Both outlive the call. For any other file, the
    // number is unknown.
    let answer = unsafe { libc::ioctl(maps.as_raw_fd(), PROCMAP_QUERY, from_mut(&mut query)) };
    if answer < 0 { Err(last_error()) } else { Ok(query) }
}

/// The magic number of sysfs (`SYSFS_MAGIC` of linux/magic.h).
const SYSFS: u64 = 0x6265_6572;

/// A file of sysfs that the kernel maps: its content does not change.
pub(crate) struct MappedSysfs {
    start: NonNull<u8>,
    length: usize,
}

impl MappedSysfs {
    /// Maps a whole file. Reading one takes a system call for each page.
    ///
    /// # Errors
    /// `EINVAL` when it is not in sysfs or is empty, `ENODEV` when the kernel does not map it
    /// (before Linux 6.16 for `/sys/kernel/btf/vmlinux`).
    pub(crate) fn new(file: impl AsFd) -> Result<Self> {
        if rustix::fs::fstatfs(&file)?.f_type.cast_unsigned() as u64 != SYSFS {
            return Err(Errno::INVAL);
        }
        let length = rustix::fs::fstat(&file)?.st_size;
        let length = usize::try_from(length).map_err(|_| Errno::INVAL)?;
        let fd = file.as_fd().as_raw_fd();
        // SAFETY: a new mapping at an address of the kernel's choice replaces no other.
        let start =
            unsafe { libc::mmap(null_mut(), length, libc::PROT_READ, libc::MAP_PRIVATE, fd, 0) };
        if start == libc::MAP_FAILED {
            return Err(last_error());
        }
        let start = NonNull::new(start.cast()).ok_or(Errno::NOMEM)?;
        Ok(MappedSysfs { start, length })
    }
}

impl Deref for MappedSysfs {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the mapping lives as long as this value, and no process can write or shorten the
        // file, which is memory of the kernel.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl Drop for MappedSysfs {
    fn drop(&mut self) {
        // SAFETY: it is the whole mapping, and the borrows of it have ended. It can only fail for
        // an invalid range.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

// The kernel reads these layouts.
const _: () = {
    assert!(size_of::<Instruction>() == 8);
    assert!(std::mem::offset_of!(ProgramAttributes, attach_kind) == 68);
    assert!(std::mem::offset_of!(ProgramAttributes, attach_function) == 108);
    assert!(size_of::<ProgramAttributes>() == 120);
    assert!(size_of::<LinkAttributes>() == 32);
    assert!(size_of::<MappingQuery>() == 104);
};
