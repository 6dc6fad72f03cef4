//! An earlier placement of a graph: TensorFlow's log, or the output of `place graph --json`.

use gpu_graph::{Device, DeviceSet, Graph};
use gpu_text::{Hint, Kind};
use serde::Deserialize;
use std::collections::BTreeMap;

/// The parts of `place graph --json` that are read.
#[derive(Deserialize)]
struct Placed {
    nodes: Vec<PlacedNode>,
}

#[derive(Deserialize)]
struct PlacedNode {
    name: String,
    device: String,
}

/// Why an earlier placement cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unusable {
    /// The reason.
    pub why: String,
    /// What may help.
    pub hint: &'static str,
}

/// The most characters of a name in a message.
const MOST: usize = 200;

/// Assigns the nodes of a graph to the devices of an earlier placement: a log of TensorFlow, or the
/// JSON of `place graph`. Returns the operations of that placement that the graph does not have; a
/// node that the placement does not have stays unassigned.
///
/// # Errors
/// Why the text is no placement, or the first device that is not one of `devices`.
pub fn assign(
    graph: &mut Graph,
    devices: &DeviceSet,
    earlier: &[u8],
) -> Result<Vec<String>, Unusable> {
    let hint = "give TensorFlow's log (log_device_placement), or the output of place graph --json";
    let mut placed = read(earlier).map_err(|why| Unusable { why, hint })?;
    for node in graph.nodes_mut() {
        let Some(name) = placed.remove(&*node.name) else { continue };
        let device = Device::local(&name).map(|device| device.name.to_string());
        let device = device.filter(|device| devices.names().contains(device));
        let unknown = || {
            let short = |name: &str| name.chars().take(MOST).collect::<String>();
            let (node, name) = (short(&node.name), short(&name));
            Unusable {
                why: format!("it places '{node}' on {name}, which is not one of the devices"),
                hint: "--devices names the devices that it uses",
            }
        };
        node.assigned = Some(device.ok_or_else(unknown)?);
    }
    Ok(placed.into_keys().collect())
}

/// Returns the note that the graph lacks operations of an earlier placement; `None` if it has all.
pub fn missing(names: &[String], file: &str) -> Option<String> {
    let first: String = names.first()?.chars().take(MOST).collect();
    let more = match names.len() - 1 {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Some(format!("the graph does not have '{first}'{more} of '{file}'"))
}

/// Returns the device of each node by its name.
fn read(earlier: &[u8]) -> Result<BTreeMap<String, String>, String> {
    if earlier.trim_ascii_start().starts_with(b"{") {
        let placed: Placed = serde_json::from_slice(earlier)
            .map_err(|error| format!("it is no output of place graph --json: {error}"))?;
        return Ok(placed.nodes.into_iter().map(|node| (node.name, node.device)).collect());
    }
    let hint = Hint { kind: Some(Kind::Placement), fields: None };
    let log = gpu_text::parse(earlier, &hint).map_err(|error| error.to_string())?;
    let placed: BTreeMap<String, String> =
        log.placements.into_iter().filter_map(|row| Some((row.name?, row.device))).collect();
    if placed.is_empty() {
        return Err("it has no line such as 'a: (MatMul): /job:localhost/…'".to_owned());
    }
    Ok(placed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_graph::read::{Limits, graph};

    const GRAPH: &str = r#"{"schema": 1, "nodes": [
        {"name": "a", "op": "Load", "outputs": ["float"]},
        {"name": "b", "op": "Load", "outputs": ["float"]}]}"#;

    fn assigned(earlier: &str) -> Result<(Vec<Option<String>>, Vec<String>), Unusable> {
        let read = graph(GRAPH.as_bytes(), &Limits::default()).unwrap();
        let mut graph = Graph::build(read.graph, &Default::default()).unwrap();
        let devices = ["/cpu:0", "/gpu:0", "/gpu:1"].map(|name| Device::local(name).unwrap());
        let missing = assign(&mut graph, &DeviceSet::new(devices), earlier.as_bytes())?;
        Ok((graph.nodes().iter().map(|node| node.assigned.clone()).collect(), missing))
    }

    #[test]
    fn log_and_json_assign_the_nodes_that_they_name() {
        let gpu = Some("/job:localhost/replica:0/task:0/device:GPU:1".to_owned());
        let log = "x.cc:1] b: (Load): /job:localhost/replica:0/task:0/device:GPU:1\n\
                   c: (Load): /job:localhost/replica:0/task:0/device:GPU:7\n";
        assert_eq!(assigned(log).unwrap(), (vec![None, gpu.clone()], vec!["c".to_owned()]));
        let json = r#" {"schema": 1, "nodes": [{"name": "a", "op": "Load", "device":
            "/job:localhost/replica:0/task:0/device:GPU:1"}]}"#;
        assert_eq!(assigned(json).unwrap(), (vec![gpu, None], vec![]));
    }

    #[test]
    fn note_names_the_first_missing_operation() {
        let names = ["a", "b", "c"].map(str::to_owned);
        assert_eq!(missing(&[], "x"), None);
        assert_eq!(missing(&names[..1], "x").unwrap(), "the graph does not have 'a' of 'x'");
        assert_eq!(missing(&names, "x").unwrap(), "the graph does not have 'a' and 2 more of 'x'");
    }

    #[test]
    fn unreadable_text_and_absent_device_are_errors() {
        let why = |text: &str| assigned(text).unwrap_err().why;
        assert!(why("words\n").starts_with("it has no line"));
        assert!(why("{}").starts_with("it is no output of place graph --json"));
        let error = why("a: /job:localhost/replica:0/task:0/gpu:4\n");
        assert!(error.ends_with("/gpu:4, which is not one of the devices"), "{error}");
    }
}
