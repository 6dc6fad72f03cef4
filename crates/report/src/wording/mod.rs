//! The words for enums and devices, as the command line prints them.

pub mod claims;
pub mod demo;
pub mod doctor;
mod figures;
#[cfg(feature = "memory-trace")]
pub mod fit;
pub mod leases;
pub mod limit;
pub mod oom;
pub mod paste;
#[cfg(feature = "place")]
pub mod place;
pub mod reap;
pub mod reset;
pub mod run;

use figures::grouped;
pub use figures::{
    age, count, findings_at_least, free, memory, path_word, possible, process, shell_word,
    short_names, size, started, used_of,
};

use gpu_core::{
    Absent, AddressingMode, DeviceId, DeviceState, ErrorKind, FabricState, Fault, OperationMode,
    ProcessInfo, Reading, Snapshot,
};
use gpu_reaper::{Advice, Confidence, Finding, FindingKind, Role};
use std::borrow::Cow;

/// Returns the words for a kind of finding.
pub fn kind(kind: FindingKind) -> &'static str {
    match kind {
        FindingKind::Ghost => "ghost",
        FindingKind::DriverLeak => "driver leak",
        FindingKind::NotPermitted => "not visible to you",
        FindingKind::ForeignNamespace => "foreign PID namespace",
        FindingKind::ListedButGone => "listed but gone",
        FindingKind::ZombieHolder => "zombie holder",
        FindingKind::StuckHolder => "stuck holder",
        FindingKind::Orphan => "orphan",
        FindingKind::Hoarder => "idle holder",
        FindingKind::MemoryGrowth => "memory growth",
        FindingKind::HostBound => "waits for the host",
        FindingKind::DeviceFault => "device fault",
        FindingKind::MemoryErrors => "memory errors",
        FindingKind::NvLinkDown => "NVLink down",
        FindingKind::DriverError => "driver error",
        FindingKind::NoMigInstance => "no MIG instance",
        FindingKind::ComputeProhibited => "compute prohibited",
        FindingKind::BusyWithoutProcess => "busy without process",
        FindingKind::Throttled => "throttled",
        FindingKind::SlowPcie => "slow PCIe",
        FindingKind::PendingReset => "pending reset",
        FindingKind::BlockedReset => "blocked reset",
    }
}

/// Returns the word for a process of a finding, for a narrow column; empty if the kind has none.
pub fn short(kind: FindingKind) -> &'static str {
    match kind {
        FindingKind::Ghost => "ghost",
        FindingKind::ListedButGone => "gone",
        FindingKind::ZombieHolder => "zombie",
        FindingKind::StuckHolder => "stuck",
        FindingKind::Orphan => "orphan",
        FindingKind::Hoarder => "idle holder",
        FindingKind::MemoryGrowth => "grows",
        FindingKind::HostBound => "waits",
        FindingKind::DriverLeak
        | FindingKind::NotPermitted
        | FindingKind::ForeignNamespace
        | FindingKind::DeviceFault
        | FindingKind::MemoryErrors
        | FindingKind::NvLinkDown
        | FindingKind::DriverError
        | FindingKind::NoMigInstance
        | FindingKind::ComputeProhibited
        | FindingKind::BusyWithoutProcess
        | FindingKind::Throttled
        | FindingKind::SlowPcie
        | FindingKind::PendingReset
        | FindingKind::BlockedReset => "",
    }
}

/// Returns the words for a finding in a list of several, with its memory: `ghost 15.4 GiB`.
pub fn finding(finding: &Finding) -> String {
    match (finding.kind, finding.memory) {
        (FindingKind::NotPermitted, Some(bytes)) => {
            format!("{} that you may not inspect", memory(bytes))
        }
        (kind, Some(bytes)) => format!("{} {}", self::kind(kind), memory(bytes)),
        (kind, None) => self::kind(kind).to_owned(),
    }
}

/// Returns how a device addresses memory that the host allocated, in nvidia-smi's words.
pub fn addressing_mode(mode: AddressingMode) -> &'static str {
    match mode {
        AddressingMode::None => "None",
        AddressingMode::Hmm => "HMM",
        AddressingMode::Ats => "ATS",
    }
}

