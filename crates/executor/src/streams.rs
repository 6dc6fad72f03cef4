//! Graphs on streams of asynchronous devices.

use crate::cancel::Cancel;
use crate::graph::{NodeIx, TaskGraph};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Streams that each run their work in order, independently of each other, and events between them,
/// like CUDA's.
///
/// A stream is identified by its index; the implementation knows its device.
pub trait Streams {
    /// A point in the work of a stream.
    type Event;
    /// The error of a device.
    type Error;

    /// Appends the work of a node to a stream.
    ///
    /// # Errors
    /// If the device refuses.
    fn launch(&mut self, stream: usize, node: NodeIx) -> Result<(), Self::Error>;

    /// Records an event after the work issued to a stream so far.
    ///
    /// # Errors
    /// If the device refuses.
    fn record(&mut self, stream: usize) -> Result<Self::Event, Self::Error>;

    /// Makes the later work of a stream wait for an event. Does not block.
    ///
    /// # Errors
    /// If the device refuses.
    fn wait_event(&mut self, stream: usize, event: &Self::Event) -> Result<(), Self::Error>;

    /// Waits until all work of all streams is done.
    ///
    /// # Errors
    /// If any work failed.
    fn synchronize(&mut self) -> Result<(), Self::Error>;
}

/// A step of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// A stream waits for the event of a node.
    Wait {
        /// The stream.
        stream: usize,
        /// The node.
        node: NodeIx,
    },
    /// A node is launched on a stream.
    Launch {
        /// The stream.
        stream: usize,
        /// The node.
        node: NodeIx,
    },
    /// The event of the node that was just launched is recorded.
    Record {
        /// The stream.
        stream: usize,
        /// The node.
        node: NodeIx,
    },
}

/// The steps to issue to streams, in order.
///
/// For its launch order, the plan has the fewest waits. An input on the same stream needs none, nor
/// does an input that the stream has already waited for, directly or through another stream.
/// Several inputs on one stream need a single wait, for the latest. Only nodes that another stream
/// waits for get an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamPlan {
    steps: Vec<Step>,
}

/// Why a run on streams ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamError<E> {
    /// A node could not be launched, or its event could not be recorded or waited for.
    #[error("issue node {} to its stream", .node.0)]
    Issue {
        /// The node.
        node: NodeIx,
        /// The error from the device.
        #[source]
        error: E,
    },
    /// Work failed after it was issued.
    #[error("finish the work of the streams")]
    Work(#[source] E),
    /// The run was canceled; all issued work is done.
    #[error("finish a canceled run")]
    Canceled,
}

impl StreamPlan {
    /// Plans a graph, given the stream of each node.
    ///
    /// The launch order starts with the sources and continues with the node that became ready last;
    /// ties follow the order of successors in [`TaskGraph`].
    pub fn new(graph: &TaskGraph, stream_of: impl Fn(NodeIx) -> usize) -> Self {
        let stream_of: Vec<usize> =
            (0..graph.len() as u32).map(|node| stream_of(NodeIx(node))).collect();
        let order = graph.order();
        let mut inputs: Vec<Vec<NodeIx>> = vec![Vec::new(); graph.len()];
        for node in &order {
            for next in graph.successors(*node) {
                inputs[next.index()].push(*node);
            }
        }
        let mut positions = vec![0usize; graph.len()];
        let mut known = Clocks::default();
        let mut steps = Vec::with_capacity(graph.len());
        for node in order {
            let stream = stream_of[node.index()];
            for input in known.waits(stream, &inputs[node.index()], &stream_of, &positions) {
                steps.push(Step::Wait { stream, node: input });
                known.join(stream, input);
            }
            steps.push(Step::Launch { stream, node });
            positions[node.index()] = known.launch(stream, node);
        }
        let mut plan = Self { steps };
        plan.add_records();
        plan
    }

    fn add_records(&mut self) {
        let waits = self.steps.iter().filter_map(|step| match step {
            Step::Wait { node, .. } => Some(*node),
            _ => None,
        });
        let waited: HashSet<NodeIx> = waits.collect();
        let steps = std::mem::take(&mut self.steps).into_iter();
        self.steps = steps
            .flat_map(|step| {
                let record = match step {
                    Step::Launch { stream, node } if waited.contains(&node) => {
                        Some(Step::Record { stream, node })
                    }
                    _ => None,
                };
                [Some(step), record].into_iter().flatten()
            })
            .collect();
    }

    /// Returns the steps.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Returns the number of waits.
    pub fn waits(&self) -> usize {
        self.steps.iter().filter(|step| matches!(step, Step::Wait { .. })).count()
    }

    /// Issues the steps and waits until all work is done, even if a step fails or the run is
    /// canceled.
    ///
    /// # Errors
    /// The first failure, or [`StreamError::Canceled`].
    pub fn run<S: Streams>(
        &self,
        streams: &mut S,
        cancel: Option<&Cancel>,
    ) -> Result<(), StreamError<S::Error>> {
        let issued = self.issue(streams, cancel);
        let done = streams.synchronize().map_err(StreamError::Work);
        issued.and(done)
    }

