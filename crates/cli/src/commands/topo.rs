//! `gpuws topo`: shows the topology as a matrix or draws it.

use crate::args::{Global, named};
use crate::commands::repeat;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::source;
use crate::terminal::{Line, Screen};
use clap::Args;
use gpu_core::{Absent, Error, ErrorKind, Group, Groups, Origin, PeerCapability};
use gpu_core::{Snapshot, Topology};
use gpu_placement::{Matrix, picture};
use gpu_report::json;
use gpu_report::smi::peer_table;
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub(crate) struct TopoArgs {
    /// Print the matrix (default).
    #[arg(short = 'm', long, conflicts_with = "svg")]
    matrix: bool,
    /// Print peer-to-peer access instead: reads, writes, NVLink, atomics or PCIe; also -p2p.
    #[arg(short = 'p', long = "p2p", visible_alias = "p2p_status", value_name = "r|w|n|a|p",
          value_parser = named(&CAPABILITIES), conflicts_with_all = ["matrix", "svg"])]
    pub(crate) p2p: Option<PeerCapability>,
    /// Write an SVG to this file instead; `-` is standard output.
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
}

const CAPABILITIES: [(&str, PeerCapability); 5] = [
    ("r", PeerCapability::Read),
    ("w", PeerCapability::Write),
    ("n", PeerCapability::NvLink),
    ("a", PeerCapability::Atomics),
    ("p", PeerCapability::Prop),
];

/// A machine and its topology.
pub(crate) struct Connected {
    pub(crate) now: Snapshot,
    pub(crate) topology: Topology,
    /// The nearest NUMA node of each device; `None` if unknown.
    pub(crate) nodes: Vec<Option<u32>>,
}

pub(crate) fn run(args: &TopoArgs, global: &Global, screen: &mut Screen) -> Result<Exit, Failure> {
    if (args.svg.is_some() || args.p2p.is_some()) && global.json {
        return Err(Failure::new(Exit::Usage, "take --json here")
            .with_source("--svg and -p2p select another format"));
    }
    if let Some(capability) = args.p2p {
        return peers(capability, global, screen);
    }
    let connected = query(global)?;
    match &args.svg {
        Some(path) => draw(&connected, path, screen)?,
        None if global.json => screen.json(&json::Topo::of(&connected.now, &connected.topology))?,
        None => screen.together(|screen| show(&connected, global, screen))?,
    }
    Ok(Exit::Done)
}

fn query(global: &Global) -> Result<Connected, Failure> {
    let groups: Groups = [Group::Product].into_iter().collect();
    let source = source::open_for_query(global, groups, false)?;
    let now = gpu_core::observe_users(&*source.backend, &*source.host, &*source.clock, groups);
    if let (Err(fault), true) = (&now.driver, now.devices.is_empty()) {
        return Err(Error::new(fault.kind, fault.text.clone()).into());
    }
    let topology = source.backend.topology().map_err(|error| unreported(error, &now.origin))?;
    if topology.links.is_empty() {
        return Err(unreported(Error::new(Absent::NotFound, "query the topology"), &now.origin));
    }
    let nodes = now.numa_nodes(topology.links.len());
    Ok(Connected { now, topology, nodes })
}

/// Returns the failure for an unknown topology, with a hint.
fn unreported(error: Error, origin: &Origin) -> Failure {
    let is_absent =
        matches!(error.kind(), ErrorKind::Field(absent) if absent != Absent::NotPermitted);
    let failure = Failure::from(error);
    match (is_absent, origin) {
        (false, _) => failure,
        (true, Origin::Simulated(_)) => {
            failure.with_hint("the recording has no topology; try gpuws --sim dgx1-v100 topo")
        }
        (true, _) => failure
            .with_hint("the driver does not report the topology; lspci -t shows the PCI tree"),
    }
}

/// Prints the table of `nvidia-smi topo -p2p`.
fn peers(
    capability: PeerCapability,
    global: &Global,
    screen: &mut Screen,
) -> Result<Exit, Failure> {
    let source = source::open_for_query(global, Groups::NONE, false)?;
    repeat::name_origin(&source);
    let unreported = |error: Error| match error.kind() {
        ErrorKind::Field(_) => Failure::from(error)
            .with_hint("the driver does not report it; topo -p2p r shows read access"),
        _ => error.into(),
    };
    let peers = source.backend.peer_access(capability).map_err(unreported)?;
    screen.raw(peer_table(&peers).as_bytes())?;
    Ok(Exit::Done)
}

fn title(connected: &Connected) -> String {
    let count = connected.topology.links.len();
    let gpus = crate::wording::count(count, "GPU", "GPUs");
    match (&connected.now.origin, &connected.now.hostname) {
        (Origin::Live, Ok(hostname)) => format!("{hostname}: {gpus}"),
        (origin, _) => format!("{origin}: {gpus}"),
    }
}

fn draw(connected: &Connected, path: &Path, screen: &mut Screen) -> Result<(), Failure> {
    let devices = &connected.now.devices;
    let name = |index: usize| {
        let device = devices.iter().find(|device| device.id().index as usize == index)?;
        device.info.name.clone().ok()
    };
    let names: Vec<Option<String>> = (0..connected.topology.links.len()).map(name).collect();
    let svg = picture(&connected.topology, &title(connected), &names, &connected.nodes);
    if path.as_os_str() == "-" {
        return screen.raw(svg.as_bytes());
    }
    Ok(gpu_host::output::write_new(path, svg.as_bytes())?)
}

fn show(connected: &Connected, global: &Global, screen: &mut Screen) -> Result<(), Failure> {
    super::doctor::show_origin(screen, global, &connected.now)?;
    if connected.now.origin != Origin::Live && !global.quiet {
        screen.print(&Line::new())?;
    }
    let matrix = Matrix::of(&connected.topology, &connected.nodes);
    let lines = matrix.lines(screen.room(0));
    let mut is_head = true;
    for line in lines {
        let text = Line::new();
        screen.print(&if is_head { text.dim(&line) } else { text.plain(&line) })?;
        // After an empty line, the next block starts with its own header.
        is_head = line.is_empty();
    }
    if !global.quiet {
        screen.print(&Line::new())?;
        for (cell, meaning) in matrix.legend() {
            screen.print(&Line::new().dim(format!("{cell:<6}{meaning}")))?;
        }
    }
    Ok(())
}
