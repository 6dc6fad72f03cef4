//! `ROCR_VISIBLE_DEVICES`, `HIP_VISIBLE_DEVICES` and `GPU_DEVICE_ORDINAL`: AMD's devices.
//!
//! The first applies to all ROCm programs. Within what it leaves, HIP programs apply the second and
//! OpenCL programs the third, with new numbers from 0. The grammars are those of
//! `amd_filter_device.cpp` of ROCR-Runtime and of `rocdevice.cpp` of clr.
//!
//! ROCR counts the GPU nodes of KFD, one for each partition of a divided device. So a backend has to
//! number AMD's devices in the order of their nodes, which may differ from that of PCI addresses, and
//! devices without a node need another [`Visibility`].

use super::number::number;
use super::parts::{Part, parts, positions};
use super::{Form, GivenList, Grammar, Resolved, Visibility, cuda, devices_of};
use crate::error::{Error, ErrorKind, Result};
use crate::id::DeviceUuid;
use crate::snapshot::DeviceState;

/// The variable of all ROCm programs. An empty list is none.
pub const VISIBLE: &str = "ROCR_VISIBLE_DEVICES";

/// The variable of HIP programs. If it is empty, they read [`cuda::VISIBLE`].
pub const HIP: &str = "HIP_VISIBLE_DEVICES";

/// The variable of OpenCL programs. An empty list is all devices, as for HIP.
pub const OPENCL: &str = "GPU_DEVICE_ORDINAL";

/// The value with which HIP and OpenCL programs see no device.
const NONE: &str = "-1";

/// The UUID that ROCm prints for a device without one.
const NO_UUID: &str = "GPU-XX";

/// How much of an entry without a device is kept.
const LONGEST: usize = 96;

/// The longest list that is parsed; the rest is ignored.
const MAX_ENTRIES: usize = 1024;

/// How ROCm programs see devices.
pub const ROCM: Visibility =
    Visibility { vendor: "amd", variable: VISIBLE, order: None, isolates_partitions: false };

/// The grammar of AMD's variables.
#[derive(Clone, Copy, Debug)]
pub struct Rocm;

impl Grammar for Rocm {
    fn visibility(&self) -> Visibility {
        ROCM
    }

    fn resolve(&self, value: &str, _: Option<&str>, devices: &[DeviceState]) -> Result<Resolved> {
        let parts = parts(devices);
        Ok(Chosen::by_rocr(value, &parts).resolved(&parts))
    }

    /// Names a partition, and a device without a UUID, by its number in any form.
    fn write(&self, keys: &[DeviceUuid], form: Form, devices: &[DeviceState]) -> Result<String> {
        let parts = parts(devices);
        let wanted = positions(keys, &parts)?;
        let entry = |at: &usize| {
            let uuid = parts[*at].device.id().uuid.as_ref().map_or("", |uuid| &uuid.0);
            let is_unique = || Chosen::by_rocr(uuid, &parts).positions == [*at];
            if form == Form::Uuid && is_unique() { uuid.to_owned() } else { at.to_string() }
        };
        let value = wanted.iter().map(entry).collect::<Vec<_>>().join(",");
        if Chosen::by_rocr(&value, &parts).positions == wanted {
            return Ok(value);
        }
        let error = Error::new(ErrorKind::Invalid, format!("write {VISIBLE}"));
        Err(error.with_source(format!("more than {MAX_ENTRIES} devices")))
    }

    fn is_set(&self, variable: &dyn Fn(&str) -> Option<String>) -> bool {
        let within = |name| variable(name).is_some_and(|value| !value.is_empty());
        variable(VISIBLE).is_some() || within(HIP) || within(OPENCL)
    }

    fn lists(
        &self,
        variable: &dyn Fn(&str) -> Option<String>,
        machine: &[DeviceState],
    ) -> Vec<GivenList> {
        let devices = devices_of(ROCM, machine);
        let parts = parts(&devices);
        if parts.is_empty() {
            return Vec::new();
        }
        let mut lists = Vec::new();
        let mut chosen = Chosen { positions: (0..parts.len()).collect(), ended_at: None };
        let mut add = |variable, value, chosen: &Chosen| {
            lists.push(GivenList { variable, value, resolved: Ok(chosen.resolved(&parts)) });
        };
        let rocr = variable(VISIBLE);
        if let Some(value) = &rocr {
            chosen = Chosen::by_rocr(value, &parts);
            add(VISIBLE, value.clone(), &chosen);
        }
        let set = |name| Some((name, variable(name).filter(|value| !value.is_empty())?));
        // With NVIDIA's devices on the machine, that variable is meant for them.
        let has_nvidia = machine.iter().any(|device| device.info.visibility == cuda::CUDA);
        let hip = set(HIP).or_else(|| set(cuda::VISIBLE).filter(|_| !has_nvidia));
        // Slurm sets OpenCL's variable to the numbers of ROCR's, which HIP programs do not mind.
        let within = hip.or_else(|| set(OPENCL).filter(|_| rocr.is_none()));
        if let Some((name, value)) = within {
            chosen = Chosen::by_hip(&value, &parts, &chosen.positions);
            add(name, value, &chosen);
        }
        lists
    }

