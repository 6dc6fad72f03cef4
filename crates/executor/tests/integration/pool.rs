//! Runs on threads.

use crate::Ticks;
use gpu_core::Clock;
use gpu_executor::{Cancel, Context, NodeIx, Options, Pool, RunError, TaskGraph};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

fn graph(nodes: usize, edges: &[(u32, u32)]) -> Arc<TaskGraph> {
    Arc::new(TaskGraph::from_edges(nodes, edges.iter().copied()).expect("there is no cycle"))
}

/// One node, then many, then one.
fn fan(width: u32) -> Arc<TaskGraph> {
    let edges = (1..=width).flat_map(|node| [(0, node), (node, width + 1)]);
    Arc::new(TaskGraph::from_edges(width as usize + 2, edges).expect("there is no cycle"))
}

#[test]
fn kernels_borrow_data_of_the_caller() {
    let graph = TaskGraph::from_edges(3, [(0, 1), (1, 2)]).expect("there is no cycle");
    let sum = AtomicU64::new(0);
    Pool::scope(2, |pool| {
        for _ in 0..3 {
            let kernel = |node: NodeIx, _: &Context<'_, '_>| {
                sum.fetch_add(node.0.into(), Ordering::Relaxed);
                Ok::<(), Infallible>(())
            };
            // The closure holds only a reference to `sum`.
            let report = pool.run(&graph, kernel, &Options::default()).expect("no kernel fails");
            assert_eq!(report.nodes, 3);
        }
    });
    assert_eq!(sum.into_inner(), 9);
}

#[test]
fn context_has_the_thread_and_the_number_of_threads() {
    for threads in [1, 3] {
        let pool = Pool::new(threads).expect("threads can be created");
        let kernel = move |_: NodeIx, context: &Context<'_, '_>| {
            assert_eq!(context.threads(), threads);
            assert!(context.thread() < threads);
            let shown = format!("Context {{ thread: {}, .. }}", context.thread());
            assert_eq!(format!("{context:?}"), shown);
            Ok::<(), Infallible>(())
        };
        let report = pool.run(fan(8), kernel, &Options::default()).expect("no kernel fails");
        assert_eq!(report.nodes, 10);
    }
    assert_eq!(Context::alone().threads(), 1);
}

#[test]
fn clock_records_when_each_node_ran() {
    for threads in [1, 2] {
        let pool = Pool::new(threads).expect("threads can be created");
        let run = |options: &Options| {
            let edges = [(0, 1), (1, 2)];
            pool.run(graph(3, &edges), |_, _| Ok::<(), ()>(()), options).expect("no kernel fails")
        };
        let clock: Arc<dyn Clock> = Arc::new(Ticks::default());
        let options = Options { clock: Some(clock), ..Options::default() };
        assert_eq!(format!("{options:?}"), "Options { cancel: None, has_clock: true }");
        let trace = run(&options).trace.expect("there is a clock");
        let times = trace.spans.iter().map(|of| (of.node.0, of.start_nanos, of.end_nanos));
        // The clock is read once before the run, and before and after each node.
        let expected = [(0, 1000, 2000), (1, 3000, 4000), (2, 5000, 6000)];
        assert_eq!(times.collect::<Vec<_>>(), expected);
        let lanes: Vec<_> = trace.lanes.iter().map(|of| (&*of.process, &*of.name)).collect();
        assert_eq!(lanes, [("threads", "thread 0"), ("threads", "thread 1")][..threads]);
        assert_eq!(run(&Options::default()).trace, None);
    }
}

#[test]
fn empty_graph_runs() {
    for threads in [1, 2] {
        let pool = Pool::new(threads).expect("threads can be created");
        assert_eq!(format!("{pool:?}"), format!("Pool {{ threads: {threads}, .. }}"));
        let report = pool.run(graph(0, &[]), |_, _| Ok::<(), ()>(()), &Options::default());
        assert_eq!(report.expect("there is no kernel").nodes, 0);
    }
}

#[test]
fn error_names_its_node_and_ends_the_run() {
    for threads in [1, 3] {
        let pool = Pool::new(threads).expect("threads can be created");
        let ran = Arc::new(AtomicBool::new(false));
        let after = Arc::clone(&ran);
        let kernel = move |node: NodeIx, _: &Context<'_, '_>| match node.0 {
            1 => Err("no memory"),
            2 => {
                after.store(true, Ordering::Relaxed);
                Ok(())
            }
            _ => Ok(()),
        };
        let error = pool.run(graph(3, &[(0, 1), (1, 2)]), kernel, &Options::default()).unwrap_err();
        let name = "node 1".to_owned();
        assert_eq!(error, RunError::Kernel { node: NodeIx(1), name, error: "no memory" });
        assert!(!ran.load(Ordering::Relaxed));
        // The pool still works.
        pool.run(fan(100), |_, _| Ok::<(), ()>(()), &Options::default()).expect("nothing fails");
    }
}

#[test]
fn kernel_panic_error_names_its_node() {
    for threads in [1, 3] {
        let pool = Pool::new(threads).expect("threads can be created");
        let kernel = |node: NodeIx, _: &Context<'_, '_>| {
            assert!(node.0 != 7, "seven is too much");
            Ok::<(), ()>(())
        };
        let error = pool.run(fan(20), kernel, &Options::default()).unwrap_err();
        let RunError::Panicked { node, message, .. } = error else { panic!("{error:?}") };
        assert_eq!((node, message.as_str()), (NodeIx(7), "seven is too much"));
    }
}

