//! Who is told of events: a program, and the users of this machine on their terminals.

use gpu_core::{Clock, Error, Origin};
use gpu_host::{Hook, SystemClock, Terminals};
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

/// How often programs that run are attended to.
const ATTENTION: Duration = Duration::from_millis(200);

/// How long the last programs may still run at the end.
pub const FAREWELL: Duration = Duration::from_secs(10);

/// Passes events on. Nothing here waits for whoever is told.
#[derive(Debug)]
pub struct Messengers {
    clock: SystemClock,
    hook: Option<Hook>,
    /// Of this machine only: simulated users have no terminals here.
    terminals: Option<Terminals>,
}

impl Messengers {
    /// Returns the messengers for events of this machine: nobody yet.
    pub fn new(origin: &Origin) -> Self {
        let terminals = (*origin == Origin::Live).then(|| Terminals::new("/dev"));
        Messengers { clock: SystemClock::new(), hook: None, terminals }
    }

    /// Starts this program, with its arguments and its time limit, for each event from now on;
    /// none if there are no words.
    ///
    /// # Errors
    /// When another user can change the program, or it cannot be executed.
    pub fn start_for_events(
        &mut self,
        words: &[OsString],
        limit: Duration,
    ) -> gpu_core::Result<()> {
        self.hook = match words.split_first() {
            None => None,
            Some((program, arguments)) => {
                Some(Hook::new(Path::new(program), arguments.to_vec(), limit)?)
            }
        };
        Ok(())
    }

    /// Returns whether a program is started for events.
    pub fn has_program(&self) -> bool {
        self.hook.is_some()
    }

    /// Passes an event on to the program, if there is one.
    ///
    /// # Errors
    /// When the program cannot be started, or too many events wait for it.
    pub fn pass_on(&mut self, name: &str, input: Vec<u8>) -> gpu_core::Result<()> {
        let now = self.clock.monotonic();
        self.hook.as_mut().map_or(Ok(()), |hook| hook.start(name, input, now))
    }

    /// Writes to the terminals of a user.
    pub fn tell(&self, uid: u32, message: &str) {
        if let Some(terminals) = &self.terminals {
            terminals.tell(uid, message);
        }
    }

    /// Attends to the programs that run, and returns which have failed.
    pub fn attend(&mut self) -> Vec<Error> {
        let now = self.clock.monotonic();
        self.hook.as_mut().map_or_else(Vec::new, |hook| hook.attend(now))
    }

    /// Returns when programs have to be attended to again; `None` if none runs.
    pub fn patience(&self) -> Option<Duration> {
        self.hook.as_ref().filter(|hook| !hook.is_idle()).map(|_| ATTENTION)
    }
}
