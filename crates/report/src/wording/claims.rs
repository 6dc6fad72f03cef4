//! Text about claims: the chosen devices, and the reasons against the others.

use gpu_claim::{Ahead, WaitReason, Waiting};
use gpu_core::{Claim, DeviceFault, DeviceId, DeviceUuid, ErrorKind, LeaseEntry, Link, Share};
use gpu_placement::{Bar, Passed, Why};
use gpu_steward::{Decision, Note, Refused};
use std::time::Duration;

/// Returns the name of a user by UID.
pub type User<'a> = &'a dyn Fn(u32) -> String;

/// Formats `GPUs 4 and 5 Tesla V100 (NVLink ×2; 0 and 3 would have been across sockets)`.
pub fn chosen(decision: &Decision, product: Option<&str>) -> String {
    let devices = decision.devices();
    let text = granted(&devices.iter().collect::<Vec<_>>(), product);
    match &decision.choice.why {
        Why::Linked { weakest: Some(weakest), instead, instead_weakest, .. } => {
            let instead: Vec<u32> = instead
                .iter()
                .filter_map(|at| decision.offered.get(*at))
                .map(|id| id.index)
                .collect();
            let other = instead_weakest.filter(|other| other != weakest);
            let other = other.map_or(String::new(), |other| {
                format!("; {} would have been {}", list(&instead), link(other))
            });
            format!("{text} ({}{other})", link(*weakest))
        }
        Why::Fits => format!("{text} (tightest fit)"),
        Why::KeepsBlocks => format!("{text} (keeps blocks of GPUs whole)"),
        Why::Coolest => format!("{text} (coolest)"),
        Why::LeastRecent => format!("{text} (least recently used)"),
        Why::Linked { .. } | Why::OnlyOne | Why::First => text,
    }
}

/// Formats `GPU 0 A100-SXM4-80GB`.
pub fn granted(devices: &[&DeviceId], product: Option<&str>) -> String {
    let names = named(devices);
    product.map_or(names.clone(), |product| format!("{names} {product}"))
}

/// Formats `GPU 0` or `GPUs 0 and 3`.
pub fn gpus(indexes: &[u32]) -> String {
    let word = if indexes.len() == 1 { "GPU" } else { "GPUs" };
    format!("{word} {}", list(indexes))
}

/// Formats `GPUs 0 and 3`, `MIG-41a7… of GPU 0`, or both.
pub fn named(devices: &[&DeviceId]) -> String {
    let (mig, whole): (Vec<&DeviceId>, Vec<&DeviceId>) =
        devices.iter().partition(|id| id.uuid.as_ref().is_ok_and(DeviceUuid::is_partition));
    let indexes: Vec<u32> = whole.iter().map(|id| id.index).collect();
    let mut names: Vec<String> = mig
        .iter()
        .filter_map(|id| Some(format!("{} of GPU {}", id.uuid.as_ref().ok()?, id.index)))
        .collect();
    if !indexes.is_empty() {
        names.insert(0, gpus(&indexes));
    }
    names.join(", ")
}

/// Formats `0` or `0 and 3`, and three or more indexes as ranges.
fn list(indexes: &[u32]) -> String {
    match indexes {
        [one, other] => format!("{one} and {other}"),
        indexes => super::ranges(indexes),
    }
}

fn link(link: Link) -> String {
    match link {
        Link::NvLink(lanes) => format!("NVLink ×{lanes}"),
        Link::Xgmi => "XGMI".to_owned(),
        Link::Pix => "one PCIe switch".to_owned(),
        Link::Pxb => "several PCIe switches".to_owned(),
        Link::Phb => "one host bridge".to_owned(),
        Link::Node => "one NUMA node".to_owned(),
        Link::Sys => "across sockets".to_owned(),
        other => other.to_string(),
    }
}

/// Why a share of memory that the host uses too is not certain.
pub const NOT_ENFORCED: &str = "a share is not enforced: the memory is shared with the host, and \
                                neither the driver nor cgroup limits keep other programs from it";

