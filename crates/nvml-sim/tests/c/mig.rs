use crate::fixture::{Stage, session, text};
use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlMemory_t, nvmlProcessInfo_t};
use std::ffi::CString;
use std::ptr::null_mut;

fn instance(stage: &Stage, index: u32) -> Result<nvmlDevice_t, u32> {
    let mut mig = null_mut();
    // SAFETY: the handle outlives the call.
    match unsafe {
        stage.nvml.nvmlDeviceGetMigDeviceHandleByIndex(stage.device(0), index, &mut mig)
    } {
        0 => Ok(mig),
        code => Err(code),
    }
}

#[test]
fn mig_devices_have_their_own_handles() {
    let stage = Stage::begun(session("mig-a100"));
    let nvml = stage.nvml;
    let gpu = stage.device(0);
    let (mut current, mut pending, mut most) = (0, 0, 0);
    // SAFETY: the values outlive the calls.
    unsafe {
        assert_eq!(nvml.nvmlDeviceGetMigMode(gpu, &mut current, &mut pending), 0);
        assert_eq!(nvml.nvmlDeviceGetMaxMigDeviceCount(gpu, &mut most), 0);
    }
    assert_eq!((current, pending, most), (1, 1, 3));
    let expected = [(1, 19968 << 20), (5, 9856 << 20), (6, 9856 << 20)];
    for (index, (gpu_instance, total)) in expected.into_iter().enumerate() {
        let mig = instance(&stage, index as u32).unwrap();
        let (mut is_mig, mut gi, mut ci, mut parent) = (0, 0, 9, null_mut());
        let mut memory = nvmlMemory_t { total: 0, free: 0, used: 0 };
        // SAFETY: as above.
        unsafe {
            assert_eq!(nvml.nvmlDeviceIsMigDeviceHandle(mig, &mut is_mig), 0);
            assert_eq!(nvml.nvmlDeviceGetGpuInstanceId(mig, &mut gi), 0);
            assert_eq!(nvml.nvmlDeviceGetComputeInstanceId(mig, &mut ci), 0);
            let parent = &mut parent;
            assert_eq!(nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(mig, parent), 0);
            assert_eq!(nvml.nvmlDeviceGetMemoryInfo(mig, &mut memory), 0);
        }
        assert_eq!((is_mig, gi, ci, parent), (1, gpu_instance, 0, gpu));
        assert_eq!(memory.total, total);
        assert_eq!(memory.free, memory.total - memory.used);
        assert_eq!(stage.temperature(mig).0, 3, "an instance has no sensor");
    }
    assert_eq!(instance(&stage, 3), Err(6));
}

#[test]
fn mig_device_is_found_by_uuid_and_lists_its_processes() {
    let stage = Stage::begun(session("mig-a100"));
    let nvml = stage.nvml;
    for (index, listed) in [(0, 1), (1, 0), (2, 0)] {
        let mig = instance(&stage, index).unwrap();
        // SAFETY: the buffer has the stated length.
        let uuid = text(|buffer, length| unsafe { nvml.nvmlDeviceGetUUID(mig, buffer, length) });
        let uuid = uuid.unwrap();
        assert!(uuid.starts_with("MIG-") && uuid.len() == 40, "{uuid}");
        let (name, mut found) = (CString::new(uuid).unwrap(), null_mut());
        // SAFETY: the text and the handle outlive the call.
        assert_eq!(unsafe { nvml.nvmlDeviceGetHandleByUUID(name.as_ptr(), &mut found) }, 0);
        assert_eq!(found, mig);
        let mut infos: [nvmlProcessInfo_t; 4] = [nvmlProcessInfo_t {
            pid: 0,
            usedGpuMemory: 0,
            gpuInstanceId: 9,
            computeInstanceId: 9,
        }; 4];
        let mut count = 4;
        // SAFETY: the buffer has room for four.
        let code = unsafe {
            nvml.nvmlDeviceGetComputeRunningProcesses_v3(mig, &mut count, infos.as_mut_ptr())
        };
        assert_eq!((code, count), (0, listed));
        if listed > 0 {
            let info = infos[0];
            assert_eq!((info.pid, info.gpuInstanceId, info.computeInstanceId), (15010, 1, 0));
        }
    }
}

#[test]
fn whole_device_is_not_a_mig_device() {
    let stage = Stage::begun(session("labbox"));
    let (mut is_mig, mut id, mut parent) = (9, 0, null_mut());
    let gpu = stage.device(0);
    // SAFETY: the values outlive the calls.
    unsafe {
        assert_eq!(stage.nvml.nvmlDeviceIsMigDeviceHandle(gpu, &mut is_mig), 0);
        assert_eq!(stage.nvml.nvmlDeviceGetGpuInstanceId(gpu, &mut id), 2);
        let parent = &mut parent;
        assert_eq!(stage.nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(gpu, parent), 2);
    }
    assert_eq!(is_mig, 0);
    assert_eq!(instance(&stage, 0), Err(6));
}
