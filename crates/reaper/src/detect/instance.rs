//! The MIG instance with the unexplained memory.

use crate::condition::Unexplained;
use gpu_core::{Bytes, DeviceState, Partition, driver_reserve};

/// The memory of a GPU instance, which all compute instances in it share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InstanceAccount {
    /// The ID of the GPU instance.
    pub(crate) gpu_instance: u32,
    used: Bytes,
    total: Bytes,
    listed: Bytes,
}

impl InstanceAccount {
    /// Returns the unexplained memory, zero if the driver's overhead explains it.
    pub(crate) fn unexplained(&self) -> Bytes {
        let bytes = self.used.saturating_sub(self.listed);
        if bytes > driver_reserve(self.total, false) { bytes } else { Bytes(0) }
    }

    /// Returns the accounts of the GPU instances of a device; none if the memory of one of them is
    /// unknown, or the instance or the memory of a listed process.
    pub(crate) fn all(device: &DeviceState) -> Vec<InstanceAccount> {
        Self::reported(device).unwrap_or_default()
    }

    fn reported(device: &DeviceState) -> Option<Vec<InstanceAccount>> {
        // The instances of a NUMA node are nodes of their own.
        if !device.memory_source().kind.shows_leaks() {
            return None;
        }
        let mut accounts: Vec<InstanceAccount> = Vec::new();
        for instance in device.partitions.as_ref().ok()? {
            let gpu_instance = instance.gpu_instance?;
            let (used, total) = (instance.memory.used.ok()?, instance.memory.total.ok()?);
            if !accounts.iter().any(|known| known.gpu_instance == gpu_instance) {
                accounts.push(InstanceAccount { gpu_instance, used, total, listed: Bytes(0) });
            }
        }
        for process in device.processes.as_ref().ok()? {
            let instance = process.gpu_instance?;
            let account = accounts.iter_mut().find(|known| known.gpu_instance == instance)?;
            account.listed += process.memory.ok()?;
        }
        Some(accounts)
    }

    /// Returns the one instance that has all unexplained memory of a device, except the part that
    /// the driver's overhead explains.
    pub(crate) fn with_all(accounts: &[InstanceAccount], whole: &Unexplained) -> Option<Self> {
        let mut with_some = accounts.iter().filter(|account| account.unexplained() > Bytes(0));
        let only = with_some.next().filter(|_| with_some.next().is_none())?;
        let rest = whole.bytes.saturating_sub(only.unexplained());
        (rest <= whole.reserve).then_some(*only)
    }

    /// Formats `within MIG 1 (2g.10gb, GPU instance 5): 5,132 of 9,856 MiB used there, none by
    /// listed processes`.
    pub(crate) fn describe(&self, device: &DeviceState) -> String {
        let is_here = |mig: &&Partition| mig.gpu_instance == Some(self.gpu_instance);
        let here: Vec<&Partition> = device.partitions.iter().flatten().filter(is_here).collect();
        let location = match here[..] {
            [mig] => {
                let profile = mig.profile.as_ref().map(|profile| format!("{profile}, "));
                let profile = profile.unwrap_or_default();
                format!("MIG {} ({profile}GPU instance {})", mig.index, self.gpu_instance)
            }
            _ => format!("GPU instance {}", self.gpu_instance),
        };
        let used = self.used.to_string();
        let listed = match self.listed {
            Bytes(0) => "none".to_owned(),
            listed => listed.to_string(),
        };
        format!(
            "within {location}: {} of {} used there, {listed} by listed processes",
            used.trim_end_matches(" MiB"),
            self.total
        )
    }
}
