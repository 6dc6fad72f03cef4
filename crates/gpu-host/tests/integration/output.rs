//! Output files: what is created, replaced, followed and refused.

use gpu_host::output::{OutputError, Part, Why, append, create, replace};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Uid, fcntl_getfl};
use rustix::io::{Errno, FdFlags, fcntl_getfd};
use std::fs::{self, File, Permissions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Two users other than root.
const USER: u32 = 61_001;
const OTHER: u32 = 61_002;

/// Writes `new` to a file in one of these ways.
type Way = fn(&Path) -> Result<(), OutputError>;

const CREATE: Way = |path| create(path).map(written);
const REPLACE: Way = |path| replace(path, b"new");
const APPEND: Way = |path| append(path).map(written);
const WAYS: [Way; 3] = [CREATE, REPLACE, APPEND];

fn written(mut file: File) {
    assert!(fcntl_getfd(&file).unwrap().contains(FdFlags::CLOEXEC), "no program inherits it");
    file.write_all(b"new").unwrap();
}

/// A directory that every user can search.
struct Dir(TempDir);

impl Dir {
    fn new() -> Self {
        let open = Permissions::from_mode(0o755);
        Dir(tempfile::Builder::new().permissions(open).tempdir().unwrap())
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn file(&self, name: &str, text: &str, mode: u32) -> PathBuf {
        fs::write(self.at(name), text).unwrap();
        fs::set_permissions(self.at(name), Permissions::from_mode(mode)).unwrap();
        self.at(name)
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).unwrap().flatten();
        let mut names: Vec<_> = entries.map(|e| e.file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

fn inode(path: &Path) -> u64 {
    fs::symlink_metadata(path).unwrap().ino()
}

/// Returns why a file was not written.
fn why(result: Result<(), OutputError>) -> String {
    match result.expect_err("it is refused").into_why() {
        Why::Io(error) => Errno::from_io_error(&error).expect("the kernel's").to_string(),
        why => why.to_string(),
    }
}

fn is_root(test: &str) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        // Bypasses the test harness, which hides the output of a passing test.
        writeln!(io::stderr(), "skipped: {test}: needs root").expect("standard error is open");
    }
    is_root
}

/// Runs an action as another user, in a thread of its own: the kernel keeps users per thread.
fn as_user<T: Send>(user: u32, act: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let user = Uid::from_raw(user);
            rustix::thread::set_thread_res_uid(user, user, user).unwrap();
            act()
        });
        thread.join().unwrap()
    })
}

#[test]
fn own_file_is_replaced_with_its_permissions_or_extended() {
    for (way, content, is_same) in
        [(CREATE, "new", false), (REPLACE, "new", false), (APPEND, "oldnew", true)]
    {
        let dir = Dir::new();
        let path = dir.file("report", "old", 0o1640);
        let (before, mut reader) = (inode(&path), File::open(&path).unwrap());
        way(&path).unwrap();
        assert_eq!((text(&path).as_str(), inode(&path) == before), (content, is_same));
        assert_eq!(mode(&path), if is_same { 0o1640 } else { 0o640 }, "permissions are kept");
        let mut open = String::new();
        reader.read_to_string(&mut open).unwrap();
        assert_eq!(open, if is_same { content } else { "old" });
        assert_eq!(dir.names(), ["report"]);
    }
}

#[test]
fn missing_file_is_created_with_usual_permissions() {
    for way in WAYS {
        let dir = Dir::new();
        File::create(dir.at("usual")).unwrap();
        way(&dir.at("report")).unwrap();
        assert_eq!(text(&dir.at("report")), "new");
        assert_eq!(mode(&dir.at("report")), mode(&dir.at("usual")));
        assert_eq!(dir.names(), ["report", "usual"]);
    }
}

#[test]
fn second_name_of_file_is_never_written() {
    let dir = Dir::new();
    for way in [CREATE, REPLACE] {
        let path = dir.file("report", "old", 0o644);
        let _ = fs::remove_file(dir.at("twin"));
        fs::hard_link(&path, dir.at("twin")).unwrap();
        way(&path).unwrap();
        assert_eq!([text(&path), text(&dir.at("twin"))], ["new", "old"]);
    }
    let path = dir.file("log", "old", 0o644);
    fs::hard_link(&path, dir.at("second")).unwrap();
    assert_eq!(why(append(&path).map(written)), "it has several hard links");
    assert_eq!(text(&path), "old");
}

