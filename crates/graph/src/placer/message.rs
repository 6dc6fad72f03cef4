//! The texts of messages, in TensorFlow's form.

use crate::def::Attr;
use crate::node::Node;
use crate::registry::Registry;
use std::collections::BTreeMap;

/// Joins texts.
pub(super) fn join<T: AsRef<str>>(texts: impl IntoIterator<Item = T>, between: &str) -> String {
    let mut joined = String::new();
    for text in texts {
        if !joined.is_empty() {
            joined.push_str(between);
        }
        joined.push_str(text.as_ref());
    }
    joined
}

/// Lists the kernels of an operation, with their constraints.
pub(super) fn kernels(registry: &Registry, op: &str) -> String {
    let kernels = registry.kernels(op);
    if kernels.is_empty() {
        return "  <no registered kernels>\n".to_owned();
    }
    let mut text = String::new();
    for kernel in kernels {
        text += &format!("  device='{}'", kernel.device_type);
        for (name, allowed) in &kernel.constraints {
            let allowed = join(allowed.iter().map(|dtype| dtype.to_string()), ", ");
            text += &format!("; {name} in [{allowed}]");
        }
        text.push('\n');
    }
    text
}

/// Lists the attributes of a node.
pub(super) fn attrs(of: &BTreeMap<String, Attr>) -> String {
    join(of.iter().map(|(name, attr)| format!("{name}={}", value(attr))), ", ")
}

/// Writes the value of an attribute. Long lists are cut in the middle, like TensorFlow's.
fn value(attr: &Attr) -> String {
    match attr {
        Attr::Int(number) => number.to_string(),
        Attr::Float(number) => number.to_string(),
        Attr::Bool(of) => of.to_string(),
        Attr::Text(text) => format!("{text:?}"),
        Attr::Type(of) => of.to_string(),
        Attr::Shape(of) => shape(of.as_deref()),
        Attr::Tensor { dtype, shape: of, .. } => {
            let dtype = dtype.map_or_else(|| "DT_INVALID".to_owned(), |dtype| dtype.to_string());
            format!("Tensor<type: {dtype} shape: {}>", shape(of.as_deref()))
        }
        Attr::Function(name, inner) if inner.is_empty() => name.clone(),
        Attr::Function(name, inner) => format!("{name}[{}]", attrs(inner)),
        Attr::Placeholder(name) => format!("${name}"),
        Attr::List(items) if items.len() > 10 => {
            let (first, last) = (&items[..5], &items[items.len() - 5..]);
            let [first, last] = [first, last].map(|part| join(part.iter().map(value), ", "));
            format!("[{first}, ..., {last}]")
        }
        Attr::List(items) => format!("[{}]", join(items.iter().map(value), ", ")),
    }
}

fn shape(of: Option<&[i64]>) -> String {
    let size = |size: &i64| if *size < 0 { "?".to_owned() } else { size.to_string() };
    of.map_or_else(|| "<unknown>".to_owned(), |of| format!("[{}]", join(of.iter().map(size), ",")))
}

/// Writes the types of the inputs of a node.
pub(super) fn input_types(nodes: &[Node], node: &Node) -> String {
    let types = node.inputs.iter().filter_map(|source| {
        let of = nodes.get(source.node.index())?.outputs.get(source.output as usize)?;
        Some(of.to_string().trim_start_matches("DT_").to_lowercase())
    });
    join(types, ", ")
}

/// Names a node in the context of placement.
pub(super) fn colocated(node: &Node) -> String {
    format!("{{{{colocation_node {}}}}}", node.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::{Dtype, ValueType};
    use crate::registry::Kernel;

    #[test]
    fn attributes_are_written_like_those_of_tensorflow() {
        let float = Attr::Type(ValueType::of(Dtype::FLOAT));
        for (attr, text) in [
            (Attr::List(vec![float.clone(), Attr::Bool(true)]), "[DT_FLOAT, true]"),
            (Attr::Text("a\"b".into()), r#""a\"b""#),
            (Attr::Shape(Some(vec![2, -1])), "[2,?]"),
            (Attr::Shape(None), "<unknown>"),
            (
                Attr::Tensor { dtype: Some(Dtype::INT32), shape: Some(vec![]), content: None },
                "Tensor<type: DT_INT32 shape: []>",
            ),
            (Attr::Function("f".into(), [("T".to_owned(), float)].into()), "f[T=DT_FLOAT]"),
            (Attr::List(vec![Attr::Int(7); 11]), "[7, 7, 7, 7, 7, ..., 7, 7, 7, 7, 7]"),
        ] {
            assert_eq!(attrs(&[("a".to_owned(), attr)].into()), format!("a={text}"));
        }
    }

    #[test]
    fn kernels_are_listed_with_their_constraints() {
        let mut registry = Registry::default();
        assert_eq!(kernels(&registry, "MatMul"), "  <no registered kernels>\n");
        let mut kernel =
            Kernel { op: "MatMul".into(), device_type: "GPU".into(), ..Kernel::default() };
        kernel.constraints.insert("T".into(), vec![Dtype::FLOAT, Dtype::INT32]);
        registry.add_kernel(kernel);
        let text = "  device='GPU'; T in [DT_FLOAT, DT_INT32]\n";
        assert_eq!(kernels(&registry, "MatMul"), text);
    }
}
