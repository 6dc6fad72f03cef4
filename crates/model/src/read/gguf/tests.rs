//! Valid and invalid headers written by these tests.

use super::*;
use proptest::prelude::*;

/// Writes a header.
#[derive(Clone, Default)]
pub(crate) struct Writer {
    pairs: Vec<u8>,
    pair_count: u64,
    tensors: Vec<u8>,
    tensor_count: u64,
    offset: u64,
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
}

impl Writer {
    pub(crate) fn raw(mut self, key: &str, kind: u32, value: &[u8]) -> Self {
        self.pairs.extend([&text(key), &kind.to_le_bytes()[..], value].concat());
        self.pair_count += 1;
        self
    }

    pub(crate) fn integer(self, key: &str, value: u32) -> Self {
        self.raw(key, 4, &value.to_le_bytes())
    }

    pub(crate) fn text(self, key: &str, value: &str) -> Self {
        self.raw(key, 8, &text(value))
    }

    pub(crate) fn integers(self, key: &str, values: &[i32]) -> Self {
        let mut bytes = [&5u32.to_le_bytes()[..], &(values.len() as u64).to_le_bytes()].concat();
        bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        self.raw(key, 9, &bytes)
    }

    /// Adds a tensor; dimensions are listed fastest first, as in ggml.
    pub(crate) fn tensor(mut self, name: &str, shape: &[u64], number: u32) -> Self {
        let encoding = Encoding::of_ggml(number).expect("a type of ggml");
        let bytes = encoding.bytes(shape.iter().product()).expect("whole blocks");
        let offset = self.offset;
        self.offset += bytes.next_multiple_of(32);
        self.described(name, shape, number, offset)
    }

    fn described(mut self, name: &str, shape: &[u64], number: u32, offset: u64) -> Self {
        self.tensors.extend(text(name));
        self.tensors.extend((shape.len() as u32).to_le_bytes());
        self.tensors.extend(shape.iter().flat_map(|dimension| dimension.to_le_bytes()));
        self.tensors.extend(number.to_le_bytes());
        self.tensors.extend(offset.to_le_bytes());
        self.tensor_count += 1;
        self
    }

    fn start(version: u32, tensors: u64, pairs: u64) -> Vec<u8> {
        [&b"GGUF"[..], &version.to_le_bytes(), &tensors.to_le_bytes(), &pairs.to_le_bytes()]
            .concat()
    }

    fn header(&self) -> Vec<u8> {
        let start = Self::start(3, self.tensor_count, self.pair_count);
        [&start[..], &self.pairs, &self.tensors].concat()
    }

    /// Returns the file with zeros as data.
    pub(crate) fn file(&self) -> Vec<u8> {
        let mut file = self.header();
        file.resize(file.len().next_multiple_of(32) + self.offset as usize, 0);
        file
    }
}

fn parse(file: &[u8]) -> Result<Header, GgufError> {
    read(file, Some(file.len() as u64))
}

fn refusal(writer: &Writer) -> GgufError {
    parse(&writer.file()).expect_err("a bad file")
}

fn small() -> Writer {
    Writer::default()
        .text("general.architecture", "llama")
        .integer("llama.block_count", 2)
        .integers("llama.attention.head_count_kv", &[8, 0])
        .raw("flag", 7, &[1])
        .raw("scale", 6, &1.5f32.to_le_bytes())
        .tensor("a", &[64, 3], 8)
        .tensor("b", &[5], 0)
}

#[test]
fn pairs_and_tensors_are_read() {
    let header = parse(&small().file()).unwrap();
    assert_eq!(header.version, 3);
    assert_eq!(header.values.text("general.architecture"), Some("llama"));
    assert_eq!(header.values.integer("llama.block_count").unwrap(), Some(2));
    let heads = header.values.per_layer("llama.attention.head_count_kv", 2).unwrap();
    assert_eq!(heads, Some(vec![8, 0]));
    assert_eq!(header.values.get("scale"), Some(&Value::Float(1.5)));
    assert_eq!(header.tensors[0].shape, [3, 64]);
    assert_eq!(header.tensors[0].bytes, Bytes(6 * 34));
    assert_eq!(header.tensors[1].bytes, Bytes(20));
    assert_eq!(header.data_start % 32, 0);
    // Version 2 has the same layout.
    let mut second = small().file();
    second[4] = 2;
    assert_eq!(parse(&second).unwrap().tensors, header.tensors);
}

