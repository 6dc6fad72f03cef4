//! A schedule of some of the items, extended by one item at a time.

use super::memory::Memory;
use super::problem::Problem;
use super::schedule::{Choice, Schedule, Slot, Transfer};
use super::timeline::{Timeline, earliest_common};
use gpu_core::Bytes;

/// A schedule of the items so far. Items are added after their inputs.
#[derive(Clone, Debug)]
pub(super) struct Partial<'p> {
    problem: &'p Problem<'p>,
    /// Whether items are only appended to the work of a processor, without filling gaps.
    append: bool,
    slots: Vec<Option<Slot>>,
    /// For each value, the processors that have it.
    copies: Vec<Vec<Copied>>,
    uses_left: Vec<u32>,
    busy: Vec<Timeline>,
    send: Vec<Timeline>,
    receive: Vec<Timeline>,
    memory: Vec<Memory>,
    groups: Vec<Option<u32>>,
    transfers: Vec<Transfer>,
    end: u64,
}

/// A value in the memory of a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Copied {
    processor: u32,
    ready: u64,
    last_use: u64,
}

/// A trial of an item on a processor, with the required transfers. Reused to save allocations.
#[derive(Clone, Debug, Default)]
pub(super) struct Trial {
    pub(super) processor: u32,
    pub(super) start: u64,
    pub(super) end: u64,
    transfers: Vec<Transfer>,
}

impl<'p> Partial<'p> {
    pub(super) fn new(problem: &'p Problem<'p>, append: bool) -> Self {
        let processors = problem.processors();
        Partial {
            problem,
            append,
            slots: vec![None; problem.len()],
            copies: vec![Vec::new(); problem.uses.len()],
            uses_left: problem.uses.clone(),
            busy: vec![Timeline::default(); processors],
            send: vec![Timeline::default(); processors],
            receive: vec![Timeline::default(); processors],
            memory: vec![Memory::default(); processors],
            groups: vec![None; problem.group_bytes.len()],
            transfers: Vec::new(),
            end: 0,
        }
    }

    pub(super) fn slot(&self, item: u32) -> Option<Slot> {
        self.slots[item as usize]
    }

    /// Returns the end of the last item.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Returns the end of the last item of a processor.
    pub(super) fn busy_until(&self, processor: u32) -> u64 {
        self.busy[processor as usize].end()
    }

    /// Returns the processor of the group of an item, if one of its items was added.
    pub(super) fn group_processor(&self, item: u32) -> Option<u32> {
        self.problem.group[item as usize].and_then(|group| self.groups[group as usize])
    }

    /// Returns the memory of a processor in use at the end.
    pub(super) fn memory_left(&self, processor: u32) -> u64 {
        self.memory[processor as usize].left()
    }

    pub(super) fn transfers(&self) -> &[Transfer] {
        &self.transfers
    }

    /// Computes when an item would run on a processor, where it takes `nanos`.
    ///
    /// # Errors
    /// How much additional memory the processor would need.
    pub(super) fn try_on(
        &self,
        item: u32,
        processor: u32,
        nanos: u64,
        trial: &mut Trial,
    ) -> Result<(), u64> {
        let here = processor as usize;
        trial.processor = processor;
        self.times(item, nanos, 0, trial);
        let Some(limit) = self.problem.cluster.processors[here].memory else { return Ok(()) };
        let made = &self.problem.dag.items[item as usize];
        let copied = trial.transfers.iter().map(|transfer| transfer.bytes);
        let outputs = made.outputs.iter().filter(|_| !made.keeps_outputs);
        let values: Bytes = outputs.copied().chain(copied).sum();
        let needed = (values + made.workspace + Bytes(self.persistent(item))).0;
        let first = trial.transfers.iter().map(|transfer| transfer.start_nanos);
        let first = first.min().unwrap_or(trial.start).min(trial.start);
        let from = self.memory[here].earliest(first, needed, limit.0)?;
        let lack = self.memory[here].lack_always(self.persistent(item), limit.0);
        if lack > 0 {
            return Err(lack);
        }
        if from > first {
            self.times(item, nanos, from, trial);
        }
        Ok(())
    }

    /// Returns the persistent bytes that an item adds.
    fn persistent(&self, item: u32) -> u64 {
        match self.group_processor(item) {
            Some(_) => 0,
            None => self.problem.persistent(item),
        }
    }

