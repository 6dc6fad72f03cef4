//! The machine as a whole.

use super::identity::text;
use crate::code::{Answer, Code};
use crate::entry::exports;
use crate::pointer::{Handle, In, Out};
use crate::view::{Subject, View};
use gpu_core::{Absent, Driver};
use std::ffi::{c_char, c_int, c_uint};

fn driver(view: &View) -> Answer<&Driver> {
    Ok(view.driver.as_ref()?)
}

/// Returns a CUDA version in NVML's encoding: 12020 for 12.2.
fn cuda_number(view: &View) -> Answer<c_int> {
    let text = text(&driver(view)?.cuda)?;
    let (major, minor) = text.split_once('.').unwrap_or((text, "0"));
    let number = |part: &str| part.trim().parse::<c_int>().ok().filter(|part| *part < 10_000);
    let both = number(major).zip(number(minor));
    both.map(|(major, minor)| major * 1000 + minor * 10).ok_or(Absent::Implausible.into())
}

exports! {
    machine [nvmlSystemGetDriverVersion](version: Out<c_char>, length: c_uint) |view| {
        version.put_text(length, text(&driver(view)?.version)?)
    }

    machine [nvmlSystemGetNVMLVersion](version: Out<c_char>, length: c_uint) |view| {
        // The major version of CUDA, then the driver version: `12.535.261.03`.
        let driver_version = text(&driver(view)?.version)?;
        version.put_text(length, &format!("{}.{driver_version}", cuda_number(view)? / 1000))
    }

    machine [nvmlSystemGetCudaDriverVersion, nvmlSystemGetCudaDriverVersion_v2](
        version: Out<c_int>,
    ) |view| {
        version.put(cuda_number(view)?)
    }

    machine [nvmlSystemGetProcessName](pid: c_uint, name: Out<c_char>, length: c_uint) |view| {
        let mut listed = view.subjects().filter_map(|gpu| gpu.state.processes.as_ref().ok());
        let found = listed.find_map(|list| list.iter().find(|process| process.pid.0 == pid));
        let found = found.ok_or(Code::NOT_FOUND)?;
        let text = text(&found.name)?;
        // This is the only text that is truncated to fit.
        let end = text.floor_char_boundary((length as usize).saturating_sub(1));
        name.put_text(length, &text[..end])
    }

    machine [nvmlUnitGetCount](count: Out<c_uint>) |_| {
        // Only old S-class systems have units.
        count.put(0)
    }

    machine [nvmlGetExcludedDeviceCount](count: Out<c_uint>) |_| {
        count.put(0)
    }

    machine [nvmlSystemGetHicVersion](count: Out<c_uint>, _entries: Out<c_uint>) |_| {
        count.put(0)
    }

    machine [nvmlDeviceGetCount, nvmlDeviceGetCount_v2](count: Out<c_uint>) |view| {
        count.put(view.count())
    }

    indexed [nvmlDeviceGetHandleByIndex, nvmlDeviceGetHandleByIndex_v2](
        index: c_uint, device: Out<Handle>,
    ) |view| {
        device.put(view.subject_at(index)?.handle())
    }

    machine [nvmlDeviceGetHandleByUUID](uuid: In<c_char>, device: Out<Handle>) |view| {
        let wanted = uuid.text()?;
        let mut found = view.subjects().flat_map(Subject::with_instances);
        let found = found.find(|subject| subject.uuid().is_ok_and(|own| own == wanted));
        device.put(found.ok_or(Code::NOT_FOUND)?.handle())
    }

    machine [nvmlDeviceGetHandleBySerial](serial: In<c_char>, device: Out<Handle>) |view| {
        let wanted = serial.text()?;
        let own = |gpu: Subject<'_>| Some(gpu.product().ok()?.serial.as_ref().ok()? == &wanted);
        let found = view.subjects().find(|gpu| own(*gpu) == Some(true));
        device.put(found.ok_or(Code::NOT_FOUND)?.handle())
    }

    machine [nvmlDeviceGetHandleByPciBusId, nvmlDeviceGetHandleByPciBusId_v2](
        bus: In<c_char>, device: Out<Handle>,
    ) |view| {
        let wanted = bus.text()?.parse().map_err(|_| Code::INVALID_ARGUMENT)?;
        let found = view.subjects().find(|gpu| gpu.state.info.id.bus == Ok(wanted));
        device.put(found.ok_or(Code::NOT_FOUND)?.handle())
    }
}
