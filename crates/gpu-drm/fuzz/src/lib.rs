//! The invariants of every fuzz target: no panic, and results of bounded size with bounded values.

use gpu_core::{Bytes, Pid};
use gpu_drm::{Client, Clients, Metrics};
use std::time::Duration;

/// Reads bytes as the fdinfo of a descriptor.
///
/// # Panics
/// If an invariant is violated.
pub fn fdinfo(bytes: &[u8]) {
    let Some(mut client) = Client::parse(bytes) else {
        return;
    };
    assert!(client.regions.len() <= 64 && client.engines.len() <= 64);
    let names = client.regions.keys().chain(client.engines.keys());
    assert!(names.chain(client.driver.iter()).all(|name| (1..=64).contains(&name.len())));
    for integrated in [false, true] {
        let memory = client.memory(integrated);
        assert!(
            memory.resident.is_err()
                || memory.private.is_err()
                || memory.private <= memory.resident
        );
    }
    // Half of the text is an earlier reading, and the rest of it a client of another process.
    let earlier = Client::parse(&bytes[..bytes.len() / 2]).unwrap_or_else(|| client.clone());
    client.catch_up(&earlier);
    let _ = client.usage_since(&earlier, Duration::from_nanos(bytes.len() as u64));
    let usage = client.usage_since(&client, Duration::from_secs(1)).unwrap_or_default();
    assert!(usage.values().flatten().all(|share| share.get() == 0));

    let mut clients = Clients::default();
    for (pid, text) in [(1, bytes), (2, bytes), (2, &bytes[bytes.len() / 2..])] {
        clients.add(Pid(pid), 0, text);
    }
    assert!(clients.iter().count() <= 3);
    if let Ok(device) = client.bus {
        let each: Vec<_> =
            clients.on(device).map(|held| held.client.memory(false).resident).collect();
        let memory = clients.memory(device, false);
        assert_eq!(memory.resident.is_ok(), each.iter().all(Result::is_ok));
        assert!(memory.resident.unwrap_or(Bytes(0)) <= each.into_iter().flatten().sum());
        let pids = clients.processes_on(device, false);
        assert!(pids.iter().all(|process| !process.shared_with().contains(&process.pid)));
    }
}

/// Reads bytes as a table of metrics.
///
/// # Panics
/// If an invariant is violated.
pub fn metrics(bytes: &[u8]) {
    let Ok(metrics) = Metrics::parse(bytes) else {
        return;
    };
    assert!(bytes.len() >= 8 && metrics.partitions.len() <= 8);
    assert_eq!(metrics.version, (bytes[2], bytes[3]));
    // What follows the table has no effect.
    let size = usize::from(u16::from_le_bytes([bytes[0], bytes[1]]));
    assert_eq!(Metrics::parse(&bytes[..size]), Ok(metrics));
    assert!(Metrics::parse(&bytes[..size - 1]).is_err());
}
