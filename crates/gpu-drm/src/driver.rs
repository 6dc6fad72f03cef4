//! The device files and messages of the drivers: `KernelDriver`.

use crate::deadline::{now, start};
use crate::{Card, CardDriver, Tree, cards, fdinfo, topology};
use gpu_core::{
    Bytes, Client, DeviceKey, DriverError, DriverMessage, FileId, FileRole, HeldFile, KernelDriver,
    MemoryUse, Reading, Timestamp,
};
use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The major number of the nodes in `/dev/dri`.
const MAJOR: u32 = 226;

/// The file that every program of ROCm opens, whatever GPU it uses.
const KFD: &str = "/dev/kfd";

/// A driver of AMD or Intel.
pub struct DrmDriver {
    driver: CardDriver,
    tree: Arc<dyn Tree>,
    /// The cards when the first file was described, or its process read.
    cards: OnceLock<Vec<Known>>,
}

/// A card of the driver.
struct Known {
    card: Card,
    is_integrated: bool,
    /// The minor numbers of the render nodes of its partitions.
    partitions: Vec<u32>,
}

/// Returns the drivers of AMD and Intel on a machine.
pub fn drivers(tree: &Arc<dyn Tree>) -> Vec<Arc<dyn KernelDriver>> {
    let driver = |driver| DrmDriver { driver, tree: Arc::clone(tree), cards: OnceLock::new() };
    CardDriver::ALL.into_iter().map(|known| Arc::new(driver(known)) as _).collect()
}

impl DrmDriver {
    /// Returns the cards of this driver.
    fn cards(&self) -> &[Known] {
        self.cards.get_or_init(|| {
            let (driver, tree) = (self.driver, Arc::clone(&self.tree));
            let read = start(move || known_cards(driver, &*tree));
            read.wait(now() + DEADLINE, || "read the cards".to_owned()).unwrap_or_default()
        })
    }
}

/// How long the cards may take to answer. Without an answer, their files belong to no device.
const DEADLINE: Duration = Duration::from_secs(10);

fn known_cards(driver: CardDriver, tree: &dyn Tree) -> Vec<Known> {
    let own = |card: &Card| card.driver == driver;
    let cards = cards(tree).unwrap_or_default().into_iter().filter(own);
    // Only KFD shows the chip of a partition's node.
    let nodes = match driver {
        CardDriver::Amdgpu => topology(tree).map(|kfd| kfd.nodes).unwrap_or_default(),
        _ => Vec::new(),
    };
    let known = |card: Card| Known {
        is_integrated: card.is_integrated(tree),
        partitions: nodes
            .iter()
            .filter(|node| node.bus == Ok(card.bus))
            .filter_map(|node| node.render_minor.ok())
            .collect(),
        card,
    };
    cards.map(known).collect()
}

impl KernelDriver for DrmDriver {
    fn name(&self) -> &'static str {
        self.driver.name()
    }

    fn directories(&self) -> &'static [&'static str] {
        &[]
    }

    /// Programs compute through the render node, and display servers through the other, too.
    fn describe(&self, path: &str, id: Reading<FileId>) -> Option<(FileRole, Option<DeviceKey>)> {
        if path == KFD {
            return (self.driver == CardDriver::Amdgpu).then_some((FileRole::Control, None));
        }
        let Ok(FileId::Device { major: MAJOR, minor }) = id else { return None };
        let has = |known: &&Known| {
            let Known { card, partitions, .. } = known;
            card.card == Some(minor) || card.render == Some(minor) || partitions.contains(&minor)
        };
        let known = self.cards().iter().find(has)?;
        Some((FileRole::Compute, Some(DeviceKey::Pci(known.card.bus))))
    }

    fn log_prefixes(&self) -> &'static [&'static str] {
        let own = |(name, _): &&(&str, _)| *name == self.name();
        gpu_drm_driver::PREFIXES.iter().find(own).map_or(&[], |(_, prefixes)| prefixes)
    }

    fn log_message(&self, text: &str, at: Timestamp) -> Option<DriverMessage> {
        gpu_drm_driver::parse_message(text, at)
    }

    fn explain(&self, message: &DriverMessage) -> Option<DriverError> {
        gpu_drm_driver::error(&message.code)
    }

    fn find_memory_use(&self, held: &mut [HeldFile], fdinfo: &dyn Fn(u32) -> Option<String>) {
        let computes = held.iter().any(|file| &*file.path == KFD);
        let mut counted = BTreeSet::new();
        // The graphics nodes of other drivers have another role.
        for file in held.iter_mut().filter(|file| file.role == FileRole::Compute) {
            let Some(DeviceKey::Pci(bus)) = file.device else { continue };
            let Some(known) = self.cards().iter().find(|known| known.card.bus == bus) else {
                continue;
            };
            let texts = file.descriptors.iter().filter_map(|descriptor| fdinfo(*descriptor));
            let clients = texts.filter_map(|text| fdinfo::Client::parse(text.as_bytes()));
            let clients = clients.filter(|client| client.bus == Ok(bus));
            let is_new =
                |client: &fdinfo::Client| client.id.map_or(true, |id| counted.insert((bus, id)));
            file.clients = clients
                .filter(is_new)
                .map(|client| self::client(&client, known.is_integrated, computes))
                .collect();
            file.memory = memory_use(&file.clients);
        }
    }
}

/// Returns the evidence of clients. Without any, such as for a file that the caller may not inspect,
/// the process may use memory.
pub(crate) fn memory_use(clients: &[Client]) -> MemoryUse {
    match clients.iter().map(|client| client.memory).sum() {
        Ok(bytes) if bytes > Bytes(0) => MemoryUse::Certain(Some(bytes)),
        Ok(_) if !clients.is_empty() => MemoryUse::None,
        _ => MemoryUse::Possible,
    }
}

/// Returns a client as the kernel counts it; `computes`: its process uses KFD.
pub(crate) fn client(client: &fdinfo::Client, integrated: bool, computes: bool) -> Client {
    Client {
        id: client.id,
        memory: client.memory(integrated).resident,
        kind: client.kind(computes),
    }
}
