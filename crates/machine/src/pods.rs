//! The names of pods, on a machine that is a node of Kubernetes.

use gpu_core::{Clock, Snapshot, WorkloadKind};
use gpu_kubelet::{Kubelet, Pods, name_pods};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The environment variable that names the kubelet's directory. A simulated machine uses no other:
/// it has none of this node's pods.
const KUBELET: &str = "GPUWS_KUBELET";

const DIR: &str = "/var/lib/kubelet";

/// How long the kubelet's answer is reused.
const FRESH: Duration = Duration::from_secs(10);

/// The kubelet's last answer.
#[derive(Default)]
struct Last {
    at: Option<Duration>,
    pods: Pods,
    errors: Vec<String>,
}

/// The kubelet of a machine, queried once for several snapshots.
pub(crate) struct PodNames {
    kubelet: Kubelet,
    last: Mutex<Last>,
    warn: fn(&str),
}

impl PodNames {
    /// Returns the kubelet of this node, or of the directory that the environment names; `None` on
    /// other machines. `warn` is called with each new reason why pods have no names.
    pub(crate) fn find(is_simulated: bool, warn: fn(&str)) -> Option<Self> {
        let named = std::env::var_os(KUBELET).filter(|dir| !dir.is_empty()).map(PathBuf::from);
        let dir = named.or_else(|| (!is_simulated).then(|| DIR.into()))?;
        // A kubelet of root, or one of the caller.
        let kubelet = Kubelet::at(dir, &[0, rustix::process::geteuid().as_raw()]);
        kubelet.is_there().then(|| PodNames { kubelet, last: Mutex::default(), warn })
    }

    /// Names the pods of a snapshot's processes. The kubelet is queried only if there are any.
    pub(crate) fn fill(&self, snapshot: &mut Snapshot, clock: &dyn Clock) {
        let mut infos = snapshot.processes.values().filter_map(|process| process.0.as_ref().ok());
        let is_in_pod = |workload: &gpu_core::Workload| workload.kind == WorkloadKind::Pod;
        if !infos.any(|info| info.workload.as_deref().is_some_and(is_in_pod)) {
            return;
        }
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let now = clock.monotonic();
        if last.at.is_none_or(|at| now.saturating_sub(at) >= FRESH) {
            let (pods, errors) = self.kubelet.pods();
            let errors: Vec<String> = errors.iter().map(|error| error.fault().text).collect();
            for error in errors.iter().filter(|error| !last.errors.contains(error)) {
                (self.warn)(&format!("pod names are missing: failed to {error}"));
            }
            *last = Last { at: Some(now), pods, errors };
        }
        name_pods(snapshot, &last.pods);
    }
}
