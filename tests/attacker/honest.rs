//! An honest user: claims devices, holds them briefly, and releases them.

use super::layout::{CONTESTED, Layout, TOTAL, choose, device, devices, observation};
use gpu_claim::{ClaimRequest, TakeError, Taken, Wait, take};
use gpu_core::{
    Bytes, Claim, Clock, DeviceUuid, EntryKind, LeaseEntry, LeaseGuard, LeaseId, LeaseStore, Pid,
    ProcessKey, QueuePlace, Result, SafeGpuGuard, SafeGpuHolder, Share, Timestamp, Waiter,
};
use gpu_host::{FileLeaseStore, SystemClock};
use gpuws_tests::Chance;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write;
use std::ops::ControlFlow;
use std::time::Duration;

/// The maximum time to serve a claim for uncontested devices, whatever the attacker does. Honest
/// users hold devices for milliseconds and are stopped for up to half a second.
const SERVED: Duration = Duration::from_secs(120);

/// Claims and releases devices until the stop file exists.
pub(crate) fn claim_and_release(layout: &Layout, name: &str, seed: u64, rule: &str) {
    let log = Log { participant: name.to_owned() };
    let locks = Honest { locks: layout.locks(), log, is_blind: rule == "blind" };
    let clock = SystemClock::new();
    let mut chance = Chance::new(seed);
    while !layout.stop().exists() {
        let (ask, is_free) = ask(&mut chance);
        locks.log.write("ask", json!({ "free": is_free }));
        match claim(&locks, &clock, &ask, &devices(), layout) {
            Ok(taken) => {
                locks.log.hold(&taken.entry);
                if taken.entry.devices.len() > 1 && chance.one_in(4) {
                    nested(&locks, &clock, layout, &taken.entry);
                }
                clock.sleep(Duration::from_millis(chance.below(15)));
                locks.log.drop(&taken.entry);
            }
            Err(TakeError::TimedOut(standing)) if is_free => {
                locks.log.write("starved", json!({ "standing": short(&standing) }));
            }
            Err(TakeError::NotNow(_) | TakeError::TimedOut(_) | TakeError::Stopped) => {
                locks.log.write("refused", Value::Null);
            }
            Err(error) => locks.log.fail(&error),
        }
    }
}

/// Takes a device out of a lease. No other claim competes for it, so it is available immediately.
fn nested(locks: &Honest, clock: &SystemClock, layout: &Layout, outer: &LeaseEntry) {
    let ask = ClaimRequest { within: Some(outer.clone()), ..asking(Claim::whole(1), Wait::No) };
    let ask = match outer.claim.share {
        Share::Whole => ask,
        share => ClaimRequest { claim: Claim { share, ..Claim::whole(1) }, ..ask },
    };
    match claim(locks, clock, &ask, &outer.devices, layout) {
        Ok(taken) => {
            locks.log.hold(&taken.entry);
            locks.log.drop(&taken.entry);
        }
        Err(error) => locks.log.fail(&error),
    }
}

fn claim(
    locks: &Honest,
    clock: &SystemClock,
    ask: &ClaimRequest,
    devices: &[DeviceUuid],
    layout: &Layout,
) -> Result<Taken<Vec<DeviceUuid>>, TakeError> {
    let mut watch = |_: &gpu_claim::Waiting<'_>| {
        if layout.stop().exists() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    take(locks, clock, ask, &mut || observation(devices), &choose, &mut watch)
}

/// Returns a claim, and whether it must be served because it requests uncontested devices.
fn ask(chance: &mut Chance) -> (ClaimRequest, bool) {
    let is_free = chance.below(10) < 6;
    let most = if is_free { 3 } else { 8 };
    let mut claim = Claim::whole(1 + u32::try_from(chance.below(most)).unwrap_or(0));
    if chance.one_in(3) {
        claim.share = Share::Memory(Bytes(TOTAL / 4 * (1 + chance.below(3))));
    }
    let wait = if is_free {
        claim.among = (0..CONTESTED).map(device).collect();
        Wait::For(SERVED)
    } else if chance.one_in(2) {
        Wait::No
    } else {
        Wait::For(Duration::from_millis(100 + chance.below(400)))
    };
    // Any user may keep safe-gpu's files locked, which makes every claim with safe-gpu wait.
    let holds_back_safe_gpu = !is_free && chance.one_in(4);
    (ClaimRequest { holds_back_safe_gpu, ..asking(claim, wait) }, is_free)
}