#[test]
fn every_truncation_is_an_error() {
    let file = small().file();
    // The padding of the last tensor may be missing: 12 of 32 bytes.
    let needed = file.len() - 12;
    for length in 0..needed {
        assert!(parse(&file[..length]).is_err(), "{length}");
        let unknown = read(&file[..length], None);
        assert_eq!(unknown.is_ok(), length >= small().header().len(), "{length}");
    }
    assert!(parse(&file[..needed]).is_ok());
}

#[test]
fn reports_version_and_byte_order() {
    let with = |version: u32| parse(&Writer::start(version, 0, 0)).unwrap_err();
    for version in [0, 1, 4, 0x1_0001] {
        assert!(matches!(with(version), GgufError::Version(found) if found == version));
    }
    assert!(matches!(with(3 << 24), GgufError::BigEndian));
    assert!(matches!(parse(b"GGML\x03\0\0\0"), Err(GgufError::Magic)));
    assert!(matches!(parse(b"GG"), Err(GgufError::Magic)));
}

#[test]
fn false_counts_do_not_allocate() {
    for count in [1 << 20, 1 << 40, i64::MAX as u64, u64::MAX] {
        assert!(parse(&Writer::start(3, count, 0)).is_err());
        assert!(parse(&Writer::start(3, 0, count)).is_err());
        // Even if the length of the file is unknown, the end of the data is detected.
        assert!(read(Writer::start(3, count, 0).as_slice(), None).is_err());
        let array = [&4u32.to_le_bytes()[..], &count.to_le_bytes()].concat();
        assert!(parse(&Writer::default().raw("a", 9, &array).file()).is_err());
        let texts = [&8u32.to_le_bytes()[..], &count.to_le_bytes()].concat();
        assert!(parse(&Writer::default().raw("a", 9, &texts).file()).is_err());
        let long = Writer::default().raw("a", 8, &count.to_le_bytes());
        assert!(parse(&long.file()).is_err());
        assert!(read(long.file().as_slice(), None).is_err());
    }
}

#[test]
fn does_not_read_past_file_length() {
    let long = Writer::default().raw("a", 8, &1000u64.to_le_bytes()).header();
    let endless = long.as_slice().chain(std::io::repeat(0));
    let error = read(endless, Some(long.len() as u64)).unwrap_err();
    assert!(matches!(error, GgufError::Truncated { what: "a text", .. }), "{error}");
}

#[test]
fn keys_are_unique_and_have_a_length() {
    let twice = Writer::default().integer("a", 1).integer("a", 2);
    assert_eq!(refusal(&twice).to_string(), "read 'a': the name occurs twice");
    assert_eq!(
        refusal(&Writer::default().integer("", 1)).to_string(),
        "read '': the name is empty"
    );
    let long = Writer::default().integer(&"k".repeat(65_536), 1);
    assert!(matches!(refusal(&long), GgufError::TooMuch { limit: 65_535, .. }));
}

#[test]
fn rejects_nonexistent_types() {
    let unknown = Writer::default().raw("a", 13, &[0; 8]);
    assert!(matches!(refusal(&unknown), GgufError::ValueType { found: 13, .. }));
    let nested = [&9u32.to_le_bytes()[..], &1u64.to_le_bytes(), &[0; 16]].concat();
    let nested = Writer::default().raw("a", 9, &nested);
    assert!(matches!(refusal(&nested), GgufError::ValueType { found: 9, .. }));
    for number in [4, 31, 36, 43] {
        let gone = Writer::default().described("a", &[32], number, 0);
        assert!(matches!(refusal(&gone), GgufError::TensorType { found, .. } if found == number));
    }
}

