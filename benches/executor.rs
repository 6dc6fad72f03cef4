//! The overhead per node of running a graph: gpu-executor compared with rayon and tokio.
//!
//! Graphs are a wavefront, a binary tree, a chain, a random graph, independent nodes and the
//! blocked Cholesky factorization, with empty kernels; Cholesky also with kernels on 64 × 64 tiles.
//! rayon runs the first ready successor inline, or spawns each one; tokio spawns each one. Before
//! anything is timed, every executor must run every node once. Times are for one run of the whole
//! graph; throughput is in nodes.
//!
//! `GPUWS_BENCH_THREADS` sets the number of threads, which is otherwise 1 and then all.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use gpu_executor::{Context, NodeIx, Options, Pool, TaskGraph, ValueError, Values};
use std::convert::Infallible;
use std::hint::black_box;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// The number of tiles of the blocked Cholesky factorization in each direction, and the side of a
/// tile.
const TILES: usize = 20;
const SIDE: usize = 64;

/// A graph, its name, and the step of the factorization for each node.
struct Case {
    name: &'static str,
    graph: Arc<TaskGraph>,
    sources: Vec<u32>,
    successors: Vec<Vec<u32>>,
}

impl Case {
    fn new(name: &'static str, nodes: usize, edges: Vec<(u32, u32)>) -> Arc<Self> {
        let graph = TaskGraph::from_edges(nodes, edges).expect("there is no cycle");
        let ids = (0..nodes as u32).map(NodeIx);
        let successors = ids.map(|node| graph.successors(node).map(|next| next.0).collect());
        let successors = successors.collect();
        let sources = graph.sources().map(|node| node.0).collect();
        Arc::new(Self { name, graph: Arc::new(graph), sources, successors })
    }

    fn counts(&self) -> Vec<AtomicU32> {
        let nodes = (0..self.graph.len() as u32).map(NodeIx);
        nodes.map(|node| AtomicU32::new(self.graph.pending(node))).collect()
    }
}

fn wavefront(side: usize) -> Arc<Case> {
    let cells = (0..side).flat_map(|row| (0..side).map(move |column| (row, column)));
    let edges = cells.flat_map(|(row, column)| {
        let at = (row * side + column) as u32;
        let right = (column + 1 < side).then_some((at, at + 1));
        let below = (row + 1 < side).then_some((at, at + side as u32));
        right.into_iter().chain(below)
    });
    Case::new("wavefront", side * side, edges.collect())
}

fn tree(nodes: u32) -> Arc<Case> {
    Case::new("tree", nodes as usize, (1..nodes).map(|node| ((node - 1) / 2, node)).collect())
}

fn chain(nodes: u32) -> Arc<Case> {
    Case::new("chain", nodes as usize, (1..nodes).map(|node| (node - 1, node)).collect())
}

fn independent(nodes: usize) -> Arc<Case> {
    Case::new("independent", nodes, Vec::new())
}

/// Up to four inputs for each node, from any earlier node.
fn random(nodes: u32) -> Arc<Case> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut edges = Vec::new();
    for node in 1..nodes {
        for _ in 0..next() % 5 {
            edges.push(((next() % u64::from(node)) as u32, node));
        }
    }
    Case::new("random", nodes as usize, edges)
}

/// The step of a node in the blocked Cholesky factorization, with the tiles that it changes and
/// reads.
#[derive(Clone, Copy)]
enum Step {
    Factor(usize),
    Solve { row: usize, column: usize },
    Update { row: usize, column: usize, by: usize },
}

/// The right-looking factorization: each step waits for the last step that changed its tiles.
fn cholesky() -> (Arc<Case>, Vec<Step>) {
    let (mut steps, mut edges) = (Vec::new(), Vec::new());
    let mut last = vec![None; TILES * TILES];
    let mut add = |step, changed: usize, read: &[usize]| {
        let node = steps.len() as u32;
        let before = read.iter().chain([&changed]).filter_map(|tile| last[*tile]);
        edges.extend(before.map(|before| (before, node)));
        last[changed] = Some(node);
        steps.push(step);
    };
    let tile = |row: usize, column: usize| row * TILES + column;
    for by in 0..TILES {
        add(Step::Factor(by), tile(by, by), &[]);
        for row in by + 1..TILES {
            add(Step::Solve { row, column: by }, tile(row, by), &[tile(by, by)]);
        }
        for row in by + 1..TILES {
            for column in by + 1..=row {
                let read = [tile(row, by), tile(column, by)];
                add(Step::Update { row, column, by }, tile(row, column), &read);
            }
        }
    }
    (Case::new("cholesky", steps.len(), edges), steps)
}

