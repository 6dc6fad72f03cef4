//! The calls that nvml-wrapper does not cover, made through nvml-wrapper-sys, each with a reason.
//!
//! The possible reasons: nvml-wrapper lacks the function; it has only the newest version, which
//! older drivers lack; it queries the length of a list first, and fails if the list grows before
//! the second call; or it loses part of the answer.

use crate::call::{Answer, Caller};
use crate::code::Code;
use crate::device::Device;
use nvml_wrapper::Nvml;
use nvml_wrapper::error::{nvml_sym, nvml_try};
use nvml_wrapper_sys::bindings::{
    nvmlC2cModeInfo_v1_t, nvmlDevice_t, nvmlDeviceAddressingMode_t, nvmlDramEncryptionInfo_t,
    nvmlEccSramErrorStatus_t, nvmlEventData_t, nvmlEventSet_t, nvmlFieldValue_t,
    nvmlGpuFabricInfo_t, nvmlGpuFabricInfo_v2_t, nvmlGpuFabricInfo_v3_t, nvmlMarginTemperature_t,
    nvmlMemory_t, nvmlPciInfo_t, nvmlPciInfoExt_t, nvmlPlatformInfo_t, nvmlProcessInfo_v1_t,
    nvmlProcessInfo_v2_t, nvmlProcessUtilizationSample_t, nvmlRowRemapperHistogramValues_t,
};
use std::ffi::{c_int, c_uint};
use std::ptr::null_mut;

/// Initial capacity of a list; a longer list needs a second call.
const ROOM: usize = 64;

/// Maximum number of attempts to read a growing list.
const TRIES: usize = 6;

/// Maximum length of a list.
const LONGEST_LIST: usize = 1 << 16;

/// Integers, and structs of integers.
///
/// # Safety
/// Every bit pattern is a valid value, including zero.
pub(crate) unsafe trait Data: Copy {
    fn zeroed() -> Self {
        // SAFETY: guaranteed by the trait.
        unsafe { std::mem::zeroed() }
    }
}

macro_rules! data {
    ($($name:ty)*) => { $(
        // SAFETY: the type consists of integers, and of pointers that are never followed here.
        unsafe impl Data for $name {}
    )* };
}

data! {
    c_int c_uint u64 nvmlC2cModeInfo_v1_t nvmlDevice_t nvmlDeviceAddressingMode_t
    nvmlDramEncryptionInfo_t nvmlEccSramErrorStatus_t nvmlEventData_t nvmlFieldValue_t
    nvmlGpuFabricInfo_t nvmlGpuFabricInfo_v2_t nvmlGpuFabricInfo_v3_t nvmlMarginTemperature_t
    nvmlMemory_t nvmlPciInfo_t nvmlPciInfoExt_t nvmlPlatformInfo_t nvmlProcessInfo_v1_t
    nvmlProcessInfo_v2_t nvmlProcessUtilizationSample_t nvmlRowRemapperHistogramValues_t
}

/// Returns the field `version` of a struct (`NVML_STRUCT_VERSION`).
const fn version<T>(number: u32) -> u32 {
    size_of::<T>() as u32 | number << 24
}

/// Calls a function of the machine.
macro_rules! call {
    ($caller:expr, $nvml:expr, $function:ident, $purpose:literal, $device:expr $(, $argument:expr)*) => {
        $caller.call(stringify!($function), $purpose, $device, || {
            let function = nvml_sym($nvml.lib().$function.as_ref())?;
            // SAFETY: handles and sets belong to this initialisation. Each pointer has the type
            // that the function fills in, and each buffer has the length passed with it.
            nvml_try(unsafe { function($($argument),*) })
        })
    };
}

/// Calls a function of a device.
macro_rules! query {
    ($device:expr, $function:ident, $purpose:literal $(, $argument:expr)*) => {{
        let Device { caller, nvml, handle, index } = *$device;
        call!(caller, nvml, $function, $purpose, Some(index), handle.0 $(, $argument)*)
    }};
}

