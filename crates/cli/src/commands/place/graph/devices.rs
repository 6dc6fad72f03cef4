//! The devices that a graph is placed on.

use super::args::PlaceGraphArgs;
use super::input::Input;
use crate::args::Global;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::source;
use gpu_core::{Groups, Origin, Rates, Topology};
use gpu_graph::cost::{Cluster, Gpu};
use gpu_graph::replicate::{Batch, ReplicateError, register, replica_devices, replicate};
use gpu_graph::{Device, DeviceSet};
use std::collections::BTreeMap;

/// The devices, and the simulated machine that they are of.
#[derive(Default)]
pub(super) struct Machine {
    pub(super) devices: DeviceSet,
    pub(super) name: Option<String>,
    /// The GPUs of a machine, by index.
    gpus: BTreeMap<u32, Gpu>,
    topology: Topology,
}

impl Machine {
    /// Returns the named devices, else those of the graph's file, else a CPU and the GPUs of the
    /// machine that the command line selects.
    ///
    /// # Errors
    /// If a name is malformed, or the machine cannot be queried.
    pub(super) fn select(
        args: &PlaceGraphArgs,
        listed: Option<Vec<Device>>,
        global: &Global,
    ) -> Result<Machine, Failure> {
        if !args.devices.is_empty() {
            let devices: Result<Vec<Device>, Failure> =
                args.devices.iter().map(|name| named(name)).collect();
            return Machine::of(devices?);
        }
        if let Some(listed) = listed {
            return Machine::of(listed);
        }
        let groups = if args.schedule || args.run { Groups::PEAKS } else { Groups::NONE };
        let source = source::open_for_query(global, groups, true)?;
        let inventory = gpu_core::take_inventory(&*source.backend, &*source.host, groups);
        if let (Err(fault), true) = (&inventory.driver, inventory.devices.is_empty()) {
            return Err(Failure::from(gpu_core::Error::new(fault.kind, fault.text.clone()))
                .with_hint("--devices /cpu:0,/gpu:0 places without a machine"));
        }
        // One that does not answer, such as a lost one, runs nothing.
        let gpus = inventory.devices.iter().filter_map(|device| {
            let memory = device.sample.as_ref().ok()?.memory;
            let free = memory.total.ok().zip(memory.used.ok());
            let gpu = Gpu {
                free: free.map(|(total, used)| total.saturating_sub(used)),
                memory_rate: device.details.as_ref().ok().and_then(|of| of.peak_memory_rate()),
            };
            Some((device.id().index, gpu))
        });
        let gpus: BTreeMap<u32, Gpu> = gpus.collect();
        // A machine of which it is unknown is as one without direct links.
        let topology = source.backend.topology().unwrap_or_default();
        let names = gpus.keys().map(|index| format!("/gpu:{index}"));
        let names = std::iter::once("/cpu:0".to_owned()).chain(names);
        let devices = DeviceSet::new(names.filter_map(|name| Device::local(&name)));
        let name = match source.host.origin() {
            Origin::Simulated(name) => Some(name),
            _ => None,
        };
        Ok(Machine { devices, name, gpus, topology })
    }

    fn of(devices: Vec<Device>) -> Result<Machine, Failure> {
        for (at, device) in devices.iter().enumerate() {
            if devices.iter().take(at).any(|other| other.name == device.name) {
                return Err(Failure::new(Exit::Usage, "read the list of devices")
                    .with_source(format!("it lists {} twice", device.name)));
            }
        }
        Ok(Machine { devices: DeviceSet::new(devices), ..Machine::default() })
    }

    /// Returns the graph on the devices of replicas, if the user requests them, and adds notes.
    pub(super) fn replicate(
        &self,
        args: &PlaceGraphArgs,
        input: &mut Input,
    ) -> Result<(), ReplicateError> {
        if args.replicas.is_none() && args.contexts.is_none() {
            return Ok(());
        }
        let count = args.replicas.map(usize::from);
        let devices = replica_devices(&self.devices, args.contexts.as_deref(), count)?;
        let batch = args.batch.map(|rows| Batch { rows, loads: &args.loads });
        let links = (&self.topology, &Rates::default());
        let (graph, notes) = replicate(&input.graph, devices, links, batch)?;
        register(&mut input.registry);
        input.graph = graph;
        input.notes.extend(notes);
        Ok(())
    }

    /// Returns the devices as processors.
    pub(super) fn cluster(&self) -> Cluster {
        Cluster::of_devices(&self.devices, &self.gpus, &self.topology, &Rates::default())
    }
}

fn named(name: &str) -> Result<Device, Failure> {
    Device::local(name).ok_or_else(|| {
        Failure::new(Exit::Usage, format!("read the device name '{name}'")).with_hint(
            "a device is written /gpu:0, /device:GPU:0 or /job:localhost/replica:0/task:0/device:GPU:0",
        )
    })
}
