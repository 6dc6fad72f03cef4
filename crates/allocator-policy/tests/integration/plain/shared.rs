//! A policy for several threads.

use crate::fixture::Faulty;
use gpu_allocator_policy::bfc::Settings;
use gpu_allocator_policy::caching::{self, Caching, Event, Events};
use gpu_allocator_policy::{
    Bfc, Buffer, Direct, Failure, ModelMemory, Policy, PolicyConfig, Shared, Stream,
};
use gpu_core::{Bytes, DeviceFault};
use std::sync::Arc;
use std::thread;

fn bfc(memory: Arc<ModelMemory>) -> Shared<Bfc<Arc<ModelMemory>>> {
    let settings = Settings { limit: Some(Bytes::from_mib(64)), ..Settings::default() };
    Shared::new(Bfc::new(memory, settings).expect("a limit is set"))
}

#[test]
fn shared_and_buffer_are_send_and_sync() {
    fn sendable<T: Send + Sync + 'static>() {}
    sendable::<Shared<Bfc<ModelMemory>>>();
    sendable::<Buffer<Bfc<ModelMemory>>>();
    sendable::<Shared<Direct<Arc<dyn gpu_core::DeviceMemory>>>>();
}

#[test]
fn buffers_free_on_drop_and_may_outlive_handle() {
    let memory = Arc::new(ModelMemory::new(Bytes::from_mib(64)));
    let shared = bfc(Arc::clone(&memory));
    let first = shared.allocate(Bytes(1000), Stream(0)).expect("64 MiB are free");
    let second = shared.allocate(Bytes(1000), Stream(0)).expect("64 MiB are free");
    assert_eq!((first.size(), first.address() + 1024), (Bytes(1024), second.address()));
    let in_use = || shared.with(|bfc| bfc.in_use()).expect("no thread panicked");
    assert_eq!(in_use(), Bytes(2048));
    drop(first);
    assert_eq!(in_use(), Bytes(1024));
    drop(shared);
    assert_eq!(memory.used(), Bytes::from_mib(64), "a buffer is still there");
    drop(second);
    assert_eq!(memory.used(), Bytes(0));
}

