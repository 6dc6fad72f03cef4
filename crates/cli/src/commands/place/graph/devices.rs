//! The devices that a graph is placed on.

use crate::args::{Global, PlaceGraphArgs};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::source;
use gpu_core::{Bytes, Groups, Origin, Topology};
use gpu_graph::cost::{Cluster, Processor, Rates, Route};
use gpu_graph::{Device, DeviceSet, DeviceSpec};
use std::collections::BTreeMap;

/// The process that all devices belong to.
const PROCESS: &str = "/job:localhost/replica:0/task:0";

/// How fast a CPU is beside a GPU where nothing else is known: its memory passes a tenth as much.
const CPU_SPEED: f64 = 0.1;

/// The devices, and the simulated machine that they are of.
#[derive(Default)]
pub(super) struct Machine {
    pub(super) devices: DeviceSet,
    pub(super) name: Option<String>,
    /// The free memory of each GPU of a machine, by index; `None` if unknown.
    free: BTreeMap<u32, Option<Bytes>>,
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
            return Ok(Machine { devices: DeviceSet::new(devices?), ..Machine::default() });
        }
        if let Some(listed) = listed {
            return Ok(Machine { devices: DeviceSet::new(listed), ..Machine::default() });
        }
        let source = source::open_for_query(global, Groups::NONE, true)?;
        let look = gpu_core::look_at_devices(&*source.backend, &*source.host, Groups::NONE);
        if let (Err(fault), true) = (&look.driver, look.devices.is_empty()) {
            return Err(Failure::from(gpu_core::Error::new(fault.kind, fault.text.clone()))
                .with_hint("--devices /cpu:0,/gpu:0 places without a machine"));
        }
        let free: BTreeMap<u32, Option<Bytes>> = look
            .devices
            .iter()
            // One that does not answer, such as a lost one, runs nothing.
            .filter_map(|device| {
                let memory = device.sample.as_ref().ok()?.memory;
                let free = memory.total.ok().zip(memory.used.ok());
                Some((device.id().index, free.map(|(total, used)| total.saturating_sub(used))))
            })
            .collect();
        // A machine of which it is unknown is as one without direct links.
        let topology = source.backend.topology().unwrap_or_default();
        let mut devices = DeviceSet::new([numbered("CPU", 0)]);
        free.keys().for_each(|index| devices.add(numbered("GPU", *index)));
        let name = match source.host.origin() {
            Origin::Simulated(name) => Some(name),
            _ => None,
        };
        Ok(Machine { devices, name, free, topology })
    }

    /// Returns the devices as processors, with the free memory of the GPUs and the links between
    /// them.
    pub(super) fn cluster(&self) -> Cluster {
        let rates = Rates::default();
        let devices = self.devices.devices();
        let gpu = |device: &Device| {
            let is_gpu = device.kind() == "GPU";
            device.name.index.filter(|_| is_gpu)
        };
        let processors = devices.iter().zip(self.devices.names()).map(|(device, name)| Processor {
            name: name.as_str().into(),
            speed: if device.kind() == "CPU" { CPU_SPEED } else { 1.0 },
            memory: gpu(device).and_then(|index| *self.free.get(&index)?),
        });
        let route = |from: &Device, to: &Device| match (from == to, gpu(from), gpu(to)) {
            (true, ..) => Route::default(),
            (false, Some(from), Some(to)) => {
                rates.between(&self.topology, from as usize, to as usize)
            }
            _ => rates.host(),
        };
        let row = |from| devices.iter().map(|to| route(from, to)).collect();
        Cluster {
            processors: processors.collect(),
            routes: devices.iter().map(row).collect(),
            one_port: true,
        }
    }
}

/// Returns the device with a name; what it leaves out is that of a single process.
fn named(name: &str) -> Result<Device, Failure> {
    let malformed = || {
        Failure::new(Exit::Usage, format!("read the device name '{name}'")).with_hint(
            "a device is written /gpu:0, /device:GPU:0 or /job:localhost/replica:0/task:0/device:GPU:0",
        )
    };
    let spec = DeviceSpec::parse(name).ok_or_else(malformed)?;
    let (Some(kind), Some(index)) = (spec.kind, spec.index) else { return Err(malformed()) };
    let name = DeviceSpec {
        job: spec.job.or_else(|| Some("localhost".to_owned())),
        replica: spec.replica.or(Some(0)),
        task: spec.task.or(Some(0)),
        kind: Some(kind),
        index: Some(index),
    };
    Ok(Device { name, is_local: true })
}

fn numbered(kind: &str, index: u32) -> Device {
    let full = format!("{PROCESS}/device:{kind}:{index}");
    let name = DeviceSpec::parse(&full).unwrap_or_default();
    Device { name, is_local: true }
}
