//! Who has a file, and what is known of him.

use gpu_core::{Holder, Pid, ProcessInfo, Reading};

/// A holder, and what is known of its process a moment later.
pub(super) struct Found {
    pub(super) holder: Holder,
    pub(super) info: gpu_core::Result<ProcessInfo>,
}

impl Found {
    /// Returns a value of the process, or why it is absent.
    pub(super) fn tell<'a, T>(
        &'a self,
        of: impl FnOnce(&'a ProcessInfo) -> Reading<T>,
    ) -> Reading<T> {
        of(self.info.as_ref().map_err(|error| error.kind().absent())?)
    }

    pub(super) fn pid(&self) -> Pid {
        self.holder.process.pid
    }

    /// Returns the command line; where that is empty or hidden, the short name.
    pub(super) fn command(&self) -> String {
        let command = self.tell(|info| info.command_line.as_deref().map_err(|absent| *absent));
        match command {
            Ok(words) if !words.is_empty() => words.join(" "),
            _ => self
                .tell(|info| Ok(info.name.clone()))
                .unwrap_or_else(|absent| format!("({absent})")),
        }
    }

    pub(super) fn user(&self) -> String {
        let number = self.tell(|info| info.uid).map(|uid| uid.to_string());
        self.tell(|info| info.user.clone())
            .or(number)
            .unwrap_or_else(|absent| format!("({absent})"))
    }
}
