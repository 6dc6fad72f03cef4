//! Graphs printed in protobuf's text form and in JSON.

use crate::def::{ArgDef, ArgKind, Attr, FunctionDef, GraphDef, NodeDef, OpDef};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Prints a graph in protobuf's text form.
pub(super) fn text(def: &GraphDef) -> String {
    let mut text = String::from("# a graph\n");
    for node in &def.nodes {
        writeln!(text, "node {{ {}\n}}", text_node(node)).unwrap();
    }
    text.push_str("versions { producer: 1994 [a.b/c.Extension] { x: [1, 2] } }\n");
    if !def.functions.is_empty() {
        let functions = def.functions.iter().map(text_function);
        let functions = functions.collect::<Vec<_>>().join(",\n");
        write!(text, "library <function: [{functions}]>;").unwrap();
    }
    text
}

fn text_node(node: &NodeDef) -> String {
    let mut text = format!("name: {} op: {}", quoted(&node.name), quoted(&node.op));
    for (index, input) in node.inputs.iter().enumerate() {
        let separator = [" ", ", ", "; ", "\n# and\n"][index % 4];
        write!(text, "{separator}input: {}", quoted(input)).unwrap();
    }
    write!(text, " device: {} {}", quoted(&node.device), text_attrs(&node.attrs)).unwrap();
    text
}

fn text_function(function: &FunctionDef) -> String {
    let OpDef { name, inputs, outputs, attrs, stateful } = &function.signature;
    let mut text = format!("{{ signature {{ name: {} is_stateful: {stateful} ", quoted(name));
    for (field, args) in [("input_arg", inputs), ("output_arg", outputs)] {
        for arg in args {
            write!(text, "{field} {{ name: {} ", quoted(&arg.name)).unwrap();
            let kind = match &arg.kind {
                ArgKind::Repeated(count, of) => {
                    write!(text, "number_attr: {} ", quoted(count)).unwrap();
                    of
                }
                single => single,
            };
            match kind {
                ArgKind::Type(dtype) => write!(text, "type: {dtype}"),
                ArgKind::TypeAttr(name) => write!(text, "type_attr: {}", quoted(name)),
                ArgKind::TypeListAttr(name) => write!(text, "type_list_attr: {}", quoted(name)),
                ArgKind::Repeated(..) => unreachable!("a count of counts"),
            }
            .unwrap();
            write!(text, " is_ref: {} }} ", arg.reference).unwrap();
        }
    }
    for (name, default) in attrs {
        write!(text, "attr {{ name: {} type: 'any' ", quoted(name)).unwrap();
        if let Some(default) = default {
            write!(text, "default_value {{ {} }} ", text_value(default, "")).unwrap();
        }
        text.push_str("} ");
    }
    text.push_str("}\n");
    for node in &function.nodes {
        write!(text, "node_def {{ {} }} ", text_node(node)).unwrap();
    }
    for (name, value) in &function.returns {
        write!(text, "ret {{ key: {} value: {} }} ", quoted(name), quoted(value)).unwrap();
    }
    text + "}"
}

fn text_attrs(attrs: &BTreeMap<String, Attr>) -> String {
    let one = |(name, value): (&String, &Attr)| {
        format!("attr {{ key: {} value {{ {} }} }}", quoted(name), text_value(value, ""))
    };
    attrs.iter().map(one).collect::<Vec<_>>().join(" ")
}

fn text_value(value: &Attr, suffix: &str) -> String {
    let dims = |shape: &Option<Vec<i64>>| match shape {
        Some(dims) => dims.iter().map(|dim| format!("dim {{ size: {dim} }} ")).collect(),
        None => "unknown_rank: true".to_owned(),
    };
    match value {
        Attr::Int(number) if *number > 9 => format!("i: {number:#x}"),
        Attr::Int(number) => format!("i: {number}"),
        Attr::Float(number) => format!("f: {number:?}{suffix}"),
        Attr::Bool(flag) => format!("b: {flag}"),
        Attr::Text(text) => format!("s: {}", quoted(text)),
        Attr::Type(of) => format!("type: {of}"),
        Attr::Shape(shape) => format!("shape {{ {} }}", dims(shape)),
        Attr::Tensor { dtype, shape, .. } => {
            let dtype = dtype.map_or("DT_INVALID".to_owned(), |of| of.to_string());
            let content = r#"tensor_content: "\001\377}" "{" float_val: [1, -2.5e+3, nan]"#;
            format!("tensor {{ dtype: {dtype} tensor_shape {{ {} }} {content} }}", dims(shape))
        }
        Attr::Function(name, attrs) => {
            format!("func {{ name: {} {} }}", quoted(name), text_attrs(attrs))
        }
        Attr::Placeholder(name) => format!("placeholder: {}", quoted(name)),
        Attr::List(items) => {
            let items = items.iter().map(|item| text_value(item, "f"));
            format!("list {{ {} }}", items.collect::<Vec<_>>().join(" "))
        }
    }
}

