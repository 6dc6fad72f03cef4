//! Contexts are held by UUID until they are dropped, even on old drivers.

use crate::stand_in::{StandIn, device, failing, failing_code, log, on, on_each};
use gpu_core::{DeviceFault, DeviceUuid, ErrorKind, MachineFault};
use gpu_cuda::CudaContexts;

fn held_until_drop() {
    let both = CudaContexts::hold(&[device(1), device(0)]).unwrap();
    let one = CudaContexts::hold(&[device(1)]).unwrap();
    assert_eq!(log(), ["retain 8", "retain 7", "retain 8"]);
    drop(both);
    assert_eq!(log()[3..], ["release 8", "release 7"]);
    drop(one);
    assert_eq!(log()[5..], ["release 8"]);
}

#[test]
fn contexts_are_held_by_uuid_until_drop() {
    let name = "contexts::contexts_are_held_by_uuid_until_drop";
    on(StandIn::default(), name, held_until_drop);
}

#[test]
fn old_driver_holds_contexts() {
    let name = "contexts::old_driver_holds_contexts";
    on(StandIn { defines: &["OLD"], ..StandIn::default() }, name, held_until_drop);
}

#[test]
fn failed_context_creation_releases_others() {
    let name = "contexts::failed_context_creation_releases_others";
    on_each(
        &failing(["cuDevicePrimaryCtxRetain 1 2", "cuDevicePrimaryCtxRetain 1 46"]),
        name,
        || {
            let error = CudaContexts::hold(&[device(0), device(1)]).unwrap_err();
            let kind = match failing_code() {
                2 => DeviceFault::OutOfMemory,
                code => DeviceFault::Unknown(code),
            };
            assert_eq!(error.kind(), kind.into());
            assert!(error.fault().text.ends_with(&format!("CUDA error {}", failing_code())));
            assert_eq!(log(), ["retain 7", "release 7"]);
        },
    );
}

#[test]
fn invisible_device_is_rejected() {
    on(StandIn::default(), "contexts::invisible_device_is_rejected", || {
        let other = DeviceUuid("GPU-ffffffff-0405-0607-0809-0a0b0c0d0e0f".into());
        let error = CudaContexts::hold(&[device(0), other]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert_eq!(log(), ["retain 7", "release 7"]);
    });
}

#[test]
fn failed_initialisation_names_its_cause() {
    let name = "contexts::failed_initialisation_names_its_cause";
    let calls = ["cuInit 1 34", "cuInit 1 100", "cuInit 1 803", "cuInit 1 999"];
    on_each(&failing(calls), name, || {
        let error = CudaContexts::hold(&[device(0)]).unwrap_err();
        let fault = match failing_code() {
            34 => MachineFault::NoLibrary,
            100 => MachineFault::NoDevices,
            803 => MachineFault::VersionMismatch,
            code => MachineFault::Unknown(code),
        };
        assert_eq!(error.kind(), fault.into());
        assert!(error.fault().text.contains(&format!("CUDA error {}", failing_code())));
    });
}
