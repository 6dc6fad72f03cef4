//! The frameworks that a Python installation contains, by directory names alone; no code is
//! executed.

use crate::supervise::find_program;
use rustix::fs::{Mode, OFlags};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The maximum number of directories to search.
const MAX_DIRS: usize = 32;

/// The maximum number of names to read from a directory.
const MAX_NAMES: usize = 20_000;

/// The maximum length of a version, in bytes.
const LONGEST_VERSION: usize = 64;

/// The maximum number of bytes to read from a program or from `pyvenv.cfg`.
const MAX_READ: u64 = 4096;

/// The lookup of an environment variable by name.
pub type Variables<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// A Python interpreter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Python {
    /// The path by which it is started, with links unresolved: its virtual environment depends on
    /// it.
    pub path: PathBuf,
}

/// An installed framework.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installed {
    /// The module name: `torch`, `tensorflow` or `jax`.
    pub module: &'static str,
    /// The version in the directory name; `None` if there are directories for several versions.
    pub version: Option<String>,
}

impl Python {
    /// Returns the interpreter of an environment: that of the active virtual environment, else the
    /// first in `PATH`.
    pub fn of_environment(variable: Variables<'_>) -> Option<Self> {
        let active = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(variable);
        let active = active.filter(|dir| !dir.is_empty()).map(PathBuf::from);
        let mut active = active.map(|dir| dir.join("bin/python"));
        if let Some(path) = active.find(|path| is_python(path)) {
            return Some(Python { path });
        }
        let found = |name: &str| find_program(name.as_ref(), variable("PATH").as_deref()).ok();
        let path = found("python3").or_else(|| found("python"))?;
        is_python(&path).then_some(Python { path })
    }

    /// Returns the interpreter that runs a program: the program itself, or the interpreter in its
    /// shebang line. `None` if that is not Python.
    pub fn of_program(program: &OsStr, variable: Variables<'_>) -> Option<Self> {
        let find = |name: &OsStr| find_program(name, variable("PATH").as_deref()).ok();
        let path = find(program)?;
        if is_python(&path) {
            return Some(Python { path });
        }
        let start = start_of(&path)?;
        let mut words = start.strip_prefix("#!")?.lines().next()?.split_whitespace();
        let first = Path::new(words.next()?);
        let path = if first.file_name()? == "env" {
            find(words.find(|word| !word.starts_with('-') && !word.contains('='))?.as_ref())?
        } else {
            first.to_owned()
        };
        is_python(&path).then_some(Python { path })
    }

    /// Returns the installed frameworks; for each module, the first one in the search order.
    pub fn installed(&self, variable: Variables<'_>) -> Vec<Installed> {
        let mut found: Vec<Installed> = Vec::new();
        for dir in self.dirs(variable).iter().take(MAX_DIRS) {
            let here = installed_in(dir);
            let is_new = |one: &Installed| found.iter().all(|had| had.module != one.module);
            let new: Vec<_> = here.into_iter().filter(is_new).collect();
            found.extend(new);
        }
        found.sort_by_key(|installed| installed.module);
        found
    }

    /// Returns the package directories, in the interpreter's search order.
    fn dirs(&self, variable: Variables<'_>) -> Vec<PathBuf> {
        let listed = variable("PYTHONPATH").unwrap_or_default();
        let mut dirs: Vec<PathBuf> =
            std::env::split_paths(&listed).filter(|dir| dir.is_absolute()).collect();
        let prefix = self.path.parent().and_then(Path::parent);
        if let Some(prefix) = prefix
            && let Some(config) = start_of(&prefix.join("pyvenv.cfg"))
        {
            let version = setting(&config, "version").or(setting(&config, "version_info"));
            let version = version.and_then(version_of);
            dirs.extend(packages(prefix, version));
            if setting(&config, "include-system-site-packages") == Some("true")
                && let Some(base) =
                    setting(&config, "home").and_then(|home| Path::new(home).parent())
            {
                dirs.extend(own(variable, version));
                dirs.extend(packages(base, version));
            }
            return dirs;
        }
        if let Ok(real) = std::fs::canonicalize(&self.path)
            && let Some(prefix) = real.parent().and_then(Path::parent)
        {
            let name = real.file_name().and_then(OsStr::to_str).unwrap_or_default();
            let version = name.strip_prefix("python").and_then(version_of);
            dirs.extend(own(variable, version));
            dirs.extend(packages(prefix, version));
        }
        dirs
    }
}

