//! The right to decide.

use crate::stranger::Stranger;
use crate::{locks, roots};
use gpu_core::{Clock, ErrorKind, Locks};
use gpu_host::SystemClock;
use std::fs;
use std::time::Duration;
use tempfile::tempdir;

const LONG: Duration = Duration::from_secs(10);

#[test]
fn one_has_it_and_who_that_is_is_told() {
    let folder = tempdir().unwrap();
    let here = locks(folder.path());
    let stranger = Stranger::start(None, "table", folder.path()).unwrap();
    let error = here.table(Duration::from_millis(20)).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    let told = format!("which is open in process {}", stranger.pid());
    assert!(error.to_string().ends_with(&told), "{error}");
    stranger.kill();
    drop(here.table(LONG).unwrap());
    drop(here.table(Duration::ZERO).unwrap());
}

#[test]
fn whoever_waits_gets_it_when_it_is_let_go() {
    let folder = tempdir().unwrap();
    let (here, there) = (locks(folder.path()), locks(folder.path()));
    let held = here.table(Duration::ZERO).unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| there.table(LONG).is_ok());
        SystemClock::new().sleep(Duration::from_millis(30));
        assert!(!waits.is_finished());
        drop(held);
        assert!(waits.join().unwrap());
    });
}

/// Its owner may do that to it, and everybody's order is lost for a moment: that no device is
/// granted twice does not rest on it.
#[test]
fn one_that_was_unlinked_or_replaced_is_made_again() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("table");
    let (here, there) = (locks(folder.path()), locks(folder.path()));
    let old = here.table(Duration::ZERO).unwrap();
    fs::remove_file(&path).unwrap();
    let new = there.table(Duration::ZERO).unwrap();
    drop(old);
    assert!(here.table(Duration::ZERO).is_err(), "the new one counts");
    fs::rename(&path, folder.path().join("elsewhere")).unwrap();
    fs::write(&path, "").unwrap();
    drop(here.table(Duration::ZERO).unwrap());
    drop(new);
}

#[test]
fn one_that_is_exchanged_for_ever_is_waited_for_no_longer_than_allowed() {
    let folder = tempdir().unwrap();
    let (table, other) = (folder.path().join("table"), folder.path().join("other"));
    let (ends, ended) = std::sync::mpsc::channel::<()>();
    let exchanger = std::thread::spawn(move || {
        while ended.try_recv().is_err() {
            fs::write(&other, "").unwrap();
            fs::rename(&other, &table).unwrap();
        }
    });
    let here = locks(folder.path());
    let mut kinds = Vec::new();
    for _ in 0..200 {
        match here.table(Duration::from_millis(5)) {
            Ok(_) => kinds.push(None),
            Err(error) => kinds.push(Some(error.kind())),
        }
    }
    ends.send(()).unwrap();
    exchanger.join().unwrap();
    kinds.retain(|kind| !matches!(kind, None | Some(ErrorKind::TimedOut)));
    assert_eq!(kinds, [], "it is had, or waited for in vain");
    drop(here.table(LONG).unwrap());
}

#[test]
fn what_is_no_file_is_an_error_and_no_wait() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("table");
    let fifo = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, fifo, 0).unwrap();
    let here = locks(folder.path());
    let error = here.table(LONG).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.to_string().starts_with("lock the table of leases '/"), "{error}");
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/dev/null", &path).unwrap();
    assert_eq!(here.table(LONG).err().unwrap().kind(), ErrorKind::Io);
    assert_eq!(roots().proc, std::path::Path::new("/proc"));
}
