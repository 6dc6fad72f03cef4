//! Operations, kernels and devices for the cases, and a notation for graphs.
//!
//! A node is `name = Op input input ^control @request ~colocated !assigned`. `Op<t>` sets the
//! attribute `T`; `call:F<t>` calls the function `F`.

use gpu_graph::{
    ArgDef, ArgKind, Attr, DeviceSet, Dtype, FunctionDef, Graph, GraphDef, Kernel, NodeDef, OpDef,
    Registry, ValueType,
};
use std::collections::BTreeMap;

/// Operation, arguments, results, kernels. `C` is FakeCPU, `G` FakeGPU, `X` XLA_CPU, `D` all types;
/// a digit is the priority. A name ending in C or G has a kernel for that type only.
pub(crate) const OPS: &[(&str, &str, &str, &str)] = &[
    ("Var", "", "ref", "C G"),
    ("VarC", "", "ref", "C"),
    ("VarG", "", "ref", "G"),
    ("VarNone", "", "ref", ""),
    ("SetVar", "ref f", "", "C G"),
    ("SetVarC", "ref f", "", "C"),
    ("SetVarG", "ref f", "", "G"),
    ("Enforce", "ref", "f", "C G"),
    ("In", "", "f f", "C"),
    ("Out", "", "f", "C G"),
    ("OutG", "", "f", "G"),
    ("Dev", "", "f f", "G"),
    ("Plus", "f f", "f", "C G"),
    ("Rectify", "f", "f", "C G"),
    ("RectifyC", "f", "f", "C"),
    ("RectifyG", "f", "f", "G"),
    ("Data", "f", "f", "C2 G1"),
    ("XlaOp", "f", "f", "X2 C1"),
    ("SetC", "", "res", "C"),
    ("SetG", "", "res", "G"),
    ("SetSP", "", "res", "C2 G1"),
    ("SetRP", "", "res", "C1 G2"),
    ("SetNP", "", "res", "C G"),
    ("IterNP", "res", "f", "C G"),
    ("IterSP", "res", "f", "C2 G1"),
    ("IterRP", "res", "f", "C1 G2"),
    ("IterG", "res", "f", "G"),
    ("Handle", "", "res", "C G"),
    ("HandleC", "", "res", "C"),
    ("HandleG", "", "res", "G"),
    ("SetHandle", "res f", "", "C G"),
    ("SetHandleC", "res f", "", "C"),
    ("SetHandleG", "res f", "", "G"),
    ("TwoHandles", "res res", "", "C G"),
];

/// Operations of TensorFlow itself, with the names of their arguments and results.
const BUILT_IN: &[(&str, &str, &str, &str)] = &[
    ("Shape", "input:T", "output:i", "C G D"),
    ("_Arg", "", "output:T", "C G D"),
    ("_Retval", "input:T", "", "C G D"),
    ("Identity", "input:T", "output:T", "C G D"),
    ("Mul", "x:T y:T", "z:T", "C G"),
    ("Add", "x:T y:T", "z:T", "C G"),
    ("PartitionedCall", "args:Tin", "output:Tout", "C G D"),
];

fn dtype(text: &str) -> Dtype {
    match text {
        "i" => Dtype::INT32,
        "res" => Dtype::RESOURCE,
        _ => Dtype::FLOAT,
    }
}

fn args(text: &str, prefix: &str) -> Vec<ArgDef> {
    let arg = |(at, text): (usize, &str)| {
        let numbered = format!("{prefix}{at}");
        let (name, text) = text.split_once(':').unwrap_or((&numbered, text));
        let kind = match text {
            "T" => ArgKind::TypeAttr("T".into()),
            "Tin" | "Tout" => ArgKind::TypeListAttr(text.into()),
            _ => ArgKind::Type(dtype(text)),
        };
        ArgDef { name: name.into(), kind, reference: text == "ref" }
    };
    text.split_whitespace().enumerate().map(arg).collect()
}

/// Returns the types of devices and the priorities of their kernels.
pub(crate) fn kernels(text: &str) -> impl Iterator<Item = (&'static str, i32)> + '_ {
    text.split_whitespace().map(|kernel| {
        let (kind, priority) = kernel.split_at(1);
        (kind_name(kind), priority.parse().unwrap_or(0))
    })
}

fn kind_name(letter: &str) -> &'static str {
    match letter {
        "C" => "FakeCPU",
        "G" => "FakeGPU",
        "X" => "XLA_CPU",
        "D" => "DEFAULT",
        other => panic!("no type of device {other}"),
    }
}

