//! Compares the structs and numbers with those that bindgen generates from the public header.

use crate::calls::fields::id;
use crate::code::Code;
use crate::event_set::kind;
use crate::layout::*;
use nvml_wrapper_sys::bindings as c;
use std::mem::offset_of;

/// Compares size, alignment and field offsets.
macro_rules! same {
    ($ours:ident, $theirs:ident { $($our:ident: $their:ident),* $(,)? }) => {
        let what = stringify!($theirs);
        assert_eq!(size_of::<$ours>(), size_of::<c::$theirs>(), "{what}");
        assert_eq!(align_of::<$ours>(), align_of::<c::$theirs>(), "{what}");
        let fields = [$((
            offset_of!($ours, $our), offset_of!(c::$theirs, $their), stringify!($their),
        )),*];
        for (ours, theirs, field) in fields {
            assert_eq!(ours, theirs, "{what}.{field}");
        }
    };
}

#[test]
fn struct_layouts_match_c() {
    same!(
        PciInfo3,
        nvmlPciInfo_t {
            bus_id_legacy: busIdLegacy,
            domain: domain,
            bus: bus,
            device: device,
            pci_device_id: pciDeviceId,
            pci_sub_system_id: pciSubSystemId,
            bus_id: busId,
        }
    );
    same!(Memory1, nvmlMemory_t { total: total, free: free, used: used });
    same!(
        Memory2,
        nvmlMemory_v2_t {
            version: version,
            total: total,
            reserved: reserved,
            free: free,
            used: used,
        }
    );
    same!(Bar1Memory, nvmlBAR1Memory_t { total: bar1Total, free: bar1Free, used: bar1Used });
    same!(Utilization, nvmlUtilization_t { gpu: gpu, memory: memory });
    same!(ProcessInfo1, nvmlProcessInfo_v1_t { pid: pid, used_gpu_memory: usedGpuMemory });
    same!(
        ProcessInfo2,
        nvmlProcessInfo_v2_t {
            pid: pid,
            used_gpu_memory: usedGpuMemory,
            gpu_instance_id: gpuInstanceId,
            compute_instance_id: computeInstanceId,
        }
    );
    same!(
        ProcessInfo2,
        nvmlProcessInfo_t {
            pid: pid,
            used_gpu_memory: usedGpuMemory,
            gpu_instance_id: gpuInstanceId,
            compute_instance_id: computeInstanceId,
        }
    );
    same!(
        ProcessUtilizationSample,
        nvmlProcessUtilizationSample_t {
            pid: pid,
            time_stamp: timeStamp,
            sm_util: smUtil,
            mem_util: memUtil,
            enc_util: encUtil,
            dec_util: decUtil,
        }
    );
    same!(
        AccountingStats,
        nvmlAccountingStats_t {
            gpu_utilization: gpuUtilization,
            memory_utilization: memoryUtilization,
            max_memory_usage: maxMemoryUsage,
            time: time,
            start_time: startTime,
            is_running: isRunning,
            reserved: reserved,
        }
    );
    same!(
        EventData,
        nvmlEventData_t {
            device: device,
            event_type: eventType,
            event_data: eventData,
            gpu_instance_id: gpuInstanceId,
            compute_instance_id: computeInstanceId,
        }
    );
    same!(
        FieldValue,
        nvmlFieldValue_t {
            field_id: fieldId,
            scope_id: scopeId,
            timestamp: timestamp,
            latency_usec: latencyUsec,
            value_type: valueType,
            nvml_return: nvmlReturn,
            value: value,
        }
    );
    same!(
        FabricInfo,
        nvmlGpuFabricInfo_t {
            cluster_uuid: clusterUuid,
            status: status,
            clique_id: cliqueId,
            state: state,
        }
    );
    same!(AddressingMode1, nvmlDeviceAddressingMode_t { version: version, value: value });
    same!(
        EccSramErrorStatus1,
        nvmlEccSramErrorStatus_t {
            version: version,
            aggregate_parity: aggregateUncParity,
            aggregate_sec_ded: aggregateUncSecDed,
            aggregate_corrected: aggregateCor,
            volatile_parity: volatileUncParity,
            volatile_sec_ded: volatileUncSecDed,
            volatile_corrected: volatileCor,
            of_l2: aggregateUncBucketL2,
            of_sm: aggregateUncBucketSm,
            of_pcie: aggregateUncBucketPcie,
            of_mcu: aggregateUncBucketMcu,
            of_others: aggregateUncBucketOther,
            threshold_exceeded: bThresholdExceeded,
        }
    );
    same!(
        RowRemapperHistogram,
        nvmlRowRemapperHistogramValues_t {
            max: max,
            high: high,
            partial: partial,
            low: low,
            none: none,
        }
    );
    same!(
        MarginTemperature1,
        nvmlMarginTemperature_t { version: version, margin: marginTemperature }
    );
    same!(
        Temperature1,
        nvmlTemperature_t { version: version, sensor_type: sensorType, temperature: temperature }
    );
    same!(Value, nvmlValue_t { unsigned_long_long: ullVal, signed_long_long: sllVal });
    // Not in the current header: an old struct is the new one without the last field, in 16 bytes
    // less of the second bus ID.
    assert_eq!(size_of::<PciInfo1>(), 32);
    assert_eq!(size_of::<PciInfo2>(), 52);
    assert_eq!(offset_of!(PciInfo2, reserved), offset_of!(PciInfo3, bus_id));
}

