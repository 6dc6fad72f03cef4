//! Directories with models.

use super::super::gguf::tests::Writer;
use super::super::torch::tests::{small, zipped};
use super::*;
use gpu_core::Bytes;
use std::collections::BTreeMap;
use std::io::Cursor;

const CONFIG: &str = r#"{"model_type":"llama","hidden_size":8,"intermediate_size":16,
    "num_hidden_layers":1,"num_attention_heads":2,"vocab_size":4,"torch_dtype":"float16"}"#;

/// Writes a safetensors file with byte tensors.
fn tensors(tensors: &[(&str, u64)]) -> Vec<u8> {
    let mut header = serde_json::Map::new();
    let mut end = 0;
    for (name, bytes) in tensors {
        let offsets = [end, end + bytes];
        let entry = serde_json::json!({"dtype": "U8", "shape": [bytes], "data_offsets": offsets});
        header.insert((*name).to_owned(), entry);
        end += bytes;
    }
    let header = serde_json::Value::Object(header).to_string();
    let mut file = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes()].concat();
    file.resize(file.len() + end as usize, 0);
    file
}

fn read(files: &[(&str, Vec<u8>)], wanted: Option<&str>) -> Result<Found, ReadError> {
    let listed: Vec<File> = (files.iter())
        .map(|(name, bytes)| File { name: (*name).to_owned(), bytes: bytes.len() as u64 })
        .collect();
    let contents: BTreeMap<String, Vec<u8>> =
        files.iter().map(|(name, bytes)| ((*name).to_owned(), bytes.clone())).collect();
    model(&listed, wanted, &|name| match contents.get(name) {
        Some(bytes) => Ok(Box::new(Cursor::new(bytes.clone()))),
        None => Err(io::ErrorKind::NotFound.into()),
    })
}

fn text(text: &str) -> Vec<u8> {
    text.as_bytes().to_vec()
}

fn indexed() -> Vec<(&'static str, Vec<u8>)> {
    let index = r#"{"weight_map":{"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors"}}"#;
    vec![
        ("config.json", text(CONFIG)),
        ("model.safetensors.index.json", text(index)),
        ("model-00001-of-00002.safetensors", tensors(&[("a", 3)])),
        ("model-00002-of-00002.safetensors", tensors(&[("b", 4), ("extra", 1)])),
        ("tokenizer.json", text("{}")),
    ]
}

#[test]
fn shards_of_an_index_are_one_model() {
    let found = read(&indexed(), None).unwrap();
    assert_eq!(found.format, Format::Safetensors);
    assert_eq!(found.model.bytes(), Bytes(7));
    assert_eq!(found.model.architecture, "llama");
    assert_eq!(found.model.shape.as_ref().map(|shape| shape.layers.len()), Some(1));
    assert_eq!(found.files.len(), 2);
    assert_eq!(found.notes, ["1 tensors are not in the index and are omitted"]);
}

#[test]
fn missing_shards_are_named() {
    let mut files = indexed();
    files.remove(3);
    let error = read(&files, None).unwrap_err();
    assert_eq!(
        error.to_string(),
        "read the model: files are missing: model-00002-of-00002.safetensors"
    );
    // Without the index, the names determine the files.
    files.remove(1);
    let error = read(&files, None).unwrap_err();
    assert!(
        matches!(error, ReadError::Missing(names) if names == ["model-00002-of-00002.safetensors"])
    );
}

