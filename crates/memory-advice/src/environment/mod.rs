//! Settings that keep an unmodified program within a limit.
//!
//! Variables are set only if the framework is known to honour them: PyTorch exits at startup if its
//! version does not support a key, and JAX if two names of one setting are present. For the others,
//! the advice contains lines of code. The driver enforces none of these limits. Each variable
//! configures a framework's allocator, and limits only the memory that the program allocates
//! through it. Only an MPS server enforces a limit from outside; a MIG device is limited by its
//! size.

mod jax;
mod mps;
mod tensorflow;
mod torch;

#[cfg(test)]
mod tests;

pub use mps::PIPES as MPS_PIPES;

use gpu_core::Bytes;
use serde::Serialize;

/// The environment variables that the advice depends on.
pub const READ: [&str; 10] = [
    torch::ALLOC_CONF,
    torch::CUDA_ALLOC_CONF,
    jax::FRACTION,
    jax::FRACTION_OLD,
    jax::ALLOCATOR,
    jax::PREALLOCATE,
    tensorflow::GROWTH,
    tensorflow::ALLOCATOR,
    mps::LIMIT,
    MPS_PIPES,
];

/// Applies to every limit that a framework enforces.
const COOPERATIVE: &str = "cooperative: each process enforces the limit through its framework's \
                           allocator; only MPS or MIG limits its other memory";

/// Applies if the total memory of the device is unknown.
const UNKNOWN_TOTAL: &str = "the memory size of the device is unknown";

/// A framework whose allocator can be limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Framework {
    /// PyTorch.
    Torch,
    /// TensorFlow.
    TensorFlow,
    /// JAX, and other users of XLA through its Python client.
    Jax,
}

impl Framework {
    /// Returns its usual name.
    pub fn name(self) -> &'static str {
        match self {
            Framework::Torch => "PyTorch",
            Framework::TensorFlow => "TensorFlow",
            Framework::Jax => "JAX",
        }
    }
}

/// A version, as far as the rules depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Version {
    /// The major version.
    pub major: u32,
    /// The minor version.
    pub minor: u32,
}

impl Version {
    /// Parses `2.10`, `2.10.0`, `2.10.0+cu128`; `None` for anything without two numbers.
    pub fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.trim().split(['.', '+', '-']);
        let major = numbers.next()?.parse().ok()?;
        let minor: String = numbers.next()?.chars().take_while(char::is_ascii_digit).collect();
        Some(Version { major, minor: minor.parse().ok()? })
    }
}

/// A framework that a program uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Used {
    /// The framework.
    pub framework: Framework,
    /// Its version, if known.
    pub version: Option<Version>,
}

/// A limit for a program.
#[derive(Clone, Copy)]
pub struct Bound<'a> {
    /// The maximum memory that each process may use on each device.
    pub limit: Bytes,
    /// The part of the limit reserved for the CUDA context and libraries, which no allocator
    /// counts.
    pub context: Bytes,
    /// The total memory of each device that the program sees; empty unless it is known for all.
    pub totals: &'a [Bytes],
    /// The number of devices that the program sees through an MPS server; `None` without one.
    pub mps: Option<usize>,
    /// The environment of the program, queried for the variables of [`READ`].
    pub inherited: &'a dyn Fn(&str) -> Option<String>,
}

/// The settings that enforce a limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Advice {
    /// The variables to set, by name.
    pub variables: Vec<Variable>,
    /// Lines to add to the program where no variable sets a limit.
    pub code: Vec<Snippet>,
    /// Notes for the user: what is not limited, and what was left unchanged.
    pub notes: Vec<String>,
}

impl Advice {
    /// Returns the names of the variables that enforce the limit.
    pub fn bounding(&self) -> impl Iterator<Item = &'static str> {
        let keeps = |variable: &&Variable| variable.kept_by != Keeper::Nobody;
        self.variables.iter().filter(keeps).map(|variable| variable.name)
    }

    fn set(&mut self, name: &'static str, value: impl Into<String>, kept_by: Keeper) {
        self.variables.push(Variable { name, value: value.into(), kept_by });
    }

    fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }
}

