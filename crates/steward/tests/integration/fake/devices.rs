//! The devices of the fake machine, as the driver reports them.

use super::{State, World};
use gpu_core::visible::Visibility;
use gpu_core::*;
use gpu_nvidia_driver::{device_file, node};
use std::time::Duration;

#[derive(Clone, Debug)]
pub(crate) struct Device {
    pub(crate) name: &'static str,
    pub(crate) total: u64,
    /// Memory without a listed process, in MiB.
    pub(crate) unlisted: u64,
    /// PID and MiB.
    pub(crate) listed: Vec<(u32, u64)>,
    /// PIDs of listed processes that only draw.
    pub(crate) drawing: Vec<u32>,
    /// PIDs that have the device open and are not listed.
    pub(crate) open: Vec<u32>,
    /// The process whose memory is not reported, and why.
    pub(crate) hides_memory_of: Option<(u32, Absent)>,
    pub(crate) fault: Option<ErrorKind>,
    /// Where its memory is.
    pub(crate) kind: MemoryKind,
    pub(crate) capability: (u32, u32),
    /// Memory errors that were not corrected.
    pub(crate) uncorrected: u64,
    /// Utilization without a process that causes it.
    pub(crate) utilization: Option<u64>,
    pub(crate) uuid: Reading<DeviceUuid>,
    /// GPU instance, its memory in MiB, and the PIDs of its processes.
    pub(crate) mig: Vec<(u32, u64, Vec<u32>)>,
    pub(crate) partitioned: Reading<bool>,
    /// Its MIG devices have UUIDs.
    pub(crate) names_mig: bool,
    /// How they begin, before the GPU instance.
    pub(crate) mig_key: String,
    pub(crate) display: Reading<bool>,
    pub(crate) visibility: Visibility,
}

pub(crate) fn uuid(index: u32) -> DeviceUuid {
    DeviceUuid(format!("GPU-{index}"))
}

pub(crate) fn mig_uuid(gpu_instance: u32) -> DeviceUuid {
    DeviceUuid(format!("MIG-{gpu_instance}"))
}

impl State {
    /// Adds a listed process with this much memory on a device.
    pub(crate) fn uses(&mut self, pid: u32, device: usize, mib: u64) {
        self.devices[device].listed.retain(|(other, _)| *other != pid);
        self.devices[device].listed.push((pid, mib));
    }

    pub(super) fn files(&self) -> Vec<DeviceFile> {
        let file =
            |number: usize| device_file(&format!("/dev/nvidia{number}"), Ok(node(number as u32)));
        (0..self.devices.len()).map(file).collect()
    }

    pub(super) fn device(&self, id: &DeviceId) -> Result<&Device> {
        let device = &self.devices[id.index as usize];
        match device.fault {
            Some(kind) => Err(Error::new(kind, format!("ask {id}"))),
            None => Ok(device),
        }
    }
}

impl GpuBackend for World {
    fn origin(&self) -> Origin {
        Origin::Simulated("world".into())
    }

    fn driver(&self) -> Result<Driver> {
        match self.state().driver_fault {
            Some(kind) => Err(Error::new(kind, "initialise NVML")),
            None => Ok(Driver { version: Ok("550.1".into()), cuda: Ok("12.4".into()) }),
        }
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        let hides_minors = self.state().hides_minors;
        let info = |(index, device): (usize, &Device)| {
            let mut id = DeviceId::from_index(index as u32);
            id.uuid = device.uuid.clone();
            id.node = if hides_minors { Err(Absent::Failed) } else { Ok(node(index as u32)) };
            id.bus = Ok(bus(index));
            let (name, partitioned) = (Ok(device.name.into()), device.partitioned);
            let (display_active, visibility) = (device.display, device.visibility);
            DeviceInfo { name, partitioned, display_active, visibility, ..DeviceInfo::unknown(id) }
        };
        Ok(self.state().devices.iter().enumerate().map(info).collect())
    }

