//! Runs in virtual time.

use crate::cancel::Cancel;
use crate::error::RunError;
use crate::graph::{NodeIx, TaskGraph};
use crate::trace::{Lane, Span, Trace};
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

/// A device of a simulated run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VirtualDevice {
    /// Its name.
    pub name: String,
    /// The number of nodes it runs at the same time; at least 1.
    pub streams: usize,
}

/// The device, stream and duration of a node in a simulated run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Placed {
    /// The index of the device.
    pub device: usize,
    /// The stream on the device; `None` for any free stream.
    pub stream: Option<usize>,
    /// The duration in nanoseconds.
    pub duration_nanos: u64,
}

/// An executor in virtual time: it runs nodes in the same order as threads would, but does not
/// wait.
///
/// A stream runs one node at a time. Among the ready nodes it picks the highest priority, then the
/// one that became ready first, then the lowest index. A node is ready when all its inputs have
/// ended and, if they come from other devices, have been transferred. Transfers do not slow each
/// other down.
#[derive(Clone, Debug)]
pub struct Virtual<'a> {
    graph: &'a TaskGraph,
    devices: &'a [VirtualDevice],
    placed: &'a [Placed],
}

/// Why a simulated run cannot start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlacedError {
    /// The number of placements differs from the number of nodes.
    #[error("simulate {nodes} nodes with {placed} placements")]
    Count {
        /// The number of nodes.
        nodes: usize,
        /// The number of placements.
        placed: usize,
    },
    /// A node is on a device or stream that does not exist.
    #[error("simulate node {}: its device or stream does not exist", .0.0)]
    Unknown(NodeIx),
}

/// The next event; at equal times, ends of nodes come before arrivals of data.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    End { lane: usize, node: u32 },
    Arrival { node: u32 },
}

impl<'a> Virtual<'a> {
    /// Prepares a run of a graph, given the placement of each node in index order.
    ///
    /// # Errors
    /// [`PlacedError`] if the placements do not match the graph and the devices.
    pub fn new(
        graph: &'a TaskGraph,
        devices: &'a [VirtualDevice],
        placed: &'a [Placed],
    ) -> Result<Self, PlacedError> {
        if placed.len() != graph.len() {
            return Err(PlacedError::Count { nodes: graph.len(), placed: placed.len() });
        }
        let is_unknown = |at: &Placed| match (devices.get(at.device), at.stream) {
            (Some(device), stream) => stream.unwrap_or(0) >= device.streams.max(1),
            (None, _) => true,
        };
        match placed.iter().position(is_unknown) {
            Some(node) => Err(PlacedError::Unknown(NodeIx(node as u32))),
            None => Ok(Self { graph, devices, placed }),
        }
    }

    /// Runs the graph. `transfer` returns the transfer time in nanoseconds from a node to a node on
    /// another device; `kernel` is called when a node starts.
    ///
    /// # Errors
    /// The error of the first kernel that fails, with its node, or [`RunError::Canceled`], which is
    /// checked before each start. Either ends the run at once.
    pub fn run<E>(
        &self,
        transfer: impl Fn(NodeIx, NodeIx) -> u64,
        mut kernel: impl FnMut(NodeIx) -> Result<(), E>,
        cancel: Option<&Cancel>,
    ) -> Result<Trace, RunError<E>> {
        let mut run = Queues::new(self.devices);
        let mut events = BinaryHeap::new();
        let mut pending = self.graph.counts().to_vec();
        let mut arrivals = vec![0u64; self.graph.len()];
        let mut spans = Vec::with_capacity(self.graph.len());
        events
            .extend(self.graph.sources().map(|node| Reverse((0, Event::Arrival { node: node.0 }))));
        while let Some(Reverse((now, event))) = events.pop() {
            match event {
                Event::Arrival { node } => run.add(self, node, now),
                Event::End { lane, node } => {
                    run.is_busy[lane] = false;
                    for next in self.graph.successors(NodeIx(node)) {
                        let at = next.index();
                        let crosses_devices =
                            self.placed[at].device != self.placed[node as usize].device;
                        let delay = if crosses_devices { transfer(NodeIx(node), next) } else { 0 };
                        arrivals[at] = arrivals[at].max(now.saturating_add(delay));
                        pending[at] -= 1;
                        if pending[at] == 0 {
                            events.push(Reverse((arrivals[at], Event::Arrival { node: next.0 })));
                        }
                    }
                }
            }
            // Process all events at this time first, so that priorities compare all ready nodes.
            if events.peek().is_some_and(|Reverse((next, _))| *next == now) {
                continue;
            }
            for device in 0..self.devices.len() {
                while let Some((lane, node)) = run.take(device) {
                    if cancel.is_some_and(Cancel::is_canceled) {
                        return Err(RunError::Canceled);
                    }
                    let node = NodeIx(node);
                    if let Err(error) = kernel(node) {
                        return Err(RunError::Kernel { node, name: self.graph.name(node), error });
                    }
                    let end_nanos = now.saturating_add(self.placed[node.index()].duration_nanos);
                    spans.push(Span { node, lane: lane as u32, start_nanos: now, end_nanos });
                    events.push(Reverse((end_nanos, Event::End { lane, node: node.0 })));
                }
            }
        }
        Ok(Trace { lanes: run.lanes, spans })
    }
}

/// Ready nodes in the order in which they start.
type Ready = BTreeSet<(Reverse<i64>, u64, u32)>;

