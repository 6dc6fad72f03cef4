//! The values that nodes pass to each other.

use crate::graph::NodeIx;
use crate::lock::lock;
use gpu_graph::Graph;
use std::any::Any;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// The reason why a value cannot be read or set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// The node has no such input or output.
    #[error("find {0}: the node has fewer")]
    Unknown(Port),
    /// The source has not set the value, or its last reader has taken it.
    #[error("read {0}: it has no value")]
    Missing(Port),
    /// The value has another type.
    #[error("read {0}: it has a different type")]
    WrongType(Port),
}

/// An input or output of a node, by index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// An input.
    Input(NodeIx, usize),
    /// An output.
    Output(NodeIx, usize),
}

impl std::fmt::Display for Port {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Input(node, at) => write!(f, "input {at} of node {}", node.0),
            Self::Output(node, at) => write!(f, "output {at} of node {}", node.0),
        }
    }
}

type Value = Arc<dyn Any + Send + Sync>;

#[derive(Debug, Default)]
struct Slot {
    value: Mutex<Option<Value>>,
    readers: AtomicU32,
}

/// A slot for each output of each node. A value is dropped when its last reader has run; a value
/// without readers stays until it is taken as a result.
#[derive(Debug, Default)]
pub struct Values {
    slots: Vec<Slot>,
    /// The first output slot of each node.
    outputs: Vec<usize>,
    /// The slots that inputs read.
    inputs: Vec<usize>,
    /// The index of the first input of each node.
    input_offsets: Vec<usize>,
}

impl Values {
    /// Creates slots for outputs, given the number of outputs of each node, and for each input the
    /// node and output that it reads.
    ///
    /// # Errors
    /// [`ValueError::Unknown`] if an input reads an output that does not exist.
    pub fn new(outputs: &[u32], inputs: &[Vec<(NodeIx, u32)>]) -> Result<Self, ValueError> {
        let mut values = Self { outputs: vec![0], input_offsets: vec![0], ..Self::default() };
        let mut total = 0;
        for count in outputs {
            total += *count as usize;
            values.outputs.push(total);
        }
        values.slots.resize_with(total, Slot::default);
        for reads in inputs {
            for (node, output) in reads {
                let slot = values.slot(*node, *output as usize)?;
                values.slots[slot].readers.fetch_add(1, Ordering::Relaxed);
                values.inputs.push(slot);
            }
            values.input_offsets.push(values.inputs.len());
        }
        Ok(values)
    }

    /// Creates slots for the outputs of a graph of operations.
    ///
    /// # Errors
    /// Like [`Values::new`].
    pub fn of(graph: &Graph) -> Result<Self, ValueError> {
        let nodes = graph.nodes();
        let outputs: Vec<u32> = nodes.iter().map(|node| node.outputs.len() as u32).collect();
        let reads = nodes.iter().map(|node| {
            let inputs = node.inputs.iter();
            inputs.map(|source| (NodeIx(source.node.0), source.output)).collect()
        });
        Self::new(&outputs, &reads.collect::<Vec<_>>())
    }

    /// Returns the values of one node, for its kernel.
    pub fn of_node(&self, node: NodeIx) -> Io<'_> {
        Io { values: self, node }
    }

    /// Marks a node as done with its inputs, and drops values without further readers. Call it once
    /// for each node, after its kernel.
    pub fn release_inputs(&self, node: NodeIx) {
        for slot in self.inputs_of(node) {
            let slot = &self.slots[*slot];
            if slot.readers.fetch_sub(1, Ordering::AcqRel) == 1 {
                let value = lock(&slot.value).take();
                drop(value);
            }
        }
    }

    /// Takes an output that no node reads, or that has unfinished readers.
    ///
    /// # Errors
    /// [`ValueError`] if there is no such output, no value, or one of another type.
    pub fn take<T: Send + Sync + 'static>(
        &self,
        node: NodeIx,
        output: usize,
    ) -> Result<Arc<T>, ValueError> {
        let value = lock(&self.slots[self.slot(node, output)?].value).take();
        typed(value, Port::Output(node, output))
    }

    /// Returns the number of values currently held.
    pub fn held(&self) -> usize {
        self.slots.iter().filter(|slot| lock(&slot.value).is_some()).count()
    }

    fn slot(&self, node: NodeIx, output: usize) -> Result<usize, ValueError> {
        let unknown = ValueError::Unknown(Port::Output(node, output));
        let ends = self.outputs.get(node.index()..).and_then(|ends| ends.get(..2));
        let ends = ends.ok_or(unknown)?;
        let slot = ends[0].checked_add(output).ok_or(unknown)?;
        if slot < ends[1] { Ok(slot) } else { Err(unknown) }
    }

    fn inputs_of(&self, node: NodeIx) -> &[usize] {
        match self.input_offsets.get(node.index()..).and_then(|ends| ends.get(..2)) {
            Some(ends) => &self.inputs[ends[0]..ends[1]],
            None => &[],
        }
    }
}

