//! What makes an unmodified program stay within a limit.
//!
//! The main decision is that variables are set only where the framework is known to obey them:
//! PyTorch refuses to start for a key that its version does not know, and JAX for two names of one
//! thing. For the others there are lines of code. The driver enforces none of this: each variable
//! asks a framework's allocator, so a program is bounded as far as it takes memory through that
//! allocator. Only an MPS server refuses more by itself, and a MIG device has no more.

mod jax;
mod mps;
mod tensorflow;
mod torch;

#[cfg(test)]
mod tests;

pub use mps::PIPES as MPS_PIPES;

use gpu_core::Bytes;
use serde::Serialize;

/// The variables of a program's environment that advice depends on.
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

/// What holds for every limit that a framework keeps.
const COOPERATIVE: &str = "cooperative: each process keeps the limit by itself, through its \
                           framework's allocator; what it takes otherwise, only MPS or MIG bounds";

/// What a framework's own allocator holds that is not known.
const UNKNOWN_TOTAL: &str = "how much memory the device has is not known";

/// A framework whose allocator can be bounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Framework {
    /// PyTorch.
    Torch,
    /// TensorFlow.
    TensorFlow,
    /// JAX, and what else runs on XLA through its Python client.
    Jax,
}

impl Framework {
    /// Returns the name that people use.
    pub fn name(self) -> &'static str {
        match self {
            Framework::Torch => "PyTorch",
            Framework::TensorFlow => "TensorFlow",
            Framework::Jax => "JAX",
        }
    }
}

/// A version as far as rules depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Version {
    /// The first number.
    pub major: u32,
    /// The second number.
    pub minor: u32,
}

impl Version {
    /// Reads `2.10`, `2.10.0`, `2.10.0+cu128`; `None` for anything without two numbers.
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
    /// Which it is.
    pub framework: Framework,
    /// Which version of it, where that is known.
    pub version: Option<Version>,
}

/// A limit that a program should keep.
#[derive(Clone, Copy)]
pub struct Bound<'a> {
    /// What each process may take of each device, all in all.
    pub limit: Bytes,
    /// What of that is left to the CUDA context and to libraries, which no allocator counts.
    pub context: Bytes,
    /// All memory of each device that the program sees; empty where that is not known of all.
    pub totals: &'a [Bytes],
    /// How many devices the program sees through an MPS server; `None` where there is none.
    pub mps: Option<usize>,
    /// The environment that the program would have, of which [`READ`] is asked for.
    pub inherited: &'a dyn Fn(&str) -> Option<String>,
}

/// What is to be done for a limit to be kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Advice {
    /// Variables to set, by name.
    pub variables: Vec<Variable>,
    /// Lines to add to the program, for what no variable bounds.
    pub code: Vec<Snippet>,
    /// What a reader must know: what is not bounded, and what was left as it is.
    pub notes: Vec<String>,
}

impl Advice {
    /// Returns the names of the variables that make somebody keep the limit.
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

/// A variable to set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// Its value, with what the program's environment had for it.
    pub value: String,
    /// Who then keeps the limit.
    pub kept_by: Keeper,
}

/// Who keeps a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Keeper {
    /// The MPS server, whatever the program does.
    Server,
    /// The framework's allocator, as far as memory is taken through it.
    Allocator,
    /// Nobody: the program takes memory as it needs it, and leaves the rest to others so long.
    Nobody,
}

/// Lines to add to a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Snippet {
    /// The framework that they speak to.
    pub framework: Framework,
    /// The lines, in Python.
    pub lines: Vec<String>,
}

impl Bound<'_> {
    /// Returns what is to be done for programs that use some of the frameworks.
    ///
    /// What the environment has already is extended, and a limit in it is never widened.
    pub fn advice(&self, used: &[Used]) -> Advice {
        let mut advice = Advice::default();
        if self.leaves_nothing() {
            advice.note(format!(
                "the limit of {} leaves nothing beside {} for the CUDA context: nothing is set",
                self.limit, self.context
            ));
            return advice;
        }
        if self.is_whole() {
            advice.note("the limit is the whole device: nothing is to be set");
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
            advice.note("no framework is known that would keep the limit");
        }
        advice.variables.sort_by_key(|variable| variable.name);
        advice
    }

    /// Returns whether no allocator could take anything.
    pub fn leaves_nothing(&self) -> bool {
        self.limit <= self.context || self.share() == Some(0)
    }

    /// Returns whether it is no limit: the whole of each device.
    pub fn is_whole(&self) -> bool {
        self.total().is_some_and(|total| self.limit >= total)
    }

    /// Returns the memory of the largest device: a share of that is no more of any other.
    fn total(&self) -> Option<Bytes> {
        self.totals.iter().max().copied().filter(|total| total.0 > 0)
    }

    /// Returns what allocators may take: the limit without the context.
    fn allocators(&self) -> Bytes {
        self.limit.saturating_sub(self.context)
    }

    /// Returns the share of the device that allocators may take in 1/10,000, rounded down.
    fn share(&self) -> Option<u128> {
        Some(u128::from(self.allocators().0) * 10_000 / u128::from(self.total()?.0))
    }

    fn fraction(&self) -> Option<String> {
        Some(format!("0.{:04}", self.share().filter(|share| *share < 10_000)?))
    }

    /// Returns the text of a share that was set already, where that is the smaller one.
    fn smaller<'a>(&self, had: &'a str, fraction: &str) -> Option<&'a str> {
        let (had, fraction) = (had.trim(), fraction.parse::<f64>().ok()?);
        had.parse::<f64>().is_ok_and(|had| had >= 0.0 && had < fraction).then_some(had)
    }

    fn note_sizes(&self, advice: &mut Advice) {
        if let (Some(most), Some(least)) = (self.total(), self.totals.iter().min())
            && *least < most
        {
            advice.note(format!(
                "the devices have {least} to {most}: the share is that of the largest, so less \
                 than the limit is used of the others"
            ));
        }
    }

    /// Returns what the environment has, where that is not empty.
    fn had(&self, name: &str) -> Option<String> {
        (self.inherited)(name).filter(|value| !value.trim().is_empty())
    }
}
