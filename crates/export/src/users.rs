//! Sums by user, and the processes.

use crate::catalog::Metric;
use crate::context::Context;
use crate::labels::Labels;
use crate::metrics::{Metrics, number};
use gpu_core::{Bytes, DeviceProcess, DeviceState, Pid};
use std::collections::{BTreeMap, BTreeSet};

/// The most users of a family; the others are combined. With user namespaces, one user can appear
/// as thousands.
const MOST_USERS: usize = 100;
/// The name of the combined users.
const OTHERS: &str = "(others)";
/// The most processes, the largest first.
const MOST_PROCESSES: usize = 4096;

pub(crate) fn add(context: &Context<'_>, processes: Option<Bytes>, metrics: &mut Metrics) {
    let devices = &context.snapshot.devices;
    // The processes of every device must be known, or the sums are too small.
    if devices.is_empty() || devices.iter().any(|device| device.processes.is_err()) {
        return add_processes(context, processes, metrics);
    }
    // `None` if the memory of a process is unknown.
    let mut memory: BTreeMap<&str, Option<u64>> = BTreeMap::new();
    let mut gpus: BTreeSet<(&str, u32)> = BTreeSet::new();
    let mut pids: BTreeMap<Pid, &str> = BTreeMap::new();
    for device in devices {
        for process in device.processes.iter().flatten() {
            let user = user_of(context, process);
            let sum = memory.entry(user).or_insert(Some(0));
            *sum = sum.zip(process.memory.ok()).map(|(sum, bytes)| sum.saturating_add(bytes.0));
            gpus.insert((user, device.id().index));
            pids.insert(process.pid, user);
        }
    }
    add_by_user(
        Metric::UserMemory,
        memory.iter().filter_map(|(user, bytes)| Some((*user, (*bytes)?))),
        metrics,
    );
    add_by_user(Metric::UserGpus, gpus.iter().map(|(user, _)| (*user, 1)), metrics);
    add_by_user(Metric::UserProcesses, pids.values().map(|user| (*user, 1)), metrics);
    add_processes(context, processes, metrics);
}

fn user_of<'s>(context: &'s Context<'_>, process: &DeviceProcess) -> &'s str {
    context.user(context.snapshot.process(process.pid).ok().and_then(|info| info.uid.ok()))
}

/// Adds the sum of each user.
pub(crate) fn add_by_user<'u>(
    metric: Metric,
    values: impl Iterator<Item = (&'u str, u64)>,
    metrics: &mut Metrics,
) {
    for (((), user), sum) in by_user(values.map(|(user, value)| ((), user, value))) {
        metrics.add(metric, [("user", user)], number(sum));
    }
}

/// Returns the sums by place and user. If there are too many users in all places together, only the
/// largest are named.
pub(crate) fn by_user<'u, P: Copy + Ord>(
    values: impl Iterator<Item = (P, &'u str, u64)>,
) -> BTreeMap<(P, &'u str), u64> {
    let mut sums: BTreeMap<(P, &str), u64> = BTreeMap::new();
    let mut users: BTreeMap<&str, u64> = BTreeMap::new();
    for (group, user, value) in values {
        for sum in [sums.entry((group, user)).or_default(), users.entry(user).or_default()] {
            *sum = sum.saturating_add(value);
        }
    }
    if users.len() <= MOST_USERS {
        return sums;
    }
    let mut largest: Vec<(&str, u64)> = users.into_iter().collect();
    largest.sort_by_key(|(_, sum)| std::cmp::Reverse(*sum));
    let named: BTreeSet<&str> =
        largest.into_iter().take(MOST_USERS).map(|(user, _)| user).collect();
    let mut folded = BTreeMap::new();
    for ((group, user), value) in sums {
        let user = if named.contains(user) { user } else { OTHERS };
        let sum: &mut u64 = folded.entry((group, user)).or_default();
        *sum = sum.saturating_add(value);
    }
    folded
}

/// Adds the processes that use at least `least`. A process in several parts of a device counts
/// once, with the sum.
fn add_processes(context: &Context<'_>, least: Option<Bytes>, metrics: &mut Metrics) {
    let Some(least) = least else { return };
    let mut largest: Vec<(Bytes, (&DeviceState, &Labels), &DeviceProcess)> = Vec::new();
    for (device, labels) in context.devices() {
        let mut of_device: BTreeMap<Pid, (Bytes, &DeviceProcess)> = BTreeMap::new();
        for process in device.processes.iter().flatten() {
            let Ok(memory) = process.memory else { continue };
            let known = of_device.entry(process.pid).or_insert((Bytes(0), process));
            known.0 += memory;
        }
        let large = of_device.into_values().filter(|(memory, _)| *memory >= least);
        largest.extend(large.map(|(memory, process)| (memory, (device, labels), process)));
    }
    if largest.len() > MOST_PROCESSES {
        largest.sort_by_key(|(memory, ..)| std::cmp::Reverse(*memory));
        largest.truncate(MOST_PROCESSES);
    }
    for (memory, (device, labels), process) in largest {
        let [index, uuid] = labels.only();
        let job = context.jobs.as_ref().and_then(|jobs| jobs.of(device.id().index, process.pid));
        let labels = [
            index,
            uuid,
            ("pid", &*process.pid.to_string()),
            ("user", user_of(context, process)),
            ("hpc_job", job.unwrap_or_default()),
        ];
        metrics.add(Metric::ProcessMemory, labels, number(memory.0));
    }
}