/// Returns why a device was passed over; `limit` names the environment variable that determines the
/// requested set, if any.
pub fn passed(why: &Passed, user: User<'_>, limit: Option<&str>) -> String {
    match why {
        Passed::Barred(bar) => barred(bar, user),
        Passed::NotAmong => match limit {
            Some(variable) => format!("excluded by {variable}"),
            None => "not in the requested set".to_owned(),
        },
        Passed::Excluded => "excluded".to_owned(),
        Passed::LacksMemory { has, needs } => format!("only {has} in total; {needs} requested"),
        Passed::LacksRoom { has, needs } => format!("only {has} free; {needs} requested"),
        Passed::MemoryUnknown(absent) => format!("memory unknown: {absent}"),
        Passed::LowCapability { has, needs } => {
            format!("compute capability {}.{}; {}.{} requested", has.0, has.1, needs.0, needs.1)
        }
        Passed::CapabilityUnknown(absent) => {
            format!("compute capability unknown: {absent}")
        }
        Passed::DrivesDisplay => "in use by a display".to_owned(),
        Passed::OtherSetBetter => "free".to_owned(),
    }
}

/// Returns why a device is unavailable.
pub fn barred(bar: &Bar, user: User<'_>) -> String {
    match bar {
        Bar::Leased { owner, .. } => format!("leased by {}", user(*owner)),
        Bar::Reserved { owner, .. } => {
            format!("reserved for {}, who is ahead in the queue", user(*owner))
        }
        Bar::Outsider { pid, is_host_pid, name } => {
            let which = if *is_host_pid { "host PID " } else { "" };
            format!("in use without a lease by {which}{pid} {name}").trim_end().to_owned()
        }
        Bar::Unexplained(bytes) => format!("{bytes} in use that no process accounts for"),
        Bar::Faulty(fault) => match fault.kind {
            ErrorKind::Device(DeviceFault::Lost) => "lost (fallen off the bus)".to_owned(),
            ErrorKind::Device(DeviceFault::ResetRequired) => "reset required".to_owned(),
            _ => format!("faulty: failed to {fault}"),
        },
        Bar::Unfit(defect) => defect.clone(),
        Bar::UsersUnknown(absent) => format!("users unknown: {absent}"),
        Bar::NameUnknown => "no unique UUID".to_owned(),
        Bar::NotEnforced => NOT_ENFORCED.to_owned(),
        Bar::Partitioned => "MIG is enabled; claim a MIG device with --mig".to_owned(),
        Bar::PartitionAlone => {
            "CUDA exposes one MIG device and no other GPU to a program".to_owned()
        }
    }
}

/// Returns each reason once, with its devices, such as `GPU 0: leased by bob`.
pub fn reasons<'a>(
    passed_over: impl Iterator<Item = (&'a DeviceId, &'a Passed)>,
    user: User<'_>,
    limit: Option<&str>,
) -> Vec<String> {
    let mut by_reason: Vec<(String, Vec<&DeviceId>)> = Vec::new();
    for (device, why) in passed_over {
        let reason = passed(why, user, limit);
        match by_reason.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, devices)) => devices.push(device),
            None => by_reason.push((reason, vec![device])),
        }
    }
    let word =
        |(reason, devices): (String, Vec<&DeviceId>)| format!("{}: {reason}", named(&devices));
    by_reason.into_iter().map(word).collect()
}

/// Returns whether a device is used without a lease, which a list of the leases does not show.
pub fn is_used_without_lease(refused: &Refused) -> bool {
    let is_it = |why: &Passed| match why {
        Passed::Barred(bar) => matches!(bar, Bar::Outsider { .. } | Bar::Unexplained(_)),
        why => matches!(why, Passed::LacksRoom { .. }),
    };
    refused.passed().any(|(_, why)| is_it(why))
}

/// Returns which claim could be granted instead of one that never can; `could` devices are
/// suitable. `limit` is as in [`reasons`]. `None` if the reasons already imply it.
pub fn what_is_possible(refused: &Refused, could: u32, limit: Option<&str>) -> Option<String> {
    let lasting = || refused.passed().filter(|(_, why)| why.is_lasting());
    if lasting().any(|(_, why)| *why == Passed::Barred(Bar::PartitionAlone)) {
        return Some("a claim gets one MIG device: -n 1".to_owned());
    }
    if could > 0 {
        let is_unsuitable = |id: &&DeviceId| lasting().any(|(other, _)| other == *id);
        let suitable = refused.offered.iter().filter(|id| !is_unsuitable(id));
        let suitable: Vec<&DeviceId> = suitable.collect();
        let within = limit.filter(|_| refused.within.is_none());
        let within = within.map_or(String::new(), |variable| format!(" within {variable}"));
        return Some(format!("the maximum{within} is -n {could} ({})", named(&suitable)));
    }
    let memory = lasting().filter_map(|(_, why)| match why {
        Passed::LacksMemory { has, .. } => Some(*has),
        _ => None,
    });
    let capability = lasting().filter_map(|(_, why)| match why {
        Passed::LowCapability { has, .. } => Some(*has),
        _ => None,
    });
    if let Some(most) = memory.max() {
        return Some(format!("request at most {most}"));
    }
    if let Some((major, minor)) = capability.max() {
        return Some(format!("request at most --capability {major}.{minor}"));
    }
    let others = refused.passed().any(|(_, why)| *why == Passed::NotAmong);
    (others && limit.is_none()).then(|| "name other GPUs".to_owned())
}