/// Returns the registration state of a device with its NVLink fabric, in nvidia-smi's words.
pub fn fabric_state(state: FabricState) -> &'static str {
    match state {
        FabricState::None => "N/A",
        FabricState::NotStarted => "Not Started",
        FabricState::InProgress => "In Progress",
        FabricState::Completed => "Completed",
    }
}

/// Returns a GPU operation mode, in nvidia-smi's words.
pub fn operation_mode(mode: OperationMode) -> &'static str {
    match mode {
        OperationMode::AllOn => "All On",
        OperationMode::Compute => "Compute",
        OperationMode::LowDoublePrecision => "Low Double Precision",
    }
}

/// Returns the word for the role of a holder.
pub fn role(role: Role) -> &'static str {
    match role {
        Role::MemoryUser => "uses memory",
        Role::Monitor => "monitor",
        Role::Display => "display",
        Role::Daemon => "daemon",
    }
}

/// Returns the word for a confidence.
pub fn confidence(confidence: Confidence) -> &'static str {
    match confidence {
        Confidence::Possible => "possible",
        Confidence::Likely => "likely",
        Confidence::High => "high",
    }
}

/// The command that shows the holders of the device files on a machine without gpuws.
pub(crate) const FUSER: &str = "sudo fuser -v /dev/nvidia*";

/// The command that shows the driver's messages in the kernel log.
pub const KERNEL_LOG: &str = "sudo dmesg | grep -i -e NVRM -e Xid";

