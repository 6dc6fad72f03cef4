//! The table of operations and kernels that the crate includes; `data/export.py` explains its form.

use super::Kernel;
use crate::def::{ArgDef, ArgKind, Attr, OpDef};
use crate::dtype::{Dtype, ValueType};
use std::collections::HashMap;
use std::sync::{LazyLock, OnceLock};

static TENSORFLOW: LazyLock<Table> =
    LazyLock::new(|| Table::new(include_str!("../../data/tensorflow-2.21.ops")));

/// Returns the table of TensorFlow 2.21.
pub(super) fn tensorflow() -> &'static Table {
    &TENSORFLOW
}

/// Operations by name, each parsed at its first use.
#[derive(Debug)]
pub(super) struct Table {
    entries: HashMap<&'static str, Entry>,
}

#[derive(Debug)]
struct Entry {
    op: &'static str,
    kernels: &'static str,
    parsed: OnceLock<(OpDef, Vec<Kernel>)>,
}

impl Table {
    fn new(text: &'static str) -> Table {
        let mut entries = HashMap::new();
        let mut rest = text;
        while let Some((line, after)) = rest.split_once('\n') {
            // The lines of kernels begin with a space.
            let mut end = 0;
            while after[end..].starts_with(' ') {
                end = after[end..].find('\n').map_or(after.len(), |at| end + at + 1);
            }
            let (kernels, after) = after.split_at(end);
            rest = after;
            if !line.starts_with('#') {
                let name = line.split([' ', '!']).next().unwrap_or_default();
                entries.insert(name, Entry { op: line, kernels, parsed: OnceLock::new() });
            }
        }
        Table { entries }
    }

    pub(super) fn op(&self, name: &str) -> Option<&OpDef> {
        self.entries.get(name).map(|entry| &entry.parsed().0)
    }

    pub(super) fn kernels(&self, name: &str) -> &[Kernel] {
        self.entries.get(name).map(|entry| entry.parsed().1.as_slice()).unwrap_or_default()
    }
}

impl Entry {
    fn parsed(&self) -> &(OpDef, Vec<Kernel>) {
        self.parsed.get_or_init(|| {
            let op = operation(self.op);
            let kernels = self.kernels.lines().flat_map(|line| kernels(&op.name, line)).collect();
            (op, kernels)
        })
    }
}

/// Parses `MatMul a:T b:T > product:T | T`.
fn operation(line: &str) -> OpDef {
    let mut op = OpDef::default();
    let (arguments, attrs) = line.split_once(" |").unwrap_or((line, ""));
    let (head, outputs) = arguments.split_once(" >").unwrap_or((arguments, ""));
    let mut words = head.split(' ');
    let name = words.next().unwrap_or_default();
    op.stateful = name.ends_with('!');
    op.name = name.trim_end_matches('!').to_owned();
    op.inputs = words.filter_map(argument).collect();
    op.outputs = outputs.split(' ').filter_map(argument).collect();
    op.attrs = attrs.split(' ').filter(|word| !word.is_empty()).map(attribute).collect();
    op
}

/// Parses `a:T`, `a:=1`, `a:*T` or `a:N*T`, with `&` at the end for a reference.
fn argument(word: &str) -> Option<ArgDef> {
    let (name, kind) = word.split_once(':')?;
    let reference = kind.ends_with('&');
    let kind = kind.trim_end_matches('&');
    let one = |kind: &str| match kind.strip_prefix('=') {
        Some(number) => dtype(number).map(ArgKind::Type),
        None => Some(ArgKind::TypeAttr(kind.to_owned())),
    };
    let kind = match kind.split_once('*') {
        Some(("", list)) => ArgKind::TypeListAttr(list.to_owned()),
        Some((count, of)) => ArgKind::Repeated(count.to_owned(), Box::new(one(of)?)),
        None => one(kind)?,
    };
    Some(ArgDef { name: name.to_owned(), kind, reference })
}

/// Parses `T`, `T=1`, `T=*1,2` or `N=#1`.
fn attribute(word: &str) -> (String, Option<Attr>) {
    let Some((name, value)) = word.split_once('=') else {
        return (word.to_owned(), None);
    };
    let value = if let Some(list) = value.strip_prefix('*') {
        let types = list.split(',').filter_map(dtype);
        Some(Attr::List(types.map(|of| Attr::Type(ValueType::of(of))).collect()))
    } else if let Some(number) = value.strip_prefix('#') {
        number.parse().ok().map(Attr::Int)
    } else {
        dtype(value).map(|of| Attr::Type(ValueType::of(of)))
    };
    (name.to_owned(), value)
}

/// Parses ` CPU+1 T=1|2 @shape`: a kernel for each combination of alternatives.
fn kernels(op: &str, line: &str) -> Vec<Kernel> {
    let mut words = line.split(' ').filter(|word| !word.is_empty());
    let device = words.next().unwrap_or_default();
    let (device, priority) = device.split_once('+').unwrap_or((device, "0"));
    let mut kernels = vec![Kernel {
        op: op.to_owned(),
        device_type: device.to_owned(),
        priority: priority.parse().unwrap_or_default(),
        ..Kernel::default()
    }];
    for word in words {
        if let Some(name) = word.strip_prefix('@') {
            kernels.iter_mut().for_each(|kernel| kernel.host_memory.push(name.to_owned()));
        } else if let Some((name, alternatives)) = word.split_once('=') {
            let with = |kernel: &Kernel, types: &str| {
                let types = types.split(',').filter_map(dtype).collect();
                let mut kernel = kernel.clone();
                kernel.constraints.insert(name.to_owned(), types);
                kernel
            };
            let one = |kernel: Kernel| alternatives.split('|').map(move |of| with(&kernel, of));
            kernels = kernels.into_iter().flat_map(one).collect::<Vec<_>>();
        }
    }
    kernels
}