#[test]
fn rejects_index_with_mismatched_shards() {
    let mut files = indexed();
    files[3].1 = tensors(&[("c", 4)]);
    assert!(
        matches!(read(&files, None), Err(ReadError::TensorMissing { tensor, .. }) if tensor == "b")
    );
    files.remove(1);
    files[2].1 = tensors(&[("a", 4)]);
    assert!(matches!(read(&files, None), Err(ReadError::Twice { tensor, .. }) if tensor == "a"));
    let mut files = indexed();
    files[1].1 = text(r#"{"weight_map":{"a":"../../secret"}}"#);
    assert!(matches!(read(&files, None), Err(ReadError::Index { .. })));
}

#[test]
fn splits_of_gguf_are_one_model() {
    let part = |number: u32, name: &str| {
        (Writer::default().text("general.architecture", "llama"))
            .text("general.name", "Tiny\u{1b}")
            .integer("llama.block_count", 1)
            .integer("llama.embedding_length", 32)
            .integer("llama.attention.head_count", 2)
            .integer("split.no", number)
            .integer("split.count", 2)
            .integer("split.tensors.count", 2)
            .tensor(name, &[32, 2], 8)
            .file()
    };
    let files = [
        ("tiny-00002-of-00002.gguf", part(1, "b")),
        ("tiny-00001-of-00002.gguf", part(0, "a")),
        ("mmproj-F16.gguf", text("not read")),
    ];
    let found = read(&files, None).unwrap();
    assert_eq!((found.model.name.as_str(), found.format), ("Tiny\\x1b", Format::Gguf));
    assert_eq!(found.model.bytes(), Bytes(4 * 34));
    assert_eq!(found.notes, ["ignored: mmproj-F16.gguf"]);
    assert_eq!(found.model.shape.unwrap().layers.len(), 1);
    let error = read(&files[..1], None).unwrap_err();
    assert!(error.to_string().ends_with("files are missing: tiny-00001-of-00002.gguf"), "{error}");
    let swapped =
        [("t-00001-of-00002.gguf", part(1, "b")), ("t-00002-of-00002.gguf", part(0, "a"))];
    assert!(matches!(read(&swapped, None), Err(ReadError::Gguf { .. })));
}

#[test]
fn selects_one_of_several_models_by_name() {
    let one = |name: &str| Writer::default().tensor(name, &[1], 0).file();
    let files = [("m-Q4_K_M.gguf", one("a")), ("m-Q8_0.gguf", one("b")), ("x.txt", Vec::new())];
    let error = read(&files, None).unwrap_err();
    assert_eq!(error.to_string(), "find the model: there are several: m-Q4_K_M.gguf, m-Q8_0.gguf");
    let found = read(&files, Some("m-Q8_0.gguf")).unwrap();
    assert_eq!(found.model.tensors[0].name, "b");
    assert_eq!(found.model.shape, None);
    assert!(matches!(read(&files, Some("x.txt")), Err(ReadError::Nothing)));
    // A store may name files by digest.
    let blobs = [("sha256-0a", one("a")), ("sha256-0b", one("b"))];
    assert_eq!(read(&blobs, Some("sha256-0b")).unwrap().model.tensors[0].name, "b");
    // An index makes a name the usual one.
    let index = r#"{"weight_map":{"a":"x-00001-of-00001.safetensors"}}"#;
    let files = [
        ("b.safetensors", tensors(&[("b", 2)])),
        ("x-00001-of-00001.safetensors", tensors(&[("a", 1)])),
        ("x.safetensors.index.json", text(index)),
    ];
    assert_eq!(read(&files, None).unwrap().model.bytes(), Bytes(1));
    // The usual name takes precedence, and so do safetensors.
    let mut files = indexed();
    files.push(("consolidated.safetensors", tensors(&[("c", 1)])));
    files.push(("m.gguf", one("a")));
    let found = read(&files, None).unwrap();
    assert_eq!(found.model.bytes(), Bytes(7));
    assert!(found.notes.iter().any(|note| note == "ignored: consolidated.safetensors"));
    assert!(found.notes.iter().any(|note| note == "ignored: m.gguf"));
}

#[test]
fn prefers_other_formats_over_pytorch() {
    let files = [
        ("optimizer.pt", text("not read")),
        ("pytorch_model.bin", small()),
        ("training_args.bin", text("not read")),
    ];
    let found = read(&files, None).unwrap();
    assert_eq!(found.format, Format::Torch);
    assert_eq!(found.model.bytes(), Bytes(32));
    let wanted = [
        "ignored: optimizer.pt, training_args.bin",
        "pytorch_model.bin: 1 tensors share the storage of another",
    ];
    assert_eq!(found.notes, wanted);
    let sizes = zipped(&[("x/data.pkl", b"?"), ("x/data/0", &[0; 5])]);
    let found = read(&[("checkpoint.pth", sizes)], None).unwrap();
    assert_eq!(found.model.tensors[0].name, "data/0");
    let broken = read(&[("pytorch_model.bin", text("PK"))], None).unwrap_err();
    assert!(matches!(broken, ReadError::Torch { .. }));
}

#[test]
fn derives_tensors_from_configuration_alone() {
    let found = read(&[("config.json", text(CONFIG))], None).unwrap();
    assert_eq!(found.format, Format::Config);
    assert_eq!(found.notes, ["no weight files: sizes computed from config.json"]);
    // Embedding and output, four attention matrices, three feed-forward matrices, and three norms.
    let parameters = 2 * 4 * 8 + 4 * 8 * 8 + 3 * 8 * 16 + 3 * 8;
    assert_eq!(found.model.bytes(), Bytes(2 * parameters));
    // An element type that is not stated is a doubt, which files or quantization remove.
    let quantized = r#""quantization_config":{"quant_method":"fp8"}"#;
    for (instead, is_doubt) in
        [(r#""pad_token_id":0"#, true), (r#""dtype":"auto""#, true), (quantized, false)]
    {
        let unstated = CONFIG.replace(r#""torch_dtype":"float16""#, instead);
        let alone = read(&[("config.json", text(&unstated))], None).unwrap().model;
        assert_eq!(alone.doubts.len(), usize::from(is_doubt), "{instead}");
        if let [doubt] = &alone.doubts[..] {
            assert_eq!((doubt.about, alone.bytes()), (Figure::Element, Bytes(2 * parameters)));
        }
        let files =
            [("config.json", text(&unstated)), ("model.safetensors", tensors(&[("a", 16)]))];
        assert_eq!(read(&files, None).unwrap().model.doubts, [], "{instead}");
    }
    let generic = CONFIG.replace("llama", "novel");
    let found = read(&[("config.json", text(&generic))], None).unwrap();
    assert_eq!(found.model.bytes(), Bytes(2 * parameters));
    assert_eq!(found.model.doubts[0].text, "model type 'novel' is unknown; it is read like Llama");
    let doubts = &found.model.doubts;
    assert_eq!((doubts.len(), doubts[1].about), (2, Figure::Context), "{doubts:?}");
    let experts = generic.replacen('{', r#"{"n_total_experts":96,"#, 1);
    let found = read(&[("config.json", text(&experts))], None).unwrap();
    assert_eq!(found.model.doubts[1].text, "the experts are not counted: 'n_total_experts'");
    let fp8 = generic.replacen('{', r#"{"quantization_config":{"quant_method":"fp8"},"#, 1);
    let found = read(&[("config.json", text(&fp8))], None).unwrap();
    // Embedding, output and norms keep 16 bits; each of the seven matrices has a scale.
    assert_eq!(
        found.model.bytes(),
        Bytes(2 * (2 * 4 * 8 + 3 * 8) + 4 * 8 * 8 + 3 * 8 * 16 + 7 * 4)
    );
}

#[test]
fn index_without_files_provides_total() {
    let parameters = 2 * 4 * 8 + 4 * 8 * 8 + 3 * 8 * 16 + 3 * 8;
    let of = |config: &str, metadata: &str| {
        let index =
            format!(r#"{{"metadata":{metadata},"weight_map":{{"a":"model-1.safetensors"}}}}"#);
        let files = [("config.json", text(config)), ("model.safetensors.index.json", text(&index))];
        let [all, alone] = [None, Some("config.json")].map(|wanted| read(&files, wanted).unwrap());
        assert_eq!(all.model, alone.model);
        all.model
    };
    // 2 % more is within the tolerance, but 3 % is not.
    let close = of(CONFIG, &format!(r#"{{"total_size":{}}}"#, 2 * parameters * 102 / 100));
    assert_eq!((close.bytes(), close.doubts.len()), (Bytes(2 * parameters), 0));
    let unstated = CONFIG.replace("torch_dtype", "unknown");
    for (metadata, doubts) in
        [(format!(r#"{{"total_size":{}}}"#, 2 * parameters), 0), ("{}".to_owned(), 1)]
    {
        assert_eq!(of(&unstated, &metadata).doubts.len(), doubts, "{metadata}");
    }
    let more = of(CONFIG, r#"{"total_size":150000}"#);
    assert!(more.bytes() <= Bytes(150_000) && more.bytes() > Bytes(149_900), "{:?}", more.bytes());
    assert_eq!(more.doubts[0].about, Figure::Weights);
    assert!(more.doubts[0].text.starts_with("the index lists"), "{:?}", more.doubts);
    let counted = of(CONFIG, r#"{"total_parameters":75000}"#);
    assert_eq!(counted.bytes(), more.bytes());
    let generic = of(&CONFIG.replace("llama", "novel"), r#"{"total_size":150000}"#);
    assert!(generic.bytes() <= Bytes(150_000) && generic.bytes() > Bytes(149_900));
    // Without a total, the configuration applies.
    assert_eq!(of(CONFIG, "{}").bytes(), Bytes(2 * parameters));
}

#[test]
fn invalid_configuration_is_an_error_only_alone() {
    let bad = ("config.json", text("{"));
    assert!(matches!(read(std::slice::from_ref(&bad), None), Err(ReadError::Config { .. })));
    let found = read(&[bad, ("model.safetensors", tensors(&[("a", 1)]))], None).unwrap();
    assert!(found.notes[0].starts_with("config.json is ignored: failed to parse"));
    assert_eq!(found.model.architecture, "unknown");
}

#[test]
fn directory_without_a_model_is_an_error() {
    assert!(matches!(read(&[], None), Err(ReadError::Nothing)));
    assert!(matches!(read(&[("a.txt", Vec::new())], None), Err(ReadError::Nothing)));
    // The file disappears after it was listed.
    let listed = [File { name: "model.safetensors".to_owned(), bytes: 9 }];
    let gone = model(&listed, None, &|_| Err(io::ErrorKind::NotFound.into()));
    assert!(matches!(gone, Err(ReadError::Open { file, .. }) if file == "model.safetensors"));
}
