//! Files made to cost more than they should.

use super::*;

/// Reads a file in all forms.
fn read_all(file: &[u8]) {
    let forms = [
        Form::Json,
        Form::GraphText,
        Form::GraphBinary,
        Form::MetaGraph,
        Form::SavedModel,
        Form::Onnx,
    ];
    for form in forms {
        if let Err(error) = read_as(form, file) {
            let text = error.to_string();
            assert!(text.len() < 1_000 && !text.contains(char::is_control), "{text}");
        }
    }
}

fn limit(result: Result<GraphDef, ReadError>) -> &'static str {
    match result {
        Err(ReadError { reason: Reason::Limit { what, .. }, .. }) => what,
        other => panic!("{other:?}"),
    }
}

/// Encodes a field with a length.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![number << 3 | 2];
    prost::encode_length_delimiter(content.len(), &mut bytes).unwrap();
    bytes.extend_from_slice(content);
    bytes
}

const SAMPLE: &str = r#"node { name: "a" op: "Const" device: "/cpu:0"
  attr { key: "dtype" value { type: DT_FLOAT } }
  attr { key: "value" value { tensor { dtype: DT_FLOAT tensor_shape { dim { size: 2 } } } } } }
node { name: "c" op: "MatMul" input: ["a", "a:0", "^a"] attr <key: 'T' value <type: 1>>
  attr { key: "f" value { func { name: "g" attr { key: "x" value { list { s: "\n\"" } } } } } } }
library { function { signature { name: "g" input_arg { name: "x" type_attr: "T" } }
  ret { key: "y" value: "x" } } }"#;

#[test]
fn every_truncation_ends_in_an_error_or_a_shorter_graph() {
    let whole = read_as(Form::GraphText, SAMPLE).unwrap();
    let binary = protobuf::graph(&whole).encode_to_vec();
    let json = printed::json(&whole);
    assert_eq!(read_as(Form::GraphBinary, &binary).as_ref(), Ok(&whole));
    for file in [SAMPLE.as_bytes(), &binary, json.as_bytes()] {
        for end in 0..file.len() {
            read_all(&file[..end]);
            if let Ok(document) = read(&file[..end]) {
                assert!(document.graph.nodes.len() <= 2 && document.graph != whole);
            }
        }
    }
}

#[test]
fn every_changed_byte_is_read_without_a_panic() {
    let whole = read_as(Form::GraphText, SAMPLE).unwrap();
    let binary = protobuf::graph(&whole).encode_to_vec();
    for file in [SAMPLE.as_bytes(), &binary, printed::json(&whole).as_bytes()] {
        for at in 0..file.len() {
            for byte in [0, 1, 0x0a, 0x12, b'"', b'\\', b'{', b'}', b'[', b'<', 0x7f, 0xff] {
                let mut file = file.to_vec();
                file[at] = byte;
                read_all(&file);
            }
        }
    }
}

