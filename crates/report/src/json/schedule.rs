//! `gpuws place graph --schedule --json`.

use super::Version;
use crate::wording::short_names;
use gpu_graph::Graph;
use gpu_graph::cost::{Choice, Cluster, Schedule};
use serde::Serialize;

/// A graph, and where and when each of its operations runs.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ScheduledGraph<'a> {
    /// Version of this object's format.
    pub schema: Version,
    /// Path of the graph.
    pub file: &'a str,
    /// Name of the simulated machine whose GPUs are used. Null if the devices were named, or are
    /// those of a real machine.
    pub machine: Option<&'a str>,
    /// End of the last operation, in nanoseconds.
    pub makespan_ns: u64,
    /// The devices.
    pub devices: Vec<Processor<'a>>,
    /// The operations, in the order of the graph.
    pub nodes: Vec<Slot<'a>>,
    /// Copies of values between devices, by start.
    pub transfers: Vec<Copied<'a>>,
    /// Parts of the file that the graph omits.
    pub notes: &'a [String],
}

/// A device in a schedule.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Processor<'a> {
    /// Full name, such as /job:localhost/replica:0/task:0/device:GPU:0.
    pub name: &'a str,
    /// Its speed, relative to the fastest GPU. 1 for a GPU if the speed of any GPU is unknown.
    pub speed_ratio: f64,
    /// Number of operations on it.
    pub node_count: usize,
    /// Time in which it runs operations, in nanoseconds.
    pub busy_ns: u64,
    /// Most memory in use at one time, in bytes.
    pub peak_memory_bytes: u64,
    /// Memory that the schedule may use, in bytes. Null for no limit.
    pub memory_bytes: Option<u64>,
}

/// An operation in a schedule.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Slot<'a> {
    /// Name of the node.
    pub name: &'a str,
    /// Its operation.
    pub op: &'a str,
    /// Full name of its device.
    pub device: &'a str,
    /// Start, in nanoseconds.
    pub start_ns: u64,
    /// End, in nanoseconds.
    pub end_ns: u64,
    /// Why it runs there.
    pub reason: ChoiceCode,
    /// The reason, in words.
    pub explanation: String,
}

/// Why an operation runs on its device.
#[derive(Clone, Copy, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ChoiceCode {
    /// It was fixed there.
    Fixed,
    /// It can run on no other device.
    Only,
    /// An operation that must be on the same device runs there.
    Group,
    /// It was best there when its turn came.
    Earliest,
    /// A search over complete schedules found it best there.
    Searched,
}

/// A copy of a value to another device.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Copied<'a> {
    /// Name of the node that made the value.
    pub node: &'a str,
    /// Which of its outputs.
    pub output_index: u32,
    /// Full name of the device that has it.
    pub from: &'a str,
    /// Full name of the device that needs it.
    pub to: &'a str,
    /// Start, in nanoseconds.
    pub start_ns: u64,
    /// End, in nanoseconds.
    pub end_ns: u64,
    /// Size of the value, in bytes.
    pub size_bytes: u64,
}

impl<'a> ScheduledGraph<'a> {
    /// Returns the object for a schedule.
    pub fn of(
        file: &'a str,
        machine: Option<&'a str>,
        graph: &'a Graph,
        cluster: &'a Cluster,
        schedule: &Schedule,
        notes: &'a [String],
    ) -> Self {
        let device = |at: u32| cluster.processors.get(at as usize).map_or("", |of| &*of.name);
        let names = short_names(cluster.processors.iter().map(|of| &*of.name));
        let nodes = graph.nodes().iter().zip(&schedule.slots).zip(&schedule.reasons);
        let transfers = schedule.transfers.iter().map(|copy| Copied {
            node: graph.nodes().get(copy.item as usize).map_or("", |node| &node.name),
            output_index: copy.output,
            from: device(copy.from),
            to: device(copy.to),
            start_ns: copy.start_nanos,
            end_ns: copy.end_nanos,
            size_bytes: copy.bytes.0,
        });
        ScheduledGraph {
            schema: Version,
            file,
            machine,
            makespan_ns: schedule.makespan_nanos,
            devices: Processor::each(cluster, schedule),
            nodes: nodes
                .map(|((node, slot), choice)| Slot {
                    name: &node.name,
                    op: &node.op,
                    device: device(slot.processor),
                    start_ns: slot.start_nanos,
                    end_ns: slot.end_nanos,
                    reason: match choice {
                        Choice::Fixed => ChoiceCode::Fixed,
                        Choice::Only => ChoiceCode::Only,
                        Choice::Group => ChoiceCode::Group,
                        Choice::Earliest { .. } => ChoiceCode::Earliest,
                        Choice::Searched => ChoiceCode::Searched,
                    },
                    explanation: explained(*choice, &names),
                })
                .collect(),
            transfers: transfers.collect(),
            notes,
        }
    }
}

/// Describes why an operation runs on its device, with the name of the next best one of the devices
/// with these names.
pub fn explained(choice: Choice, names: &[&str]) -> String {
    match choice {
        Choice::Earliest { next: Some((at, nanos)) } => {
            let name = names.get(at as usize).copied().unwrap_or_default();
            format!("best there; on {name} it would end at {:.1} us", nanos as f64 / 1e3)
        }
        other => other.to_string(),
    }
}

impl<'a> Processor<'a> {
    /// Returns each device with its part of the schedule.
    pub fn each(cluster: &'a Cluster, schedule: &Schedule) -> Vec<Self> {
        let mut busy = vec![(0, 0_u64); cluster.processors.len()];
        for slot in &schedule.slots {
            if let Some((count, nanos)) = busy.get_mut(slot.processor as usize) {
                *count += 1;
                *nanos = nanos.saturating_add(slot.end_nanos - slot.start_nanos);
            }
        }
        let peaks = schedule.peaks.iter().map(|bytes| bytes.0).chain(std::iter::repeat(0));
        let each = cluster.processors.iter().zip(busy).zip(peaks);
        each.map(|((of, (node_count, busy_ns)), peak_memory_bytes)| Processor {
            name: &of.name,
            speed_ratio: of.speed,
            node_count,
            busy_ns,
            peak_memory_bytes,
            memory_bytes: of.memory.map(|bytes| bytes.0),
        })
        .collect()
    }
}