/// The ready nodes by device and by stream, and the busy streams.
struct Queues {
    lanes: Vec<Lane>,
    first_lane: Vec<usize>,
    is_busy: Vec<bool>,
    /// Nodes for any stream of each device.
    any: Vec<Ready>,
    /// Nodes for each stream.
    fixed: Vec<Ready>,
}

impl Queues {
    fn new(devices: &[VirtualDevice]) -> Self {
        let (mut lanes, mut first_lane) = (Vec::new(), vec![0]);
        for device in devices {
            for stream in 0..device.streams.max(1) {
                let name = format!("stream {stream}");
                lanes.push(Lane { process: device.name.clone(), name });
            }
            first_lane.push(lanes.len());
        }
        let (is_busy, fixed) = (vec![false; lanes.len()], vec![Ready::new(); lanes.len()]);
        Self { lanes, first_lane, is_busy, any: vec![Ready::new(); devices.len()], fixed }
    }

    fn add(&mut self, run: &Virtual<'_>, node: u32, now: u64) {
        let placed = run.placed[node as usize];
        let ready = match placed.stream {
            Some(stream) => &mut self.fixed[self.first_lane[placed.device] + stream],
            None => &mut self.any[placed.device],
        };
        ready.insert((Reverse(run.graph.priority(NodeIx(node))), now, node));
    }

    /// Takes the next node that a free stream of a device can start.
    fn take(&mut self, device: usize) -> Option<(usize, u32)> {
        for lane in self.first_lane[device]..self.first_lane[device + 1] {
            if self.is_busy[lane] {
                continue;
            }
            let (own, any) = (self.fixed[lane].first(), self.any[device].first());
            let is_own = own.is_some_and(|own| any.is_none_or(|any| own < any));
            let ready = if is_own { &mut self.fixed[lane] } else { &mut self.any[device] };
            if let Some((_, _, node)) = ready.pop_first() {
                self.is_busy[lane] = true;
                return Some((lane, node));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn devices(streams: &[usize]) -> Vec<VirtualDevice> {
        let device = |(at, streams): (usize, &usize)| VirtualDevice {
            name: format!("gpu:{at}"),
            streams: *streams,
        };
        streams.iter().enumerate().map(device).collect()
    }

    fn on(device: usize, duration_nanos: u64) -> Placed {
        Placed { device, stream: None, duration_nanos }
    }

    fn starts(graph: &TaskGraph, streams: &[usize], placed: &[Placed]) -> Vec<u64> {
        let devices = devices(streams);
        let run = Virtual::new(graph, &devices, placed).expect("the placements fit");
        let trace = run.run(|_, _| 5, |_| Ok::<(), ()>(()), None).expect("nothing fails");
        let mut starts = vec![0; graph.len()];
        for span in trace.spans {
            starts[span.node.index()] = span.start_nanos;
        }
        starts
    }

    #[test]
    fn transfers_delay_nodes_on_other_devices() {
        let graph = TaskGraph::from_edges(3, [(0, 1), (0, 2)]).expect("no cycle");
        assert_eq!(starts(&graph, &[1, 1], &[on(0, 10), on(0, 3), on(1, 3)]), [0, 10, 15]);
    }

    #[test]
    fn streams_of_a_device_run_at_the_same_time() {
        let graph = TaskGraph::from_edges(3, []).expect("no cycle");
        let placed = [on(0, 10), on(0, 4), on(0, 1)];
        assert_eq!(starts(&graph, &[1], &placed), [0, 10, 14]);
        assert_eq!(starts(&graph, &[2], &placed), [0, 0, 4]);
    }

    #[test]
    fn highest_priority_starts_first() {
        let graph = TaskGraph::from_edges(3, []).expect("no cycle").prioritized(vec![0, 1, 2]);
        assert_eq!(starts(&graph, &[1], &[on(0, 1); 3]), [2, 1, 0]);
    }

    #[test]
    fn fixed_streams_are_kept() {
        let graph = TaskGraph::from_edges(2, []).expect("no cycle");
        let fixed = Placed { stream: Some(1), ..on(0, 5) };
        assert_eq!(starts(&graph, &[2], &[fixed, fixed]), [0, 5]);
        let devices_of_two = devices(&[2, 2]);
        let placed = [Placed { device: 1, ..fixed }, Placed { device: 1, ..fixed }];
        let run = Virtual::new(&graph, &devices_of_two, &placed).expect("the placements fit");
        let trace = run.run(|_, _| 0, |_| Ok::<(), ()>(()), None).expect("nothing fails");
        assert_eq!(trace.spans.iter().map(|span| span.lane).collect::<Vec<_>>(), [3, 3]);
        let missing = Placed { stream: Some(2), ..on(0, 5) };
        let error = Virtual::new(&graph, &devices(&[2]), &[fixed, missing]).unwrap_err();
        assert_eq!(error, PlacedError::Unknown(NodeIx(1)));
    }

    #[test]
    fn stream_compares_its_own_nodes_with_those_for_any_stream() {
        let graph = TaskGraph::from_edges(3, []).expect("no cycle").prioritized(vec![1, 2, 3]);
        let placed = [on(0, 5), Placed { stream: Some(0), ..on(0, 5) }, on(0, 5)];
        assert_eq!(starts(&graph, &[1], &placed), [10, 5, 0]);
    }
}
