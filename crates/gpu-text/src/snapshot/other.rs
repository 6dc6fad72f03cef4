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
    let mut adapted = documents.to_vec();
    for document in adapted.iter_mut().filter(|document| document.tool.is_some()) {
        let vendor = vendor(document);
        forget_shared(&mut document.gpus);
        forget_chip_memory(&mut document.gpus);
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

/// Removes the memory in use of devices that are parts of a chip: the tools print that of the chip
/// for the first part or for each, so it is not the memory of the processes on that part.
fn forget_chip_memory(gpus: &mut [Gpu]) {
    let is_part = |gpu: &Gpu| match &gpu.partition {
        Some(PartitionMode { compute: Some(mode), .. }) => mode != "SPX",
        Some(PartitionMode { id: Some(id), .. }) => *id > 0,
        _ => false,
    };
    let parts: Vec<bool> = gpus.iter().map(is_part).collect();
    for (at, gpu) in gpus.iter_mut().enumerate() {
        let precedes = parts.get(at + 1) == Some(&true) && gpu.partition.is_some();
        if parts.get(at) == Some(&true) || precedes {
            gpu.memory_used_mib = Err(Absent::NotSupported);
        }
    }
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
