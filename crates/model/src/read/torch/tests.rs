//! Files as written by PyTorch.

use super::*;
use proptest::prelude::*;
use std::io::{Cursor, Write};
use zip::write::{SimpleFileOptions, ZipWriter};

/// Writes a zip file with uncompressed entries.
pub(crate) fn zipped(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    let stored = SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    for (name, bytes) in entries {
        writer.start_file(*name, stored).unwrap();
        writer.write_all(bytes).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

fn text(text: &str) -> Vec<u8> {
    [&b"X"[..], &(text.len() as u32).to_le_bytes(), text.as_bytes()].concat()
}

fn integer(value: u32) -> Vec<u8> {
    [&b"J"[..], &value.to_le_bytes()].concat()
}

fn tuple(values: &[u32]) -> Vec<u8> {
    [b"(".to_vec(), values.iter().flat_map(|value| integer(*value)).collect(), b"t".to_vec()]
        .concat()
}

/// Writes the call that rebuilds a tensor.
fn tensor(kind: &str, key: &str, offset: u32, shape: &[u32]) -> Vec<u8> {
    let global = |module: &str, name: &str| format!("c{module}\n{name}\n").into_bytes();
    [
        global("torch._utils", "_rebuild_tensor_v2"),
        b"((".to_vec(),
        text("storage"),
        global("torch", kind),
        text(key),
        text("cpu"),
        integer(1),
        b"tQ".to_vec(),
        integer(offset),
        tuple(shape),
        tuple(shape),
        b"\x89".to_vec(),
        global("collections", "OrderedDict"),
        b")RtR".to_vec(),
    ]
    .concat()
}

/// Writes a pickle of a state dictionary.
pub(crate) fn dictionary(entries: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let items: Vec<u8> =
        entries.iter().flat_map(|(name, value)| [text(name), value.clone()].concat()).collect();
    [&b"\x80\x02}q\x00("[..], &items, b"u."].concat()
}

/// Returns a file with two tensors in two storages, and a third that shares one of them.
pub(crate) fn small() -> Vec<u8> {
    let pickle = dictionary(&[
        ("a.weight", tensor("FloatStorage", "0", 0, &[2, 3])),
        ("b.weight", tensor("BFloat16Storage", "1", 0, &[4])),
        ("tied.weight", tensor("FloatStorage", "0", 0, &[2, 3])),
    ]);
    zipped(&[
        ("model/data.pkl", &pickle),
        ("model/data/0", &[0; 24]),
        ("model/data/1", &[0; 8]),
        ("model/version", b"3\n"),
    ])
}

fn parse(file: &[u8]) -> Result<Weights, TorchError> {
    read(Cursor::new(file), file.len() as u64)
}

fn with_pickle(pickle: &[u8]) -> Weights {
    parse(&zipped(&[("m/data.pkl", pickle), ("m/data/0", &[0; 24])])).unwrap()
}

fn bytes(weights: &Weights) -> Bytes {
    weights.tensors.iter().map(|tensor| tensor.bytes).sum()
}

#[test]
fn names_and_shapes_are_read_and_ties_counted_once() {
    let weights = parse(&small()).unwrap();
    let names: Vec<_> = weights.tensors.iter().map(|tensor| tensor.name.as_str()).collect();
    assert_eq!(names, ["a.weight", "b.weight"]);
    assert_eq!(weights.tensors[0].shape, [2, 3]);
    assert_eq!(weights.tensors[1].encoding.name(), "BF16");
    assert_eq!(bytes(&weights), Bytes(32));
    assert_eq!(weights.notes, ["1 tensors share the storage of another"]);
}

#[test]
fn names_nested_dictionaries_by_path() {
    let within = dictionary(&[("w", tensor("HalfStorage", "0", 2, &[10]))]);
    // Without the leading protocol and the trailing stop.
    let within = within[2..within.len() - 1].to_vec();
    let weights = with_pickle(&dictionary(&[("model", within), ("step", integer(7))]));
    assert_eq!(weights.tensors[0].name, "model.w");
    assert_eq!(weights.tensors[0].bytes, Bytes(20));
    // The rest of the storage has no name.
    assert_eq!(weights.tensors[1].name, "data/0");
    assert_eq!(bytes(&weights), Bytes(24));
}

#[test]
fn calls_are_not_executed() {
    let evil = [&b"\x80\x02cos\nsystem\n("[..], &text("true"), b"tR."].concat();
    let weights = with_pickle(&evil);
    assert_eq!(weights.tensors[0].name, "data/0");
    assert_eq!(bytes(&weights), Bytes(24));
}

#[test]
fn unknown_pickle_yields_only_sizes() {
    for pickle in
        [&b""[..], b"\x80\x02", b"\x80\x09.", b"i", b"t.", b"(0.", b"h\x05.", b"X\xff\xff\xff\xff."]
    {
        let weights = with_pickle(pickle);
        assert_eq!(bytes(&weights), Bytes(24));
        assert!(weights.notes[0].starts_with("names and shapes are not read"), "{weights:?}");
    }
    let unknown = with_pickle(&dictionary(&[("a", tensor("StrangeStorage", "0", 0, &[1]))]));
    assert!(unknown.notes[0].contains("'StrangeStorage' is not known"));
}

#[test]
fn omits_tensor_beyond_its_storage() {
    for (offset, shape) in [(0, &[7][..]), (4, &[3]), (0, &[u32::MAX >> 1; 4])] {
        let weights =
            with_pickle(&dictionary(&[("a", tensor("FloatStorage", "0", offset, shape))]));
        assert_eq!(weights.tensors[0].name, "data/0");
        assert!(weights.notes[0].contains("'a' is omitted"), "{:?}", weights.notes);
    }
    let missing = with_pickle(&dictionary(&[("a", tensor("FloatStorage", "9", 0, &[1]))]));
    assert_eq!(bytes(&missing), Bytes(24));
}

#[test]
fn element_types_have_the_sizes_of_pytorch() {
    let sizes: [(u64, &[&str]); 4] = [
        (8, &["DoubleStorage", "float64", "LongStorage", "int64", "uint64"]),
        (8, &["ComplexFloatStorage", "complex64"]),
        (4, &["FloatStorage", "float32", "IntStorage", "int32", "uint32"]),
        (2, &["HalfStorage", "float16", "BFloat16Storage", "bfloat16", "ShortStorage", "int16"]),
    ];
    let bytes_of = |kind: &str| {
        let weights = with_pickle(&dictionary(&[("a", tensor(kind, "0", 0, &[3]))]));
        assert_eq!(weights.tensors[0].name, "a", "{kind}: {:?}", weights.notes);
        (weights.tensors[0].bytes.0 / 3, weights.tensors[0].encoding.name())
    };
    for (size, kinds) in sizes {
        for kind in kinds {
            assert_eq!(bytes_of(kind).0, size, "{kind}");
        }
    }
    assert_eq!(bytes_of("uint16"), (2, "U16"));
    for kind in ["CharStorage", "int8", "QInt8Storage", "ByteStorage", "uint8", "QUInt8Storage"] {
        assert_eq!(bytes_of(kind).0, 1, "{kind}");
    }
    assert_eq!((bytes_of("QInt8Storage").1, bytes_of("ByteStorage").1), ("I8", "U8"));
    for kind in ["BoolStorage", "bool"] {
        assert_eq!(bytes_of(kind), (1, "BOOL"), "{kind}");
    }
    for (kind, name) in [
        ("float8_e4m3fn", "F8_E4M3"),
        ("float8_e5m2", "F8_E5M2"),
        ("float8_e4m3fnuz", "F8_E4M3FNUZ"),
        ("float8_e5m2fnuz", "F8_E5M2FNUZ"),
        ("float8_e8m0fnu", "F8_E8M0"),
    ] {
        assert_eq!(bytes_of(kind), (1, name), "{kind}");
    }
    let unknown = with_pickle(&dictionary(&[("a", tensor("QInt32Storage", "0", 0, &[3]))]));
    assert!(unknown.notes[0].contains("element type 'QInt32Storage' is not known"));
}

#[test]
fn empty_tensors_share_no_storage() {
    let weights = with_pickle(&dictionary(&[
        ("empty", tensor("FloatStorage", "0", 0, &[0, 4])),
        ("again", tensor("FloatStorage", "0", 0, &[0])),
        ("all", tensor("FloatStorage", "0", 0, &[6])),
    ]));
    let names: Vec<_> = weights.tensors.iter().map(|tensor| tensor.name.as_str()).collect();
    assert_eq!(names, ["empty", "again", "all"]);
    assert_eq!(weights.notes, [""; 0]);
}

#[test]
fn counts_overlapping_tensors_once() {
    let weights = with_pickle(&dictionary(&[
        ("all", tensor("FloatStorage", "0", 0, &[6])),
        ("tail", tensor("FloatStorage", "0", 2, &[4])),
    ]));
    assert_eq!(weights.tensors.len(), 1);
    assert_eq!(bytes(&weights), Bytes(24));
    assert_eq!(weights.notes, ["1 tensors share the storage of another"]);
}

#[test]
fn self_referential_dictionary_terminates() {
    // d = {"a": d, "b": d, ...}
    let pickle = [&b"\x80\x02}q\x00("[..], &text("a"), b"h\x00", &text("b"), b"h\x00u."].concat();
    assert_eq!(with_pickle(&pickle).notes, [""; 0]);
}

#[test]
fn bounds_name_multiplying_references() {
    // One long name and one tensor, repeated.
    let first = [text(&"n".repeat(1000)), tensor("FloatStorage", "0", 0, &[1])].concat();
    let start = [&b"\x80\x02}("[..], &first[..1005], b"q\x01", &first[1005..], b"q\x02"].concat();
    let pickle = [start, b"h\x01h\x02".repeat(1000), b"u.".to_vec()].concat();
    let weights = with_pickle(&pickle);
    assert!(weights.notes[0].ends_with("expands to 8 times its size"), "{:?}", weights.notes);
}

#[test]
fn references_without_values_are_bounded() {
    // MEMOIZE, DUP and MARK add one reference per byte.
    for opcode in [0x94, b'2', b'('] {
        let mut pickle = vec![b'N'; 1];
        pickle.resize((1 << 21) + 10, opcode);
        let notes = with_pickle(&pickle).notes.concat();
        assert!(notes.contains("more than 2097152 references"), "{notes}");
    }
}

#[test]
fn reports_older_and_foreign_files() {
    let legacy = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.";
    assert!(matches!(parse(legacy), Err(TorchError::Legacy)));
    assert!(matches!(parse(b"not a zip file"), Err(TorchError::Zip(_))));
    assert!(matches!(parse(b""), Err(TorchError::Zip(_))));
    let other = zipped(&[("readme.txt", b"hello")]);
    assert!(matches!(parse(&other), Err(TorchError::Foreign(_))));
}

#[test]
fn rejects_storages_larger_than_file() {
    let file = small();
    let error = read(Cursor::new(&file), 20).unwrap_err();
    assert!(matches!(error, TorchError::Claimed { claimed: 32, length: 20 }), "{error}");
}

#[test]
fn every_truncation_is_an_error() {
    let file = small();
    for length in 0..file.len() {
        assert!(parse(&file[..length]).is_err(), "{length}");
    }
}

/// A file of zeros.
struct Zeros {
    at: u64,
    length: u64,
    read: std::rc::Rc<std::cell::Cell<u64>>,
}

impl Read for Zeros {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = buffer.len().min(self.length.saturating_sub(self.at) as usize);
        buffer[..length].fill(0);
        self.at += length as u64;
        self.read.set(self.read.get() + length as u64);
        Ok(length)
    }
}

impl Seek for Zeros {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        self.at = match position {
            SeekFrom::Start(at) => at,
            SeekFrom::End(by) => self.length.checked_add_signed(by).expect("within"),
            SeekFrom::Current(by) => self.at.checked_add_signed(by).expect("within"),
        };
        Ok(self.at)
    }
}

#[test]
fn search_for_a_directory_in_a_large_file_ends() {
    let (length, count) = (1 << 40, std::rc::Rc::default());
    let file = Zeros { at: 0, length, read: std::rc::Rc::clone(&count) };
    assert!(read(file, length).is_err());
    assert!(count.get() <= MAX_READ_BYTES, "{}", count.get());
}

#[test]
fn limits_bytes_read() {
    let mut metered = Metered { file: std::io::repeat(0), left: 10 };
    let mut buffer = [0; 8];
    assert_eq!(metered.read(&mut buffer).unwrap(), 8);
    assert_eq!(metered.read(&mut buffer).unwrap(), 2);
    assert!(metered.read(&mut buffer).is_err());
}

proptest! {
    #[test]
    fn mutated_bytes_do_not_panic(at in 0usize..900, byte in any::<u8>(), pickle in prop::collection::vec(any::<u8>(), 0..60)) {
        let mut file = small();
        if let Some(old) = file.get_mut(at) {
            *old = byte;
        }
        let _ = parse(&file);
        let _ = pickle::read(&pickle);
    }
}