/// Defines queries that fill in one value.
macro_rules! fills {
    ($( $(#[doc = $reason:literal])+ $name:ident: $type:ty = $function:ident, $purpose:literal; )*) => {
        impl Device<'_> { $(
            $(#[doc = $reason])+
            pub(crate) fn $name(&self) -> Answer<$type> {
                let mut value = <$type>::zeroed();
                query!(self, $function, $purpose, &mut value)?;
                Ok(value)
            }
        )* }
    };
}

fills! {
    /// nvml-wrapper lacks it.
    gpu_instance: c_uint = nvmlDeviceGetGpuInstanceId, "for a GPU instance";
    /// nvml-wrapper lacks it.
    compute_instance: c_uint = nvmlDeviceGetComputeInstanceId, "for a compute instance";
    /// nvml-wrapper lacks it.
    own_pcie_generation: c_uint = nvmlDeviceGetGpuMaxPcieLinkGeneration, "for the GPU's maximum PCIe generation";
    /// nvml-wrapper lacks it.
    protected_memory: nvmlMemory_t = nvmlDeviceGetConfComputeProtectedMemoryUsage, "for its protected memory";
    /// nvml-wrapper lacks it.
    c2c: nvmlC2cModeInfo_v1_t = nvmlDeviceGetC2cModeInfoV, "for its C2C mode";
    /// nvml-wrapper lacks it.
    fabric: nvmlGpuFabricInfo_t = nvmlDeviceGetGpuFabricInfo, "for its fabric";
    /// nvml-wrapper has only the second version, which older drivers lack.
    memory_v1: nvmlMemory_t = nvmlDeviceGetMemoryInfo, "for its memory";
    /// nvml-wrapper has only the second version, which older drivers lack.
    fan_speed_v1: c_uint = nvmlDeviceGetFanSpeed, "for its fan speed";
    /// nvml-wrapper has only the third version, which older drivers lack, and loses the legacy form
    /// of the address. The older structs are prefixes of the newest one.
    pci_v3: nvmlPciInfo_t = nvmlDeviceGetPciInfo_v3, "for its PCI address";
    /// As for the third version.
    pci_v2: nvmlPciInfo_t = nvmlDeviceGetPciInfo_v2, "for its PCI address";
    /// As for the third version.
    pci_v1: nvmlPciInfo_t = nvmlDeviceGetPciInfo, "for its PCI address";
    /// nvml-wrapper lacks the newer name, and drops unknown reasons.
    clock_reasons: u64 = nvmlDeviceGetCurrentClocksEventReasons, "for its clock event reasons";
    /// nvml-wrapper drops unknown reasons.
    clock_reasons_v1: u64 = nvmlDeviceGetCurrentClocksThrottleReasons, "for its clock event reasons";
    /// nvml-wrapper lacks the newer name, and drops unknown reasons.
    supported_clock_reasons: u64 = nvmlDeviceGetSupportedClocksEventReasons, "for its supported clock event reasons";
    /// nvml-wrapper drops unknown reasons.
    supported_clock_reasons_v1: u64 = nvmlDeviceGetSupportedClocksThrottleReasons, "for its supported clock event reasons";
}

impl Device<'_> {
    /// nvml-wrapper lacks it: the utilisation of the JPEG decoder.
    pub(crate) fn jpeg(&self) -> Answer<c_uint> {
        let (mut share, mut period) = (0, 0);
        query!(
            self,
            nvmlDeviceGetJpgUtilization,
            "for its JPEG decoder utilisation",
            &mut share,
            &mut period
        )?;
        Ok(share)
    }

    /// nvml-wrapper has it for Windows only: the current driver model.
    pub(crate) fn driver_model(&self) -> Answer<c_uint> {
        let (mut current, mut pending) = (0, 0);
        query!(self, nvmlDeviceGetDriverModel, "for its driver model", &mut current, &mut pending)?;
        Ok(current)
    }

    /// nvml-wrapper lacks it: the utilisation of the optical flow accelerator.
    pub(crate) fn optical_flow(&self) -> Answer<c_uint> {
        let (mut share, mut period) = (0, 0);
        query!(
            self,
            nvmlDeviceGetOfaUtilization,
            "for its optical flow utilisation",
            &mut share,
            &mut period
        )?;
        Ok(share)
    }

    /// nvml-wrapper lacks it.
    pub(crate) fn addressing_mode(&self) -> Answer<nvmlDeviceAddressingMode_t> {
        let version = version::<nvmlDeviceAddressingMode_t>(1);
        let mut mode = nvmlDeviceAddressingMode_t { version, ..Data::zeroed() };
        query!(self, nvmlDeviceGetAddressingMode, "for its addressing mode", &mut mode)?;
        Ok(mode)
    }

    /// nvml-wrapper lacks it. The second version adds the health conditions.
    pub(crate) fn fabric_v2(&self) -> Answer<nvmlGpuFabricInfo_v2_t> {
        let version = version::<nvmlGpuFabricInfo_v2_t>(2);
        let mut fabric = nvmlGpuFabricInfo_v2_t { version, ..Data::zeroed() };
        // The version selects the struct that the driver fills in; the bindings have only the
        // newest one.
        let any = (&raw mut fabric).cast();
        query!(self, nvmlDeviceGetGpuFabricInfoV, "for its fabric", any)?;
        Ok(fabric)
    }

    /// nvml-wrapper lacks it. The third version adds the overall health.
    pub(crate) fn fabric_v3(&self) -> Answer<nvmlGpuFabricInfo_v3_t> {
        let version = version::<nvmlGpuFabricInfo_v3_t>(3);
        let mut fabric = nvmlGpuFabricInfo_v3_t { version, ..Data::zeroed() };
        query!(self, nvmlDeviceGetGpuFabricInfoV, "for its fabric", &mut fabric)?;
        Ok(fabric)
    }

    /// nvml-wrapper lacks it.
    pub(crate) fn platform(&self) -> Answer<nvmlPlatformInfo_t> {
        let version = version::<nvmlPlatformInfo_t>(2);
        let mut platform = nvmlPlatformInfo_t { version, ..Data::zeroed() };
        query!(self, nvmlDeviceGetPlatformInfo, "for its platform", &mut platform)?;
        Ok(platform)
    }

    /// nvml-wrapper lacks it: the PCI address with the class of the device.
    pub(crate) fn pci_class(&self) -> Answer<nvmlPciInfoExt_t> {
        let version = version::<nvmlPciInfoExt_t>(1);
        let mut pci = nvmlPciInfoExt_t { version, ..Data::zeroed() };
        query!(self, nvmlDeviceGetPciInfoExt, "for its PCI class", &mut pci)?;
        Ok(pci)
    }

    /// nvml-wrapper lacks it: whether the memory is encrypted now, and after the next reboot.
    pub(crate) fn memory_encryption(&self) -> Answer<[c_uint; 2]> {
        let version = version::<nvmlDramEncryptionInfo_t>(1);
        let mut now = nvmlDramEncryptionInfo_t { version, ..Data::zeroed() };
        let mut pending = now;
        query!(
            self,
            nvmlDeviceGetDramEncryptionMode,
            "for its memory encryption",
            &mut now,
            &mut pending
        )?;
        Ok([now.encryptionState, pending.encryptionState])
    }

    /// nvml-wrapper lacks the newer capabilities.
    pub(crate) fn virtual_gpu_capability(&self, which: c_uint) -> Answer<c_uint> {
        let mut can = 0;
        let answer = query!(
            self,
            nvmlDeviceGetVgpuCapabilities,
            "for its vGPU capabilities",
            which,
            &mut can
        );
        answer.map(|()| can)
    }

    /// nvml-wrapper lacks it: the difference to the temperature at which the clocks are reduced.
    pub(crate) fn margin(&self) -> Answer<c_int> {
        let version = version::<nvmlMarginTemperature_t>(1);
        let mut margin = nvmlMarginTemperature_t { version, ..Data::zeroed() };
        let answer =
            query!(self, nvmlDeviceGetMarginTemperature, "for its temperature margin", &mut margin);
        answer.map(|()| margin.marginTemperature)
    }

    /// nvml-wrapper lacks it: the rows that were remapped after corrected and uncorrected errors,
    /// and whether a remapping is pending or failed.
    pub(crate) fn remapped_rows(&self) -> Answer<[c_uint; 4]> {
        let (mut corrected, mut uncorrected, mut pending, mut failure) = (0, 0, 0, 0);
        query!(
            self,
            nvmlDeviceGetRemappedRows,
            "for its remapped rows",
            &mut corrected,
            &mut uncorrected,
            &mut pending,
            &mut failure
        )?;
        Ok([corrected, uncorrected, pending, failure])
    }

    /// nvml-wrapper lacks it: the memory banks by remaining spare rows.
    pub(crate) fn banks(&self) -> Answer<nvmlRowRemapperHistogramValues_t> {
        let mut banks = nvmlRowRemapperHistogramValues_t::zeroed();
        query!(self, nvmlDeviceGetRowRemapperHistogram, "for its spare rows", &mut banks)?;
        Ok(banks)
    }

    /// nvml-wrapper lacks it: the errors of the SRAM.
    pub(crate) fn sram_errors(&self) -> Answer<nvmlEccSramErrorStatus_t> {
        let version = version::<nvmlEccSramErrorStatus_t>(1);
        let mut errors = nvmlEccSramErrorStatus_t { version, ..Data::zeroed() };
        query!(self, nvmlDeviceGetSramEccErrorStatus, "for the errors of its SRAM", &mut errors)?;
        Ok(errors)
    }

    /// nvml-wrapper has only the second version, which older drivers lack: the addresses of retired
    /// pages.
    pub(crate) fn retired_pages(&self, cause: c_uint) -> Answer<Vec<u64>> {
        grow(|buffer: &mut [u64], length| {
            query!(
                self,
                nvmlDeviceGetRetiredPages,
                "for its retired pages",
                cause,
                length,
                buffer.as_mut_ptr()
            )
        })
    }

    /// nvml-wrapper truncates an unsigned long, lacks signed int and unsigned short, and reports an
    /// unknown type like an error code.
    pub(crate) fn field_values(&self, fields: &mut [nvmlFieldValue_t]) -> Answer<()> {
        let count = fields.len() as c_int;
        query!(self, nvmlDeviceGetFieldValues, "for a field value", count, fields.as_mut_ptr())
    }

    /// nvml-wrapper has only the second version, and loses the legacy form of the address.
    pub(crate) fn nvlink_remote(&self, link: u32) -> Answer<nvmlPciInfo_t> {
        let mut pci = nvmlPciInfo_t::zeroed();
        let newer = query!(
            self,
            nvmlDeviceGetNvLinkRemotePciInfo_v2,
            "for the remote end of an NVLink",
            link,
            &mut pci
        );
        match newer {
            Err(failure) if failure.is_too_old() => query!(
                self,
                nvmlDeviceGetNvLinkRemotePciInfo,
                "for the remote end of an NVLink",
                link,
                &mut pci
            ),
            answer => answer,
        }?;
        Ok(pci)
    }

    /// nvml-wrapper 0.13.0 always returns an unknown type.
    pub(crate) fn nvlink_remote_kind(&self, link: u32) -> Answer<c_uint> {
        let mut kind = 0;
        query!(
            self,
            nvmlDeviceGetNvLinkRemoteDeviceType,
            "for the remote end of an NVLink",
            link,
            &mut kind
        )?;
        Ok(kind)
    }

    /// nvml-wrapper does not retry if the list grows, and leaves zeros in it if it shrinks.
    pub(crate) fn accounting_pids(&self) -> Answer<Vec<c_uint>> {
        grow(|buffer: &mut [c_uint], length| {
            query!(
                self,
                nvmlDeviceGetAccountingPids,
                "for its accounted processes",
                length,
                buffer.as_mut_ptr()
            )
        })
    }

    /// nvml-wrapper queries the length first and does not retry when the list grows.
    pub(crate) fn process_utilization(&self) -> Answer<Vec<nvmlProcessUtilizationSample_t>> {
        grow(|buffer: &mut [nvmlProcessUtilizationSample_t], length| {
            query!(
                self,
                nvmlDeviceGetProcessUtilization,
                "for the utilisation of its processes",
                buffer.as_mut_ptr(),
                length,
                0
            )
        })
    }
}

