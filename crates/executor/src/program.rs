//! A graph whose operations compute values.

mod order;
mod variables;

use crate::context::Context;
use crate::error::RunError;
use crate::graph::{GraphError, NodeIx, TaskGraph};
use crate::lock::lock;
use crate::meter::{Meter, RunLimits};
use crate::operation::{OpError, Operation, Update};
use crate::pool::Pool;
use crate::run::Options;
use crate::tensor::Tensor;
use crate::threads::Threads;
use crate::trace::Trace;
use crate::values::Values;
use gpu_graph::{Graph, NodeId};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use variables::Variables;

/// A graph whose operations compute values: the operations that the fetched values need, and
/// before them the initializers of the variables that these use.
///
/// The initializer of a variable `v` is the `Assign` named `v/Assign`, else the first in the graph
/// that assigns to it. Operations on a variable that no edge orders run in the order of the graph
/// ([`Graph::order`]), so the values do not depend on the number of threads.
#[derive(Debug)]
pub struct Program<'a> {
    graph: &'a Graph,
    tasks: Vec<Task>,
    variables: Variables,
    order: TaskGraph,
    fetches: Vec<Fetch>,
}

/// A node that runs.
#[derive(Clone, Debug)]
struct Task {
    node: NodeId,
    operation: Operation,
    inputs: Vec<Input>,
    /// Whether it only passes a variable on.
    is_handle: bool,
}

/// What an input of a task reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Input {
    /// An output of another task, by its position among the values that the task reads.
    Value(usize),
    /// A variable.
    Variable(usize),
}

#[derive(Clone, Debug)]
struct Fetch {
    name: String,
    /// `None` for an operation that is run for its effect.
    input: Option<Input>,
}

/// A value that was asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Fetched {
    /// Its name, such as `c:0`; that of the operation if it has no output.
    pub name: String,
    /// The value; `None` for an operation without output.
    pub tensor: Option<Arc<Tensor>>,
}

/// What a run returns.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The values, in the order in which they were requested.
    pub fetched: Vec<Fetched>,
    /// When each operation ran; empty without a clock.
    pub trace: Trace,
}

/// How a program runs.
#[derive(Clone, Debug)]
pub struct ProgramOptions {
    /// The number of operations that run at the same time; at least 1.
    pub inter_op_threads: usize,
    /// The number of threads that share the work of one operation; at least 1.
    pub intra_op_threads: usize,
    /// Limits on memory and work.
    pub limits: RunLimits,
    /// The clock, and whether the run can be canceled.
    pub run: Options,
}

/// Why a graph cannot compute the values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProgramError {
    /// There is no node with this name.
    #[error("fetch '{0}': the graph has no such operation")]
    UnknownNode(String),
    /// The node has no such output.
    #[error("fetch '{name}': the operation has {outputs} outputs, numbered from 0")]
    UnknownOutput {
        /// The name that was asked for.
        name: String,
        /// The number of outputs of the operation.
        outputs: usize,
    },
    /// Operations have no kernel here, by name with the number of nodes.
    #[error("compute {}", unsupported_text(.0))]
    Unsupported(BTreeMap<String, usize>),
    /// Operations wait for each other.
    #[error(transparent)]
    Order(#[from] GraphError),
}

/// The number of operations that a message names.
const NAMED: usize = 6;

fn unsupported_text(of: &BTreeMap<String, usize>) -> String {
    let named = of.iter().take(NAMED).map(|(op, count)| match count {
        1 => op.clone(),
        count => format!("{op} ({count} times)"),
    });
    let named = named.collect::<Vec<_>>().join(", ");
    if of.len() > NAMED { format!("{named}, …") } else { named }
}

impl<'a> Program<'a> {
    /// Prepares the computation of values by name: `c:0`, or `c` for the first output or for an
    /// operation without output. Without any name, these are the outputs of all operations that no
    /// other operation uses, except for initializers.
    ///
    /// # Errors
    /// If a name is unknown, an operation has no kernel here, or operations wait for each other.
    pub fn of(graph: &'a Graph, fetches: &[String]) -> Result<Self, ProgramError> {
        order::prepare(graph, fetches)
    }

    /// Returns the tasks of the trace.
    pub(crate) fn into_tasks(self) -> TaskGraph {
        self.order
    }