fn typed<T: Send + Sync + 'static>(value: Option<Value>, port: Port) -> Result<Arc<T>, ValueError> {
    value.ok_or(ValueError::Missing(port))?.downcast().map_err(|_| ValueError::WrongType(port))
}

/// The inputs and outputs of one node.
#[derive(Clone, Copy, Debug)]
pub struct Io<'a> {
    values: &'a Values,
    node: NodeIx,
}

impl Io<'_> {
    /// Returns an input, which it shares with other readers.
    ///
    /// # Errors
    /// [`ValueError`] if there is no such input, no value, or one of another type.
    pub fn input<T: Send + Sync + 'static>(&self, at: usize) -> Result<Arc<T>, ValueError> {
        let port = Port::Input(self.node, at);
        let slot = self.values.inputs_of(self.node).get(at).ok_or(ValueError::Unknown(port))?;
        let value = lock(&self.values.slots[*slot].value).clone();
        typed(value, port)
    }

    /// Sets an output and replaces an earlier value. A value without readers stays until it is
    /// taken.
    ///
    /// # Errors
    /// [`ValueError::Unknown`] if there is no such output.
    pub fn set_output<T: Send + Sync + 'static>(
        &self,
        at: usize,
        value: T,
    ) -> Result<(), ValueError> {
        let slot = self.values.slot(self.node, at)?;
        let before = lock(&self.values.slots[slot].value).replace(Arc::new(value));
        drop(before);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: NodeIx = NodeIx(0);
    const B: NodeIx = NodeIx(1);
    const C: NodeIx = NodeIx(2);

    fn values() -> Values {
        Values::new(&[2, 1, 0], &[vec![], vec![(A, 0)], vec![(A, 0), (B, 0)]]).expect("they exist")
    }

    #[test]
    fn value_is_dropped_after_its_last_reader() {
        let values = values();
        let watched = Arc::new(());
        values.of_node(A).set_output(0, Arc::clone(&watched)).expect("it exists");
        assert_eq!(Arc::strong_count(&watched), 2);
        values.of_node(B).input::<Arc<()>>(0).expect("it is set");
        values.release_inputs(B);
        assert_eq!(Arc::strong_count(&watched), 2);
        values.of_node(C).input::<Arc<()>>(0).expect("it is set");
        values.release_inputs(C);
        assert_eq!((Arc::strong_count(&watched), values.held()), (1, 0));
        let missing = ValueError::Missing(Port::Input(C, 0));
        assert!(missing.to_string().contains("input 0 of node 2"), "{missing}");
        assert_eq!(values.of_node(C).input::<Arc<()>>(0), Err(missing));
    }

    #[test]
    fn unread_output_is_a_result() {
        let values = values();
        values.of_node(A).set_output(1, 7_u32).expect("it exists");
        assert_eq!(values.take::<u32>(A, 1).as_deref(), Ok(&7));
        assert_eq!(values.held(), 0);
    }

    #[test]
    fn wrong_types_and_ports_are_errors() {
        let values = values();
        values.of_node(A).set_output(0, 7_u32).expect("it exists");
        let wrong = ValueError::WrongType(Port::Input(B, 0));
        assert_eq!(values.of_node(B).input::<u64>(0), Err(wrong));
        let unknown = ValueError::Unknown(Port::Input(B, 1));
        assert_eq!(values.of_node(B).input::<u32>(1), Err(unknown));
        assert_eq!(
            values.of_node(C).set_output(0, 1),
            Err(ValueError::Unknown(Port::Output(C, 0)))
        );
        assert!(Values::new(&[1], &[vec![(NodeIx(9), 0)]]).is_err());
    }
}