/// Defines queries for lists of processes.
macro_rules! processes {
    ($( $name:ident: $type:ty = $function:ident, $purpose:literal; )*) => {
        /// nvml-wrapper queries the length first and does not retry when the list grows. It lacks
        /// the first versions, and the second version for MPS.
        impl Device<'_> { $(
            pub(crate) fn $name(&self) -> Answer<Vec<$type>> {
                grow(|buffer: &mut [$type], length| {
                    query!(self, $function, $purpose, length, buffer.as_mut_ptr())
                })
            }
        )* }
    };
}

processes! {
    compute_v3: nvmlProcessInfo_v2_t = nvmlDeviceGetComputeRunningProcesses_v3, "for its compute processes";
    compute_v2: nvmlProcessInfo_v2_t = nvmlDeviceGetComputeRunningProcesses_v2, "for its compute processes";
    compute_v1: nvmlProcessInfo_v1_t = nvmlDeviceGetComputeRunningProcesses, "for its compute processes";
    graphics_v3: nvmlProcessInfo_v2_t = nvmlDeviceGetGraphicsRunningProcesses_v3, "for its graphics processes";
    graphics_v2: nvmlProcessInfo_v2_t = nvmlDeviceGetGraphicsRunningProcesses_v2, "for its graphics processes";
    graphics_v1: nvmlProcessInfo_v1_t = nvmlDeviceGetGraphicsRunningProcesses, "for its graphics processes";
    mps_v3: nvmlProcessInfo_v2_t = nvmlDeviceGetMPSComputeRunningProcesses_v3, "for its MPS processes";
    mps_v2: nvmlProcessInfo_v2_t = nvmlDeviceGetMPSComputeRunningProcesses_v2, "for its MPS processes";
    mps_v1: nvmlProcessInfo_v1_t = nvmlDeviceGetMPSComputeRunningProcesses, "for its MPS processes";
}