    fn issue<S: Streams>(
        &self,
        streams: &mut S,
        cancel: Option<&Cancel>,
    ) -> Result<(), StreamError<S::Error>> {
        let mut events = HashMap::new();
        for step in &self.steps {
            let (Step::Wait { node, .. } | Step::Launch { node, .. } | Step::Record { node, .. }) =
                *step;
            let issued = match *step {
                Step::Launch { .. } if cancel.is_some_and(Cancel::is_canceled) => {
                    return Err(StreamError::Canceled);
                }
                Step::Launch { stream, node } => streams.launch(stream, node),
                Step::Record { stream, node } => {
                    streams.record(stream).map(|event| drop(events.insert(node, event)))
                }
                Step::Wait { stream, node } => match events.get(&node) {
                    Some(event) => streams.wait_event(stream, event),
                    None => Ok(()),
                },
            };
            issued.map_err(|error| StreamError::Issue { node, error })?;
        }
        Ok(())
    }
}

/// For each other stream, the number of launches that are complete before the next work of this
/// stream.
type Clock = HashMap<usize, usize>;

#[derive(Default)]
struct Clocks {
    of_stream: HashMap<usize, Clock>,
    of_node: HashMap<NodeIx, Clock>,
}

impl Clocks {
    /// Returns the inputs that a stream must wait for, none of which implies another.
    fn waits(
        &self,
        stream: usize,
        inputs: &[NodeIx],
        stream_of: &[usize],
        positions: &[usize],
    ) -> Vec<NodeIx> {
        let is_known = |clock: Option<&Clock>, input: &NodeIx| {
            let (of, at) = (stream_of[input.index()], positions[input.index()]);
            clock.and_then(|clock| clock.get(&of)).is_some_and(|known| *known >= at)
        };
        let own = self.of_stream.get(&stream);
        // The latest input on each stream, so the remaining list is at most as long as the number
        // of streams.
        let mut latest: BTreeMap<usize, NodeIx> = BTreeMap::new();
        for input in inputs.iter().filter(|input| !is_known(own, input)) {
            let last = latest.entry(stream_of[input.index()]).or_insert(*input);
            if positions[input.index()] > positions[last.index()] {
                *last = *input;
            }
        }
        let open: Vec<NodeIx> = latest.into_values().collect();
        let is_implied = |input: &NodeIx| {
            let mut others = open.iter().filter(|other| *other != input);
            others.any(|other| is_known(self.of_node.get(other), input))
        };
        open.iter().filter(|input| !is_implied(input)).copied().collect()
    }

    /// Adds what a node has waited for to what a stream has waited for.
    fn join(&mut self, stream: usize, node: NodeIx) {
        let own = self.of_stream.entry(stream).or_default();
        for (of, at) in self.of_node.get(&node).into_iter().flatten() {
            let known = own.entry(*of).or_insert(0);
            *known = (*known).max(*at);
        }
    }

    /// Counts a launch, and returns its position on the stream, starting at 1.
    fn launch(&mut self, stream: usize, node: NodeIx) -> usize {
        let own = self.of_stream.entry(stream).or_default();
        let launches = own.entry(stream).or_insert(0);
        *launches += 1;
        let launches = *launches;
        self.of_node.insert(node, own.clone());
        launches
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(nodes: usize, edges: &[(u32, u32)], streams: &[usize]) -> Vec<(usize, u32)> {
        let graph = TaskGraph::from_edges(nodes, edges.iter().copied()).expect("no cycle");
        let plan = StreamPlan::new(&graph, |node| streams[node.index()]);
        let waits = plan.steps().iter().filter_map(|step| match step {
            Step::Wait { stream, node } => Some((*stream, node.0)),
            _ => None,
        });
        waits.collect()
    }

    #[test]
    fn nodes_of_one_stream_do_not_wait() {
        assert_eq!(waits(3, &[(0, 1), (0, 2), (1, 2)], &[0, 0, 0]), []);
    }

    #[test]
    fn latest_of_several_inputs_is_enough() {
        assert_eq!(waits(3, &[(0, 1), (0, 2), (1, 2)], &[0, 0, 1]), [(1, 1)]);
    }

    #[test]
    fn wait_through_another_stream_is_enough() {
        let edges = [(0, 1), (1, 2), (0, 2)];
        assert_eq!(waits(3, &edges, &[0, 1, 2]), [(1, 0), (2, 1)]);
    }

    #[test]
    fn records_event_only_if_a_stream_waits() {
        let graph = TaskGraph::from_edges(3, [(0, 1), (0, 2)]).expect("no cycle");
        let plan = StreamPlan::new(&graph, |node| usize::from(node.0 == 2));
        let records = plan.steps().iter().filter(|step| matches!(step, Step::Record { .. }));
        assert_eq!((records.count(), plan.waits()), (1, 1));
        assert_eq!(StreamPlan::new(&graph, |_| 0).waits(), 0);
    }
}
