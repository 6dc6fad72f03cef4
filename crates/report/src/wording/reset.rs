//! Text about the processes that block a reset.

use super::{count, ranges, shell_word, user};
use gpu_core::{DeviceFault, ErrorKind, Fault, RecoveryAction};
use gpu_reaper::reset::{Blocker, Check, Linked, Unknown, Way};
use gpu_reaper::{Defect, Role};
use std::collections::BTreeSet;

/// Returns the command that removes a blocker, and its effect. `sim` is the option that selects a
/// simulated machine.
pub fn way(way: &Way, sim: &str) -> (String, &'static str) {
    match way {
        Way::Diagnose(gpu) => (
            format!("gpuws {sim}doctor --gpu {gpu}"),
            "NVML lists it but no such process is visible; for details",
        ),
        Way::ReadKernelLog => (
            "sudo dmesg | tail -40".to_owned(),
            "shows what it waits for: state D (uninterruptible sleep); even SIGKILL takes \
                effect only when the wait ends",
        ),
        Way::Reap(gpu, pid) => (
            format!("gpuws {sim}reap --gpu {gpu} --pid {pid}"),
            "shows the plan; add --yes to end it and verify that its memory was freed",
        ),
        Way::EndWhole(advice) => super::advice(advice, sim),
        Way::AskOwner(gpu) => (
            format!("gpuws {sim}status -i {gpu}"),
            "shows its work: it may be computing, so ask its owner to stop it",
        ),
        Way::QuitMps(Some(uid)) => (
            format!("echo quit | sudo -u '#{uid}' nvidia-cuda-mps-control"),
            "stops that user's MPS server, if it is one",
        ),
        Way::QuitMps(None) => {
            ("echo quit | sudo nvidia-cuda-mps-control".to_owned(), "stops the MPS server")
        }
        Way::EndGraphicalSession => (
            "sudo systemctl isolate multi-user.target".to_owned(),
            "ends the graphical session; all users should log out first",
        ),
        Way::StopService(unit) => (
            format!("sudo systemctl stop {}", shell_word(unit)),
            "stops its service; start it again after the reset",
        ),
        Way::EndMonitor(pid) => {
            (format!("kill {pid}"), "a monitor; it does not compute, so no work is lost")
        }
        Way::FindService(pid) => {
            (format!("systemctl status {pid}"), "shows its service; stop that")
        }
    }
}

/// Returns the notes before a reset: which work must end, and that it may not suffice.
pub fn notes(check: &Check<'_>) -> impl Iterator<Item = String> {
    let reboot = Defect::Recovery(RecoveryAction::Reboot);
    let asks = gpu_reaper::defects(check.device).contains(&reboot);
    let reboot = "the driver requests a reboot of the machine: a reset may not be enough";
    let of_kernel = "the kernel resets the PCI device, which not every driver notices: if the GPU \
                     does not work afterwards, load its driver again, or reboot";
    let notes = [(asks, reboot), (check.device.lists_clients(), of_kernel)];
    let notes = notes.into_iter().filter(|(holds, _)| *holds).map(|(_, note)| note.to_owned());
    cost(check).into_iter().chain(notes)
}

/// Returns which work must end before the reset; `None` if there is none.
fn cost(check: &Check<'_>) -> Option<String> {
    let works = |blocker: &&Blocker| blocker.role == Role::MemoryUser;
    let workers: Vec<&Blocker> = check.blockers.users.iter().filter(works).collect();
    let owner = |worker: &&Blocker| match user(check.now.process(worker.pid)) {
        unknown if unknown == "?" => "an unknown user".into(),
        name => name,
    };
    let owners: BTreeSet<_> = workers.iter().map(owner).collect();
    let computing = workers.iter().filter(|worker| worker.utilization.is_ok_and(|u| u.get() > 0));
    let computing = match computing.count() {
        0 => String::new(),
        1 if workers.len() == 1 => ", computing now".to_owned(),
        1 => ", one of them computing now".to_owned(),
        count => format!(", {count} of them computing now"),
    };
    let owners: Vec<_> = owners.into_iter().collect();
    let processes = count(workers.len(), "process", "processes");
    (!workers.is_empty()).then(|| {
        format!("a reset costs the work of {processes} of {}{computing}", owners.join(", "))
    })
}

