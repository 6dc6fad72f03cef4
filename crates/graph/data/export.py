#!/usr/bin/env python3
"""Writes TensorFlow's operations and kernels as the table that gpu-graph includes.

    python3 -m venv /tmp/tf && /tmp/tf/bin/pip install tensorflow==2.21.0
    /tmp/tf/bin/python export.py > tensorflow-2.21.ops

The package `tensorflow` has the kernels for GPUs, `tensorflow-cpu` has not. No GPU is needed.

An operation is a line, and its kernels are the lines below it, which begin with a space:

    MatMul a:T b:T > product:T | T
     CPU T=1|2|19
     GPU T=1|2

An argument is NAME:TYPE, and TYPE is `=1` (a type by its number in types.proto), `T` (the type in
that attribute), `*T` (the types in it) or `N*TYPE` (as many as attribute N says), with `&` at its
end for a reference. `!` after the name of an operation: it has state. After the bar are the
attributes that hold types or numbers of arguments, with their defaults: `T=1`, `Ts=*1,3`, `N=#2`.

A line of kernels is a device type, a priority after `+`, constraints, and with `@` the arguments in
host memory. `T=1|2` are two kernels, `T=1,2` is one kernel for both types; two constraints with
alternatives stand for each combination.
"""

import sys

import tensorflow as tf
from tensorflow.core.framework import op_def_pb2
from tensorflow.python.client import pywrap_tf_session
from tensorflow.python.framework import kernels as registered


def argument(arg):
    if arg.type_list_attr:
        kind = "*" + arg.type_list_attr
    else:
        kind = arg.type_attr or f"={arg.type}"
        if arg.number_attr:
            kind = f"{arg.number_attr}*{kind}"
    return f"{arg.name}:{kind}{'&' if arg.is_ref else ''}"


def attribute(attr):
    if not attr.HasField("default_value"):
        return attr.name
    value = attr.default_value
    if attr.type == "type":
        return f"{attr.name}={value.type}"
    if attr.type == "list(type)":
        return f"{attr.name}=*{','.join(map(str, value.list.type))}"
    return f"{attr.name}=#{value.i}"


def operation(op):
    numbers = {arg.number_attr for arg in [*op.input_arg, *op.output_arg]}
    kept = [a for a in op.attr if a.type in ("type", "list(type)") or a.name in numbers]
    words = [op.name + ("!" if op.is_stateful else "")]
    words += [argument(arg) for arg in op.input_arg] + [">"]
    words += [argument(arg) for arg in op.output_arg] + ["|"]
    words += [attribute(attr) for attr in kept]
    return " ".join(words)


def key(kernel):
    # Few kernels are for certain numbers or flags; whether those are allowed is not in the table.
    of_types = [c for c in kernel.constraint if c.allowed_values.list.type]
    constraints = tuple((c.name, tuple(c.allowed_values.list.type)) for c in of_types)
    return kernel.device_type, kernel.priority, constraints, tuple(kernel.host_memory_arg)


def merged(kernels):
    """Merges kernels that differ in one constraint only, until none do."""
    lines = [
        (device, priority, tuple((name, (types,)) for name, types in constraints), host)
        for device, priority, constraints, host in kernels
    ]
    width = max((len(line[2]) for line in lines), default=0)
    for at in range(width):
        groups = {}
        for device, priority, constraints, host in lines:
            if at >= len(constraints):
                groups.setdefault((device, priority, constraints, host, None), []).append(())
                continue
            name, alternatives = constraints[at]
            others = constraints[:at] + ((name, None),) + constraints[at + 1 :]
            groups.setdefault((device, priority, others, host, name), []).extend(alternatives)
        lines = []
        for (device, priority, others, host, name), alternatives in groups.items():
            if name is None:
                lines += [(device, priority, others, host)] * len(alternatives)
                continue
            filled = others[:at] + ((name, tuple(alternatives)),) + others[at + 1 :]
            lines.append((device, priority, filled, host))
    return lines


def expanded(line):
    device, priority, constraints, host = line
    combinations = [()]
    for name, alternatives in constraints:
        combinations = [c + ((name, types),) for c in combinations for types in alternatives]
    return [(device, priority, combination, host) for combination in combinations]


def line_of(line):
    device, priority, constraints, host = line
    words = [device + (f"+{priority}" if priority else "")]
    for name, alternatives in constraints:
        words.append(f"{name}={'|'.join(','.join(map(str, types)) for types in alternatives)}")
    words += [f"@{name}" for name in host]
    return " " + " ".join(words)


ops = op_def_pb2.OpList.FromString(pywrap_tf_session.TF_GetBuffer(pywrap_tf_session.TF_GetAllOpList()))
by_op = {}
for kernel in registered.get_all_registered_kernels().kernel:
    # A kernel with a label runs only where a node asks for the label.
    if not kernel.label:
        by_op.setdefault(kernel.op, {})[key(kernel)] = True

print(f"# TensorFlow {tf.__version__}: operations and kernels, written by export.py, which explains the form.")
kernels = 0
for op in sorted(ops.op, key=lambda op: op.name):
    print(operation(op))
    lines = merged(list(by_op.get(op.name, {})))
    again = [kernel for line in lines for kernel in expanded(line)]
    assert sorted(again) == sorted(by_op.get(op.name, {})), op.name
    kernels += len(again)
    for line in lines:
        print(line_of(line))
print(f"{len(ops.op)} operations, {kernels} kernels", file=sys.stderr)
