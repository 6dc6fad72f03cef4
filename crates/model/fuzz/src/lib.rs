//! The invariants of every fuzz target: no panic, no more tensors than the file has room for, and
//! no more data than the file has bytes.

use gpu_model::Tensor;
use gpu_model::read;
use std::io::Cursor;

/// The minimum number of bytes that describe a tensor, in any format.
const MIN_TENSOR_BYTES: usize = 16;

/// Checks the tensors read from a file with these bytes.
fn check(tensors: &[Tensor], bytes: &[u8]) {
    assert!(tensors.len() <= bytes.len() / MIN_TENSOR_BYTES);
    let data: u64 = tensors.iter().map(|tensor| tensor.bytes.0).sum();
    assert!(data <= bytes.len() as u64);
    for tensor in tensors {
        assert_eq!(tensor.encoding.bytes(tensor.elements()), Some(tensor.bytes.0));
    }
}

/// Reads bytes as a safetensors file.
///
/// # Panics
/// If an invariant is violated.
pub fn safetensors(bytes: &[u8]) {
    if let Ok(tensors) = read::safetensors::read(bytes, bytes.len() as u64) {
        check(&tensors, bytes);
    }
}

/// Reads bytes as a GGUF file.
///
/// # Panics
/// If an invariant is violated.
pub fn gguf(bytes: &[u8]) {
    let known = read::gguf::read(bytes, Some(bytes.len() as u64));
    let unknown = read::gguf::read(bytes, None);
    if let Ok(header) = known {
        // Values may be NaN, which is not equal to itself.
        assert_eq!(unknown.ok().map(|header| header.tensors).as_ref(), Some(&header.tensors));
        check(&header.tensors, bytes);
        if let Ok(Some(shape)) = read::gguf::architecture(&header.values, &header.tensors) {
            assert!((1..=4096).contains(&shape.layers.len()));
        }
        let _ = read::gguf::join(vec![header]);
    }
}

/// Reads bytes as a configuration.
///
/// # Panics
/// If an invariant is violated.
pub fn config(bytes: &[u8]) {
    if let Ok(config) = read::config::read(bytes) {
        assert!((1..=4096).contains(&config.architecture.layers.len()));
        if let Ok(tensors) = config.tensors() {
            assert!(tensors.len() <= 4 + 64 * 4096);
        }
    }
}

/// Reads bytes as an index.
///
/// # Panics
/// If an invariant is violated.
pub fn index(bytes: &[u8]) {
    if let Ok(index) = read::index::read(bytes) {
        for file in index.files.keys() {
            assert!(!file.contains(['/', '\\']) && !file.starts_with('.'));
        }
    }
}

/// Reads bytes as a PyTorch file.
///
/// # Panics
/// If an invariant is violated.
pub fn torch(bytes: &[u8]) {
    if let Ok(weights) = read::torch::read(Cursor::new(bytes), bytes.len() as u64) {
        let data: u64 = weights.tensors.iter().map(|tensor| tensor.bytes.0).sum();
        assert!(data <= bytes.len() as u64);
    }
}