#[test]
fn millions_of_empty_messages_are_refused_at_the_first() {
    let nodes = b"\x0a\x00".repeat(2_000_000);
    let found = read_as(Form::GraphBinary, &nodes).unwrap_err();
    assert_eq!(found.location, Location::Offset(2));
    // Attributes without a value are ignored, but dimensions without a size count.
    let attrs = b"\x2a\x00".repeat(2_000_000);
    let node = field(1, &[b"\x0a\x01a\x12\x01b".as_slice(), &attrs].concat());
    assert_eq!(read_as(Form::GraphBinary, node).unwrap().nodes[0].attrs.len(), 0);
    let dims = field(7, &b"\x12\x00".repeat(3_000_000));
    let attr = [b"\x0a\x01s".to_vec(), field(2, &dims)].concat();
    let node = field(1, &[b"\x0a\x01a\x12\x01b".to_vec(), field(5, &attr)].concat());
    let small = Limits { memory: 64 << 20, ..Limits::default() };
    let found = super::super::graph_as(Form::GraphBinary, &node, &small);
    assert_eq!(limit(found.map(|document| document.graph)), "bytes of memory");
    // In text form, and in a JSON list.
    let text = "node{} ".repeat(300_000);
    assert_eq!(read(&text).unwrap_err().location, Location::Line { line: 1, column: 7 });
    let json = format!(r#"{{"nodes": [{}]}}"#, "{},".repeat(300_000));
    assert!(error(json).contains("missing field `name`"));
}

#[test]
fn memory_is_bounded_by_the_size_of_the_file() {
    // Items of two bytes that each need a separate text.
    let inputs = b"\x1a\x00".repeat(1_000_000);
    let node = field(1, &[b"\x0a\x01a\x12\x01b".as_slice(), &inputs].concat());
    let small = Limits { memory: 16 << 20, ..Limits::default() };
    let found = super::super::graph_as(Form::GraphBinary, &node, &small);
    assert_eq!(limit(found.map(|document| document.graph)), "bytes of memory");
    let json = format!(r#"{{"nodes": [{}]}}"#, "1,".repeat(1 << 20));
    let found = super::super::graph(json.as_bytes(), &small);
    assert_eq!(limit(found.map(|document| document.graph)), "bytes");
}

#[test]
fn deep_nesting_is_refused() {
    let mut message = Vec::new();
    for _ in 0..200 {
        // The function of an attribute has an attribute that is a function, and so on.
        let called = field(2, &[b"\x0a\x01x".to_vec(), field(2, &field(10, &message))].concat());
        message = called;
    }
    let attr = [b"\x0a\x01x".to_vec(), field(2, &field(10, &message))].concat();
    let node = field(1, &field(5, &attr));
    assert_eq!(limit(read_as(Form::GraphBinary, node)), "nested messages");
    let text = format!("node {{ {}", "attr { value { func { ".repeat(100_000));
    assert_eq!(limit(read_as(Form::GraphText, text)), "nested messages");
    let ignored = format!("versions {{ {}", "a { ".repeat(100_000));
    assert!(error(ignored).ends_with("messages nest too deep"));
    let json = format!(r#"{{"nodes":[{{"name":"a","op":"b","attrs":{{"x":{}"#, "[".repeat(10_000));
    assert!(error(json).contains("recursion limit exceeded"));
}

#[test]
fn false_lengths_and_numbers_are_refused() {
    for (file, reason) in [
        (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01".as_slice(), "bytes where 0 are left"),
        (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", "a number of more than 64 bits"),
        (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "a number of more than 64 bits"),
        (b"\x0a\x05\x0a\x05ab", "a value of 5 bytes where 4 are left"),
        (b"\x0a\x04\x0a\x05ab", "a value of 5 bytes where 2 are left"),
        (b"\x0a\x80", "the message ends in the middle of a number"),
        (b"\x02\x00", "a field without a valid number"),
        (b"\x80\x80\x80\x80\x10\x00", "a field without a valid number"),
        (b"\xf8\xff\xff\xff\xff\xff\x0f\x00", "a field without a valid number"),
        (b"\x0b\x0c", "field 1 has the wire type 3"),
        (b"\x08\x01", "node has the wrong encoding"),
        (b"\x1a\x01\x00", "version has the wrong encoding"),
        (
            b"\x0a\x0b\x2a\x09\x12\x07\x42\x05\x2a\x03abc",
            "float_val ends in the middle of a number",
        ),
        (b"\x0a\x04\x0a\x02\xff\xfe", "text that is not UTF-8"),
    ] {
        let found = read_as(Form::GraphBinary, file).unwrap_err().to_string();
        assert!(found.ends_with(reason), "{found}");
    }
    for (text, reason) in [
        ("node { name: '\\400' }", "an escaped byte above 255"),
        ("node { name: '\\uD800' }", "an invalid escaped character"),
        ("node { name: '\\q' }", "unknown escape sequence"),
        ("node { name: 'a\n' }", "expected the end of a string"),
        ("node { name: '\\xff' }", "text that is not UTF-8"),
        ("node { name 'a' }", "expected ':' or a message, found '''"),
        ("node { name: ['a' 'b' 'c', ] }", "expected a string, found ']'"),
        ("node { attr { value { i: 9223372036854775808 } } }", "found '9223372036854775808'"),
        ("node { attr { value { i: 1.5 } } }", "found '1.5'"),
        ("node { attr { value { f: 1.5.5 } } }", "expected a number, found '1.5.5'"),
        ("node { attr { value { b: yes } } }", "expected true or false, found 'yes'"),
        ("node { >", "expected the name of a field, found '>'"),
        ("node { \u{7f}", "expected the name of a field, found byte 127"),
        ("versions { a: [ } ", "unexpected '}'"),
    ] {
        let found = read_as(Form::GraphText, text).unwrap_err().to_string();
        assert!(found.ends_with(reason), "{found}");
    }
}

#[test]
fn control_characters_of_a_file_are_escaped_in_errors() {
    let json = "{\"nodes\": [{\"name\": \"a\", \"op\": \"b\", \"\\u001b[31m\": 1}]}";
    assert!(error(json).contains("\\u{1b}[31m"), "{}", error(json));
    assert!(error("node { name: 'a\\033[31m' }").contains("node 'a\\u{1b}[31m' has no operation"));
}

#[test]
fn files_of_no_form_are_refused() {
    assert_eq!(error(""), "read the graph: the file is empty");
    assert!(error(b"\x89PNG\r\n\x1a\n").ends_with("nor an ONNX model"));
    assert!(error(b"GGUF\x03\x00\x00\x00").ends_with("nor an ONNX model"));
    assert!(read("\u{feff}{}").is_ok());
}
