//! Detects the format of a file by its first bytes and its name.

use super::torch::is_legacy;

/// The format of a model file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Format {
    /// Tensors with a JSON header.
    Safetensors,
    /// ggml tensors with key-value pairs.
    Gguf,
    /// PyTorch's zip file with a pickle.
    Torch,
    /// PyTorch's format before 1.6, which is not supported.
    TorchLegacy,
    /// The configuration of a model (`config.json`).
    Config,
    /// The index of a model in several files.
    Index,
}

/// Returns the format of a file by its first bytes, or by its name if there are none; `None` if it
/// is not a model file. Sixteen bytes are enough.
pub fn detect(name: &str, start: &[u8]) -> Option<Format> {
    match start {
        [] => by_name(name),
        [b'G', b'G', b'U', b'F', ..] => Some(Format::Gguf),
        [b'P', b'K', 3, 4, ..] => Some(Format::Torch),
        _ if is_legacy(start) => Some(Format::TorchLegacy),
        // A header has fewer than 2^32 bytes.
        _ if start.get(8) == Some(&b'{') && start.get(4..8) == Some(&[0; 4]) => {
            Some(Format::Safetensors)
        }
        _ => by_name(name).filter(|format| matches!(format, Format::Config | Format::Index)),
    }
}

fn by_name(name: &str) -> Option<Format> {
    let name = name.to_ascii_lowercase();
    let ends = |suffix: &str| name.ends_with(suffix);
    match () {
        () if ends(".safetensors.index.json") || ends(".bin.index.json") => Some(Format::Index),
        () if name == "config.json" => Some(Format::Config),
        () if ends(".safetensors") => Some(Format::Safetensors),
        () if ends(".gguf") => Some(Format::Gguf),
        () if [".bin", ".pt", ".pth", ".ckpt"].iter().any(|suffix| ends(suffix)) => {
            Some(Format::Torch)
        }
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_bytes_take_precedence_over_name() {
        assert_eq!(detect("model.bin", b"GGUF\x03\0\0\0"), Some(Format::Gguf));
        assert_eq!(detect("model.gguf", b"PK\x03\x04...."), Some(Format::Torch));
        let legacy = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.";
        assert_eq!(detect("x", legacy), Some(Format::TorchLegacy));
        assert_eq!(detect("x", b"\x10\0\0\0\0\0\0\0{\"a\":{\"d"), Some(Format::Safetensors));
        assert_eq!(detect("model.safetensors", b"version https://"), None);
        assert_eq!(detect("config.json", b"{\n  \"architectu"), Some(Format::Config));
        assert_eq!(detect("notes.txt", b"hello"), None);
    }

    #[test]
    fn name_determines_format_of_unopened_file() {
        for (name, format) in [
            ("a.safetensors", Some(Format::Safetensors)),
            ("A.GGUF", Some(Format::Gguf)),
            ("pytorch_model.bin", Some(Format::Torch)),
            ("model.safetensors.index.json", Some(Format::Index)),
            ("pytorch_model.bin.index.json", Some(Format::Index)),
            ("config.json", Some(Format::Config)),
            ("tokenizer.json", None),
        ] {
            assert_eq!(detect(name, b""), format, "{name}");
        }
    }
}
