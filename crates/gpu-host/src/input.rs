//! Opens a text that a user names, so that reading it always ends.
//!
//! A pipe without a writer, or a device without an end, must not block a command forever.

use crate::timer;
use rustix::event::{PollFd, PollFlags};
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

/// The most bytes that are read from a pipe or socket.
const MAX_PIPE: u64 = 16 << 30;

/// The most bytes that are read from a character device.
const MAX_DEVICE: u64 = 8 << 20;

/// How long a pipe may have no writer, as a number of tries and the pause between two.
const TRIES: usize = 100;
const BETWEEN: Duration = Duration::from_millis(100);

/// A text with an end.
#[derive(Debug)]
pub struct Input<R> {
    from: R,
    /// The bytes that may still be read; `None` for a file, because a file has an end.
    left: Option<u64>,
}

/// Opens a file, pipe or device for reading.
///
/// # Errors
/// When it cannot be opened. Reading fails with [`io::ErrorKind::TimedOut`] if a named pipe has no
/// writer for ten seconds, and with [`io::ErrorKind::FileTooLarge`] for a device or pipe with more
/// than 8 MiB or 16 GiB.
pub fn open(path: &Path) -> io::Result<Input<Box<dyn Read>>> {
    // Opening a pipe would wait for its writer. A file ignores the flag.
    let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let kind = file.metadata()?.file_type();
    let left = match () {
        () if kind.is_char_device() => Some(MAX_DEVICE),
        () if kind.is_file() => None,
        () => Some(MAX_PIPE),
    };
    let from: Box<dyn Read> =
        if kind.is_file() { Box::new(file) } else { Box::new(Patient { file, tries: TRIES }) };
    Ok(Input { from, left })
}

impl<R: Read> Input<R> {
    /// Limits a stream of unknown length, such as standard input, as a pipe.
    pub fn of_stream(from: R) -> Self {
        Input { from, left: Some(MAX_PIPE) }
    }
}

impl<R: Read> Read for Input<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.from.read(buffer)?;
        if let Some(left) = self.left.as_mut() {
            *left = left.checked_sub(count as u64).ok_or_else(|| {
                let what = "it is a pipe or device with more bytes than any log has";
                io::Error::new(io::ErrorKind::FileTooLarge, what)
            })?;
        }
        Ok(count)
    }
}

/// A pipe or device that does not block: waits for its data while it has a writer.
struct Patient {
    file: File,
    /// How many more checks may find no writer; 0 once data has arrived.
    tries: usize,
}

impl Read for Patient {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.file.read(buffer) {
                Ok(0) if self.tries > 0 && self.file.metadata()?.file_type().is_fifo() => {
                    self.tries -= 1;
                    if self.tries == 0 {
                        let what = "no program opened the pipe for writing";
                        return Err(io::Error::new(io::ErrorKind::TimedOut, what));
                    }
                    timer::sleep(BETWEEN);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    // A writer has it open.
                    self.tries = 0;
                    timer::pause(&mut [PollFd::new(&self.file, PollFlags::IN)], None)?;
                }
                Ok(count) => {
                    self.tries = 0;
                    return Ok(count);
                }
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, thread};

    fn kind(read: io::Result<usize>) -> io::ErrorKind {
        read.expect_err("an endless text is refused").kind()
    }

    #[test]
    fn device_without_end_is_refused() {
        let mut zero = open(Path::new("/dev/zero")).unwrap();
        assert_eq!(kind(zero.read_to_end(&mut Vec::new())), io::ErrorKind::FileTooLarge);
        let mut null = open(Path::new("/dev/null")).unwrap();
        assert_eq!(null.read_to_end(&mut Vec::new()).unwrap(), 0);
    }

    #[test]
    fn stream_is_refused_beyond_its_limit() {
        let mut input = Input { from: io::repeat(7), left: Some(10) };
        assert_eq!(input.read(&mut [0; 10]).unwrap(), 10);
        assert_eq!(kind(input.read(&mut [0; 1])), io::ErrorKind::FileTooLarge);
    }

    #[test]
    fn pipe_without_writer_ends_after_its_tries() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32)
            .open(&path)
            .unwrap();
        let mut pipe = Patient { file, tries: 2 };
        assert_eq!(kind(pipe.read(&mut [0; 8])), io::ErrorKind::TimedOut);

        let writer = thread::spawn({
            let path = path.clone();
            move || fs::write(path, "later").unwrap()
        });
        let mut text = String::new();
        open(&path).unwrap().read_to_string(&mut text).unwrap();
        writer.join().unwrap();
        assert_eq!(text, "later");
    }

    #[test]
    fn file_has_no_limit() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        io::Write::write_all(&mut file, b"log").unwrap();
        let input = open(file.path()).unwrap();
        assert_eq!(input.left, None);
        assert!(open(Path::new("/nonexistent")).is_err());
    }
}