/// The tiles of a symmetric positive definite matrix, and the kernels on them.
struct Matrix {
    tiles: Vec<Mutex<Vec<f64>>>,
    steps: Vec<Step>,
}

impl Matrix {
    fn new(steps: Vec<Step>) -> Self {
        let tile = |at: usize| Mutex::new(Self::tile(at / TILES, at % TILES));
        Self { tiles: (0..TILES * TILES).map(tile).collect(), steps }
    }

    fn tile(row: usize, column: usize) -> Vec<f64> {
        let size = TILES * SIDE;
        let value = |at: usize| {
            let (i, j) = (row * SIDE + at / SIDE, column * SIDE + at % SIDE);
            let distance = i.abs_diff(j) as f64;
            if i == j { 2.0 * size as f64 } else { 1.0 / (1.0 + distance) }
        };
        (0..SIDE * SIDE).map(value).collect()
    }

    fn reset(&self) {
        for (at, tile) in self.tiles.iter().enumerate() {
            *tile.lock().expect("no kernel panics") = Self::tile(at / TILES, at % TILES);
        }
    }

    fn with<R>(&self, row: usize, column: usize, body: impl FnOnce(&mut Vec<f64>) -> R) -> R {
        body(&mut self.tiles[row * TILES + column].lock().expect("no kernel panics"))
    }

    fn copy(&self, row: usize, column: usize) -> Vec<f64> {
        self.with(row, column, |tile| tile.clone())
    }

    fn run(&self, node: u32) {
        match self.steps[node as usize] {
            Step::Factor(at) => self.with(at, at, |tile| factor(tile)),
            Step::Solve { row, column } => {
                let lower = self.copy(column, column);
                self.with(row, column, |tile| solve(tile, &lower));
            }
            Step::Update { row, column, by } => {
                let (left, right) = (self.copy(row, by), self.copy(column, by));
                self.with(row, column, |tile| update(tile, &left, &right));
            }
        }
    }

    fn corner(&self) -> f64 {
        self.with(TILES - 1, TILES - 1, |tile| tile[SIDE * SIDE - 1])
    }
}

fn factor(tile: &mut [f64]) {
    for column in 0..SIDE {
        for row in column..SIDE {
            let dot: f64 =
                (0..column).map(|k| tile[row * SIDE + k] * tile[column * SIDE + k]).sum();
            let value = tile[row * SIDE + column] - dot;
            let pivot = tile[column * SIDE + column];
            tile[row * SIDE + column] = if row == column { value.sqrt() } else { value / pivot };
        }
    }
}

fn solve(tile: &mut [f64], lower: &[f64]) {
    for row in tile.chunks_exact_mut(SIDE) {
        for column in 0..SIDE {
            let below = &lower[column * SIDE..][..SIDE];
            let dot: f64 = row[..column].iter().zip(below).map(|(a, b)| a * b).sum();
            row[column] = (row[column] - dot) / below[column];
        }
    }
}

fn update(tile: &mut [f64], left: &[f64], right: &[f64]) {
    for (row, left) in tile.chunks_exact_mut(SIDE).zip(left.chunks_exact(SIDE)) {
        for (cell, right) in row.iter_mut().zip(right.chunks_exact(SIDE)) {
            *cell -= left.iter().zip(right).map(|(a, b)| a * b).sum::<f64>();
        }
    }
}

fn rayon_inline<'s>(
    scope: &rayon::Scope<'s>,
    case: &'s Case,
    counts: &'s [AtomicU32],
    kernel: &'s (impl Fn(u32) + Sync),
    first: u32,
) {
    let mut node = Some(first);
    while let Some(current) = node {
        kernel(current);
        node = None;
        for next in &case.successors[current as usize] {
            if counts[*next as usize].fetch_sub(1, Ordering::AcqRel) == 1 {
                match node {
                    None => node = Some(*next),
                    Some(_) => scope.spawn(|s| rayon_inline(s, case, counts, kernel, *next)),
                }
            }
        }
    }
}

fn rayon_spawn<'s>(
    scope: &rayon::Scope<'s>,
    case: &'s Case,
    counts: &'s [AtomicU32],
    kernel: &'s (impl Fn(u32) + Sync),
    node: u32,
) {
    kernel(node);
    for next in &case.successors[node as usize] {
        if counts[*next as usize].fetch_sub(1, Ordering::AcqRel) == 1 {
            scope.spawn(|s| rayon_spawn(s, case, counts, kernel, *next));
        }
    }
}

