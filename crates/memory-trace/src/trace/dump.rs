//! The dump that TensorFlow's allocator prints when memory runs out.

use super::{Action, DeviceTrace, Event, Format, RecordedBlock, Recording, Segment};
use gpu_allocator_policy::BlockState;
use gpu_core::Bytes;
use gpu_text::oom;
use std::collections::BTreeMap;

/// Returns the regions that TensorFlow's allocator printed, for each device when memory first ran
/// out; `None` if there is no such dump.
pub fn dumped(report: &oom::Report) -> Option<Recording> {
    let (mut devices, mut limits) = (BTreeMap::new(), BTreeMap::new());
    for event in report.events.iter().filter(|event| !event.dump.regions.is_empty()) {
        let device = event.gpu.unwrap_or(0);
        devices.entry(device).or_insert_with(|| {
            let pool = event.dump.pool.and_then(|pool| pool.limit);
            limits.extend(event.dump.stat("Limit").or(pool).map(|limit| (device, limit)));
            trace(device, event)
        });
    }
    let settings = settings(&limits);
    let devices: Vec<DeviceTrace> = devices.into_values().collect();
    let recording =
        Recording { format: Format::BfcDump, settings, devices, ..Recording::default() };
    (!recording.devices.is_empty()).then_some(recording)
}

/// Returns the limits of the devices' allocators as settings: one if all are equal, otherwise each
/// with the index of its device.
fn settings(limits: &BTreeMap<u32, Bytes>) -> BTreeMap<String, String> {
    let mut values = limits.values();
    let first = values.next();
    match first.filter(|first| values.all(|limit| limit == *first)) {
        Some(limit) => BTreeMap::from([("memory_limit".to_owned(), limit.0.to_string())]),
        None => limits
            .iter()
            .map(|(device, limit)| (format!("memory_limit.{device}"), limit.0.to_string()))
            .collect(),
    }
}

/// Returns the regions of a device's allocator, and the request that failed.
fn trace(device: u32, event: &oom::Event) -> DeviceTrace {
    let dump = &event.dump;
    let ends = dump.regions.iter().skip(1).map(|region| region.first_block);
    let segments = dump.regions.iter().zip(ends.chain([dump.blocks.len()])).map(|(region, end)| {
        let blocks = dump.blocks.get(region.first_block..end).unwrap_or_default();
        Segment {
            address: blocks.first().map_or(0, |first| first.address),
            size: region.size.0,
            blocks: blocks.iter().map(block).collect(),
            ..Segment::default()
        }
    });
    let mut segments: Vec<Segment> = segments.collect();
    segments.sort_by_key(|segment| segment.address);
    let failed = event.tried.as_ref().and_then(|tried| tried.bytes).map(|Bytes(size)| Event {
        action: Action::OutOfMemory,
        address: Event::NOT_REPORTED,
        size,
        stream: 0,
        time_us: 0,
    });
    DeviceTrace {
        device,
        segments: Some(segments),
        events: failed.into_iter().collect(),
        ..DeviceTrace::default()
    }
}

fn block(block: &oom::Block) -> RecordedBlock {
    RecordedBlock {
        address: block.address,
        size: block.size.0,
        requested: None,
        state: if block.in_use { BlockState::Active } else { BlockState::Free },
    }
}
