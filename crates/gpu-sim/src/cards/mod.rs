//! The GPUs of AMD and Intel of a machine, as the files of the kernel.
//!
//! The main decision is to simulate no backend for them: [`Simulation::tree`](crate::Simulation::tree)
//! serves the files that the kernel would show, and gpu-drm reads them as on a real machine.

mod client;
pub(crate) mod entry;
mod files;
mod state;
mod tree;

use crate::holding::{Holding, device_file};
use files::Files;
use gpu_core::{
    Access, Bytes, DeviceFile, Error, ErrorKind, HeldFile, KernelDriver, PciBusId, Result,
};
use gpu_drm::{CardDriver, Tree};
use std::sync::Arc;

/// The index of the first card: above those of all devices of NVML.
const FIRST: u32 = 1 << 16;

/// The file that programs of ROCm open.
const KFD: &str = "/dev/kfd";

/// The GPUs of AMD and Intel of a machine: their files, without what processes use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cards {
    files: Arc<Files>,
    all: Vec<SimulatedCard>,
}

/// A card, by its files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SimulatedCard {
    /// Its index among the devices of the machine.
    pub(crate) index: u32,
    pub(crate) bus: PciBusId,
    driver: CardDriver,
    /// Its directory, without links in the path.
    dir: String,
    /// N of `/dev/dri/cardN`.
    node: Option<u32>,
    /// The whole card, or its partitions.
    parts: Vec<Part>,
    /// All of its memory, if its driver reports that.
    total: Option<Bytes>,
    /// Memory of the card and of the host that stays in use without a process.
    pub(crate) leaked: (Bytes, Bytes),
}

/// A card, or a partition of it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    number: u32,
    /// N of `/dev/dri/renderDN`.
    render: Option<u32>,
    /// The number of its KFD node, and its `gpu_id`.
    kfd: Option<(u32, u32)>,
}

impl Cards {
    /// Reads the cards from the text of the file `name`.
    ///
    /// # Errors
    /// `Invalid`, with the line and what to write instead.
    pub(crate) fn parse(name: &str, text: &str) -> Result<Self> {
        let files = Files::parse(name, text)?;
        let nodes = gpu_drm::topology(&files).map(|kfd| kfd.nodes).unwrap_or_default();
        let mut all = Vec::new();
        for (index, card) in (FIRST..).zip(gpu_drm::cards(&files).unwrap_or_default()) {
            let own = nodes.iter().filter(|node| node.is_gpu && node.bus == Ok(card.bus));
            let mut parts: Vec<Part> = own
                .map(|node| Part {
                    number: node.partition.unwrap_or_default(),
                    render: node.render_minor.ok().or(card.render),
                    kfd: node.gpu_id.ok().map(|id| (node.number, id)),
                })
                .collect();
            if parts.is_empty() {
                parts.push(Part { number: 0, render: card.render, kfd: None });
            }
            let dir = files.resolve(&card.dir).unwrap_or_default();
            let tree: &dyn Tree = &files;
            all.push(SimulatedCard {
                index,
                bus: card.bus,
                driver: card.driver,
                total: tree.number(&format!("{dir}/mem_info_vram_total")).ok().map(Bytes),
                dir,
                node: card.card,
                parts,
                leaked: (Bytes(0), Bytes(0)),
            });
        }
        if all.is_empty() {
            let what = "has no card; a card is a directory 'sys/class/drm/cardN' with a link \
                        'device' to a directory with a file 'uevent' that has DRIVER and \
                        PCI_SLOT_NAME";
            return Err(Error::new(ErrorKind::Invalid, format!("{name} {what}")));
        }
        Ok(Cards { files: Arc::new(files), all })
    }

    /// Returns whether the machine has none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &SimulatedCard> {
        self.all.iter()
    }

    pub(crate) fn get(&self, index: u32) -> Option<&SimulatedCard> {
        self.all.iter().find(|card| card.index == index)
    }

    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut SimulatedCard> {
        self.all.iter_mut().find(|card| card.index == index)
    }

    /// Returns the drivers of the cards; none without a card.
    pub(crate) fn drivers(&self) -> Vec<Arc<dyn KernelDriver>> {
        if self.is_empty() {
            return Vec::new();
        }
        let tree: Arc<dyn Tree> = Arc::clone(&self.files) as _;
        gpu_drm::drivers(&tree)
    }

    /// Returns the device files of the cards, in their roles.
    pub(crate) fn device_files(&self) -> Vec<DeviceFile> {
        let drivers = self.drivers();
        let nodes = self.all.iter().flat_map(|card| {
            let parts = card.parts.iter().filter_map(Part::path);
            parts.chain(card.node.map(|number| format!("/dev/dri/card{number}")))
        });
        let kfd = self.all.iter().any(SimulatedCard::has_kfd).then(|| KFD.to_owned());
        let described = |path: String| {
            drivers.iter().fold(device_file(&path), |file, driver| file.described_by(&**driver))
        };
        nodes.chain(kfd).map(described).collect()
    }

    /// Returns the files that a program with this memory has.
    pub(crate) fn files_of(&self, holdings: &[Holding]) -> Vec<HeldFile> {
        let cards =
            holdings.iter().filter_map(|holding| Some((holding, self.get(holding.device)?)));
        let nodes = cards.clone().filter_map(|(holding, card)| card.part(holding)?.path());
        let kfd = cards.into_iter().any(|(holding, card)| card.computes(holding).is_some());
        let kfd = kfd.then(|| KFD.to_owned());
        let access = Access::OPEN_FOR_WRITING | Access::MAPPED;
        nodes.chain(kfd).map(|path| gpu_nvidia_driver::held_file(&path, access)).collect()
    }

    /// Returns the card and the number of the partition that a file belongs to.
    fn of_file(&self, path: &str) -> Option<(&SimulatedCard, u32)> {
        self.all.iter().find_map(|card| {
            let own = card.parts.iter().find(|part| part.path().as_deref() == Some(path));
            let number = path.strip_prefix("/dev/dri/card").and_then(|number| number.parse().ok());
            let is_node = number.is_some() && number == card.node;
            let number = own.map(|part| part.number).or(is_node.then_some(0))?;
            Some((card, number))
        })
    }
}

impl SimulatedCard {
    /// Returns its address as the kernel prints it.
    fn address(&self) -> String {
        let PciBusId { domain, bus, device, function } = self.bus;
        format!("{domain:04x}:{bus:02x}:{device:02x}.{function:x}")
    }

    fn has_kfd(&self) -> bool {
        self.parts.iter().any(|part| part.kfd.is_some())
    }

    /// Returns the partition whose memory this is.
    fn part(&self, holding: &Holding) -> Option<&Part> {
        let number = holding.client.unwrap_or_default().partition;
        self.parts.iter().find(|part| part.number == number)
    }

    /// Returns the KFD node through which a program computes that has this memory: its number, and
    /// its `gpu_id`.
    fn computes(&self, holding: &Holding) -> Option<(u32, u32)> {
        use gpu_core::DeviceProcessKind::{Compute, ComputeAndGraphics};
        let computes = matches!(holding.listed, Some(Compute | ComputeAndGraphics));
        let is_own = !holding.client.unwrap_or_default().inherited;
        self.part(holding)?.kfd.filter(|_| computes && is_own)
    }
}

impl Part {
    fn path(&self) -> Option<String> {
        self.render.map(|number| format!("/dev/dri/renderD{number}"))
    }
}
