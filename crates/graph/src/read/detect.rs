//! Detects the form of a file from its content, because no form has a magic number.

use super::Form;
use super::error::{Location, ReadError, Reason};
use super::limit::Limits;
use super::message::Kind::{self, Length, Varint};
use super::wire::Wire;

/// Detects the form of a file.
///
/// Binary forms are distinguished by the numbers and encodings of their outermost fields; lists of
/// operations and kernels by their first item, or by the first name in text.
///
/// # Errors
/// If the file is empty or of unknown form.
pub fn detect(file: &[u8]) -> Result<Form, ReadError> {
    let blank = |byte: &u8| byte.is_ascii_whitespace();
    let file = file.strip_prefix(b"\xef\xbb\xbf").unwrap_or(file);
    let start = file.iter().position(|byte| !blank(byte)).unwrap_or(file.len());
    let text = file.get(start..).unwrap_or_default();
    if text.first() == Some(&b'{') && in_braces(text.get(1..).unwrap_or_default()) {
        return Ok(Form::Json);
    }
    if let Some(form) = binary(file) {
        return Ok(form);
    }
    if is_text(text) {
        return Ok(match first_name(text) {
            b"op" => Form::Ops,
            b"kernel" => Form::Kernels,
            _ => Form::GraphText,
        });
    }
    let reason = Reason::malformed(if file.is_empty() {
        "the file is empty"
    } else {
        "it is neither JSON, a GraphDef, a SavedModel nor an ONNX model"
    });
    Err(ReadError { form: None, location: Location::Whole, reason })
}

/// Whether the rest continues a JSON object.
fn in_braces(rest: &[u8]) -> bool {
    let first = rest.iter().find(|byte| !byte.is_ascii_whitespace());
    matches!(first, None | Some(b'"' | b'}'))
}

/// Whether this may be the start of a message in text form.
fn is_text(text: &[u8]) -> bool {
    text.first().is_some_and(|first| first.is_ascii_alphabetic() || b"#_[".contains(first))
        && text.iter().take(1 << 10).all(|byte| *byte >= b' ' || byte.is_ascii_whitespace())
}

/// Returns the name of the first field of a message in text form.
fn first_name(mut text: &[u8]) -> &[u8] {
    while text.first() == Some(&b'#') {
        let end = text.iter().position(|byte| *byte == b'\n').unwrap_or(text.len());
        text = text.get(end..).unwrap_or_default().trim_ascii_start();
    }
    let end = text.iter().position(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_');
    text.get(..end.unwrap_or(text.len())).unwrap_or_default()
}

/// Whether a list of operations or kernels is in binary form: its only field is number 1.
pub(super) fn is_binary_list(file: &[u8]) -> bool {
    outline(file).is_some_and(|outline| outline.iter().all(|field| *field == (1, Length)))
}

/// Returns the kinds of fields of a message, each once; `None` if it is malformed.
fn outline(file: &[u8]) -> Option<Vec<(u32, Kind)>> {
    let limits = Limits { bytes: u64::MAX, ..Limits::default() };
    let mut wire = Wire::new(file, Form::GraphBinary, &limits).ok()?;
    let mut fields = Vec::new();
    while let Some(field) = wire.field().ok()? {
        if !fields.contains(&field) {
            fields.push(field);
        }
        if fields.len() > MOST_FIELDS {
            return None;
        }
    }
    Some(fields)
}

/// More fields than any message has here.
const MOST_FIELDS: usize = 64;

fn binary(file: &[u8]) -> Option<Form> {
    let fields = outline(file)?;
    let has = |field| fields.contains(&field);
    let only = |allowed: &dyn Fn(u32, Kind) -> bool| fields.iter().all(|(n, k)| allowed(*n, *k));
    if has((7, Length)) && has((1, Varint)) {
        return Some(Form::Onnx);
    }
    if has((1, Varint)) && has((2, Length)) && only(&|number, _| number <= 2) {
        return Some(Form::SavedModel);
    }
    if has((1, Length)) && fields.len() == 1 {
        return Some(list(file));
    }
    let graph = |number, kind| match number {
        1 | 2 | 4 | 5 => kind == Length,
        3 => kind == Varint,
        _ => false,
    };
    let meta = |number, kind| (1..=7).contains(&number) && kind == Length;
    if has((2, Length)) && only(&meta) && is_meta_graph(file) {
        return Some(Form::MetaGraph);
    }
    (!fields.is_empty() && only(&graph)).then_some(Form::GraphBinary)
}

/// Returns the type of the items of field 1. Field 2 is the name of the operation in a node, a type
/// of device in capitals in a kernel, and a message or absent in an operation. Field 5 is a
/// message, the attribute, in a node, and text in a kernel.
fn list(file: &[u8]) -> Form {
    let item = first(file, 1).unwrap_or_default();
    let in_capitals = |text: &[u8]| !text.iter().any(u8::is_ascii_lowercase);
    match first(item, 2).filter(|text| is_name(text)) {
        Some(text) if in_capitals(text) && first(item, 5).is_none_or(is_name) => Form::Kernels,
        Some(_) => Form::GraphBinary,
        None => Form::Ops,
    }
}

/// Whether field 2 is a graph with nodes rather than a library: field 1 of a node is its name, and
/// field 1 of a function is a message, its signature.
fn is_meta_graph(file: &[u8]) -> bool {
    let Some(node) = first(file, 2).and_then(|graph| first(graph, 1)) else { return false };
    first(node, 1).is_some_and(is_name) && first(node, 2).is_some_and(is_name)
}

fn is_name(bytes: &[u8]) -> bool {
    let name = std::str::from_utf8(bytes);
    name.is_ok_and(|name| !name.is_empty() && !name.contains(char::is_control))
}

/// Returns the first value of a field of a message.
fn first(message: &[u8], number: u32) -> Option<&[u8]> {
    let limits = Limits { bytes: u64::MAX, ..Limits::default() };
    let mut wire = Wire::new(message, Form::GraphBinary, &limits).ok()?;
    while let Some((field, kind)) = wire.field().ok()? {
        if (field, kind) == (number, Length) {
            return Some(wire.raw());
        }
    }
    None
}
