//! Memory of a card in a `[[process]]` of `machine.toml`.

use crate::cards::Cards;
use crate::file::MemoryEntry;
use crate::machine::{ClientUse, Holding};
use gpu_core::{Absent, Bytes, DeviceProcessKind, PciBusId};

/// The clients without a number get numbers from this one on.
pub(super) const FIRST_CLIENT: u64 = 1_000;

/// Returns the memory that an entry with a `card` describes.
///
/// # Errors
/// What is wrong with it, after the name of the process.
pub(crate) fn holding(cards: &Cards, memory: &MemoryEntry, card: &str) -> Result<Holding, String> {
    let known = || cards.iter().map(|card| card.bus.to_string()).collect::<Vec<_>>().join(", ");
    let bus: Option<PciBusId> = card.parse().ok();
    let Some(found) = cards.iter().find(|known| Some(known.bus) == bus) else {
        let hint = match cards.is_empty() {
            true => {
                "this machine has none; describe its cards in a file that 'cards' names".to_owned()
            }
            false => format!("its cards are {}", known()),
        };
        return Err(format!("has memory on card '{card}', which is not in this machine; {hint}"));
    };
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
        }),
        ..Holding::new(found.index, Bytes::from_mib(memory.mib))
    })
}
