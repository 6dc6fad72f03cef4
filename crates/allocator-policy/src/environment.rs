//! What makes an unmodified program stay within a limit.
//!
//! No variable here is enforced by the driver: each asks a framework's allocator to keep a limit,
//! so a program is bounded as far as it takes memory through that allocator. Variables are set only
//! where the framework is known to obey them, since PyTorch refuses to start for a key that its
//! version does not know, and JAX for two names of one thing; for the others there are lines of
//! code.

use gpu_core::Bytes;
use serde::Serialize;

/// The first PyTorch whose allocator takes a limit from its environment.
const TORCH_WITH_LIMIT: Version = Version { major: 2, minor: 10 };

const ALLOC_CONF: &str = "PYTORCH_ALLOC_CONF";
const CUDA_ALLOC_CONF: &str = "PYTORCH_CUDA_ALLOC_CONF";
const FRACTION_KEY: &str = "per_process_memory_fraction";
const XLA_FRACTION: &str = "XLA_CLIENT_MEM_FRACTION";
const XLA_FRACTION_OLD: &str = "XLA_PYTHON_CLIENT_MEM_FRACTION";
const GROWTH: &str = "TF_FORCE_GPU_ALLOW_GROWTH";

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
    /// All memory of the device, of the smallest where there are several; `None` where unknown.
    pub total: Option<Bytes>,
    /// The environment that the program would have.
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

/// A variable to set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// Its value, with what the program's environment had for it.
    pub value: String,
    /// Whether the framework then keeps the limit, or only behaves well beside others.
    pub bounds: bool,
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
    pub fn advice(&self, used: &[Used]) -> Advice {
        let mut advice = Advice::default();
        if self.limit <= self.context {
            advice.notes.push(format!(
                "the limit of {} leaves nothing beside {} for the CUDA context",
                self.limit, self.context
            ));
            return advice;
        }
        if self.total.is_some_and(|total| self.limit >= total) {
            advice.notes.push("the limit is the whole device: nothing is to be set".to_owned());
            return advice;
        }
        for used in used {
            match used.framework {
                Framework::Torch => self.torch(used.version, &mut advice),
                Framework::TensorFlow => self.tensorflow(&mut advice),
                Framework::Jax => self.jax(&mut advice),
            }
        }
        advice.variables.sort_by_key(|variable| variable.name);
        advice
    }

    /// Returns what allocators may take: the limit without the context.
    fn allocators(&self) -> Bytes {
        self.limit.saturating_sub(self.context)
    }

    /// Returns the share of the device that allocators may take, rounded down to 1/10,000.
    fn fraction(&self) -> Option<String> {
        let total = self.total.filter(|total| total.0 > 0)?;
        let share = u128::from(self.allocators().0) * 10_000 / u128::from(total.0);
        Some(format!("0.{share:04}")).filter(|_| (1..10_000).contains(&share))
    }

    fn torch(&self, version: Option<Version>, advice: &mut Advice) {
        let obeys = version.is_some_and(|version| version >= TORCH_WITH_LIMIT);
        if let Some(fraction) = self.fraction().filter(|_| obeys) {
            let [new, old] = [ALLOC_CONF, CUDA_ALLOC_CONF].map(|name| (self.inherited)(name));
            let had = new.or_else(|| old.clone()).unwrap_or_default();
            let value = with_fraction(&had, &fraction);
            // The older name is read as well, and warned of; it is changed only where it is used.
            let names = [Some(ALLOC_CONF), old.map(|_| CUDA_ALLOC_CONF)];
            advice.variables.extend(names.into_iter().flatten().map(|name| Variable {
                name,
                value: value.clone(),
                bounds: true,
            }));
            return;
        }
        advice.notes.push(match version {
            Some(version) if !obeys => format!(
                "PyTorch {}.{} takes no limit from its environment (2.10 and later do): the program must set it",
                version.major, version.minor
            ),
            Some(_) => "how much memory the device has is not known, so PyTorch's share is not either: \
                        the program must set it"
                .to_owned(),
            None => "which PyTorch the program uses is not known, and one that does not know the key \
                     does not start: the program must set the limit"
                .to_owned(),
        });
        advice.code.push(Snippet {
            framework: Framework::Torch,
            lines: vec![
                "import torch".to_owned(),
                "for device in range(torch.cuda.device_count()):".to_owned(),
                "    total = torch.cuda.get_device_properties(device).total_memory".to_owned(),
                format!(
                    "    torch.cuda.set_per_process_memory_fraction(min(1.0, {} / total), device)",
                    self.allocators().0
                ),
            ],
        });
    }

    fn tensorflow(&self, advice: &mut Advice) {
        let growth = Variable { name: GROWTH, value: "true".to_owned(), bounds: false };
        advice.variables.push(growth);
        advice
            .notes
            .push("TensorFlow has no variable for a limit: the program must set it".to_owned());
        advice.code.push(Snippet {
            framework: Framework::TensorFlow,
            lines: vec![
                "import tensorflow as tf".to_owned(),
                "for gpu in tf.config.list_physical_devices(\"GPU\"):".to_owned(),
                format!(
                    "    limit = tf.config.LogicalDeviceConfiguration(memory_limit={})",
                    self.allocators().mib()
                ),
                "    tf.config.set_logical_device_configuration(gpu, [limit])".to_owned(),
            ],
        });
    }

    fn jax(&self, advice: &mut Advice) {
        let Some(fraction) = self.fraction() else {
            advice.notes.push(
                "how much memory the device has is not known, so JAX's share is not either"
                    .to_owned(),
            );
            return;
        };
        // Every version reads the old name; a program that finds both does not start.
        let name = match (self.inherited)(XLA_FRACTION) {
            Some(_) => XLA_FRACTION,
            None => XLA_FRACTION_OLD,
        };
        let had = (self.inherited)(name).and_then(|had| had.trim().parse::<f64>().ok());
        let smaller = had.filter(|had| fraction.parse::<f64>().is_ok_and(|ours| *had < ours));
        let value = smaller.map_or(fraction, |had| had.to_string());
        advice.variables.push(Variable { name, value, bounds: true });
        if (self.inherited)("XLA_PYTHON_CLIENT_ALLOCATOR").is_some_and(|kind| kind == "platform") {
            advice.notes.push(
                "XLA_PYTHON_CLIENT_ALLOCATOR=platform is set: JAX's allocator then keeps no limit"
                    .to_owned(),
            );
        }
    }
}