#[test]
fn return_codes_match_header() {
    let codes = [
        (Code::UNINITIALIZED, c::nvmlReturn_enum_NVML_ERROR_UNINITIALIZED),
        (Code::INVALID_ARGUMENT, c::nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT),
        (Code::NOT_SUPPORTED, c::nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED),
        (Code::DEPRECATED, c::nvmlReturn_enum_NVML_ERROR_DEPRECATED),
        (Code::NO_PERMISSION, c::nvmlReturn_enum_NVML_ERROR_NO_PERMISSION),
        (Code::ALREADY_INITIALIZED, c::nvmlReturn_enum_NVML_ERROR_ALREADY_INITIALIZED),
        (Code::NOT_FOUND, c::nvmlReturn_enum_NVML_ERROR_NOT_FOUND),
        (Code::INSUFFICIENT_SIZE, c::nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_SIZE),
        (Code::INSUFFICIENT_POWER, c::nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_POWER),
        (Code::DRIVER_NOT_LOADED, c::nvmlReturn_enum_NVML_ERROR_DRIVER_NOT_LOADED),
        (Code::TIMEOUT, c::nvmlReturn_enum_NVML_ERROR_TIMEOUT),
        (Code::IRQ_ISSUE, c::nvmlReturn_enum_NVML_ERROR_IRQ_ISSUE),
        (Code::LIBRARY_NOT_FOUND, c::nvmlReturn_enum_NVML_ERROR_LIBRARY_NOT_FOUND),
        (Code::FUNCTION_NOT_FOUND, c::nvmlReturn_enum_NVML_ERROR_FUNCTION_NOT_FOUND),
        (Code::GPU_IS_LOST, c::nvmlReturn_enum_NVML_ERROR_GPU_IS_LOST),
        (Code::RESET_REQUIRED, c::nvmlReturn_enum_NVML_ERROR_RESET_REQUIRED),
        (Code::OPERATING_SYSTEM, c::nvmlReturn_enum_NVML_ERROR_OPERATING_SYSTEM),
        (Code::LIB_RM_VERSION_MISMATCH, c::nvmlReturn_enum_NVML_ERROR_LIB_RM_VERSION_MISMATCH),
        (Code::IN_USE, c::nvmlReturn_enum_NVML_ERROR_IN_USE),
        (Code::MEMORY, c::nvmlReturn_enum_NVML_ERROR_MEMORY),
        (Code::ARGUMENT_VERSION_MISMATCH, c::nvmlReturn_enum_NVML_ERROR_ARGUMENT_VERSION_MISMATCH),
        (Code::UNKNOWN, c::nvmlReturn_enum_NVML_ERROR_UNKNOWN),
    ];
    for (ours, theirs) in codes {
        assert_eq!(ours.0, theirs);
    }
}

