//! Which processes are found as holders, with which letters.

use crate::child::{Sleeper, compile};
use crate::{host, skip};
use gpu_core::{
    Absent, DeviceFile, DeviceFiles, FileId, FileRole, HeldFile, Holder, Pid, ProcessTable,
};
use gpu_host::resolve;
use gpu_nvidia_driver::NvidiaDriver;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

fn stand_in() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("nvidia0");
    fs::write(&path, "stand-in\n").unwrap();
    (dir, path)
}

fn holder(pid: Pid, file: &DeviceFile) -> Option<Holder> {
    let scan = host().holders(std::slice::from_ref(file)).unwrap();
    scan.holders.into_iter().find(|holder| holder.process.pid == pid)
}

fn held(sleeper: &Sleeper, path: &Path) -> Option<HeldFile> {
    let file = resolve(path).unwrap();
    let mut held = holder(sleeper.pid(), &file)?.held;
    assert_eq!(held.len(), 1, "one row for one file");
    held.pop()
}

fn letters(sleeper: &Sleeper, path: &Path) -> Option<String> {
    held(sleeper, path).map(|held| held.access.to_string())
}

#[test]
fn holder_access_shows_open_mode() {
    let (_dir, path) = stand_in();
    let reader = Sleeper::shell("exec 3< \"$1\" 7< \"$1\"", &[&path]);
    let writer = Sleeper::shell("exec 4>> \"$1\" 5< \"$1\"", &[&path]);
    let both = Sleeper::shell("exec 6<> \"$1\"", &[&path]);
    let neither = Sleeper::shell(":", &[]);

    let file = resolve(&path).unwrap();
    let scan = host().holders(std::slice::from_ref(&file)).unwrap();
    let mut found: Vec<_> = scan.holders.iter().map(|holder| holder.process.pid).collect();
    assert!(found.is_sorted());
    let mut expected = vec![reader.pid(), writer.pid(), both.pid()];
    found.sort();
    expected.sort();
    assert_eq!(found, expected);

    let text = path.to_str().unwrap();
    for (sleeper, access, descriptors) in
        [(&reader, "f....", vec![3, 7]), (&writer, "F....", vec![4, 5]), (&both, "F....", vec![6])]
    {
        let held = held(sleeper, &path).unwrap();
        assert_eq!(&*held.path, text);
        assert_eq!(held.access.to_string(), access);
        assert_eq!(held.descriptors, descriptors);
    }
    assert_eq!(held(&neither, &path), None);
    let key = holder(reader.pid(), &file).unwrap().process;
    assert_eq!(key, host().process(reader.pid()).unwrap().key, "number and start time");
}

#[test]
fn holder_access_shows_cwd_and_root() {
    let (dir, _) = stand_in();
    let inside = Sleeper::spawn(Command::new("sleep").arg("1000").current_dir(dir.path()));
    inside.wait_for_name("sleep");
    assert_eq!(letters(&inside, dir.path()).as_deref(), Some("..c.."));
    assert_eq!(letters(&inside, Path::new("/")).as_deref(), Some(".r..."));
}

#[test]
fn executable_is_not_also_reported_as_mapped() {
    let (_dir, path) = stand_in();
    let sleep = Command::new("sh").args(["-c", "command -v sleep"]).output().unwrap().stdout;
    crate::programs::copy_program(String::from_utf8(sleep).unwrap().trim().as_ref(), &path);
    let running = Sleeper::spawn(Command::new(&path).arg("1000"));
    running.wait_for_name("nvidia0");
    assert_eq!(letters(&running, &path).as_deref(), Some("...e."));
}

/// Copies a library that this program has mapped.
fn library(to: &Path) -> bool {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let library = maps.lines().find_map(|line| {
        let path = &line[line.find('/')?..];
        path.contains("/libgcc_s.so").then_some(path)
    });
    library.is_some_and(|library| fs::copy(library, to).is_ok())
}

