//! Values of a device, with the reason for a missing one.

use gpu_core::{DeviceDetails, DeviceSample, DeviceState, Reading};

pub(crate) fn text(reading: Reading<impl ToString>) -> Reading<String> {
    reading.map(|value| value.to_string())
}

pub(crate) fn sample(device: &DeviceState) -> Reading<&DeviceSample> {
    device.sample.as_ref().map_err(|fault| fault.kind.absent())
}

pub(crate) fn details(device: &DeviceState) -> Reading<&DeviceDetails> {
    device.details.as_ref().map_err(|fault| fault.kind.absent())
}