#[test]
fn skips_vocabularies() {
    let words: Vec<u8> = ["a", "bc", ""].iter().flat_map(|word| text(word)).collect();
    let words = [&8u32.to_le_bytes()[..], &3u64.to_le_bytes(), &words].concat();
    let scores = [&6u32.to_le_bytes()[..], &3u64.to_le_bytes(), &[0; 12]].concat();
    let writer = (small().raw("tokenizer.ggml.tokens", 9, &words))
        .raw("tokenizer.ggml.scores", 9, &scores)
        .text("template", &"x".repeat(300));
    let values = parse(&writer.file()).unwrap().values;
    assert_eq!(values.length("tokenizer.ggml.tokens"), Some(3));
    assert_eq!(values.get("tokenizer.ggml.scores"), Some(&Value::Passed { length: 3 }));
    assert_eq!(values.get("template"), Some(&Value::Passed { length: 300 }));
}

#[test]
fn skips_arrays_beyond_the_limit() {
    let mut writer = Writer::default();
    for index in 0..65 {
        writer = writer.integers(&format!("k{index}"), &[1; 4096]);
    }
    let values = parse(&writer.file()).unwrap().values;
    assert!(matches!(values.get("k63"), Some(Value::Integers(_))));
    assert_eq!(values.get("k64"), Some(&Value::Passed { length: 4096 }));
}

#[test]
fn rejects_invalid_tensors() {
    let bad = |name: &str, shape: &[u64], number, offset| {
        refusal(&Writer::default().described(name, shape, number, offset))
    };
    assert!(matches!(bad(&"n".repeat(64), &[1], 0, 0), GgufError::TooMuch { limit: 63, .. }));
    assert!(matches!(bad("a", &[1; 5], 0, 0), GgufError::TooMuch { limit: 4, .. }));
    assert!(matches!(bad("a", &[u64::MAX], 0, 0), GgufError::TooMuch { .. }));
    assert!(matches!(bad("a", &[33], 8, 0), GgufError::Block { columns: 33, block: 32, .. }));
    assert!(matches!(bad("a", &[1], 0, 32), GgufError::Offset { found: 32, expected: 0, .. }));
    assert!(matches!(bad("a", &[1 << 32, 1 << 31], 24, 0), GgufError::Overflow(_)));
    assert!(matches!(bad("a", &[8], 0, 0), GgufError::Beyond { .. }));
    let twice = Writer::default().tensor("a", &[1], 0).tensor("a", &[1], 0);
    assert!(matches!(refusal(&twice), GgufError::Name { problem: "occurs twice", .. }));
    // 2^63 elements of about one bit: the bytes could be counted, but not the elements.
    assert!(matches!(bad("a", &[1 << 62, 2], 41, 0), GgufError::Overflow(_)));
    // The padded size of 4 × (2^30 − 1) × (2^30 + 1) 4-byte numbers wraps to 0.
    let wraps = bad("a", &[4, (1 << 30) - 1, (1 << 30) + 1], 0, 0);
    assert!(matches!(wraps, GgufError::Overflow(_)));
}

#[test]
fn rejects_overflowing_sum_of_sizes() {
    let huge = [1 << 29, 1 << 29]; // 2^60 bytes
    let mut writer = Writer::default();
    for index in 0..16u64 {
        writer = writer.described(&format!("t{index}"), &huge, 0, index << 60);
    }
    let header = writer.header();
    assert!(
        matches!(read(header.as_slice(), None), Err(GgufError::Overflow(last)) if last == "t15")
    );
}

#[test]
fn tensor_without_elements_is_accepted() {
    let writer = Writer::default().tensor("a", &[0, 3], 0).tensor("b", &[], 0);
    let header = parse(&writer.file()).unwrap();
    assert_eq!(header.tensors[0].bytes, Bytes(0));
    assert_eq!(header.tensors[1].bytes, Bytes(4));
}

