//! The error of a command, and its conversion from the errors of the libraries.

use crate::exit::Exit;
use gpu_core::{ErrorKind, ProcessFault, clean};
use gpu_host::output::{OutputError, Why};
use gpu_machine::{Cause, MachineError, roots};
use gpu_report::fault::meaning;
pub(crate) use gpu_report::fault::{account, brief, driver_remedy, remedy};
use gpu_report::text::{Line, Tone, wrapped};
use gpu_sim::live::LiveError;
use rustix::io::Errno;
use std::error::Error;
use std::fmt;
use std::io;

/// The failure of a command: the failed action, the reason, and what the user can do.
#[derive(Debug)]
pub(crate) struct Failure {
    exit: Exit,
    what: String,
    source: Option<Box<dyn Error + Send + Sync>>,
    meaning: Option<&'static str>,
    hint: Option<String>,
    list: Option<Box<(&'static str, String)>>,
}

/// The width of a list of names.
const WIDTH: usize = 80;

impl Failure {
    /// Returns a failure to do `what`, a lowercase fragment such as `read 'smi.txt'`.
    pub(crate) fn new(exit: Exit, what: impl Into<String>) -> Self {
        Failure { exit, what: what.into(), source: None, meaning: None, hint: None, list: None }
    }

    /// Checks that this program was built with an option.
    pub(crate) fn unless_built(option: &str) -> Result<(), Self> {
        let failed = |why| Failure::new(Exit::Usage, format!("use '{option}'")).with_source(why);
        gpuws_features::check_option(option).map_err(failed)
    }

    /// Returns a failure to do `what` with a file because of an I/O error.
    pub(crate) fn io(what: impl Into<String>, source: io::Error) -> Self {
        let exit = match source.kind() {
            io::ErrorKind::PermissionDenied => Exit::NotPermitted,
            io::ErrorKind::IsADirectory => Exit::Usage,
            _ => Exit::CannotObserve,
        };
        Failure::new(exit, what).with_source(source)
    }

    pub(crate) fn with_source(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Sets a list of names to choose from, and its title.
    pub(crate) fn with_list(mut self, title: &'static str, names: String) -> Self {
        self.list = Some(Box::new((title, names)));
        self
    }

    pub(crate) fn ending(mut self, exit: Exit) -> Self {
        self.exit = exit;
        self
    }

    /// Returns the failed action with all causes, in one line.
    pub(crate) fn reason(&self) -> String {
        let text = self.to_string();
        let line = text.lines().next().unwrap_or_default();
        line.trim_start_matches("gpuws: failed to ").to_owned()
    }

    pub(crate) fn exit(&self) -> Exit {
        self.exit
    }
}

impl fmt::Display for Failure {
    /// Writes `gpuws: failed to …` with all causes, then the hint on a separate line, and the list
    /// in wrapped lines.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Text that begins with an option is a sentence.
        let failed = if self.what.starts_with("--") { "" } else { "failed to " };
        write!(f, "gpuws: {failed}{}", clean(&self.what))?;
        let mut source = self.source.as_deref().map(|source| source as &dyn Error);
        while let Some(error) = source {
            write!(f, ": {}", clean(error.to_string().trim_end()))?;
            source = error.source();
        }
        if let (Some(meaning), None) = (self.meaning, &self.source) {
            write!(f, ": {meaning}")?;
        }
        if let Some(hint) = &self.hint {
            write!(f, "\nhint: {}", clean(hint))?;
        }
        let Some((title, names)) = self.list.as_deref() else { return Ok(()) };
        let title = Line::new().plain(format_args!("{title}: "));
        let lines = wrapped(title, Tone::Plain, names, WIDTH);
        lines.iter().try_for_each(|line| write!(f, "\n{}", line.text()))
    }
}

impl From<gpu_core::Error> for Failure {
    fn from(error: gpu_core::Error) -> Self {
        let mut failure = Failure::new(exit_of(error.kind(), error.source()), error.to_string());
        failure.meaning = meaning(error.kind());
        failure.hint = hidden(error.kind()).or(remedy(error.kind())).map(str::to_owned);
        // The text of a fault joins the whole chain; without the first part, the causes remain.
        let fault = error.fault();
        if let Some(rest) = fault.text.strip_prefix(&format!("{error}: ")) {
            failure = failure.with_source(rest);
        }
        failure
    }
}

impl From<MachineError> for Failure {
    fn from(error: MachineError) -> Self {
        let (cause, hint) = (error.cause(), error.hint().map(str::to_owned));
        let failure = hint.into_iter().fold(error.into_error().into(), Failure::with_hint);
        match cause {
            Cause::Failed => failure,
            Cause::NoAuditLog => failure.ending(Exit::NotPermitted),
            Cause::NotKept => failure.ending(Exit::Own),
        }
    }
}

impl From<LiveError> for Failure {
    fn from(error: LiveError) -> Self {
        let hint = error.hint();
        let failure = Failure::from(gpu_core::Error::from(error));
        hint.into_iter().fold(failure, Failure::with_hint)
    }
}

impl From<OutputError> for Failure {
    fn from(error: OutputError) -> Self {
        let what = error.to_string();
        let (why, hint) = match error.into_why() {
            Why::Io(source) => return Failure::io(what, source),
            why @ Why::NoName => return Failure::new(Exit::Usage, what).with_source(why),
            why @ Why::Untrusted(_) => (why, "use a file in a directory that you own"),
            why @ Why::Refused(_) => (why, "use a regular file or a new name"),
            why @ Why::Exists => {
                (why, "nothing was written; use a new file name (report has --force)")
            }
        };
        Failure::new(Exit::Usage, what).with_source(why).with_hint(hint)
    }
}

/// Returns a hint if `/proc` may hide the process; `None` if it hides no processes.
fn hidden(kind: ErrorKind) -> Option<&'static str> {
    let of_process =
        matches!(kind, ErrorKind::Process(ProcessFault::Gone | ProcessFault::NotPermitted));
    (of_process && gpu_host::hides_processes(&roots().proc)).then_some(
        "/proc is mounted with hidepid, which hides other users' processes: use sudo or join the \
            group that may see them (gid=, proc(5))",
    )
}

