//! Values by field ID (`NVML_FI_*`).

use super::{nvlink, power};
use crate::clock;
use crate::code::{Answer, Code, SUCCESS};
use crate::entry::exports;
use crate::layout::{FieldValue, Value};
use crate::pointer::Out;
use crate::view::Subject;
use gpu_nvidia_driver::recovery_number;
use std::ffi::{c_int, c_longlong, c_uint};

/// The supported IDs.
pub(crate) mod id {
    pub(crate) const ECC_CURRENT: u32 = 1;
    pub(crate) const ECC_PENDING: u32 = 2;
    pub(crate) const ECC_SBE_VOL_TOTAL: u32 = 3;
    pub(crate) const ECC_DBE_VOL_TOTAL: u32 = 4;
    pub(crate) const ECC_SBE_AGG_TOTAL: u32 = 5;
    pub(crate) const ECC_DBE_AGG_TOTAL: u32 = 6;
    pub(crate) const RETIRED_SBE: u32 = 29;
    pub(crate) const RETIRED_DBE: u32 = 30;
    pub(crate) const RETIRED_PENDING: u32 = 31;
    pub(crate) const NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL: u32 = 38;
    pub(crate) const NVLINK_REPLAY_ERROR_COUNT_TOTAL: u32 = 52;
    pub(crate) const NVLINK_RECOVERY_ERROR_COUNT_TOTAL: u32 = 59;
    pub(crate) const SW_POWER_CAP: u32 = 74;
    pub(crate) const SYNC_BOOST: u32 = 76;
    pub(crate) const MEMORY_TEMP: u32 = 82;
    pub(crate) const TOTAL_ENERGY_CONSUMPTION: u32 = 83;
    pub(crate) const NVLINK_LINK_COUNT: u32 = 91;
    pub(crate) const PCIE_REPLAY_COUNTER: u32 = 94;
    pub(crate) const REMAPPED_COR: u32 = 142;
    pub(crate) const REMAPPED_UNC: u32 = 143;
    pub(crate) const REMAPPED_PENDING: u32 = 144;
    pub(crate) const REMAPPED_FAILURE: u32 = 145;
    pub(crate) const NVLINK_ERROR_DL_REPLAY: u32 = 161;
    pub(crate) const NVLINK_ERROR_DL_RECOVERY: u32 = 162;
    pub(crate) const NVLINK_ERROR_DL_CRC: u32 = 163;
    pub(crate) const NVLINK_GET_STATE: u32 = 165;
    pub(crate) const NVLINK_GET_VERSION: u32 = 166;
    pub(crate) const POWER_AVERAGE: u32 = 185;
    pub(crate) const POWER_INSTANT: u32 = 186;
    pub(crate) const POWER_MIN_LIMIT: u32 = 187;
    pub(crate) const POWER_MAX_LIMIT: u32 = 188;
    pub(crate) const POWER_DEFAULT_LIMIT: u32 = 189;
    pub(crate) const POWER_CURRENT_LIMIT: u32 = 190;
    pub(crate) const POWER_REQUESTED_LIMIT: u32 = 192;
    pub(crate) const PCIE_COUNT_TX_BYTES: u32 = 197;
    pub(crate) const PCIE_COUNT_RX_BYTES: u32 = 198;
    pub(crate) const RESET_STATUS: u32 = 226;
    pub(crate) const DRAIN_AND_RESET_STATUS: u32 = 227;
    pub(crate) const GET_GPU_RECOVERY_ACTION: u32 = 230;
    pub(crate) const SW_THERM_SLOWDOWN: u32 = 251;
    pub(crate) const HW_THERM_SLOWDOWN: u32 = 252;
    pub(crate) const HW_POWER_BRAKE_SLOWDOWN: u32 = 253;
    /// One more than the highest ID of NVML 13.0.
    pub(crate) const END: u32 = 274;
    /// An ID of NVML 13.1.
    pub(crate) const EDPP_MULTIPLIER: u32 = 274;
}

/// The scopes of a power query (`NVML_POWER_SCOPE_*`); the third one is the memory.
const SCOPE_GPU: u32 = 0;
const SCOPE_MODULE: u32 = 1;

