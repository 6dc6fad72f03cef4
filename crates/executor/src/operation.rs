//! The operations that have a kernel here, and what they compute.
//!
//! Names, attributes, rules for shapes and messages are TensorFlow's (`array_ops.cc`, `math_ops.cc`,
//! `state_ops.cc`, `training_ops.cc`). A sum adds its elements in the order of their indices,
//! so the result does not depend on the number of threads.

use crate::meter::{Meter, OverLimit};
use crate::tensor::{Data, Element, Tensor, constant, each_type, known_shape, read, shape_text};
use crate::threads::Threads;
use gpu_graph::replicate::{ADD, COPY, JOIN, SCALE, SPLIT};
use gpu_graph::{Attr, Dtype, Node};
use std::sync::Arc;

/// An operation with a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    NoOp,
    Const,
    /// Makes a variable.
    Variable,
    /// Replaces the value of the variable that is the first input.
    Assign(Update),
    /// Passes its input on.
    Identity,
    Binary(Binary),
    Unary(Unary),
    AddN,
    MatMul,
    Sum,
    Split,
    Join,
    Scale,
}

/// How a variable changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Update {
    Replace,
    Add,
    Subtract,
    /// Subtracts the second input times the third.
    Descend,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Binary {
    Add,
    Sub,
    Mul,
    Div,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unary {
    Neg,
    Relu,
}

const OPERATIONS: [(&str, Operation); 31] = [
    ("NoOp", Operation::NoOp),
    ("Const", Operation::Const),
    ("Variable", Operation::Variable),
    ("VariableV2", Operation::Variable),
    ("VarHandleOp", Operation::Variable),
    ("Assign", Operation::Assign(Update::Replace)),
    ("AssignVariableOp", Operation::Assign(Update::Replace)),
    ("AssignAdd", Operation::Assign(Update::Add)),
    ("AssignAddVariableOp", Operation::Assign(Update::Add)),
    ("AssignSub", Operation::Assign(Update::Subtract)),
    ("AssignSubVariableOp", Operation::Assign(Update::Subtract)),
    ("ApplyGradientDescent", Operation::Assign(Update::Descend)),
    ("ResourceApplyGradientDescent", Operation::Assign(Update::Descend)),
    ("Identity", Operation::Identity),
    ("ReadVariableOp", Operation::Identity),
    (COPY, Operation::Identity),
    ("Add", Operation::Binary(Binary::Add)),
    ("AddV2", Operation::Binary(Binary::Add)),
    (ADD, Operation::Binary(Binary::Add)),
    ("Sub", Operation::Binary(Binary::Sub)),
    ("Mul", Operation::Binary(Binary::Mul)),
    ("Div", Operation::Binary(Binary::Div)),
    ("RealDiv", Operation::Binary(Binary::Div)),
    ("Neg", Operation::Unary(Unary::Neg)),
    ("Relu", Operation::Unary(Unary::Relu)),
    ("AddN", Operation::AddN),
    ("MatMul", Operation::MatMul),
    ("Sum", Operation::Sum),
    (SPLIT, Operation::Split),
    (JOIN, Operation::Join),
    (SCALE, Operation::Scale),
];

/// Why an operation cannot compute its outputs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpError {
    /// The shapes of the inputs do not fit together.
    #[error("Incompatible shapes: {} vs. {}", shape_text(.0), shape_text(.1))]
    Shapes(Vec<usize>, Vec<usize>),
    /// The shapes of matrices do not fit together.
    #[error("Matrix size-incompatible: In[0]: {}, In[1]: {}", shape_text(.0), shape_text(.1))]
    Matrices(Vec<usize>, Vec<usize>),
    /// A variable has another shape than its new value.
    #[error(
        "Assign requires shapes of both tensors to match. lhs shape= {} rhs shape= {}",
        shape_text(.0),
        shape_text(.1)
    )]
    Assigned(Vec<usize>, Vec<usize>),
    /// A variable is read before it has a value.
    #[error("Attempting to use uninitialized value {0}")]
    Uninitialized(String),
    /// A dimension to sum over does not exist or occurs twice.
    #[error("Invalid reduction dimension {axis} for input with {dimensions} dimensions")]
    Axis {
        /// The dimension.
        axis: i64,
        /// The number of dimensions.
        dimensions: usize,
    },
    /// A whole number is divided by 0.
    #[error("Integer division by zero")]
    DivisionByZero,
    /// A constant has another number of elements than its shape.
    #[error("the value has {bytes} bytes, which does not fit the shape {}", shape_text(.shape))]
    Content {
        /// The size of the value in bytes.
        bytes: usize,
        /// The shape.
        shape: Vec<usize>,
    },
    /// An input or an attribute is missing or of another type than the operation needs.
    #[error("the inputs or attributes do not fit the operation")]
    Malformed,
    /// It exceeds a limit of the run.
    #[error(transparent)]
    OverLimit(#[from] OverLimit),
}

