//! The thread that keeps a lease: it renews the lease, and keeps the devices from appearing unused
//! to safe-gpu.

use crate::failure::{Failure, Result};
use gpu_core::{EntryKind, LeaseStore, ProcessKey};
use gpu_host::FileLeaseStore;
use gpu_host::supervise::Companions;
use gpu_machine::{RENEWAL, Source};
use gpu_steward::{Grant, HeldDevices, Ports};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// The time from a failed renewal to the next attempt.
const RETRY: Duration = Duration::from_secs(60);

/// A lease and its thread. Dropping this releases the devices.
pub(crate) struct Keeper {
    /// No message is ever sent: the thread ends when the sender is dropped.
    thread: Option<(Sender<()>, JoinHandle<()>)>,
    pid: u32,
}

impl Keeper {
    /// Starts the thread.
    pub(crate) fn start(
        source: Arc<Source>,
        locks: FileLeaseStore,
        grant: Grant,
        root: ProcessKey,
    ) -> Result<Self> {
        let (release, released) = channel();
        let start = std::thread::Builder::new().name("gpuws-lease".to_owned());
        let thread = start
            .spawn(move || keep(grant, root, &source, &source.claim_ports(&locks), &released))
            .map_err(|error| Failure::new("failed", format!("keep the lease: {error}")))?;
        Ok(Keeper { thread: Some((release, thread)), pid: std::process::id() })
    }

    /// Returns whether this process started the thread. After a fork, the copy of this object is in
    /// a process that lacks the thread and must not touch the lease.
    pub(crate) fn is_own(&self) -> bool {
        self.pid == std::process::id()
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        match self.thread.take() {
            Some((release, thread)) if self.is_own() => {
                drop(release);
                // A thread that panicked has also released the devices.
                let _ = thread.join();
            }
            forked => std::mem::forget(forked),
        }
    }
}

fn keep(
    mut grant: Grant,
    root: ProcessKey,
    source: &Source,
    ports: &Ports<'_>,
    released: &Receiver<()>,
) {
    let placeholder = source.placeholder(root);
    let mut devices = HeldDevices::new(&mut grant, root, &placeholder, ports, &Companions);
    let mut due = ports.clock.monotonic() + RENEWAL;
    loop {
        let left = due.saturating_sub(ports.clock.monotonic());
        // If no placeholder can be kept, safe-gpu may take the devices; there is no way to prevent
        // this.
        let next = devices.step(&mut |_| {}).map_or(left, |next| next.min(left));
        if released.recv_timeout(next) != Err(RecvTimeoutError::Timeout) {
            return;
        }
        if ports.clock.monotonic() >= due {
            let renewed = renew(&mut grant, ports.locks);
            due = ports.clock.monotonic() + if renewed.is_ok() { RENEWAL } else { RETRY };
        }
    }
}

/// Renews the lease, and publishes it again if its file was deleted.
fn renew(grant: &mut Grant, locks: &dyn LeaseStore) -> gpu_core::Result<()> {
    if !grant.held.renew()? {
        grant.held = locks.publish(EntryKind::Lease, &grant.entry)?;
    }
    Ok(())
}
