//! Errors that follow from others: finds the message of the log that is the cause of another.
//!
//! A device that fails takes the work of its programs with it, even that on other devices. The driver
//! logs each program, and a switch each link that went down, so the messages that name the programs
//! are the most numerous and the least to blame (NVIDIA, "Analyzing Xid Errors with the Xid
//! Catalog"). The [`Relation`] of an error says whether it may be such an effect; some drivers name
//! the cause themselves.

use gpu_core::{
    DriverError, DriverErrorCode, DriverMessage, FaultClass, PciBusId, Pid, Relation, Timestamp,
};
use std::collections::BTreeMap;
use std::time::Duration;

/// Messages of one fault follow each other within this time.
const BURST: Duration = Duration::from_secs(60);

/// The clean-up after an error may be logged this long before the error.
const EARLY: Duration = Duration::from_secs(5);

/// In a log without times, at most this many messages before it.
const EARLY_LINES: usize = 8;

/// The error that caused a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause<'a> {
    /// The message at this position of the log.
    Logged(usize),
    /// An error that a message names and the log lacks.
    Named(&'a DriverError),
}

/// Returns the cause of each message, in the order of the log; `None` for a message without one.
pub(super) fn causes<'a>(messages: &[&'a DriverMessage]) -> Vec<Option<Cause<'a>>> {
    let mut known = Known::default();
    let mut causes = Vec::with_capacity(messages.len());
    for (at, message) in messages.iter().enumerate() {
        let cause = known.cause(message);
        if cause.is_none() {
            known.add(at, message);
        }
        known.extend(message);
        causes.push(cause);
    }
    add_later(messages, &mut causes);
    causes
}

