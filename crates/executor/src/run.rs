//! One run of a graph.

use crate::cancel::Cancel;
use crate::context::Context;
use crate::error::{RunError, message};
use crate::graph::{NodeIx, TaskGraph, sole};
use crate::lock::lock;
use crate::shared::{Job, Slot};
use crate::trace::{Lane, Span, Trace};
use gpu_core::Clock;
use std::cell::{Cell, RefCell};
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The maximum number of sources that a thread takes at once.
const SOURCES: usize = 32;

/// Optional settings of a run.
#[derive(Clone, Default)]
pub struct Options {
    /// Ends the run early when canceled.
    pub cancel: Option<Cancel>,
    /// Records when each node ran; without a clock, times are not recorded.
    pub clock: Option<Arc<dyn Clock>>,
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Options");
        shown.field("cancel", &self.cancel).field("has_clock", &self.clock.is_some());
        shown.finish()
    }
}

/// The report of a run in which every node ran.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The number of nodes that ran.
    pub nodes: usize,
    /// When and where each node ran, if the options had a clock. Each lane is a thread; lane 0 is
    /// the calling thread.
    pub trace: Option<Trace>,
}

/// The state of a run.
pub(crate) struct Run<G, K, E> {
    graph: G,
    kernel: K,
    /// The number of inputs that each node still waits for.
    pending: Vec<AtomicU32>,
    next_source: AtomicUsize,
    sources: usize,
    share: usize,
    /// The number of nodes that have not run. A thread subtracts the nodes it ran when it finds no
    /// more work.
    remaining: AtomicUsize,
    is_stopped: AtomicBool,
    failure: Mutex<Option<RunError<E>>>,
    cancel: Option<Cancel>,
    clock: Option<(Arc<dyn Clock>, Duration)>,
    spans: Mutex<Vec<Span>>,
    /// Whether each node must check for cancellation or read the clock.
    is_observed: bool,
    threads: usize,
}

/// What one thread counts while it works.
#[derive(Default)]
struct Tally {
    node: Cell<u32>,
    done: Cell<usize>,
    spans: RefCell<Vec<Span>>,
}