#[test]
fn path_without_regular_file_is_refused() {
    let dir = Dir::new();
    let permissions = Mode::RUSR | Mode::WUSR;
    rustix::fs::mknodat(CWD, dir.at("pipe"), FileType::Fifo, permissions, 0).unwrap();
    fs::create_dir(dir.at("directory")).unwrap();
    let _socket = UnixListener::bind(dir.at("socket")).unwrap();
    symlink("circle", dir.at("circle")).unwrap();
    dir.file("file", "", 0o644);
    let names = dir.names();
    let below_file =
        format!("use the directory '{}', which is not a directory", dir.at("file").display());
    for (path, reason) in [
        (dir.at("pipe"), "it is a pipe"),
        (dir.at("directory"), "it is a directory"),
        (dir.at("socket"), "it is not a regular file"),
        (dir.at("circle"), &Errno::LOOP.to_string()),
        (dir.at("missing/report"), &Errno::NOENT.to_string()),
        (dir.at("file/report"), &below_file),
        (dir.at(&"x".repeat(300)), &Errno::NAMETOOLONG.to_string()),
        ("/".into(), "the path has no file name"),
        (dir.at("directory/.."), "the path has no file name"),
    ] {
        for way in WAYS {
            let error = way(&path).expect_err(reason);
            assert_eq!(error.to_string(), format!("write '{}'", path.display()));
            assert_eq!(why(Err(error)), reason, "{}", path.display());
        }
    }
    assert_eq!(dir.names(), names);
}

#[test]
fn own_symlink_leads_to_its_target() {
    for way in WAYS {
        let dir = Dir::new();
        // Not a directory of descriptors, although it has the name of one.
        fs::create_dir(dir.at("fd")).unwrap();
        for (link, target) in [("fd/link", "report"), ("dangling", "missing")] {
            symlink(if link == "dangling" { "./missing" } else { "../report" }, dir.at(link))
                .unwrap();
            way(&dir.at(link)).unwrap();
            assert_eq!(text(&dir.at(target)), "new");
            assert!(fs::symlink_metadata(dir.at(link)).unwrap().is_symlink(), "{link} is kept");
        }
        let before = inode(&dir.at("report"));
        create(&dir.at("fd/link")).map(written).unwrap();
        assert_ne!(inode(&dir.at("report")), before, "it is not written in place");
        // Another user may have made the second name, in a directory that has no other file of that
        // user.
        rustix::fs::linkat(CWD, dir.at("fd/link"), CWD, dir.at("fd/twin"), AtFlags::empty())
            .unwrap();
        assert_eq!(why(way(&dir.at("fd/twin"))), "it is a symbolic link of another user");
    }
}

#[test]
fn link_and_permissions_of_another_user_have_no_effect() {
    if !is_root("link_and_permissions_of_another_user_have_no_effect") {
        return;
    }
    for way in WAYS {
        let dir = Dir::new();
        let target = dir.file("target", "old", 0o644);
        for (link, to) in [("link", "target"), ("way", ".")] {
            symlink(to, dir.at(link)).unwrap();
            lchown(dir.at(link), Some(USER), None).unwrap();
        }
        assert_eq!(why(way(&dir.at("link"))), "it is a symbolic link of another user");
        let refused = why(way(&dir.at("way/target")));
        assert!(refused.contains("way', which is a symbolic link of another user"), "{refused}");
        assert_eq!(text(&target), "old");
    }
    for way in [CREATE, REPLACE] {
        let dir = Dir::new();
        let theirs = dir.file("report", "old", 0o700);
        lchown(&theirs, Some(USER), None).unwrap();
        File::create(dir.at("usual")).unwrap();
        way(&theirs).unwrap();
        let new = fs::metadata(&theirs).unwrap();
        assert_eq!((new.uid(), mode(&theirs)), (0, mode(&dir.at("usual"))), "it is a new file");
    }
    let dir = Dir::new();
    let theirs = dir.file("log", "old", 0o666);
    lchown(&theirs, Some(USER), None).unwrap();
    assert_eq!(why(append(&theirs).map(written)), format!("it belongs to user {USER}"));
}

#[test]
fn device_is_opened_as_it_is() {
    for way in WAYS {
        way(Path::new("/dev/null")).unwrap();
        let kind = fs::symlink_metadata("/dev/null").unwrap().mode();
        assert_eq!(FileType::from_raw_mode(kind), FileType::CharacterDevice);
    }
    assert_eq!(why(replace(Path::new("/dev/full"), b"new")), Errno::NOSPC.to_string());
    for (opened, appends) in
        [(create("/dev/null".as_ref()), false), (append("/dev/null".as_ref()), true)]
    {
        let flags = fcntl_getfl(opened.unwrap()).unwrap();
        assert_eq!(flags.contains(OFlags::APPEND), appends);
        assert!(!flags.contains(OFlags::NONBLOCK), "writes wait for a slow reader");
    }
}

