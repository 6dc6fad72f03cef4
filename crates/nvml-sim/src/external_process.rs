//! The real processes that register themselves on the devices.

use crate::cache_ttl::CacheTtl;
use crate::stat::start_of;
use gpu_core::Pid;
use gpu_sim::{ExternalProcess, Session};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Identifies such a process: its PID and start time.
type Key = (u32, u64);

/// The processes that are present.
pub(crate) struct ExternalProcesses {
    /// The session's directory; `None` if no external processes are permitted.
    dir: Option<PathBuf>,
    /// The PIDs of all placeholders.
    placeholders: BTreeSet<u32>,
    present: BTreeSet<Key>,
    cache: CacheTtl,
}

/// External processes that arrived or departed.
#[derive(Default)]
pub(crate) struct Changes {
    /// The PIDs of departed processes.
    pub(crate) departed: Vec<Pid>,
    /// Arrived processes.
    pub(crate) arrived: Vec<ExternalProcess>,
}

impl ExternalProcesses {
    pub(crate) fn new(dir: &Path, session: &Session) -> Self {
        ExternalProcesses {
            dir: session.is_live().then(|| dir.to_owned()),
            placeholders: session.placeholders.iter().map(|placeholder| placeholder.pid).collect(),
            present: BTreeSet::new(),
            cache: CacheTtl::default(),
        }
    }

    /// Returns the changes since the last call.
    pub(crate) fn changes(&mut self, clock: impl Fn() -> Duration) -> Changes {
        let begin = clock();
        let Some(dir) = self.dir.as_ref().filter(|_| !self.cache.holds(begin)) else {
            return Changes::default();
        };
        // A session that was not created by `gpuws sim` may lack this directory.
        let mut named = ExternalProcess::named(dir).unwrap_or_default();
        named.retain(|external| !self.placeholders.contains(&external.pid) && runs(external));
        let present: BTreeSet<Key> = named.iter().map(key).collect();
        let departed = self.present.difference(&present).map(|(pid, _)| Pid(*pid)).collect();
        named.retain(|external| !self.present.contains(&key(external)));
        self.present = present;
        self.cache.renew(begin, clock());
        Changes { departed, arrived: named }
    }
}

fn runs(external: &ExternalProcess) -> bool {
    start_of(external.pid) == Some(external.start_ticks)
}

fn key(external: &ExternalProcess) -> Key {
    (external.pid, external.start_ticks)
}
