//! Sums of the figures in a message.

use super::evidence::{OomFigures, Other};
use gpu_core::{Bytes, amount};
use serde::Serialize;

/// Derived figures; `None` if the printed figures do not suffice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Account {
    /// The device memory that the allocator holds.
    #[serde(rename = "held_bytes")]
    pub held: Option<Bytes>,
    /// The memory of the process outside its allocator: the context, and libraries.
    #[serde(rename = "context_bytes")]
    pub context: Option<Bytes>,
    /// The memory of the other named processes; a lower bound if the message does not show which of
    /// them is this process.
    #[serde(rename = "others_bytes")]
    pub others: Option<Bytes>,
    /// Used memory of the device that the message attributes to no process. Includes the context if
    /// the message does not give the memory of this process.
    #[serde(rename = "unnamed_bytes")]
    pub unnamed: Option<Bytes>,
    /// The device memory that is missing for the request.
    #[serde(rename = "lacking_bytes")]
    pub lacking: Option<Bytes>,
    /// The memory that would still be missing if the whole cache could serve the request.
    #[serde(rename = "lacking_without_cache_bytes")]
    pub lacking_after_cache: Option<Bytes>,
    /// The memory that the program needs for this request: in use, requested, and the context.
    #[serde(rename = "needed_bytes")]
    pub needed: Option<Bytes>,
    /// A process that the message lists as another but that must be this one, under its PID outside
    /// the container.
    #[serde(skip)]
    pub itself: Option<Other>,
    /// The listed processes that include this one, if the sums do not determine which one it is.
    #[serde(skip)]
    pub itself_among: Vec<Other>,
    /// The rounding error of printed figures, and therefore of the context and the unnamed memory.
    #[serde(skip)]
    pub slack: Bytes,
    /// The rounding error of the missing memory.
    #[serde(skip)]
    pub lacking_slack: Bytes,
}

/// The maximum size of a context. Any more belongs to libraries or another engine in the process.
pub(super) const MAX_CONTEXT: Bytes = Bytes::from_mib(2048);

/// Formats an amount with no more digits than its rounding error justifies: `≈ 390 MiB`.
pub fn approximate(bytes: Bytes, slack: Bytes) -> String {
    const STEP: u64 = 10 * Bytes::MIB;
    let is_rough = slack.0 >= Bytes::MIB && bytes.0 < 1 << 30;
    match bytes.0.saturating_add(STEP / 2) / STEP {
        _ if !is_rough => amount(bytes),
        0 => "less than 10 MiB".to_owned(),
        steps => format!("≈ {}", amount(Bytes(steps * STEP))),
    }
}

impl Account {
    /// Returns how many named processes are not this one.
    pub(super) fn strangers(&self, shown: &OomFigures) -> usize {
        let is_listed = self.itself.is_some() || !self.itself_among.is_empty();
        shown.others.len().saturating_sub(usize::from(is_listed))
    }

    /// Returns whether the free memory is an estimate: the total minus the memory that this process
    /// reserved, because the driver does not report the memory of others.
    pub(super) fn estimates_free(&self, shown: &OomFigures) -> bool {
        let sum = shown.free.zip(self.held).map(|(free, held)| free + held);
        shown.backend.as_deref() == Some("xpu")
            && sum.zip(shown.total).is_some_and(|(sum, total)| {
                !shown.surely_more(sum, total) && !shown.surely_more(total, sum)
            })
    }

    /// Computes the sums.
    pub(super) fn of(shown: &OomFigures) -> Self {
        let held = shown.in_use.map(|in_use| in_use + shown.unused.unwrap_or_default());
        let (itself, itself_among) = match &readings(shown, held)[..] {
            [one] => (Some(*one), Vec::new()),
            several => (None, several.to_vec()),
        };
        let process = process(shown, held).or_else(|| itself?.memory);
        let context = process.zip(held).map(|(process, held)| process.saturating_sub(held));
        let strangers = || shown.others.iter().filter(|other| Some(**other) != itself);
        let named: Option<Bytes> = strangers().map(|other| other.memory).sum();
        let own_at_most = itself_among.iter().filter_map(|other| other.memory).max();
        let others = named.filter(|_| strangers().next().is_some());
        let others = others.map(|others| others.saturating_sub(own_at_most.unwrap_or_default()));
        let is_named = !itself_among.is_empty();
        let ours = if is_named { Some(Bytes(0)) } else { process.or(held) };
        let unnamed = match (shown.total, shown.free, ours, named) {
            (Some(total), Some(free), Some(ours), Some(named)) => {
                Some(total.saturating_sub(free + ours + named))
            }
            _ => None,
        };
        let lacking = shown.asked.zip(shown.free).map(|(asked, free)| asked.saturating_sub(free));
        let lacking_after_cache =
            lacking.map(|lacking| lacking.saturating_sub(shown.unused.unwrap_or_default()));
        let summed = shown
            .in_use
            .zip(shown.asked)
            .map(|(in_use, asked)| in_use + asked + context.unwrap_or_default());
        let needed = shown.needs.or(summed);
        let (slack, lacking_slack) = (shown.slack, shown.lacking_slack);
        Account {
            held,
            context,
            others,
            unnamed,
            lacking,
            lacking_after_cache,
            needed,
            itself,
            itself_among,
            slack,
            lacking_slack,
        }
    }
}

