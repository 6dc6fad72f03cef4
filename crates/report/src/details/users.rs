//! Entries for the users of a device: MIG instances, listed processes, accounted processes and
//! holders of its device file.

use super::{Entry, group, known, mib, value};
use crate::wording;
use gpu_core::{
    Absent, AccountedProcess, DeviceProcess, DeviceState, Holder, Partition, Pid, Reading, Snapshot,
};

/// Returns the groups from the MIG instances to the holders.
pub(super) fn entries(snapshot: &Snapshot, device: &DeviceState) -> Vec<Entry> {
    vec![instances(device), listed(snapshot, device), accounted(device), holders(snapshot, device)]
}

fn instances(device: &DeviceState) -> Entry {
    let instances = match &device.partitions {
        Ok(instances) => instances,
        Err(fault) => return value("MIG Devices", Err::<String, _>(fault.kind.absent())),
    };
    if !instances.is_empty() && !instances.iter().any(Partition::is_mig) {
        let partition = |own: &Partition| {
            let memory = super::state::memory("FB Memory Usage", &own.memory);
            group(format!("Partition {}", own.index), [memory])
        };
        return group("Partitions", instances.iter().map(partition).collect::<Vec<_>>());
    }
    let instance = |instance: &Partition| {
        let id = |id: Option<u32>| id.ok_or(Absent::NotFound);
        group(
            format!("MIG Device {}", instance.index),
            [
                value("Profile", instance.profile.clone()),
                value("GPU Instance ID", id(instance.gpu_instance)),
                value("Compute Instance ID", id(instance.compute_instance)),
                super::state::memory("FB Memory Usage", &instance.memory),
            ],
        )
    };
    group("MIG Devices", instances.iter().map(instance).collect::<Vec<_>>())
}

fn listed(snapshot: &Snapshot, device: &DeviceState) -> Entry {
    match &device.processes {
        Ok(processes) => {
            let entries = processes.iter().map(|process| process_of(snapshot, process));
            group("Processes", entries.collect::<Vec<_>>())
        }
        Err(fault) => value("Processes", Err::<String, _>(fault.kind.absent())),
    }
}

fn process_of(snapshot: &Snapshot, process: &DeviceProcess) -> Entry {
    let mut entries = Vec::new();
    if let Some(instance) = process.gpu_instance {
        entries.push(known("GPU Instance ID", instance));
        entries
            .push(value("Compute Instance ID", process.compute_instance.ok_or(Absent::NotFound)));
    }
    entries.push(value("Type", process.kind.letters().ok_or(Absent::NotRecorded)));
    entries.extend(about(snapshot, process.pid, process.name.as_deref().ok()));
    entries.push(value("Used GPU Memory", mib(process.memory)));
    entries.push(value("Utilization", process.utilization));
    group(format!("Process ID {}", process.pid), entries)
}

/// Returns the command line, the owner, the age and the job of a process, as read from `/proc`.
fn about(snapshot: &Snapshot, pid: Pid, listed: Option<&str>) -> Vec<Entry> {
    let process = snapshot.process(pid);
    let info = |absent| match process {
        Ok(_) => absent,
        Err(reason) => reason,
    };
    let name = wording::command(process, listed);
    let name = if name == "?" { Err(info(Absent::NotRecorded)) } else { Ok(name) };
    let owner = process.and_then(|info| match &info.user {
        Ok(user) => Ok(user.clone()),
        Err(absent) => info.uid.map(|uid| uid.to_string()).map_err(|_| *absent),
    });
    let age = process.and_then(|info| Ok(wording::age(snapshot.taken_at.since(info.started_at?))));
    let mut entries = vec![value("Name", name), value("Owner", owner), value("Age", age)];
    if let Ok(Some(workload)) = process.map(|info| info.workload.as_ref()) {
        entries.push(known("Job", format!("{} {}", workload.kind, workload.id)));
    }
    entries
}

fn accounted(device: &DeviceState) -> Entry {
    const NAME: &str = "Accounted Processes";
    let processes: Reading<&Vec<AccountedProcess>> = match &device.details {
        Ok(details) => match &details.accounting {
            Some(accounting) => accounting.processes.as_ref().map_err(|absent| *absent),
            None => Err(Absent::NotRecorded),
        },
        Err(fault) => Err(fault.kind.absent()),
    };
    let process = |process: &AccountedProcess| {
        let pid = process.pid.map_or("?".to_owned(), |pid| pid.to_string());
        group(
            format!("Process ID {pid}"),
            [
                value("Running", super::yes(process.running)),
                value("GPU Utilization", process.utilization),
                value("Max Memory Usage", mib(process.memory_max)),
                value("Time", super::unit(process.time, "ms")),
            ],
        )
    };
    match processes {
        Ok(processes) => group(NAME, processes.iter().map(process).collect::<Vec<_>>()),
        Err(absent) => value(NAME, Err::<String, _>(absent)),
    }
}

fn holders(snapshot: &Snapshot, device: &DeviceState) -> Entry {
    const NAME: &str = "Holders of the Device File";
    if !snapshot.knows_files_of(device) {
        let absent = device.id().node.err().unwrap_or(Absent::NotRecorded);
        return value(NAME, Err::<String, _>(absent));
    }
    match &snapshot.holders {
        Err(fault) => value(NAME, Err::<String, _>(fault.kind.absent())),
        Ok(holders) => {
            let has = |holder: &&Holder| holder.has_device(device.id());
            let entries = holders.iter().filter(has).map(|holder| held(snapshot, holder));
            group(NAME, entries.collect::<Vec<_>>())
        }
    }
}

fn held(snapshot: &Snapshot, holder: &Holder) -> Entry {
    let mut entries = about(snapshot, holder.process.pid, None);
    entries.extend(holder.held.iter().map(|held| known(&*held.path, held.access)));
    group(format!("Process ID {}", holder.process.pid), entries)
}
