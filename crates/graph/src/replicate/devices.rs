//! A graph on the devices of a machine.

use super::contexts::{Context, ContextError, split_batch};
use super::gradient::gradients;
use super::parallel::{Replicas, ReplicateError, Value, data_parallel};
use super::reduction::{Reduction, choose};
use crate::cost::Estimates;
use crate::def::GraphDef;
use crate::device::{DeviceSet, DeviceSpec};
use gpu_core::{Bytes, Rates, Topology};

/// A batch that the replicas share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Batch<'a> {
    /// The rows of the batch.
    pub rows: u64,
    /// The part of each replica in proportion to the others; empty for equal parts.
    pub loads: &'a [f64],
}

/// Returns the devices of replicas: those of a list, or the first `count` GPUs, or CPUs on a machine
/// without GPUs. Without a count, there is one replica for each device of the list, or each GPU.
///
/// A list has the form of MXNet (`[gpu(0), gpu(1)]`) or TensorFlow (`/gpu:0,/gpu:1`).
///
/// # Errors
/// If the list is malformed, or does not have `count` devices.
pub fn replica_devices(
    devices: &DeviceSet,
    list: Option<&str>,
    count: Option<usize>,
) -> Result<Vec<String>, ReplicateError> {
    let found = match list {
        Some(list) => match Context::parse_list(list) {
            Some(contexts) => contexts.iter().map(ToString::to_string).collect(),
            None => list.split(',').map(|name| name.trim().to_owned()).collect(),
        },
        None => {
            let of = |kind: &str| {
                let named = devices.devices().iter().zip(devices.names());
                let named = named.filter(|(device, _)| device.is_local && device.kind() == kind);
                let names = named.map(|(_, name)| name.clone());
                names.take(count.unwrap_or(usize::MAX)).collect::<Vec<_>>()
            };
            let gpus = of("GPU");
            if gpus.is_empty() { of("CPU") } else { gpus }
        }
    };
    match count {
        Some(count) if count != found.len() => {
            Err(ReplicateError::Count { replicas: count, devices: found.len() })
        }
        _ => Ok(found),
    }
}

/// Copies a graph to devices. The replicas apply the mean of their gradients. Returns the graph and
/// what was decided, in words.
///
/// # Errors
/// If a device is malformed or occurs twice, there are too many, or the batch cannot be split.
pub fn replicate(
    graph: &GraphDef,
    devices: Vec<String>,
    (topology, rates): (&Topology, &Rates),
    batch: Option<Batch<'_>>,
) -> Result<(GraphDef, Vec<String>), ReplicateError> {
    let gradients = gradients(graph);
    let node = |name: &str| graph.nodes.iter().find(|node| node.name == name);
    let size = |gradient: &super::Gradient| {
        let value = node(&gradient.update)?.inputs.get(gradient.input)?;
        let (name, output) = value.rsplit_once(':').unwrap_or((value, "0"));
        u64::try_from(Value::of(node(name), output.parse().ok()?).bytes?).ok()
    };
    let bytes = gradients.iter().filter_map(size).max().map(Bytes);
    let bytes = bytes.unwrap_or(Estimates::default().output);
    let indices: Option<Vec<usize>> = devices.iter().map(|name| gpu_index(name)).collect();
    // The order of the ring, by position in the list.
    let (reduction, order) = match indices {
        Some(indices) => {
            let chosen = choose(topology, &indices, bytes, rates);
            let at = |index: &usize| indices.iter().position(|known| known == index);
            (chosen.reduction, chosen.order.iter().filter_map(at).collect())
        }
        None => (Reduction::Tree, (0..devices.len()).collect::<Vec<_>>()),
    };
    let devices: Vec<String> = order.iter().filter_map(|at| devices.get(*at).cloned()).collect();
    let mut notes = Vec::new();
    notes.push(match (gradients.len(), reduction) {
        (0, _) => "the graph has no gradient to reduce: the replicas are independent".to_owned(),
        (count, Reduction::Ring) => {
            format!("gradients: {count}, averaged around the ring {}", devices.join(", "))
        }
        (count, Reduction::Tree) => {
            format!("gradients: {count}, averaged by a tree of {}", devices.join(", "))
        }
    });
    if let Some(Batch { rows, loads }) = batch {
        let contexts = devices.len();
        if ![0, contexts].contains(&loads.len()) {
            return Err(ContextError::Loads { loads: loads.len(), contexts }.into());
        }
        let load = |at: &usize| loads.get(*at).copied().unwrap_or(1.0);
        let loads: Vec<f64> = order.iter().map(load).collect();
        for ((at, device), rows) in devices.iter().enumerate().zip(split_batch(rows, &loads)?) {
            let last = rows.end - 1;
            notes.push(format!("replica_{at} on {device} takes rows {} to {last}", rows.start));
        }
    }
    let how = Replicas { devices, gradients, reduction, mean: true };
    Ok((data_parallel(graph, &how)?, notes))
}

