//! The dump that TensorFlow's allocator prints when memory runs out.

use super::{Action, DeviceTrace, Event, Format, RecordedBlock, Recording, Segment};
use gpu_allocator_policy::BlockState;
use gpu_core::Bytes;
use gpu_text::oom;
use std::collections::BTreeMap;

/// Returns the regions that TensorFlow's allocator printed, for each device, when memory first ran
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

#[cfg(test)]
mod tests {
    use super::*;

    fn report(gpu: u32, limit: u64, size: u64) -> String {
        format!(
            "Allocator (GPU_{gpu}_bfc) ran out of memory trying to allocate 1.00GiB (rounded to 1073741824)\n\
             BFCAllocator dump for GPU_{gpu}_bfc\n\
             Next region of size {size}\nInUse at 7f0000000000 of size 768 next 1\n\
             Free at 7f0000000300 of size 256 next 2\n\
             Next region of size 512\nInUse at 7e0000000000 of size 512 next 1\n\
             Limit: {limit}\nInUse: 5\n"
        )
    }

    fn of(log: &str) -> Option<Recording> {
        dumped(&oom::read(log.as_bytes()))
    }

    #[test]
    fn regions_and_failed_request_of_first_dump_are_read() {
        let recording = of(&format!("{}{}", report(1, 4096, 1024), report(1, 4096, 2048))).unwrap();
        assert_eq!(recording.format, Format::BfcDump);
        let [trace] = recording.devices.as_slice() else { panic!("one device") };
        let segments: Vec<_> = trace
            .segments
            .iter()
            .flatten()
            .map(|segment| (segment.address, segment.size, segment.blocks.len()))
            .collect();
        assert_eq!(segments, [(0x7e00_0000_0000, 512, 1), (0x7f00_0000_0000, 1024, 2)]);
        let blocks = &trace.segments.as_ref().unwrap()[1].blocks;
        assert_eq!((blocks[0].size, blocks[0].state), (768, BlockState::Active));
        assert_eq!((blocks[1].size, blocks[1].state), (256, BlockState::Free));
        let [event] = trace.events.as_slice() else { panic!("one event") };
        assert_eq!((event.action, event.size), (Action::OutOfMemory, 1 << 30));
        assert_eq!((trace.device, event.device_free()), (1, None));
        assert!(recording.check().is_ok());
        assert_eq!(of("BFCAllocator dump for GPU_0_bfc\nLimit: 5\nInUse: 5\n"), None);
    }

    #[test]
    fn reads_common_or_per_device_limits() {
        let settings = |first, second| {
            let recording =
                of(&format!("{}{}", report(0, first, 1024), report(1, second, 1024))).unwrap();
            assert_eq!(recording.devices.len(), 2);
            let settings = recording.settings.into_iter();
            settings.map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>()
        };
        assert_eq!(settings(4096, 4096), ["memory_limit=4096"]);
        assert_eq!(settings(4096, 8192), ["memory_limit.0=4096", "memory_limit.1=8192"]);
    }
}
