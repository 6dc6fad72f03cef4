//! Notifications of events: through a program, and to the users of this machine on their terminals.

use crate::MachineError;
use gpu_core::{Clock, Error, Origin};
use gpu_host::{Hook, SystemClock, Terminals};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

/// The interval between checks of running programs.
const ATTENTION: Duration = Duration::from_millis(200);

/// How long the last programs may still run at the end.
pub const EXIT_GRACE: Duration = Duration::from_secs(10);

/// The maximum number of messages that a user gets at once.
const AT_ONCE: usize = 3;

/// Passes events on, without waiting for any recipient.
#[derive(Debug)]
pub struct Messengers {
    clock: SystemClock,
    hook: Hook,
    /// Of this machine only: simulated users have no terminals here.
    terminals: Option<Terminals>,
    /// Messages to users that were not written yet, by UID.
    messages: BTreeMap<u32, Vec<String>>,
}

impl Messengers {
    /// Returns the messengers for events of this machine, without a program.
    pub fn new(origin: &Origin) -> Self {
        let terminals = (*origin == Origin::Live).then(|| Terminals::new("/dev"));
        let (clock, hook) = (SystemClock::new(), Hook::default());
        Messengers { clock, hook, terminals, messages: BTreeMap::new() }
    }

    /// From now on starts this program, with its arguments and its time limit, for each event; no
    /// program if there are no words. Running programs continue, and waiting events go to the new
    /// program.
    ///
    /// # Errors
    /// When another user can change the program, or it cannot be executed. Then the program does
    /// not change.
    pub fn start_for_events(
        &mut self,
        words: &[OsString],
        limit: Duration,
    ) -> gpu_core::Result<()> {
        match words.split_first() {
            None => self.hook.retire(),
            Some((program, arguments)) => {
                self.hook.follow(Path::new(program), arguments.to_vec(), limit)?;
            }
        }
        Ok(())
    }

    /// Returns whether a program is started for events.
    pub fn has_program(&self) -> bool {
        self.hook.is_used()
    }

    /// Passes an event on to the program, if there is one.
    ///
    /// # Errors
    /// When the program cannot be started, or too many events wait for it.
    pub fn pass_on(&mut self, name: &str, input: Vec<u8>) -> gpu_core::Result<()> {
        self.hook.start(name, input, self.clock.monotonic())
    }

    /// Queues a message for the terminals of a user; [`attend`](Messengers::attend) writes all
    /// messages to a user together.
    pub fn notify(&mut self, uid: u32, message: String) {
        if self.terminals.is_some() {
            self.messages.entry(uid).or_default().push(message);
        }
    }

    /// Writes to terminals, attends to the running programs, and returns the failures.
    pub fn attend(&mut self) -> Vec<Error> {
        self.write_to_terminals();
        self.hook.attend(self.clock.monotonic())
    }

    fn write_to_terminals(&mut self) {
        for (uid, messages) in std::mem::take(&mut self.messages) {
            if let Some(terminals) = &self.terminals {
                terminals.write(uid, &at_once(&messages));
            }
        }
    }

    /// Ends: drops waiting events and kills running programs. Returns all failures, including
    /// these.
    pub fn end(&mut self) -> Vec<Error> {
        self.write_to_terminals();
        self.hook.end(self.clock.monotonic())
    }

    /// Returns the time until the next call of [`attend`](Messengers::attend); `None` if no program
    /// runs.
    pub fn patience(&self) -> Option<Duration> {
        (!self.hook.is_idle()).then_some(ATTENTION)
    }
}

/// Makes the path of a program, the first of these words, absolute. A name without a directory
/// stays as it is: `PATH` is not searched.
///
/// # Errors
/// When there is no current directory.
pub fn with_absolute_program(words: &[OsString]) -> Result<Vec<OsString>, MachineError> {
    let mut words = words.to_vec();
    if let Some(program) = words.first_mut().filter(|word| word.to_string_lossy().contains('/')) {
        let path = std::path::absolute(Path::new(&*program));
        *program = path.map_err(|error| MachineError::io("find the program", error))?.into();
    }
    Ok(words)
}

/// Joins the messages to a user, and keeps the last ones: a warning follows the events it is about.
fn at_once(messages: &[String]) -> String {
    let more = messages.len().saturating_sub(AT_ONCE);
    let mut text = messages[more..].concat();
    if more > 0 {
        text.push_str(&format!("There are {more} more such messages about your processes.\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_gets_one_message_for_many() {
        let messages: Vec<String> = (1..=600).map(|count| format!("message {count}\n")).collect();
        let last = "message 598\nmessage 599\nmessage 600\n";
        let more = "There are 597 more such messages about your processes.\n";
        assert_eq!(at_once(&messages), format!("{last}{more}"));
        assert_eq!(at_once(&messages[..2]), "message 1\nmessage 2\n");
    }
}
