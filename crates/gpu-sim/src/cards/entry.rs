//! Memory of a card in a `[[process]]` of `machine.toml`.

use crate::cards::{Cards, SimulatedCard};
use crate::file::{CardEntry, MemoryEntry};
use crate::machine::{ClientUse, Holding, Process};
use crate::toml_source::TomlSource;
use gpu_core::{Absent, Bytes, DeviceProcessKind, PciBusId};
use gpu_drm::Tree;
use std::collections::BTreeMap;

/// The clients without a number get numbers from this one on.
pub(super) const FIRST_CLIENT: u64 = 1_000;

/// Returns the memory that an entry with a `card` describes.
///
/// # Errors
/// What is wrong with it, after the name of the process.
pub(crate) fn holding(cards: &Cards, memory: &MemoryEntry, card: &str) -> Result<Holding, String> {
    let found = named(cards, card).map_err(|what| format!("has memory on {what}"))?;
    let is_of_nvml = memory.gpu_instance.is_some() || memory.compute_instance.is_some();
    if memory.gpu.is_some() || is_of_nvml || !memory.listed || !memory.reported {
        let only = "only memory on a 'gpu' has GPU instances, 'listed' and 'reported'";
        return Err(format!("has memory on a card with a field of NVML; {only}"));
    }
    let partition = memory.partition.unwrap_or(0);
    if !found.parts.iter().any(|part| part.number == partition) {
        let parts = found.parts.len();
        return Err(format!(
            "has memory in partition {partition} of card '{card}', which has {parts}"
        ));
    }
    if memory.client.is_some_and(|client| u64::from(client) >= FIRST_CLIENT) {
        return Err(format!("has a client number of {FIRST_CLIENT} or more; choose a lower one"));
    }
    if memory.kind == DeviceProcessKind::Mps {
        return Err("uses MPS on a card; 'mps' is a kind of use of NVIDIA's GPUs".to_owned());
    }
    let load = memory.utilization_percent;
    Ok(Holding {
        listed: Some(memory.kind),
        load: load.unwrap_or(0),
        load_untold: load.is_none().then_some(Absent::NotSupported),
        client: Some(ClientUse {
            host: Bytes::from_mib(memory.host_mib.unwrap_or(0)),
            id: memory.client,
            partition,
            inherited: memory.inherited,
        }),
        ..Holding::new(found.index, Bytes::from_mib(memory.mib))
    })
}

/// Returns the card at an address.
///
/// # Errors
/// That there is none, and what the machine has.
fn named<'a>(cards: &'a Cards, address: &str) -> Result<&'a SimulatedCard, String> {
    let bus: Option<PciBusId> = address.parse().ok();
    cards.iter().find(|known| Some(known.bus) == bus).ok_or_else(|| {
        let known: Vec<String> = cards.iter().map(SimulatedCard::address).collect();
        let hint = match known.is_empty() {
            true => {
                "this machine has none: describe its cards in a file that 'cards' names".to_owned()
            }
            false => format!("its cards are {}", known.join(", ")),
        };
        format!("card '{address}', which is not in this machine; {hint}")
    })
}

impl Cards {
    /// Applies the entries of the cards.
    ///
    /// # Errors
    /// `Invalid`, with the line.
    pub(crate) fn overlay(
        &mut self,
        source: TomlSource<'_>,
        entries: &[CardEntry],
    ) -> gpu_core::Result<()> {
        for entry in entries {
            let found = named(self, entry.bus.get_ref()).map(|card| card.index);
            let index = found.map_err(|what| source.error(Some(entry.bus.span()), &what))?;
            if let Some(card) = self.get_mut(index) {
                card.leaked.0 = Bytes::from_mib(entry.memory_leaked_mib);
            }
        }
        Ok(())
    }

    /// Checks the memory of the processes.
    ///
    /// # Errors
    /// A client that differs between processes, or a card that uses more memory than it has.
    pub(crate) fn check(&self, processes: &[Process]) -> Result<(), String> {
        let client = |holding: &Holding| {
            let client = holding.client.unwrap_or_default();
            (holding.memory, client.host, client.partition)
        };
        let is_same = |a: &Holding, b: &Holding| client(a) == client(b);
        for card in self.iter() {
            let mut shared: BTreeMap<u32, &Holding> = BTreeMap::new();
            let tree: &dyn Tree = &*self.files;
            let base = tree.number(&format!("{}/mem_info_vram_used", card.dir)).unwrap_or(0);
            let mut used = Bytes(base) + card.leaked.0;
            let holdings = processes.iter().flat_map(|process| &process.holdings);
            for holding in holdings.filter(|holding| holding.device == card.index) {
                match holding.client.and_then(|client| client.id) {
                    Some(id) => match shared.insert(id, holding) {
                        None => used += holding.memory,
                        Some(other) if is_same(other, holding) => {}
                        Some(_) => {
                            let what = "has different memory in two processes; write the same 'mib', 'host_mib' and 'partition'";
                            return Err(format!("client {id} of card '{}' {what}", card.address()));
                        }
                    },
                    None => used += holding.memory,
                }
            }
            if card.total.is_some_and(|total| used > total) {
                return Err(format!("card '{}' uses {used}, more than its memory", card.address()));
            }
        }
        Ok(())
    }
}