/// Returns PyTorch's settings with a share of the device, or with the smaller one that they had.
fn with_fraction(had: &str, fraction: &str) -> String {
    let is_ours =
        |entry: &&str| entry.split_once(':').is_some_and(|(key, _)| key.trim() == FRACTION_KEY);
    let entries = || had.split(',').filter(|entry| !entry.trim().is_empty());
    let smaller = entries()
        .find(is_ours)
        .and_then(|entry| entry.split_once(':')?.1.trim().parse::<f64>().ok())
        .filter(|had| fraction.parse::<f64>().is_ok_and(|ours| *had < ours));
    let fraction = smaller.map_or_else(|| fraction.to_owned(), |had| had.to_string());
    let mut kept: Vec<_> = entries().filter(|entry| !is_ours(entry)).map(str::to_owned).collect();
    kept.push(format!("{FRACTION_KEY}:{fraction}"));
    kept.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn advice(used: &[Used], inherited: &[(&str, &str)]) -> Advice {
        let find = |name: &str| {
            inherited.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        };
        let (limit, context) = (Bytes(6 * GIB), Bytes(512 << 20));
        Bound { limit, context, total: Some(Bytes(24 * GIB)), inherited: &find }.advice(used)
    }

    fn torch(version: &str) -> Used {
        Used { framework: Framework::Torch, version: Version::parse(version) }
    }

    const JAX: Used = Used { framework: Framework::Jax, version: None };

    fn variables(advice: &Advice) -> Vec<(&str, &str)> {
        advice.variables.iter().map(|variable| (variable.name, variable.value.as_str())).collect()
    }

    #[test]
    fn versions_are_read_as_packages_write_them() {
        let version = |major, minor| Some(Version { major, minor });
        assert_eq!(Version::parse("2.10.0+cu128"), version(2, 10));
        assert_eq!(Version::parse("2.9.0a0+git1234"), version(2, 9));
        assert_eq!(Version::parse("1.13rc1"), version(1, 13));
        assert_eq!(Version::parse("2"), None);
        assert_eq!(Version::parse("nightly.x"), None);
    }

    #[test]
    fn pytorch_gets_its_share_where_its_version_obeys() {
        let found = advice(&[torch("2.10.0")], &[]);
        // 5.5 of 24 GiB, rounded down.
        assert_eq!(variables(&found), [(ALLOC_CONF, "per_process_memory_fraction:0.2291")]);
        assert!(found.code.is_empty() && found.variables[0].bounds);

        for version in ["2.9.1", "unknown"] {
            let found = advice(&[torch(version)], &[]);
            assert!(found.variables.is_empty(), "it would not start");
            assert!(found.code[0].lines[3].contains("5905580032 / total"));
        }
    }

    #[test]
    fn settings_that_a_user_made_are_extended_and_never_widened() {
        let found = advice(&[torch("2.11")], &[(CUDA_ALLOC_CONF, "expandable_segments:True,")]);
        let value = "expandable_segments:True,per_process_memory_fraction:0.2291";
        assert_eq!(variables(&found), [(ALLOC_CONF, value), (CUDA_ALLOC_CONF, value)]);

        let smaller = [(ALLOC_CONF, "per_process_memory_fraction:0.1,max_split_size_mb:64")];
        let value = "max_split_size_mb:64,per_process_memory_fraction:0.1";
        assert_eq!(variables(&advice(&[torch("2.11")], &smaller)), [(ALLOC_CONF, value)]);

        let value = "max_split_size_mb:[1,2]";
        let kept = advice(&[torch("2.11")], &[(ALLOC_CONF, value)]);
        assert!(kept.variables[0].value.starts_with(value), "what is not understood is kept");
    }

    #[test]
    fn jax_is_told_once() {
        assert_eq!(variables(&advice(&[JAX], &[])), [(XLA_FRACTION_OLD, "0.2291")]);
        let new = advice(&[JAX], &[(XLA_FRACTION, "0.9")]);
        assert_eq!(variables(&new), [(XLA_FRACTION, "0.2291")]);
        let smaller = advice(&[JAX], &[(XLA_FRACTION_OLD, ".1")]);
        assert_eq!(variables(&smaller), [(XLA_FRACTION_OLD, "0.1")]);
        let platform = advice(&[JAX], &[("XLA_PYTHON_CLIENT_ALLOCATOR", "platform")]);
        assert!(platform.notes[0].contains("keeps no limit"));
    }

    #[test]
    fn tensorflow_needs_lines_of_code() {
        let used = Used { framework: Framework::TensorFlow, version: None };
        let found = advice(&[used], &[]);
        assert_eq!(variables(&found), [(GROWTH, "true")]);
        assert!(!found.variables[0].bounds);
        assert!(found.code[0].lines[2].contains("memory_limit=5632"));
    }

    #[test]
    fn a_limit_that_leaves_nothing_or_is_no_limit_is_said() {
        let none = |_: &str| None;
        let bound = |limit, total| Bound {
            limit: Bytes(limit),
            context: Bytes(GIB),
            total: Some(Bytes(total)),
            inherited: &none,
        };
        assert!(bound(GIB, 24 * GIB).advice(&[JAX]).notes[0].contains("leaves nothing"));
        let whole = bound(24 * GIB, 24 * GIB).advice(&[JAX]);
        assert!(whole.variables.is_empty() && whole.notes[0].contains("whole device"));
    }
}