/// Returns how a blocker uses the devices.
pub fn usage(blocker: &Blocker) -> String {
    let devices = gpus(&blocker.devices);
    let files = blocker.files.iter().map(|held| held.path.rsplit('/').next().unwrap_or_default());
    let files = files.collect::<Vec<_>>().join(" ");
    match (files.is_empty(), blocker.role, blocker.utilization) {
        (true, ..) => format!("listed by NVML on {devices}"),
        (false, Role::MemoryUser, Ok(percent)) if percent.get() > 0 => {
            format!("computes at {percent} on {devices}: has {files}")
        }
        (false, Role::MemoryUser, _) => format!("uses {devices}: has {files}"),
        (false, role, _) => format!("{}: has {files} open", super::role(role)),
    }
}

/// Returns which devices are reset with these.
pub fn together(devices: &str, linked: &Linked) -> String {
    let peers = gpus(&linked.peers);
    if linked.xgmi {
        return format!(
            "{devices} is connected by XGMI to {peers}; AMD does not document whether a reset of one \
             ends the work on the others, so gpuws assumes that it does."
        );
    }
    format!("{devices} is connected by NVLink to {peers}; they are reset together.")
}

/// Names devices by their indexes.
pub fn gpus(indexes: &[u32]) -> String {
    let word = if indexes.len() == 1 { "GPU" } else { "GPUs" };
    format!("{word} {}", ranges(indexes))
}

/// Returns why the users of a device are unknown.
pub fn why(unknown: Unknown) -> String {
    match unknown {
        Unknown::DeviceFile => "the GPU's device file is unknown".to_owned(),
        Unknown::NoFile => "the GPU's device file does not exist".to_owned(),
        Unknown::Links => {
            "cannot determine which GPUs share NVLink and would be reset together".to_owned()
        }
        Unknown::Holders => {
            "cannot determine which processes have the device files open".to_owned()
        }
        Unknown::Unread(1) => "1 process could not be inspected".to_owned(),
        Unknown::Unread(count) => format!("{count} processes could not be inspected"),
        Unknown::OtherNamespaces => "processes outside this container are not visible".to_owned(),
    }
}

/// Returns the command that makes the users of a device known; root needs no further privileges.
pub fn remedy(unknown: Unknown, is_root: bool) -> &'static str {
    match unknown {
        Unknown::DeviceFile | Unknown::NoFile | Unknown::Holders if is_root => "gpuws doctor",
        Unknown::DeviceFile | Unknown::NoFile | Unknown::Holders => "sudo gpuws doctor",
        Unknown::Links => "nvidia-smi topo -m",
        Unknown::Unread(_) if is_root => "run the same command on the host, outside any container",
        Unknown::Unread(_) => "run the same command with sudo",
        Unknown::OtherNamespaces => "run the same command on the host",
    }
}

/// Returns the result of a reset: its devices, and the error if it failed.
pub fn answer(devices: &str, answer: &Result<(), Fault>) -> String {
    match answer {
        Ok(()) => format!("{devices} was reset"),
        Err(fault) => match fault.kind {
            ErrorKind::Device(DeviceFault::Lost) => {
                format!("{devices} was not reset: it is lost (fallen off the bus); reboot")
            }
            // The message of the driver may have several lines.
            _ => {
                let text: Vec<&str> = fault.text.split_whitespace().collect();
                format!("{devices} was not reset: {}", text.join(" "))
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_name_is_quoted_for_shell() {
        let (command, _) = way(&Way::StopService("my dcgm.service".into()), "");
        assert_eq!(command, "sudo systemctl stop 'my dcgm.service'");
        let (command, _) = way(&Way::Diagnose(2), "--sim a ");
        assert_eq!(command, "gpuws --sim a doctor --gpu 2");
    }
}
