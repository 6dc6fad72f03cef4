//! The current state of the devices.

use crate::machine::{Device, Holding, HostShare, Machine};
use crate::process_table::Living;
use crate::state::State;
use gpu_core::{
    Absent, Accounting, Bytes, DeviceDetails, DeviceId, DeviceInfo, DeviceSample, Error, ErrorKind,
    Fault, HostMemory, MachineFault, MemoryInfo, MemoryKind, MemorySource, Partition, Percent, Pid,
    Result,
};

impl State {
    pub(crate) fn device(&self, index: u32) -> Option<&Device> {
        self.machine.devices.iter().find(|device| device.info.id.index == index)
    }

    pub(crate) fn device_mut(&mut self, index: u32) -> Option<&mut Device> {
        self.machine.devices.iter_mut().find(|device| device.info.id.index == index)
    }

    /// Returns the device that a caller identifies.
    ///
    /// # Errors
    /// `Machine` if no driver responds; `Invalid` for a device that this machine does not have.
    pub(crate) fn named_device(&self, id: &DeviceId) -> Result<&Device> {
        self.driver()?;
        let devices = &self.machine.devices;
        devices.iter().find(|device| device.info.id.same_device(id)).ok_or_else(|| {
            let what = format!("find {id}: this machine has no such device");
            Error::new(ErrorKind::Invalid, what)
        })
    }

    /// Returns the driver.
    ///
    /// # Errors
    /// The machine's own error if no driver responds.
    pub(crate) fn driver(&self) -> Result<gpu_core::Driver> {
        self.machine.driver.clone().map_err(|fault| failure(&fault))
    }

    /// Returns the devices listed by the kernel module; empty if no module is loaded.
    pub(crate) fn module_devices(&self) -> Vec<DeviceInfo> {
        use MachineFault::{DriverNotLoaded, NoLibrary};
        let kind = self.machine.driver.as_ref().err().map(|fault| fault.kind);
        if matches!(kind, Some(ErrorKind::Machine(NoLibrary | DriverNotLoaded))) {
            return Vec::new();
        }
        let named = |device: &Device| DeviceInfo {
            name: device.info.name.clone(),
            ..DeviceInfo::unknown(device.info.id.clone())
        };
        self.machine.devices.iter().map(named).collect()
    }

    /// Returns all memory allocations on a device, each with its process.
    pub(crate) fn holdings_on(&self, index: u32) -> impl Iterator<Item = (&Living, &Holding)> {
        self.living.on_device(index).flat_map(move |(_, living)| {
            let holdings = living.process.holdings.iter();
            holdings.filter(move |h| h.device == index).map(move |holding| (living, holding))
        })
    }

    /// Returns the used memory: that of the driver, leaks and processes, plus memory not yet
    /// returned.
    pub(crate) fn memory_used(&self, device: &Device) -> Bytes {
        self.machine.host_use(device) + self.own_use(device)
    }

    /// Returns the memory that the driver and processes use, without that of the host.
    fn own_use(&self, device: &Device) -> Bytes {
        let index = device.info.id.index;
        let held: Bytes = self.holdings_on(index).map(|(_, holding)| holding.memory).sum();
        let returning = self.returning.iter().filter(|returning| returning.device == index);
        let returning: Bytes = returning.map(|returning| returning.memory).sum();
        device.reserve + device.leaked + held + returning
    }

    /// Returns the memory of the host, or of one of its NUMA nodes.
    pub(crate) fn host_memory(&self, node: Option<u32>) -> Result<HostMemory> {
        let share = self.machine.host_memory.get(&node);
        let HostShare { total, cache, other } = *share
            .ok_or_else(|| Error::new(Absent::NotSupported, "read the memory of the host"))?;
        let here = self.machine.devices.iter().filter(|d| d.kind.host_node() == Some(node));
        let used: Bytes = here.map(|device| self.own_use(device)).sum();
        let free = total.saturating_sub(cache + other + used);
        let host_use = node.map(|_| cache + other).ok_or(Absent::NotSupported);
        Ok(HostMemory { total, free, available: (free + cache).min(total), host_use })
    }

    /// Returns the free memory of a device; 0 if it is unknown.
    pub(crate) fn memory_free(&self, index: u32) -> Bytes {
        if let Some(card) = self.machine.cards.get(index) {
            return self.card_free(card);
        }
        let Some(device) = self.device(index) else { return Bytes(0) };
        let taken = self.memory_used(device) + device.reserved.unwrap_or_default();
        device.total.unwrap_or_default().saturating_sub(taken)
    }

