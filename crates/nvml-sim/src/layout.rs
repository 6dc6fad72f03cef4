//! The structs of NVML's C interface that this library reads and writes, field by field as declared
//! in the public `nvml.h`.

use crate::pointer::{Handle, Versioned};
use std::ffi::{c_char, c_int, c_longlong, c_uchar, c_uint, c_ulonglong};

/// Declares structs of numbers.
macro_rules! structs {
    ($( $(#[$doc:meta])* $name:ident $(version $version:literal)? { $($field:ident: $type:ty),* $(,)? } )*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy)]
        #[repr(C)]
        pub(crate) struct $name { $( pub(crate) $field: $type, )* }

        $( impl Versioned for $name {
            const VERSION: c_uint = size_of::<$name>() as c_uint | $version << 24;
        } )?
    )*};
}

structs! {
    /// `nvmlPciInfo_t` of `nvmlDeviceGetPciInfo`: the fields that all versions share.
    PciInfo1 { bus_id: [c_char; 16], domain: c_uint, bus: c_uint, device: c_uint, pci_device_id: c_uint }

    /// `nvmlPciInfo_t` of `nvmlDeviceGetPciInfo_v2`.
    PciInfo2 {
        bus_id: [c_char; 16], domain: c_uint, bus: c_uint, device: c_uint, pci_device_id: c_uint,
        pci_sub_system_id: c_uint, reserved: [c_uint; 4],
    }

    /// `nvmlPciInfo_t` of `nvmlDeviceGetPciInfo_v3`.
    PciInfo3 {
        bus_id_legacy: [c_char; 16], domain: c_uint, bus: c_uint, device: c_uint,
        pci_device_id: c_uint, pci_sub_system_id: c_uint, bus_id: [c_char; 32],
    }

    /// `nvmlMemory_t`
    Memory1 { total: c_ulonglong, free: c_ulonglong, used: c_ulonglong }

    /// `nvmlMemory_v2_t`
    Memory2 version 2 {
        version: c_uint, total: c_ulonglong, reserved: c_ulonglong, free: c_ulonglong,
        used: c_ulonglong,
    }

    /// `nvmlBAR1Memory_t`
    Bar1Memory { total: c_ulonglong, free: c_ulonglong, used: c_ulonglong }

    /// `nvmlUtilization_t`
    Utilization { gpu: c_uint, memory: c_uint }

    /// `nvmlProcessInfo_v1_t`
    ProcessInfo1 { pid: c_uint, used_gpu_memory: c_ulonglong }

    /// `nvmlProcessInfo_v2_t`, the same as `nvmlProcessInfo_t` of the third version.
    ProcessInfo2 {
        pid: c_uint, used_gpu_memory: c_ulonglong, gpu_instance_id: c_uint,
        compute_instance_id: c_uint,
    }

    /// `nvmlProcessUtilizationSample_t`
    ProcessUtilizationSample {
        pid: c_uint, time_stamp: c_ulonglong, sm_util: c_uint, mem_util: c_uint, enc_util: c_uint,
        dec_util: c_uint,
    }

    /// `nvmlAccountingStats_t`
    AccountingStats {
        gpu_utilization: c_uint, memory_utilization: c_uint, max_memory_usage: c_ulonglong,
        time: c_ulonglong, start_time: c_ulonglong, is_running: c_uint, reserved: [c_uint; 5],
    }

    /// `nvmlEventData_t`
    EventData {
        device: Handle, event_type: c_ulonglong, event_data: c_ulonglong, gpu_instance_id: c_uint,
        compute_instance_id: c_uint,
    }

    /// `nvmlFieldValue_t`
    FieldValue {
        field_id: c_uint, scope_id: c_uint, timestamp: c_longlong, latency_usec: c_longlong,
        value_type: c_uint, nvml_return: c_uint, value: Value,
    }

    /// `nvmlGpuFabricInfo_t`
    FabricInfo { cluster_uuid: [c_uchar; 16], status: c_uint, clique_id: c_uint, state: c_uchar }

    /// `nvmlGpuFabricInfo_v2_t`
    FabricInfo2 version 2 {
        version: c_uint, cluster_uuid: [c_uchar; 16], status: c_uint, clique_id: c_uint,
        state: c_uchar, health_mask: c_uint,
    }

    /// `nvmlGpuFabricInfo_v3_t`
    FabricInfo3 version 3 {
        version: c_uint, cluster_uuid: [c_uchar; 16], status: c_uint, clique_id: c_uint,
        state: c_uchar, health_mask: c_uint, health_summary: c_uchar,
    }

    /// `nvmlPlatformInfo_v2_t`
    PlatformInfo2 version 2 {
        version: c_uint, ib_guid: [c_uchar; 16], chassis_serial_number: [c_uchar; 16],
        slot_number: c_uchar, tray_index: c_uchar, host_id: c_uchar, peer_type: c_uchar,
        module_id: c_uchar,
    }

    /// `nvmlPciInfoExt_v1_t`
    PciInfoExt1 version 1 {
        version: c_uint, domain: c_uint, bus: c_uint, device: c_uint, pci_device_id: c_uint,
        pci_sub_system_id: c_uint, base_class: c_uint, sub_class: c_uint, bus_id: [c_char; 32],
    }

    /// `nvmlDramEncryptionInfo_v1_t`
    DramEncryptionInfo1 version 1 { version: c_uint, encryption_state: c_uint }

    /// `nvmlC2cModeInfo_v1_t`
    C2cModeInfo1 { is_c2c_enabled: c_uint }

    /// `nvmlDeviceAddressingMode_v1_t`
    AddressingMode1 version 1 { version: c_uint, value: c_uint }

    /// `nvmlEccSramErrorStatus_v1_t`
    EccSramErrorStatus1 version 1 {
        version: c_uint, aggregate_parity: c_ulonglong, aggregate_sec_ded: c_ulonglong,
        aggregate_corrected: c_ulonglong, volatile_parity: c_ulonglong,
        volatile_sec_ded: c_ulonglong, volatile_corrected: c_ulonglong, of_l2: c_ulonglong,
        of_sm: c_ulonglong, of_pcie: c_ulonglong, of_mcu: c_ulonglong, of_others: c_ulonglong,
        threshold_exceeded: c_uint,
    }

    /// `nvmlRowRemapperHistogramValues_t`
    RowRemapperHistogram { max: c_uint, high: c_uint, partial: c_uint, low: c_uint, none: c_uint }

    /// `nvmlMarginTemperature_v1_t`
    MarginTemperature1 version 1 { version: c_uint, margin: c_int }

    /// `nvmlTemperature_v1_t`
    Temperature1 version 1 { version: c_uint, sensor_type: c_uint, temperature: c_int }
}

/// The members of `nvmlValue_t` that this library writes.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) union Value {
    pub(crate) unsigned_long_long: c_ulonglong,
    pub(crate) signed_long_long: c_longlong,
}

/// Returns a text as a field of fixed size, truncated to fit.
pub(crate) fn field_text<const N: usize>(text: &str) -> [c_char; N] {
    let mut field = [0; N];
    for (slot, byte) in field.iter_mut().zip(text.bytes()).take(N - 1) {
        *slot = byte as c_char;
    }
    field
}