fn exit_of(kind: ErrorKind, source: Option<&(dyn Error + 'static)>) -> Exit {
    let denied = source.is_some_and(|source| {
        let by_io = source.downcast_ref::<io::Error>().map(io::Error::kind);
        let by_number = source.downcast_ref::<rustix::io::Errno>();
        by_io == Some(io::ErrorKind::PermissionDenied)
            || by_number.is_some_and(|errno| [Errno::ACCESS, Errno::PERM].contains(errno))
    });
    Exit::of(kind, denied)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_chain_and_hint_are_one_line_each() {
        let source = io::Error::from(io::ErrorKind::NotFound);
        let failure = Failure::io("read 'smi\n.txt'", source).with_hint("check the name");
        assert_eq!(
            failure.to_string(),
            "gpuws: failed to read 'smi\\n.txt': entity not found\nhint: check the name"
        );
        assert_eq!(failure.exit(), Exit::CannotObserve);
        let denied = Failure::io("x", io::ErrorKind::PermissionDenied.into());
        assert_eq!(denied.exit(), Exit::NotPermitted);
        assert_eq!(failure.reason(), "read 'smi\\n.txt': entity not found");
    }

    #[test]
    fn list_of_names_is_wrapped() {
        let names = ["labbox"; 20].join(", ");
        let failure = Failure::new(Exit::Usage, "find machine 'x'").with_list("machines", names);
        let text = failure.to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[..2],
            [
                "gpuws: failed to find machine 'x'",
                "machines: labbox, labbox, labbox, labbox, labbox, labbox, labbox, labbox,",
            ]
        );
        assert!(lines[2].starts_with("          labbox, "), "{text}");
        assert!(lines.iter().all(|line| line.len() <= WIDTH), "{text}");
    }

    #[test]
    fn port_error_keeps_chain_and_maps_to_exit_code() {
        let denied = io::Error::from(io::ErrorKind::PermissionDenied);
        let error = gpu_core::Error::new(ErrorKind::Io, "append to the log").with_source(denied);
        let failure = Failure::from(error);
        assert_eq!(failure.to_string(), "gpuws: failed to append to the log: permission denied");
        assert_eq!(failure.exit(), Exit::NotPermitted);
    }
}
