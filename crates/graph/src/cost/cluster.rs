//! The processors that run a graph, and the routes between them.

use gpu_core::{Bytes, Rates, Route, Topology};
use std::sync::Arc;

/// Processors and the routes between them.
#[derive(Clone, Debug, PartialEq)]
pub struct Cluster {
    /// The processors. An index into them identifies a processor.
    pub processors: Vec<Processor>,
    /// `routes[i][j]`: from processor i to processor j; square.
    pub routes: Vec<Vec<Route>>,
    /// Whether a processor sends one value at a time and receives one at a time (the one-port
    /// model with full duplex: Bhat, Raghavendra and Prasanna, 2003). Otherwise transfers do not
    /// slow each other down.
    pub one_port: bool,
}

/// A processor: a GPU, or the CPUs of the host.
#[derive(Clone, Debug, PartialEq)]
pub struct Processor {
    /// The name of its device, such as `/job:localhost/replica:0/task:0/device:GPU:0`.
    pub name: Arc<str>,
    /// Its speed, relative to the processor on which times were measured or estimated; above 0.
    pub speed: f64,
    /// Its memory; `None` for no limit.
    pub memory: Option<Bytes>,
}

impl Cluster {
    /// Returns the devices of a machine, by their indices in its topology, followed by the host if
    /// it is given. Each processor sends one value at a time and receives one at a time.
    pub fn of_machine(
        devices: Vec<Processor>,
        host: Option<Processor>,
        topology: &Topology,
        rates: &Rates,
    ) -> Cluster {
        let count = devices.len();
        let mut processors = devices;
        processors.extend(host);
        let route = |from: usize, to: usize| match (from < count, to < count) {
            (true, true) => rates.between(topology, from, to),
            (false, false) => Route::default(),
            _ => rates.host(),
        };
        let row = |from| (0..processors.len()).map(|to| route(from, to)).collect();
        let routes = (0..processors.len()).map(row).collect();
        Cluster { processors, routes, one_port: true }
    }

    /// Returns the route between two processors; a route without cost if it is not given.
    pub fn route(&self, from: u32, to: u32) -> Route {
        let row = self.routes.get(from as usize);
        row.and_then(|row| row.get(to as usize)).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_core::Link;

    #[test]
    fn host_comes_after_the_devices() {
        let processor = |name: &str| Processor { name: name.into(), speed: 1.0, memory: None };
        let links = vec![vec![Link::Itself, Link::NvLink(1)], vec![Link::NvLink(1), Link::Itself]];
        let topology = Topology { links, ..Topology::default() };
        let devices = vec![processor("gpu0"), processor("gpu1")];
        let rates = Rates::default();
        let cluster = Cluster::of_machine(devices, Some(processor("cpu")), &topology, &rates);
        assert_eq!(&*cluster.processors[2].name, "cpu");
        assert_eq!(cluster.route(0, 1).bytes_per_second, rates.nvlink);
        assert_eq!(cluster.route(0, 2), rates.host());
        assert_eq!(cluster.route(2, 2), Route::default());
    }
}