pub(crate) fn registry() -> Registry {
    let mut registry = Registry::default();
    for (name, inputs, outputs, of) in OPS.iter().chain(BUILT_IN) {
        let (inputs, outputs) = (args(inputs, "i"), args(outputs, "o"));
        registry.add_op(OpDef { name: (*name).into(), inputs, outputs, ..OpDef::default() });
        for (device_type, priority) in kernels(of) {
            let (op, device_type) = ((*name).into(), device_type.into());
            registry.add_kernel(Kernel { op, device_type, priority, ..Kernel::default() });
        }
    }
    registry
}

const HERE: &str = "/job:a/replica:0/task:0/device:";

/// Returns the names of `count` devices of each fake type and the XLA device.
pub(crate) fn device_names(count: usize) -> Vec<String> {
    let fakes = (0..count).flat_map(|at| {
        [format!("{HERE}FakeCPU:{at}"), format!("{HERE}FakeGPU:{}", count - 1 - at)]
    });
    fakes.chain([format!("{HERE}XLA_CPU:0")]).collect()
}

/// Returns a set of devices by its name in the cases: a number of each fake type, or a list.
pub(crate) fn devices(named: &str) -> DeviceSet {
    let names = match named.parse() {
        Ok(count) => device_names(count),
        Err(_) => named.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect(),
    };
    let mut set = DeviceSet::named(names.iter().map(String::as_str)).unwrap();
    set.set_priority("FakeCPU", 50);
    set.set_priority("FakeGPU", 51);
    set
}

/// Writes the short forms `C`, `C7`, `/job:a C7` of a device in full.
pub(crate) fn device(short: &str) -> String {
    let (process, short) = short.split_once('+').unwrap_or(("", short));
    match (short.get(..1), short.get(1..).unwrap_or("").parse::<u32>()) {
        (Some(kind @ ("C" | "G" | "X")), Ok(index)) => {
            format!("{process}/device:{}:{index}", kind_name(kind))
        }
        _ => short.to_owned(),
    }
}

fn attr(name: &str, of: &str) -> (String, Attr) {
    (name.to_owned(), Attr::Type(ValueType::of(dtype(of))))
}

/// Reads a node in the notation.
pub(crate) fn node(line: &str, functions: &[FunctionDef]) -> NodeDef {
    let (name, rest) = line.split_once(" = ").expect(line);
    let mut words = rest.split_whitespace();
    let op = words.next().expect(line);
    let (op, of) = op.split_once('<').unwrap_or((op, "f>"));
    let mut node = NodeDef { name: name.trim().into(), op: op.into(), ..NodeDef::default() };
    if BUILT_IN.iter().any(|(name, ..)| *name == op) {
        node.attrs.extend([attr("T", of.trim_end_matches('>'))]);
    }
    if let Some(function) = op.strip_prefix("call:") {
        node.op = "PartitionedCall".into();
        let of = attr("T", of.trim_end_matches('>'));
        let signature = functions.iter().find(|f| f.signature.name == function).expect(line);
        let type_of = |arg: &ArgDef| match &arg.kind {
            ArgKind::Type(dtype) => Attr::Type(ValueType::of(*dtype)),
            _ => of.1.clone(),
        };
        let types = |args: &[ArgDef]| Attr::List(args.iter().map(type_of).collect());
        let (inputs, outputs) =
            (types(&signature.signature.inputs), types(&signature.signature.outputs));
        node.attrs.extend([
            ("Tin".to_owned(), inputs),
            ("Tout".to_owned(), outputs),
            ("f".to_owned(), Attr::Function(function.into(), BTreeMap::from([of]))),
        ]);
    }
    let mut classes = Vec::new();
    for word in words {
        if let Some(request) = word.strip_prefix('@') {
            node.device = device(request);
        } else if let Some(group) = word.strip_prefix('~') {
            classes.push(Attr::Text(format!("loc:@{group}")));
        } else if !word.starts_with('!') {
            node.inputs.push(word.to_owned());
        }
    }
    if !classes.is_empty() {
        node.attrs.insert("_class".into(), Attr::List(classes));
    }
    node
}