fn dtype(number: &str) -> Option<Dtype> {
    ValueType::numbered(number.parse().ok()?).map(|of| of.dtype)
}

#[cfg(test)]
mod tests {
    use super::super::Registry;
    use super::*;
    use std::collections::BTreeMap;

    fn attrs(name: &str, of: Dtype) -> BTreeMap<String, Attr> {
        BTreeMap::from([(name.to_owned(), Attr::Type(ValueType::of(of)))])
    }

    fn devices(op: &str, attrs: &BTreeMap<String, Attr>) -> Vec<String> {
        let registry = Registry::tensorflow();
        let kernels = registry.kernels(op).iter().filter(|kernel| kernel.accepts(attrs));
        kernels.map(|kernel| kernel.device_type.clone()).collect()
    }

    #[test]
    fn tensorflow_runs_products_of_floats_on_cpu_and_gpu() {
        let mut found = devices("MatMul", &attrs("T", Dtype::FLOAT));
        found.sort();
        assert_eq!(found, ["CPU", "GPU"]);
        assert_eq!(devices("MatMul", &attrs("T", Dtype::STRING)), [""; 0]);
    }

    #[test]
    fn tensorflow_has_no_integer_variables_on_gpu() {
        assert_eq!(devices("VariableV2", &attrs("dtype", Dtype::INT32)), ["CPU"]);
        assert!(devices("VariableV2", &attrs("dtype", Dtype::FLOAT)).contains(&"GPU".to_owned()));
    }

    #[test]
    fn tensorflow_parses_examples_on_cpu_only() {
        let registry = Registry::tensorflow();
        let kernels = registry.kernels("ParseExampleV2");
        assert!(!kernels.is_empty() && kernels.iter().all(|kernel| kernel.device_type == "CPU"));
    }

    #[test]
    fn constant_integers_are_in_host_memory_of_any_device() {
        let found = devices("Const", &attrs("dtype", Dtype::INT32));
        assert!(found.contains(&"DEFAULT".to_owned()), "{found:?}");
        let registry = Registry::tensorflow();
        let of_int32 = |kernel: &&Kernel| kernel.accepts(&attrs("dtype", Dtype::INT32));
        let mut kernels = registry.kernels("Const").iter().filter(of_int32);
        let default = kernels.find(|kernel| kernel.device_type == "DEFAULT").unwrap();
        assert_eq!(default.host_memory, ["output"]);
    }

    #[test]
    fn definitions_have_types_lists_counts_and_references() {
        let registry = Registry::tensorflow();
        let assign = registry.op("Assign").unwrap();
        assert!(assign.inputs[0].reference && !assign.inputs[1].reference);
        assert_eq!(assign.inputs[0].kind, ArgKind::TypeAttr("T".to_owned()));
        let add = &registry.op("AddN").unwrap().inputs[0];
        let of = Box::new(ArgKind::TypeAttr("T".to_owned()));
        assert_eq!(add.kind, ArgKind::Repeated("N".to_owned(), of));
        let call = registry.op("PartitionedCall").unwrap();
        assert_eq!(call.outputs[0].kind, ArgKind::TypeListAttr("Tout".to_owned()));
        let handle = registry.op("VarHandleOp").unwrap();
        assert!(handle.stateful);
        assert_eq!(handle.outputs[0].kind, ArgKind::Type(Dtype::RESOURCE));
        let op = registry.op("Where").unwrap();
        assert_eq!(op.attrs["T"], Some(Attr::Type(ValueType::numbered(10).unwrap())));
        assert_eq!(registry.op("NoSuchOperation"), None);
    }

    #[test]
    fn every_word_of_the_table_is_read() {
        let table = tensorflow();
        let mut kernels = 0;
        for entry in table.entries.values() {
            let (op, found) = entry.parsed();
            let arguments = entry.op.split(" |").next().unwrap().split(' ');
            let colons = arguments.filter(|word| word.contains(':')).count();
            assert_eq!(op.inputs.len() + op.outputs.len(), colons, "{}", entry.op);
            for kernel in found {
                assert!(kernel.constraints.values().all(|types| !types.is_empty()), "{kernel:?}");
            }
            kernels += found.len();
        }
        assert_eq!((table.entries.len(), kernels), (1910, 15245));
    }

    #[test]
    fn kernels_are_added_to_those_of_the_table() {
        let mut registry = Registry::tensorflow();
        let known = registry.kernels("MatMul").len();
        let device_type = "NPU".to_owned();
        registry.add_kernel(Kernel { op: "MatMul".to_owned(), device_type, ..Kernel::default() });
        assert_eq!(registry.kernels("MatMul").len(), known + 1);
        assert_eq!(Registry::tensorflow().kernels("MatMul").len(), known);
    }
}
