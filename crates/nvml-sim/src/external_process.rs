//! The real processes that appear on the devices by themselves.

use crate::cache_ttl::CacheTtl;
use crate::stat::start_of;
use gpu_core::Pid;
use gpu_sim::{ExternalProcess, Session};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Names one of them: its number, and when it started.
type Key = (u32, u64);

/// Those that are there.
pub(crate) struct ExternalProcesses {
    /// The session's folder; `None` where none can come.
    folder: Option<PathBuf>,
    /// The numbers of those who are there otherwise.
    placeholders: BTreeSet<u32>,
    present: BTreeSet<Key>,
    belief: CacheTtl,
}

/// Who has come and who is gone.
#[derive(Default)]
pub(crate) struct Changes {
    /// The numbers of those who are gone.
    pub(crate) gone: Vec<Pid>,
    /// Those who have come.
    pub(crate) come: Vec<ExternalProcess>,
}

impl ExternalProcesses {
    pub(crate) fn new(folder: &Path, session: &Session) -> Self {
        ExternalProcesses {
            folder: session.is_live().then(|| folder.to_owned()),
            placeholders: session.placeholders.iter().map(|placeholder| placeholder.pid).collect(),
            present: BTreeSet::new(),
            belief: CacheTtl::default(),
        }
    }

    /// Returns what has changed since the last call.
    pub(crate) fn changes(&mut self, clock: impl Fn() -> Duration) -> Changes {
        let begin = clock();
        let Some(folder) = self.folder.as_ref().filter(|_| !self.belief.holds(begin)) else {
            return Changes::default();
        };
        // In a session that was not made by `gpuws sim` there may be no such folder.
        let mut named = ExternalProcess::named(folder).unwrap_or_default();
        named.retain(|walk_on| !self.placeholders.contains(&walk_on.pid) && runs(walk_on));
        let present: BTreeSet<Key> = named.iter().map(key).collect();
        let gone = self.present.difference(&present).map(|(pid, _)| Pid(*pid)).collect();
        named.retain(|walk_on| !self.present.contains(&key(walk_on)));
        self.present = present;
        self.belief.renew(begin, clock());
        Changes { gone, come: named }
    }
}

fn runs(walk_on: &ExternalProcess) -> bool {
    start_of(walk_on.pid) == Some(walk_on.start_ticks)
}

fn key(walk_on: &ExternalProcess) -> Key {
    (walk_on.pid, walk_on.start_ticks)
}