/// Returns whether a file is a Python interpreter, by its name. A script of that name, such as a
/// shim of pyenv, starts an unknown interpreter and does not count.
fn is_python(path: &Path) -> bool {
    let name = path.file_name().and_then(OsStr::to_str);
    name.is_some_and(|name| name.starts_with("python"))
        && start_of(path).is_some_and(|start| !start.starts_with("#!"))
}

/// Returns the directories of the user's own packages.
fn own(variable: Variables<'_>, version: Option<(u32, u32)>) -> Vec<PathBuf> {
    let home = variable("HOME").filter(|home| !home.is_empty());
    match (home, variable("PYTHONNOUSERSITE")) {
        (Some(home), None) => packages(&Path::new(&home).join(".local"), version),
        _ => Vec::new(),
    }
}

/// Returns the package directories below a prefix, in the layouts of Python and of Debian.
fn packages(prefix: &Path, version: Option<(u32, u32)>) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for library in ["local/lib", "lib", "lib64"].map(|library| prefix.join(library)) {
        let names = names(&library).into_iter().filter(|name| match (name.as_str(), version) {
            ("python3", _) => true,
            (name, None) => name.starts_with("python3."),
            (name, Some((major, minor))) => name == format!("python{major}.{minor}"),
        });
        let mut names: Vec<_> = names.collect();
        names.sort();
        for dir in names.iter().map(|name| library.join(name)) {
            let kinds = ["site-packages", "dist-packages"].map(|kind| dir.join(kind));
            found.extend(kinds.into_iter().filter(|dir| dir.is_dir()));
        }
    }
    found
}

/// Returns the frameworks that have a metadata directory in `dir`.
fn installed_in(dir: &Path) -> Vec<Installed> {
    let mut found: Vec<Installed> = Vec::new();
    let mut libraries = Vec::new();
    for name in names(dir) {
        let Some((package, version)) = package(&name) else { continue };
        let module = match package.as_str() {
            "torch" => "torch",
            "tensorflow" | "tensorflow_gpu" | "tf_nightly" => "tensorflow",
            "jax" => "jax",
            "jaxlib" => {
                let version = Some(version.to_owned());
                libraries.push(Installed { module: "jax", version });
                continue;
            }
            _ => continue,
        };
        match found.iter_mut().find(|had| had.module == module) {
            // An update can leave an old directory. The names do not show which version is
            // imported.
            Some(had) if had.version.as_deref() != Some(version) => had.version = None,
            Some(_) => {}
            None => found.push(Installed { module, version: Some(version.to_owned()) }),
        }
    }
    if found.iter().all(|had| had.module != "jax") {
        found.extend(libraries.into_iter().next());
    }
    found
}

/// Parses a directory name such as `torch-2.10.0+cu128.dist-info` into package and version.
fn package(name: &str) -> Option<(String, &str)> {
    let stem = name.strip_suffix(".dist-info").or_else(|| name.strip_suffix(".egg-info"))?;
    let (package, version) = stem.split_once('-')?;
    let version = version.split('-').next().unwrap_or(version);
    let package = package.to_ascii_lowercase().replace('.', "_");
    (version.len() <= LONGEST_VERSION).then_some((package, version))
}

fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().take(MAX_NAMES);
    entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect()
}