impl Operation {
    /// Returns the operation of a node; `None` if it has no kernel here for these types of values.
    pub(crate) fn of(node: &Node, input_types: impl Iterator<Item = Dtype>) -> Option<Operation> {
        const COMPUTED: [Dtype; 4] = [Dtype::FLOAT, Dtype::DOUBLE, Dtype::INT32, Dtype::INT64];
        let (_, found) = OPERATIONS.iter().find(|(name, _)| *name == &*node.op)?;
        let is_handle = |of: Dtype| of == Dtype::RESOURCE;
        let outputs = node.outputs.iter().map(|of| of.dtype);
        let mut types = input_types.chain(outputs);
        let is_computed = types.all(|of| COMPUTED.contains(&of) || is_handle(of));
        let has_value = match found {
            Operation::Const => constant(node.attrs.get("value")).is_some(),
            Operation::Variable => {
                let dtype = node.attrs.get("dtype").and_then(Attr::as_type);
                dtype.is_none_or(|of| COMPUTED.contains(&of.dtype))
            }
            // A function or an operation of the file may have the name of one of TensorFlow.
            _ => true,
        };
        (is_computed && has_value).then_some(*found)
    }

    /// Computes the outputs of a node that uses no variable.
    pub(crate) fn compute(
        self,
        node: &Node,
        inputs: &[Arc<Tensor>],
        meter: &Meter,
        threads: &Threads,
    ) -> Result<Vec<Arc<Tensor>>, OpError> {
        let run = Kernel { node, meter, threads };
        let one = |tensor: Tensor| Ok(vec![Arc::new(tensor)]);
        match (self, inputs) {
            (Operation::NoOp, _) => Ok(Vec::new()),
            (Operation::Const, _) => one(run.constant()?),
            (Operation::Identity, [input]) => Ok(vec![Arc::clone(input)]),
            (Operation::Binary(binary), [a, b]) => one(run.binary(binary, a, b)?),
            (Operation::Unary(unary), [input]) => one(run.unary(unary, input)?),
            (Operation::AddN, [first, rest @ ..]) => {
                let mut sum = Arc::clone(first);
                for next in rest {
                    if next.shape() != sum.shape() {
                        return Err(OpError::Shapes(sum.shape().into(), next.shape().into()));
                    }
                    sum = Arc::new(run.binary(Binary::Add, &sum, next)?);
                }
                Ok(vec![sum])
            }
            (Operation::MatMul, [a, b]) => one(run.matmul(a, b)?),
            (Operation::Sum, [input, axes]) => one(run.sum(input, axes)?),
            (Operation::Split, [value]) => run.split(value),
            (Operation::Join, [like, chunks @ ..]) => one(run.join(like, chunks)?),
            (Operation::Scale, [value]) => one(run.scale(value)?),
            _ => Err(OpError::Malformed),
        }
    }
}

impl Update {
    /// Returns the new value of a variable. `declared` is the shape that the variable must have.
    pub(crate) fn apply(
        self,
        node: &Node,
        before: Option<&Arc<Tensor>>,
        declared: Option<&[usize]>,
        inputs: &[Arc<Tensor>],
        (meter, threads): (&Meter, &Threads),
    ) -> Result<Arc<Tensor>, OpError> {
        let run = Kernel { node, meter, threads };
        let shaped = |new: &Tensor| {
            let must = node.attrs.get("validate_shape") != Some(&Attr::Bool(false));
            match before.map(|before| before.shape()).or(declared) {
                Some(shape) if must && shape != new.shape() => {
                    Err(OpError::Assigned(shape.to_vec(), new.shape().to_vec()))
                }
                _ => Ok(()),
            }
        };
        match (self, before, inputs) {
            (Update::Replace, _, [new]) => shaped(new).map(|()| Arc::clone(new)),
            (Update::Add, Some(before), [by]) => {
                shaped(by)?;
                Ok(Arc::new(run.binary(Binary::Add, before, by)?))
            }
            (Update::Subtract, Some(before), [by]) => {
                shaped(by)?;
                Ok(Arc::new(run.binary(Binary::Sub, before, by)?))
            }
            (Update::Descend, Some(before), [rate, gradient]) => {
                shaped(gradient)?;
                let step = Arc::new(run.binary(Binary::Mul, gradient, rate)?);
                Ok(Arc::new(run.binary(Binary::Sub, before, &step)?))
            }
            _ => Err(OpError::Malformed),
        }
    }
}