#[test]
fn canceled_run_ends_between_nodes() {
    for threads in [1, 2] {
        let pool = Pool::new(threads).expect("threads can be created");
        let cancel = Cancel::default();
        let count = Arc::new(AtomicUsize::new(0));
        let (inside, counter) = (cancel.clone(), Arc::clone(&count));
        let kernel = move |node: NodeIx, _: &Context<'_, '_>| {
            counter.fetch_add(1, Ordering::Relaxed);
            if node.0 == 4 {
                inside.cancel();
            }
            Ok::<(), ()>(())
        };
        let options = Options { cancel: Some(cancel), clock: None };
        let edges: Vec<(u32, u32)> = (1..10).map(|node| (node - 1, node)).collect();
        let error = pool.run(graph(10, &edges), kernel, &options).unwrap_err();
        assert_eq!((error, count.load(Ordering::Relaxed)), (RunError::Canceled, 5));
    }
}

#[test]
fn pool_within_its_own_kernel_is_busy() {
    let pool = Arc::new(Pool::new(2).expect("threads can be created"));
    let inner = Arc::clone(&pool);
    let kernel = move |_: NodeIx, _: &Context<'_, '_>| {
        let result = inner.run(graph(1, &[]), |_, _| Ok::<(), ()>(()), &Options::default());
        result.map(|_| ())
    };
    let error = pool.run(graph(1, &[]), kernel, &Options::default()).unwrap_err();
    assert!(matches!(error, RunError::Kernel { error: RunError::Busy, .. }), "{error:?}");
}

/// Two kernels that wait for each other require two threads at the same time.
#[test]
fn ready_nodes_run_at_the_same_time() {
    let pool = Pool::new(2).expect("threads can be created");
    for _ in 0..50 {
        let barrier = std::sync::Barrier::new(2);
        let kernel = move |node: NodeIx, _: &Context<'_, '_>| {
            if (1..=2).contains(&node.0) {
                barrier.wait();
            }
            Ok::<(), ()>(())
        };
        pool.run(fan(2), kernel, &Options::default()).expect("nothing fails");
    }
}

/// Two sources; a thread takes one at a time.
#[test]
fn sources_run_at_the_same_time() {
    let pool = Pool::new(3).expect("threads can be created");
    for _ in 0..50 {
        let barrier = std::sync::Barrier::new(3);
        let kernel = move |_: NodeIx, _: &Context<'_, '_>| {
            barrier.wait();
            Ok::<(), ()>(())
        };
        pool.run(graph(3, &[]), kernel, &Options::default()).expect("nothing fails");
    }
}

#[test]
fn parts_of_a_range_cover_it_and_nest() {
    for threads in [1, 3] {
        let pool = Pool::new(threads).expect("threads can be created");
        let total = Arc::new(AtomicUsize::new(0));
        let sum = Arc::clone(&total);
        let kernel = move |_: NodeIx, context: &Context<'_, 'static>| {
            let sum = Arc::clone(&sum);
            let outer = context.parallel_map(3..40, 5, |part| part.clone().map(|x| x as u64).sum());
            let outer: Vec<u64> = outer;
            assert_eq!(outer.len(), 8);
            assert_eq!(outer.iter().sum::<u64>(), (3..40).sum::<u64>());
            context.parallel_for(0..100, 7, move |part| {
                sum.fetch_add(part.len(), Ordering::Relaxed);
            });
            Ok::<(), ()>(())
        };
        pool.run(fan(30), kernel, &Options::default()).expect("nothing fails");
        assert_eq!(total.load(Ordering::Relaxed), 32 * 100);
    }
}

/// Parts that wait for each other require several threads.
#[test]
fn parts_run_on_idle_threads() {
    let pool = Pool::new(2).expect("threads can be created");
    for _ in 0..50 {
        let barrier = Arc::new(std::sync::Barrier::new(2));
        let kernel = move |_: NodeIx, context: &Context<'_, 'static>| {
            let barrier = Arc::clone(&barrier);
            context.parallel_for(0..2, 1, move |_| {
                barrier.wait();
            });
            Ok::<(), ()>(())
        };
        pool.run(graph(1, &[]), kernel, &Options::default()).expect("nothing fails");
    }
}

/// The thread that started the run finds no more work and sleeps; the last node ends on another
/// thread.
#[test]
#[expect(clippy::disallowed_methods, reason = "the other thread has to fall asleep meanwhile")]
fn last_node_wakes_starting_thread() {
    let pool = Pool::new(2).expect("threads can be created");
    let has_begun = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&has_begun);
    let kernel = move |_: NodeIx, context: &Context<'_, 'static>| {
        if context.thread() == 0 {
            while !seen.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
        } else {
            seen.store(true, Ordering::Release);
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        Ok::<(), ()>(())
    };
    pool.run(graph(2, &[]), kernel, &Options::default()).expect("nothing fails");
    assert!(has_begun.load(Ordering::Acquire));
}

#[test]
fn panic_of_a_part_becomes_panic_of_its_kernel() {
    for threads in [1, 2] {
        let pool = Pool::new(threads).expect("threads can be created");
        let kernel = |_: NodeIx, context: &Context<'_, 'static>| {
            context.parallel_for(0..10, 1, |part| assert!(part.start != 3, "three"));
            Ok::<(), ()>(())
        };
        let error = pool.run(graph(1, &[]), kernel, &Options::default()).unwrap_err();
        assert!(matches!(error, RunError::Panicked { message, .. } if message == "three"));
    }
}