/// The shared state of the tasks in one run on tokio.
struct Tasks<K> {
    case: Arc<Case>,
    counts: Vec<AtomicU32>,
    kernel: K,
    remaining: AtomicUsize,
    done: Mutex<std::sync::mpsc::Sender<()>>,
}

fn tokio_spawn<K: Fn(u32) + Send + Sync + 'static>(tasks: Arc<Tasks<K>>, node: u32) {
    tokio::spawn(async move {
        (tasks.kernel)(node);
        for next in &tasks.case.successors[node as usize] {
            if tasks.counts[*next as usize].fetch_sub(1, Ordering::AcqRel) == 1 {
                tokio_spawn(Arc::clone(&tasks), *next);
            }
        }
        if tasks.remaining.fetch_sub(1, Ordering::AcqRel) == 1 {
            let _ = tasks.done.lock().expect("no thread panics").send(());
        }
    });
}

fn run_gpuws(pool: &Pool<'static>, case: &Case, kernel: impl Fn(u32) + Send + Sync + 'static) {
    let kernel = move |node: NodeIx, _: &Context<'_, 'static>| {
        kernel(node.0);
        Ok::<(), Infallible>(())
    };
    pool.run(Arc::clone(&case.graph), kernel, &Options::default()).expect("no kernel fails");
}

fn run_rayon(pool: &rayon::ThreadPool, case: &Case, kernel: impl Fn(u32) + Sync, is_inline: bool) {
    let counts = case.counts();
    let (counts, kernel) = (&counts[..], &kernel);
    pool.scope(|scope| {
        for source in &case.sources {
            if is_inline {
                scope.spawn(|s| rayon_inline(s, case, counts, kernel, *source))
            } else {
                scope.spawn(|s| rayon_spawn(s, case, counts, kernel, *source))
            }
        }
    });
}

fn run_tokio(
    runtime: &tokio::runtime::Runtime,
    case: &Arc<Case>,
    kernel: impl Fn(u32) + Send + Sync + 'static,
) {
    let (send, receive) = std::sync::mpsc::channel();
    let tasks = Arc::new(Tasks {
        case: Arc::clone(case),
        counts: case.counts(),
        kernel,
        remaining: AtomicUsize::new(case.graph.len()),
        done: Mutex::new(send),
    });
    let _guard = runtime.enter();
    for source in &case.sources {
        tokio_spawn(Arc::clone(&tasks), *source);
    }
    receive.recv().expect("the last task sends");
}

/// The executors for a number of threads.
struct Executors {
    threads: usize,
    gpuws: Pool<'static>,
    rayon: rayon::ThreadPool,
    tokio: tokio::runtime::Runtime,
}

impl Executors {
    fn new(threads: usize) -> Self {
        let rayon = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).build();
        Self {
            threads,
            gpuws: Pool::new(threads).expect("threads can be created"),
            rayon: rayon.expect("threads can be created"),
            tokio: tokio.expect("threads can be created"),
        }
    }

    /// Measures a case with a kernel; each executor gets the kernel as its own type, so that an
    /// empty kernel has no cost.
    fn measure<K>(&self, c: &mut Criterion, case: &Arc<Case>, label: &str, kernel: K)
    where
        K: Fn(u32) + Clone + Send + Sync + 'static,
    {
        let visits: Arc<Vec<AtomicU32>> =
            Arc::new((0..case.graph.len()).map(|_| AtomicU32::new(0)).collect());
        let counting = {
            let visits = Arc::clone(&visits);
            move |node: u32| {
                visits[node as usize].fetch_add(1, Ordering::Relaxed);
            }
        };
        let check = |name: &str| {
            let is_once = visits.iter().all(|count| count.swap(0, Ordering::Relaxed) == 1);
            assert!(is_once, "{name} runs every node of {label} once");
        };
        run_gpuws(&self.gpuws, case, counting.clone());
        check("gpuws");
        run_rayon(&self.rayon, case, &counting, true);
        check("rayon inline");
        run_rayon(&self.rayon, case, &counting, false);
        check("rayon spawn");
        run_tokio(&self.tokio, case, counting);
        check("tokio");

        let mut group = c.benchmark_group(format!("executor/{label}"));
        group.throughput(Throughput::Elements(case.graph.len() as u64));
        let threads = self.threads;
        group.bench_function(BenchmarkId::new("gpuws", threads), |b| {
            b.iter(|| run_gpuws(&self.gpuws, case, kernel.clone()));
        });
        group.bench_function(BenchmarkId::new("rayon-inline", threads), |b| {
            b.iter(|| run_rayon(&self.rayon, case, &kernel, true));
        });
        group.bench_function(BenchmarkId::new("rayon-spawn", threads), |b| {
            b.iter(|| run_rayon(&self.rayon, case, &kernel, false));
        });
        group.bench_function(BenchmarkId::new("tokio", threads), |b| {
            b.iter(|| run_tokio(&self.tokio, case, kernel.clone()));
        });
        group.finish();
    }
}

