//! The functions of NVML that are called here, each with its C signature.
//!
//! They are looked up one by one, when first called: the whole table of nvml-wrapper-sys costs a
//! look-up for each of its 400 entries, and an error with text for each that the installed driver
//! does not have.

use libloading::Library;
use nvml_wrapper_sys::bindings::{
    nvmlAccountingStats_t, nvmlBAR1Memory_t, nvmlDevice_t, nvmlDeviceAddressingMode_t,
    nvmlEventData_t, nvmlEventSet_t, nvmlFieldValue_t, nvmlGpuFabricInfo_t,
    nvmlMarginTemperature_t, nvmlMemory_t, nvmlMemory_v2_t, nvmlPciInfo_t, nvmlProcessInfo_v1_t,
    nvmlProcessInfo_v2_t, nvmlProcessUtilizationSample_t, nvmlUtilization_t,
};
use std::ffi::{c_char, c_int, c_uint, c_ulong, c_ulonglong};
use std::sync::OnceLock;

/// A function of the library, looked up when it is first called.
pub(crate) struct Function<F> {
    /// Its name, with the NUL at its end.
    symbol: &'static str,
    /// What it is called for; completes 'failed to ask GPU 0 …'.
    pub(crate) wish: &'static str,
    address: OnceLock<Option<F>>,
}

impl<F: Copy> Function<F> {
    /// Returns a function of this name, which ends with a NUL.
    const fn named(symbol: &'static str, wish: &'static str) -> Self {
        Function { symbol, wish, address: OnceLock::new() }
    }

    /// Returns its name.
    pub(crate) fn name(&self) -> &'static str {
        self.symbol.trim_end_matches('\0')
    }

    /// Returns its address in the library; `None` when the library does not have it.
    pub(crate) fn find(&self, library: &Library) -> Option<F> {
        *self.address.get_or_init(|| {
            // SAFETY: the table below gives each name the type that NVML's header declares for it,
            // and the address is used no longer than the library, which lies beside the table.
            unsafe { library.get::<F>(self.symbol.as_bytes()) }.ok().map(|symbol| *symbol)
        })
    }
}

/// A function without arguments.
pub(crate) type Plain = unsafe extern "C" fn() -> c_uint;
/// One that fills in something of the machine.
pub(crate) type Tell<T> = unsafe extern "C" fn(*mut T) -> c_uint;
/// One that fills in something of a device.
pub(crate) type Get<T> = unsafe extern "C" fn(nvmlDevice_t, *mut T) -> c_uint;
/// One that fills in two things of a device.
pub(crate) type GetTwo<T, U = T> = unsafe extern "C" fn(nvmlDevice_t, *mut T, *mut U) -> c_uint;
/// One that fills in one of several things of a device, chosen by a number.
pub(crate) type Pick<T> = unsafe extern "C" fn(nvmlDevice_t, c_uint, *mut T) -> c_uint;
/// One that fills in one of several things of a device, chosen by two numbers.
pub(crate) type PickTwo<T> = unsafe extern "C" fn(nvmlDevice_t, c_uint, c_uint, *mut T) -> c_uint;
/// One that fills in one of several things of a device, chosen by three numbers.
pub(crate) type PickThree<T> =
    unsafe extern "C" fn(nvmlDevice_t, c_uint, c_uint, c_uint, *mut T) -> c_uint;
/// One that fills in a text of a device.
pub(crate) type Text = unsafe extern "C" fn(nvmlDevice_t, *mut c_char, c_uint) -> c_uint;
/// One that fills in one of several texts of a device, chosen by a number.
pub(crate) type PickText =
    unsafe extern "C" fn(nvmlDevice_t, c_uint, *mut c_char, c_uint) -> c_uint;
/// One that fills in a list: the room in it, which becomes its length, and the buffer.
pub(crate) type List<T> = GetTwo<c_uint, T>;
/// One that fills in what two devices are to each other.
pub(crate) type Between = unsafe extern "C" fn(nvmlDevice_t, nvmlDevice_t, *mut c_uint) -> c_uint;
/// The same, chosen by a number.
pub(crate) type BetweenBy =
    unsafe extern "C" fn(nvmlDevice_t, nvmlDevice_t, c_uint, *mut c_uint) -> c_uint;