/// The types of values (`nvmlValueType_t`).
const UNSIGNED_INT: c_uint = 1;
const UNSIGNED_LONG_LONG: c_uint = 3;
const SIGNED_INT: c_uint = 5;

/// A value with its type.
#[derive(Clone, Copy)]
enum Typed {
    Int(u32),
    Long(u64),
    Signed(c_int),
}

fn read(gpu: Subject<'_>, field: u32, scope: u32) -> Answer<Typed> {
    use Typed::{Int, Long, Signed};
    Ok(match field {
        id::ECC_CURRENT => Int(gpu.modes()?.ecc?.into()),
        id::ECC_PENDING => {
            let modes = gpu.modes()?;
            Int(modes.ecc_pending.or(modes.ecc)?.into())
        }
        id::ECC_SBE_VOL_TOTAL => Long(gpu.memory_health()?.corrected?),
        id::ECC_DBE_VOL_TOTAL => Long(gpu.memory_health()?.uncorrected?),
        id::ECC_SBE_AGG_TOTAL => Long(gpu.memory_health()?.corrected_lifetime?),
        id::ECC_DBE_AGG_TOTAL => Long(gpu.memory_health()?.uncorrected_lifetime?),
        id::RETIRED_SBE => Int(gpu.memory_health()?.retired_single_bit?),
        id::RETIRED_DBE => Int(gpu.memory_health()?.retired_double_bit?),
        id::RETIRED_PENDING => Int(gpu.memory_health()?.retired_pending?.into()),
        id::MEMORY_TEMP => Signed(gpu.thermal()?.memory?.0),
        id::TOTAL_ENERGY_CONSUMPTION => Long(gpu.power()?.energy?),
        id::PCIE_REPLAY_COUNTER => Int(gpu.pcie()?.replays?),
        id::REMAPPED_COR => Int(gpu.memory_health()?.remapped_corrected?),
        id::REMAPPED_UNC => Int(gpu.memory_health()?.remapped_uncorrected?),
        id::REMAPPED_PENDING => Int(gpu.memory_health()?.remapped_pending?.into()),
        id::REMAPPED_FAILURE => Int(gpu.memory_health()?.remapped_failure?.into()),
        id::SW_POWER_CAP => Long(gpu.throttle_times()?.software_power_cap?),
        id::SYNC_BOOST => Long(gpu.throttle_times()?.sync_boost?),
        id::SW_THERM_SLOWDOWN => Long(gpu.throttle_times()?.software_thermal?),
        id::HW_THERM_SLOWDOWN => Long(gpu.throttle_times()?.hardware_thermal?),
        id::HW_POWER_BRAKE_SLOWDOWN => Long(gpu.throttle_times()?.hardware_power_brake?),
        id::EDPP_MULTIPLIER => Int(gpu.power_readings()?.peak_share?),
        id::POWER_AVERAGE..=id::POWER_REQUESTED_LIMIT if scope == SCOPE_MODULE => {
            let power = gpu.module_power()?;
            Int(power::milliwatts(match field {
                id::POWER_AVERAGE => power.average,
                id::POWER_INSTANT => power.instant,
                id::POWER_MIN_LIMIT => power.limit_min,
                id::POWER_MAX_LIMIT => power.limit_max,
                id::POWER_DEFAULT_LIMIT => power.default_limit,
                id::POWER_CURRENT_LIMIT => power.enforced_limit,
                id::POWER_REQUESTED_LIMIT => power.limit,
                _ => return Err(Code::NOT_SUPPORTED),
            })?)
        }
        id::POWER_AVERAGE..=id::POWER_REQUESTED_LIMIT if scope != SCOPE_GPU => {
            return Err(Code::NOT_SUPPORTED);
        }
        id::POWER_AVERAGE => Int(power::milliwatts(gpu.power_readings()?.average)?),
        id::POWER_INSTANT => Int(power::milliwatts(gpu.power_readings()?.instant)?),
        id::POWER_MIN_LIMIT => Int(power::milliwatts(gpu.power()?.limit_min)?),
        id::POWER_MAX_LIMIT => Int(power::milliwatts(gpu.power()?.limit_max)?),
        id::POWER_DEFAULT_LIMIT => Int(power::milliwatts(gpu.power()?.default_limit)?),
        id::POWER_CURRENT_LIMIT => Int(power::milliwatts(gpu.sample()?.power_limit)?),
        id::POWER_REQUESTED_LIMIT => Int(power::milliwatts(gpu.power()?.limit)?),
        id::PCIE_COUNT_TX_BYTES => Long(gpu.pcie()?.sent?.0),
        id::PCIE_COUNT_RX_BYTES => Long(gpu.pcie()?.received?.0),
        id::RESET_STATUS => Int(gpu.reset_status()?.required?.into()),
        id::DRAIN_AND_RESET_STATUS => Int(gpu.reset_status()?.drain_recommended?.into()),
        id::GET_GPU_RECOVERY_ACTION => Int(recovery_number(gpu.reset_status()?.recovery?)),
        field if (1..id::END).contains(&field) => return read_link(gpu, field, scope),
        _ => return Err(Code::INVALID_ARGUMENT),
    })
}

