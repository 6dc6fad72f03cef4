//! accelerate's maps, compared with its output for the same modules.

use gpu_core::Bytes;
use gpu_model::split::accelerate::{BLOCK, Device, Memory, Module, balanced_memory, infer};
use serde_json::{Value, json};

use crate::models::LLAMA_8B;

fn parts(sizes: &[(&str, u64)]) -> Vec<(String, Bytes)> {
    sizes.iter().map(|(name, size)| ((*name).to_owned(), Bytes(*size))).collect()
}

fn leaf(class: &str, parameters: &[(&str, u64)], buffers: &[(&str, u64)]) -> Module {
    Module {
        class: class.to_owned(),
        parameters: parts(parameters),
        buffers: parts(buffers),
        children: Vec::new(),
    }
}

fn module(class: &str, children: Vec<(String, Module)>) -> Module {
    Module { class: class.to_owned(), children, ..Module::default() }
}

/// Two linear layers around a norm with buffers: 64, 72 and 100 bytes.
fn small() -> Module {
    let buffers = [("running_mean", 16), ("running_var", 16), ("num_batches_tracked", 8)];
    module(
        "ModelForTest",
        vec![
            ("linear1".to_owned(), leaf("Linear", &[("weight", 48), ("bias", 16)], &[])),
            ("batchnorm".to_owned(), leaf("BatchNorm", &[("weight", 16), ("bias", 16)], &buffers)),
            ("linear2".to_owned(), leaf("Linear", &[("weight", 80), ("bias", 20)], &[])),
        ],
    )
}

fn named(name: impl ToString, module: Module) -> (String, Module) {
    (name.to_string(), module)
}

/// Embedding, eight layers, norm and head.
fn language_model() -> Module {
    let layer = || {
        let attention = leaf("Attention", &[("weight", 65_536)], &[]);
        let mlp = leaf("Mlp", &[("weight", 98_816)], &[]);
        module("Layer", vec![named("attention", attention), named("mlp", mlp)])
    };
    let layers = (0..8).map(|number| named(number, layer())).collect();
    module(
        "LanguageModel",
        vec![
            named("embed", leaf("Embedding", &[("weight", 256_000)], &[])),
            named("layers", module("ModuleList", layers)),
            named("norm", leaf("LayerNorm", &[("weight", 512)], &[])),
            named("head", leaf("Linear", &[("weight", 256_000)], &[])),
        ],
    )
}

fn memory(sizes: &[(Device, u64)]) -> Memory {
    sizes.iter().map(|(device, size)| (*device, Bytes(*size))).collect()
}

fn gpus(sizes: &[u64]) -> Memory {
    sizes.iter().zip(0..).map(|(size, index)| (Device::Gpu(index), Bytes(*size))).collect()
}

fn map(model: &Module, memory: &Memory, no_split: &[&str], tied: &[Vec<String>]) -> Value {
    infer(model, memory, no_split, tied).json()
}

fn tie(names: &[&str]) -> Vec<Vec<String>> {
    vec![names.iter().map(|name| (*name).to_owned()).collect()]
}

#[test]
fn small_model_placement_matches_accelerate() {
    let expected = json!({"linear1": 0, "batchnorm": 1, "linear2": 1});
    assert_eq!(map(&small(), &gpus(&[200, 200]), &[], &[]), expected);
    assert_eq!(map(&small(), &gpus(&[200, 172, 200]), &[], &[]), expected);
    assert_eq!(map(&small(), &gpus(&[240]), &[], &[]), json!({"": 0}));
    assert_eq!(map(&small(), &gpus(&[0, 1000]), &[], &[]), json!({"": 1}));
    let little = memory(&[(Device::Gpu(0), 50), (Device::Cpu, 120)]);
    assert_eq!(map(&small(), &little, &[], &[]), json!({"": "disk"}));
    let expected = json!({"linear1": 1, "batchnorm": "disk", "linear2": "disk"});
    assert_eq!(map(&small(), &gpus(&[100, 100]), &[], &[]), expected);
}

#[test]
fn sequence_is_split_unless_class_forbids_it() {
    let models = (0..3).map(|number| named(number, small())).collect();
    let models = module("Sequential", models);
    let memory = gpus(&[500, 500]);
    let expected = json!({"0": 0, "1.linear1": 0, "1.batchnorm": 0, "1.linear2": 1, "2": 1});
    assert_eq!(map(&models, &memory, &[], &[]), expected);
    let expected = json!({"0": 0, "1": 1, "2": 1});
    assert_eq!(map(&models, &memory, &["ModelForTest"], &[]), expected);
}

#[test]
fn tied_parameters_go_together() {
    let mut model = small();
    model.children[0].1.parameters[0].1 = Bytes(80);
    let tied = tie(&["linear1.weight", "linear2.weight"]);
    assert_eq!(map(&model, &gpus(&[200, 200]), &[], &tied), json!({"": 0}));

    let layers = (1..4).map(|number| named(format!("layer{number}"), small())).collect();
    let layers = module("Sequential", layers);
    let tied = tie(&["layer1.linear2.weight", "layer3.linear2.weight"]);
    let expected = json!({
        "layer1": 0, "layer3.linear2": 0, "layer2": 1, "layer3.linear1": 1, "layer3.batchnorm": 1
    });
    assert_eq!(map(&layers, &gpus(&[400, 500]), &[], &tied), expected);
}

