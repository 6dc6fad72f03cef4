//! A program that allocates device memory through PyTorch's allocator, records it, and then
//! computes how much device memory it would have needed under each allocator. With a file name as
//! argument, it saves the recording there, for `gpuws mem replay` and `gpuws mem fit`.

use gpu_allocator_policy::{
    Allocation, Caching, Failure, ModelMemory, Policy, PolicyConfig, Stream,
};
use gpu_core::Bytes;
use gpu_memory_trace::trace::{Action, Event, Format, Recording, Writer};
use gpu_memory_trace::{Workload, need};
use std::collections::BTreeMap;
use std::error::Error;
use std::io::{self, Write};

/// A policy that records its requests.
struct Recorder<P: Policy> {
    policy: P,
    trace: Writer<Vec<u8>>,
}

impl<P: Policy> Recorder<P> {
    fn allocate(&mut self, size: Bytes) -> Result<Allocation, Box<dyn Error>> {
        let given = self.policy.allocate(size, Stream(0));
        match &given {
            Ok(memory) => self.note(Action::Alloc, memory.address(), size)?,
            Err(_) => self.note(Action::OutOfMemory, Event::NOT_REPORTED, size)?,
        }
        Ok(given?)
    }

    fn free(&mut self, memory: Allocation) -> Result<(), Box<dyn Error>> {
        let (address, size) = (memory.address(), memory.size());
        self.policy.free(memory)?;
        self.note(Action::FreeRequested, address, size)?;
        self.note(Action::FreeCompleted, address, size)
    }

    fn note(&mut self, action: Action, address: u64, size: Bytes) -> Result<(), Box<dyn Error>> {
        let event = Event { action, address, size: size.0, stream: 0, time_us: 0 };
        Ok(self.trace.event(0, &event)?)
    }
}

/// A short training run: weights stay allocated, and each step allocates and frees activations.
fn job<P: Policy>(memory: &mut Recorder<P>) -> Result<(), Box<dyn Error>> {
    let weights = memory.allocate(Bytes::from_mib(96))?;
    for step in 1..=4 {
        let mut activations = Vec::new();
        for layer in 1..=8 {
            activations.push(memory.allocate(Bytes::from_mib(layer * step + 3))?);
        }
        for activation in activations {
            memory.free(activation)?;
        }
    }
    memory.free(weights)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut out = io::stdout().lock();
    // On a GPU, use `gpu_cuda::CudaMemory::open(&uuid)?`; on a simulated machine,
    // `simulation.device_memory(&device)?`. Any `DeviceMemory` works.
    let memory = ModelMemory::new(Bytes::from_mib(1024));
    let policy = Caching::new(memory, "max_split_size_mb:64".parse()?)?;

    let trace = Writer::new(Vec::new(), Format::Own, &BTreeMap::new())?;
    let mut recorder = Recorder { policy, trace };
    job(&mut recorder)?;
    let usage = recorder.policy.usage();
    let (peak, held) = (usage.peak_in_use.mib(), usage.peak_reserved.mib());
    writeln!(out, "allocated {peak} MiB at most, reserved {held} MiB")?;

    let back = recorder.policy.empty_cache()?;
    writeln!(out, "given back {} MiB", back.mib())?;

    let trace = recorder.trace.into_inner();
    if let Some(path) = std::env::args_os().nth(1) {
        std::fs::write(path, &trace)?;
    }

    let recording = Recording::read(&trace)?;
    let device = recording.devices.first().ok_or("nothing was recorded")?;
    let workload = Workload::of(device, &recording.stacks)?;
    for name in PolicyConfig::names() {
        let choice = PolicyConfig::named(name)?;
        match need(&workload, &choice) {
            Ok(need) => writeln!(out, "{:<20} {:>4} MiB", choice.title(), need.least.mib())?,
            Err(Failure::OutOfMemory(_)) => writeln!(out, "{:<20} never enough", choice.title())?,
            Err(other) => return Err(other.into()),
        }
    }
    Ok(())
}
