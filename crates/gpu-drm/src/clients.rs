//! The clients of all processes, each counted once.

use crate::fdinfo::{Client, ClientMemory};
use crate::tree::Tree;
use gpu_core::{Absent, Bytes, PciBusId, Pid, Reading, Uids, plausible};
use std::collections::{BTreeMap, BTreeSet};

/// The most clients that are kept.
const MAX_CLIENTS: usize = 65_536;

/// The most processes that are read.
const MAX_PROCESSES: usize = 65_536;

/// The most descriptors that are read of a process.
const MAX_DESCRIPTORS: usize = 4_096;

/// The longest file of a process that is read. DRM drivers print some 3 KiB.
const MAX_TEXT: usize = 64 << 10;

/// What identifies a client. The descriptor distinguishes a client without a number from others.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Numbered(Reading<PciBusId>, Reading<String>, u64),
    Descriptor(Pid, u32),
}

/// A client and the processes that have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldClient {
    /// The client, as the first of its descriptors shows it.
    pub client: Client,
    /// The number of descriptors, in all processes.
    pub descriptors: usize,
    /// The processes that have such a descriptor. Its memory is free only when all of them have
    /// closed it.
    pub holders: BTreeSet<Pid>,
}

/// A process that has clients, or whose clients are unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientHolder {
    /// Its short name, chosen by the process.
    pub name: Reading<String>,
    /// Its UIDs.
    pub uids: Reading<Uids>,
}

/// A process on one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessClients<'a> {
    /// The process.
    pub pid: Pid,
    /// Its clients on the device.
    pub clients: Vec<&'a HeldClient>,
    /// What they use. Shared buffers count once: if several of these clients share different buffers
    /// with others, `resident` is a lower bound. Only clients that no other process has count as
    /// `private`.
    pub memory: ClientMemory,
}

impl ProcessClients<'_> {
    /// Returns the other processes that have one of these clients. They keep its memory when this
    /// process ends.
    pub fn shared_with(&self) -> BTreeSet<Pid> {
        let holders = self.clients.iter().flat_map(|held| &held.holders).copied();
        holders.filter(|holder| *holder != self.pid).collect()
    }
}

/// The clients of all processes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Clients {
    held: BTreeMap<Key, HeldClient>,
    /// The processes whose descriptors could not all be read: they may have more clients.
    pub unreadable: BTreeSet<Pid>,
    /// The processes that have clients or are in `unreadable`, if [`clients`] has found them.
    pub processes: BTreeMap<Pid, ClientHolder>,
}

impl Clients {
    /// Adds a descriptor of a process with the text of its `fdinfo`, and returns whether it is a DRM
    /// client. A caller that knows which descriptors are DRM files needs to add only those.
    pub fn add(&mut self, pid: Pid, descriptor: u32, text: &[u8]) -> bool {
        let Some(client) = Client::parse(text) else {
            return false;
        };
        let key = match client.id {
            Ok(id) => Key::Numbered(client.bus, client.driver.clone(), id),
            Err(_) => Key::Descriptor(pid, descriptor),
        };
        if self.held.len() >= MAX_CLIENTS && !self.held.contains_key(&key) {
            self.unreadable.insert(pid);
            return true;
        }
        let new = HeldClient { client, descriptors: 0, holders: BTreeSet::new() };
        let held = self.held.entry(key).or_insert(new);
        held.descriptors += 1;
        held.holders.insert(pid);
        true
    }

    /// Returns every client, also those of accelerators that are not GPUs
    /// ([`Client::is_gpu`]).
    pub fn iter(&self) -> impl Iterator<Item = &HeldClient> {
        self.held.values()
    }

    /// Returns the clients on a device.
    pub fn on(&self, device: PciBusId) -> impl Iterator<Item = &HeldClient> {
        self.iter().filter(move |held| held.client.bus == Ok(device))
    }

    /// Returns the memory that all clients use on a device, shared buffers counted once: a lower
    /// bound. Memory of the kernel, of firmware and of exported buffers belongs to no client.
    pub fn memory(&self, device: PciBusId, integrated: bool) -> ClientMemory {
        sum(self.on(device).map(|held| held.client.memory(integrated)))
    }

    /// Returns the processes on a device, by PID; `integrated` is as for [`Client::memory`].
    pub fn processes_on(&self, device: PciBusId, integrated: bool) -> Vec<ProcessClients<'_>> {
        let mut processes: BTreeMap<Pid, Vec<&HeldClient>> = BTreeMap::new();
        for held in self.on(device) {
            for pid in &held.holders {
                processes.entry(*pid).or_default().push(held);
            }
        }
        let processes = processes.into_iter().map(|(pid, clients)| {
            let memory = |held: &&HeldClient| held.client.memory(integrated);
            let alone = clients.iter().filter(|held| held.holders.len() == 1);
            let private = sum(alone.map(memory)).private;
            let memory = ClientMemory { private, ..sum(clients.iter().map(memory)) };
            ProcessClients { pid, clients, memory }
        });
        processes.collect()
    }
}