/// Returns the memory of the process, if it is plausible.
fn process(shown: &OomFigures, held: Option<Bytes>) -> Option<Bytes> {
    shown.process.filter(|process| !held.is_some_and(|held| shown.surely_more(held, *process)))
}

/// The minimum memory of a process with a CUDA context; the smallest measured is 107 MiB.
const MIN_CONTEXT: Bytes = Bytes::from_mib(64);

/// Returns the listed processes that could be this one, under its PID outside the container; none
/// if this process could also be an additional one. The sums decide: for an additional process, the
/// device must have room for all listed processes, the free memory and the memory that this
/// process's allocator holds.
///
/// If several candidates hold that much, those that exceed the allocator by the size of a context
/// are preferred. Any other would need a second large consumer of memory in this process.
fn readings(shown: &OomFigures, held: Option<Bytes>) -> Vec<Other> {
    let (None, Some(held), Some(total), Some(free)) =
        (shown.process, held, shown.total, shown.free)
    else {
        return Vec::new();
    };
    let named: Bytes = shown.others.iter().filter_map(|other| other.memory).sum();
    if !shown.surely_more(free + named + held.max(MIN_CONTEXT), total) {
        return Vec::new();
    }
    let is_usual = |other: &Other| {
        other.memory.is_some_and(|memory| {
            !shown.surely_more(held + MIN_CONTEXT, memory)
                && !shown.surely_more(memory, held + MAX_CONTEXT)
        })
    };
    let holds = |other: &&Other| other.memory.is_some_and(|it| !shown.surely_more(held, it));
    let could: Vec<Other> = shown.others.iter().filter(holds).copied().collect();
    let usual: Vec<Other> = could.iter().copied().filter(is_usual).collect();
    if usual.is_empty() { could } else { usual }
}

/// Returns descriptions of figures that cannot all be true.
pub(super) fn contradictions(shown: &OomFigures, account: &Account) -> Vec<String> {
    let mut contradictions = shown.impossible.clone();
    let held = shown.in_use.map(|in_use| in_use + shown.unused.unwrap_or_default());
    if let (Some(process), Some(held)) = (shown.process, held)
        && process == Bytes(0)
        && held > Bytes(0)
    {
        contradictions.push(format!(
            "the message reports 0 bytes for this process although its allocator holds {}: the driver \
                does not know its PID, as in a container with its own PID namespace",
            amount(held)
        ));
    } else if let (Some(process), Some(held)) = (shown.process, held)
        && shown.surely_more(held, process)
    {
        contradictions.push(format!(
            "the allocator holds {}, more than the {} of the whole process",
            amount(held),
            amount(process)
        ));
    }
    if let (Some(held), Some(total)) = (held, shown.total)
        && shown.surely_more(held, total)
    {
        contradictions.push(format!(
            "{} held on a device of {}: the driver oversubscribes with host memory, or the name \
             refers to several devices",
            amount(held),
            amount(total)
        ));
    }
    if let (Some(free), Some(total)) = (shown.free, shown.total) {
        let is_listed = account.itself.is_some() || !account.itself_among.is_empty();
        let held = held.filter(|_| !is_listed && !shown.others.is_empty());
        let ours = shown.process.or(held).unwrap_or_default();
        let others: Bytes = shown.others.iter().filter_map(|other| other.memory).sum();
        if shown.surely_more(free + ours + others, total) {
            contradictions.push(format!(
                "free memory plus process memory is {}, more than the device's {}: the figures \
                    were read at different times",
                amount(free + ours + others),
                amount(total)
            ));
        }
    }
    let absurd = shown.others.iter().filter(|other| other.memory.is_none());
    for other in absurd {
        contradictions.push(format!(
            "the memory reported for process {} is impossible: the driver does not know it",
            other.pid
        ));
    }
    contradictions
}