/// Returns what blocks a claim apart from other claims and leases.
pub fn wait_reason_text(wait_reason: &WaitReason) -> String {
    match wait_reason {
        WaitReason::SafeGpu(fault) => format!("waiting to {}", fault.text),
        WaitReason::Driver(fault) => format!("driver not responding: failed to {}", fault.text),
    }
}

/// Formats the request of a claim: `2 GPUs` or `6,144 MiB of 1 GPU`.
pub fn asked(claim: &Claim) -> String {
    let count = super::count(claim.count as usize, "GPU", "GPUs");
    match claim.share {
        Share::Whole => count,
        Share::Memory(bytes) => format!("{bytes} of {count}"),
    }
}

/// Returns a command line for `gpuws leases`, at most 256 bytes long.
pub fn command_line<'a>(command: impl IntoIterator<Item = &'a std::ffi::OsString>) -> String {
    let words: Vec<_> = command.into_iter().map(|word| word.to_string_lossy()).collect();
    let line = words.join(" ");
    let end = line.char_indices().map(|(at, c)| at + c.len_utf8()).take_while(|end| *end <= 256);
    line[..end.last().unwrap_or(0)].to_owned()
}

/// Formats an ordinal: `1st`, `2nd`, `11th`.
pub fn ordinal(number: usize) -> String {
    let ending = match (number % 100, number % 10) {
        (11..=13, _) => "th",
        (_, 1) => "st",
        (_, 2) => "nd",
        (_, 3) => "rd",
        _ => "th",
    };
    format!("{number}{ending}")
}

/// Decides when to print the status of a waiting claim if lines cannot be updated: at each change,
/// and while unchanged again after 1, 2, 4 … minutes, up to an hour.
#[derive(Debug, Default)]
pub struct Notices {
    /// The last status, when it was printed, and how long after that to print it again.
    last: Option<(String, Duration, Duration)>,
}

impl Notices {
    const FIRST: Duration = Duration::from_secs(60);
    const LONGEST: Duration = Duration::from_secs(3600);

    /// Returns whether a status is printed now; it then counts as printed.
    pub fn is_due(&mut self, status: &str, waited: Duration) -> bool {
        let pause = match &self.last {
            Some((last, at, pause)) if last == status => {
                if waited.saturating_sub(*at) < *pause {
                    return false;
                }
                Self::LONGEST.min(2 * *pause)
            }
            _ => Self::FIRST,
        };
        self.last = Some((status.to_owned(), waited, pause));
        true
    }
}

/// Formats `; waited 2:00, 1st in the queue`, for a line that is printed again.
pub fn waited(waiting: &Waiting<'_>) -> String {
    let position = match waiting.ahead.count {
        0 => ", 1st in the queue",
        // The line already contains it.
        _ => "",
    };
    format!("; waited {}{position}", clock(waiting.waited))
}

/// Formats `waiting for 2 GPUs; 2nd in the queue behind bob (1 GPU); leased by alice (4 GPUs)`.
/// `preview` is the command that previews this claim.
pub fn waiting_for(
    claim: &str,
    waiting: &Waiting<'_>,
    user: User<'_>,
    preview: Option<&str>,
) -> String {
    let mut text = format!("waiting for {claim}");
    let Ahead { count, nearest, stalled } = waiting.ahead;
    if *count > 0 {
        text.push_str(&format!("; {} in the queue", ordinal(count + 1)));
    }
    if let Some(nearest) = nearest {
        text.push_str(&format!(" behind {} ({})", user(nearest.owner), asked(&nearest.claim)));
    }
    if let Some(first) = stalled.first() {
        let more = match stalled.len() {
            1 => String::new(),
            count => format!(" and {} more", count - 1),
        };
        let pid = first.root.pid;
        text.push_str(&format!("; skipping stalled PID {pid} of {}{more}", user(first.owner)));
    }
    let mut leases = waiting.leases.iter().map(|lease| held(lease, user));
    let first: Vec<String> = leases.by_ref().take(2).collect();
    if !first.is_empty() {
        let more = match leases.count() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        text.push_str(&format!("; leased by {}{more}", first.join(", ")));
    }
    if *count == 0 && waiting.leases.is_empty() && waiting.wait_reason.is_none() {
        text.push_str("; not enough usable GPUs (none is leased)");
        if let Some(preview) = preview {
            text.push_str(&format!("; to see why: {preview}"));
        }
    }
    if let Some(wait_reason) = waiting.wait_reason {
        text.push_str(&format!("; {}", wait_reason_text(wait_reason)));
    }
    text
}

