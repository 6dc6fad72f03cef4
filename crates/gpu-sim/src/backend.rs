//! The devices: `GpuBackend`.

use crate::devices::failure;
use crate::faults::Call;
use crate::machine::Device;
use crate::process_table::{Living, Serial};
use crate::simulation::Simulation;
use crate::state::State;
use gpu_core::{
    Absent, ActToken, Bytes, DeviceDetails, DeviceEvent, DeviceFault, DeviceId, DeviceInfo,
    DeviceProcess, DeviceSample, Driver, Error, ErrorKind, GpuBackend, Groups, Link, Origin,
    Partition, PeerAccess, PeerCapability, Result, Topology,
};
use std::time::Duration;

impl GpuBackend for Simulation {
    fn origin(&self) -> Origin {
        Origin::Simulated(self.name())
    }

    fn driver(&self) -> Result<Driver> {
        self.call(Call::Driver, |state| state.driver())
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        self.call(Call::Devices, |state| {
            state.driver()?;
            let devices = state.machine.devices.iter();
            Ok(devices.map(|device| state.device_info(device)).collect())
        })
    }

    fn sample(&self, device: &DeviceId) -> Result<DeviceSample> {
        self.call(Call::Sample, |state| Ok(state.sample(answering(state, device)?)))
    }

    fn processes(&self, device: &DeviceId) -> Result<Vec<DeviceProcess>> {
        self.call(Call::DeviceProcesses, |state| {
            let device = answering(state, device)?;
            match &device.list_fault {
                Some(fault) => Err(failure(fault)),
                None => Ok(state.listed(device)),
            }
        })
    }

    fn partitions(&self, device: &DeviceId) -> Result<Vec<Partition>> {
        self.call(Call::MigInstances, |state| Ok(state.partitions(answering(state, device)?)))
    }

    fn details(&self, device: &DeviceId, groups: Groups) -> Result<DeviceDetails> {
        self.call(Call::Details, |state| Ok(state.details(answering(state, device)?).only(groups)))
    }

    fn topology(&self) -> Result<Topology> {
        self.call(Call::Topology, |state| {
            state.driver()?;
            let topology = state.machine.topology.clone();
            topology.map_err(|absent| Error::new(absent, Call::Topology.to_string()))
        })
    }

    /// Returns the peer access of the topology for reads and writes, and the NVLinks.
    fn peer_access(&self, capability: PeerCapability) -> Result<Vec<Vec<PeerAccess>>> {
        let Topology { links, peers, .. } = self.topology()?;
        let by_nvlink = |link: &Link| match link {
            Link::Itself => PeerAccess::Itself,
            Link::NvLink(_) => PeerAccess::Ok,
            Link::Unknown => PeerAccess::Unknown,
            _ => PeerAccess::NotSupported,
        };
        match capability {
            PeerCapability::Read | PeerCapability::Write => Ok(peers),
            PeerCapability::NvLink => {
                Ok(links.iter().map(|row| row.iter().map(by_nvlink).collect()).collect())
            }
            // A single device has access to itself.
            PeerCapability::Atomics | PeerCapability::Prop if links.len() == 1 => Ok(peers),
            PeerCapability::Atomics | PeerCapability::Prop => {
                Err(Error::new(Absent::NotSupported, "query the peer-to-peer status"))
            }
        }
    }

    /// Lets time pass until an event is reported, at most `wait`.
    fn events(&self, wait: Duration) -> Result<Vec<DeviceEvent>> {
        self.call(Call::DeviceEvents, |state| {
            state.driver()?;
            Ok(state.await_reports(wait))
        })
    }

    fn reset(&self, device: &DeviceId, _token: &ActToken) -> Result<()> {
        self.call(Call::Reset, |state| reset(state, device))
    }
}

/// Returns the device that a caller identifies, if it answers.
fn answering<'a>(state: &'a State, id: &DeviceId) -> Result<&'a Device> {
    let device = state.named_device(id)?;
    match &device.fault {
        Some(fault) => Err(failure(fault)),
        None => Ok(device),
    }
}

fn reset(state: &mut State, id: &DeviceId) -> Result<()> {
    let device = state.named_device(id)?;
    let lost = ErrorKind::Device(DeviceFault::Lost);
    if let Some(fault) = device.fault.as_ref().filter(|fault| fault.kind == lost) {
        return Err(failure(fault));
    }
    let index = device.info.id.index;
    let refuse = |kind: ErrorKind, why: &str| {
        Err(Error::new(kind, format!("reset {id}")).with_source(why.to_owned()))
    };
    if !state.machine.viewer.privileged {
        return refuse(Absent::NotPermitted.into(), "requires root");
    }
    let has_it_open =
        |living: &Living| living.process.files.iter().any(|file| file.opens(&device.info.id));
    let is_open = state.living.iter().any(|(_, living)| has_it_open(living));
    if is_open || state.holdings_on(index).any(|(living, _)| living.process.hidden.is_none()) {
        return refuse(DeviceFault::InUse.into(), &state.machine.reset_refusal);
    }
    // Remove the rest as well: processes that NVML still lists after their end.
    let listed: Vec<Serial> = state.living.on_device(index).map(|(serial, _)| serial).collect();
    for serial in listed {
        let drop = |living: &mut Living| {
            living.process.holdings.retain(|holding| holding.device != index);
        };
        state.living.change(serial, drop);
    }
    state.returning.retain(|returning| returning.device != index);
    state.acted = true;
    if let Some(device) = state.device_mut(index) {
        device.leaked = Bytes(0);
        device.fault = None;
    }
    Ok(())
}
