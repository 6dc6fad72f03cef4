//! Events of devices.

use crate::call::{Answer, Failure};
use crate::code::{Cause, Code};
use crate::device::Device;
use crate::raw::EventSet;
use crate::session::{Opened, affects_all};
use gpu_core::{DeviceEvent, DeviceEventKind, Error, ErrorKind, Result};
use nvml_wrapper_sys::bindings::{
    nvmlEventData_t, nvmlEventTypeDoubleBitEccError, nvmlEventTypeSingleBitEccError,
    nvmlEventTypeXidCriticalError,
};
use std::sync::PoisonError;
use std::time::Duration;

/// The event types to register for, if a device supports them.
const WANTED: u64 = (nvmlEventTypeSingleBitEccError
    | nvmlEventTypeDoubleBitEccError
    | nvmlEventTypeXidCriticalError) as u64;

/// The maximum number of events to return at once; the driver keeps the rest.
const MAX_AT_ONCE: usize = 256;

const WHAT: &str = "wait for events";

/// Waits for one event; `None` after the timeout.
fn next_event(set: &EventSet, nvml: Opened<'_>, millis: u32) -> Answer<Option<nvmlEventData_t>> {
    match set.wait(nvml.caller, &nvml.session.nvml, millis) {
        Ok(data) => Ok(Some(data)),
        Err(failure) if failure.is(Code::TIMEOUT) => Ok(None),
        Err(failure) => Err(failure),
    }
}

impl Opened<'_> {
    /// Waits up to `wait` for an event and returns all available events.
    ///
    /// # Errors
    /// `Unsupported` when no device supports events; `Device` or `Machine` when NVML returns such a
    /// code.
    pub(crate) fn events(self, wait: Duration) -> Result<Vec<DeviceEvent>> {
        let mut kept = self.session.events.lock().unwrap_or_else(PoisonError::into_inner);
        let set = match &mut *kept {
            Some(set) => set,
            none => none.insert(self.register()?),
        };
        let millis = u32::try_from(wait.as_millis()).unwrap_or(u32::MAX - 1);
        let failed = |failure: Failure| failure.error(Code::of_device);
        let mut events = Vec::new();
        let mut next = next_event(set, self, millis).map_err(failed)?;
        while let Some(data) = next {
            events.extend(
                kind(data.eventType, data.eventData)
                    .map(|kind| DeviceEvent { device: self.index_of(&data), kind }),
            );
            if events.len() >= MAX_AT_ONCE {
                break;
            }
            // A failure must not discard events already received.
            next = next_event(set, self, 0).unwrap_or(None);
        }
        Ok(events)
    }

    /// Registers all devices that support events with a new set.
    fn register(self) -> Result<EventSet> {
        let made = EventSet::new(self.caller, &self.session.nvml);
        let set = made.map_err(|failure| match failure.cause {
            Cause::Code(Code::NOT_SUPPORTED | Code::FUNCTION_NOT_FOUND) => {
                failure.error(|_| ErrorKind::Unsupported)
            }
            _ => failure.error(Code::of_machine),
        })?;
        let mut registered = 0;
        for index in self.indices() {
            match self.device(index).and_then(|device| register_with(&set, device)) {
                Ok(()) => registered += 1,
                Err(error) if affects_all(&error) => {
                    set.free(self.caller, &self.session.nvml);
                    return Err(error);
                }
                // The device does not support events, or is lost.
                Err(_) => {}
            }
        }
        if registered == 0 {
            set.free(self.caller, &self.session.nvml);
            return Err(
                Error::new(ErrorKind::Unsupported, WHAT).with_source("no GPU supports events")
            );
        }
        Ok(set)
    }

    fn index_of(self, data: &nvmlEventData_t) -> Option<u32> {
        self.indices()
            .find(|index| self.device(*index).is_ok_and(|device| device.handle.0 == data.device))
    }
}

fn register_with(set: &EventSet, device: Device<'_>) -> Result<()> {
    let failed = |failure: Failure| failure.error(Code::of_value);
    let purpose = "for its supported events";
    let types = device.query("nvmlDeviceGetSupportedEventTypes", purpose, |device| {
        device.supported_event_types()
    });
    let types = types.map_err(failed)?.bits() & WANTED;
    if types == 0 {
        return Err(Error::new(ErrorKind::Unsupported, WHAT));
    }
    set.register(&device, types).map_err(failed)
}

fn kind(event: u64, data: u64) -> Option<DeviceEventKind> {
    const XID: u64 = nvmlEventTypeXidCriticalError as u64;
    const SINGLE_BIT: u64 = nvmlEventTypeSingleBitEccError as u64;
    const DOUBLE_BIT: u64 = nvmlEventTypeDoubleBitEccError as u64;
    match event {
        XID => Some(DeviceEventKind::Error(data)),
        SINGLE_BIT => Some(DeviceEventKind::CorrectedMemoryError),
        DOUBLE_BIT => Some(DeviceEventKind::UncorrectedMemoryError),
        // Not registered.
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_kinds_are_decoded() {
        assert_eq!(kind(8, 79), Some(DeviceEventKind::Error(79)));
        assert_eq!(kind(1, 0), Some(DeviceEventKind::CorrectedMemoryError));
        assert_eq!(kind(2, 0), Some(DeviceEventKind::UncorrectedMemoryError));
        assert_eq!(kind(4, 0), None);
        assert_eq!(WANTED, 11);
    }
}
