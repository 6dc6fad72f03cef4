//! The current state of a machine.

use super::account::Account;
use super::evidence::OomFigures;
use gpu_core::{Bytes, Pid, amount};

/// The current state of a machine.
#[derive(Clone, Debug, Default)]
pub struct Now {
    /// Its devices.
    pub devices: Vec<Device>,
    /// The processes that hold memory on them.
    pub residents: Vec<Resident>,
}

/// The current state of a device.
#[derive(Clone, Debug)]
pub struct Device {
    /// Its index.
    pub index: u32,
    /// Its total memory.
    pub total: Bytes,
    /// Its free memory.
    pub free: Bytes,
    /// Memory that no process accounts for, from a snapshot of the whole machine.
    pub ghost: Option<Bytes>,
}

/// A process that currently holds device memory.
#[derive(Clone, Debug)]
pub struct Resident {
    /// Its PID.
    pub pid: Pid,
    /// A description of the process.
    pub name: String,
    /// The name of its owner.
    pub owner: String,
    /// The device.
    pub device: u32,
    /// Its memory there.
    pub memory: Option<Bytes>,
}

impl Now {
    /// Describes those parts of the machine's state that are relevant to a message.
    pub(super) fn reported(&self, shown: &OomFigures, account: &Account) -> Vec<String> {
        let mut reported = Vec::new();
        for other in &shown.others {
            let is_here = |resident: &&Resident| resident.pid == other.pid;
            match self.residents.iter().find(is_here) {
                Some(Resident { name, owner, device, memory, .. }) => {
                    let holds = memory.map_or("memory".to_owned(), amount);
                    reported.push(format!(
                        "process {} is {name} of {owner} and holds {holds} on GPU {device}",
                        other.pid
                    ));
                }
                None => {
                    reported.push(format!("process {} holds no memory on these GPUs", other.pid))
                }
            }
        }
        for device in &self.devices {
            if let Some(ghost) = device.ghost {
                reported.push(format!(
                    "GPU {}: {} not attributed to any listed process",
                    device.index,
                    amount(ghost)
                ));
            }
        }
        if let (Some(need), false) = (account.needed, self.devices.is_empty()) {
            let fits = |device: &&Device| device.free >= need;
            let roomy: Vec<String> = self
                .devices
                .iter()
                .filter(fits)
                .map(|device| format!("GPU {} ({})", device.index, amount(device.free)))
                .take(8)
                .collect();
            reported.push(if roomy.is_empty() {
                format!("no GPU here has the required {} free", amount(need))
            } else {
                format!("GPUs with the required {} free: {}", amount(need), roomy.join(", "))
            });
        }
        reported
    }
}