/// The cost of a run apart from its nodes, with threads that are kept and with threads created for
/// it.
fn start(c: &mut Criterion, pool: &Pool<'static>) {
    let case = tree(15);
    let mut group = c.benchmark_group("executor/start");
    group.bench_function(BenchmarkId::new("kept", pool.threads()), |b| {
        b.iter(|| {
            run_gpuws(pool, &case, |node| {
                black_box(node);
            })
        });
    });
    group.bench_function(BenchmarkId::new("scoped", pool.threads()), |b| {
        b.iter(|| {
            Pool::scope(pool.threads(), |pool| {
                let kernel = |node: NodeIx, _: &Context<'_, '_>| {
                    black_box(node);
                    Ok::<(), Infallible>(())
                };
                pool.run(&*case.graph, kernel, &Options::default()).expect("no kernel fails")
            })
        });
    });
    group.finish();
}

/// A wavefront in which nodes add the values of their inputs.
fn values(c: &mut Criterion, threads: usize) {
    let case = wavefront(316);
    let mut reads = vec![Vec::new(); case.graph.len()];
    for (node, successors) in case.successors.iter().enumerate() {
        for next in successors {
            reads[*next as usize].push((NodeIx(node as u32), 0));
        }
    }
    let inputs: Vec<usize> = reads.iter().map(Vec::len).collect();
    let outputs = vec![1; case.graph.len()];
    let mut group = c.benchmark_group("executor/values");
    group.throughput(Throughput::Elements(case.graph.len() as u64));
    Pool::scope(threads, |pool| {
        group.bench_function(BenchmarkId::new("wavefront", threads), |b| {
            let values = || Arc::new(Values::new(&outputs, &reads).expect("the outputs exist"));
            let inputs: Arc<[usize]> = inputs.as_slice().into();
            b.iter_with_setup(values, |values| {
                let inputs = Arc::clone(&inputs);
                let kernel = move |node: NodeIx, _: &Context<'_, '_>| {
                    let io = values.of_node(node);
                    let mut sum = 1_u64;
                    for at in 0..inputs[node.index()] {
                        sum = sum.wrapping_add(*io.input::<u64>(at)?);
                    }
                    io.set_output(0, sum)?;
                    values.release_inputs(node);
                    Ok::<(), ValueError>(())
                };
                let graph = Arc::clone(&case.graph);
                pool.run(graph, kernel, &Options::default()).expect("no kernel fails")
            });
        });
    });
    group.finish();
}

fn bench(c: &mut Criterion) {
    let all = std::thread::available_parallelism().map_or(2, usize::from);
    let asked = std::env::var("GPUWS_BENCH_THREADS").ok().and_then(|text| text.parse().ok());
    let counts = asked.map_or(vec![1, all.max(2)], |count| vec![count]);
    let (factorization, steps) = cholesky();
    let cases = [
        wavefront(316),
        tree((1 << 17) - 1),
        chain(100_000),
        random(100_000),
        independent(100_000),
        Arc::clone(&factorization),
    ];
    let matrix = Arc::new(Matrix::new(steps));
    for threads in counts {
        let executors = Executors::new(threads);
        start(c, &executors.gpuws);
        values(c, threads);
        for case in &cases {
            executors.measure(c, case, case.name, |node| {
                black_box(node);
            });
        }
        // Every executor must compute the same factor.
        matrix.reset();
        for node in factorization.graph.order() {
            matrix.run(node.0);
        }
        let expected = matrix.corner();
        matrix.reset();
        let work = Arc::clone(&matrix);
        run_gpuws(&executors.gpuws, &factorization, move |node| work.run(node));
        assert_eq!(matrix.corner(), expected);
        let work = Arc::clone(&matrix);
        executors.measure(c, &factorization, "cholesky-64x64", move |node| work.run(node));
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(15)
        .warm_up_time(std::time::Duration::from_millis(200))
        .measurement_time(std::time::Duration::from_millis(700));
    targets = bench
}
criterion_main!(benches);