/// Returns a map of the language model from the device of each part in order.
fn language_map(embed: Value, layers: &[Value], norm: Value, head: Value) -> Value {
    let mut expected = json!({"embed": embed, "norm": norm, "head": head});
    if layers.iter().all(|device| *device == layers[0]) {
        expected["layers"] = layers[0].clone();
    } else {
        for (number, device) in layers.iter().enumerate() {
            expected[format!("layers.{number}")] = device.clone();
        }
    }
    expected
}

fn on(devices: &[(u32, usize)]) -> Vec<Value> {
    devices.iter().flat_map(|(device, count)| vec![json!(device); *count]).collect()
}

#[test]
fn language_model_placement_matches_accelerate() {
    let model = language_model();
    let uneven = memory(&[
        (Device::Gpu(0), 700_000),
        (Device::Gpu(1), 1_400_000),
        (Device::Cpu, 10_000_000),
    ]);
    let expected = language_map(json!(0), &on(&[(0, 1), (1, 7)]), json!(1), json!("cpu"));
    assert_eq!(map(&model, &uneven, &["Layer"], &[]), expected);

    let three = gpus(&[900_000; 3]);
    let expected = language_map(json!(0), &on(&[(0, 2), (1, 5), (2, 1)]), json!(2), json!(2));
    assert_eq!(map(&model, &three, &["Layer"], &[]), expected);
    let balanced = balanced_memory(&model, &three, &["Layer"], &[], false);
    assert_eq!(balanced, gpus(&[814_549, 814_549, 900_000]));
    let expected = language_map(json!(0), &on(&[(0, 1), (1, 4), (2, 3)]), json!(2), json!(2));
    assert_eq!(map(&model, &balanced, &["Layer"], &[]), expected);

    let two = gpus(&[1_500_000; 2]);
    let expected = language_map(json!(0), &on(&[(0, 6), (1, 2)]), json!(1), json!(1));
    assert_eq!(map(&model, &two, &["Layer"], &[]), expected);
    let balanced = balanced_memory(&model, &two, &["Layer"], &[], false);
    assert_eq!(balanced, gpus(&[1_119_104, 1_500_000]));
    let expected = language_map(json!(0), &on(&[(0, 3), (1, 5)]), json!(1), json!(1));
    assert_eq!(map(&model, &balanced, &["Layer"], &[]), expected);

    let little = memory(&[(Device::Gpu(0), 400_000), (Device::Cpu, 10_000_000)]);
    assert_eq!(map(&model, &little, &["Layer"], &[]), json!({"": "cpu"}));
}

#[test]
fn tied_head_follows_embedding() {
    let tied = tie(&["embed.weight", "head.weight"]);
    let mut layers = on(&[(0, 1), (1, 3), (2, 3)]);
    layers.push(json!("disk"));
    let expected = language_map(json!(0), &layers, json!("disk"), json!(0));
    assert_eq!(map(&language_model(), &gpus(&[600_000; 3]), &["Layer"], &tied), expected);
}

#[test]
fn balanced_memory_matches_accelerate() {
    let balanced =
        |sizes: &[u64], low_zero| balanced_memory(&small(), &gpus(sizes), &[], &[], low_zero);
    assert_eq!(balanced(&[300, 300], false), gpus(&[215, 300]));
    assert_eq!(balanced(&[300, 500], false), gpus(&[215, 500]));
    assert_eq!(balanced(&[0, 300, 300], false), gpus(&[0, 215, 300]));
    assert_eq!(balanced(&[200, 200], true), gpus(&[36, 200]));
    let one = memory(&[(Device::Gpu(0), 300), (Device::Cpu, 1000)]);
    assert_eq!(balanced_memory(&small(), &one, &[], &[], false), one);
}

#[test]
fn tree_follows_names_of_tensors() {
    let model = LLAMA_8B.safetensors("BF16");
    let tree = Module::of(&model.tensors);
    let half = Bytes(model.bytes().0 * 6 / 10);
    let memory = memory(&[(Device::Gpu(0), half.0), (Device::Gpu(1), half.0)]);
    let found = infer(&tree, &memory, &[BLOCK], &[]);
    let device = |name: &str| found.device(name);
    assert_eq!(device("model.embed_tokens.weight"), Some(Device::Gpu(0)));
    assert_eq!(device("lm_head.weight"), Some(Device::Gpu(1)));
    for layer in 0..32 {
        let query = device(&format!("model.layers.{layer}.self_attn.q_proj.weight"));
        assert_eq!(query, device(&format!("model.layers.{layer}.mlp.down_proj.weight")));
        assert!(query.is_some());
    }
}
