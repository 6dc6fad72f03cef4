//! The container, pod, job or service of each process.
//!
//! A list of processes does not need them to be read again at every look: they are read once for
//! each process, and again after 30 looks, because a scheduler may adopt a running process.

use crate::frame::Frame;
use gpu_core::{Host, ProcessInfo, ProcessKey, WorkloadKind, clean};
use std::collections::BTreeMap;

/// The number of looks after which what is known of a process is read again.
const LOOKS: u32 = 30;

/// What is known of the processes of earlier looks.
#[derive(Clone, Debug, Default)]
pub struct Jobs {
    known: BTreeMap<ProcessKey, String>,
    looks: u32,
}

impl Jobs {
    /// Fills in the jobs of the rows of a look; reads those that are not known from `host`.
    pub fn fill(&mut self, frame: &mut Frame, host: &dyn Host) {
        self.looks = self.looks.wrapping_add(1);
        let mut known = BTreeMap::new();
        for row in &mut frame.rows {
            let Some(key) = row.process().filter(|key| key.start.is_some()) else { continue };
            // Not all processes in the same look.
            let is_old = self.looks.wrapping_add(key.pid.0).is_multiple_of(LOOKS);
            let job = match known.get(&key).or_else(|| self.known.get(&key).filter(|_| !is_old)) {
                Some(job) => String::clone(job),
                None => read(key, frame.snapshot.process(key.pid).ok(), host),
            };
            row.job.clone_from(&job);
            known.insert(key, job);
        }
        self.known = known;
    }
}

fn read(key: ProcessKey, seen: Option<&ProcessInfo>, host: &dyn Host) -> String {
    if let Some(seen) = seen.filter(|seen| seen.cgroup.is_ok() || seen.workload.is_some()) {
        return job(seen);
    }
    let read = host.process(key.pid).ok().filter(|info| info.key.definitely_same(&key));
    read.as_ref().map_or_else(String::new, job)
}

/// Returns the job of a process in a few words: `Slurm 4711`, `pod train-0` (or the start of its UID),
/// `ctr 1a2b3c4d5e6f` for a container, `jupyter` for a service. Text is escaped.
fn job(info: &ProcessInfo) -> String {
    let short = |id: &str, most: usize| id.chars().take(most).collect::<String>();
    if let Some(pod) = &info.pod {
        return clean(&format!("pod {}", short(&pod.name, 60))).into_owned();
    }
    let text = match (info.workload.as_deref(), info.service()) {
        (Some(workload), _) => match workload.kind {
            WorkloadKind::SlurmJob => format!("Slurm {}", short(&workload.id, 20)),
            WorkloadKind::Pod => format!("pod {}", short(&workload.id, 8)),
            WorkloadKind::Container => format!("ctr {}", short(&workload.id, 12)),
        },
        (None, Some(service)) => {
            short(service.name.strip_suffix(".service").unwrap_or(service.name), 60)
        }
        (None, None) => String::new(),
    };
    clean(&text).into_owned()
}