/// Returns the next command to type, and its effect. `sim` is the option that selects a simulated
/// machine.
pub fn advice(advice: &Advice, sim: &str) -> (String, &'static str) {
    match advice {
        Advice::ReapDevice(index) => {
            (format!("gpuws {sim}reap --gpu {index}"), "shows the plan; add --yes to execute")
        }
        Advice::ReapProcess(pid) => {
            (format!("gpuws {sim}reap --pid {pid}"), "check what it is first; add --yes to end it")
        }
        Advice::LookAsRoot => {
            (format!("sudo gpuws {sim}doctor"), "can inspect the files of every process")
        }
        Advice::PasteHolders => (
            format!("{FUSER} 2>&1"),
            "on the host, outside any container: shows the device holders; paste its output too",
        ),
        Advice::LookOnHost => ("gpuws doctor".to_owned(), "on the host, outside this container"),
        Advice::LookLonger => (format!("gpuws {sim}doctor --samples 3"), "shows whether it lasts"),
        Advice::WatchIdle => (
            format!("gpuws {sim}doctor --samples 11 --every 60"),
            "watches for 10 minutes to see whether it persists",
        ),
        Advice::LimitVisibleDevices(indexes) => {
            let list = indexes.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
            (
                format!("export CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES={list}"),
                "before starting the job, so that it uses only these GPUs",
            )
        }
        Advice::LetMemoryGrow => (
            "TF_FORCE_GPU_ALLOW_GROWTH=true".to_owned(),
            "for TensorFlow: allocates memory on demand",
        ),
        Advice::UseDevices(count) => (
            format!("torchrun --nproc-per-node {count} …"),
            "or tf.distribute.MirroredStrategy: if the job is to use all of these GPUs",
        ),
        Advice::FeedDevices => (
            "DataLoader(…, num_workers=8, pin_memory=True, prefetch_factor=4)".to_owned(),
            "or dataset.map(…, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE): \
             prepares data while the GPU computes; a larger batch also needs fewer kernels",
        ),
        Advice::ResetDevice(index) => (
            format!("gpuws {sim}reset {index}"),
            "shows what blocks a reset and what it costs; add --yes to reset",
        ),
        Advice::AllowMoreTime => (
            format!("gpuws {sim}--deadline 120 doctor"),
            "for a slow driver; sudo nvidia-smi -pm 1 keeps it initialised",
        ),
        Advice::LoadDriver => (
            "sudo modprobe nvidia".to_owned(),
            "the driver was unloaded during the query; after an upgrade, reboot",
        ),
        Advice::ReadKernelLog => (
            KERNEL_LOG.to_owned(),
            "shows the reason; if a reboot does not help, the card is faulty",
        ),
        Advice::ReadProgramError => {
            (KERNEL_LOG.to_owned(), "names the process; check its program for the error first")
        }
        Advice::ReadDrmLog => (
            "sudo dmesg | grep -w -e amdgpu -e i915 -e xe".to_owned(),
            "shows the reason, and the process if it names one",
        ),
        Advice::WaitOrReboot => (
            "sudo dmesg | tail -40".to_owned(),
            "shows what it waits for; if that never ends, reboot",
        ),
        Advice::Reboot => (
            "sudo reboot".to_owned(),
            "once the work on this machine has ended: the driver requests it",
        ),
        Advice::EndPeerWork(index) => (
            format!("gpuws {sim}status -i {index}"),
            "end the processes that use it together with other GPUs; reset it if the driver still \
             requests it",
        ),
        Advice::ReadRecoveryAction(index) => {
            (format!("nvidia-smi -q -i {index}"), "names the recovery action; follow it")
        }
        Advice::StopService(pid) => (
            format!("systemctl status {pid}"),
            "shows its service; stop that (gpuws never signals it)",
        ),
        Advice::StopUnit { unit, user } => {
            let option = user.as_ref().map_or(String::new(), |user| {
                format!("--user -M {} ", shell_word(&format!("{user}@")))
            });
            (format!("sudo systemctl {option}stop -- {}", shell_word(unit)), "stops the service")
        }
        Advice::AskOwner(index) => {
            (format!("gpuws {sim}status -i {index}"), "it is computing: ask its owner to stop it")
        }
        Advice::CancelJob(id) => {
            (format!("scancel -- {}", shell_word(id)), "cancels the Slurm job")
        }
        Advice::StopContainer { podman, id } => {
            let runtime = if *podman { "podman" } else { "docker" };
            let id = id.get(..12).unwrap_or(id);
            (format!("sudo {runtime} stop -- {}", shell_word(id)), "stops the container")
        }
        Advice::DeletePod(uid) => (
            format!(
                "kubectl get pods -A -o custom-columns=\
                    NS:metadata.namespace,NAME:metadata.name,UID:metadata.uid | grep {}",
                shell_word(uid)
            ),
            "shows the name of the pod; delete it by name",
        ),
        Advice::DeleteNamedPod { namespace, name } => (
            format!("kubectl delete pod -n {} -- {}", shell_word(namespace), shell_word(name)),
            "deletes the pod",
        ),
        Advice::AllowCompute(index) => {
            (format!("sudo nvidia-smi -i {index} -c DEFAULT"), "allows CUDA programs on it again")
        }
        Advice::CreateMigInstance(index) => (
            format!("sudo nvidia-smi mig -i {index} -lgip"),
            "lists the profiles; mig -cgi ID -C creates one, nvidia-smi -mig 0 disables MIG",
        ),
        Advice::ReplaceDevice(index) => (
            format!("nvidia-smi -q -i {index} -d ECC,ROW_REMAPPER"),
            "for the vendor: the card may have to be replaced",
        ),
        Advice::CheckCooling(index) => (
            format!("nvidia-smi -q -i {index} -d TEMPERATURE,PERFORMANCE"),
            "check the fans and the airflow",
        ),
        Advice::CheckPower(index) => (
            format!("nvidia-smi -q -i {index} -d POWER,PERFORMANCE"),
            "check the power supply and its cables",
        ),
        Advice::CheckSlot(index) => (
            format!("nvidia-smi -q -i {index} | grep -A 12 'GPU Link Info'"),
            "check the seat of the card, the riser and the slot",
        ),
        Advice::CheckPciLink(bus) => (
            format!("sudo lspci -vv -s {bus} | grep -e LnkCap -e LnkSta"),
            "check the seat of the card, the riser and the slot",
        ),
        Advice::ReadSensors => (
            "sensors".to_owned(),
            "of lm-sensors; check the fans, the airflow and the power cables",
        ),
        Advice::CheckNvLinks(index) => (
            format!("nvidia-smi nvlink -s -i {index}"),
            "shows its links; check the bridge or the baseboard",
        ),
        Advice::CheckFabricManager => (
            "systemctl status nvidia-fabricmanager".to_owned(),
            "must be running, in the driver's version",
        ),
        Advice::ResetFabric => (
            "sudo nvidia-smi -r".to_owned(),
            "resets all GPUs and NVSwitches together, once no process uses them; otherwise \
             reboot; if it returns, have the switch and its links examined",
        ),
        Advice::ReadLinkErrors => (
            "nvidia-smi nvlink -e".to_owned(),
            "counts the errors of each link: watch whether they grow",
        ),
        Advice::RestartImex => (
            "sudo systemctl restart nvidia-imex".to_owned(),
            "on each machine of the domain, once no job uses memory of the others",
        ),
        Advice::EnablePersistence => {
            ("sudo nvidia-smi -pm 1".to_owned(), "keeps the driver initialised")
        }
        Advice::EndParent(pid) => {
            (format!("ps -o pid,user,args -p {pid}"), "its parent, which must reap it or exit")
        }
    }
}

