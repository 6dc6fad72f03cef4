//! The devices that a graph is placed on.

use crate::args::{Global, PlaceGraphArgs};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::source;
use gpu_core::{Bytes, Groups, Origin, Rates, Route, Topology};
use gpu_graph::cost::{Cluster, Processor};
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
    /// The GPUs of a machine, by index.
    gpus: BTreeMap<u32, Gpu>,
    topology: Topology,
}

#[derive(Clone, Copy)]
struct Gpu {
    /// Its free memory, if known.
    free: Option<Bytes>,
    /// How fast its memory is read, in bytes per second, if known.
    memory_rate: Option<u64>,
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
        let groups = if args.schedule { super::super::speed_groups() } else { Groups::NONE };
        let source = source::open_for_query(global, groups, true)?;
        let look = gpu_core::look_at_devices(&*source.backend, &*source.host, groups);
        if let (Err(fault), true) = (&look.driver, look.devices.is_empty()) {
            return Err(Failure::from(gpu_core::Error::new(fault.kind, fault.text.clone()))
                .with_hint("--devices /cpu:0,/gpu:0 places without a machine"));
        }
        // One that does not answer, such as a lost one, runs nothing.
        let gpus = look.devices.iter().filter_map(|device| {
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
        let mut devices = DeviceSet::new([numbered("CPU", 0)]);
        gpus.keys().for_each(|index| devices.add(numbered("GPU", *index)));
        let name = match source.host.origin() {
            Origin::Simulated(name) => Some(name),
            _ => None,
        };
        Ok(Machine { devices, name, gpus, topology })
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
        let processors = devices.iter().zip(self.devices.names()).map(|(device, name)| {
            let known = gpu(device).and_then(|index| self.gpus.get(&index));
            Processor {
                name: name.as_str().into(),
                speed: if device.kind() == "CPU" { CPU_SPEED } else { self.speed(known) },
                memory: known.and_then(|gpu| gpu.free),
            }
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

    /// Returns the speed of a GPU, relative to the fastest; 1 if that of any GPU is unknown. Most
    /// operations are as fast as the memory is read.
    fn speed(&self, gpu: Option<&Gpu>) -> f64 {
        let rates: Option<Vec<u64>> = self.gpus.values().map(|gpu| gpu.memory_rate).collect();
        let fastest = rates.and_then(|rates| rates.into_iter().max());
        match (gpu.and_then(|gpu| gpu.memory_rate), fastest) {
            (Some(rate), Some(fastest)) => rate as f64 / fastest as f64,
            _ => 1.0,
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
