//! PyTorch: a fraction of the device; since 2.10, set by a key of its allocator settings.

use super::{Advice, Bound, Framework, Keeper, Snippet, UNKNOWN_TOTAL, Version};

pub(super) const ALLOC_CONF: &str = "PYTORCH_ALLOC_CONF";
pub(super) const CUDA_ALLOC_CONF: &str = "PYTORCH_CUDA_ALLOC_CONF";

const FRACTION_KEY: &str = "per_process_memory_fraction";

/// The first version whose allocator reads a limit from the environment.
const WITH_LIMIT: Version = Version { major: 2, minor: 10 };

/// The first version with a function that sets a limit.
const WITH_CALL: Version = Version { major: 1, minor: 8 };

impl Bound<'_> {
    pub(super) fn torch(&self, version: Option<Version>, advice: &mut Advice) {
        let obeys = version.is_some_and(|version| version >= WITH_LIMIT);
        // The other backend uses a driver pool, and ignores this key.
        let (new, old) = ((self.inherited)(ALLOC_CONF), (self.inherited)(CUDA_ALLOC_CONF));
        let is_native = [&new, &old].into_iter().flatten().all(|had| !has_other_backend(had));
        if let Some(fraction) = self.fraction().filter(|_| obeys && is_native) {
            // If both are set, the older name takes precedence, so each variable keeps its own
            // value.
            let value = |had: Option<&str>| self.with_fraction(had.unwrap_or_default(), &fraction);
            advice.set(ALLOC_CONF, value(new.as_deref().or(old.as_deref())), Keeper::Allocator);
            if let Some(old) = old {
                advice.set(CUDA_ALLOC_CONF, value(Some(&old)), Keeper::Allocator);
            }
            return;
        }
        if let Some(version) = version.filter(|version| *version < WITH_CALL) {
            let Version { major, minor } = version;
            return advice
                .note(format!("PyTorch {major}.{minor} cannot limit memory; 1.8 and later can"));
        }
        let why = match version {
            Some(version) if !obeys => format!(
                "PyTorch {}.{} has no environment variable for a limit; 2.10 and later do",
                version.major, version.minor
            ),
            Some(_) if !is_native => {
                "the cudaMallocAsync backend of PyTorch ignores the limit variable".to_owned()
            }
            Some(_) => format!("{UNKNOWN_TOTAL}, and so is PyTorch's share of it"),
            None => "the PyTorch version is unknown, and versions before 2.10 fail to start with \
                this setting"
                .to_owned(),
        };
        advice.note(format!("{why}; set the limit in the program"));
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

    /// Returns the settings with a fraction of the device, or with the existing one if it is
    /// smaller.
    fn with_fraction(&self, had: &str, fraction: &str) -> String {
        let entries = || had.split(',').filter(|entry| !entry.trim().is_empty());
        let ours = |entry| value_of(entry, FRACTION_KEY);
        let smaller = entries().filter_map(ours).find_map(|had| self.smaller(had, fraction));
        let mut kept: Vec<_> =
            entries().filter(|entry| ours(entry).is_none()).map(str::to_owned).collect();
        kept.push(format!("{FRACTION_KEY}:{}", smaller.unwrap_or(fraction)));
        kept.join(",")
    }
}

fn value_of<'a>(entry: &'a str, key: &str) -> Option<&'a str> {
    let (name, value) = entry.split_once(':')?;
    (name.trim() == key).then_some(value)
}

fn has_other_backend(settings: &str) -> bool {
    let backend = |entry| value_of(entry, "backend").map(str::trim);
    settings.split(',').filter_map(backend).any(|backend| backend == "cudaMallocAsync")
}