/// Adds up the memory of clients. Their private parts are distinct; of what they share, at least the
/// largest part exists. A client that does not report what it shares is taken to share nothing.
fn sum(clients: impl Iterator<Item = ClientMemory>) -> ClientMemory {
    let none = ClientMemory { resident: Ok(Bytes(0)), private: Ok(Bytes(0)) };
    let mut largest = Bytes(0);
    let mut all = clients.fold(none, |all, client| {
        let own = client.private.or(client.resident);
        let shared = client.resident.and_then(|resident| Ok(resident.saturating_sub(own?)));
        largest = largest.max(shared.unwrap_or_default());
        let add = |sum: Reading<Bytes>, more: Reading<Bytes>| Ok(sum? + more?);
        ClientMemory {
            resident: add(all.resident, client.resident.and(own)),
            private: add(all.private, client.private),
        }
    });
    all.resident = all.resident.map(|resident| resident + largest);
    all
}

/// Reads the clients of all processes from `proc/PID/fdinfo`: of the first 65,536 processes, 4,096
/// descriptors each.
///
/// For xe, the kernel locks every buffer of a client and can wake the device or wait for it.
///
/// # Errors
/// The reason why the processes are unknown.
pub fn clients(tree: &dyn Tree) -> Reading<Clients> {
    let mut clients = Clients::default();
    let names = tree.names("proc")?;
    let pids = names.iter().filter_map(|name| decimal(name)).map(Pid);
    for pid in pids.filter(|pid| plausible::is_pid(*pid)).take(MAX_PROCESSES) {
        add_process(tree, &mut clients, pid);
    }
    Ok(clients)
}

fn add_process(tree: &dyn Tree, clients: &mut Clients, pid: Pid) {
    let status = || tree.read(&format!("proc/{pid}/status"), MAX_TEXT);
    let (is_client, is_complete) = add_descriptors(tree, clients, pid);
    if !is_complete && may_have_files(&status()) {
        clients.unreadable.insert(pid);
    }
    if is_client || clients.unreadable.contains(&pid) {
        let name = tree.text(&format!("proc/{pid}/comm"));
        let uids = status().and_then(|status| uids(&status).ok_or(Absent::Implausible));
        clients.processes.insert(pid, ClientHolder { name, uids });
    }
}

/// Adds the descriptors of a process. Returns whether one of them is a client, and whether all were
/// read. What is gone meanwhile counts as read.
fn add_descriptors(tree: &dyn Tree, clients: &mut Clients, pid: Pid) -> (bool, bool) {
    let is_gone = |reason: Absent| matches!(reason, Absent::NotSupported | Absent::NotFound);
    let descriptors = match tree.names(&format!("proc/{pid}/fdinfo")) {
        Ok(names) => names,
        Err(reason) => return (false, is_gone(reason)),
    };
    let (mut is_client, mut is_complete) = (false, descriptors.len() <= MAX_DESCRIPTORS);
    for name in descriptors.iter().take(MAX_DESCRIPTORS) {
        let Some(descriptor) = decimal(name) else {
            continue;
        };
        match tree.read(&format!("proc/{pid}/fdinfo/{name}"), MAX_TEXT) {
            Ok(text) => is_client |= clients.add(pid, descriptor, &text),
            Err(reason) => is_complete &= is_gone(reason),
        }
    }
    (is_client, is_complete)
}

/// Returns whether a process with this status can have open files: not if it is gone, nor if it has
/// no memory, as kernel threads and processes that have ended.
fn may_have_files(status: &Reading<Vec<u8>>) -> bool {
    match status {
        Ok(status) => lines(status).any(|line| line.starts_with(b"VmSize:")),
        Err(reason) => !matches!(reason, Absent::NotSupported | Absent::NotFound),
    }
}

fn uids(status: &[u8]) -> Option<Uids> {
    let uids = lines(status).find_map(|line| line.strip_prefix(b"Uid:"))?;
    let mut uids = str::from_utf8(uids).ok()?.split_ascii_whitespace().map(decimal);
    Some(Uids { real: uids.next()??, effective: uids.next()??, saved: uids.next()?? })
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| *byte == b'\n')
}

fn decimal(text: &str) -> Option<u32> {
    text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
}