type SystemText = unsafe extern "C" fn(*mut c_char, c_uint) -> c_uint;
type TellOne = unsafe extern "C" fn(c_uint, *mut c_uint) -> c_uint;
type ByIndex = unsafe extern "C" fn(c_uint, *mut nvmlDevice_t) -> c_uint;
type GetThree = unsafe extern "C" fn(nvmlDevice_t, *mut c_uint, *mut c_uint, *mut c_uint) -> c_uint;
type GetFour = unsafe extern "C" fn(
    nvmlDevice_t,
    *mut c_uint,
    *mut c_uint,
    *mut c_uint,
    *mut c_uint,
) -> c_uint;
type Pages = unsafe extern "C" fn(nvmlDevice_t, c_uint, *mut c_uint, *mut c_ulonglong) -> c_uint;
type Fields = unsafe extern "C" fn(nvmlDevice_t, c_int, *mut nvmlFieldValue_t) -> c_uint;
type Nodes = unsafe extern "C" fn(nvmlDevice_t, c_uint, *mut c_ulong, c_uint) -> c_uint;
type Shares = unsafe extern "C" fn(
    nvmlDevice_t,
    *mut nvmlProcessUtilizationSample_t,
    *mut c_uint,
    c_ulonglong,
) -> c_uint;
type Register = unsafe extern "C" fn(nvmlDevice_t, c_ulonglong, nvmlEventSet_t) -> c_uint;
type Wait = unsafe extern "C" fn(nvmlEventSet_t, *mut nvmlEventData_t, c_uint) -> c_uint;
type Free = unsafe extern "C" fn(nvmlEventSet_t) -> c_uint;

macro_rules! functions {
    ($( $name:ident: $type:ty, $wish:literal; )*) => {
        /// Every function of NVML that is called.
        #[allow(non_snake_case)] // By NVML's own names, as its documentation has them.
        pub(crate) struct Functions { $( pub(crate) $name: Function<$type>, )* }

        impl Functions {
            pub(crate) const fn new() -> Self {
                Functions {
                    $( $name: Function::named(concat!(stringify!($name), "\0"), $wish), )*
                }
            }
        }
    };
}