/// Reports a device that is busy although the driver lists no process on it; `None` if it is not
/// busy.
pub fn busy_alone(device: &DeviceState) -> Option<String> {
    let share = gpu_reaper::busy_alone(device)?;
    Some(format!("{share} busy, but no process uses it"))
}

/// Returns the product name of these devices, if it is the same.
pub fn product_of(snapshot: &Snapshot, ids: &[DeviceId]) -> Option<String> {
    let states = ids.iter().filter_map(|id| snapshot.device(id));
    let mut names: Vec<&str> = states.filter_map(|state| state.info.name.as_deref().ok()).collect();
    names.dedup();
    match names[..] {
        [name] => Some(product(name).to_string()),
        _ => None,
    }
}

/// Formats `GPU 0 Tesla P100-PCIE-16GB` or `GPUs 1–7 GeForce GTX 1080 Ti`.
pub fn devices(snapshot: &Snapshot, ids: &[DeviceId]) -> String {
    if ids.is_empty() {
        return "a GPU that is not listed".to_owned();
    }
    let name = product_of(snapshot, ids);
    // A failure text names a device by its address; its index is that of the text's order.
    if let (gpu_core::Origin::Pasted, None, [DeviceId { bus: Ok(bus), .. }]) =
        (&snapshot.origin, &name, ids)
    {
        return format!("GPU {bus}");
    }
    let name = name.map_or(String::new(), |name| format!(" {name}"));
    let indexes: Vec<u32> = ids.iter().map(|id| id.index).collect();
    format!("{}{name}", numbered(&indexes))
}

/// Returns a line for each reason that the users of devices are unknown, such as `GPUs 0, 1: users
/// of them unknown: failed to …`.
pub fn unknown_users<'a>(
    devices: impl Iterator<Item = &'a DeviceState>,
) -> impl Iterator<Item = String> {
    let faults = devices.filter_map(|device| {
        let fault = device.processes.as_ref().err()?;
        (fault.kind != ErrorKind::Field(Absent::Asleep)).then_some((device.id().index, fault))
    });
    by_reason(faults, |one, other| one.kind == other.kind).into_iter().map(|(fault, indexes)| {
        let it = if indexes.len() == 1 { "it" } else { "them" };
        format!("{}: users of {it} unknown: failed to {fault}", numbered(&indexes))
    })
}

/// Groups devices by the reason for their failure, in the order of the first device of each group.
pub(crate) fn by_reason<'a>(
    faults: impl Iterator<Item = (u32, &'a Fault)>,
    is_same: impl Fn(&Fault, &Fault) -> bool,
) -> Vec<(&'a Fault, Vec<u32>)> {
    let mut reasons: Vec<(&Fault, Vec<u32>)> = Vec::new();
    for (index, fault) in faults {
        match reasons.iter_mut().find(|(known, _)| is_same(known, fault)) {
            Some((_, indexes)) => indexes.push(index),
            None => reasons.push((fault, vec![index])),
        }
    }
    reasons
}

