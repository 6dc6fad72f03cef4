//! How busy a device is, and its clocks.

use crate::code::{Answer, Code};
use crate::entry::exports;
use crate::layout::Utilization;
use crate::pointer::{Out, put_all};
use crate::view::Subject;
use gpu_core::{ClockChoice, Percent, Reading};
use std::ffi::{c_uint, c_ulonglong};

/// The driver's sample window for the video engines, in microseconds.
const SAMPLING_PERIOD: c_uint = 167_000;

/// Kinds of clocks (`nvmlClockType_t`).
const GRAPHICS: c_uint = 0;
const SM: c_uint = 1;
const MEMORY: c_uint = 2;
const VIDEO: c_uint = 3;
/// Which clock of a kind (`nvmlClockId_t`).
const CURRENT: c_uint = 0;
const APPLICATIONS: c_uint = 1;
const DEFAULT: c_uint = 2;
const HIGHEST_BOOST: c_uint = 3;
/// The kinds of video sessions (`nvmlEncoderType_t`).
const ENCODER_TYPES: c_uint = 3;

fn clock(gpu: Subject<'_>, kind: c_uint) -> Answer<c_uint> {
    let clocks = gpu.clocks()?;
    Ok(match kind {
        GRAPHICS => clocks.graphics?,
        SM => clocks.sm?,
        MEMORY => clocks.memory?,
        VIDEO => clocks.video?,
        _ => return Err(Code::INVALID_ARGUMENT),
    })
}

fn highest_clock(gpu: Subject<'_>, kind: c_uint) -> Answer<c_uint> {
    let clocks = gpu.clocks()?;
    Ok(match kind {
        GRAPHICS => clocks.graphics_max?,
        SM => clocks.sm_max?,
        MEMORY => clocks.memory_max?,
        VIDEO => clocks.video_max?,
        _ => return Err(Code::INVALID_ARGUMENT),
    })
}

/// Returns the current application clock.
fn application_clock(gpu: Subject<'_>, kind: c_uint) -> Answer<c_uint> {
    let clocks = gpu.application_clocks()?;
    Ok(match kind {
        GRAPHICS => clocks.graphics?,
        MEMORY => clocks.memory?,
        SM | VIDEO => return Err(Code::NOT_SUPPORTED),
        _ => return Err(Code::INVALID_ARGUMENT),
    })
}

/// Returns the default application clock.
fn default_clock(gpu: Subject<'_>, kind: c_uint) -> Answer<c_uint> {
    let clocks = gpu.application_clocks()?;
    Ok(match kind {
        GRAPHICS => clocks.default_graphics?,
        MEMORY => clocks.default_memory?,
        SM | VIDEO => return Err(Code::NOT_SUPPORTED),
        _ => return Err(Code::INVALID_ARGUMENT),
    })
}

fn choices(gpu: Subject<'_>) -> Answer<&[ClockChoice]> {
    Ok(gpu.supported_clocks()?.combinations.as_deref().map_err(|absent| *absent)?)
}

fn engine(share: Reading<Percent>, out: Out<c_uint>, period: Out<c_uint>) -> Answer {
    put_all([(out, share?.get().into()), (period, SAMPLING_PERIOD)])
}

