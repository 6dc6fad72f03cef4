//! Adapts the texts of AMD's and Intel's tools to the join of texts about one machine.
//!
//! Each tool numbers its own devices from 0, so the numbers of the second and third vendor are
//! shifted. Within one text, an identifier of several devices, such as the unique ID of a divided
//! chip, identifies none.

use super::listed::unsigned;
use crate::document::{Document, Gpu, PartitionMode, Tool};
use gpu_core::Absent;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// The vendors, in the order of their devices: NVIDIA, AMD, Intel.
const VENDORS: usize = 3;

/// Returns the place of the vendor of a text's devices.
pub(super) fn vendor(document: &Document) -> usize {
    match document.tool {
        None => 0,
        Some(Tool::XpuSmi | Tool::IntelGpuTop) => 2,
        Some(Tool::RocmSmi | Tool::AmdSmi | Tool::Radeontop | Tool::AmdgpuTop) => 1,
    }
}

/// Returns the documents with identifiers that are unique on the machine.
pub(super) fn adapted(documents: &[Document]) -> Cow<'_, [Document]> {
    if documents.iter().all(|document| document.tool.is_none()) {
        return Cow::Borrowed(documents);
    }
    let mut indexes: [BTreeSet<u32>; VENDORS] = Default::default();
    for document in documents {
        indexes[vendor(document)].extend(numbers(document));
    }
    let mut first = 0;
    let firsts = indexes.each_ref().map(|own| {
        let start = first;
        first += own.last().map_or(0, |last| last.saturating_add(1));
        start
    });
    let of_amd = documents.iter().filter(|document| vendor(document) == 1);
    let all_parts: BTreeSet<u32> = of_amd.flat_map(|document| parts(&document.gpus)).collect();
    let mut adapted = documents.to_vec();
    for document in adapted.iter_mut().filter(|document| document.tool.is_some()) {
        let vendor = vendor(document);
        let is_part = |index: u32| vendor == 1 && all_parts.contains(&index);
        forget_shared(&mut document.gpus);
        // The tools print the memory in use of the chip for the first part or for each part, so it is
        // not the memory of the processes on that part.
        for gpu in document.gpus.iter_mut().filter(|gpu| gpu.index.is_some_and(is_part)) {
            gpu.memory_used_mib = Err(Absent::NotSupported);
        }
        place_processes(document, &indexes[vendor]);
        shift(document, firsts[vendor]);
    }
    Cow::Owned(adapted)
}

/// Returns the indexes of the devices of a text; a device without one has its position.
fn numbers(document: &Document) -> impl Iterator<Item = u32> {
    let of_gpus = (0..).zip(&document.gpus).map(|(at, gpu)| gpu.index.unwrap_or(at));
    let of_processes = document.processes.iter().flatten().filter_map(|row| row.gpu_index);
    let of_rows = document.rows.iter().filter_map(|row| unsigned(row, "gpu"));
    of_gpus.chain(of_processes).chain(of_rows).filter(|index| *index < 1 << 16)
}

/// Removes identifiers that several devices of a text share.
fn forget_shared(gpus: &mut [Gpu]) {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for id in gpus.iter().flat_map(|gpu| [&gpu.uuid, &gpu.bus_id]).flatten() {
        *counts.entry(id.clone()).or_default() += 1;
    }
    let is_shared = |id: &mut String| counts.get(id).is_some_and(|count| *count > 1);
    for gpu in gpus {
        gpu.uuid.take_if(is_shared);
        gpu.bus_id.take_if(is_shared);
    }
}

/// Returns the devices that are parts of a chip: all in another mode than SPX; without a mode, a
/// device with a number above 0, and the one before it.
fn parts(gpus: &[Gpu]) -> impl Iterator<Item = u32> {
    let is_part = |gpu: &Gpu| match &gpu.partition {
        Some(PartitionMode { compute: Some(mode), .. }) => mode != "SPX",
        Some(PartitionMode { id: Some(id), .. }) => *id > 0,
        _ => false,
    };
    let next = gpus.iter().skip(1).map(Some).chain([None]);
    gpus.iter().zip(next).filter_map(move |(gpu, next)| {
        let is_first = gpu.partition.is_some() && next.is_some_and(is_part);
        gpu.index.filter(|_| is_part(gpu) || is_first)
    })
}

/// Attributes processes without a device; `indexes` has the devices of the vendor.
///
/// The list of the kernel's driver names no devices: a process belongs to the only one, and one
/// that uses no memory has no part in the memory of any.
fn place_processes(document: &mut Document, indexes: &BTreeSet<u32>) {
    let only = indexes.first().filter(|_| indexes.len() == 1);
    let Some(processes) = &mut document.processes else { return };
    processes.retain_mut(|row| {
        if row.gpu_index.is_none() && row.gpu_bus_id.is_none() {
            row.gpu_index = only.copied();
            return row.gpu_index.is_some() || row.memory_mib != Ok(0);
        }
        true
    });
    // Without devices of its own, a list would cover those of all vendors.
    if document.gpus.is_empty() {
        document.listing.get_or_insert_with(|| indexes.clone());
    }
}

/// Adds the number of devices of other vendors to the indexes of a text.
fn shift(document: &mut Document, by: u32) {
    if by == 0 {
        return;
    }
    let shifted = |index: u32| index.checked_add(by);
    for (at, gpu) in (0..).zip(&mut document.gpus) {
        gpu.index = shifted(gpu.index.unwrap_or(at));
    }
    for row in document.processes.iter_mut().flatten() {
        row.gpu_index = row.gpu_index.and_then(shifted);
    }
    let listing = document.listing.take();
    document.listing = listing.map(|all| all.into_iter().filter_map(shifted).collect());
}