    /// Returns the memory of a device used by the process with this host PID.
    pub(crate) fn held_by(&self, pid: Pid, index: u32) -> Bytes {
        let living = self.find_on_host(pid).and_then(|serial| self.living.get(serial));
        let holdings = living.into_iter().flat_map(|living| &living.process.holdings);
        holdings.filter(|holding| holding.device == index).map(|holding| holding.memory).sum()
    }

    /// Returns the used memory that the driver reports: of a part that is set aside, none of what
    /// programs get from the host.
    fn reported_use(&self, device: &Device) -> Bytes {
        match device.kind {
            MemoryKind::CarveOut => device.reserve,
            _ => self.memory_used(device),
        }
    }

    pub(crate) fn memory_info(&self, device: &Device) -> MemoryInfo {
        MemoryInfo {
            total: device.total,
            used: device.used_untold.map_or_else(|| Ok(self.reported_use(device)), Err),
            reserved: device.reserved,
        }
    }

    pub(crate) fn sample(&self, device: &Device) -> DeviceSample {
        let drift = self.drift(device);
        let percent = || Percent::new(drift.utilization()).ok_or(Absent::Implausible);
        let mut sample = DeviceSample {
            memory: self.memory_info(device),
            source: MemorySource::of(device.kind),
            utilization: device.idle_load.and_then(|_| percent()),
            temperature: device.temperature,
            power_draw: device.power_draw,
            power_limit: device.power_limit,
        };
        drift.sample(&mut sample);
        sample
    }

    /// Returns all values of a device beyond a sample.
    pub(crate) fn details(&self, device: &Device) -> DeviceDetails {
        let mut details = device.details.clone();
        if self.load(device) > 0 {
            details.overlay(&device.busy);
        }
        // NVML reports both utilisation values in one call, or neither.
        if let (Some(activity), Ok(_)) = (&mut details.activity, device.idle_load) {
            let half = Percent::new(self.load(device).min(100) / 2).ok_or(Absent::Implausible);
            activity.memory = activity.memory.or(half);
        }
        self.drift(device).details(&mut details, device);
        if let Some(Accounting { processes: Ok(kept), .. }) = &mut details.accounting {
            for process in kept {
                let lives = |pid| self.held_by(pid, device.info.id.index) > Bytes(0);
                process.running = process.pid.map(lives);
            }
        }
        details
    }

    /// Returns the utilisation that all kernels together request, in percent; it can exceed 100.
    pub(crate) fn load(&self, device: &Device) -> u64 {
        let idle = u64::from(device.idle_load.unwrap_or(0));
        self.holdings_on(device.info.id.index).fold(idle, |sum, (_, h)| sum + u64::from(h.load))
    }

    /// Returns the MIG instances of a device with their used memory.
    pub(crate) fn partitions(&self, device: &Device) -> Vec<Partition> {
        let index = device.info.id.index;
        let mut instances = device.mig.clone();
        for instance in &mut instances {
            let own = |gpu_instance| gpu_instance == instance.gpu_instance;
            let held = self.holdings_on(index).filter(|(_, h)| own(h.gpu_instance));
            let held: Bytes = held.map(|(_, holding)| holding.memory).sum();
            let returning = self.returning.iter().filter(|r| r.device == index);
            let returning: Bytes =
                returning.filter(|r| own(r.gpu_instance)).map(|r| r.memory).sum();
            instance.memory.used = instance.memory.used.map(|own| own + held + returning);
        }
        instances
    }

    /// Returns the identity of a device; an unresponsive device has only its address.
    pub(crate) fn device_info(&self, device: &Device) -> DeviceInfo {
        let Some(fault) = &device.fault else { return device.info.clone() };
        let reason = fault.kind.absent();
        let mut id = device.info.id.clone();
        id.uuid = Err(reason);
        DeviceInfo {
            id,
            name: Err(reason),
            persistence: Err(reason),
            display_active: Err(reason),
            partitioned: Err(reason),
            pid_namespace: gpu_core::PidNamespace::Initial,
            visibility: device.info.visibility,
        }
    }
}

impl Machine {
    /// Returns the memory of a device that the host uses and the driver reports as used.
    pub(crate) fn host_use(&self, device: &Device) -> Bytes {
        let node = device.kind.host_node().filter(Option::is_some);
        let share = node.and_then(|node| self.host_memory.get(&node));
        share.map_or(Bytes(0), |share| share.cache + share.other)
    }
}

/// Returns a recorded failure unchanged.
pub(crate) fn failure(fault: &Fault) -> Error {
    Error::new(fault.kind, fault.text.clone())
}