/// Formats a lease: `alice (4 GPUs)`.
fn held(lease: &LeaseEntry, user: User<'_>) -> String {
    if let Some(merged) = &lease.merged {
        let count = super::count(merged.count as usize, "lease", "leases");
        return format!("{} ({count})", user(lease.owner));
    }
    let count = super::count(lease.devices.len(), "GPU", "GPUs");
    match lease.claim.share {
        Share::Whole => format!("{} ({count})", user(lease.owner)),
        Share::Memory(bytes) => format!("{} ({bytes} of {count})", user(lease.owner)),
    }
}

/// Returns the text of a note about a scheduler's variables.
pub fn note(note: &Note) -> String {
    match note {
        Note::ListEnds { variable, at } => {
            format!("{variable} is cut at '{at}': no such device here")
        }
        Note::NothingNamed(convention) => {
            format!("{convention} sets no device list; pass the allocated count with -n")
        }
        Note::NumbersUnclear(convention) => format!(
            "the index order of CUDA_VISIBLE_DEVICES is unknown (CUDA_DEVICE_ORDER); using \
                {convention}'s list"
        ),
        Note::OneOfMany(convention, rank) => {
            format!("{convention} local rank {rank} claims its own GPUs")
        }
    }
}

/// Formats a duration as `0:42` or `1:02:03`.
pub fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match hours {
        0 => format!("{minutes}:{seconds:02}"),
        hours => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_core::{Bytes, LeaseId, Pid, ProcessKey, Timestamp};

    fn user(uid: u32) -> String {
        if uid == 0 { "root".to_owned() } else { format!("user {uid}") }
    }

    fn entry(owner: u32, devices: usize, claim: Claim) -> LeaseEntry {
        let uuid = |n| DeviceUuid(format!("GPU-{n}"));
        LeaseEntry {
            id: LeaseId::parse("1-a").unwrap(),
            ticket: 1,
            owner,
            root: ProcessKey { pid: Pid(1), start: None },
            within: Vec::new(),
            claim,
            devices: (0..devices).map(uuid).collect(),
            parts_of: Vec::new(),
            merged: None,
            command: String::new(),
            since: Timestamp(0),
        }
    }

    #[test]
    fn chosen_devices_are_shown_with_the_reason() {
        let linked = |weakest, instead: &[usize], instead_weakest| Why::Linked {
            weakest,
            instead: instead.to_vec(),
            instead_weakest,
        };
        for (why, text) in [
            (
                linked(Some(Link::NvLink(2)), &[2, 3], Some(Link::Sys)),
                " (NVLink ×2; 0 and 3 would have been across sockets)",
            ),
            (linked(Some(Link::Sys), &[2, 3], Some(Link::Sys)), " (across sockets)"),
            (linked(Some(Link::Pix), &[], None), " (one PCIe switch)"),
            (linked(Some(Link::Pxb), &[], None), " (several PCIe switches)"),
            (linked(Some(Link::Phb), &[], None), " (one host bridge)"),
            (linked(Some(Link::Node), &[], None), " (one NUMA node)"),
            (linked(Some(Link::Unknown), &[], None), " (?)"),
            (linked(None, &[2, 3], None), ""),
            (Why::Fits, " (tightest fit)"),
            (Why::KeepsBlocks, " (keeps blocks of GPUs whole)"),
            (Why::Coolest, " (coolest)"),
            (Why::LeastRecent, " (least recently used)"),
            (Why::OnlyOne, ""),
            (Why::First, ""),
        ] {
            let choice = gpu_placement::Choice {
                devices: vec![0, 1],
                score: 0,
                total: 0,
                exact: true,
                why,
                passed: Vec::new(),
            };
            let offered = [4, 5, 0, 3].map(DeviceId::from_index).into();
            assert_eq!(
                chosen(&Decision { choice, offered }, Some("V100")),
                format!("GPUs 4 and 5 V100{text}")
            );
        }
    }

    #[test]
    fn waiting_line_gives_reason_without_claims_ahead() {
        let none = Ahead { count: 0, nearest: None, stalled: Vec::new() };
        let first = Ahead { stalled: vec![entry(0, 0, Claim::whole(1))], ..none.clone() };
        let behind = Ahead { count: 2, ..none.clone() };
        let fault = gpu_core::Error::new(gpu_core::ErrorKind::Io, "hold its locks").fault();
        let wait_reason = WaitReason::SafeGpu(fault);
        let few = "; not enough usable GPUs (none is leased)";
        let why = "; to see why: gpuws claim -n 3 --gpu 0-4";
        let leases = [1, 2, 3].map(|devices| entry(0, devices, Claim::whole(1)));
        for (ahead, leases, wait_reason, text) in [
            (&none, &leases[..0], None, few.to_owned()),
            (&none, &[], Some(&wait_reason), "; waiting to hold its locks".to_owned()),
            (&behind, &[], None, "; 3rd in the queue".to_owned()),
            (&first, &[], None, format!("; skipping stalled PID 1 of root{few}")),
            (&none, &leases, None, "; leased by root (1 GPU), root (2 GPUs) and 1 more".to_owned()),
        ] {
            let waiting = Waiting { ahead, leases, waited: Duration::ZERO, wait_reason };
            let line = |preview| waiting_for("1 GPU", &waiting, &user, preview);
            assert_eq!(line(None), format!("waiting for 1 GPU{text}"));
            let text = text.replace(few, &format!("{few}{why}"));
            let preview = why.strip_prefix("; to see why: ");
            assert_eq!(line(preview), format!("waiting for 1 GPU{text}"));
        }
    }

    #[test]
    fn waiting_line_shows_position_and_holders() {
        let nearest = Some(entry(0, 0, Claim::whole(1)));
        let ahead = Ahead { count: 1, nearest, stalled: Vec::new() };
        let share = Claim { share: Share::Memory(Bytes::from_mib(6144)), ..Claim::whole(2) };
        let leases = [entry(0, 4, Claim::whole(4)), entry(4_000_000_007, 2, share)];
        let waited = Duration::from_secs(42);
        let waiting = Waiting { ahead: &ahead, leases: &leases, waited, wait_reason: None };
        assert_eq!(
            waiting_for("2 GPUs", &waiting, &user, None),
            "waiting for 2 GPUs; 2nd in the queue behind root (1 GPU); leased by root (4 GPUs), \
             user 4000000007 (6,144 MiB of 2 GPUs)"
        );
    }

    #[test]
    fn waiting_line_names_stalled_claim() {
        let stalled = vec![entry(0, 0, Claim::whole(1)), entry(0, 0, Claim::whole(1))];
        let ahead = Ahead { count: 0, nearest: None, stalled };
        let leases = [entry(0, 1, Claim::whole(1))];
        let waited = Duration::from_secs(42);
        let waiting = Waiting { ahead: &ahead, leases: &leases, waited, wait_reason: None };
        assert_eq!(super::waited(&waiting), "; waited 0:42, 1st in the queue");
        let behind = Ahead { count: 1, ..ahead.clone() };
        assert_eq!(super::waited(&Waiting { ahead: &behind, ..waiting }), "; waited 0:42");
        assert_eq!(
            waiting_for("1 GPU", &waiting, &user, None),
            "waiting for 1 GPU; skipping stalled PID 1 of root and 1 more; leased by root (1 GPU)"
        );
    }

    #[test]
    fn unchanged_status_is_printed_at_growing_intervals() {
        let mut notices = Notices::default();
        let mut due = |status, from: u64, to: u64| -> Vec<u64> {
            (from..to).filter(|at| notices.is_due(status, Duration::from_secs(*at))).collect()
        };
        let minutes = |all: [u64; 4]| all.map(|minute| minute * 60);
        assert_eq!(due("2nd", 0, 600), minutes([0, 1, 3, 7]));
        assert_eq!(due("1st", 600, 1100), minutes([10, 11, 13, 17]));
        let later = due("1st", 1100, 40_000);
        assert_eq!((later.len(), &later[10..]), (12, &[33_180, 36_780][..]));
    }

    #[test]
    fn ordinals_have_english_endings() {
        let ordinals = [1, 2, 3, 4, 11, 12, 13, 21, 102, 111].map(ordinal);
        let written =
            ["1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "102nd", "111th"];
        assert_eq!(ordinals, written);
    }

    #[test]
    fn waiting_time_is_shown_as_clock() {
        assert_eq!(clock(Duration::from_secs(42)), "0:42");
        assert_eq!(clock(Duration::from_secs(3723)), "1:02:03");
    }
}
