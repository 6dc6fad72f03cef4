//! A missing driver, or a driver that lacks a function, causes an error instead of a panic.

use crate::stand_in::{StandIn, device, on};
use gpu_core::{Absent, DeviceMemory, ErrorKind, MachineFault};
use gpu_cuda::{CudaContexts, CudaMemory, CudaPool};

#[test]
fn missing_driver_is_reported() {
    let missing = StandIn { is_missing: true, ..StandIn::default() };
    on(missing, "presence::missing_driver_is_reported", || {
        let error = CudaContexts::hold(&[device(0)]).unwrap_err();
        let is_installed = error.kind() == ErrorKind::Invalid;
        // If the machine has its own driver, it does not know the device.
        assert!(is_installed || error.kind() == MachineFault::NoLibrary.into(), "{error:?}");
        assert!(CudaMemory::open(&device(0)).is_err() && CudaPool::open(&device(0)).is_err());
        assert!(gpu_cuda::open(&device(0)).is_err());
    });
}

#[test]
fn old_driver_has_plain_memory_and_no_pool() {
    let old = StandIn { defines: &["OLD"], ..StandIn::default() };
    on(old, "presence::old_driver_has_plain_memory_and_no_pool", || {
        let memory = CudaMemory::open(&device(0)).unwrap();
        assert_eq!(memory.page().unwrap_err().kind(), ErrorKind::Unsupported);
        for error in
            [CudaPool::open(&device(0)).unwrap_err(), gpu_cuda::open(&device(0)).unwrap_err()]
        {
            assert_eq!(error.kind(), Absent::TooOld.into(), "{error:?}");
            assert_eq!(error.fault().text, "find cuDevicePrimaryCtxRelease_v2 in the CUDA driver");
        }
    });
}

#[test]
fn device_without_pools_is_unsupported() {
    let without = StandIn { defines: &["NO_POOLS"], ..StandIn::default() };
    on(without, "presence::device_without_pools_is_unsupported", || {
        let error = CudaPool::open(&device(0)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(gpu_cuda::open(&device(0)).is_ok());
    });
}