    /// Runs the operations and returns the values.
    ///
    /// # Errors
    /// The error of the first operation that fails.
    ///
    /// # Panics
    /// If the system cannot create a thread.
    pub fn run(&self, options: &ProgramOptions) -> Result<Outcome, RunError<OpError>> {
        // The last task reads the values that were asked for.
        let last = NodeIx(self.tasks.len() as u32);
        let threads = Threads::new(options.intra_op_threads);
        #[expect(clippy::expect_used, reason = "documented, as in Pool::scope")]
        let threads = threads.expect("the system can create a thread");
        let run = Running {
            program: self,
            values: self.slots(),
            state: self.variables.state(),
            meter: Meter::new(options.limits),
            threads,
            fetched: Mutex::default(),
        };
        let kernel = |at: NodeIx, _: &Context<'_, '_>| match self.tasks.get(at.index()) {
            Some(task) => run.run(task, at),
            None => run.fetch(last),
        };
        let report = Pool::scope(options.inter_op_threads, |pool| {
            pool.run(&self.order, kernel, &options.run)
        })?;
        let fetched = std::mem::take(&mut *lock(&run.fetched));
        Ok(Outcome { fetched, trace: report.trace.unwrap_or_default() })
    }

    /// Returns a slot for each value.
    fn slots(&self) -> Values {
        let outputs = self.tasks.iter().map(|task| self.graph.node(task.node).outputs.len() as u32);
        let outputs: Vec<u32> = outputs.chain([0]).collect();
        // The order has been built from the same outputs.
        Values::new(&outputs, &self.variables.reads).unwrap_or_default()
    }
}

/// A program while it runs.
struct Running<'a> {
    program: &'a Program<'a>,
    values: Values,
    state: Vec<Mutex<Option<Arc<Tensor>>>>,
    meter: Meter,
    threads: Threads,
    fetched: Mutex<Vec<Fetched>>,
}

impl Running<'_> {
    fn run(&self, task: &Task, at: NodeIx) -> Result<(), OpError> {
        let node = self.program.graph.node(task.node);
        match task.operation {
            Operation::Variable => {}
            _ if task.is_handle => {}
            Operation::Assign(update) => self.assign(update, task, at)?,
            operation => {
                let inputs = task.inputs.iter().map(|input| self.read(at, *input));
                let inputs = inputs.collect::<Result<Vec<_>, _>>()?;
                let outputs = operation.compute(node, &inputs, &self.meter, &self.threads)?;
                for (index, output) in outputs.into_iter().enumerate() {
                    let set = self.values.of_node(at).set_output(index, output);
                    set.map_err(|_| OpError::Malformed)?;
                }
            }
        }
        self.values.release_inputs(at);
        Ok(())
    }

    fn assign(&self, update: Update, task: &Task, at: NodeIx) -> Result<(), OpError> {
        let node = self.program.graph.node(task.node);
        let Some((Input::Variable(of), others)) = task.inputs.split_first() else {
            return Err(OpError::Malformed);
        };
        let others = others.iter().map(|input| self.read(at, *input));
        let others = others.collect::<Result<Vec<_>, _>>()?;
        let before = match update {
            Update::Replace => self.variable(*of).ok(),
            _ => Some(self.variable(*of)?),
        };
        let declared = self.program.variables.declared(*of);
        let computing = (&self.meter, &self.threads);
        let new = update.apply(node, before.as_ref(), declared, &others, computing)?;
        if let Some(slot) = self.state.get(*of) {
            *lock(slot) = Some(new);
        }
        Ok(())
    }

    fn read(&self, at: NodeIx, input: Input) -> Result<Arc<Tensor>, OpError> {
        match input {
            Input::Variable(of) => self.variable(of),
            Input::Value(index) => {
                let value = self.values.of_node(at).input::<Arc<Tensor>>(index);
                Ok(Arc::clone(&*value.map_err(|_| OpError::Malformed)?))
            }
        }
    }

    fn variable(&self, of: usize) -> Result<Arc<Tensor>, OpError> {
        let value = self.state.get(of).and_then(|slot| lock(slot).clone());
        let name = || self.program.variables.name(of).to_owned();
        value.ok_or_else(|| OpError::Uninitialized(name()))
    }

    fn fetch(&self, last: NodeIx) -> Result<(), OpError> {
        let fetched = self.program.fetches.iter().map(|fetch| {
            let tensor = fetch.input.map(|input| self.read(last, input)).transpose()?;
            Ok(Fetched { name: fetch.name.clone(), tensor })
        });
        *lock(&self.fetched) = fetched.collect::<Result<_, OpError>>()?;
        self.values.release_inputs(last);
        Ok(())
    }
}
