//! The files of the running machine: `sys` of the cards, and `proc` of the processes.

use crate::cards::{Cards, SimulatedCard};
use crate::machine::Process;
use crate::process_table::Living;
use crate::simulation::Simulation;
use crate::state::State;
use gpu_core::{Absent, Bytes, Pid, ProcessState, Reading};
use gpu_drm::Tree;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Where KFD shows its processes and its nodes.
const PROCESSES: &str = "sys/class/kfd/kfd/proc";
const NODES: &str = "sys/class/kfd/kfd/topology/nodes/";

impl Simulation {
    /// Returns the files of the machine's GPUs of AMD and Intel; `None` if it has none.
    pub fn tree(&self) -> Option<Arc<dyn Tree>> {
        let has_cards = !self.lock().machine.cards.is_empty();
        has_cards.then(|| Arc::new(SimulatedTree(self.clone())) as _)
    }

    /// Returns whether the machine has NVIDIA devices or, without any GPU, could have them.
    pub fn has_nvidia(&self) -> bool {
        let machine = &self.lock().machine;
        machine.cards.is_empty() || !machine.devices.is_empty()
    }
}

struct SimulatedTree(Simulation);

impl Tree for SimulatedTree {
    fn read(&self, path: &str, limit: usize) -> Reading<Vec<u8>> {
        let mut content = self.0.lock().content(path)?;
        content.truncate(limit);
        Ok(content)
    }

    fn names(&self, path: &str) -> Reading<Vec<String>> {
        let state = self.0.lock();
        let own = state.process_names(path);
        let files = state.machine.cards.files.names(path);
        match (own, files) {
            (Some(own), files) => {
                let mut names = own?;
                names.extend(files.unwrap_or_default());
                Ok(names.into_iter().collect())
            }
            (None, files) => files,
        }
    }

    fn target(&self, path: &str) -> Reading<String> {
        self.0.lock().machine.cards.files.target(path)
    }

    fn now(&self) -> Duration {
        self.0.lock().now
    }
}

/// Returns the number at the beginning of a path, and the rest.
fn numbered(path: &str) -> Option<(u32, &str)> {
    let (number, rest) = path.split_once('/').unwrap_or((path, ""));
    Some((number.parse().ok()?, rest))
}

impl State {
    /// Returns the number in a file of a card at the start; 0 if it has none.
    pub(super) fn base(&self, card: &SimulatedCard, file: &str) -> Bytes {
        let Cards { files, .. } = &self.machine.cards;
        let tree: &dyn Tree = &**files;
        Bytes(tree.number(&format!("{}/{file}", card.dir)).unwrap_or(0))
    }

    fn content(&self, path: &str) -> Reading<Vec<u8>> {
        if let Some((pid, file)) = path.strip_prefix("proc/").and_then(numbered) {
            return Ok(self.process_file(Pid(pid), file)?.into_bytes());
        }
        if let Some((pid, file)) =
            path.strip_prefix(PROCESSES).and_then(|path| numbered(path.get(1..)?))
        {
            return Ok(self.kfd_file(Pid(pid), file)?.into_bytes());
        }
        let path = self.machine.cards.files.resolve(path)?;
        let content = self.machine.cards.files.content(&path, self.now)?;
        let number = || str::from_utf8(&content).ok()?.trim().parse::<u64>().ok();
        match self.used(&path).zip(number()) {
            Some((used, number)) => Ok(number.saturating_add(used).to_string().into_bytes()),
            None => Ok(content),
        }
    }

    /// Returns what the processes add to the number in a file.
    fn used(&self, path: &str) -> Option<u64> {
        if let Some((node, file)) = path.strip_prefix(NODES).and_then(numbered) {
            return (file == "mem_banks/0/used_memory").then(|| self.node_use(node).0);
        }
        let (dir, file) = path.rsplit_once('/')?;
        let card = self.machine.cards.iter().find(|card| card.dir == dir)?;
        match file {
            "mem_info_vram_used" => Some(self.card_use(card).memory.0),
            "mem_info_gtt_used" => Some(self.card_use(card).host.0),
            "gpu_busy_percent" => {
                Some(self.card_use(card).load.min(100 - self.base(card, file).0.min(100)))
            }
            _ => None,
        }
    }

    /// Returns the names in a directory of processes; `None` for any other directory.
    fn process_names(&self, path: &str) -> Option<Reading<BTreeSet<String>>> {
        if path == "proc" {
            return Some(Ok(self.seen().keys().map(Pid::to_string).collect()));
        }
        if let Some((pid, dir)) = path.strip_prefix("proc/").and_then(numbered) {
            return (dir == "fdinfo").then(|| {
                let process = &self.visible(Pid(pid))?.process;
                Ok(self.inspected(process)?.iter().map(u32::to_string).collect())
            });
        }
        let below = path.strip_prefix(PROCESSES)?;
        if below.is_empty() {
            let listed = self.living.iter().map(|(_, living)| &living.process);
            let listed = listed.filter(|process| self.is_in_kfd(process));
            return Some(Ok(listed.map(|process| process.pid().to_string()).collect()));
        }
        let (pid, dir) = numbered(below.get(1..)?)?;
        Some(self.kfd_process(Pid(pid)).map(|process| match dir {
            "queues" => (0..self.queues(process).len()).map(|queue| queue.to_string()).collect(),
            _ => {
                let gpus = self.gpu_ids().map(|gpu| format!("vram_{gpu}"));
                gpus.chain(["pasid".to_owned(), "queues".to_owned()]).collect()
            }
        }))
    }