/// Returns devices by their indexes, which are sorted: `GPU 2` or `GPUs 0–3, 5`.
pub(crate) fn numbered(indexes: &[u32]) -> String {
    let word = if indexes.len() == 1 { "GPU" } else { "GPUs" };
    format!("{word} {}", ranges(indexes))
}

/// Formats sorted numbers: `0`, `1–7`, `0, 2, 4–6`.
pub fn ranges(sorted: &[u32]) -> String {
    let mut parts: Vec<(u32, u32)> = Vec::new();
    for &number in sorted {
        match parts.last_mut() {
            Some((_, last)) if number == last.saturating_add(1) => *last = number,
            _ => parts.push((number, number)),
        }
    }
    let word = |(first, last): &(u32, u32)| match last - first {
        0 => first.to_string(),
        1 => format!("{first}, {last}"),
        _ => format!("{first}–{last}"),
    };
    parts.iter().map(word).collect::<Vec<_>>().join(", ")
}

/// Formats the device indexes that can be named: `choose from GPUs 0–3`.
pub fn choose_from(known: &[u32]) -> String {
    match known {
        [] => "no GPU responds".to_owned(),
        [one] => format!("the only GPU is {one}"),
        known => format!("choose from GPUs {}", ranges(known)),
    }
}

/// Returns a product name without the vendor's name.
pub fn product(name: &str) -> &str {
    name.strip_prefix("NVIDIA ").unwrap_or(name)
}

/// Returns the user of a process: its name, or else its UID, or else `?`.
pub fn user(process: Reading<&ProcessInfo>) -> Cow<'_, str> {
    match process.map(|info| (&info.user, info.uid)) {
        Ok((Ok(name), _)) => Cow::Borrowed(name),
        Ok((Err(_), Ok(uid))) => Cow::Owned(uid.to_string()),
        _ => Cow::Borrowed("?"),
    }
}

/// Returns the command line of a process, or else its name, or else the name that NVML lists, or
/// else `?`.
pub fn command<'a>(process: Reading<&'a ProcessInfo>, listed: Option<&'a str>) -> Cow<'a, str> {
    let words = process.ok().and_then(|info| info.command_line.as_deref().ok());
    if let Some(line) = words.map(|words| words.join(" ")).filter(|line| !line.trim().is_empty()) {
        return Cow::Owned(line);
    }
    let name = process.ok().map(|info| info.name.as_str()).filter(|name| !name.is_empty());
    Cow::Borrowed(name.or(listed).unwrap_or("?"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_core::{Absent, DeviceInfo, Error, ErrorKind, Groups};

    #[test]
    fn consecutive_indexes_become_ranges() {
        for (indexes, shown) in [
            (&[][..], ""),
            (&[0], "0"),
            (&[0, 1], "0, 1"),
            (&[1, 2, 3, 4, 5, 6, 7], "1–7"),
            (&[0, 2, 4, 5, 6, 9], "0, 2, 4–6, 9"),
        ] {
            assert_eq!(ranges(indexes), shown);
        }
    }

    #[test]
    fn unknown_device_users_are_reported_with_reason() {
        let device = |index, kind: Option<ErrorKind>| {
            let fault = Error::new(kind.unwrap_or(ErrorKind::Io), format!("query GPU {index}"));
            let info = DeviceInfo::unknown(DeviceId::from_index(index));
            let state = DeviceState::unanswered(info, Groups::NONE, &fault.fault());
            let processes = kind.map_or_else(|| Ok(Vec::new()), |_| Err(fault.fault()));
            DeviceState { processes, ..state }
        };
        let (denied, again) = (Some(Absent::NotPermitted.into()), Some(ErrorKind::Again));
        let devices = [device(0, None), device(1, denied), device(2, again), device(3, denied)];
        let lines: Vec<String> = unknown_users(devices.iter()).collect();
        assert_eq!(
            lines,
            [
                "GPUs 1, 3: users of them unknown: failed to query GPU 1",
                "GPU 2: users of it unknown: failed to query GPU 2",
            ]
        );
    }
}