/// The shape that the attributes of a variable declare.
pub(crate) fn declared_shape(node: &Node) -> Option<Vec<usize>> {
    match node.attrs.get("shape") {
        Some(Attr::Shape(shape)) => known_shape(shape.as_deref()),
        _ => None,
    }
}

/// A node while its kernel runs.
struct Kernel<'a> {
    node: &'a Node,
    meter: &'a Meter,
    threads: &'a Threads,
}

impl Kernel<'_> {
    /// Counts an output of this shape against the limits, and returns its number of elements.
    fn output<T: Element>(&self, shape: &[usize]) -> Result<usize, OpError> {
        Ok(self.meter.take(&self.node.op, shape, size_of::<T>())?)
    }

    /// Counts work in addition to writing an output: this many times so many steps.
    fn work(&self, shape: &[usize], times: usize, steps: usize) -> Result<(), OpError> {
        let steps = (times as u64).saturating_mul(steps as u64);
        Ok(self.meter.work(&self.node.op, shape, steps)?)
    }

    fn flag(&self, name: &str) -> bool {
        self.node.attrs.get(name) == Some(&Attr::Bool(true))
    }

    fn constant(&self) -> Result<Tensor, OpError> {
        let of = constant(self.node.attrs.get("value")).ok_or(OpError::Malformed)?;
        let (dtype, shape, content) = of;
        let wrong = || OpError::Content { bytes: content.bytes.len(), shape: shape.clone() };
        let size = dtype.bits().ok_or(OpError::Malformed)? as usize / 8;
        let elements = self.meter.take(&self.node.op, &shape, size)?;
        read(dtype, shape.clone(), elements, content).ok_or_else(wrong)
    }

    fn binary(&self, op: Binary, a: &Arc<Tensor>, b: &Arc<Tensor>) -> Result<Tensor, OpError> {
        each_type!(a.data(), of => self.binary_of(op, of, a, b))
    }

    fn binary_of<T: Element>(
        &self,
        op: Binary,
        _: &[T],
        a: &Arc<Tensor>,
        b: &Arc<Tensor>,
    ) -> Result<Tensor, OpError> {
        let differ = || OpError::Shapes(a.shape().to_vec(), b.shape().to_vec());
        let shape = broadcast(a.shape(), b.shape()).ok_or_else(differ)?;
        if T::of(b.data()).is_none() {
            return Err(OpError::Malformed);
        }
        let elements = self.output::<T>(&shape)?;
        let from = |of: &Tensor| Strides::broadcast(of.shape(), &shape);
        let (in_a, in_b) = (from(a), from(b));
        self.work(&shape, elements, in_a.cost() + in_b.cost())?;
        let (a, b) = (Arc::clone(a), Arc::clone(b));
        let computed = self.threads.map(elements, 1 << 14, move |range| {
            let (Some(a), Some(b)) = (T::of(a.data()), T::of(b.data())) else { return Vec::new() };
            range
                .map(|at| {
                    let (a, b) = (a[in_a.offset(at)], b[in_b.offset(at)]);
                    match op {
                        Binary::Add => Some(a.add(b)),
                        Binary::Sub => Some(a.sub(b)),
                        Binary::Mul => Some(a.mul(b)),
                        Binary::Div => a.div(b),
                    }
                })
                .collect()
        });
        let computed = computed.into_iter().collect::<Option<Vec<T>>>();
        Ok(Tensor::new(shape, computed.ok_or(OpError::DivisionByZero)?))
    }

    fn unary(&self, op: Unary, input: &Arc<Tensor>) -> Result<Tensor, OpError> {
        each_type!(input.data(), of => self.unary_of(op, of, input))
    }

    fn unary_of<T: Element>(
        &self,
        op: Unary,
        _: &[T],
        of: &Arc<Tensor>,
    ) -> Result<Tensor, OpError> {
        let elements = self.output::<T>(of.shape())?;
        let input = Arc::clone(of);
        let computed = self.threads.map(elements, 1 << 14, move |range| {
            let input = T::of(input.data()).unwrap_or_default();
            let one = |x: &T| match op {
                Unary::Neg => T::default().sub(*x),
                // NaN remains.
                Unary::Relu if *x < T::default() => T::default(),
                Unary::Relu => *x,
            };
            input[range].iter().map(one).collect()
        });
        Ok(Tensor::new(of.shape().to_vec(), computed))
    }

    fn matmul(&self, a: &Arc<Tensor>, b: &Arc<Tensor>) -> Result<Tensor, OpError> {
        each_type!(a.data(), of => self.matmul_of(of, a, b))
    }

    fn matmul_of<T: Element>(
        &self,
        _: &[T],
        a: &Arc<Tensor>,
        b: &Arc<Tensor>,
    ) -> Result<Tensor, OpError> {
        let differ = || OpError::Matrices(a.shape().to_vec(), b.shape().to_vec());
        // The size and the stride of rows and columns.
        let matrix = |of: &Tensor, is_transposed: bool| match (of.shape(), is_transposed) {
            ([rows, columns], false) => Ok(((*rows, *columns), (*columns, 1))),
            ([columns, rows], true) => Ok(((*rows, *columns), (1, *rows))),
            _ => Err(differ()),
        };
        let ((rows, inner), (a_row, a_column)) = matrix(a, self.flag("transpose_a"))?;
        let ((other, columns), (b_row, b_column)) = matrix(b, self.flag("transpose_b"))?;
        if inner != other || T::of(b.data()).is_none() {
            return Err(differ());
        }
        let elements = self.output::<T>(&[rows, columns])?;
        self.work(&[rows, columns], elements, inner)?;
        let (a, b) = (Arc::clone(a), Arc::clone(b));
        let grain = (1 << 16) / (inner.saturating_mul(columns)).max(1);
        let computed = self.threads.map(rows, grain.max(1), move |range| {
            let (Some(a), Some(b)) = (T::of(a.data()), T::of(b.data())) else { return Vec::new() };
            let mut product = vec![T::default(); range.len() * columns];
            for (row, sums) in range.zip(product.chunks_exact_mut(columns.max(1))) {
                for at in 0..inner {
                    let factor = a[row * a_row + at * a_column];
                    let from = &b[at * b_row..];
                    for (sum, value) in sums.iter_mut().zip(from.iter().step_by(b_column)) {
                        *sum = sum.add(factor.mul(*value));
                    }
                }
            }
            product
        });
        Ok(Tensor::new(vec![rows, columns], computed))
    }

    fn sum(&self, input: &Arc<Tensor>, axes: &Tensor) -> Result<Tensor, OpError> {
        let axes: Vec<i64> = match axes.data() {
            Data::Int32(axes) => axes.iter().map(|axis| i64::from(*axis)).collect(),
            Data::Int64(axes) => axes.clone(),
            _ => return Err(OpError::Malformed),
        };
        let dimensions = input.shape().len();
        let mut is_summed = vec![false; dimensions];
        for axis in axes {
            let wrong = OpError::Axis { axis, dimensions };
            let at = if axis < 0 { axis + dimensions as i64 } else { axis };
            let slot = usize::try_from(at).ok().and_then(|at| is_summed.get_mut(at));
            if std::mem::replace(slot.ok_or(wrong.clone())?, true) {
                return Err(wrong);
            }
        }
        each_type!(input.data(), of => self.sum_of(of, input, &is_summed))
    }

    fn sum_of<T: Element>(
        &self,
        _: &[T],
        input: &Arc<Tensor>,
        is_summed: &[bool],
    ) -> Result<Tensor, OpError> {
        let keeps = self.flag("keep_dims");
        let sizes = input.shape().iter().zip(is_summed);
        let shape = sizes.filter_map(|(size, summed)| match (summed, keeps) {
            (false, _) => Some(*size),
            (true, true) => Some(1),
            (true, false) => None,
        });
        let shape: Vec<usize> = shape.collect();
        let all = Strides::of(input.shape());
        let part = |summed: bool| {
            let dimensions = all.0.iter().zip(is_summed);
            Strides(dimensions.filter(|(_, is)| **is == summed).map(|(of, _)| *of).collect())
        };
        let (kept, summed) = (part(false).merged(), part(true).merged());
        let terms = summed.count();
        let elements = self.output::<T>(&shape)?;
        self.work(&shape, input.len(), summed.cost().max(1))?;
        let input = Arc::clone(input);
        let computed = self.threads.map(elements, (1 << 14) / terms.max(1) + 1, move |range| {
            let input = T::of(input.data()).unwrap_or_default();
            range
                .map(|at| {
                    let start = kept.offset(at);
                    let terms = (0..terms).map(|term| input[start + summed.offset(term)]);
                    terms.fold(T::default(), T::add)
                })
                .collect()
        });
        Ok(Tensor::new(shape, computed))
    }

    fn split(&self, value: &Tensor) -> Result<Vec<Arc<Tensor>>, OpError> {
        let count = self.node.outputs.len();
        each_type!(value.data(), elements => {
            let mut rest = &elements[..];
            let mut chunks = Vec::with_capacity(count);
            for chunk in 0..count {
                let size = elements.len() / count + usize::from(chunk < elements.len() % count);
                self.meter.take(&self.node.op, &[size], size_of_val(elements) / elements.len().max(1))?;
                let (these, others) = rest.split_at(size);
                chunks.push(Arc::new(Tensor::new(vec![size], these.to_vec())));
                rest = others;
            }
            Ok(chunks)
        })
    }

    fn join(&self, like: &Tensor, chunks: &[Arc<Tensor>]) -> Result<Tensor, OpError> {
        each_type!(like.data(), of => self.join_of(of, like, chunks))
    }

    fn join_of<T: Element>(
        &self,
        _: &[T],
        like: &Tensor,
        chunks: &[Arc<Tensor>],
    ) -> Result<Tensor, OpError> {
        let elements = self.output::<T>(like.shape())?;
        let mut joined = Vec::with_capacity(elements);
        for chunk in chunks {
            joined.extend_from_slice(T::of(chunk.data()).ok_or(OpError::Malformed)?);
        }
        match joined.len() == elements {
            true => Ok(Tensor::new(like.shape().to_vec(), joined)),
            false => Err(OpError::Shapes(like.shape().to_vec(), vec![joined.len()])),
        }
    }

    fn scale(&self, value: &Tensor) -> Result<Tensor, OpError> {
        let Some(Attr::Float(factor)) = self.node.attrs.get("factor") else {
            return Err(OpError::Malformed);
        };
        let size = value.dtype().bits().unwrap_or(64) as usize / 8;
        self.meter.take(&self.node.op, value.shape(), size)?;
        each_type!(value.data(), elements => {
            let scaled = elements.iter().map(|x| Element::scale(*x, *factor)).collect();
            Ok(Tensor::new(value.shape().to_vec(), scaled))
        })
    }
}