#[test]
fn mapped_file_is_held_without_descriptor() {
    let (_dir, path) = stand_in();
    if !library(&path) {
        return skip(
            "mapped_file_is_held_without_descriptor",
            "this program has no shared library",
        );
    }
    let other = Sleeper::shell(":", &[]);
    let mapper = Sleeper::spawn(Command::new("sleep").arg("1000").env("LD_PRELOAD", &path));
    crate::child::eventually(|| {
        let maps = fs::read_to_string(format!("/proc/{}/maps", mapper.pid())).unwrap();
        // The loader closes a preloaded library before it maps the next one.
        maps.contains("nvidia0") && maps.contains("/libc.so")
    });
    let found = held(&mapper, &path).unwrap();
    assert_eq!(found.access.to_string(), "....m");
    assert!(found.descriptors.is_empty());
    assert_eq!(held(&other, &path), None);

    // The name is gone, the mapping is not.
    let file = resolve(&path).unwrap();
    fs::remove_file(&path).unwrap();
    let found = holder(mapper.pid(), &file).unwrap();
    assert_eq!(found.held[0].access.to_string(), "....m");
}

#[test]
fn deleted_or_renamed_file_is_still_held() {
    let (dir, path) = stand_in();
    let sleeper = Sleeper::shell("exec 3< \"$1\"", &[&path]);
    let file = resolve(&path).unwrap();
    let renamed = dir.path().join("other");
    fs::rename(&path, &renamed).unwrap();
    assert_eq!(letters(&sleeper, &renamed).as_deref(), Some("f...."));
    fs::write(&path, "another file with the old name").unwrap();
    assert_eq!(letters(&sleeper, &path), None);
    fs::remove_file(&renamed).unwrap();
    assert!(holder(sleeper.pid(), &file).is_some());
}

/// A device that few processes open.
const FULL: &str = "/dev/full";

#[test]
fn device_is_matched_by_number() {
    let sleeper = Sleeper::shell("exec 3> \"$1\"", &[Path::new(FULL)]);
    let file = resolve(FULL).unwrap();
    assert_eq!(file.id, Ok(FileId::Device { major: 1, minor: 7 }));
    assert_eq!(letters(&sleeper, Path::new(FULL)).as_deref(), Some("F...."));
    assert_eq!(letters(&sleeper, Path::new("/dev/zero")), None);
}

/// Creates another node of a device, as container runtimes do.
fn node(path: &Path, minor: u32) -> Result<(), String> {
    use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
    let mode = Mode::RUSR | Mode::WUSR;
    mknodat(CWD, path, FileType::CharacterDevice, mode, makedev(1, minor))
        .map_err(|errno| format!("a device node cannot be made: {errno}"))?;
    File::open(path)
        .map_err(|error| format!("a device node made here cannot be opened: {error}"))?;
    Ok(())
}

#[test]
fn second_node_of_device_is_same_device() {
    let (dir, _) = stand_in();
    let path = dir.path().join("full");
    if let Err(why) = node(&path, 7) {
        return skip("second_node_of_device_is_same_device", &why);
    }
    let sleeper = Sleeper::shell("exec 3< \"$1\"", &[&path]);
    assert_eq!(letters(&sleeper, Path::new(FULL)).as_deref(), Some("f...."));
    fs::remove_file(&path).unwrap();
    assert_eq!(letters(&sleeper, Path::new(FULL)).as_deref(), Some("f...."));
}

/// Maps the file named by the argument, closes it, and reports so.
pub(crate) const MAPPER: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>
int main(int count, char **arguments) {
    int file = open(arguments[1], O_RDWR);
    if (count != 2 || file < 0) return 1;
    if (mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0) == MAP_FAILED) return 2;
    close(file);
    puts("ready");
    fflush(stdout);
    for (;;) pause();
}
"#;

