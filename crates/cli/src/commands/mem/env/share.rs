//! The frameworks of a command that must keep within a share of a device.

use crate::args::KeepArgs;
use gpu_host::python::{Installed, Python, Variables};
use gpu_memory_advice::environment::{Framework, READ, Used, Version};
use gpu_report::json;
use gpu_steward::MemoryLimit;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::PathBuf;

/// The frameworks of a program, and how they were found.
pub(crate) struct Known {
    pub(crate) used: Vec<Used>,
    /// The interpreter whose packages were searched.
    pub(crate) python: Option<PathBuf>,
    /// The frameworks that it has installed.
    installed: Vec<Installed>,
}

impl Known {
    /// Finds the frameworks of a command, or of the Python of this environment.
    ///
    /// A command that is not Python may start another interpreter than this environment's; the
    /// versions of its frameworks are then unknown.
    pub(super) fn of(keep: &KeepArgs, command: Option<&OsStr>, variable: Variables<'_>) -> Self {
        let of_command = command.and_then(|command| Python::of_program(command, variable));
        let is_its_own = command.is_none() || of_command.is_some();
        let python = of_command.or_else(|| Python::of_environment(variable));
        let installed = python.as_ref().map_or(Vec::new(), |python| python.installed(variable));
        let version_of = |used: Used| Used { version: used.version.filter(|_| is_its_own), ..used };
        let mut found: Vec<Used> = installed.iter().map(|one| version_of(used(one))).collect();
        found.sort_by_key(|used| used.framework);
        let mut used: Vec<Used> = Vec::new();
        for named in &keep.framework {
            let frameworks = match named.framework() {
                None => found.clone(),
                Some(framework) => {
                    let known = found.iter().find(|used| used.framework == framework).copied();
                    vec![known.unwrap_or(Used { framework, version: None })]
                }
            };
            used.extend(frameworks);
        }
        let torch = Framework::Torch;
        if let Some(version) = keep.torch_version {
            used.retain(|used| used.framework != torch);
            used.push(Used { framework: torch, version: Some(version) });
        }
        used.sort_by_key(|used| used.framework);
        used.dedup_by_key(|used| used.framework);
        Known { used, python: python.map(|python| python.path), installed }
    }

    /// Returns the version of a framework by its metadata directory.
    pub(crate) fn installed_version(&self, framework: Framework) -> Option<&str> {
        self.installed.iter().find(|one| self::framework(one) == framework)?.version.as_deref()
    }

    pub(super) fn view(&self) -> json::Known<'_> {
        let used = self.used.iter().map(|used| (*used, self.installed_version(used.framework)));
        json::Known { used: used.collect(), python: self.python.as_deref() }
    }

    /// Describes a framework with its version and interpreter.
    pub(super) fn described(&self, used: &Used) -> String {
        let name = used.framework.name();
        let text = self.installed_version(used.framework);
        match (text.filter(|text| Version::parse(text) == used.version), used.version, &self.python)
        {
            (Some(text), _, Some(python)) => format!("{name} {text} of {}", python.display()),
            (_, Some(version), _) => format!("{name} {}.{}", version.major, version.minor),
            (_, None, _) => name.to_owned(),
        }
    }
}

fn framework(installed: &Installed) -> Framework {
    match installed.module {
        "torch" => Framework::Torch,
        "tensorflow" => Framework::TensorFlow,
        _ => Framework::Jax,
    }
}

fn used(installed: &Installed) -> Used {
    let version = installed.version.as_deref().and_then(Version::parse);
    Used { framework: framework(installed), version }
}

/// Returns the inherited variables that affect a memory limit.
pub(super) fn inherited() -> BTreeMap<String, String> {
    let had = |name: &str| Some((name.to_owned(), std::env::var_os(name)?));
    let had = READ.into_iter().filter_map(had);
    had.map(|(name, value)| (name, value.to_string_lossy().into_owned())).collect()
}

/// Returns the memory limit for a command, or for programs of this environment.
pub(crate) fn bounding(keep: &KeepArgs, command: Option<&OsStr>) -> MemoryLimit {
    let variable = |name: &str| std::env::var_os(name);
    MemoryLimit {
        context: keep.context,
        used: Known::of(keep, command, &variable).used,
        inherited: inherited(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_installed_version_is_unknown() {
        let of =
            |version: &str| used(&Installed { module: "torch", version: Some(version.into()) });
        assert_eq!(of("$(reboot)").version, None);
        assert_eq!(of("2.10.0+cu128").version, Some(Version { major: 2, minor: 10 }));
    }
}
