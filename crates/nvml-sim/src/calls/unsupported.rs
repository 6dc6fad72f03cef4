//! Functions that callers need to find, of whose subject no simulated machine tells anything.

use crate::code::Code;
use crate::entry::exports;
use crate::pointer::{In, Out};
use std::ffi::c_void;

/// A table of functions that are in no public header. It begins with its own size in bytes, by
/// which callers tell whether a function is in it; in this one there is none.
static NO_FUNCTIONS: usize = size_of::<usize>();

exports! {
    machine [nvmlInternalGetExportTable](table: Out<&'static usize>, _id: In<c_void>) |_| {
        // nvidia-smi does not start without one, and starts with an empty one.
        table.put(&NO_FUNCTIONS)
    }

    // nvidia-smi and nvitop take a missing function for a fault of the installation and say so in
    // the place of a value. What their other arguments are does not matter: none is written to.
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
        nvmlDeviceGetRowRemapperHistogram,
        nvmlDeviceGetRunningProcessDetailList,
        nvmlDeviceGetSamples,
        nvmlDeviceGetSramEccErrorStatus,
        nvmlDeviceGetSupportedGraphicsClocks,
        nvmlDeviceGetSupportedMemoryClocks,
        nvmlDeviceGetViolationStatus,
        nvmlDeviceGetVirtualizationMode,
        nvmlDeviceValidateInforom,
    ]() |_| {
        Err(Code::NOT_SUPPORTED)
    }
}