/// nvml-wrapper has only the second version, which older drivers lack.
pub(crate) fn cuda_version_v1(caller: &Caller, nvml: &Nvml) -> Answer<c_int> {
    let mut version = 0;
    let answer = call!(
        caller,
        nvml,
        nvmlSystemGetCudaDriverVersion,
        "for the CUDA version",
        None,
        &mut version
    );
    answer.map(|()| version)
}

/// An event set with registered devices.
///
/// nvml-wrapper's event set borrows from its `Nvml`, so a struct cannot own both. A failed
/// registration frees the set for all devices. Its wait uses only the second version, which older
/// drivers lack.
pub(crate) struct EventSet(nvmlEventSet_t);

// SAFETY: only NVML dereferences it, and NVML may be called from any thread.
unsafe impl Send for EventSet {}

impl EventSet {
    pub(crate) fn new(caller: &Caller, nvml: &Nvml) -> Answer<Self> {
        let mut set = null_mut();
        call!(caller, nvml, nvmlEventSetCreate, "for an event set", None, &mut set)?;
        Ok(EventSet(set))
    }

    pub(crate) fn register(&self, device: &Device<'_>, types: u64) -> Answer<()> {
        query!(device, nvmlDeviceRegisterEvents, "register events of", types, self.0)
    }