#[test]
fn mapped_device_is_matched_by_number() {
    let (dir, _) = stand_in();
    let Some(program) = compile(dir.path(), MAPPER) else {
        return skip("mapped_device_is_matched_by_number", "there is no C compiler");
    };
    let zero = Path::new("/dev/zero");
    let mapper = Sleeper::ready(Command::new(&program).arg(zero));
    assert_eq!(letters(&mapper, zero).as_deref(), Some("....m"));
    assert_eq!(letters(&mapper, Path::new(FULL)), None);

    let path = dir.path().join("zero");
    if let Err(why) = node(&path, 5) {
        return skip("mapped_device_is_matched_by_number, through another node", &why);
    }
    let mapper = Sleeper::ready(Command::new(&program).arg(&path));
    assert_eq!(letters(&mapper, zero).as_deref(), Some("....m"));
    fs::remove_file(&path).unwrap();
    assert_eq!(letters(&mapper, zero).as_deref(), Some("....m"));
}

#[test]
fn lowest_descriptors_are_listed() {
    let (_dir, path) = stand_in();
    let flags = rustix::fs::OFlags::RDONLY;
    let open = |_| rustix::fs::open(&path, flags, rustix::fs::Mode::empty()).unwrap();
    let inherited: Vec<_> = (0..400).map(open).collect();
    let mut command = Command::new("sleep");
    let sleeper = Sleeper::spawn(command.arg("1000").stdin(Stdio::null()));
    drop(inherited);
    sleeper.wait_for_name("sleep");
    let found = held(&sleeper, &path).unwrap();
    assert_eq!(found.descriptors.len(), 64);
    assert!(found.descriptors.is_sorted());
    let all = fs::read_dir(format!("/proc/{}/fd", sleeper.pid())).unwrap().filter(|entry| {
        fs::read_link(entry.as_ref().unwrap().path()).is_ok_and(|target| target == path)
    });
    let mut all: Vec<u32> =
        all.map(|entry| entry.unwrap().file_name().to_str().unwrap().parse().unwrap()).collect();
    assert_eq!(all.len(), 400);
    all.sort_unstable();
    assert_eq!(found.descriptors, all[..64]);
}

#[test]
fn several_files_are_reported_in_requested_order() {
    let (dir, path) = stand_in();
    let control = dir.path().join("nvidiactl");
    fs::write(&control, "").unwrap();
    let sleeper = Sleeper::shell("exec 3< \"$1\" 4< \"$2\"", &[&control, &path]);
    let described = |path| resolve(path).unwrap().described_by(&NvidiaDriver);
    let mut files: Vec<_> = [&path, &control].map(described).into();
    files.push(DeviceFile::any("/named/by/text/only".into(), Err(Absent::NotRecorded)));
    let scan = host().holders(&files).unwrap();
    let found = scan.holders.iter().find(|holder| holder.process.pid == sleeper.pid()).unwrap();
    let rows: Vec<_> = found.held.iter().map(|held| (held.role, &held.descriptors[..])).collect();
    assert_eq!(rows, [(FileRole::Compute, &[4][..]), (FileRole::Control, &[3])]);
    assert!(found.through_thread.is_none());
}

#[test]
fn vanishing_processes_are_not_errors() {
    let (_dir, path) = stand_in();
    let file = resolve(&path).unwrap();
    let sleeper = Sleeper::shell("exec 3< \"$1\"", &[&path]);
    let mut busy = Command::new("sh");
    let _busy = Sleeper::spawn(busy.args(["-c", "while :; do sh -c : < /dev/null; done"]));
    for _ in 0..30 {
        let scan = host().holders(std::slice::from_ref(&file)).unwrap();
        let found: Vec<_> = scan.holders.iter().map(|holder| holder.process.pid).collect();
        assert_eq!(found, [sleeper.pid()]);
        let failed = scan.unreadable.0.keys().find(|reason| **reason != Absent::NotPermitted);
        assert_eq!(failed, None, "what is gone is not counted");
    }
}

#[test]
fn empty_request_returns_empty_result() {
    assert_eq!(host().holders(&[]).unwrap(), Default::default());
}
