//! The container, pod, job or service of each process.

use gpu_core::{ProcessInfo, WorkloadKind, clean};

/// Returns the job of a process in a few words: `Slurm 4711`, `pod train-0` (or the start of its UID),
/// `ctr 1a2b3c4d5e6f` for a container, `jupyter` for a service; empty if none is known. Text is
/// escaped.
pub(crate) fn of(info: &ProcessInfo) -> String {
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
            let name = service.name.strip_suffix(".service").unwrap_or(service.name);
            // For a daemon, the service name adds no information.
            if name == info.name { String::new() } else { short(name, 60) }
        }
        (None, None) => String::new(),
    };
    clean(&text).into_owned()
}
