//! The values of constants.

use super::super::{Form, Limits, graph_as};
use crate::def::{Attr, Content};
use crate::dtype::Dtype;

/// A field with these bytes, such as a message or packed numbers.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, u8::try_from(bytes.len()).unwrap()], bytes].concat()
}

/// A constant with a tensor.
fn wire(tensor: &[u8]) -> Vec<u8> {
    let value = field(2, &field(8, tensor));
    let attr = field(5, &[field(1, b"value"), value].concat());
    field(1, &[field(1, b"a"), field(2, b"Const"), attr].concat())
}

fn text(tensor: &str) -> String {
    format!(
        r#"node {{ name: "a" op: "Const" attr {{ key: "value" value {{ tensor {{ {tensor} }} }} }} }}"#
    )
}

fn read(form: Form, file: &[u8], contents: bool) -> Attr {
    let limits = Limits { contents, ..Limits::default() };
    let document = graph_as(form, file, &limits).expect("it is well-formed");
    document.graph.nodes[0].attrs["value"].clone()
}

/// A type, its name, the number and the name of its list, the text of a list, and the bytes of the
/// elements.
type List = (Dtype, &'static str, u8, &'static str, &'static str, Vec<u8>);

/// Returns lists of two elements of each type.
fn lists() -> [List; 4] {
    let pair = |first: &[u8], second: &[u8]| [first, second].concat();
    let float = pair(&1.5_f32.to_le_bytes(), &(-2.0_f32).to_le_bytes());
    let double = pair(&1.25_f64.to_le_bytes(), &(-3.0_f64).to_le_bytes());
    let int = pair(&7_i32.to_le_bytes(), &(-1_i32).to_le_bytes());
    let long = pair(&(1_i64 << 40).to_le_bytes(), &(-1_i64).to_le_bytes());
    [
        (Dtype::FLOAT, "DT_FLOAT", 5, "float_val", "[1.5, -2]", float),
        (Dtype::DOUBLE, "DT_DOUBLE", 6, "double_val", "[1.25, -3]", double),
        (Dtype::INT32, "DT_INT32", 7, "int_val", "[7, -1]", int),
        (Dtype::INT64, "DT_INT64", 10, "int64_val", "[1099511627776, -1]", long),
    ]
}

#[test]
fn listed_elements_become_bytes_of_their_type() {
    let minus_one = [&[0xff; 9][..], &[1]].concat();
    let seven = [&[7][..], &minus_one].concat();
    let large = [&[0x80, 0x80, 0x80, 0x80, 0x80, 0x20][..], &minus_one].concat();
    for (dtype, name, number, list, numbers, bytes) in lists() {
        // Fixed sizes in both floating types, varints in the others.
        let packed = match number {
            5 | 6 => bytes.clone(),
            7 => seven.clone(),
            _ => large.clone(),
        };
        let shape = field(2, &field(2, &[8, 2]));
        let tensor = [&[8, dtype.number() as u8][..], &shape, &field(number, &packed)].concat();
        let printed =
            format!("dtype: {name} tensor_shape {{ dim {{ size: 2 }} }} {list}: {numbers}");
        let expected = |content| Attr::Tensor { dtype: Some(dtype), shape: Some(vec![2]), content };
        for (form, file) in
            [(Form::GraphBinary, wire(&tensor)), (Form::GraphText, text(&printed).into())]
        {
            let content = Some(Box::new(Content { bytes: bytes.clone(), is_list: true }));
            assert_eq!(read(form, &file, true), expected(content), "{name} {form:?}");
            assert_eq!(read(form, &file, false), expected(None), "{name} {form:?}");
        }
    }
}

#[test]
fn values_of_the_json_form_become_bytes_of_their_type() {
    let of = |name: &str, values: &str| {
        let tensor = format!(r#"{{"dtype": "{name}", "shape": [2], "values": {values}}}"#);
        let attr = format!(r#"{{"value": {{"tensor": {tensor}}}}}"#);
        let file = format!(r#"{{"nodes": [{{"name": "a", "op": "Const", "attrs": {attr}}}]}}"#);
        let limits = Limits { contents: true, ..Limits::default() };
        let document = graph_as(Form::Json, file.as_bytes(), &limits);
        document.map(|of| of.graph.nodes[0].attrs["value"].clone()).map_err(|of| of.to_string())
    };
    for (dtype, name, _, _, values, bytes) in lists() {
        let name = name.trim_start_matches("DT_").to_lowercase();
        let content = Some(Box::new(Content { bytes, is_list: true }));
        let expected = Attr::Tensor { dtype: Some(dtype), shape: Some(vec![2]), content };
        assert_eq!(of(&name, values), Ok(expected), "{name}");
    }
    for (name, values, reason) in [
        ("int32", "[2147483648]", "the value 2147483648 is not of the type of the tensor"),
        ("int64", "[0.5]", "the value 0.5 is not of the type of the tensor"),
        ("bool", "[1]", "values need the type float, double, int32 or int64"),
    ] {
        let error = of(name, values).unwrap_err();
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn whole_content_is_kept_as_it_is_and_wins_over_a_list() {
    let tensor = [&[8, 1][..], &field(5, &[0; 4]), &field(4, b"abcd")].concat();
    let of = |contents| read(Form::GraphBinary, &wire(&tensor), contents);
    let expected = |content| Attr::Tensor { dtype: Some(Dtype::FLOAT), shape: None, content };
    let content = Content { bytes: b"abcd".to_vec(), is_list: false };
    assert_eq!(of(true), expected(Some(Box::new(content))));
    assert_eq!(of(false), expected(None));
    // No list belongs to other types.
    let text = text("dtype: DT_STRING tensor_content: 'abcd'");
    let Attr::Tensor { content, .. } = read(Form::GraphText, text.as_bytes(), true) else {
        panic!("a tensor")
    };
    assert_eq!(content, None);
}