/// An environment variable to set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Variable {
    /// Name of the variable.
    pub name: &'static str,
    /// Value of the variable, which includes the settings that it already has.
    pub value: String,
    /// What then enforces the limit.
    pub kept_by: Keeper,
}

/// What enforces a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Keeper {
    /// The MPS server, independently of the program.
    Server,
    /// The allocator of the framework, for memory that it allocates.
    Allocator,
    /// Nothing: the program allocates memory only as needed.
    Nobody,
}

/// Code to add to a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Snippet {
    /// The framework whose API the code uses.
    pub framework: Framework,
    /// Lines of Python.
    pub lines: Vec<String>,
}

impl Bound<'_> {
    /// Returns the settings for programs that use these frameworks.
    ///
    /// Existing settings in the environment are extended, and an existing limit is never widened.
    pub fn advice(&self, used: &[Used]) -> Advice {
        let mut advice = Advice::default();
        if self.leaves_nothing() {
            advice.note(format!(
                "the limit of {} leaves nothing after {} for the CUDA context (--context): \
                 nothing is set",
                self.limit, self.context
            ));
            return advice;
        }
        if self.is_whole() {
            advice.note("the limit is the whole device: there is nothing to set");
            return advice;
        }
        self.served(&mut advice);
        for used in used {
            match used.framework {
                Framework::Torch => self.torch(used.version, &mut advice),
                Framework::TensorFlow => self.tensorflow(used.version, &mut advice),
                Framework::Jax => self.jax(&mut advice),
            }
        }
        let by_allocators = |variable: &Variable| variable.kept_by == Keeper::Allocator;
        if advice.variables.iter().any(by_allocators) {
            self.note_sizes(&mut advice);
        }
        if advice.variables.iter().any(by_allocators) || !advice.code.is_empty() {
            advice.note(COOPERATIVE);
        }
        if used.is_empty() {
            advice.note("no PyTorch, TensorFlow or JAX found");
        }
        advice.variables.sort_by_key(|variable| variable.name);
        advice
    }

    /// Returns whether the limit leaves no memory for the allocators.
    pub fn leaves_nothing(&self) -> bool {
        self.limit <= self.context || self.share() == Some(0)
    }

    /// Returns whether the limit is the entire memory of each device.
    pub fn is_whole(&self) -> bool {
        self.total().is_some_and(|total| self.limit >= total)
    }

    /// Returns the memory of the largest device. A fraction of it corresponds to no more memory on
    /// any other device.
    fn total(&self) -> Option<Bytes> {
        self.totals.iter().max().copied().filter(|total| total.0 > 0)
    }

    /// Returns the memory for allocators: the limit minus the context.
    fn allocators(&self) -> Bytes {
        self.limit.saturating_sub(self.context)
    }

    /// Returns the fraction of the device for allocators in 1/10,000, rounded down.
    fn share(&self) -> Option<u128> {
        Some(u128::from(self.allocators().0) * 10_000 / u128::from(self.total()?.0))
    }

    fn fraction(&self) -> Option<String> {
        Some(format!("0.{:04}", self.share().filter(|share| *share < 10_000)?))
    }

    /// Returns the existing fraction if it is smaller.
    fn smaller<'a>(&self, had: &'a str, fraction: &str) -> Option<&'a str> {
        let (had, fraction) = (had.trim(), fraction.parse::<f64>().ok()?);
        had.parse::<f64>().is_ok_and(|had| had >= 0.0 && had < fraction).then_some(had)
    }

    fn note_sizes(&self, advice: &mut Advice) {
        if let (Some(most), Some(least)) = (self.total(), self.totals.iter().min())
            && *least < most
        {
            advice.note(format!(
                "the devices have {least} to {most}: the share is for the largest, so the others \
                 stay below the limit"
            ));
        }
    }

    /// Returns the value in the environment, if it is not empty.
    fn had(&self, name: &str) -> Option<String> {
        (self.inherited)(name).filter(|value| !value.trim().is_empty())
    }
}
