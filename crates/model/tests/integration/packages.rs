//! Files written by the Python reference packages.

use gpu_core::Bytes;
use gpu_model::Encoding;
use gpu_model::read::{File, Format, Found, model};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output};

/// Writes a tensor of each element type that NumPy has.
const SAFETENSORS: &str = "
import sys, numpy as np
from safetensors.numpy import save_file
types = [np.float64, np.float32, np.float16, np.int64, np.int8, np.uint16, np.bool_]
tensors = {f't{i}': np.zeros((i, 3), dtype=t) for i, t in enumerate(types)}
tensors['scalar'] = np.zeros((), dtype=np.float32)
save_file(tensors, sys.argv[1] + '/model.safetensors', metadata={'format': 'np'})
";

/// Writes tensors in several encodings, with a tokenizer and per-layer heads.
const GGUF: &str = "
import sys, numpy as np, gguf
w = gguf.GGUFWriter(sys.argv[1] + '/m.gguf', 'llama')
w.add_name('tiny'); w.add_block_count(2); w.add_context_length(4096); w.add_embedding_length(256)
w.add_feed_forward_length(512); w.add_head_count(8); w.add_head_count_kv([2, 4])
w.add_token_list(['a', 'b', 'c']); w.add_token_scores([0.0, 1.0, 2.0])
w.add_custom_alignment(64)
w.add_tensor('token_embd.weight', np.zeros((3, 256), dtype=np.float32))
for kind in ['Q8_0', 'Q4_0', 'Q4_K', 'Q6_K', 'IQ4_XS', 'TQ1_0', 'MXFP4', 'BF16']:
    t = gguf.GGMLQuantizationType[kind]
    data = np.zeros((5, gguf.quant_shape_to_byte_shape((5, 256), t)[1]), dtype=np.uint8)
    w.add_tensor(kind, data, raw_dtype=t)
w.write_header_to_file(); w.write_kv_data_to_file(); w.write_tensors_to_file(); w.close()
";

/// Prints the number of elements and bytes in a block of each ggml type.
const TYPES: &str = "
import gguf
for kind, (block, size) in gguf.GGML_QUANT_SIZES.items(): print(kind.name, block, size)
";

/// Runs a script with a Python that has its packages; if there is none, prints a note and returns
/// `None`.
fn written(script: &str, into: &Path) -> Option<Output> {
    let mut stderr = std::io::stderr();
    let python = std::env::var("GPUWS_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let run = Command::new(python).arg("-c").arg(script).arg(into).output();
    match run {
        Ok(output) if output.status.success() => Some(output),
        Ok(output) => {
            let why = String::from_utf8_lossy(&output.stderr).into_owned();
            let missing = why.contains("ModuleNotFoundError");
            assert!(missing, "{why}");
            writeln!(stderr, "skipped: the packages of Python are absent").unwrap();
            None
        }
        Err(error) => {
            writeln!(stderr, "skipped: no Python: {error}").unwrap();
            None
        }
    }
}

fn read(directory: &Path) -> Found {
    let entries = std::fs::read_dir(directory).unwrap();
    let listed: Vec<File> = entries
        .map(|entry| {
            let entry = entry.unwrap();
            let bytes = entry.metadata().unwrap().len();
            File { name: entry.file_name().into_string().unwrap(), bytes }
        })
        .collect();
    model(&listed, None, &|name| Ok(Box::new(std::fs::File::open(directory.join(name))?))).unwrap()
}

#[test]
fn reads_safetensors_of_reference_package() {
    let directory = tempfile::tempdir().unwrap();
    if written(SAFETENSORS, directory.path()).is_none() {
        return;
    }
    let found = read(directory.path());
    assert_eq!(found.format, Format::Safetensors);
    let mut tensors = found.model.tensors;
    tensors.sort_by(|a, b| a.name.cmp(&b.name));
    let read: Vec<(&str, u64)> =
        tensors.iter().map(|tensor| (tensor.encoding.name(), tensor.bytes.0)).collect();
    let wanted = [
        ("F32", 4),
        ("F64", 0),
        ("F32", 12),
        ("F16", 12),
        ("I64", 72),
        ("I8", 12),
        ("U16", 30),
        ("BOOL", 18),
    ];
    assert_eq!(read, wanted);
}

#[test]
fn reads_gguf_of_reference_package() {
    let directory = tempfile::tempdir().unwrap();
    if written(GGUF, directory.path()).is_none() {
        return;
    }
    let found = read(directory.path());
    assert_eq!((found.format, found.model.name.as_str()), (Format::Gguf, "tiny"));
    let shape = found.model.shape.expect("an architecture");
    assert_eq!((shape.layers.len(), shape.vocabulary, shape.tied), (2, 3, true));
    for tensor in &found.model.tensors[1..] {
        assert_eq!(tensor.encoding.name(), tensor.name);
        assert_eq!(tensor.shape, [5, 256]);
        assert_eq!(Some(tensor.bytes), tensor.encoding.bytes(5 * 256).map(Bytes));
    }
    assert_eq!(found.model.tensors.len(), 9);
}

#[test]
fn ggml_type_sizes_match_reference_package() {
    let directory = tempfile::tempdir().unwrap();
    let Some(output) = written(TYPES, directory.path()) else { return };
    let text = String::from_utf8(output.stdout).unwrap();
    let mut compared = 0;
    for line in text.lines() {
        let [name, block, size] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        // The package counts two more 32-bit floats in a Q8_1 block than ggml does.
        let Some(known) = Encoding::named(name).filter(|_| name != "Q8_1") else { continue };
        assert_eq!(known.block().to_string(), block, "{name}");
        assert_eq!((known.block_bits() / 8).to_string(), size, "{name}");
        compared += 1;
    }
    assert!(compared >= 28, "{text}");
}