#[test]
fn alignment_is_a_power_of_two() {
    for (alignment, good) in [(1, true), (64, true), (0, false), (48, false)] {
        let writer = Writer::default().integer("general.alignment", alignment);
        assert_eq!(parse(&writer.file()).is_ok(), good, "{alignment}");
    }
    let text = Writer::default().text("general.alignment", "32");
    assert!(matches!(refusal(&text), GgufError::Value { .. }));
    let one = (Writer::default().integer("general.alignment", 1))
        .described("a", &[1], 0, 0)
        .described("b", &[1], 24, 4)
        .header();
    assert_eq!(read(one.as_slice(), None).unwrap().data_start, one.len() as u64);
}

fn part(number: u32, count: u32, tensors: u32, name: &str) -> Header {
    let writer = (Writer::default().integer("split.no", number))
        .integer("split.count", count)
        .integer("split.tensors.count", tensors)
        .tensor(name, &[1], 0);
    parse(&writer.file()).unwrap()
}

#[test]
fn parts_of_a_split_are_joined_in_order() {
    let (_, tensors) = join(vec![part(0, 2, 2, "a"), part(1, 2, 2, "b")]).unwrap();
    assert_eq!(tensors.len(), 2);
    let error = |parts| join(parts).unwrap_err().to_string();
    let order = error(vec![part(1, 2, 2, "b"), part(0, 2, 2, "a")]);
    assert!(order.ends_with("file 1 of 2 claims to be file 2 of 2"), "{order}");
    assert!(error(vec![part(0, 2, 2, "a")]).contains("file 1 of 2"));
    let few = error(vec![part(0, 2, 3, "a"), part(1, 2, 3, "b")]);
    assert!(few.ends_with("3 tensors are announced, but 2 are present"), "{few}");
    assert!(error(vec![part(0, 2, 2, "a"), part(1, 2, 2, "a")]).contains("twice"));
    assert!(error(Vec::new()).contains("there are no files"));
}

#[test]
fn split_number_is_below_its_count() {
    let writer = (Writer::default().integer("split.no", 2))
        .integer("split.count", 2)
        .integer("split.tensors.count", 0);
    assert!(matches!(refusal(&writer), GgufError::Split(_)));
    let missing = Writer::default().integer("split.no", 0).integer("split.count", 2);
    assert!(matches!(refusal(&missing), GgufError::Missing(_)));
}

proptest! {
    #[test]
    fn written_headers_round_trip(
        tensors in prop::collection::vec((0usize..6, prop::collection::vec(0u64..4, 0..3)), 0..10),
        numbers in prop::collection::vec(any::<u32>(), 0..8),
    ) {
        let mut writer = Writer::default();
        for (index, number) in numbers.iter().enumerate() {
            writer = writer.integer(&format!("k{index}"), *number);
        }
        let mut wanted = Vec::new();
        for (index, (kind, rest)) in tensors.into_iter().enumerate() {
            let number = [0, 1, 8, 12, 30, 39][kind];
            let encoding = Encoding::of_ggml(number).unwrap();
            let shape = [vec![encoding.block()], rest].concat();
            writer = writer.tensor(&format!("t{index}"), &shape, number);
            let bytes = Bytes(encoding.bytes(shape.iter().product()).unwrap());
            let shape = shape.into_iter().rev().collect();
            wanted.push(Tensor { name: format!("t{index}"), encoding, shape, bytes });
        }
        let header = parse(&writer.file()).unwrap();
        prop_assert_eq!(header.tensors, wanted);
        for (index, number) in numbers.iter().enumerate() {
            let read = header.values.integer(&format!("k{index}")).unwrap();
            prop_assert_eq!(read, Some(u64::from(*number)));
        }
    }

    #[test]
    fn mutated_bytes_do_not_panic(at in 0usize..200, byte in any::<u8>()) {
        let mut file = small().file();
        if let Some(old) = file.get_mut(at) {
            *old = byte;
        }
        let _ = parse(&file);
        let _ = read(file.as_slice(), None);
    }
}