#[test]
fn field_and_event_ids_match_header() {
    use c::field_id as f;
    let fields = [
        (id::ECC_CURRENT, f::NVML_FI_DEV_ECC_CURRENT),
        (id::ECC_PENDING, f::NVML_FI_DEV_ECC_PENDING),
        (id::ECC_SBE_VOL_TOTAL, f::NVML_FI_DEV_ECC_SBE_VOL_TOTAL),
        (id::ECC_DBE_VOL_TOTAL, f::NVML_FI_DEV_ECC_DBE_VOL_TOTAL),
        (id::ECC_SBE_AGG_TOTAL, f::NVML_FI_DEV_ECC_SBE_AGG_TOTAL),
        (id::ECC_DBE_AGG_TOTAL, f::NVML_FI_DEV_ECC_DBE_AGG_TOTAL),
        (id::RETIRED_SBE, f::NVML_FI_DEV_RETIRED_SBE),
        (id::RETIRED_DBE, f::NVML_FI_DEV_RETIRED_DBE),
        (id::RETIRED_PENDING, f::NVML_FI_DEV_RETIRED_PENDING),
        (id::NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL, f::NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL),
        (id::NVLINK_REPLAY_ERROR_COUNT_TOTAL, f::NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL),
        (id::NVLINK_RECOVERY_ERROR_COUNT_TOTAL, f::NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL),
        (id::MEMORY_TEMP, f::NVML_FI_DEV_MEMORY_TEMP),
        (id::TOTAL_ENERGY_CONSUMPTION, f::NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION),
        (id::NVLINK_LINK_COUNT, f::NVML_FI_DEV_NVLINK_LINK_COUNT),
        (id::PCIE_REPLAY_COUNTER, f::NVML_FI_DEV_PCIE_REPLAY_COUNTER),
        (id::REMAPPED_COR, f::NVML_FI_DEV_REMAPPED_COR),
        (id::REMAPPED_UNC, f::NVML_FI_DEV_REMAPPED_UNC),
        (id::REMAPPED_PENDING, f::NVML_FI_DEV_REMAPPED_PENDING),
        (id::REMAPPED_FAILURE, f::NVML_FI_DEV_REMAPPED_FAILURE),
        (id::NVLINK_ERROR_DL_REPLAY, f::NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY),
        (id::NVLINK_ERROR_DL_RECOVERY, f::NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY),
        (id::NVLINK_ERROR_DL_CRC, f::NVML_FI_DEV_NVLINK_ERROR_DL_CRC),
        (id::NVLINK_GET_STATE, f::NVML_FI_DEV_NVLINK_GET_STATE),
        (id::NVLINK_GET_VERSION, f::NVML_FI_DEV_NVLINK_GET_VERSION),
        (id::POWER_AVERAGE, f::NVML_FI_DEV_POWER_AVERAGE),
        (id::POWER_INSTANT, f::NVML_FI_DEV_POWER_INSTANT),
        (id::POWER_MIN_LIMIT, f::NVML_FI_DEV_POWER_MIN_LIMIT),
        (id::POWER_MAX_LIMIT, f::NVML_FI_DEV_POWER_MAX_LIMIT),
        (id::POWER_DEFAULT_LIMIT, f::NVML_FI_DEV_POWER_DEFAULT_LIMIT),
        (id::POWER_CURRENT_LIMIT, f::NVML_FI_DEV_POWER_CURRENT_LIMIT),
        (id::POWER_REQUESTED_LIMIT, f::NVML_FI_DEV_POWER_REQUESTED_LIMIT),
        (id::RESET_STATUS, f::NVML_FI_DEV_RESET_STATUS),
        (id::DRAIN_AND_RESET_STATUS, f::NVML_FI_DEV_DRAIN_AND_RESET_STATUS),
        (id::GET_GPU_RECOVERY_ACTION, f::NVML_FI_DEV_GET_GPU_RECOVERY_ACTION),
        (id::END, f::NVML_FI_MAX),
    ];
    for (ours, theirs) in fields {
        assert_eq!(ours, theirs);
    }
    let kinds = [
        (kind::SINGLE_BIT_ECC, c::nvmlEventTypeSingleBitEccError),
        (kind::DOUBLE_BIT_ECC, c::nvmlEventTypeDoubleBitEccError),
        (kind::XID, c::nvmlEventTypeXidCriticalError),
    ];
    for (ours, theirs) in kinds {
        assert_eq!(ours, u64::from(theirs));
    }
}
