//! Notices when files are opened and closed (inotify).

use gpu_core::{DeviceFile, FileActivity};
use rustix::fd::OwnedFd;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;

const EVENTS: WatchFlags =
    WatchFlags::OPEN.union(WatchFlags::CLOSE_WRITE).union(WatchFlags::CLOSE_NOWRITE);

/// The most reads at a time: more than the kernel's longest queue needs. So a process that opens
/// files endlessly does not keep the reader.
const READS: usize = 64;

/// Watched files. Opening a watched device would wake it; watching it does not.
struct Watched(OwnedFd);

/// Watches those of the files that the caller may read; `None` if it can watch none.
pub(crate) fn watch(files: &[DeviceFile]) -> Option<Box<dyn FileActivity>> {
    let fd = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok()?;
    let watched = |file: &&DeviceFile| inotify::add_watch(&fd, &*file.path, EVENTS).is_ok();
    let count = files.iter().filter(watched).count();
    (count > 0).then(|| Box::new(Watched(fd)) as Box<dyn FileActivity>)
}

impl FileActivity for Watched {
    fn noticed(&mut self) -> bool {
        let mut buffer = [0_u8; 8 << 10];
        let mut noticed = false;
        for _ in 0..READS {
            match rustix::io::read(&self.0, &mut buffer) {
                Ok(1..) => noticed = true,
                Err(Errno::INTR) => {}
                Ok(0) | Err(_) => break,
            }
        }
        noticed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_core::FileId;
    use std::fs::File;
    use std::path::Path;

    fn file(path: &Path) -> DeviceFile {
        let id = Ok(FileId::Device { major: 195, minor: 0 });
        DeviceFile::any(path.to_string_lossy().into(), id)
    }

    #[test]
    fn opening_and_closing_is_noticed_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("nvidia0");
        File::create(&path).unwrap();
        let missing = dir.path().join("nvidia1");
        let mut activity = watch(&[file(&missing), file(&path)]).unwrap();
        assert!(!activity.noticed());
        let open = File::open(&path).unwrap();
        assert!(activity.noticed());
        assert!(!activity.noticed());
        drop(open);
        assert!(activity.noticed());
        assert!(watch(&[file(&missing)]).is_none());
    }
}
