//! The devices of machines as processors.

use super::cluster::{Cluster, Processor};
use crate::device::{Device, DeviceSet, DeviceSpec};
use gpu_core::{Bytes, Rates, Route, Topology};
use std::collections::BTreeMap;

/// The speed of a CPU relative to a GPU: its memory has about a tenth of the bandwidth.
const CPU_SPEED: f64 = 0.1;

/// The route between devices of two tasks, which usually run on two machines: 10-gigabit Ethernet.
const NETWORK: Route = Route { latency_nanos: 50_000, bytes_per_second: 1_250_000_000 };

/// The known properties of a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gpu {
    /// Its free memory; `None` for no limit.
    pub free: Option<Bytes>,
    /// How fast its memory is read, in bytes per second; `None` if unknown.
    pub memory_rate: Option<u64>,
}

impl Cluster {
    /// Returns devices as processors. `gpus` and `topology` contain the known properties and the
    /// connections of the GPUs, by index; devices of different tasks are connected by a network.
    ///
    /// The speed of a GPU is relative to the fastest, by the rate at which it reads its memory,
    /// since most operations are bound by it; if the rate of one is unknown, all have speed 1. Each
    /// processor sends one value at a time and receives one at a time.
    pub fn of_devices(
        devices: &DeviceSet,
        gpus: &BTreeMap<u32, Gpu>,
        topology: &Topology,
        rates: &Rates,
    ) -> Cluster {
        let memory_rates: Option<Vec<u64>> = gpus.values().map(|gpu| gpu.memory_rate).collect();
        let fastest = memory_rates.and_then(|rates| rates.into_iter().max());
        let index = |device: &Device| device.name.index.filter(|_| device.kind() == "GPU");
        let processor = |(device, name): (&Device, &String)| {
            let known = index(device).and_then(|index| gpus.get(&index));
            let memory_rate = known.and_then(|gpu| gpu.memory_rate);
            let speed = match (device.kind(), memory_rate, fastest) {
                ("CPU", ..) => CPU_SPEED,
                (_, Some(rate), Some(fastest)) => rate as f64 / fastest as f64,
                _ => 1.0,
            };
            let memory = known.and_then(|gpu| gpu.free);
            Processor { name: name.as_str().into(), speed, memory }
        };
        let task = |device: &Device| {
            let DeviceSpec { job, replica, task, .. } = &device.name;
            (job.clone(), *replica, *task)
        };
        let route = |from: &Device, to: &Device| match (index(from), index(to)) {
            _ if from == to => Route::default(),
            _ if task(from) != task(to) => NETWORK,
            (Some(from), Some(to)) => rates.between(topology, from as usize, to as usize),
            _ => rates.host(),
        };
        let all = devices.devices();
        let row = |from| all.iter().map(|to| route(from, to)).collect();
        Cluster {
            processors: all.iter().zip(devices.names()).map(processor).collect(),
            routes: all.iter().map(row).collect(),
            one_port: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_core::Link;

    fn cluster(names: &[&str], rates: &[Option<u64>]) -> Cluster {
        let links = vec![vec![Link::Itself, Link::NvLink(1)], vec![Link::NvLink(1), Link::Itself]];
        let topology = Topology { links, ..Topology::default() };
        let gpu = |rate: &Option<u64>| Gpu { free: Some(Bytes(7)), memory_rate: *rate };
        let gpus = (0..).zip(rates.iter().map(gpu)).collect();
        let devices = names.iter().map(|name| Device::local(name).expect("a device"));
        Cluster::of_devices(&DeviceSet::new(devices), &gpus, &topology, &Rates::default())
    }

    #[test]
    fn speed_of_a_gpu_is_relative_to_the_fastest() {
        let names = ["/cpu:0", "/gpu:0", "/gpu:1"];
        let speeds = |rates: &[Option<u64>]| -> Vec<f64> {
            cluster(&names, rates).processors.iter().map(|of| of.speed).collect()
        };
        assert_eq!(speeds(&[Some(500), Some(1000)]), [0.1, 0.5, 1.0]);
        assert_eq!(speeds(&[Some(500), None]), [0.1, 1.0, 1.0]);
        assert_eq!(speeds(&[]), [0.1, 1.0, 1.0]);
    }

    #[test]
    fn devices_of_two_tasks_are_connected_by_a_network() {
        let names = ["/cpu:0", "/gpu:0", "/gpu:1", "/task:1/gpu:0"];
        let cluster = cluster(&names, &[None, None]);
        let rates = Rates::default();
        assert_eq!(cluster.route(1, 2).bytes_per_second, rates.nvlink);
        assert_eq!((cluster.route(0, 1), cluster.route(1, 1)), (rates.host(), Route::default()));
        assert_eq!((cluster.route(1, 3), cluster.route(3, 0)), (NETWORK, NETWORK));
        let memory: Vec<_> = cluster.processors.iter().map(|of| of.memory.map(|of| of.0)).collect();
        assert_eq!(memory, [None, Some(7), Some(7), Some(7)]);
    }
}