/// Finds the cause of a clean-up that was logged just before it.
fn add_later(messages: &[&DriverMessage], causes: &mut [Option<Cause<'_>>]) {
    let (mut of_device, mut of_process) = (BTreeMap::new(), BTreeMap::new());
    for (at, message) in messages.iter().enumerate().rev() {
        if causes[at].is_some() {
            continue;
        }
        if may_cause(message) {
            of_device.insert(message.bus, at);
            message.pid.map(|pid| of_process.insert(pid, at));
        } else if message.error.relation == Relation::Cleanup {
            let is_near = |later: &&usize| {
                let known = First { position: at, last: moment(message) };
                let timed = message.at != DriverMessage::UNDATED || message.elapsed.is_some();
                if timed {
                    known.reaches_within(messages[**later], EARLY)
                } else {
                    known.reaches(messages[**later]) && **later - at <= EARLY_LINES
                }
            };
            let of_process = message.pid.and_then(|pid| of_process.get(&pid));
            let later = of_device.get(&message.bus).filter(is_near);
            causes[at] = later.or(of_process.filter(is_near)).map(|later| Cause::Logged(*later));
        }
    }
}

fn may_cause(message: &DriverMessage) -> bool {
    matches!(message.error.relation, Relation::Cause | Relation::CauseOrEffect)
}

/// The error that began a burst, and the time of the last message in the burst.
#[derive(Clone, Copy)]
struct First {
    position: usize,
    last: Moment,
}

/// The time of a message, and its time on the clock of its log if it has no date.
type Moment = (Timestamp, Option<Duration>);

impl First {
    /// Returns whether a message belongs to this burst. For messages without any time, only the
    /// order in the log is known.
    fn reaches(&self, message: &DriverMessage) -> bool {
        self.reaches_within(message, BURST)
    }

    fn reaches_within(&self, message: &DriverMessage, most: Duration) -> bool {
        let (last, elapsed) = self.last;
        match [last, message.at].map(|at| at == DriverMessage::UNDATED) {
            [false, false] => message.at.since(last) <= most,
            [true, true] => match (elapsed, message.elapsed) {
                // If the clock went back, it was restarted.
                (Some(last), Some(at)) => at.checked_sub(last).is_some_and(|span| span <= most),
                (None, None) => true,
                _ => false,
            },
            _ => false,
        }
    }
}

fn moment(message: &DriverMessage) -> Moment {
    (message.at, message.elapsed)
}

/// The errors so far that may cause others.
#[derive(Default)]
struct Known<'a> {
    of_device: BTreeMap<PciBusId, First>,
    of_process: BTreeMap<Pid, First>,
    of_machine: Option<First>,
    by_code: BTreeMap<(PciBusId, &'a DriverErrorCode), First>,
    anywhere: BTreeMap<&'a DriverErrorCode, First>,
}

impl<'a> Known<'a> {
    fn cause(&self, message: &'a DriverMessage) -> Option<Cause<'a>> {
        let near = |first: Option<&First>| {
            let first = first.filter(|first| first.reaches(message))?;
            Some(Cause::Logged(first.position))
        };
        if let Some(cause) = &message.error.cause {
            let logged = near(self.by_code.get(&(message.bus, &cause.code)));
            let logged = logged.or_else(|| near(self.anywhere.get(&cause.code)));
            return Some(logged.unwrap_or(Cause::Named(cause)));
        }
        match message.error.relation {
            Relation::CauseOrEffect | Relation::Cleanup => near(self.of_device.get(&message.bus))
                .or_else(|| near(self.of_process.get(&message.pid?))),
            Relation::Detail => near(self.of_device.get(&message.bus)),
            Relation::EffectOfAny => near(self.of_machine.as_ref()),
            _ => None,
        }
    }

    /// Records an error without a cause in the log. The first one of a burst is kept.
    fn add(&mut self, position: usize, message: &'a DriverMessage) {
        if !may_cause(message) {
            return;
        }
        let first = First { position, last: moment(message) };
        self.by_code.insert((message.bus, &message.error.code), first);
        self.anywhere.insert(&message.error.code, first);
        if self.of_device.get(&message.bus).is_none_or(|known| !known.reaches(message)) {
            self.of_device.insert(message.bus, first);
        }
        if let Some(pid) = message.pid
            && self.of_process.get(&pid).is_none_or(|known| !known.reaches(message))
        {
            self.of_process.insert(pid, first);
        }
        let is_program = message.error.class == FaultClass::Program;
        if !is_program && self.of_machine.is_none_or(|known| !known.reaches(message)) {
            self.of_machine = Some(first);
        }
    }

    /// Extends the burst that contains a message.
    fn extend(&mut self, message: &DriverMessage) {
        let bursts = [
            self.of_device.get_mut(&message.bus),
            message.pid.and_then(|pid| self.of_process.get_mut(&pid)),
        ];
        for first in bursts.into_iter().flatten().filter(|first| first.reaches(message)) {
            first.last = moment(message);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cause of a message: its position in the log, or its name.
    type Found = Option<Result<usize, String>>;

    /// Returns the causes of messages, each with its time in seconds.
    fn of(log: &[(u64, &str)]) -> Vec<Found> {
        let parse = |(seconds, line): &(u64, &str)| {
            let prefix = if line.starts_with('n') { "" } else { "NVRM: " };
            gpu_nvidia_driver::parse_message(&format!("{prefix}{line}"), Timestamp(seconds * 1000))
                .unwrap()
        };
        let log: Vec<DriverMessage> = log.iter().map(parse).collect();
        let found = |cause| match cause {
            Cause::Logged(at) => Ok(at),
            Cause::Named(error) => Err(error.name.clone()),
        };
        let causes = causes(&log.iter().collect::<Vec<_>>());
        causes.into_iter().map(|cause| cause.map(found)).collect()
    }

    #[test]
    fn clock_of_log_separates_bursts() {
        let parse = |elapsed: Option<u64>, code: u32| {
            let line = format!("NVRM: Xid (PCI:0000:3b:00): {code}, pid=7, name=a, Ch 1");
            let message = gpu_nvidia_driver::parse_message(&line, DriverMessage::UNDATED).unwrap();
            DriverMessage { elapsed: elapsed.map(Duration::from_secs), ..message }
        };
        for (first, second, follows) in [
            (Some(100), Some(160), true),
            (Some(100), Some(161), false),
            (Some(100), Some(99), false),
            (Some(100), None, false),
            (None, None, true),
        ] {
            let log = [parse(first, 31), parse(second, 45)];
            let causes = causes(&log.iter().collect::<Vec<_>>());
            assert_eq!(causes[1].is_some(), follows, "{first:?} {second:?}");
        }
    }

    const LOGGED: Found = Some(Ok(0));

    #[test]
    fn removed_channels_follow_from_first_error_of_burst() {
        let removed = "Xid (PCI:0000:3b:00): 45, pid=7, name=a, Ch 1";
        let elsewhere = "Xid (PCI:0000:5e:00): 45, pid=7, name=a, Ch 1";
        let other = "Xid (PCI:0000:5e:00): 45, pid=8, name=b, Ch 1";
        let lost = "Xid (PCI:0000:3b:00): 79, pid=7, name=a, GPU has fallen off the bus.";
        let fault = "Xid (PCI:0000:3b:00): 31, pid=7, name=a, Ch 1";
        let stopped = "Xid (PCI:0000:3b:00): 43, pid=7, name=a, Ch 1";
        for (log, want) in [
            (&[(1, removed)][..], &[None][..]),
            (&[(1, lost), (2, removed), (3, elsewhere), (3, other)], &[None, LOGGED, LOGGED, None]),
            (&[(1, lost), (2, fault), (3, removed)], &[None, None, LOGGED]),
            (&[(1, fault), (2, stopped), (3, removed)], &[None, LOGGED, LOGGED]),
            (&[(1, stopped), (2, removed)], &[None, LOGGED]),
            // The driver may remove channels before it logs the reason.
            (&[(1, removed), (2, lost)], &[Some(Ok(1)), None]),
            (&[(1, other), (2, lost)], &[None, None]),
            (&[(1, elsewhere), (6, lost)], &[Some(Ok(1)), None]),
            (&[(1, removed), (7, lost)], &[None, None]),
            (
                &[(1, removed), (2, removed), (2, fault), (3, lost)],
                &[Some(Ok(2)), Some(Ok(2)), None, None],
            ),
            (&[(0, removed), (0, lost)], &[Some(Ok(1)), None]),
            // The burst goes on as long as its messages do.
            (&[(1, lost), (60, removed), (119, removed)], &[None, LOGGED, LOGGED]),
            (&[(1, lost), (62, removed)], &[None, None]),
            // Without times, only the order of the log is known.
            (&[(0, fault), (0, removed)], &[None, LOGGED]),
            (&[(0, fault), (9, removed)], &[None, None]),
        ] {
            assert_eq!(of(log), want, "{log:?}");
        }
        let notice =
            "Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 to 0x0 (None)";
        assert_eq!(of(&[(1, notice), (2, removed)]), [None, None]);
        assert_eq!(of(&[(1, removed), (2, notice)]), [None, None]);
        let apart = [&[(0, removed)][..], &[(0, elsewhere); 7], &[(0, lost)]].concat();
        assert_eq!(of(&apart).first(), Some(&Some(Ok(8))));
        let apart = [&[(0, removed)][..], &[(0, other); 8], &[(0, lost)]].concat();
        assert_eq!(of(&apart).first(), Some(&None));
    }

    #[test]
    fn named_cause_comes_before_order() {
        let removed = "Xid (PCI:0000:3b:00): 45, pid=7, name=a, Ch 1 caused by previous Xid 149";
        let link = "Xid (PCI:0000:5e:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x1)";
        let fault = "Xid (PCI:0000:3b:00): 31, pid=7, name=a, Ch 1";
        let named = || Some(Err("Xid 149".to_owned()));
        assert_eq!(of(&[(1, removed)]), [named()]);
        assert_eq!(of(&[(1, fault), (1, removed)]), [None, named()]);
        assert_eq!(of(&[(1, link), (1, fault), (2, removed)]), [None, None, LOGGED]);
        assert_eq!(of(&[(1, link), (900, removed)]), [None, named()]);
    }

    #[test]
    fn link_of_switch_follows_from_lost_device() {
        let lost = "Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.";
        let down =
            "nvidia-nvswitch1: SXid (PCI:0000:84:00.0): 20034, Fatal, Link 34 LTSSM Fault Up";
        let fault = "Xid (PCI:0000:3b:00): 31, pid=7, name=a, Ch 1";
        assert_eq!(of(&[(1, lost), (2, down)]), [None, LOGGED]);
        assert_eq!(of(&[(1, fault), (2, down)]), [None, None]);
        assert_eq!(of(&[(1, down)]), [None]);
    }
}
