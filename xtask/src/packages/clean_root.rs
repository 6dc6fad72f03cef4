//! A root directory that contains only a package and its dependencies.

use crate::program::output_of;
use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::io::{self, Error};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Starts a program in the root directory, with the processes and device files of this machine. The
/// mounts are in a mount namespace that ends with the program.
const IN_ROOT: &str = "mount --bind /proc \"$0/proc\" && mount --bind /dev \"$0/dev\" && \
                       exec chroot \"$0\" \"$@\"";

/// A root directory with an installed package.
#[derive(Clone, Debug)]
pub struct CleanRoot {
    dir: PathBuf,
    packages: Vec<String>,
}

impl CleanRoot {
    /// Copies the packages that `package` depends on from this machine into an empty directory, and
    /// installs it there as dpkg does, with its scripts. dpkg refuses if a dependency is missing.
    ///
    /// # Errors
    /// If a dependency is not installed on this machine, dpkg fails, or a file cannot be written.
    /// Installing a package requires root.
    pub fn install(dir: &Path, package: &Path) -> io::Result<Self> {
        for sub in ["proc", "dev", "tmp", "run", "etc", "var/lib/dpkg/info", "var/lib/dpkg/updates"]
        {
            fs::create_dir_all(dir.join(sub))?;
        }
        for name in ["bin", "sbin", "lib", "lib64"] {
            fs::create_dir_all(dir.join("usr").join(name))?;
            symlink(Path::new("usr").join(name), dir.join(name))?;
        }
        fs::set_permissions(dir.join("tmp"), Permissions::from_mode(0o1777))?;
        let depends = output_of(Command::new("dpkg-deb").arg("-f").arg(package).arg("Depends"))?;
        let packages = closure(names(&depends))?;
        let mut status = String::new();
        for package in &packages {
            copy_files(package, dir)?;
            status += &output_of(Command::new("dpkg-query").args(["-s", package]))?;
            status.push('\n');
        }
        fs::write(dir.join("var/lib/dpkg/status"), status)?;
        let mut dpkg = Command::new("dpkg");
        dpkg.arg(format!("--root={}", dir.display())).arg("--force-script-chrootless");
        output_of(dpkg.arg("--install").arg(package))?;
        Ok(CleanRoot { dir: dir.to_owned(), packages: packages.into_iter().collect() })
    }

    /// Returns the packages in it other than the installed one.
    pub fn packages(&self) -> &[String] {
        &self.packages
    }

    /// Returns a command that runs `words` in it.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-ec", IN_ROOT]).arg(&self.dir).args(words);
        command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        command
    }
}

/// Copies the files of a package that is installed on this machine, except for documentation.
fn copy_files(package: &str, dir: &Path) -> io::Result<()> {
    let listed = output_of(Command::new("dpkg-query").args(["-L", package]))?;
    for path in listed.lines().filter(|path| !path.starts_with("/usr/share/")) {
        // For diverted files, dpkg prints a sentence.
        let Ok(found) = Path::new(path).symlink_metadata() else { continue };
        let to = dir.join(path.trim_start_matches('/'));
        // `/lib` is a directory in the package but a link here.
        if Path::new(path).is_dir() {
            fs::create_dir_all(&to)?;
            continue;
        }
        fs::create_dir_all(to.parent().unwrap_or(dir))?;
        if found.is_symlink() {
            symlink(fs::read_link(path)?, &to)?;
        } else {
            fs::copy(path, &to)?;
        }
    }
    Ok(())
}

/// Returns these packages and all of their dependencies.
fn closure(mut wanted: Vec<String>) -> io::Result<BTreeSet<String>> {
    let mut packages = BTreeSet::new();
    while let Some(package) = wanted.pop() {
        let mut query = Command::new("dpkg-query");
        query.args(["-W", "-f", "${db:Status-Status}\n${Pre-Depends}, ${Depends}", &package]);
        let answer = output_of(&mut query)?;
        let (state, depends) = answer.split_once('\n').unwrap_or((&answer, ""));
        if state != "installed" {
            return Err(Error::other(format!("'{package}' is not installed on this machine")));
        }
        if packages.insert(package) {
            wanted.extend(names(depends));
        }
    }
    Ok(packages)
}

/// Returns the packages of a field like `libc6 (>= 2.28), mawk | gawk`; of alternatives, the first.
fn names(field: &str) -> Vec<String> {
    let first = |part: &str| {
        let end = part.find([' ', '(', '|', ':', '\n']).unwrap_or(part.len());
        part[..end].to_owned()
    };
    field.split(',').map(|part| first(part.trim())).filter(|name| !name.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_are_named_without_versions() {
        let field = "libc6 (>= 2.28), libgcc-s1 (>= 4.2),, mawk | gawk, perl:any\n";
        assert_eq!(names(field), ["libc6", "libgcc-s1", "mawk", "perl"]);
        assert_eq!(names("\n"), Vec::<String>::new());
    }
}