fn asking(claim: Claim, wait: Wait) -> ClaimRequest {
    ClaimRequest {
        claim,
        root: ProcessKey { pid: Pid(std::process::id()), start: None },
        within: None,
        parts_of: Vec::new(),
        command: "honest".to_owned(),
        wait,
        pace: Duration::from_millis(100),
        holds_back_safe_gpu: false,
    }
}

/// Formats a value in a form short enough for one write to a pipe.
fn short(what: &impl std::fmt::Debug) -> String {
    let mut text = format!("{what:?}");
    text.truncate(text.floor_char_boundary(1500));
    text
}

/// Sends lines to the test through a pipe that all honest processes share; each is one write.
struct Log {
    participant: String,
}

impl Log {
    fn write(&self, event: &str, more: Value) {
        let line = json!({ "event": event, "participant": self.participant, "more": more });
        let line = format!("{line}\n");
        if std::io::stdout().lock().write_all(line.as_bytes()).is_err() {
            // The test has ended.
            std::process::exit(1);
        }
    }

    fn entry(&self, event: &str, entry: &LeaseEntry) {
        let memory = match entry.claim.share {
            Share::Whole => None,
            Share::Memory(memory) => Some(memory.0),
        };
        let more = json!({
            "id": entry.id,
            "owner": entry.owner,
            "devices": entry.devices,
            "memory": memory,
            "within": entry.within.first(),
        });
        self.write(event, more);
    }

    fn hold(&self, entry: &LeaseEntry) {
        self.entry("hold", entry);
    }

    fn drop(&self, entry: &LeaseEntry) {
        self.entry("drop", entry);
    }

    fn fail(&self, error: &TakeError) {
        self.write("failed", json!({ "error": short(error) }));
    }
}

/// The locks, with a log line for each entry before it becomes visible.
struct Honest {
    locks: FileLeaseStore,
    log: Log,
    /// Whether it ignores the attempts of others: a broken rule that the oracle must detect.
    is_blind: bool,
}

impl LeaseStore for Honest {
    fn entries(&self, kind: EntryKind) -> Result<Vec<LeaseEntry>> {
        let mut entries = self.locks.entries(kind)?;
        if self.is_blind && kind != EntryKind::Waiter {
            entries.retain(|entry| entry.root.pid == Pid(std::process::id()));
        }
        Ok(entries)
    }
    fn queue(&self) -> Result<Vec<QueuePlace>> {
        self.locks.queue()
    }
    fn waiter(&self, place: &QueuePlace) -> Result<Option<Waiter>> {
        self.locks.waiter(place)
    }
    fn publish(&self, kind: EntryKind, entry: &LeaseEntry) -> Result<Box<dyn LeaseGuard>> {
        self.log.entry("publish", entry);
        self.locks.publish(kind, entry)
    }
    fn owner(&self) -> u32 {
        self.locks.owner()
    }
    fn new_id(&self) -> Result<LeaseId> {
        self.locks.new_id()
    }
    fn ticket(&self) -> Result<u64> {
        self.locks.ticket()
    }
    fn wait(&self, at_most: Duration) -> Result<bool> {
        self.locks.wait(at_most)
    }
    fn wait_for(&self, place: &QueuePlace, at_most: Duration) -> Result<bool> {
        self.locks.wait_for(place, at_most)
    }
    fn last_leased(&self) -> BTreeMap<DeviceUuid, Timestamp> {
        self.locks.last_leased()
    }
    fn hold_back_safe_gpu(&self, patience: Duration) -> Result<Box<dyn SafeGpuGuard>> {
        self.locks.hold_back_safe_gpu(patience)
    }
    fn safe_gpu_holder(&self) -> Option<SafeGpuHolder> {
        self.locks.safe_gpu_holder()
    }
}
