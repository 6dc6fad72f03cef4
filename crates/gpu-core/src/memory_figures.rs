//! The memory of a device in use, in total and free, by its [`MemoryKind`].

use crate::absent::{Absent, Reading};
use crate::device::{DeviceSample, MemoryInfo};
use crate::error::ErrorKind;
use crate::host::Host;
use crate::inventory::{Inventory, ask};
use crate::memory_source::{MemoryKind, MemorySource};
use crate::snapshot::DeviceState;
use crate::units::Bytes;

/// Returns the part of the host's memory that claims leave to the host: if GPU programs use up all
/// memory, the machine stops responding, without an out-of-memory kill.
fn kept_for_host(total: Bytes) -> Bytes {
    Bytes::from_mib(16 << 10).min(Bytes(total.0 / 4))
}

/// The first driver that evicts page cache from the memory of a device for CUDA programs.
const EVICTS_CACHE: u32 = 570;

impl DeviceState {
    /// Returns where its memory is; [`MemoryKind::Dedicated`] if that is unknown.
    pub fn memory_source(&self) -> MemorySource {
        self.sample.as_ref().map(|sample| sample.source).unwrap_or_default()
    }

    /// Returns the memory that its programs and its driver use, or why it is unknown. Memory of the
    /// host's programs is not included, so the amount may differ from the driver's figure.
    pub fn memory_used(&self) -> Reading<Bytes> {
        let sample = self.sample.as_ref().map_err(|fault| fault.kind.absent())?;
        sample.source.used(sample.memory.used)
    }

    /// Returns all memory that its programs can have, or why it is unknown.
    pub fn memory_total(&self) -> Reading<Bytes> {
        let sample = self.sample.as_ref().map_err(|fault| fault.kind.absent())?;
        match sample.source.kind {
            kind if kind.is_integrated() => Ok(sample.source.host?.total),
            _ => sample.memory.total,
        }
    }

    /// Returns the total that claims may reserve and the part of it that is in use, by anything.
    /// [`MemoryKind::Host`] counts what the kernel can make available, and leaves some to the host.
    pub fn memory_to_grant(&self) -> Reading<(Bytes, Bytes)> {
        let (total, MemorySource { kind, host }) = (self.memory_total()?, self.memory_source());
        match kind.host_node() {
            None => Ok((total, self.memory_used()?)),
            Some(Some(_)) => Ok((total, total.saturating_sub(host?.available))),
            Some(None) => {
                let kept = kept_for_host(total);
                Ok((total.saturating_sub(kept), total.saturating_sub(host?.available)))
            }
        }
    }

    /// Returns the memory that a new program can get, as far as the driver and the kernel report it.
    pub fn memory_free(&self) -> Reading<Bytes> {
        let (total, used) = self.memory_to_grant()?;
        Ok(total.saturating_sub(used))
    }

    /// Returns the memory in use to show for it, and whether more may be in use: the sum of the listed
    /// processes, which lacks managed memory, where nothing else is known.
    pub fn memory_shown(&self) -> Reading<(Bytes, bool)> {
        let used = self.memory_used();
        match self.memory_listed().filter(|_| self.memory_source().kind.is_shared_with_host()) {
            Some(listed) if used.is_err() => Ok((listed, true)),
            _ => Ok((used?, false)),
        }
    }

    /// Returns the used memory that neither the listed processes nor the driver account for; `None`
    /// if that cannot be measured: a figure is unknown, or the memory may belong to another driver.
    pub fn memory_unlisted(&self) -> Option<Bytes> {
        let rest = self.memory_used().ok()?.saturating_sub(self.memory_listed()?);
        if rest <= self.driver_reserve()? {
            return Some(Bytes(0));
        }
        let is_foreign =
            matches!(self.memory_source().kind, MemoryKind::VirtualGpu | MemoryKind::Wddm);
        (!is_foreign).then_some(rest)
    }
}

/// Reads the host memory that a device shares.
fn read_host_memory(source: &mut MemorySource, host: &dyn Host) {
    let Some(node) = source.kind.host_node() else { return };
    match ask(|| host.host_memory(node)) {
        // The driver reports the nearest node of the host.
        Err(fault) if fault.kind == ErrorKind::Invalid => *source = MemorySource::default(),
        answer => source.host = answer.map_err(|fault| fault.kind.absent()),
    }
}

/// Returns the memory of a device as [`DeviceState::memory_used`] counts it, for a sample without
/// the host memory.
pub fn own_memory(sample: &DeviceSample, host: &dyn Host) -> MemoryInfo {
    let mut source = sample.source;
    read_host_memory(&mut source, host);
    MemoryInfo { used: source.used(sample.memory.used), ..sample.memory }
}

/// Reads the host memory that the devices share.
pub(crate) fn add_host_memory(inventory: &mut Inventory, host: &dyn Host) {
    let version = inventory.driver.as_ref().ok().and_then(|driver| driver.version.as_ref().ok());
    let major = version.and_then(|version| version.split('.').next()?.parse::<u32>().ok());
    let evicts = major.is_some_and(|major| major >= EVICTS_CACHE);
    for device in &mut inventory.devices {
        let Ok(sample) = &mut device.sample else { continue };
        // Each MIG device has a node of its own.
        if device.info.partitioned == Ok(true) {
            sample.source.host = Err(Absent::NotSupported);
        } else {
            read_host_memory(&mut sample.source, host);
            let MemorySource { kind, host } = &mut sample.source;
            if let (MemoryKind::NumaNode(_), Ok(memory), false) = (*kind, host, evicts) {
                memory.available = memory.free;
            }
        }
    }
}