/// Quotes a text, in two pieces.
fn quoted(text: &str) -> String {
    let half = text.char_indices().nth(text.chars().count() / 2).map_or(0, |(at, _)| at);
    let (first, second) = text.split_at(half);
    let escaped: String = first.chars().map(escaped).collect();
    let octal: String = second.bytes().map(|byte| format!("\\{byte:03o}")).collect();
    format!("\"{escaped}\" # and\n'{octal}'")
}

fn escaped(char: char) -> String {
    match char {
        '"' | '\\' => format!("\\{char}"),
        '\n' => "\\n".to_owned(),
        'a'..='f' => format!("\\x{:x}", u32::from(char)),
        _ if char.is_control() => format!("\\U{:08x}", u32::from(char)),
        _ => char.to_string(),
    }
}

/// Prints a graph as a document in JSON.
pub(super) fn json(def: &GraphDef) -> String {
    let functions: Vec<_> = def.functions.iter().map(json_function).collect();
    let nodes: Vec<_> = def.nodes.iter().map(json_node).collect();
    json!({ "schema": 1, "nodes": nodes, "functions": functions }).to_string()
}

fn json_node(node: &NodeDef) -> Value {
    json!({
        "name": node.name, "op": node.op, "inputs": node.inputs, "device": node.device,
        "attrs": json_attrs(&node.attrs),
    })
}

fn json_function(function: &FunctionDef) -> Value {
    let OpDef { name, inputs, outputs, attrs, stateful } = &function.signature;
    let args = |args: &[ArgDef]| args.iter().map(json_arg).collect::<Vec<_>>();
    let attrs = attrs.iter().map(|(name, value)| (name.clone(), value.as_ref().map(json_value)));
    json!({
        "name": name, "inputs": args(inputs), "outputs": args(outputs), "stateful": stateful,
        "attrs": attrs.collect::<BTreeMap<_, _>>(), "returns": function.returns,
        "nodes": function.nodes.iter().map(json_node).collect::<Vec<_>>(),
    })
}

fn json_arg(arg: &ArgDef) -> Value {
    let mut value = json!({ "name": arg.name, "reference": arg.reference });
    let kind = match &arg.kind {
        ArgKind::Repeated(count, of) => {
            value["number_attr"] = json!(count);
            of
        }
        single => single,
    };
    match kind {
        ArgKind::Type(dtype) => value["type"] = json!(dtype.to_string()),
        ArgKind::TypeAttr(name) => value["type_attr"] = json!(name),
        ArgKind::TypeListAttr(name) => value["type_list_attr"] = json!(name),
        ArgKind::Repeated(..) => unreachable!("a count of counts"),
    }
    value
}

fn json_attrs(attrs: &BTreeMap<String, Attr>) -> BTreeMap<String, Value> {
    attrs.iter().map(|(name, value)| (name.clone(), json_value(value))).collect()
}

fn json_value(value: &Attr) -> Value {
    match value {
        Attr::Int(number) => json!(number),
        Attr::Float(number) => json!(number),
        Attr::Bool(flag) => json!(flag),
        Attr::Text(text) => json!(text),
        Attr::Type(of) => json!({ "type": of.to_string() }),
        Attr::Shape(shape) => json!({ "shape": shape }),
        Attr::Tensor { dtype, shape, .. } => {
            json!({ "tensor": { "dtype": dtype.map(|of| of.to_string()), "shape": shape } })
        }
        Attr::Function(name, attrs) => {
            json!({ "function": { "name": name, "attrs": json_attrs(attrs) } })
        }
        Attr::Placeholder(name) => json!({ "placeholder": name }),
        Attr::List(items) => json!(items.iter().map(json_value).collect::<Vec<_>>()),
    }
}
