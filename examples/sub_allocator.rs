//! Divides the memory of a device like PyTorch, and shows the requests that reach the device.
//!
//! The device is simulated. `gpu_allocator_policy::ModelMemory` needs no machine, and
//! `gpu_cuda::CudaMemory` is a real device.

use gpu_allocator_policy::{Caching, Policy, Stream};
use gpu_core::{Bytes, DeviceMemory, GpuBackend};
use gpu_sim::Simulation;
use std::error::Error;
use std::sync::Arc;

fn main() -> Result<(), Box<dyn Error>> {
    let machine = Simulation::embedded("healthy-box")?;
    let device = machine.devices()?.remove(0);
    let memory = Arc::new(machine.device_memory(&device.id)?);
    let idle = memory.info()?.used?;

    let mut policy = Caching::new(memory.clone(), "max_split_size_mb:64".parse()?)?;
    let weights = policy.allocate(Bytes::from_mib(3), Stream(0))?;
    let batch = policy.allocate(Bytes::from_mib(5), Stream(0))?;
    let show = |step: &str, policy: &dyn Policy| -> Result<(), Box<dyn Error>> {
        let taken = memory.info()?.used?.saturating_sub(idle).mib();
        let (in_use, reserved) = (policy.in_use().mib(), policy.reserved().mib());
        println!("{step}: {in_use} MiB in use, {reserved} MiB reserved, {taken} MiB of the device");
        Ok(())
    };
    show("two tensors", &policy)?;
    policy.free(batch)?;
    show("one freed", &policy)?;
    policy.free(weights)?;
    let returned = policy.empty_cache()?.mib();
    show("cache empty", &policy)?;
    println!("returned {returned} MiB");
    Ok(())
}
