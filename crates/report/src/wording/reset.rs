//! Text about the processes that block a reset.

use super::shell_word;
use gpu_reaper::reset::{Unknown, Way};

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
            "shows what it waits for: state D (uninterruptible sleep); not even SIGKILL ends it \
                before the wait does",
        ),
        Way::Reap(gpu, pid) => (
            format!("gpuws {sim}reap --gpu {gpu} --pid {pid} --yes"),
            "ends it and verifies that its memory was freed",
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

/// Returns why the users of a device are unknown.
pub fn why(unknown: Unknown) -> String {
    match unknown {
        Unknown::DeviceFile => "the GPU's device file is unknown".to_owned(),
        Unknown::NoFile => "the GPU's device file does not exist".to_owned(),
        Unknown::Links => {
            "cannot tell which GPUs share NVLink and would be reset together".to_owned()
        }
        Unknown::Holders => "cannot read who has the device files open".to_owned(),
        Unknown::Unread(1) => "1 process could not be inspected".to_owned(),
        Unknown::Unread(count) => format!("{count} processes could not be inspected"),
        Unknown::OtherNamespaces => "processes outside this container are not visible".to_owned(),
    }
}

/// Returns the command that makes the users of a device known.
pub fn remedy(unknown: Unknown) -> &'static str {
    match unknown {
        Unknown::DeviceFile | Unknown::NoFile | Unknown::Holders => "sudo gpuws doctor",
        Unknown::Links => "nvidia-smi topo -m",
        Unknown::Unread(_) => "run the same command with sudo",
        Unknown::OtherNamespaces => "run the same command on the host",
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
