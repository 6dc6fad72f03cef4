//! Functions that callers require, about subjects that no simulated machine describes.

use crate::code::Code;
use crate::entry::exports;
use crate::pointer::{In, Out};
use std::ffi::c_void;

/// A table of functions that are in no public header. It starts with its own size in bytes, by
/// which callers check whether a function is in it; this one has none.
static NO_FUNCTIONS: usize = size_of::<usize>();

exports! {
    machine [nvmlInternalGetExportTable](table: Out<&'static usize>, _id: In<c_void>) |_| {
        // nvidia-smi does not start without one, and starts with an empty one.
        table.put(&NO_FUNCTIONS)
    }

    // nvidia-smi and nvitop take a missing function for a broken installation and print so in the
    // place of a value. The other arguments do not matter: none is written to.
    device [
        nvmlDeviceGetAttributes_v2,
        nvmlDeviceGetAutoBoostedClocksEnabled,
        nvmlDeviceGetBoardId,
        nvmlDeviceGetBridgeChipInfo,
        nvmlDeviceGetConfComputeMemSizeInfo,
        nvmlDeviceGetCpuAffinity,
        nvmlDeviceGetDetailedEccErrors,
        nvmlDeviceGetDriverModel,
        nvmlDeviceGetDriverModel_v2,
        nvmlDeviceGetEncoderSessions,
        nvmlDeviceGetFBCSessions,
        nvmlDeviceGetFBCStats,
        nvmlDeviceGetGridLicensableFeatures_v4,
        nvmlDeviceGetGspFirmwareVersion,
        nvmlDeviceGetHostVgpuMode,
        nvmlDeviceGetInforomConfigurationChecksum,
        nvmlDeviceGetLastBBXFlushTime,
        nvmlDeviceGetMaxCustomerBoostClock,
        nvmlDeviceGetMemoryAffinity,
        nvmlDeviceGetModuleId,
        nvmlDeviceGetMultiGpuBoard,
        nvmlDeviceGetRetiredPages_v2,
        nvmlDeviceGetRunningProcessDetailList,
        nvmlDeviceGetSamples,
        nvmlDeviceGetSupportedGraphicsClocks,
        nvmlDeviceGetSupportedMemoryClocks,
        nvmlDeviceGetViolationStatus,
        nvmlDeviceGetVirtualizationMode,
        nvmlDeviceValidateInforom,
    ]() |_| {
        Err(Code::NOT_SUPPORTED)
    }
}
