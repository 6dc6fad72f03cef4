//! What the processes use of the cards.

use crate::cards::entry::FIRST_CLIENT;
use crate::cards::{KFD, SimulatedCard, client};
use crate::machine::{Holding, Process};
use crate::state::State;
use gpu_core::{Absent, Access, Bytes};
use std::collections::{BTreeMap, BTreeSet};

/// A descriptor of a process.
pub(crate) struct Descriptor<'a> {
    pub(crate) number: u32,
    /// The position of its file among those of the process.
    pub(crate) file: usize,
    /// The card, the number of the client, and what it uses, if the file is a node of a card.
    client: Option<(&'a SimulatedCard, u64, Option<&'a Holding>)>,
}

/// The use of a card by all processes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CardUse {
    /// Memory of the card.
    pub(super) memory: Bytes,
    /// Memory of the host.
    pub(super) host: Bytes,
    /// Load, in percent; it can exceed 100.
    pub(super) load: u64,
}

/// Returns the number of the client behind a part of the memory of a process.
fn client_id(process: &Process, nth: usize, holding: &Holding) -> u64 {
    let own = FIRST_CLIENT + (u64::from(process.pid().0) << 5) + (nth as u64).min(30);
    holding.client.and_then(|client| client.id).map_or(own, u64::from)
}

impl State {
    /// Returns the memory that clients hold on a card, each client once.
    fn clients_on(&self, card: &SimulatedCard) -> impl Iterator<Item = &Holding> {
        let mut clients = BTreeMap::new();
        for (_, living) in self.living.on_device(card.index) {
            let process = &living.process;
            for (nth, holding) in process.holdings.iter().enumerate() {
                if holding.device == card.index {
                    clients.entry(client_id(process, nth, holding)).or_insert(holding);
                }
            }
        }
        clients.into_values()
    }

    /// Returns what is in use of a card, without what its files say.
    pub(super) fn card_use(&self, card: &SimulatedCard) -> CardUse {
        let (memory, host) = card.leaked;
        let mut all = CardUse { memory, host, load: 0 };
        for holding in self.clients_on(card) {
            all.memory += holding.memory;
            all.host += holding.client.unwrap_or_default().host;
            all.load += u64::from(holding.load);
        }
        for returning in self.returning.iter().filter(|own| own.device == card.index) {
            all.memory += returning.memory;
            all.host += returning.host;
        }
        all
    }

    /// Returns the memory that programs hold on the KFD node with this number.
    pub(super) fn node_use(&self, number: u32) -> Bytes {
        let on = |card| {
            let own = self.clients_on(card).filter(move |holding| {
                card.part(holding).and_then(|part| part.kfd).is_some_and(|(node, _)| node == number)
            });
            own.map(|holding| holding.memory).sum::<Bytes>()
        };
        self.machine.cards.iter().map(on).sum()
    }

    /// Returns the free memory of a card; all that can be if its size is unknown.
    pub(crate) fn card_free(&self, card: &SimulatedCard) -> Bytes {
        let Some(total) = card.total else { return Bytes(u64::MAX) };
        total.saturating_sub(self.card_use(card).memory + self.base(card, "mem_info_vram_used"))
    }

    /// Returns whether another process has the client of this memory.
    pub(crate) fn is_client_shared(&self, holding: &Holding) -> bool {
        let id = |holding: &Holding| holding.client.and_then(|client| client.id);
        id(holding).is_some()
            && self.holdings_on(holding.device).any(|(_, other)| id(other) == id(holding))
    }

    /// As [`descriptors`](State::descriptors), on a machine with cards.
    pub(crate) fn card_descriptors<'a>(&'a self, process: &'a Process) -> Vec<Descriptor<'a>> {
        if self.machine.cards.is_empty() { Vec::new() } else { self.descriptors(process) }
    }

    /// Returns the descriptors of a process, those of the files first.
    pub(crate) fn descriptors<'a>(&'a self, process: &'a Process) -> Vec<Descriptor<'a>> {
        let mut more = 3 + process.files.len();
        let mut known = BTreeSet::new();
        let mut all = Vec::new();
        for (file, own) in process.files.iter().enumerate() {
            if !own.access.contains(Access::OPEN) {
                continue;
            }
            let number = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
            let Some((card, partition)) = self.machine.cards.of_file(&own.path) else {
                all.push(Descriptor { number: number(file + 3), file, client: None });
                continue;
            };
            let of_file = |holding: &&Holding| {
                let own = holding.client.unwrap_or_default().partition;
                holding.device == card.index && own == partition
            };
            let is_first = known.insert((card.index, partition));
            let held =
                process.holdings.iter().enumerate().filter(|(_, held)| is_first && of_file(held));
            let mut clients: Vec<_> = held
                .map(|(nth, holding)| (card, client_id(process, nth, holding), Some(holding)))
                .collect();
            if clients.is_empty() {
                let own = FIRST_CLIENT + (u64::from(process.pid().0) << 5) + 31;
                clients.push((card, own, None));
            }
            for (nth, client) in clients.into_iter().enumerate() {
                let at = if nth == 0 { file + 3 } else { more };
                more += usize::from(nth > 0);
                all.push(Descriptor { number: number(at), file, client: Some(client) });
            }
        }
        all.sort_by_key(|descriptor| descriptor.number);
        all
    }

    /// Returns what `/proc/PID/fdinfo` shows of a descriptor.
    ///
    /// # Errors
    /// `NotSupported` if the process has no such descriptor.
    pub(crate) fn descriptor_text(
        &self,
        process: &Process,
        number: u32,
    ) -> gpu_core::Reading<String> {
        let all = self.descriptors(process);
        let own = all.iter().find(|own| own.number == number).ok_or(Absent::NotSupported)?;
        let mut text = "pos:\t0\nflags:\t02100002\nmnt_id:\t26\n".to_owned();
        if let Some((card, id, holding)) = own.client {
            text.push_str(&client::text(card, id, holding, self.now));
        }
        Ok(text)
    }

    /// Returns whether KFD lists a process: it has opened `/dev/kfd` once.
    pub(super) fn is_in_kfd(&self, process: &Process) -> bool {
        let computes = |holding: &Holding| {
            let card = self.machine.cards.get(holding.device);
            card.is_some_and(|card| card.computes(holding).is_some())
        };
        process.opened_kfd
            || process.files.iter().any(|file| &*file.path == KFD)
            || process.holdings.iter().any(computes)
    }
}
