//! Pictures of known machines, compared with golden files.

use crate::fixture::{dgx1_p100, dgx1_v100, linked, nvswitch};
use gpu_core::{Link, Topology};
use gpu_placement::picture;

#[track_caller]
fn assert_picture(topology: &Topology, name: &str, nodes: &[Option<u32>], expected: &str) {
    let names = vec![Some("Tesla".to_owned()); topology.links.len()];
    let drawn = picture(topology, name, &names, nodes);
    let path = format!("{}/{name}.svg", env!("CARGO_TARGET_TMPDIR"));
    std::fs::write(&path, &drawn).unwrap();
    assert!(drawn == expected, "{path} differs from tests/integration/pictures/{name}.svg");
}

#[test]
fn rows_with_boxes_and_bent_links_are_drawn() {
    let nodes: Vec<_> = (0..8).map(|device| Some(device / 4)).collect();
    assert_picture(&dgx1_v100(), "dgx1-v100", &nodes, include_str!("pictures/dgx1-v100.svg"));
}

#[test]
fn boxes_are_nested_by_pci_tree() {
    let path = |from: usize, to: usize| match (from / 2 == to / 2, from / 4 == to / 4) {
        (true, _) => Link::Pix,
        (_, true) if from < 4 => Link::Phb,
        (_, true) => Link::Node,
        _ => Link::Sys,
    };
    let topology = linked(7, &[(0, 5, 2), (1, 2, 30)], path);
    assert_picture(&topology, "nested", &[], include_str!("pictures/nested.svg"));
}

#[test]
fn bar_joins_devices_of_two_rows() {
    let topology = nvswitch(10, 12);
    assert_picture(&topology, "nvswitch", &[], include_str!("pictures/nvswitch.svg"));
}

/// GPUs 0 and 2 share a PCIe bridge, and so do 1 and 3.
#[test]
fn devices_of_one_bridge_are_side_by_side() {
    let drawn = picture(&dgx1_p100(), "dgx1-p100", &[], &[]);
    let position = |device: usize| -> u32 {
        let start = format!("<title>GPU {device}</title><rect class=\"gpu\" x=\"");
        let (_, rest) = drawn.split_once(&start).expect("it is drawn");
        rest.split('"').next().unwrap().parse().unwrap()
    };
    let positions = [0, 2, 1, 3].map(position);
    assert!(positions.is_sorted(), "{positions:?}");
}
