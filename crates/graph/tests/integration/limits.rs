//! Small files that ask for much.

use gpu_graph::read::{self, Limits};

/// A field of a protobuf message with a length.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![number << 3 | 2];
    prost::encode_length_delimiter(content.len(), &mut bytes).unwrap();
    bytes.extend_from_slice(content);
    bytes
}

#[test]
fn outputs_without_a_name_have_no_shape() {
    // 4,000 dimensions of a value without a name, and 4,000 outputs without one.
    let dims = field(2, &[0x0a, 0x00].repeat(4_000));
    let value = field(2, &field(1, &dims));
    let node = [field(4, b"Op"), [0x12, 0x00].repeat(4_000)].concat();
    let graph = [field(1, &node), field(13, &value)].concat();
    let file = [vec![8, 8], field(7, &graph)].concat();
    let document = read::graph(&file, &Limits::default()).unwrap();
    let [node] = document.graph.nodes.as_slice() else { panic!("one node") };
    assert_eq!(node.outputs.as_ref().map(Vec::len), Some(4_000));
    assert!(!node.attrs.contains_key("_output_shapes"));
}
