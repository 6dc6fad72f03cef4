//! Device events.

use crate::clock;
use crate::code::{Answer, Code};
use crate::entry::{exports, guard};
use crate::event_set::kind;
use crate::layout::EventData;
use crate::library::{self, enter};
use crate::pointer::{Handle, Out};
use std::ffi::{c_uint, c_ulonglong};
use std::time::Duration;

/// How often a waiting caller checks for events.
const STEP: Duration = Duration::from_millis(10);
/// The marker for no MIG instance.
const NO_INSTANCE: c_uint = c_uint::MAX;

/// Adds the events reported so far to the sets.
fn deliver() -> Answer {
    let mut library = library::lock();
    let reports = library.running()?.reports()?;
    library.event_sets.deliver(&reports);
    Ok(())
}

fn wait(function: &'static str, set: usize, data: Out<EventData>, timeout: c_uint) -> Answer {
    enter(function, None)?;
    if data.is_null() {
        return Err(Code::INVALID_ARGUMENT);
    }
    let end = clock::since_boot() + Duration::from_millis(timeout.into());
    loop {
        deliver()?;
        if let Some(report) = library::lock().event_sets.next(set)? {
            return data.put(EventData {
                device: Handle::of_gpu(report.gpu),
                event_type: report.kind,
                event_data: report.data,
                gpu_instance_id: NO_INSTANCE,
                compute_instance_id: NO_INSTANCE,
            });
        }
        match end.saturating_sub(clock::since_boot()) {
            Duration::ZERO => return Err(Code::TIMEOUT),
            left => clock::sleep(left.min(STEP)),
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn nvmlEventSetWait(set: usize, data: Out<EventData>, timeout_ms: c_uint) -> u32 {
    guard(|| wait("nvmlEventSetWait", set, data, timeout_ms))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlEventSetWait_v2(set: usize, data: Out<EventData>, timeout_ms: c_uint) -> u32 {
    guard(|| wait("nvmlEventSetWait_v2", set, data, timeout_ms))
}

exports! {
    machine [nvmlEventSetCreate](set: Out<usize>) |_| {
        if set.is_null() {
            return Err(Code::INVALID_ARGUMENT);
        }
        set.put(library::lock().event_sets.create())
    }

    machine [nvmlEventSetFree](set: usize) |_| {
        library::lock().event_sets.free(set)
    }

    gpu [nvmlDeviceRegisterEvents](kinds: c_ulonglong, set: usize) |gpu| {
        if kinds & !kind::ALL != 0 {
            return Err(Code::NOT_SUPPORTED);
        }
        // Earlier events belong to the callers that existed then.
        deliver()?;
        library::lock().event_sets.register(set, gpu.index(), kinds)
    }

    gpu [nvmlDeviceGetSupportedEventTypes](kinds: Out<c_ulonglong>) |_| {
        kinds.put(kind::ALL)
    }
}