    fn sample(&self, id: &DeviceId) -> Result<DeviceSample> {
        let state = self.state();
        let device = state.device(id)?;
        let listed: u64 = device.listed.iter().map(|(_, mib)| mib).sum();
        let mut sample = DeviceSample::absent(Absent::NotSupported);
        sample.memory.total = Ok(Bytes::from_mib(device.total));
        sample.memory.used = Ok(Bytes::from_mib(device.unlisted + listed));
        sample.source = MemorySource::of(device.kind);
        if device.kind == MemoryKind::Host {
            sample.memory = DeviceSample::absent(Absent::NotSupported).memory;
        }
        if let Some(share) = device.utilization.and_then(Percent::new) {
            sample.utilization = Ok(share);
        }
        Ok(sample)
    }

    fn processes(&self, id: &DeviceId) -> Result<Vec<DeviceProcess>> {
        let state = self.state();
        let device = state.device(id)?;
        let process = |(pid, mib): &(u32, u64)| DeviceProcess {
            pid: Pid(*pid),
            kind: if device.drawing.contains(pid) {
                DeviceProcessKind::Graphics
            } else {
                DeviceProcessKind::Compute
            },
            memory: match device.hides_memory_of {
                Some((hidden, absent)) if hidden == *pid => Err(absent),
                _ => Ok(Bytes::from_mib(*mib)),
            },
            utilization: Err(Absent::NotSupported),
            name: Err(Absent::NotRecorded),
            gpu_instance: device.mig.iter().find(|mig| mig.2.contains(pid)).map(|mig| mig.0),
            compute_instance: None,
        };
        Ok(device.listed.iter().map(process).collect())
    }

    fn partitions(&self, id: &DeviceId) -> Result<Vec<Partition>> {
        let state = self.state();
        let device = state.device(id)?;
        let mib = |users: &[u32]| {
            let listed = device.listed.iter().filter(|(pid, _)| users.contains(pid));
            listed.map(|(_, mib)| mib).sum::<u64>()
        };
        let instance = |(index, (number, total, users)): (usize, &(u32, u64, Vec<u32>))| {
            let mut memory = DeviceSample::absent(Absent::NotSupported).memory;
            memory.total = Ok(Bytes::from_mib(*total));
            memory.used = Ok(Bytes::from_mib(10 + mib(users)));
            Partition {
                index: index as u32,
                uuid: if device.names_mig {
                    Ok(DeviceUuid(format!("{}{number}", device.mig_key)))
                } else {
                    Err(Absent::NotSupported)
                },
                profile: Err(Absent::NotRecorded),
                gpu_instance: Some(*number),
                compute_instance: Some(0),
                memory,
            }
        };
        Ok(device.mig.iter().enumerate().map(instance).collect())
    }

    fn details(&self, id: &DeviceId, groups: Groups) -> Result<DeviceDetails> {
        let state = self.state();
        let capability = Ok(state.device(id)?.capability);
        let product = Product { compute_capability: capability, ..Product::default() };
        let product = groups.has(Group::Product).then_some(product);
        let modes = Modes { compute_mode: Ok(state.compute_mode), ..Modes::default() };
        let modes = groups.has(Group::Modes).then_some(modes);
        let uncorrected = Ok(state.device(id)?.uncorrected);
        let memory_health = MemoryHealth { uncorrected, ..MemoryHealth::default() };
        let memory_health = groups.has(Group::MemoryHealth).then_some(memory_health);
        Ok(DeviceDetails { product, modes, memory_health, ..DeviceDetails::default() })
    }

    fn topology(&self) -> Result<Topology> {
        let mut state = self.state();
        state.topology_queries += 1;
        Ok(state.topology.clone())
    }

    fn events(&self, _wait: Duration) -> Result<Vec<DeviceEvent>> {
        Err(Error::new(ErrorKind::Unsupported, "wait for events"))
    }

    fn reset(&self, id: &DeviceId, _token: &ActToken) -> Result<()> {
        Err(Error::new(ErrorKind::Unsupported, format!("reset {id}")))
    }

    fn helpers(&self) -> Vec<Pid> {
        self.state().helpers.iter().map(|pid| Pid(*pid)).collect()
    }
}

/// The address of a device.
pub(crate) fn bus(index: usize) -> PciBusId {
    PciBusId { domain: 0, bus: index as u8 + 1, device: 0, function: 0 }
}