    fn variables(
        &self,
        keys: &[DeviceUuid],
        form: Form,
        devices: &[DeviceState],
        _: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Vec<(&'static str, String)>> {
        if keys.is_empty() && devices.is_empty() {
            return Ok(Vec::new());
        }
        let count = positions(keys, &parts(devices))?.len();
        let all: Vec<String> = (0..count).map(|number| number.to_string()).collect();
        // Never empty, or HIP programs would read CUDA's variable.
        let within = if all.is_empty() { NONE.to_owned() } else { all.join(",") };
        let list = self.write(keys, form, devices)?;
        Ok(vec![(VISIBLE, list), (HIP, within.clone()), (OPENCL, within)])
    }
}

/// The positions of the devices that a list names, in its order.
struct Chosen {
    positions: Vec<usize>,
    ended_at: Option<String>,
}

impl Chosen {
    /// Reads a list up to the first entry that names no device. `find` returns the position that an
    /// entry names, and whether it may be named again.
    fn read<'a>(
        entries: impl Iterator<Item = &'a str>,
        find: impl Fn(&str, &[usize]) -> Option<usize>,
    ) -> Self {
        let mut chosen = Chosen { positions: Vec::new(), ended_at: None };
        for entry in entries.take(MAX_ENTRIES) {
            let Some(at) = find(entry, &chosen.positions) else {
                chosen.ended_at = Some(entry.chars().take(LONGEST).collect());
                break;
            };
            if !chosen.positions.contains(&at) {
                chosen.positions.push(at);
            }
        }
        chosen
    }

    /// Reads [`VISIBLE`]. An entry is a number as in C, or a UUID or the beginning of one; blanks and
    /// case do not matter. An entry that repeats a device ends the list. A program fails at an empty
    /// entry.
    fn by_rocr(value: &str, parts: &[Part<'_>]) -> Self {
        let find = |entry: &str, before: &[usize]| {
            let entry = entry.trim_ascii().to_ascii_uppercase();
            let at = if entry.starts_with('G') {
                let fits = |at: &usize| {
                    let uuid = parts[*at].device.id().uuid.as_ref();
                    uuid.is_ok_and(|uuid| uuid.0.to_ascii_uppercase().starts_with(&entry))
                };
                let mut found = (0..parts.len()).filter(fits);
                let first = found.next().filter(|_| (5..=20).contains(&entry.len()))?;
                found.next().is_none().then_some(first)?
            } else {
                number(&entry).filter(|(_, rest)| rest.is_empty())?.0
            };
            (at < parts.len() && !before.contains(&at)).then_some(at)
        };
        let end = if value.is_empty() { 0 } else { parts.len() };
        Chosen::read(value.strip_suffix(',').unwrap_or(value).split(',').take(end), find)
    }

    /// Reads [`HIP`] or [`OPENCL`], which is not empty. An entry is a plain number, or a part of a
    /// UUID that contains `GPU-`: then the first match counts.
    fn by_hip(value: &str, parts: &[Part<'_>], within: &[usize]) -> Self {
        let find = |entry: &str, _: &[usize]| {
            let has = |at: &&usize| {
                let uuid = parts[**at].device.id().uuid.as_ref();
                uuid.map_or(NO_UUID, |uuid| &uuid.0).contains(entry)
            };
            if entry.contains("GPU-") {
                return within.iter().find(has).copied();
            }
            let number: usize = entry.parse().ok()?;
            within.get(number).copied().filter(|_| number.to_string() == entry)
        };
        Chosen::read(value.strip_suffix(',').unwrap_or(value).split(','), find)
    }

    fn resolved(&self, parts: &[Part<'_>]) -> Resolved {
        let devices = self.positions.iter().filter_map(|at| parts[*at].named.clone()).collect();
        Resolved { devices, ended_at: self.ended_at.clone() }
    }
}

#[cfg(test)]
mod tests;