    /// Computes the transfers and the times of an item, none before `floor`.
    fn times(&self, item: u32, nanos: u64, floor: u64, trial: &mut Trial) {
        let (problem, to) = (self.problem, trial.processor);
        let mut ready = floor;
        trial.transfers.clear();
        for input in &problem.dag.items[item as usize].inputs {
            let Some(made) = self.slots[input.item as usize] else { continue };
            let Some(output) = input.output else {
                let wait = problem.comm(input.item, None, made.processor, to);
                ready = ready.max(made.end_nanos.saturating_add(wait));
                continue;
            };
            let copies = &self.copies[problem.value(input.item, output)];
            if let Some(copy) = copies.iter().find(|copy| copy.processor == to) {
                ready = ready.max(copy.ready);
                continue;
            }
            trial.transfers.push(Transfer {
                start_nanos: made.end_nanos,
                end_nanos: 0,
                item: input.item,
                output,
                from: made.processor,
                to,
                bytes: problem.dag.items[input.item as usize].outputs[output as usize],
            });
        }
        trial.transfers.sort_unstable();
        // A value that is used twice is copied once.
        trial.transfers.dedup();
        let mut after = floor;
        for transfer in &mut trial.transfers {
            let length = problem.cluster.route(transfer.from, to).nanos(transfer.bytes.0);
            let from = transfer.start_nanos.max(after);
            transfer.start_nanos = if problem.cluster.one_port {
                let send = &self.send[transfer.from as usize];
                earliest_common(send, &self.receive[to as usize], from, length)
            } else {
                from
            };
            transfer.end_nanos = transfer.start_nanos.saturating_add(length);
            if problem.cluster.one_port {
                after = transfer.end_nanos;
            }
            ready = ready.max(transfer.end_nanos);
        }
        let busy = &self.busy[to as usize];
        trial.start = if self.append && nanos > 0 {
            ready.max(busy.end())
        } else {
            busy.earliest(ready, nanos)
        };
        trial.end = trial.start.saturating_add(nanos);
    }

    /// Adds an item as in the trial.
    pub(super) fn add(&mut self, item: u32, trial: &Trial) {
        let (problem, to) = (self.problem, trial.processor as usize);
        let persistent = self.persistent(item);
        self.memory[to].add_always(persistent);
        if let Some(group) = problem.group[item as usize] {
            self.groups[group as usize] = Some(trial.processor);
        }
        for transfer in &trial.transfers {
            let length = transfer.end_nanos - transfer.start_nanos;
            let from = transfer.from as usize;
            if problem.cluster.one_port {
                self.send[from].book(transfer.start_nanos, length);
                self.receive[to].book(transfer.start_nanos, length);
            }
            let copies = &mut self.copies[problem.value(transfer.item, transfer.output)];
            for copy in copies.iter_mut().filter(|copy| copy.processor == transfer.from) {
                copy.last_use = copy.last_use.max(transfer.end_nanos);
            }
            let ready = transfer.end_nanos;
            copies.push(Copied { processor: transfer.to, ready, last_use: ready });
            self.memory[to].add(transfer.start_nanos, transfer.bytes.0);
        }
        self.transfers.extend_from_slice(&trial.transfers);
        let Trial { processor, start, end, .. } = *trial;
        self.busy[to].book(start, end - start);
        if self.append {
            self.busy[to].close_gaps();
        }
        let made = &problem.dag.items[item as usize];
        self.memory[to].add(start, made.workspace.0);
        self.memory[to].release(end, made.workspace.0);
        for (output, bytes) in (0_u32..).zip(&made.outputs) {
            let value = problem.value(item, output);
            self.copies[value].push(Copied { processor, ready: end, last_use: end });
            if made.keeps_outputs {
                continue;
            }
            self.memory[to].add(start, bytes.0);
            if self.uses_left[value] == 0 {
                self.memory[to].release(end, bytes.0);
            }
        }
        for input in &made.inputs {
            let Some(output) = input.output else { continue };
            let value = problem.value(input.item, output);
            for copy in self.copies[value].iter_mut().filter(|copy| copy.processor == processor) {
                copy.last_use = copy.last_use.max(end);
            }
            self.uses_left[value] -= 1;
            if self.uses_left[value] == 0 {
                let from = &problem.dag.items[input.item as usize];
                let bytes = from.outputs[output as usize];
                // The value itself is first, followed by its copies.
                for copy in self.copies[value].iter().skip(usize::from(from.keeps_outputs)) {
                    self.memory[copy.processor as usize].release(copy.last_use, bytes.0);
                }
            }
        }
        self.slots[item as usize] =
            Some(Slot { processor: trial.processor, start_nanos: start, end_nanos: end });
        self.end = self.end.max(end);
    }

    /// Returns the schedule; `None` while an item is missing.
    pub(super) fn finish(self, reasons: Vec<Choice>) -> Option<Schedule> {
        let slots = self.slots.into_iter().collect::<Option<Vec<_>>>()?;
        let mut transfers = self.transfers;
        transfers.sort_unstable();
        let peaks = self.memory.iter().map(|memory| Bytes(memory.peak())).collect();
        Some(Schedule { slots, transfers, makespan_nanos: self.end, peaks, reasons })
    }
}
