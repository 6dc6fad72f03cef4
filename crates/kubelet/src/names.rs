//! Finds the pod names of processes.

use crate::pods::{Assignment, DeviceName, Pods};
use gpu_core::{DeviceState, Pid, PodEvidence, PodName, ProcessInfo, Snapshot, WorkloadKind};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Names the pods of the processes in a snapshot.
///
/// The name is found by the UID in the cgroup path. If that fails, it is found by devices, provided
/// that every device that a process of the pod holds or uses is assigned to the same pod, and that
/// no process of another pod uses any of them. So neither replicas of a shared device nor a monitor
/// that holds the devices of several pods gets a pod's name. A pod
/// whose processes use no device gets no name from devices.
pub fn name_pods(snapshot: &mut Snapshot, pods: &Pods) {
    let uids = uids(snapshot);
    let by_devices = by_devices(snapshot, pods, &uids);
    for (pid, uid) in &uids {
        let Some(process) = snapshot.processes.get_mut(pid) else { continue };
        let Ok(info) = &mut process.0 else { continue };
        let known = pods.known.iter().find(|pod| pod.uid == *uid);
        let name = known.map(|pod| PodName {
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            container: container_id(info).and_then(|id| {
                let its = pod.containers.iter().find(|(known, _)| known == id);
                its.map(|(_, name)| name.clone())
            }),
            evidence: PodEvidence::Uid,
        });
        if let Some(name) = name.or_else(|| by_devices.get(uid).cloned()) {
            Arc::make_mut(info).pod = Some(Box::new(name));
        }
    }
}

/// Returns the pod UID of each process that is in a pod.
fn uids(snapshot: &Snapshot) -> BTreeMap<Pid, String> {
    let infos = snapshot.processes.iter().filter_map(|(pid, process)| {
        let workload = process.0.as_ref().ok()?.workload.as_deref()?;
        let is_pod = workload.kind == WorkloadKind::Pod && !workload.is_named_by_user();
        is_pod.then(|| (*pid, workload.id.clone()))
    });
    infos.collect()
}

/// Returns the container ID of a process: the last part of its cgroup path that is one.
fn container_id(info: &ProcessInfo) -> Option<&str> {
    let id = |part: &'_ str| -> bool {
        part.len() == 64 && part.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let parts = info.cgroup.as_deref().ok()?.rsplit('/');
    parts
        .filter_map(|part| part.strip_suffix(".scope").unwrap_or(part).rsplit([':', '-']).next())
        .find(|part| id(part))
}

/// Finds pod names by devices, and returns them by UID.
fn by_devices(
    snapshot: &Snapshot,
    pods: &Pods,
    uids: &BTreeMap<Pid, String>,
) -> BTreeMap<String, PodName> {
    let assignable = assignable(snapshot);
    // The pods on each device, and the devices of each pod.
    let mut on: BTreeMap<usize, BTreeSet<&str>> = BTreeMap::new();
    let mut its: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
    for (pid, uid) in uids {
        for (at, device) in assignable.iter().enumerate() {
            if device.pids.contains(pid) {
                on.entry(at).or_default().insert(uid);
                its.entry(uid).or_default().insert(at);
            }
        }
    }
    let named = its.into_iter().filter_map(|(uid, devices)| {
        let mut meant: Option<(&str, &str)> = None;
        let mut containers = BTreeSet::new();
        for at in devices {
            if on.get(&at).is_none_or(|others| others.len() != 1) {
                return None;
            }
            for assigned in pods.assigned.iter().filter(|its| assignable[at].is_assigned(its)) {
                let pod = (assigned.namespace.as_str(), assigned.pod.as_str());
                if *meant.get_or_insert(pod) != pod {
                    return None;
                }
                containers.insert(assigned.container.as_str());
            }
            if !pods.assigned.iter().any(|its| assignable[at].is_assigned(its)) {
                return None;
            }
        }
        let (namespace, name) = meant?;
        let only = (containers.len() == 1).then(|| containers.first()).flatten();
        let name = PodName {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            container: only.map(|name| (*name).to_owned()),
            evidence: PodEvidence::Devices,
        };
        Some((uid.to_owned(), name))
    });
    named.collect()
}

/// A device that can be assigned, and the processes on it.
struct Assignable {
    names: [Option<DeviceName>; 3],
    pids: BTreeSet<Pid>,
}

impl Assignable {
    fn is_assigned(&self, assigned: &Assignment) -> bool {
        assigned.devices.iter().any(|device| self.names.iter().flatten().any(|name| name == device))
    }
}

/// Returns the assignable devices of a snapshot; for a device in MIG mode, its MIG devices.
fn assignable(snapshot: &Snapshot) -> Vec<Assignable> {
    let mut assignable = Vec::new();
    for device in &snapshot.devices {
        let mig: Vec<DeviceState> = device.partitions_as_devices().collect();
        if mig.is_empty() {
            let mut pids = listed(device);
            let holders = snapshot.holders().iter().filter(|h| h.has_device(device.id()));
            pids.extend(holders.map(|holder| holder.process.pid));
            let names = [
                device.id().uuid.as_ref().ok().map(|uuid| DeviceName::Uuid(uuid.to_string())),
                Some(DeviceName::Index(device.id().index)),
                device.id().minor().ok().map(DeviceName::Minor),
            ];
            assignable.push(Assignable { names, pids });
        }
        assignable.extend(mig.iter().map(|device| {
            let uuid = device.id().uuid.as_ref().ok();
            let name = uuid.map(|uuid| DeviceName::Uuid(uuid.to_string()));
            Assignable { names: [name, None, None], pids: listed(device) }
        }));
    }
    assignable
}

fn listed(device: &DeviceState) -> BTreeSet<Pid> {
    device.processes.iter().flatten().map(|process| process.pid).collect()
}