/// Returns the shape of the result of an operation by element; `None` if the shapes do not fit.
fn broadcast(a: &[usize], b: &[usize]) -> Option<Vec<usize>> {
    let length = a.len().max(b.len());
    let size = |of: &[usize], at: usize| match (at + of.len()).checked_sub(length) {
        Some(at) => of[at],
        None => 1,
    };
    let merged = |at: usize| match (size(a, at), size(b, at)) {
        (a, b) if a == b => Some(a),
        (1, other) | (other, 1) => Some(other),
        _ => None,
    };
    (0..length).map(merged).collect()
}

/// How an index is turned into the offset of an element: the size and the stride of each
/// dimension, the last one fastest.
#[derive(Clone, Debug)]
struct Strides(Vec<(usize, usize)>);

impl Strides {
    fn of(shape: &[usize]) -> Strides {
        let mut stride = 1;
        let mut strides: Vec<(usize, usize)> = Vec::with_capacity(shape.len());
        for size in shape.iter().rev() {
            strides.push((*size, stride));
            stride *= (*size).max(1);
        }
        strides.reverse();
        Strides(strides)
    }

    /// A tensor whose dimensions of size 1 repeat in a larger shape.
    fn broadcast(shape: &[usize], whole: &[usize]) -> Strides {
        let Strides(own) = Strides::of(shape);
        let missing = whole.len() - shape.len();
        let strides = whole.iter().enumerate().map(|(at, size)| match at.checked_sub(missing) {
            Some(at) if own[at].0 == *size => own[at],
            _ => (*size, 0),
        });
        Strides(strides.collect()).merged()
    }

    /// Leaves out dimensions of size 1, and joins those that follow each other without a gap.
    fn merged(self) -> Strides {
        let mut merged: Vec<(usize, usize)> = Vec::new();
        for (size, stride) in self.0.into_iter().filter(|(size, _)| *size != 1) {
            match merged.last_mut() {
                Some((outer, step)) if *step == size * stride => {
                    (*outer, *step) = (*outer * size, stride);
                }
                _ => merged.push((size, stride)),
            }
        }
        Strides(merged)
    }

    fn count(&self) -> usize {
        self.0.iter().map(|(size, _)| size).product()
    }

    /// Returns the steps that an offset takes.
    fn cost(&self) -> usize {
        self.0.len()
    }

    fn offset(&self, index: usize) -> usize {
        match &self.0[..] {
            [(_, stride)] => index * stride,
            dimensions => {
                let (mut index, mut offset) = (index, 0);
                for (size, stride) in dimensions.iter().rev() {
                    offset += index % size * stride;
                    index /= size;
                }
                offset
            }
        }
    }
}