#[test]
fn threads_allocate_and_free_concurrently() {
    let memory = Arc::new(ModelMemory::new(Bytes::from_mib(64)));
    let shared = bfc(Arc::clone(&memory));
    let workers: Vec<_> = (0..4u64)
        .map(|nth| {
            let shared = shared.clone();
            thread::spawn(move || {
                let size = |step: u64| Bytes(1 + (nth * 7919 + step * 104_729) % 100_000);
                let kept: Vec<_> =
                    (0..200).map(|step| shared.allocate(size(step), Stream(nth))).collect();
                kept.into_iter().step_by(2).collect::<Result<Vec<_>, _>>()
            })
        })
        .collect();
    let kept: Vec<_> = workers
        .into_iter()
        .flat_map(|worker| worker.join().expect("it ends").expect("64 MiB are free"))
        .collect();
    let mut ranges: Vec<_> = kept.iter().map(|one| (one.address(), one.size().0)).collect();
    ranges.sort_unstable();
    assert!(ranges.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
    let usage = shared.with(|bfc| bfc.usage()).expect("no thread panicked");
    assert_eq!((usage.allocations, kept.len()), (400, 400));
    drop((kept, shared));
    assert_eq!(memory.used(), Bytes(0));
}

#[test]
fn handle_completes_retired_buffers() {
    let shared = bfc(Arc::new(ModelMemory::new(Bytes::from_mib(64))));
    let all = shared.allocate(Bytes::from_mib(64), Stream(0)).expect("64 MiB are free");
    let retired = all.retire().expect("it belongs to this policy");
    assert!(shared.allocate(Bytes(1), Stream(0)).is_err());
    shared.complete(retired).expect("it belongs to this policy");
    assert!(shared.allocate(Bytes(1), Stream(0)).is_ok());
}

#[test]
fn set_aside_buffer_completes_on_drop() {
    let memory = Arc::new(ModelMemory::new(Bytes::from_mib(64)));
    let shared = bfc(Arc::clone(&memory));
    let all = shared.allocate(Bytes::from_mib(64), Stream(0)).expect("64 MiB are free");
    let address = all.address();
    let aside = all.set_aside().expect("it belongs to this policy");
    assert_eq!((aside.address(), memory.used()), (address, Bytes::from_mib(64)));
    assert!(shared.allocate(Bytes(1), Stream(0)).is_err());
    thread::spawn(move || drop(aside)).join().expect("it ends");
    let again = shared.allocate(Bytes(1), Stream(0)).expect("the work has ended");
    let aside = again.set_aside().expect("it belongs to this policy");
    drop(shared);
    assert_eq!(memory.used(), Bytes::from_mib(64), "something is still aside");
    drop(aside);
    assert_eq!(memory.used(), Bytes(0));
}

#[test]
fn failed_free_is_reported_and_retried_on_drop() {
    let memory = Faulty::new(Bytes::from_mib(64));
    let shared = Shared::new(Direct::new(Arc::clone(&memory)));
    let take = || shared.allocate(Bytes::from_mib(2), Stream(0)).expect("64 MiB are free");
    let (reported, silent) = (take(), take());
    memory.fail(1, DeviceFault::InUse);
    assert!(matches!(reported.free(), Err(Failure::Device(_))));
    memory.fail(1, DeviceFault::InUse);
    drop(silent);
    assert_eq!(memory.model.used(), Bytes::from_mib(4));
    drop(shared);
    assert_eq!(memory.model.used(), Bytes(0));
}

#[test]
fn panic_poisons_handle_and_drop_releases_memory() {
    let memory = Arc::new(ModelMemory::new(Bytes::from_mib(64)));
    let shared = bfc(Arc::clone(&memory));
    let (kept, freed) =
        (shared.allocate(Bytes(1), Stream(0)), shared.allocate(Bytes(1), Stream(0)));
    let other = shared.clone();
    let panicked = thread::spawn(move || other.with(|_| panic!("in the middle of its books")));
    assert!(panicked.join().is_err());
    let refused = shared.allocate(Bytes(1), Stream(0)).expect_err("it panicked");
    assert_eq!(refused.to_string(), "use the memory policy");
    assert!(freed.expect("64 MiB are free").free().is_err());
    assert!(shared.with(|bfc| bfc.usage()).is_err());
    drop((shared, kept));
    assert_eq!(memory.used(), Bytes(0));
}

#[test]
fn boxed_policy_can_be_shared() {
    let memory = Arc::new(ModelMemory::new(Bytes::from_mib(64)));
    for name in PolicyConfig::names() {
        let choice = PolicyConfig::named(name).expect("it is a name");
        let policy: Box<dyn Policy> =
            choice.build(Arc::clone(&memory)).expect("the device reports its memory");
        let name = policy.name();
        let shared = Shared::new(policy);
        let buffer = shared.allocate(Bytes::from_mib(3), Stream(0)).expect("64 MiB are free");
        let (usage, held) = shared
            .with(|policy| {
                policy.draw_from((0, 0));
                assert_eq!(policy.name(), name);
                assert_eq!((policy.in_use(), policy.reserved()), {
                    let usage = policy.usage();
                    (usage.in_use, usage.reserved)
                });
                assert!(!policy.summary().is_empty());
                (policy.usage(), policy.segments().iter().map(|segment| segment.size).sum())
            })
            .expect("no thread panicked");
        assert_eq!((usage.allocations, usage.reserved), (1, held), "of {name}");
        let retired = buffer.retire().expect("it belongs to this policy");
        shared.complete(retired).expect("it belongs to this policy");
        let emptied = shared.with(|policy| {
            policy.reset_peaks();
            policy.empty_cache().expect("the device accepts it");
            policy.usage()
        });
        assert_eq!(emptied.expect("no thread panicked").peak_in_use, Bytes(0), "of {name}");
        drop(shared);
        assert_eq!(memory.used(), Bytes(0), "of {name}");
    }
}

/// Streams whose work never ends.
#[derive(Debug)]
struct Endless;

impl Events for Endless {
    fn record(&mut self, _: Stream) -> gpu_core::Result<Event> {
        Ok(Event(1))
    }

    fn is_done(&mut self, _: Event) -> gpu_core::Result<bool> {
        Ok(false)
    }

    fn wait(&mut self, _: Event) -> gpu_core::Result<()> {
        Ok(())
    }

    fn wait_all(&mut self) -> gpu_core::Result<()> {
        Ok(())
    }
}

#[test]
fn shared_gives_access_to_policy_of_buffer() {
    let memory = ModelMemory::new(Bytes::from_mib(64));
    let settings = caching::Settings::default();
    let policy = Caching::with_events(memory, settings, Endless).expect("no limit is set");
    let shared = Shared::new(policy);
    let buffer = shared.allocate(Bytes(512), Stream(0)).expect("64 MiB are free");
    let address = buffer.address();
    let recorded = buffer.with(|policy, memory| policy.record_stream(memory, Stream(7)));
    recorded.expect("no thread panicked").expect("it belongs to this policy");
    drop(buffer);
    let next = shared.allocate(Bytes(512), Stream(0)).expect("64 MiB are free");
    assert_ne!(next.address(), address, "stream 7 may use it");
}
