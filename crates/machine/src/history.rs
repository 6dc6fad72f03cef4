//! Histories: where they may be, and what they record of a machine.

use crate::{LeaseReader, MachineError, Source, backends, time_until};
use gpu_core::{
    DriverMessage, Error, ErrorKind, Fault, HolderSearch, Observation, Observer, ProcessDetail,
};
use gpu_history::{Frame, Reader, Retention, Writer};
use gpu_host::supervise::end_signals;
use gpu_host::{PathTrust, TrustedDir};
use gpu_sim::Anonymizer;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// The interval for reading the driver's messages: the kernel's buffer has thousands of lines.
const MESSAGES_EVERY: Duration = Duration::from_secs(60);

/// Starts to write the frames of a machine to the history in a directory, which is created if it is
/// missing. Names are those of [`FrameSource::default`], and a history without them
/// ([`FrameSource::anonymous`]) is always a new one.
///
/// # Errors
/// When users other than root and the caller can change or replace the directory, when another
/// recorder writes there, when the history there is of another machine or cannot be continued, or
/// the directory cannot be used.
pub fn writer(
    path: &Path,
    source: &Source,
    with_names: bool,
    retention: Retention,
) -> Result<Writer, MachineError> {
    let failed = |error| MachineError::io("find the directory of the history", error);
    let path = std::path::absolute(path).map_err(failed)?;
    let dir =
        TrustedDir::make(&path, PathTrust::Protected).map_err(|error| match error.kind() {
            ErrorKind::Invalid => MachineError::new(error).with_hint(
                "a history shows what users do: use a directory that only you or root can change",
            ),
            _ => MachineError::new(error),
        })?;
    let open = if with_names { Writer::open } else { Writer::open_anonymous };
    let what = || format!("write the history '{}'", path.display());
    let failed = |error: Error| Error::new(error.kind(), what()).with_source(error);
    let writer = open(descriptor(&dir)?, retention).map_err(failed)?;
    let last = Reader::last(descriptor(&dir)?).map_err(failed)?;
    let origin = source.backend.origin();
    match last.map(|last| last.snapshot.origin).filter(|known| *known != origin) {
        None => Ok(writer),
        Some(known) => {
            let why = format!("it has samples of {known}, not of {origin}; use another directory");
            Err(Error::new(ErrorKind::Invalid, what()).with_source(why).into())
        }
    }
}

/// Opens a history for reading.
///
/// # Errors
/// When the directory does not exist or cannot be read, or a newer version has written it.
pub fn reader(path: &Path) -> Result<Reader, MachineError> {
    let dir = TrustedDir::open(path, PathTrust::AsGiven).map_err(|error| {
        MachineError::new(error).with_hint(if path.is_file() {
            "a recording in a file is a machine for --sim; a history is a directory"
        } else {
            "gpuws record --for writes a history to a directory"
        })
    })?;
    let opened = Reader::open(descriptor(&dir)?);
    opened.map(|reader| reader.with_drivers(&backends::drivers())).map_err(|error| {
        let errno =
            std::error::Error::source(&error).and_then(|source| source.downcast_ref::<Errno>());
        let is_denied = errno == Some(&Errno::ACCESS);
        let what = format!("read the history '{}'", path.display());
        let failed = MachineError::new(Error::new(error.kind(), what).with_source(error));
        if is_denied {
            failed.with_hint("run the same command as the owner of the directory or root")
        } else {
            failed
        }
    })
}

fn descriptor(dir: &TrustedDir) -> Result<OwnedFd, MachineError> {
    let descriptor = dir.as_fd().try_clone_to_owned();
    descriptor.map_err(|error| MachineError::io("use the directory of the history", error))
}

/// Takes the frames of a history.
///
/// A frame has the outline of each process and its workload; a suspected process is read whole, so
/// that a diagnosis of the frame has its evidence. The driver's messages are read once a minute,
/// and frames in between repeat them.
#[derive(Default)]
pub struct FrameSource {
    observer: Observer,
    leases: LeaseReader,
    anonymizer: Option<Anonymizer>,
    messages: Option<(Duration, Result<Vec<DriverMessage>, Fault>)>,
}

impl FrameSource {
    /// Returns a value that takes frames without names and command lines, and with numbers for
    /// users.
    pub fn anonymous() -> Self {
        FrameSource { anonymizer: Some(Anonymizer::default()), ..FrameSource::default() }
    }

    /// Takes the next frame.
    pub fn next(&mut self, source: &Source) -> Frame {
        let now = source.clock.monotonic();
        let known = self.messages.take().filter(|(read, _)| now - *read < MESSAGES_EVERY);
        let leases = self.leases.read(source).entries();
        let observation = Observation {
            groups: gpu_reaper::defect_groups(),
            holders: HolderSearch::IfUnexplained,
            processes: ProcessDetail::WithJob,
            driver_messages: known.is_none(),
        };
        let mut snapshot = source.observe(&mut self.observer, observation);
        match known {
            Some(known) => {
                snapshot.driver_messages.clone_from(&known.1);
                self.messages = Some(known);
            }
            None => self.messages = Some((now, snapshot.driver_messages.clone())),
        }
        gpu_reaper::diagnose_outlines(&mut snapshot, &*source.host);
        let frame = Frame::new(snapshot, leases);
        match &mut self.anonymizer {
            Some(anonymizer) => Frame {
                snapshot: anonymizer.anonymize(&frame.snapshot),
                leases: frame.leases.map(|leases| anonymizer.leases(&leases)),
            },
            None => frame,
        }
    }
}

/// Takes the [`end_signals`] as requests to end, and returns a stream that becomes readable when
/// one has arrived.
///
/// # Errors
/// When the signals cannot be taken.
pub fn end_requests() -> Result<UnixStream, MachineError> {
    let taken = || {
        let (requests, sender) = UnixStream::pair()?;
        for signal in end_signals() {
            signal_hook::low_level::pipe::register(signal, sender.try_clone()?)?;
        }
        Ok(requests)
    };
    taken().map_err(|error| MachineError::io("watch for Ctrl-C", error))
}

/// Waits until this time on the clock of the machine, and returns whether `end_requests` became
/// readable before.
///
/// # Errors
/// When the system cannot wait.
pub fn waits(
    source: &Source,
    until: Duration,
    end_requests: &impl AsFd,
) -> Result<bool, MachineError> {
    if source.is_simulated() {
        source.clock.sleep(until.saturating_sub(source.clock.monotonic()));
    }
    loop {
        let mut files = [PollFd::new(end_requests, PollFlags::IN)];
        match poll(&mut files, Some(&time_until(until, &*source.clock))) {
            Ok(0) if source.clock.monotonic() >= until => return Ok(false),
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(true),
            Err(errno) => return Err(MachineError::io("wait for the next sample", errno.into())),
        }
    }
}
