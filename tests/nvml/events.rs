//! The events of a device, through the C interface.

use crate::fixture::Fixture;
use gpu_core::*;
use std::time::Duration;

#[test]
fn xid_event_has_number_and_device() {
    let machine = tempfile::tempdir().unwrap();
    let text = "description = \"made: falls off the bus\"\nclock = 2025-01-01T00:00:00Z\n\
                [[gpu]]\nindex = 0\nmemory_total_mib = 100\n\
                [[gpu]]\nindex = 1\nmemory_total_mib = 100\n\
                [[event]]\nat_ms = 3000\nreports = { gpu = 1, xid = 79 }\n";
    std::fs::write(machine.path().join("machine.toml"), text).unwrap();
    let fixture = Fixture::moving(machine.path().to_str().unwrap());
    // A wait does not return events from before it.
    let reported = fixture.nvml(Duration::from_secs(40)).events(Duration::from_secs(20)).unwrap();
    assert_eq!(reported, [DeviceEvent { device: Some(1), kind: DeviceEventKind::Error(79) }]);
}

#[test]
fn wait_without_events_returns_none() {
    let fixture = Fixture::of("labbox", Duration::ZERO);
    let nvml = fixture.nvml(Duration::from_secs(20));
    assert_eq!(nvml.events(Duration::from_millis(10)).unwrap(), []);
}