/// Returns NVLink values; the scope is the link number.
fn read_link(gpu: Subject<'_>, field: u32, scope: u32) -> Answer<Typed> {
    use Typed::{Int, Long};
    let total = |of: fn(&gpu_core::NvLink) -> gpu_core::Reading<u64>| -> Answer<Typed> {
        let links = gpu.nvlinks()?;
        if links.is_empty() {
            return Err(Code::NOT_SUPPORTED);
        }
        let counts: Result<Vec<u64>, _> = links.iter().map(of).collect();
        Ok(Long(counts?.iter().sum()))
    };
    let one = |counter| nvlink::errors(nvlink::link(gpu, scope)?, counter).map(Long);
    match field {
        id::NVLINK_LINK_COUNT => match gpu.nvlinks()?.len() {
            0 => Err(Code::NOT_SUPPORTED),
            links => Ok(Int(links as u32)),
        },
        id::NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL => total(|link| link.crc_errors),
        id::NVLINK_REPLAY_ERROR_COUNT_TOTAL => total(|link| link.replays),
        id::NVLINK_RECOVERY_ERROR_COUNT_TOTAL => total(|link| link.recoveries),
        id::NVLINK_ERROR_DL_REPLAY => one(nvlink::REPLAY),
        id::NVLINK_ERROR_DL_RECOVERY => one(nvlink::RECOVERY),
        id::NVLINK_ERROR_DL_CRC => one(nvlink::CRC_FLIT),
        id::NVLINK_GET_STATE => Ok(Int(nvlink::link(gpu, scope)?.active?.into())),
        id::NVLINK_GET_VERSION => Ok(Int(nvlink::link(gpu, scope)?.version?)),
        _ => Err(Code::NOT_SUPPORTED),
    }
}

/// Answers one field query.
fn filled(gpu: Subject<'_>, asked: FieldValue) -> FieldValue {
    let timestamp = c_longlong::try_from(clock::wall_micros()).unwrap_or(c_longlong::MAX);
    let answer = FieldValue { timestamp, latency_usec: 0, ..asked };
    let none = Value { unsigned_long_long: 0 };
    let (value_type, nvml_return, value) = match read(gpu, asked.field_id, asked.scope_id) {
        // A number fills the whole union, so no byte is uninitialised.
        Ok(Typed::Int(number)) => {
            (UNSIGNED_INT, SUCCESS, Value { unsigned_long_long: number.into() })
        }
        Ok(Typed::Long(number)) => {
            (UNSIGNED_LONG_LONG, SUCCESS, Value { unsigned_long_long: number })
        }
        Ok(Typed::Signed(number)) => {
            (SIGNED_INT, SUCCESS, Value { signed_long_long: number.into() })
        }
        Err(code) => (UNSIGNED_INT, code.0, none),
    };
    FieldValue { value_type, nvml_return, value, ..answer }
}

exports! {
    gpu [nvmlDeviceGetFieldValues](count: c_int, values: Out<FieldValue>) |gpu| {
        let count = usize::try_from(count).map_err(|_| Code::INVALID_ARGUMENT)?;
        if values.is_null() || count == 0 {
            return Err(Code::INVALID_ARGUMENT);
        }
        (0..count).try_for_each(|index| {
            values.put_at(index, filled(gpu, values.get_at(index)?))
        })
    }
}
