//! All executors obey the same order, for any graph and any failure.

use gpu_executor::{
    Cancel, Context, NodeIx, Options, Placed, Pool, RunError, TaskGraph, Virtual, VirtualDevice,
};
use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Edges from lower to higher indices.
pub(crate) fn graphs() -> impl Strategy<Value = (usize, Vec<(u32, u32)>)> {
    (1usize..60).prop_flat_map(|nodes| {
        let pair = (0..nodes as u32, 0..nodes as u32).prop_map(|(a, b)| (a.min(b), a.max(b)));
        (Just(nodes), prop::collection::vec(pair, 0..120)).prop_map(|(nodes, pairs)| {
            (nodes, pairs.into_iter().filter(|(from, to)| from != to).collect())
        })
    })
}

/// What happens at a node.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    Error(u32),
    Panic(u32),
    Cancel(u32),
}

fn faults() -> impl Strategy<Value = Fault> {
    prop_oneof![
        2 => Just(Fault::None),
        1 => (0u32..60).prop_map(Fault::Error),
        1 => (0u32..60).prop_map(Fault::Panic),
        1 => (0u32..60).prop_map(Fault::Cancel),
    ]
}

/// When each node started and ended, as numbers from one shared counter that starts at 1.
#[derive(Default)]
struct Log {
    next: AtomicU64,
    starts: Vec<AtomicU64>,
    ends: Vec<AtomicU64>,
    runs: Vec<AtomicU32>,
}

impl Log {
    fn new(nodes: usize) -> Self {
        let mut log = Self::default();
        log.starts.resize_with(nodes, AtomicU64::default);
        log.ends.resize_with(nodes, AtomicU64::default);
        log.runs.resize_with(nodes, AtomicU32::default);
        log
    }

    fn run(&self, node: NodeIx, fault: Fault, cancel: &Cancel) -> Result<(), u32> {
        let at = node.index();
        self.runs[at].fetch_add(1, Ordering::SeqCst);
        self.starts[at].store(1 + self.next.fetch_add(1, Ordering::SeqCst), Ordering::SeqCst);
        match fault {
            Fault::Error(faulty) if faulty == node.0 => return Err(faulty),
            Fault::Panic(faulty) if faulty == node.0 => std::panic::resume_unwind(Box::new("no")),
            Fault::Cancel(faulty) if faulty == node.0 => cancel.cancel(),
            _ => {}
        }
        self.ends[at].store(1 + self.next.fetch_add(1, Ordering::SeqCst), Ordering::SeqCst);
        Ok(())
    }

    /// Checks that a node started only after its inputs had ended, and that it ran at most once.
    fn check(&self, edges: &[(u32, u32)]) {
        for (from, to) in edges {
            let start = self.starts[*to as usize].load(Ordering::SeqCst);
            let end = self.ends[*from as usize].load(Ordering::SeqCst);
            assert!(start == 0 || (end > 0 && end < start), "{from} before {to}");
        }
        assert!(self.runs.iter().all(|runs| runs.load(Ordering::SeqCst) <= 1));
    }

    fn is_complete(&self) -> bool {
        self.ends.iter().all(|end| end.load(Ordering::SeqCst) > 0)
    }
}

