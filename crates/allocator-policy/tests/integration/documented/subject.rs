//! The policy and the device of an example.

use crate::documented::amount::bytes;
use gpu_allocator_policy::caching::{self, Caching, Event, Events};
use gpu_allocator_policy::{
    Allocation, Bfc, Direct, Failure, ModelMemory, Policy, Stream, StreamOrdered, bfc,
    stream_ordered,
};
use gpu_core::Bytes;
use std::sync::{Arc, Mutex};

/// The lowest address of the modelled device.
pub(crate) const BASE: u64 = 0x7f00_0000_0000;

/// Streams with work that ends when the example ends it.
#[derive(Clone, Default)]
pub(crate) struct Work(Arc<Mutex<Vec<(u64, bool)>>>);

impl Work {
    fn finish(&self, stream: u64) {
        for (of, done) in self.0.lock().expect("no thread panicked").iter_mut() {
            *done |= *of == stream;
        }
    }
}

impl Events for Work {
    fn record(&mut self, stream: Stream) -> gpu_core::Result<Event> {
        let mut events = self.0.lock().expect("no thread panicked");
        events.push((stream.0, false));
        Ok(Event(events.len() as u64 - 1))
    }

    fn is_done(&mut self, event: Event) -> gpu_core::Result<bool> {
        Ok(self.0.lock().expect("no thread panicked")[event.0 as usize].1)
    }

    fn wait(&mut self, event: Event) -> gpu_core::Result<()> {
        self.0.lock().expect("no thread panicked")[event.0 as usize].1 = true;
        Ok(())
    }

    fn wait_all(&mut self) -> gpu_core::Result<()> {
        Ok(())
    }
}

/// The policy of an example.
pub(crate) enum Subject {
    Caching(Box<Caching<ModelMemory, Work>>, Work),
    Bfc(Box<Bfc<ModelMemory>>),
    StreamOrdered(Box<StreamOrdered<ModelMemory>>),
    Direct(Box<Direct<ModelMemory>>),
}

impl Subject {
    /// Creates the subject that a comment describes by policy, settings and device, as in `bfc;
    /// limit=16MiB, allow_growth=true; 32 MiB`.
    pub(crate) fn named(on: &str) -> Self {
        let [policy, settings, device]: [&str; 3] =
            on.split("; ").collect::<Vec<_>>().try_into().expect("policy; settings; device");
        let memory = ModelMemory::new(Bytes(bytes(device)));
        match policy {
            "caching" => {
                let settings: caching::Settings = settings.parse().expect("settings");
                let work = Work::default();
                let caching = Caching::with_events(memory, settings, work.clone());
                Subject::Caching(Box::new(caching.expect("the device reports its size")), work)
            }
            "bfc" => {
                let mut set = bfc::Settings::default();
                for (key, value) in settings.split(", ").filter_map(|pair| pair.split_once('=')) {
                    set.set(key, value).expect("it is a setting");
                }
                Subject::Bfc(Box::new(Bfc::new(memory, set).expect("the device reports its size")))
            }
            "stream-ordered" => {
                let pool = StreamOrdered::new(memory, stream_ordered::Settings::default());
                Subject::StreamOrdered(Box::new(pool))
            }
            "direct" => Subject::Direct(Box::new(Direct::new(memory))),
            _ => panic!("'{policy}'"),
        }
    }

    pub(crate) fn policy(&mut self) -> &mut dyn Policy {
        match self {
            Subject::Caching(caching, _) => caching.as_mut(),
            Subject::Bfc(bfc) => bfc.as_mut(),
            Subject::StreamOrdered(pool) => pool.as_mut(),
            Subject::Direct(direct) => direct.as_mut(),
        }
    }

    /// Allocates memory; `None` if there is not enough.
    pub(crate) fn allocate(&mut self, size: u64, stream: u64) -> Option<Allocation> {
        granted(self.policy().allocate(Bytes(size), Stream(stream)))
    }

    /// Allocates memory for work that runs after all work that may use retired memory.
    pub(crate) fn allocate_behind(&mut self, size: u64) -> Option<Allocation> {
        let Subject::Bfc(bfc) = self else { panic!("it has timestamps") };
        granted(bfc.allocate_behind(Bytes(size)))
    }

    pub(crate) fn synchronize(&mut self) {
        let Subject::StreamOrdered(pool) = self else { panic!("it has streams") };
        pool.synchronize(None).expect("the device works");
    }

    pub(crate) fn record(&mut self, allocation: &Allocation, stream: u64) {
        let Subject::Caching(caching, _) = self else { panic!("it has streams") };
        caching.record_stream(allocation, Stream(stream)).expect("it belongs to this policy");
    }

    pub(crate) fn finish(&mut self, stream: u64) {
        let Subject::Caching(_, work) = self else { panic!("it has streams") };
        work.finish(stream);
    }
}

fn granted(given: Result<Allocation, Failure>) -> Option<Allocation> {
    match given {
        Ok(allocation) => Some(allocation),
        Err(Failure::OutOfMemory(_)) => None,
        Err(other) => panic!("{other}"),
    }
}