/// Returns the first bytes of a regular file as text; `None` if they cannot be read.
fn start_of(path: &Path) -> Option<String> {
    // Checks the opened file, because a FIFO may have replaced a regular file.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(MAX_READ).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Parses the first two numbers of a version.
fn version_of(text: &str) -> Option<(u32, u32)> {
    let (major, rest) = text.trim().split_once('.')?;
    let minor: String = rest.chars().take_while(char::is_ascii_digit).collect();
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn setting<'a>(config: &'a str, key: &str) -> Option<&'a str> {
    let pairs = config.lines().filter_map(|line| line.split_once('='));
    let mut values = pairs.filter(|(name, _)| name.trim() == key);
    values.next().map(|(_, value)| value.trim())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use tempfile::TempDir;

    struct Tree(TempDir);

    impl Tree {
        fn new() -> Self {
            Tree(tempfile::tempdir().unwrap())
        }

        fn path(&self, path: &str) -> PathBuf {
            self.0.path().join(path)
        }

        fn dirs(&self, dir: &str, names: &[&str]) {
            for name in names {
                std::fs::create_dir_all(self.path(dir).join(name)).unwrap();
            }
        }

        fn file(&self, path: &str, text: &str) -> PathBuf {
            let path = self.path(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
            path
        }

        /// Returns an environment with these variables. A value that starts with `/` is a path in
        /// the tree.
        fn variables(&self, set: &[(&str, &str)]) -> impl Fn(&str) -> Option<OsString> + use<> {
            let within = |value: &str| match value.strip_prefix('/') {
                Some(path) => self.path(path).into_os_string(),
                None => value.into(),
            };
            let set: Vec<(String, OsString)> =
                set.iter().map(|(name, value)| (name.to_string(), within(value))).collect();
            move |name| set.iter().find(|(other, _)| other == name).map(|(_, value)| value.clone())
        }
    }

    fn found(
        python: Option<Python>,
        variable: Variables<'_>,
    ) -> Vec<(&'static str, Option<String>)> {
        let installed = python.expect("there is a Python").installed(variable);
        installed.into_iter().map(|one| (one.module, one.version)).collect()
    }

    fn version(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn virtual_environment_takes_precedence_over_path() {
        let tree = Tree::new();
        tree.file("v/bin/python", "");
        tree.file("usr/bin/python3", "");
        tree.file("v/pyvenv.cfg", "home = /usr/bin\nversion = 3.11.4\n");
        tree.dirs(
            "v/lib/python3.11/site-packages",
            &["torch-2.10.0+cu128.dist-info", "torchvision-0.25.0.dist-info", "torch"],
        );
        tree.dirs("v/lib/python3.9/site-packages", &["jax-0.4.1.dist-info"]);
        tree.dirs("usr/lib/python3/dist-packages", &["tensorflow-2.17.0.dist-info"]);
        let active = tree.variables(&[("VIRTUAL_ENV", "/v"), ("PATH", "/usr/bin")]);
        let torch = [("torch", version("2.10.0+cu128"))];
        assert_eq!(found(Python::of_environment(&active), &active), torch);
        let other = tree.variables(&[("VIRTUAL_ENV", "/gone"), ("PATH", "/usr/bin")]);
        let tensorflow = [("tensorflow", version("2.17.0"))];
        assert_eq!(found(Python::of_environment(&other), &other), tensorflow);
        tree.file("shims/python3", "#!/bin/sh\nexec pyenv exec\n");
        let shim = tree.variables(&[("PATH", "/shims")]);
        assert_eq!(Python::of_environment(&shim), None, "it may be any");
        let none = tree.variables(&[("PATH", "/nowhere")]);
        assert_eq!(Python::of_environment(&none), None);
    }

    #[test]
    fn virtual_environment_may_include_system_packages() {
        let tree = Tree::new();
        let home = tree.path("usr/bin");
        tree.file("v/bin/python", "");
        tree.dirs("v/lib/python3.12/site-packages", &["jaxlib-0.5.0.dist-info"]);
        tree.dirs(
            "usr/lib/python3.12/site-packages",
            &["torch-2.9.1-py3.12.egg-info", "jax-0.4.0.dist-info"],
        );
        let variables = tree.variables(&[]);
        let python = || Some(Python { path: tree.path("v/bin/python") });
        for (sees, frameworks) in [
            ("false", vec![("jax", version("0.5.0"))]),
            ("true", vec![("jax", version("0.5.0")), ("torch", version("2.9.1"))]),
        ] {
            let config = format!(
                "home = {}\ninclude-system-site-packages = {sees}\nversion = 3.12.1\n",
                home.display()
            );
            tree.file("v/pyvenv.cfg", &config);
            assert_eq!(found(python(), &variables), frameworks, "{sees}");
        }
    }

    #[test]
    fn packages_are_found_next_to_symlink_target() {
        let tree = Tree::new();
        tree.file("opt/py/bin/python3.10", "");
        std::fs::create_dir_all(tree.path("bin")).unwrap();
        symlink(tree.path("opt/py/bin/python3.10"), tree.path("bin/python3")).unwrap();
        tree.dirs("opt/py/lib/python3.10/site-packages", &["jax-0.6.0.dist-info"]);
        tree.dirs("opt/py/lib/python3.11/site-packages", &["torch-2.10.0.dist-info"]);
        tree.dirs("home/.local/lib/python3.10/site-packages", &["jax-0.7.0.dist-info"]);
        let path = ("PATH", "/bin");
        let alone = tree.variables(&[path]);
        assert_eq!(found(Python::of_environment(&alone), &alone), [("jax", version("0.6.0"))]);
        let own = tree.variables(&[path, ("HOME", "/home")]);
        let first = [("jax", version("0.7.0"))];
        assert_eq!(found(Python::of_environment(&own), &own), first, "a user's own come first");
        let listed =
            tree.variables(&[path, ("PYTHONPATH", "/opt/py/lib/python3.11/site-packages")]);
        assert_eq!(found(Python::of_environment(&listed), &listed).len(), 2);
    }

    #[test]
    fn conflicting_versions_are_unknown() {
        let tree = Tree::new();
        let names =
            ["torch-2.9.0.dist-info", "torch-2.10.0.dist-info", "Tensorflow_GPU-2.4.dist-info"];
        tree.file("bin/python3", "");
        tree.dirs("lib/python3.11/site-packages", &names);
        let variables = tree.variables(&[("PATH", "/bin")]);
        assert_eq!(
            found(Python::of_environment(&variables), &variables),
            [("tensorflow", version("2.4")), ("torch", None)]
        );
    }

    #[test]
    fn invalid_package_names_are_skipped() {
        for name in [
            "torch",
            "torch.dist-info",
            "torch-.egg",
            ".dist-info",
            "-.dist-info",
            "torch\u{1b}[2J-2.10.dist-info",
            "torch-\n2.10",
            &format!("torch-{}.dist-info", "9".repeat(100)),
        ] {
            let read = package(name).map(|(package, _)| package);
            assert_ne!(read.as_deref(), Some("torch"), "{name:?}");
        }
    }

    #[test]
    fn python_of_command_is_itself_or_its_shebang() {
        let tree = Tree::new();
        let python = tree.file("v/bin/python3.11", "");
        tree.file("bin/python3", "");
        tree.file("bin/torchrun", &format!("#!{}\nimport torch\n", python.display()));
        tree.file("bin/tool", "#!/usr/bin/env -S python3 -u\n");
        tree.file("bin/script", "#!/bin/sh\npython3 train.py\n");
        tree.file("bin/empty", "");
        tree.file("bin/binary", "\u{7f}ELF\0\0");
        let variables = tree.variables(&[("PATH", "/bin")]);
        let of = |program: &str| {
            Python::of_program(program.as_ref(), &variables).map(|python| python.path)
        };
        assert_eq!(of("python3"), Some(tree.path("bin/python3")));
        assert_eq!(of("torchrun"), Some(python));
        assert_eq!(of("tool"), Some(tree.path("bin/python3")));
        for other in ["script", "empty", "binary", "gone", "", "/dev/zero"] {
            assert_eq!(of(other), None, "{other}");
        }
    }
}
