//! Properties of every placement, on random graphs.

use super::fixture;
use super::random::{self, Scenario};
use gpu_graph::placer::{self, Options, PlaceError, Placement, Reason, Warning};
use gpu_graph::{DeviceSet, DeviceSpec, Graph, GraphDef, NodeDef, NodeId, Registry};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

struct Placed {
    graph: Graph,
    registry: Registry,
    devices: DeviceSet,
    options: Options,
    scenario: Scenario,
}

impl Placed {
    fn of(seed: u64) -> (Placed, Result<Placement, PlaceError>) {
        let registry = fixture::registry();
        let scenario = random::scenario(seed);
        let graph = fixture::graph(scenario.lines.iter().map(String::as_str), &registry);
        let devices = fixture::devices(&scenario.devices.to_string());
        let default_device = scenario.default_device.clone();
        let options = Options { soft: scenario.soft, default_device, ..Options::default() };
        let placement = placer::place(&graph, &registry, &devices, &options);
        (Placed { graph, registry, devices, options, scenario }, placement)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn request_is_satisfied_or_there_is_a_warning(seed: u64) {
        let (of, placement) = Placed::of(seed);
        let Ok(placement) = placement else { return Ok(()) };
        for id in of.graph.ids().filter(|id| of.graph.node(*id).assigned.is_none()) {
            let request = DeviceSpec::parse(&of.graph.node(id).requested).unwrap();
            if request.matches(&of.devices.devices()[placement.device(id)].name) {
                continue;
            }
            let gives_way = |warning: &Warning| {
                of.options.soft || matches!(warning, Warning::RequestOverridden { .. })
            };
            prop_assert!(
                placement.warnings().iter().any(gives_way),
                "{id:?} {:?}\n{:#?}", placement.reason(id), of.scenario
            );
        }
    }

    #[test]
    fn colocated_nodes_are_together(seed: u64) {
        let (of, placement) = Placed::of(seed);
        let Ok(placement) = placement else { return Ok(()) };
        let ignored: BTreeSet<NodeId> = placement.warnings().iter().filter_map(|warning| {
            match warning {
                Warning::ColocationIgnored { node, .. } => Some(*node),
                _ => None,
            }
        }).collect();
        prop_assert!(of.options.soft || ignored.is_empty());
        let mut groups: BTreeMap<&str, usize> = BTreeMap::new();
        for id in of.graph.order() {
            let node = of.graph.node(id);
            let device = placement.device(id);
            for group in node.colocation().chain([&*node.name]) {
                let with = *groups.entry(group).or_insert(device);
                prop_assert!(with == device || !ignored.is_empty(), "{}", node.name);
            }
            let definition = of.registry.op(&node.op).unwrap();
            for (source, arg) in node.inputs.iter().zip(&definition.inputs) {
                if arg.reference {
                    prop_assert_eq!(placement.device(source.node), device);
                }
            }
        }
    }

    #[test]
    fn placing_a_placed_graph_again_is_idempotent(seed: u64) {
        let (mut of, placement) = Placed::of(seed);
        let Ok(placement) = placement else { return Ok(()) };
        placement.apply(&mut of.graph, &of.devices);
        let again = placer::place(&of.graph, &of.registry, &of.devices, &of.options).unwrap();
        prop_assert!(of.graph.ids().all(|id| again.device(id) == placement.device(id)));
        prop_assert!(of.graph.ids().all(|id| *again.reason(id) == Reason::Assigned));
    }

    #[test]
    fn log_and_placement_agree(seed: u64) {
        let (of, placement) = Placed::of(seed);
        let Ok(placement) = placement else { return Ok(()) };
        let log: BTreeSet<String> = placement.log(&of.graph, &of.devices).collect();
        prop_assert_eq!(log.len(), of.graph.nodes().len() + placement.inserted().len());
        for id in of.graph.ids() {
            let node = of.graph.node(id);
            let device = &of.devices.names()[placement.device(id)];
            let line = format!("{}: ({}): {device}", node.name, node.op);
            prop_assert!(log.contains(&line), "{line}");
        }
    }

    #[test]
    fn reasons_fit_the_devices(seed: u64) {
        let (of, placement) = Placed::of(seed);
        let Ok(placement) = placement else { return Ok(()) };
        for id in placement.order() {
            let reason = placement.reason(*id);
            match reason {
                Reason::FollowsInput(with) | Reason::FollowsConsumers(with) => {
                    prop_assert_eq!(placement.device(*with), placement.device(*id));
                }
                Reason::Requested => {
                    let node = placement.node(&of.graph, *id).unwrap();
                    let request = DeviceSpec::parse(&node.requested).unwrap();
                    let device = &of.devices.devices()[placement.device(*id)];
                    prop_assert!(request.matches(&device.name));
                }
                Reason::SoftFallback { .. } => prop_assert!(of.options.soft),
                Reason::Assigned => {
                    let node = placement.node(&of.graph, *id).unwrap();
                    prop_assert!(node.assigned.is_some());
                }
                _ => {}
            }
            prop_assert!(!placement.explain(&of.graph, *id).to_string().is_empty());
        }
    }

    #[test]
    fn building_never_panics(
        nodes in prop::collection::vec(
            ("[a-c^:.]{0,3}", "(In|Rectify|SetVar|_Arg|x)", prop::collection::vec("[a-c^:0-9]{0,4}", 0..4)),
            0..6,
        )
    ) {
        let node = |(name, op, inputs): (String, String, Vec<String>)| {
            NodeDef { name, op, inputs, ..NodeDef::default() }
        };
        let nodes = nodes.into_iter().map(node).collect();
        let registry = fixture::registry();
        if let Ok(graph) = Graph::build(GraphDef { nodes, functions: Vec::new() }, &registry) {
            prop_assert_eq!(graph.order().len(), graph.nodes().len());
        }
    }
}