functions! {
    nvmlInit_v2: Plain, "to initialise";
    nvmlInit: Plain, "to initialise";
    nvmlShutdown: Plain, "to shut down";
    nvmlSystemGetDriverVersion: SystemText, "for the driver's version";
    nvmlSystemGetCudaDriverVersion_v2: Tell<c_int>, "for the version of CUDA";
    nvmlSystemGetCudaDriverVersion: Tell<c_int>, "for the version of CUDA";
    nvmlDeviceGetCount_v2: Tell<c_uint>, "how many GPUs there are";
    nvmlDeviceGetCount: Tell<c_uint>, "how many GPUs there are";

    nvmlDeviceGetHandleByIndex_v2: ByIndex, "for a handle";
    nvmlDeviceGetHandleByIndex: ByIndex, "for a handle";
    nvmlDeviceGetUUID: Text, "for its UUID";
    nvmlDeviceGetName: Text, "for its name";
    nvmlDeviceGetMinorNumber: Get<c_uint>, "for its minor number";
    // The structs of the older two end earlier, with the same fields before.
    nvmlDeviceGetPciInfo_v3: Get<nvmlPciInfo_t>, "for its PCI address";
    nvmlDeviceGetPciInfo_v2: Get<nvmlPciInfo_t>, "for its PCI address";
    nvmlDeviceGetPciInfo: Get<nvmlPciInfo_t>, "for its PCI address";
    nvmlDeviceGetPersistenceMode: Get<c_uint>, "for its persistence mode";
    nvmlDeviceGetDisplayActive: Get<c_uint>, "whether a display is active";
    nvmlDeviceGetMigMode: GetTwo<c_uint>, "for its MIG mode";

    nvmlDeviceGetMemoryInfo_v2: Get<nvmlMemory_v2_t>, "for its memory";
    nvmlDeviceGetMemoryInfo: Get<nvmlMemory_t>, "for its memory";
    nvmlDeviceGetUtilizationRates: Get<nvmlUtilization_t>, "for its utilisation";
    nvmlDeviceGetTemperature: Pick<c_uint>, "for its temperature";
    nvmlDeviceGetPowerUsage: Get<c_uint>, "for the power it draws";
    nvmlDeviceGetEnforcedPowerLimit: Get<c_uint>, "for its power limit in force";

    nvmlDeviceGetComputeRunningProcesses_v3: List<nvmlProcessInfo_v2_t>, "for its compute processes";
    nvmlDeviceGetComputeRunningProcesses_v2: List<nvmlProcessInfo_v2_t>, "for its compute processes";
    nvmlDeviceGetComputeRunningProcesses: List<nvmlProcessInfo_v1_t>, "for its compute processes";
    nvmlDeviceGetGraphicsRunningProcesses_v3: List<nvmlProcessInfo_v2_t>, "for its graphics processes";
    nvmlDeviceGetGraphicsRunningProcesses_v2: List<nvmlProcessInfo_v2_t>, "for its graphics processes";
    nvmlDeviceGetGraphicsRunningProcesses: List<nvmlProcessInfo_v1_t>, "for its graphics processes";
    nvmlDeviceGetMPSComputeRunningProcesses_v3: List<nvmlProcessInfo_v2_t>, "for its MPS processes";
    nvmlDeviceGetMPSComputeRunningProcesses_v2: List<nvmlProcessInfo_v2_t>, "for its MPS processes";
    nvmlDeviceGetMPSComputeRunningProcesses: List<nvmlProcessInfo_v1_t>, "for its MPS processes";
    nvmlDeviceGetProcessUtilization: Shares, "for the utilisation of its processes";

    nvmlDeviceGetMaxMigDeviceCount: Get<c_uint>, "how many MIG instances it can have";
    nvmlDeviceGetMigDeviceHandleByIndex: Pick<nvmlDevice_t>, "for a MIG instance";
    nvmlDeviceGetGpuInstanceId: Get<c_uint>, "for a GPU instance";
    nvmlDeviceGetComputeInstanceId: Get<c_uint>, "for a compute instance";

    nvmlDeviceGetBrand: Get<c_uint>, "for its brand";
    nvmlDeviceGetArchitecture: Get<c_uint>, "for its architecture";
    nvmlDeviceGetSerial: Text, "for its serial number";
    nvmlDeviceGetBoardPartNumber: Text, "for its part number";
    nvmlDeviceGetVbiosVersion: Text, "for its VBIOS";
    nvmlDeviceGetCudaComputeCapability: GetTwo<c_int>, "for its compute capability";
    nvmlDeviceGetNumGpuCores: Get<c_uint>, "for its number of cores";
    nvmlDeviceGetMemoryBusWidth: Get<c_uint>, "for the width of its memory bus";
    nvmlDeviceGetMemoryAffinity: Nodes, "for its NUMA node";
    nvmlDeviceGetNumaNodeId: Get<c_uint>, "for its NUMA node";

    nvmlDeviceGetComputeMode: Get<c_uint>, "for its compute mode";
    nvmlDeviceGetDisplayMode: Get<c_uint>, "whether a display can be connected";
    nvmlDeviceGetEccMode: GetTwo<c_uint>, "for its ECC mode";
    nvmlDeviceGetAccountingMode: Get<c_uint>, "for its accounting mode";
    nvmlDeviceGetAddressingMode: Get<nvmlDeviceAddressingMode_t>, "for its addressing mode";

    nvmlDeviceGetInforomImageVersion: Text, "for the version of its infoROM";
    nvmlDeviceGetInforomVersion: PickText, "for the version of a part of its infoROM";
    nvmlDeviceGetGspFirmwareMode: GetTwo<c_uint>, "whether it runs firmware of the driver";
    nvmlDeviceGetGpuOperationMode: GetTwo<c_uint>, "for its operation mode";

    nvmlDeviceGetEncoderUtilization: GetTwo<c_uint>, "for the use of its encoder";
    nvmlDeviceGetDecoderUtilization: GetTwo<c_uint>, "for the use of its decoder";
    nvmlDeviceGetJpgUtilization: GetTwo<c_uint>, "for the use of its JPEG decoder";
    nvmlDeviceGetOfaUtilization: GetTwo<c_uint>, "for the use of its optical flow accelerator";
    nvmlDeviceGetPerformanceState: Get<c_uint>, "for its performance state";
    nvmlDeviceGetCurrentClocksEventReasons: Get<c_ulonglong>, "why its clocks are low";
    nvmlDeviceGetCurrentClocksThrottleReasons: Get<c_ulonglong>, "why its clocks are low";
    nvmlDeviceGetSupportedClocksEventReasons: Get<c_ulonglong>, "which reasons for low clocks it tells";
    nvmlDeviceGetSupportedClocksThrottleReasons: Get<c_ulonglong>, "which reasons for low clocks it tells";
    nvmlDeviceGetEncoderStats: GetThree, "for its encoder sessions";

    nvmlDeviceGetClockInfo: Pick<c_uint>, "for a clock";
    nvmlDeviceGetMaxClockInfo: Pick<c_uint>, "for the highest value of a clock";
    nvmlDeviceGetApplicationsClock: Pick<c_uint>, "for a clock of applications";
    nvmlDeviceGetDefaultApplicationsClock: Pick<c_uint>, "for a default clock of applications";

    nvmlDeviceGetPowerManagementMode: Get<c_uint>, "whether it keeps to a power limit";
    nvmlDeviceGetPowerManagementLimit: Get<c_uint>, "for its power limit";
    nvmlDeviceGetPowerManagementDefaultLimit: Get<c_uint>, "for its default power limit";
    nvmlDeviceGetPowerManagementLimitConstraints: GetTwo<c_uint>, "for the range of its power limit";
    nvmlDeviceGetTotalEnergyConsumption: Get<c_ulonglong>, "for the energy it has used";

    nvmlDeviceGetFanSpeed: Get<c_uint>, "for its fan speed";
    nvmlDeviceGetFanSpeed_v2: Pick<c_uint>, "for its fan speed";
    nvmlDeviceGetTemperatureThreshold: Pick<c_uint>, "for a limit of its temperature";
    nvmlDeviceGetMarginTemperature: Get<nvmlMarginTemperature_t>, "how far it is from being too hot";
    nvmlDeviceGetFieldValues: Fields, "for a value by its number";

    nvmlDeviceGetCurrPcieLinkGeneration: Get<c_uint>, "for the generation of its PCIe link";
    nvmlDeviceGetMaxPcieLinkGeneration: Get<c_uint>, "for the highest generation of its PCIe link";
    nvmlDeviceGetGpuMaxPcieLinkGeneration: Get<c_uint>, "for the highest generation of its own PCIe";
    nvmlDeviceGetCurrPcieLinkWidth: Get<c_uint>, "for the width of its PCIe link";
    nvmlDeviceGetMaxPcieLinkWidth: Get<c_uint>, "for the highest width of its PCIe link";
    nvmlDeviceGetPcieReplayCounter: Get<c_uint>, "for the replays on its PCIe link";
    nvmlDeviceGetPcieThroughput: Pick<c_uint>, "for the traffic on its PCIe link";
    nvmlDeviceGetBAR1MemoryInfo: Get<nvmlBAR1Memory_t>, "for its BAR1 memory";

    nvmlDeviceGetTotalEccErrors: PickTwo<c_ulonglong>, "for its memory errors";
    nvmlDeviceGetMemoryErrorCounter: PickThree<c_ulonglong>, "for its memory errors at a place";
    nvmlDeviceGetRetiredPages: Pages, "for its retired pages";
    nvmlDeviceGetRetiredPagesPendingStatus: Get<c_uint>, "whether pages wait to be retired";
    nvmlDeviceGetRemappedRows: GetFour, "for its remapped rows";

    nvmlGetVgpuDriverCapabilities: TellOne, "which virtual GPUs it can make";
    nvmlDeviceGetVgpuCapabilities: Pick<c_uint>, "which virtual GPUs it can be";
    nvmlDeviceGetConfComputeProtectedMemoryUsage: Get<nvmlMemory_t>, "for its protected memory";

    nvmlDeviceGetGpuFabricInfo: Get<nvmlGpuFabricInfo_t>, "for its place in a fabric";
    nvmlDeviceGetNvLinkState: Pick<c_uint>, "for the state of an NVLink";
    nvmlDeviceGetNvLinkVersion: Pick<c_uint>, "for the version of an NVLink";
    nvmlDeviceGetNvLinkRemotePciInfo_v2: Pick<nvmlPciInfo_t>, "for the remote end of an NVLink";
    nvmlDeviceGetNvLinkRemotePciInfo: Pick<nvmlPciInfo_t>, "for the remote end of an NVLink";
    nvmlDeviceGetNvLinkRemoteDeviceType: Pick<c_uint>, "for the remote end of an NVLink";
    nvmlDeviceGetNvLinkErrorCounter: PickTwo<c_ulonglong>, "for the errors of an NVLink";

    nvmlDeviceGetAccountingBufferSize: Get<c_uint>, "for the size of its accounting";
    nvmlDeviceGetAccountingPids: List<c_uint>, "for the processes in its accounting";
    nvmlDeviceGetAccountingStats: Pick<nvmlAccountingStats_t>, "for a process in its accounting";

    nvmlDeviceGetTopologyCommonAncestor: Between, "how it is connected";
    nvmlDeviceGetP2PStatus: BetweenBy, "whether it reaches other GPUs";

    nvmlEventSetCreate: Tell<nvmlEventSet_t>, "for a set of events";
    nvmlDeviceGetSupportedEventTypes: Get<c_ulonglong>, "which events it reports";
    nvmlDeviceRegisterEvents: Register, "to report events";
    nvmlEventSetWait_v2: Wait, "for an event";
    nvmlEventSetWait: Wait, "for an event";
    nvmlEventSetFree: Free, "to drop a set of events";
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A function that every program has.
    pub(crate) static PRESENT: Function<Plain> = Function::named("getpid\0", "to be there");
    /// One that none has.
    pub(crate) static MISSING: Function<Plain> = Function::named("nvmlOfTomorrow\0", "to be there");
}
