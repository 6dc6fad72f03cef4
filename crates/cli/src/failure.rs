//! Why a command did not do what it was asked for, and how that is told.

use crate::exit::Exit;
use crate::terminal::clean;
use gpu_core::{Absent, DeviceFault, ErrorKind, MachineFault, ProcessFault};
use std::error::Error;
use std::fmt;
use std::io;

/// A failure of a command: what it failed to do, why, and what the reader can do about it.
#[derive(Debug)]
pub(crate) struct Failure {
    exit: Exit,
    what: String,
    source: Option<Box<dyn Error + Send + Sync>>,
    meaning: Option<&'static str>,
    hint: Option<String>,
}

impl Failure {
    /// Returns a failure to do `what`: a lowercase fragment such as `read 'smi.txt'`.
    pub(crate) fn new(exit: Exit, what: impl Into<String>) -> Self {
        Failure { exit, what: what.into(), source: None, meaning: None, hint: None }
    }

    /// Returns a failure to do `what` with a file, from what the system said.
    pub(crate) fn io(what: impl Into<String>, source: io::Error) -> Self {
        let exit = match source.kind() {
            io::ErrorKind::PermissionDenied => Exit::NotPermitted,
            io::ErrorKind::IsADirectory => Exit::Usage,
            _ => Exit::CannotObserve,
        };
        Failure::new(exit, what).with_source(source)
    }

    /// Adds the failure underneath.
    pub(crate) fn with_source(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Adds what to do about it.
    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Returns how the program ends.
    pub(crate) fn exit(&self) -> Exit {
        self.exit
    }
}

impl fmt::Display for Failure {
    /// Writes `gpuws: failed to …` with all sources, then the hint on a line of its own.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "gpuws: failed to {}", clean(&self.what))?;
        let mut source = self.source.as_deref().map(|source| source as &dyn Error);
        while let Some(error) = source {
            write!(f, ": {}", clean(error.to_string().trim_end()))?;
            source = error.source();
        }
        if let Some(meaning) = self.meaning {
            write!(f, ": {meaning}")?;
        }
        match &self.hint {
            Some(hint) => write!(f, "\nhint: {}", clean(hint)),
            None => Ok(()),
        }
    }
}

impl From<gpu_core::Error> for Failure {
    fn from(error: gpu_core::Error) -> Self {
        let mut failure = Failure::new(exit_of(error.kind(), error.source()), error.to_string());
        failure.meaning = meaning(error.kind());
        failure.hint = remedy(error.kind()).map(str::to_owned);
        // The fault joins the sources; what is left of it after the fragment is the rest of the chain.
        let fault = error.fault();
        if let Some(rest) = fault.text.strip_prefix(&format!("{error}: ")) {
            failure = failure.with_source(rest);
        }
        failure
    }
}

fn exit_of(kind: ErrorKind, source: Option<&(dyn Error + 'static)>) -> Exit {
    let denied = source
        .and_then(|source| source.downcast_ref::<io::Error>())
        .is_some_and(|error| error.kind() == io::ErrorKind::PermissionDenied);
    match kind {
        ErrorKind::Machine(MachineFault::NotPermitted | MachineFault::Blocked)
        | ErrorKind::Process(ProcessFault::NotPermitted)
        | ErrorKind::Field(Absent::NotPermitted) => Exit::NotPermitted,
        ErrorKind::Io if denied => Exit::NotPermitted,
        ErrorKind::Invalid => Exit::Usage,
        ErrorKind::TimedOut => Exit::Deadline,
        ErrorKind::Again | ErrorKind::Device(DeviceFault::InUse) => Exit::TryLater,
        _ => Exit::CannotObserve,
    }
}

/// Returns what a failure of the whole machine means; `None` for one that tells itself.
pub(crate) fn meaning(kind: ErrorKind) -> Option<&'static str> {
    let ErrorKind::Machine(fault) = kind else { return None };
    Some(match fault {
        MachineFault::NoLibrary => "no NVIDIA driver is installed here",
        MachineFault::DriverNotLoaded => "the NVIDIA kernel module is not loaded",
        MachineFault::VersionMismatch => {
            "driver library and kernel module are of different versions"
        }
        MachineFault::Blocked => "the devices are blocked for this container or job",
        MachineFault::NotPermitted => "the device files may not be opened",
        MachineFault::NoDevices => "the driver is there and finds no device",
        MachineFault::Unknown(_) => return None,
    })
}

/// Returns what a person can do about a failure of this kind; `None` where nothing general helps.
pub(crate) fn remedy(kind: ErrorKind) -> Option<&'static str> {
    Some(match kind {
        ErrorKind::Machine(MachineFault::NoLibrary) => {
            "install the NVIDIA driver, or look at a simulated machine: gpuws --sim p100-ghost"
        }
        ErrorKind::Machine(MachineFault::DriverNotLoaded) => {
            "load the kernel module as root (modprobe nvidia); dmesg says why it is not loaded"
        }
        ErrorKind::Machine(MachineFault::VersionMismatch) => {
            "the driver was upgraded under a loaded module: reboot, or unload and load the module"
        }
        ErrorKind::Machine(MachineFault::Blocked) => {
            "give the device to this container or job (as with --gpus), or ask outside of it"
        }
        ErrorKind::Machine(MachineFault::NotPermitted)
        | ErrorKind::Process(ProcessFault::NotPermitted)
        | ErrorKind::Field(Absent::NotPermitted) => "run the same command with sudo",
        ErrorKind::Machine(MachineFault::NoDevices) => {
            "check that the machine has a GPU (lspci) and that dmesg shows no error of the driver"
        }
        ErrorKind::Device(DeviceFault::Lost) => {
            "reboot; when it happens again, check power, seating and cooling of the card"
        }
        ErrorKind::Device(DeviceFault::ResetRequired) => {
            "reset it as root when nobody uses it (nvidia-smi --gpu-reset), or reboot"
        }
        ErrorKind::Device(DeviceFault::InsufficientPower) => "connect the power cables of the card",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_is_one_line_and_the_hint_another() {
        let source = io::Error::from(io::ErrorKind::NotFound);
        let failure = Failure::io("read 'smi\n.txt'", source).with_hint("check the name");
        assert_eq!(
            failure.to_string(),
            "gpuws: failed to read 'smi\\n.txt': entity not found\nhint: check the name"
        );
        assert_eq!(failure.exit(), Exit::CannotObserve);
    }

    #[test]
    fn an_error_of_a_port_keeps_its_chain_and_gets_its_code() {
        let denied = io::Error::from(io::ErrorKind::PermissionDenied);
        let error = gpu_core::Error::new(ErrorKind::Io, "append to the log").with_source(denied);
        let failure = Failure::from(error);
        assert_eq!(failure.to_string(), "gpuws: failed to append to the log: permission denied");
        assert_eq!(failure.exit(), Exit::NotPermitted);
    }

    #[test]
    fn kinds_have_codes() {
        for (kind, exit) in [
            (MachineFault::NoLibrary.into(), Exit::CannotObserve),
            (MachineFault::Blocked.into(), Exit::NotPermitted),
            (ProcessFault::NotPermitted.into(), Exit::NotPermitted),
            (DeviceFault::InUse.into(), Exit::TryLater),
            (ErrorKind::TimedOut, Exit::Deadline),
            (ErrorKind::Invalid, Exit::Usage),
            (ErrorKind::Io, Exit::CannotObserve),
        ] {
            assert_eq!(exit_of(kind, None), exit, "{kind:?}");
        }
    }
}