/// Returns the index of a GPU of this process.
fn gpu_index(name: &str) -> Option<usize> {
    let spec = DeviceSpec::parse(name)?;
    spec.index.filter(|_| spec.kind.as_deref() == Some("GPU")).map(|index| index as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::def::NodeDef;
    use crate::device::Device;
    use gpu_core::Link;

    fn devices() -> DeviceSet {
        let names = ["/cpu:0", "/gpu:0", "/gpu:1", "/gpu:2"];
        DeviceSet::new(names.into_iter().filter_map(Device::local))
    }

    #[test]
    fn replicas_are_on_the_first_gpus_or_on_the_listed_devices() {
        let of = |list, count| replica_devices(&devices(), list, count);
        let here = "/job:localhost/replica:0/task:0/device:GPU:";
        assert_eq!(of(None, Some(2)), Ok(vec![format!("{here}0"), format!("{here}1")]));
        assert_eq!(of(None, None).unwrap().len(), 3);
        let listed = of(Some("[gpu(2), mx.cpu(0)]"), None);
        assert_eq!(listed, Ok(vec!["/device:GPU:2".to_owned(), "/device:CPU:0".to_owned()]));
        assert_eq!(of(Some("/gpu:1, /gpu:0"), Some(2)).unwrap(), ["/gpu:1", "/gpu:0"]);
        let error = of(None, Some(4)).unwrap_err();
        assert_eq!(error.to_string(), "4 replicas for 3 devices");
        let cpu = DeviceSet::new(Device::local("/cpu:0"));
        assert_eq!(replica_devices(&cpu, None, None).unwrap().len(), 1);
    }

    #[test]
    fn notes_state_the_reduction_and_the_rows_of_each_replica() {
        let node = |name: &str, op: &str, inputs: &[&str]| NodeDef {
            name: name.to_owned(),
            op: op.to_owned(),
            inputs: inputs.iter().map(|input| (*input).to_owned()).collect(),
            ..NodeDef::default()
        };
        let forward = GraphDef { nodes: vec![node("a", "Const", &[])], functions: Vec::new() };
        let machine = (&Topology::default(), &Rates::default());
        let named = || vec!["/gpu:0".to_owned(), "/gpu:1".to_owned()];
        let batch = |loads| Some(Batch { rows: 8, loads });
        let (copied, notes) = replicate(&forward, named(), machine, batch(&[3.0, 1.0])).unwrap();
        assert_eq!(copied.nodes.len(), 2);
        assert_eq!(
            notes,
            [
                "the graph has no gradient to reduce: the replicas are independent",
                "replica_0 on /gpu:0 takes rows 0 to 5",
                "replica_1 on /gpu:1 takes rows 6 to 7",
            ]
        );
        let training = vec![
            node("v", "VariableV2", &[]),
            node("rate", "Const", &[]),
            node("g", "Const", &[]),
            node("step", "ApplyGradientDescent", &["v", "rate", "g"]),
        ];
        let training = GraphDef { nodes: training, functions: Vec::new() };
        let (_, notes) = replicate(&training, named(), machine, None).unwrap();
        assert_eq!(notes, ["gradients: 1, averaged by a tree of /gpu:0, /gpu:1"]);
        let error = replicate(&forward, named(), machine, batch(&[1.0])).unwrap_err();
        assert_eq!(error.to_string(), "1 loads for 2 contexts");
        let twice = vec!["/gpu:0".to_owned(), "/device:GPU:0".to_owned()];
        let error = replicate(&forward, twice, machine, None).unwrap_err();
        assert!(error.to_string().contains("occurs twice"), "{error}");
    }

    #[test]
    fn ring_of_nvlinks_orders_the_replicas() {
        let node = |name: &str, op: &str, inputs: &[&str]| NodeDef {
            name: name.to_owned(),
            op: op.to_owned(),
            inputs: inputs.iter().map(|input| (*input).to_owned()).collect(),
            ..NodeDef::default()
        };
        let nodes = vec![
            node("v", "VariableV2", &[]),
            node("rate", "Const", &[]),
            node("g", "Const", &[]),
            node("step", "ApplyGradientDescent", &["v", "rate", "g"]),
        ];
        let training = GraphDef { nodes, functions: Vec::new() };
        // NVLinks around 0, 3, 1 and 2.
        let near = |from: usize, to: usize| matches!((from.min(to), from.max(to)), (0 | 1, 2 | 3));
        let link = |from: usize, to: usize| match near(from, to) {
            true => Link::NvLink(2),
            false if from == to => Link::Itself,
            false => Link::Sys,
        };
        let links = (0..4).map(|from| (0..4).map(|to| link(from, to)).collect()).collect();
        let topology = Topology { links, ..Topology::default() };
        let machine = (&topology, &Rates::default());
        let notes = |names: [&str; 4]| {
            let names = names.map(str::to_owned).to_vec();
            let batch = Some(Batch { rows: 10, loads: &[4.0, 3.0, 2.0, 1.0] });
            replicate(&training, names, machine, batch).unwrap().1
        };
        let ring = notes(["/gpu:0", "/gpu:1", "/gpu:2", "/gpu:3"]);
        assert_eq!(
            ring,
            [
                "gradients: 1, averaged around the ring /gpu:0, /gpu:3, /gpu:1, /gpu:2",
                "replica_0 on /gpu:0 takes rows 0 to 3",
                "replica_1 on /gpu:3 takes rows 4 to 4",
                "replica_2 on /gpu:1 takes rows 5 to 7",
                "replica_3 on /gpu:2 takes rows 8 to 9",
            ]
        );
        // A CPU has no link.
        let tree = notes(["/gpu:0", "/gpu:1", "/gpu:2", "/cpu:3"]);
        assert!(tree[0].starts_with("gradients: 1, averaged by a tree of /gpu:0"), "{tree:?}");
    }
}