impl<'env, G, K, E> Run<G, K, E>
where
    G: Deref<Target = TaskGraph>,
    K: Fn(NodeIx, &Context<'_, 'env>) -> Result<(), E>,
{
    pub(crate) fn new(graph: G, kernel: K, options: &Options, threads: usize) -> Self {
        let shared = if threads > 1 { graph.counts() } else { &[] };
        let pending = shared.iter().map(|count| AtomicU32::new(*count)).collect();
        let (nodes, sources) = (graph.len(), graph.sources().len());
        Self {
            graph,
            kernel,
            pending,
            next_source: AtomicUsize::new(0),
            sources,
            share: (sources / (4 * threads)).clamp(1, SOURCES),
            remaining: AtomicUsize::new(nodes),
            is_stopped: AtomicBool::new(false),
            failure: Mutex::new(None),
            cancel: options.cancel.clone(),
            clock: options.clock.clone().map(|clock| {
                let start = clock.monotonic();
                (clock, start)
            }),
            spans: Mutex::default(),
            is_observed: options.cancel.is_some() || options.clock.is_some(),
            threads,
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire) || self.remaining.load(Ordering::Acquire) == 0
    }

    /// Returns the outcome.
    pub(crate) fn finish(&self) -> Result<Report, RunError<E>> {
        if let Some(failure) = lock(&self.failure).take() {
            return Err(failure);
        }
        let nodes = self.graph.len();
        let trace = self.clock.as_ref().map(|_| {
            let mut spans = std::mem::take(&mut *lock(&self.spans));
            spans.sort_unstable_by_key(|span| (span.start_nanos, span.end_nanos, span.node));
            let lane = |index| Lane { process: "threads".into(), name: format!("thread {index}") };
            Trace { lanes: (0..self.threads).map(lane).collect(), spans }
        });
        Ok(Report { nodes, trace })
    }

    /// Runs all nodes on this thread, without sharing and therefore without atomics.
    pub(crate) fn alone(&self) {
        let tally = Tally::default();
        let context = Context::alone();
        self.guard(&tally, || {
            let mut pending = self.graph.counts().to_vec();
            let mut ready = Vec::new();
            for source in self.graph.sources() {
                ready.push(source.0);
                while let Some(mut current) = ready.pop() {
                    loop {
                        if !self.execute(current, &context, &tally) {
                            return;
                        }
                        let links = self.graph.links(current);
                        if let [link] = links
                            && let (next, true) = sole(*link)
                        {
                            current = next;
                            continue;
                        }
                        let mut node = None;
                        for link in links.iter().rev() {
                            let (next, is_sole) = sole(*link);
                            let is_ready = is_sole || {
                                pending[next as usize] -= 1;
                                pending[next as usize] == 0
                            };
                            if is_ready && let Some(other) = node.replace(next) {
                                ready.push(other);
                            }
                        }
                        let Some(next) = node else { break };
                        current = next;
                    }
                }
            }
        });
        self.record(&tally);
    }

    /// Runs one node, and returns whether the run continues.
    #[inline]
    fn execute(&self, node: u32, context: &Context<'_, 'env>, tally: &Tally) -> bool {
        if self.is_stopped.load(Ordering::Relaxed) {
            return false;
        }
        tally.node.set(node);
        let result = if !self.is_observed {
            (self.kernel)(NodeIx(node), context)
        } else if self.cancel.as_ref().is_some_and(Cancel::is_canceled) {
            self.stop(RunError::Canceled);
            return false;
        } else {
            self.timed(node, context, tally)
        };
        match result {
            Ok(()) => {
                tally.done.set(tally.done.get() + 1);
                true
            }
            Err(error) => {
                let name = self.graph.name(NodeIx(node));
                self.stop(RunError::Kernel { node: NodeIx(node), name, error });
                false
            }
        }
    }

    /// Runs a kernel, and records its times if there is a clock.
    fn timed(&self, node: u32, context: &Context<'_, 'env>, tally: &Tally) -> Result<(), E> {
        let Some((clock, zero)) = &self.clock else {
            return (self.kernel)(NodeIx(node), context);
        };
        let start = clock.monotonic();
        let result = (self.kernel)(NodeIx(node), context);
        let end = clock.monotonic();
        tally.spans.borrow_mut().push(Span {
            node: NodeIx(node),
            lane: context.thread() as u32,
            start_nanos: nanos(start.saturating_sub(*zero)),
            end_nanos: nanos(end.saturating_sub(*zero)),
        });
        result
    }

    /// Runs nodes, and turns a kernel's panic into a failure of its node.
    fn guard(&self, tally: &Tally, body: impl FnOnce()) {
        // State left by a panic is never read: the run ends, and only this thread's counters are
        // kept.
        if let Err(panic) = catch_unwind(AssertUnwindSafe(body)) {
            let node = NodeIx(tally.node.get());
            let name = self.graph.name(node);
            self.stop(RunError::Panicked { node, name, message: message(&*panic) });
            // Dropping the payload may itself panic.
            if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
                std::mem::forget(again);
            }
        }
    }

    fn stop(&self, failure: RunError<E>) {
        lock(&self.failure).get_or_insert(failure);
        self.is_stopped.store(true, Ordering::Release);
    }

    fn record(&self, tally: &Tally) {
        if self.clock.is_some() {
            lock(&self.spans).append(&mut tally.spans.borrow_mut());
        }
    }

    /// Takes some sources: returns the first and makes the others ready on this thread.
    fn take_source(&self, slot: &Slot<'_, 'env>) -> Option<u32> {
        if self.next_source.load(Ordering::Relaxed) >= self.sources {
            return None;
        }
        let from = self.next_source.fetch_add(self.share, Ordering::Relaxed);
        let first = self.graph.source(from)?;
        for at in (from + 1..self.sources.min(from + self.share)).rev() {
            if let Some(source) = self.graph.source(at) {
                slot.ready.push(source);
            }
        }
        if from + 1 < self.sources {
            slot.shared.announce();
        }
        Some(first)
    }

    /// Runs a node, and then the nodes that it made ready, one at a time; the others wait in the
    /// queue.
    #[inline]
    fn follow(&self, node: u32, slot: &Slot<'_, 'env>, context: &Context<'_, 'env>, tally: &Tally) {
        let mut current = node;
        while self.execute(current, context, tally) {
            let links = self.graph.links(current);
            // Usually there is only one, so there is no choice and no announcement to make.
            if let [link] = links {
                let (next, is_sole) = sole(*link);
                if !is_sole && !self.is_last_input(next) {
                    return;
                }
                current = next;
                continue;
            }
            let (mut node, mut has_more) = (None, false);
            for link in links.iter().rev() {
                let (next, is_sole) = sole(*link);
                if (is_sole || self.is_last_input(next))
                    && let Some(other) = node.replace(next)
                {
                    slot.ready.push(other);
                    has_more = true;
                }
            }
            if has_more {
                slot.shared.announce();
            }
            let Some(next) = node else { return };
            current = next;
        }
    }

    /// Counts an input of a node as done, and returns whether it was the last one.
    fn is_last_input(&self, node: u32) -> bool {
        let pending = &self.pending[node as usize];
        // At 1, no other thread will decrement the count, so it need not change.
        pending.load(Ordering::Acquire) == 1 || pending.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

impl<'env, G, K, E> Job<'env> for Run<G, K, E>
where
    G: Deref<Target = TaskGraph> + Send + Sync,
    K: Fn(NodeIx, &Context<'_, 'env>) -> Result<(), E> + Send + Sync,
    E: Send,
{
    fn work(&self, slot: &Slot<'_, 'env>) {
        let tally = Tally::default();
        let context = Context::of(slot.index, slot.shared);
        self.guard(&tally, || {
            loop {
                while let Some(node) = slot.ready.pop().or_else(|| self.take_source(slot)) {
                    self.follow(node, slot, &context, &tally);
                    if self.is_stopped.load(Ordering::Relaxed) {
                        return;
                    }
                }
                let done = tally.done.take();
                if done > 0 && self.remaining.fetch_sub(done, Ordering::AcqRel) == done {
                    return;
                }
                match slot.shared.search(slot, || self.is_over()) {
                    Some(node) => self.follow(node, slot, &context, &tally),
                    None => return,
                }
            }
        });
        self.record(&tally);
        if self.is_over() {
            while slot.ready.pop().is_some() {}
            slot.shared.wake_starter();
        }
    }

    fn is_over(&self) -> bool {
        Run::is_over(self)
    }

    fn has_sources(&self) -> bool {
        self.next_source.load(Ordering::Relaxed) < self.sources
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
