//! Functions that callers require but no simulated machine supports.

use crate::code::Code;
use crate::entry::exports;
use crate::pointer::{In, Out};
use std::ffi::c_void;

/// An internal function table, which no public header declares. It starts with its own size in
/// bytes, so that callers can check which functions it has; this one has none.
static NO_FUNCTIONS: usize = size_of::<usize>();

exports! {
    machine [nvmlInternalGetExportTable](table: Out<&'static usize>, _id: In<c_void>) |_| {
        // nvidia-smi requires this table to start, but accepts an empty one.
        table.put(&NO_FUNCTIONS)
    }

    // If one of these functions is missing, nvidia-smi and nvitop print an installation error in
    // place of the value. The omitted arguments do not matter, because the functions write to none.
    device [
        nvmlDeviceGetAttributes_v2,
        nvmlDeviceGetAutoBoostedClocksEnabled,
        nvmlDeviceGetBoardId,
        nvmlDeviceGetBridgeChipInfo,
        nvmlDeviceGetConfComputeMemSizeInfo,
        nvmlDeviceGetCpuAffinity,
        nvmlDeviceGetDetailedEccErrors,
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
        nvmlDeviceGetModuleId,
        nvmlDeviceGetMultiGpuBoard,
        nvmlDeviceGetRetiredPages_v2,
        nvmlDeviceGetRunningProcessDetailList,
        nvmlDeviceGetSamples,
        nvmlDeviceGetViolationStatus,
    ]() |_| {
        Err(Code::NOT_SUPPORTED)
    }
}
