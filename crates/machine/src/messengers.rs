//! Who is told of events: a program, and the users of this machine on their terminals.

use crate::MachineError;
use gpu_core::{Clock, Error, Origin};
use gpu_host::{Hook, SystemClock, Terminals};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

/// How often programs that run are attended to.
const ATTENTION: Duration = Duration::from_millis(200);

/// How long the last programs may still run at the end.
pub const FAREWELL: Duration = Duration::from_secs(10);

/// The most messages that a user gets at once.
const AT_ONCE: usize = 3;

/// Passes events on. Nothing here waits for whoever is told.
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
    /// Returns the messengers for events of this machine: nobody yet.
    pub fn new(origin: &Origin) -> Self {
        let terminals = (*origin == Origin::Live).then(|| Terminals::new("/dev"));
        let (clock, hook) = (SystemClock::new(), Hook::default());
        Messengers { clock, hook, terminals, messages: BTreeMap::new() }
    }

    /// Starts this program, with its arguments and its time limit, for each event from now on;
    /// none if there are no words. What runs goes on, and the new program gets what waits.
    ///
    /// # Errors
    /// When another user can change the program, or it cannot be executed. Then nothing changes.
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

    /// Has a message written to the terminals of a user, with the others to this user until
    /// [`attend`](Messengers::attend).
    pub fn tell(&mut self, uid: u32, message: String) {
        if self.terminals.is_some() {
            self.messages.entry(uid).or_default().push(message);
        }
    }

    /// Writes to terminals, attends to the programs that run, and returns which have failed.
    pub fn attend(&mut self) -> Vec<Error> {
        self.tell_users();
        self.hook.attend(self.clock.monotonic())
    }

    fn tell_users(&mut self) {
        for (uid, messages) in std::mem::take(&mut self.messages) {
            if let Some(terminals) = &self.terminals {
                terminals.tell(uid, &at_once(&messages));
            }
        }
    }

    /// Ends: what still waits is not passed on, and programs that still run are killed. Returns what
    /// has failed, that included.
    pub fn end(&mut self) -> Vec<Error> {
        self.tell_users();
        self.hook.end(self.clock.monotonic())
    }

    /// Returns when programs have to be attended to again; `None` if none runs.
    pub fn patience(&self) -> Option<Duration> {
        (!self.hook.is_idle()).then_some(ATTENTION)
    }
}

/// Makes the path of a program, the first of these words, absolute. A name without a directory is
/// left as it is: `PATH` is not searched.
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

/// Joins the messages to a user: the last ones, because a warning follows what it is about.
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