    /// Returns a process that the viewer sees.
    fn visible(&self, pid: Pid) -> Reading<&Living> {
        let serial = self.seen_by_pid(pid).map_err(|_| Absent::NotSupported)?;
        self.living.get(serial).ok_or(Absent::NotSupported)
    }

    /// Returns the descriptors of a process that the viewer may inspect.
    fn inspected(&self, process: &Process) -> Reading<Vec<u32>> {
        if !self.may_access(process) {
            return Err(Absent::NotPermitted);
        }
        Ok(self.descriptors(process).iter().map(|descriptor| descriptor.number).collect())
    }

    /// Returns a file of `/proc/PID`.
    fn process_file(&self, pid: Pid, file: &str) -> Reading<String> {
        let living = self.visible(pid)?;
        let info = self.info(living).map_err(|error| error.kind().absent())?;
        let parent = info.parent.unwrap_or(Pid(0));
        let letter = match info.state {
            Ok(ProcessState::Running) => 'R',
            Ok(ProcessState::Uninterruptible) => 'D',
            Ok(ProcessState::Zombie) => 'Z',
            Ok(ProcessState::Stopped) => 'T',
            _ => 'S',
        };
        match file {
            "comm" => Ok(info.name),
            "cmdline" => Ok(info.command_line?.iter().map(|word| format!("{word}\0")).collect()),
            "status" => {
                let uid = info.uid?;
                // Kernel threads and zombies have no memory.
                let has_memory = !info.kernel_thread && letter != 'Z';
                let size = if has_memory { "VmSize:\t1048576 kB\n" } else { "" };
                let name = info.name;
                Ok(format!(
                    "Name:\t{name}\nState:\t{letter}\nPPid:\t{parent}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n{size}"
                ))
            }
            "stat" => {
                let start = info.key.start.map_or(0, |start| start.0);
                let between = "0 ".repeat(17);
                Ok(format!("{pid} ({}) {letter} {parent} {between}{start} 0 0", info.name))
            }
            _ => {
                let number = file.strip_prefix("fdinfo/").and_then(|number| number.parse().ok());
                let number = number.ok_or(Absent::NotSupported)?;
                self.inspected(&living.process)?;
                self.descriptor_text(&living.process, number)
            }
        }
    }

    /// Returns a process that KFD lists, by its PID on the host, for any viewer.
    fn kfd_process(&self, pid: Pid) -> Reading<&Process> {
        let mut known = self.living.numbered(pid).map(|(_, living)| &living.process);
        known.find(|process| self.is_in_kfd(process)).ok_or(Absent::NotSupported)
    }

    /// Returns the IDs of the GPUs of KFD.
    fn gpu_ids(&self) -> impl Iterator<Item = u32> {
        let parts = self.machine.cards.iter().flat_map(|card| &card.parts);
        parts.filter_map(|part| part.kfd).map(|(_, gpu)| gpu)
    }

    /// Returns the GPU of each queue of a process: one for each part of its memory.
    fn queues(&self, process: &Process) -> Vec<u32> {
        let gpu =
            |holding: &crate::Holding| self.machine.cards.get(holding.device)?.computes(holding);
        process.holdings.iter().filter_map(gpu).map(|(_, gpu)| gpu).collect()
    }

    /// Returns a file of a process of KFD.
    fn kfd_file(&self, pid: Pid, file: &str) -> Reading<String> {
        let process = self.kfd_process(pid)?;
        if let Some(gpu) = file.strip_prefix("vram_").and_then(|gpu| gpu.parse::<u32>().ok()) {
            if !self.gpu_ids().any(|known| known == gpu) {
                return Err(Absent::NotSupported);
            }
            let on = |holding: &&crate::Holding| {
                let card = self.machine.cards.get(holding.device);
                let node = card.and_then(|card| card.computes(holding));
                node.is_some_and(|(_, own)| own == gpu)
            };
            let held: Bytes =
                process.holdings.iter().filter(on).map(|holding| holding.memory).sum();
            return Ok(held.0.to_string());
        }
        let queue = file.strip_prefix("queues/").and_then(numbered);
        let (queue, file) = match queue {
            None if file == "pasid" => return Ok("0".to_owned()),
            queue => queue.ok_or(Absent::NotSupported)?,
        };
        let gpu = *self.queues(process).get(queue as usize).ok_or(Absent::NotSupported)?;
        match file {
            "gpuid" => Ok(gpu.to_string()),
            "size" => Ok("4096".to_owned()),
            "type" => Ok("0".to_owned()),
            _ => Err(Absent::NotSupported),
        }
    }
}
