//! This machine's own CUDA driver.

use gpu_core::GpuBackend;
use gpu_cuda::CudaMemory;
use gpu_nvidia::Nvml;
use std::io::Write;

/// Opens the memory of this machine's first GPU, or prints why there is none.
pub(crate) fn real_gpu(test: &str) -> Option<CudaMemory> {
    let opened = Nvml::open(None).and_then(|nvml| {
        let devices = if nvml.simulated().is_some() { Vec::new() } else { nvml.devices()? };
        devices
            .into_iter()
            .find_map(|device| device.id.uuid.ok())
            .map_or(Ok(None), |uuid| CudaMemory::open(&uuid).map(Some))
    });
    let why = match opened {
        Ok(Some(memory)) => return Some(memory),
        Ok(None) => "this machine has no GPU".to_owned(),
        Err(error) => error.fault().to_string(),
    };
    writeln!(std::io::stderr(), "skipped: {test}: {why}").expect("stderr can be written");
    None
}