/// Reads a function: `name(arguments -> results) node; node; result = value`.
fn function(name: &str, inputs: &[(&str, &str)], outputs: &[(&str, &str, &str)]) -> FunctionDef {
    let arg = |name: &str, of: &str| ArgDef {
        name: name.into(),
        kind: match of {
            "T" => ArgKind::TypeAttr("T".into()),
            _ => ArgKind::Type(dtype(of)),
        },
        reference: false,
    };
    let signature = OpDef {
        name: name.into(),
        inputs: inputs.iter().map(|(name, of)| arg(name, of)).collect(),
        outputs: outputs.iter().map(|(name, of, _)| arg(name, of)).collect(),
        attrs: if inputs.iter().any(|(_, of)| *of == "T") {
            BTreeMap::from([("T".to_owned(), None)])
        } else {
            BTreeMap::new()
        },
        ..OpDef::default()
    };
    let returns = outputs.iter().map(|(name, _, value)| ((*name).into(), (*value).into()));
    FunctionDef { signature, nodes: Vec::new(), returns: returns.collect() }
}

/// Returns the functions that cases call.
pub(crate) fn functions() -> Vec<FunctionDef> {
    let mut all = vec![
        function(
            "PassResource",
            &[("x", "f"), ("y", "res")],
            &[("y_out", "res", "y"), ("twice", "f", "mul:z:0")],
        ),
        function(
            "Swap",
            &[("a", "T"), ("b", "T")],
            &[("c", "T", "x:output:0"), ("d", "T", "y:output:0")],
        ),
        function("Same", &[("x", "res")], &[("y", "res", "out:output:0")]),
        function("MakeC", &[("x", "f")], &[("set", "res", "make:o0:0"), ("x_out", "f", "x")]),
        function(
            "CallMakeC",
            &[("x", "f")],
            &[("set", "res", "y:output:0"), ("z", "f", "y:output:1")],
        ),
        function("Clash", &[], &[("out", "res", "add:z:0")]),
        function("Self", &[("x", "res")], &[("y", "res", "out:output:0")]),
        function("Ping", &[("x", "res")], &[("y", "res", "out:output:0")]),
        function("Pong", &[("x", "res")], &[("y", "res", "out:output:0")]),
    ];
    let bodies: &[(&str, &[&str])] = &[
        ("PassResource", &["mul = Mul x x"]),
        ("Swap", &["x = Identity<T> b", "y = Identity<T> a"]),
        ("Same", &["out = Identity<res> x"]),
        ("MakeC", &["make = SetC"]),
        ("CallMakeC", &["y = call:MakeC x"]),
        (
            "Clash",
            &[
                "c = SetC",
                "y = call:Same c:o0:0",
                "w = call:Same y:output:0",
                "g = SetG",
                "z = call:Same g:o0:0",
                "add = Add<res> w:output:0 z:output:0",
            ],
        ),
        ("Self", &["out = call:Self x"]),
        ("Ping", &["out = call:Pong x"]),
        ("Pong", &["out = call:Ping x"]),
    ];
    let known = all.clone();
    for (name, body) in bodies {
        let function = all.iter_mut().find(|f| f.signature.name == *name).unwrap();
        function.nodes = body.iter().map(|line| node(line, &known)).collect();
        for node in &mut function.nodes {
            if *name == "Swap" {
                node.attrs.insert("T".into(), Attr::Placeholder("T".into()));
            }
        }
    }
    all
}

/// Builds a graph of lines in the notation.
pub(crate) fn graph<'a>(lines: impl IntoIterator<Item = &'a str>, registry: &Registry) -> Graph {
    let lines = Vec::from_iter(lines);
    let functions = functions();
    let nodes = lines.iter().map(|line| node(line, &functions)).collect();
    let mut graph = Graph::build(GraphDef { nodes, functions }, registry).unwrap();
    for (node, line) in graph.nodes_mut().iter_mut().zip(lines) {
        let assigned = line.split_whitespace().find_map(|word| word.strip_prefix('!'));
        node.assigned = assigned.map(|short| match device(short) {
            local if local.starts_with("/device") => {
                format!("{}{local}", HERE.trim_end_matches("/device:"))
            }
            full => full,
        });
    }
    graph
}