    /// Waits for one event; the first version fills in the same struct except for the instances at
    /// its end.
    pub(crate) fn wait(
        &self,
        caller: &Caller,
        nvml: &Nvml,
        millis: u32,
    ) -> Answer<nvmlEventData_t> {
        let mut data = nvmlEventData_t::zeroed();
        let answer = if nvml.lib().nvmlEventSetWait_v2.is_ok() {
            call!(
                caller,
                nvml,
                nvmlEventSetWait_v2,
                "for an event",
                None,
                self.0,
                &mut data,
                millis
            )
        } else {
            call!(caller, nvml, nvmlEventSetWait, "for an event", None, self.0, &mut data, millis)
        };
        answer.map(|()| data)
    }

    pub(crate) fn free(self, caller: &Caller, nvml: &Nvml) {
        // Ignore errors: the set ends with the initialisation.
        let _ = call!(caller, nvml, nvmlEventSetFree, "free the event set of", None, self.0);
    }
}

/// Reads a list of unknown length: `fetch` receives a buffer and its capacity, and replaces the
/// capacity with the length of the list.
///
/// If the list fits, one call is enough, because its length is not queried first.
///
/// # Errors
/// Those of `fetch`; `INSUFFICIENT_SIZE` if the list outgrew the buffer every time.
fn grow<T: Data>(mut fetch: impl FnMut(&mut [T], &mut c_uint) -> Answer<()>) -> Answer<Vec<T>> {
    let (mut tries, mut room) = (0, ROOM);
    loop {
        tries += 1;
        // Half of the capacity is added in case the entries are larger than this crate assumes.
        let mut buffer = vec![T::zeroed(); room + room / 2];
        let mut length = room as c_uint;
        let answer = fetch(&mut buffer, &mut length);
        let reported = length as usize;
        match answer {
            Ok(()) => {
                buffer.truncate(reported.min(room));
                return Ok(buffer);
            }
            Err(failure) if failure.is(Code::INSUFFICIENT_SIZE) && tries < TRIES => {
                // The list may grow again before the next call.
                room = reported.saturating_add(reported / 4).max(room * 2).min(LONGEST_LIST);
            }
            Err(failure) => return Err(failure),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Failure;

    /// Reads a list that grows by one buffer at each of the first `growing` calls.
    fn fetched(length: usize, growing: usize) -> (Answer<Vec<u32>>, usize) {
        let mut calls = 0;
        let list = grow(|buffer: &mut [u32], reported| {
            let now = length + growing.min(calls) * buffer.len();
            calls += 1;
            let fits = now <= *reported as usize;
            *reported = now as u32;
            if fits {
                buffer[..now].fill(7);
                return Ok(());
            }
            Err(Failure::of(Code::INSUFFICIENT_SIZE))
        });
        (list, calls)
    }

    #[test]
    fn fitting_list_needs_one_call() {
        for length in [0, 1, ROOM] {
            let (list, calls) = fetched(length, 0);
            assert_eq!(list.unwrap(), vec![7; length]);
            assert_eq!(calls, 1);
        }
    }

    #[test]
    fn longer_list_is_retried_with_larger_buffer() {
        let (list, calls) = fetched(100, 0);
        assert_eq!(list.unwrap().len(), 100);
        assert_eq!(calls, 2);
        for (length, is_read) in [(1000, true), (LONGEST_LIST, true), (LONGEST_LIST * 2, false)] {
            let (list, calls) = fetched(length, 0);
            assert_eq!((list.is_ok(), calls), (is_read, if is_read { 2 } else { TRIES }));
        }
        // The capacity allows for growth by a quarter.
        let mut capacities = Vec::new();
        let list = grow(|_: &mut [u32], length| {
            capacities.push(*length);
            let is_first = std::mem::replace(length, 1000) == ROOM as u32;
            if is_first { Err(Failure::of(Code::INSUFFICIENT_SIZE)) } else { Ok(()) }
        });
        assert_eq!((list.unwrap().len(), capacities), (1000, vec![ROOM as u32, 1250]));
    }

    #[test]
    fn endlessly_growing_list_fails() {
        let (list, calls) = fetched(ROOM + 1, usize::MAX);
        assert_eq!(list.unwrap_err(), Failure::of(Code::INSUFFICIENT_SIZE));
        assert_eq!(calls, TRIES);
    }

    #[test]
    fn length_beyond_buffer_is_clamped() {
        let list = grow(|_: &mut [u32], reported| {
            *reported = u32::MAX;
            Ok(())
        });
        assert_eq!(list.unwrap(), [0; ROOM]);
    }
}
