//! Selects the processor for one item.

use super::partial::{Partial, Trial};
use super::problem::Problem;
use super::schedule::{Choice, Lack, ScheduleError};
use gpu_core::Bytes;

/// The rule that selects a processor for an item.
#[derive(Clone, Copy, Debug)]
pub(super) enum Selection<'a> {
    /// The processor on which it ends first (HEFT).
    EarliestEnd,
    /// The processor with the least sum of its end and the lower bound for the rest (PEFT).
    WithTail(&'a [u64]),
    /// The processor with the most memory left.
    MostMemory,
    /// The processor in the assignment, by item.
    Assigned(&'a [u32]),
}

/// Places items; trials are reused.
#[derive(Debug, Default)]
pub(super) struct Placer {
    trial: Trial,
    best: Trial,
}

impl Placer {
    /// Adds an item on the selected processor.
    pub(super) fn place(
        &mut self,
        problem: &Problem<'_>,
        partial: &mut Partial<'_>,
        item: u32,
        selection: Selection<'_>,
    ) -> Result<Choice, ScheduleError> {
        let group = partial.group_processor(item);
        let wanted = match selection {
            Selection::Assigned(assigned) => assigned.get(item as usize).copied(),
            _ => group,
        };
        let mut best: Option<(u64, u64, u32)> = None;
        let mut second: Option<(u64, u64, u32)> = None;
        let mut lacks = Vec::new();
        for (processor, nanos) in &problem.feasible[item as usize] {
            if wanted.is_some_and(|wanted| wanted != *processor) {
                continue;
            }
            if let Err(lack) = partial.try_on(item, *processor, *nanos, &mut self.trial) {
                let name = problem.cluster.processors[*processor as usize].name.clone();
                lacks.push(Lack { processor: name, bytes: Bytes(lack) });
                continue;
            }
            let end = self.trial.end;
            let score = match selection {
                Selection::WithTail(tails) => {
                    let at = item as usize * problem.processors() + *processor as usize;
                    end.saturating_add(tails[at])
                }
                Selection::MostMemory => {
                    let limit = problem.cluster.processors[*processor as usize].memory;
                    let used = partial.memory_left(*processor);
                    u64::MAX - limit.map_or(u64::MAX, |limit| limit.0.saturating_sub(used))
                }
                Selection::EarliestEnd | Selection::Assigned(_) => end,
            };
            let this = (score, end, *processor);
            if best.is_none_or(|best| this < best) {
                second = best;
                best = Some(this);
                std::mem::swap(&mut self.trial, &mut self.best);
            } else if second.is_none_or(|second| this < second) {
                second = Some(this);
            }
        }
        if best.is_none() {
            let item = problem.dag.items[item as usize].name.clone();
            return Err(ScheduleError::Memory { item, lacks });
        }
        partial.add(item, &self.best);
        Ok(match selection {
            Selection::Assigned(_) => Choice::Searched,
            _ if problem.dag.items[item as usize].fixed.is_some() => Choice::Fixed,
            _ if problem.feasible[item as usize].len() == 1 => Choice::Only,
            _ if group.is_some() => Choice::Group,
            _ => Choice::Earliest { next: second.map(|(_, end, processor)| (processor, end)) },
        })
    }
}
