//! Plans for streams, run on simulated streams that allow every order permitted by their events.

use crate::order::graphs;
use gpu_executor::{Cancel, NodeIx, Step, StreamError, StreamPlan, Streams, TaskGraph};
use proptest::prelude::*;
use std::collections::{BTreeSet, HashMap};

/// Streams on which work never completes early by luck: a node may read only the results that its
/// stream or events order before it.
struct Strict<'a> {
    inputs: &'a [Vec<u32>],
    /// The nodes that are complete before the next work of each stream.
    before: HashMap<usize, BTreeSet<u32>>,
    launched: Vec<u32>,
    is_synchronized: bool,
    faulty: Option<u32>,
}

#[derive(Debug, PartialEq)]
enum Fault {
    ReadsTooEarly { node: u32, input: u32 },
    Refused,
}

impl<'a> Strict<'a> {
    fn new(inputs: &'a [Vec<u32>]) -> Self {
        let (before, launched) = (HashMap::new(), Vec::new());
        Self { inputs, before, launched, is_synchronized: false, faulty: None }
    }
}

impl Streams for Strict<'_> {
    type Event = BTreeSet<u32>;
    type Error = Fault;

    fn launch(&mut self, stream: usize, node: NodeIx) -> Result<(), Fault> {
        if self.faulty == Some(node.0) {
            return Err(Fault::Refused);
        }
        let before = self.before.entry(stream).or_default();
        let early = self.inputs[node.index()].iter().find(|input| !before.contains(input));
        if let Some(input) = early {
            return Err(Fault::ReadsTooEarly { node: node.0, input: *input });
        }
        before.insert(node.0);
        self.launched.push(node.0);
        Ok(())
    }

    fn record(&mut self, stream: usize) -> Result<Self::Event, Fault> {
        Ok(self.before.entry(stream).or_default().clone())
    }

    fn wait_event(&mut self, stream: usize, event: &Self::Event) -> Result<(), Fault> {
        self.before.entry(stream).or_default().extend(event);
        Ok(())
    }

    fn synchronize(&mut self) -> Result<(), Fault> {
        self.is_synchronized = true;
        Ok(())
    }
}

fn inputs(nodes: usize, edges: &[(u32, u32)]) -> Vec<Vec<u32>> {
    let mut inputs = vec![Vec::new(); nodes];
    for (from, to) in edges {
        inputs[*to as usize].push(*from);
    }
    inputs
}

/// Issues all steps except one to the streams.
fn run_without(plan: &StreamPlan, streams: &mut Strict<'_>, left_out: usize) -> Result<(), Fault> {
    let mut events = HashMap::new();
    for (at, step) in plan.steps().iter().enumerate() {
        match step {
            _ if at == left_out => {}
            Step::Launch { stream, node } => streams.launch(*stream, *node)?,
            Step::Record { stream, node } => {
                events.insert(*node, streams.record(*stream)?);
            }
            Step::Wait { stream, node } => streams.wait_event(*stream, &events[node])?,
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn every_wait_is_necessary_and_sufficient(
        (nodes, edges) in graphs(),
        streams in prop::collection::vec(0usize..4, 60),
    ) {
        let graph = TaskGraph::from_edges(nodes, edges.iter().copied()).expect("no cycle");
        let plan = StreamPlan::new(&graph, |node| streams[node.index()]);
        let inputs = inputs(nodes, &edges);
        let mut strict = Strict::new(&inputs);
        prop_assert_eq!(plan.run(&mut strict, None), Ok(()));
        strict.launched.sort_unstable();
        prop_assert!(strict.launched.iter().copied().eq(0..nodes as u32));
        prop_assert!(strict.is_synchronized);
        for (at, step) in plan.steps().iter().enumerate() {
            if matches!(step, Step::Wait { .. }) {
                let result = run_without(&plan, &mut Strict::new(&inputs), at);
                let is_early = matches!(result, Err(Fault::ReadsTooEarly { .. }));
                prop_assert!(is_early, "{:?} is not needed", step);
            }
        }
    }
}

#[test]
fn failed_launch_names_its_node_and_waits_for_rest() {
    let graph = TaskGraph::from_edges(3, [(0, 1), (1, 2)]).expect("no cycle");
    let inputs = inputs(3, &[(0, 1), (1, 2)]);
    let mut strict = Strict { faulty: Some(1), ..Strict::new(&inputs) };
    let error = StreamPlan::new(&graph, |node| node.index()).run(&mut strict, None);
    assert_eq!(error, Err(StreamError::Issue { node: NodeIx(1), error: Fault::Refused }));
    assert!(strict.is_synchronized);
    assert_eq!(strict.launched, [0]);
}

#[test]
fn canceled_plan_stops_launching() {
    let graph = TaskGraph::from_edges(2, [(0, 1)]).expect("no cycle");
    let inputs = inputs(2, &[(0, 1)]);
    let cancel = Cancel::default();
    cancel.cancel();
    let mut strict = Strict::new(&inputs);
    let result = StreamPlan::new(&graph, |_| 0).run(&mut strict, Some(&cancel));
    assert_eq!((result, strict.launched.len()), (Err(StreamError::Canceled), 0));
}