#[test]
fn descriptor_is_opened_as_it_is() {
    let (mut reader, writer) = io::pipe().unwrap();
    let path = |number: i32| PathBuf::from(format!("/dev/fd/{number}"));
    for way in WAYS {
        way(&path(writer.as_raw_fd())).unwrap();
        let mut came = [0; 3];
        reader.read_exact(&mut came).unwrap();
        assert_eq!(came, *b"new");
    }
    let opened = create(&path(writer.as_raw_fd())).unwrap();
    assert!(!fcntl_getfl(&opened).unwrap().contains(OFlags::NONBLOCK));

    for (way, content) in [(CREATE, "new"), (REPLACE, "new"), (APPEND, "longernew")] {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"longer").unwrap();
        way(&path(file.as_raw_fd())).unwrap();
        io::Seek::rewind(&mut file).unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, content, "it has no other name");
    }

    // The pipe has no reader.
    let dir = Dir::new();
    rustix::fs::mknodat(CWD, dir.at("pipe"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let pipe = rustix::fs::open(dir.at("pipe"), OFlags::PATH, Mode::empty()).unwrap();
    for way in WAYS {
        assert_eq!(why(way(&path(pipe.as_raw_fd()))), Errno::NXIO.to_string());
    }
}

#[test]
fn own_file_in_closed_dir_is_emptied() {
    if !is_root("own_file_in_closed_dir_is_emptied") {
        return;
    }
    for (way, content) in [(CREATE, "new"), (REPLACE, "new"), (APPEND, "longernew")] {
        let dir = Dir::new();
        for (name, owner) in [("own", USER), ("theirs", OTHER), ("twin", USER)] {
            lchown(dir.file(name, "longer", 0o666), Some(owner), None).unwrap();
        }
        fs::hard_link(dir.at("twin"), dir.at("second")).unwrap();
        fs::set_permissions(dir.0.path(), Permissions::from_mode(0o555)).unwrap();
        let write = |name: &str| as_user(USER, || way(&dir.at(name)));
        let before = inode(&dir.at("own"));
        write("own").unwrap();
        assert_eq!((text(&dir.at("own")).as_str(), inode(&dir.at("own"))), (content, before));
        assert_eq!(why(write("theirs")), format!("it belongs to user {OTHER}"));
        assert_eq!(why(write("twin")), "it has several hard links");
        assert_eq!(why(write("missing")), Errno::ACCESS.to_string());
        assert_eq!([text(&dir.at("theirs")), text(&dir.at("twin"))], ["longer", "longer"]);
    }
}

#[test]
fn temporary_names_in_use_are_skipped() {
    let dir = Dir::new();
    let name = |number| format!(".gpuws-{}-{number}.part", std::process::id());
    dir.file(&name(0), "theirs", 0o644);
    create(&dir.at("report")).map(written).unwrap();
    assert_eq!((text(&dir.at("report")), text(&dir.at(&name(0)))), ("new".into(), "theirs".into()));
    for number in 1..100 {
        dir.file(&name(number), "theirs", 0o644);
    }
    let path = dir.file("report", "old", 0o644);
    for way in [CREATE, REPLACE] {
        assert_eq!(why(way(&path)), Errno::EXIST.to_string());
    }
    assert_eq!(text(&path), "old");
}

#[test]
fn replacing_part_keeps_the_old_file_until_it_is_complete() {
    let dir = Dir::new();
    let path = dir.file("report", "old", 0o640);
    drop(Part::replacing(&path).unwrap());
    assert_eq!(text(&path), "old", "an abandoned part replaces nothing");
    let mut part = Part::replacing(&path).unwrap();
    part.file.write_all(b"new").unwrap();
    assert_eq!(text(&path), "old");
    part.finish(&path).unwrap();
    assert_eq!((text(&path).as_str(), dir.names()), ("new", vec!["report".to_owned()]));
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o640);
    std::fs::create_dir(dir.at("dir")).unwrap();
    for refused in [dir.at("dir"), "/dev/null".into()] {
        let why = why(Part::replacing(&refused).map(drop));
        assert_eq!(why, "it is not a regular file", "{refused:?}");
    }
}

#[test]
fn part_gets_its_name_only_when_complete() {
    let dir = Dir::new();
    let path = dir.at("recording");
    let mut part = Part::create(&path).unwrap();
    assert!(fcntl_getfd(&part.file).unwrap().contains(FdFlags::CLOEXEC));
    part.file.write_all(b"new").unwrap();
    assert!(!path.exists());
    part.finish(&path).unwrap();
    assert_eq!((text(&path).as_str(), dir.names()), ("new", vec!["recording".to_owned()]));
    assert_eq!(why(Part::create(&path).map(drop)), "it already exists");

    drop(Part::create(&dir.at("abandoned")).unwrap());
    let part = Part::create(&dir.at("late")).unwrap();
    dir.file("late", "another's", 0o644);
    assert_eq!(why(part.finish(&dir.at("late"))), Errno::EXIST.to_string());
    assert_eq!(text(&dir.at("late")), "another's");
    assert_eq!(dir.names(), ["late", "recording"], "nothing else is left");
    assert_eq!(why(Part::create(&dir.at("missing/x")).map(drop)), Errno::NOENT.to_string());
}
