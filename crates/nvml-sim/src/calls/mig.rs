//! MIG instances.

use crate::code::Code;
use crate::entry::exports;
use crate::pointer::{Handle, Out, put_all};
use gpu_core::Absent;
use std::ffi::c_uint;

exports! {
    gpu [nvmlDeviceGetMigMode](current: Out<c_uint>, pending: Out<c_uint>) |gpu| {
        let now = gpu.state.info.partitioned?;
        let next = gpu.modes().ok().and_then(|modes| modes.mig_pending.ok()).unwrap_or(now);
        put_all([(current, now.into()), (pending, next.into())])
    }

    device [nvmlDeviceIsMigDeviceHandle](is_mig: Out<c_uint>) |subject| {
        is_mig.put(subject.mig.is_some().into())
    }

    gpu [nvmlDeviceGetMaxMigDeviceCount](count: Out<c_uint>) |gpu| {
        // The current number, because the possible maximum is unknown.
        let numbers = gpu.instances()?.iter().map(|mig| mig.index + 1);
        count.put(numbers.max().unwrap_or(0))
    }

    gpu [nvmlDeviceGetMigDeviceHandleByIndex](index: c_uint, mig: Out<Handle>) |gpu| {
        let found = gpu.instances()?.iter().find(|mig| mig.index == index);
        mig.put(Handle::of_mig(gpu.index(), found.ok_or(Code::NOT_FOUND)?.index))
    }

    device [nvmlDeviceGetDeviceHandleFromMigDeviceHandle](device: Out<Handle>) |subject| {
        subject.mig.ok_or(Code::INVALID_ARGUMENT)?;
        device.put(Handle::of_gpu(subject.index()))
    }

    device [nvmlDeviceGetGpuInstanceId](id: Out<c_uint>) |subject| {
        let mig = subject.mig.ok_or(Code::INVALID_ARGUMENT)?;
        id.put(mig.gpu_instance.ok_or(Absent::NotSupported)?)
    }

    device [nvmlDeviceGetComputeInstanceId](id: Out<c_uint>) |subject| {
        let mig = subject.mig.ok_or(Code::INVALID_ARGUMENT)?;
        id.put(mig.compute_instance.ok_or(Absent::NotSupported)?)
    }
}