fn expect(result: Result<(), RunError<u32>>, fault: Fault, log: &Log) -> Result<(), TestCaseError> {
    let nodes = log.runs.len() as u32;
    match (result, fault) {
        (Ok(()), Fault::None | Fault::Cancel(_)) => prop_assert!(log.is_complete()),
        (Ok(()), Fault::Error(node) | Fault::Panic(node)) => {
            prop_assert!(node >= nodes && log.is_complete());
        }
        (Err(RunError::Kernel { node, error, .. }), Fault::Error(faulty)) => {
            prop_assert_eq!((node.0, error), (faulty, faulty));
        }
        (Err(RunError::Panicked { node, .. }), Fault::Panic(faulty)) => {
            prop_assert_eq!(node.0, faulty);
        }
        (Err(RunError::Canceled), Fault::Cancel(faulty)) => {
            prop_assert!(faulty < nodes && !log.is_complete());
        }
        (result, fault) => prop_assert!(false, "{result:?} after {fault:?}"),
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn threads_run_each_node_once_after_its_inputs(
        (nodes, edges) in graphs(),
        fault in faults(),
        threads in 1usize..5,
    ) {
        let graph = TaskGraph::from_edges(nodes, edges.iter().copied()).expect("no cycle");
        let (log, cancel) = (Log::new(nodes), Cancel::default());
        let options = Options { cancel: Some(cancel.clone()), clock: None };
        let (log, cancel) = (&log, &cancel);
        let result = Pool::scope(threads, |pool| {
            let kernel = move |node: NodeIx, _: &Context<'_, '_>| log.run(node, fault, cancel);
            let result = pool.run(&graph, kernel, &options).map(|_| ());
            // No kernel is running, and the pool can be used again.
            let before = log.next.load(Ordering::SeqCst);
            let again = pool.run(&graph, |_, _| Ok::<(), ()>(()), &Options::default());
            assert!(again.is_ok() && before == log.next.load(Ordering::SeqCst));
            result
        });
        log.check(&edges);
        expect(result, fault, log)?;
    }

    #[test]
    fn virtual_time_runs_each_node_once_after_its_inputs(
        (nodes, edges) in graphs(),
        fault in faults().prop_filter("caught by threads only", |f| !matches!(f, Fault::Panic(_))),
        placements in prop::collection::vec((0usize..3, prop::option::of(0usize..2), 0u64..50), 60),
        delay in 0u64..20,
    ) {
        let graph = TaskGraph::from_edges(nodes, edges.iter().copied()).expect("no cycle");
        let device = |at| VirtualDevice { name: format!("gpu:{at}"), streams: 2 };
        let devices: Vec<VirtualDevice> = (0..3).map(device).collect();
        let to_placed = |(device, stream, duration_nanos): &(usize, Option<usize>, u64)| Placed {
            device: *device,
            stream: *stream,
            duration_nanos: *duration_nanos,
        };
        let placed: Vec<Placed> = placements.iter().take(nodes).map(to_placed).collect();
        let run = Virtual::new(&graph, &devices, &placed).expect("the placements fit");
        let (log, cancel) = (Log::new(nodes), Cancel::default());
        let kernel = |node| log.run(node, fault, &cancel);
        let result = run.run(|_, _| delay, kernel, Some(&cancel));
        log.check(&edges);
        if let Ok(trace) = &result {
            let mut times = vec![(0, 0); nodes];
            for span in &trace.spans {
                times[span.node.index()] = (span.start_nanos, span.end_nanos);
            }
            for (from, to) in &edges {
                let (from, to) = (*from as usize, *to as usize);
                let crosses_devices = placed[from].device != placed[to].device;
                let arrives = times[from].1 + if crosses_devices { delay } else { 0 };
                prop_assert!(times[to].0 >= arrives);
            }
            for (at, span) in trace.spans.iter().enumerate() {
                let mut others = trace.spans[..at].iter().filter(|other| other.lane == span.lane);
                prop_assert!(others.all(|other| other.end_nanos <= span.start_nanos));
            }
            let again = run.run(|_, _| delay, |_| Ok::<(), u32>(()), None);
            prop_assert_eq!(again.as_ref(), Ok(trace));
        }
        expect(result.map(|_| ()), fault, &log)?;
    }
}

#[test]
fn many_runs_of_one_pool_are_complete() {
    let edges = (0..2000u32).flat_map(|node| [(node, node + 1), (node, node * 7 % 5 + node + 1)]);
    let graph = Arc::new(TaskGraph::from_edges(2006, edges).expect("there is no cycle"));
    let pool = Pool::new(4).expect("threads can be created");
    for _ in 0..200 {
        let count = Arc::new(AtomicU32::new(0));
        let counter = Arc::clone(&count);
        let kernel = move |_: NodeIx, _: &Context<'_, '_>| {
            counter.fetch_add(1, Ordering::Relaxed);
            Ok::<(), ()>(())
        };
        pool.run(Arc::clone(&graph), kernel, &Options::default()).expect("nothing fails");
        assert_eq!(count.load(Ordering::Relaxed), 2006);
    }
}