exports! {
    gpu [nvmlDeviceGetUtilizationRates](rates: Out<Utilization>) |gpu| {
        let share = gpu.sample()?.utilization?.get();
        // One struct holds both values, so a missing memory value becomes zero.
        let memory = gpu.activity().ok().and_then(|activity| activity.memory.ok());
        let memory = memory.map_or(0, Percent::get);
        rates.put(Utilization { gpu: share.into(), memory: memory.into() })
    }

    gpu [nvmlDeviceGetEncoderUtilization](share: Out<c_uint>, period: Out<c_uint>) |gpu| {
        engine(gpu.activity()?.encoder, share, period)
    }

    gpu [nvmlDeviceGetDecoderUtilization](share: Out<c_uint>, period: Out<c_uint>) |gpu| {
        engine(gpu.activity()?.decoder, share, period)
    }

    gpu [nvmlDeviceGetJpgUtilization](share: Out<c_uint>, period: Out<c_uint>) |gpu| {
        engine(gpu.engines()?.jpeg, share, period)
    }

    gpu [nvmlDeviceGetOfaUtilization](share: Out<c_uint>, period: Out<c_uint>) |gpu| {
        engine(gpu.engines()?.ofa, share, period)
    }

    gpu [nvmlDeviceGetEncoderStats](sessions: Out<c_uint>, fps: Out<c_uint>, latency: Out<c_uint>)
        |gpu| {
        let activity = gpu.activity()?;
        put_all([
            (sessions, activity.encoder_sessions?),
            (fps, activity.encoder_fps?),
            (latency, activity.encoder_latency?),
        ])
    }

    gpu [nvmlDeviceGetEncoderCapacity](kind: c_uint, _capacity: Out<c_uint>) |_| {
        Err(if kind < ENCODER_TYPES { Code::NOT_SUPPORTED } else { Code::INVALID_ARGUMENT })
    }

    gpu [nvmlDeviceGetPerformanceState, nvmlDeviceGetPowerState](state: Out<c_uint>) |gpu| {
        state.put(gpu.activity()?.performance_state?.into())
    }

    gpu [nvmlDeviceGetCurrentClocksThrottleReasons, nvmlDeviceGetCurrentClocksEventReasons](
        reasons: Out<c_ulonglong>,
    ) |gpu| {
        reasons.put(gpu.activity()?.throttle?.0)
    }

    gpu [nvmlDeviceGetSupportedClocksThrottleReasons, nvmlDeviceGetSupportedClocksEventReasons](
        reasons: Out<c_ulonglong>,
    ) |gpu| {
        reasons.put(gpu.activity()?.throttle_supported?.0)
    }

    gpu [nvmlDeviceGetClockInfo](kind: c_uint, clock_mhz: Out<c_uint>) |gpu| {
        clock_mhz.put(clock(gpu, kind)?)
    }

    gpu [nvmlDeviceGetMaxClockInfo](kind: c_uint, clock_mhz: Out<c_uint>) |gpu| {
        clock_mhz.put(highest_clock(gpu, kind)?)
    }

    gpu [nvmlDeviceGetSupportedMemoryClocks](count: Out<c_uint>, clocks: Out<c_uint>) |gpu| {
        let memory = choices(gpu)?.iter().map(|choice| choice.memory_mhz);
        clocks.put_list(count, &memory.collect::<Vec<_>>())
    }

    gpu [nvmlDeviceGetSupportedGraphicsClocks](
        memory: c_uint, count: Out<c_uint>, clocks: Out<c_uint>,
    ) |gpu| {
        let choice = choices(gpu)?.iter().find(|choice| choice.memory_mhz == memory);
        clocks.put_list(count, &choice.ok_or(Code::NOT_FOUND)?.graphics_mhz)
    }

    gpu [nvmlDeviceGetApplicationsClock](kind: c_uint, clock_mhz: Out<c_uint>) |gpu| {
        clock_mhz.put(application_clock(gpu, kind)?)
    }

    gpu [nvmlDeviceGetDefaultApplicationsClock](kind: c_uint, clock_mhz: Out<c_uint>) |gpu| {
        clock_mhz.put(default_clock(gpu, kind)?)
    }

    gpu [nvmlDeviceGetClock](kind: c_uint, which: c_uint, clock_mhz: Out<c_uint>) |gpu| {
        match which {
            CURRENT => clock_mhz.put(clock(gpu, kind)?),
            APPLICATIONS => clock_mhz.put(application_clock(gpu, kind)?),
            DEFAULT => clock_mhz.put(default_clock(gpu, kind)?),
            HIGHEST_BOOST => Err(Code::NOT_SUPPORTED),
            _ => Err(Code::INVALID_ARGUMENT),
        }
    }
}
