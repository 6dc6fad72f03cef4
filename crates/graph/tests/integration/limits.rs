//! Small files that require much memory, and the usability of every reader's result.

use gpu_graph::placer::{self, Options};
use gpu_graph::read::{self, Form, Limits};
use gpu_graph::{Attr, DeviceSet, Graph, GraphDef, Registry};
use proptest::prelude::*;

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

/// Builds and places a graph with TensorFlow's kernels or kernels for all operations, soft and
/// hard. Returns how many placements were possible.
fn place(def: GraphDef, registry: Option<Registry>) -> usize {
    let here = "/job:localhost/replica:0/task:0/device:";
    let names = ["CPU:0", "GPU:0"].map(|name| format!("{here}{name}"));
    let devices = DeviceSet::named(names.iter().map(String::as_str)).unwrap();
    let supporting = Registry::supporting(&def, &["CPU", "GPU"]);
    let mut tensorflow = Registry::tensorflow();
    tensorflow.extend(registry.unwrap_or_default());
    let mut placed = 0;
    for registry in [supporting, tensorflow] {
        let Ok(graph) = Graph::build(def.clone(), &registry) else { continue };
        for soft in [true, false] {
            let options = Options { soft, ..Options::default() };
            if let Ok(placement) = placer::place(&graph, &registry, &devices, &options) {
                let count = graph.nodes().len() + placement.inserted().len();
                assert_eq!(placement.devices().len(), count);
                placed += 1;
            }
        }
    }
    placed
}

const CALLS: &str = r#"node { name: "h" op: "VarHandleOp" device: "/gpu:0"
    attr { key: "dtype" value { type: DT_FLOAT } } attr { key: "shape" value { shape { } } } }
  node { name: "c" op: "StatefulPartitionedCall" input: ["h", "^h"]
    attr { key: "Tin" value { list { type: DT_RESOURCE } } }
    attr { key: "Tout" value { list { type: DT_RESOURCE } } }
    attr { key: "f" value { func { name: "g" attr { key: "N" value { i: 3 } } } } } }
  node { name: "r" op: "ReadVariableOp" input: "c" device: "/cpu:0"
    attr { key: "dtype" value { type: DT_FLOAT } }
    attr { key: "_class" value { list { s: "loc:@h" } } } }
  library { function { signature { name: "g"
      input_arg { name: "x" type: DT_RESOURCE } output_arg { name: "y" type: DT_RESOURCE }
      attr { name: "N" type: "int" default_value { i: 2 } } }
    node_def { name: "id" op: "Identity" input: "x"
      attr { key: "T" value { type: DT_RESOURCE } } attr { key: "_n" value { placeholder: "N" } } }
    ret { key: "y" value: "id:output:0" } } }"#;

const JSON: &str = r#"{"ops": [{"name": "Load", "outputs": [{"name": "x", "type": "float",
    "number_attr": "N"}], "attrs": {"N": 2}}], "kernels": [{"op": "Load", "device": "GPU"}],
  "nodes": [{"name": "a", "op": "Load"}, {"name": "b", "op": "Relu", "inputs": ["a:1", "^a"],
    "attrs": {"T": {"type": "float"}}, "colocate_with": ["a"], "device": "/cpu:0"}]}"#;

#[test]
fn samples_are_placed() {
    for file in [CALLS, JSON] {
        let document = read::graph(file.as_bytes(), &Limits::default()).unwrap();
        assert!(place(document.graph, document.registry) > 0, "{file}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// A file that a reader accepts is built and placed, or refused, without other failures.
    #[test]
    fn changed_files_are_refused_or_placed(
        of_calls: bool,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        copied in any::<(prop::sample::Index, prop::sample::Index)>(),
    ) {
        let mut file = if of_calls { CALLS } else { JSON }.as_bytes().to_vec();
        for (at, byte) in changes {
            // Most texts remain texts.
            let at = at.index(file.len());
            file[at] = b' ' + byte % 95;
        }
        let (from, to) = (copied.0.index(file.len()), copied.1.index(file.len()));
        if from % 3 == 0 {
            file[to] = file[from];
        }
        for form in [Form::GraphText, Form::Json] {
            if let Ok(document) = read::graph_as(form, &file, &Limits::default()) {
                place(document.graph, document.registry);
            }
        }
    }

    #[test]
    fn numbers_of_values_are_refused_or_placed(
        count in prop_oneof![Just(0), Just(2), Just(65_536), any::<i64>()],
        arguments in 0_usize..4,
    ) {
        let many = r#"{"name": "z", "type": "float", "number_attr": "N"},"#.repeat(arguments);
        let file = JSON.replace(r#""N": 2"#, &format!(r#""N": {count}"#));
        let file = file.replace(r#""outputs": ["#, &format!(r#""outputs": [{many}"#));
        let document = read::graph(file.as_bytes(), &Limits::default()).unwrap();
        prop_assert_eq!(document.graph.nodes[0].attrs.get("N"), None::<&Attr>);
        place(document.graph, document.registry);
    }
}
