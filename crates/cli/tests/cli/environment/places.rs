//! Root trusts no directory that another user can replace.

use crate::environment::{give_to_nobody, is_root, skip};
use crate::live::{out, reported, script};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A directory of another user, and a directory of root that links of that user point to.
struct Foreign {
    user: TempDir,
    root: TempDir,
}

impl Foreign {
    /// Returns `None`, with a note, if root may not create a directory in `/run`.
    fn new(test: &str) -> Option<Self> {
        if !is_root(test) {
            return None;
        }
        // All parent directories belong to root and are not writable by others, so only the link is
        // untrusted.
        let Ok(root) = tempfile::tempdir_in("/run") else {
            skip(test, "needs a writable /run");
            return None;
        };
        let user = tempfile::tempdir().unwrap();
        for dir in [user.path(), root.path()] {
            fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).unwrap();
        }
        give_to_nobody(user.path());
        Some(Foreign { user, root })
    }

    fn user(&self) -> &Path {
        self.user.path()
    }

    /// Creates a link of the user that leads to root's directory.
    fn link(&self, name: &str) -> PathBuf {
        let link = self.user().join(name);
        symlink(self.root.path(), &link).unwrap();
        give_to_nobody(&link);
        link
    }
}

/// Returns all files and directories of root in a directory, without following links.
fn made_by_root(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let stat = path.symlink_metadata().unwrap();
        if stat.is_dir() {
            found.extend(made_by_root(&path));
        }
        if stat.uid() == 0 {
            found.push(path);
        }
    }
    found
}

/// Replaces the link with a directory of the user, with programs that leave a trace.
const EXCHANGE: &str = r#"
cd "$1" && rm "$2" && mkdir -p "$2/gpuws/bin" "$2/.cache/gpuws/bin"
for directory in "$2/gpuws/bin" "$2/.cache/gpuws/bin"; do
  for name in nvidia-smi ls; do
    printf '#!/bin/sh\nid -u >> %s/ran\n' "$1" > "$directory/$name"; chmod 755 "$directory/$name"
  done
done
"#;

#[test]
fn root_runs_no_program_from_user_controlled_symlink() {
    const TEST: &str = "root_runs_no_program_from_user_controlled_symlink";
    let variables: [&[&str]; 4] =
        [&["XDG_RUNTIME_DIR"], &["XDG_CACHE_HOME"], &["HOME"], &["HOME", "XDG_RUNTIME_DIR"]];
    for names in variables {
        let Some(foreign) = Foreign::new(TEST) else { return };
        fs::write(foreign.user().join("exchange"), EXCHANGE).unwrap();
        let link = foreign.link("place");
        let set: String =
            names.iter().map(|name| format!("export {name}='{}'\n", link.display())).collect();
        let output = script(
            "twelve-gpus",
            &format!(
                "unset HOME XDG_RUNTIME_DIR XDG_CACHE_HOME\n{set}\
                 export user='{}'\n\
                 \"$0\" run -- sh -c 'touch started; until test -e exchanged; do sleep 0.05; done; \
                   nvidia-smi > /dev/null; ls > /dev/null' & run=$!\n\
                 until_so test -e started\n\
                 setpriv --reuid=65534 --regid=65534 --clear-groups \
                   sh \"$user/exchange\" \"$user\" place; echo $?\n\
                 touch exchanged; wait $run",
                foreign.user().display()
            ),
        );
        assert_eq!(out(&output), "0\n", "{names:?}: {output:?}");
        assert!(!foreign.user().join("ran").exists(), "{names:?}: a planted program ran");
        let in_root = fs::read_dir(foreign.root.path()).unwrap().count();
        assert_eq!(in_root, 0, "{names:?}: something was made where the link led");
        let mut made = made_by_root(foreign.user());
        made.retain(|path| !path.ends_with("exchange"));
        assert_eq!(made, Vec::<PathBuf>::new(), "{names:?}: root made something for the user");
    }
}

#[test]
fn root_creates_no_file_in_home_of_other_user() {
    const TEST: &str = "root_creates_no_file_in_home_of_other_user";
    let Some(foreign) = Foreign::new(TEST) else { return };
    let home = foreign.user().display();
    let output = script(
        "twelve-gpus",
        &format!(
            "export HOME='{home}' XDG_RUNTIME_DIR='{home}' XDG_STATE_HOME='{home}'\n\
             \"$0\" run -- sh -c 'echo \"${{PATH%%:*}}\"'; \"$0\" reap --yes > /dev/null; \
             \"$0\" leases > /dev/null"
        ),
    );
    assert_eq!(out(&output), "/run/gpuws-shim\n", "{output:?}");
    assert_eq!(made_by_root(foreign.user()), Vec::<PathBuf>::new(), "{output:?}");
    let shim = fs::symlink_metadata("/run/gpuws-shim").unwrap();
    assert_eq!((shim.uid(), shim.mode() & 0o7777, shim.is_dir()), (0, 0o755, true));
}

#[test]
fn nvidia_smi_shim_shows_only_leased_devices() {
    let output = script(
        "twelve-gpus",
        "\"$0\" run -n 2 --gpu 3,5 -- sh -c 'nvidia-smi \
         --query-gpu=index,gpu_bus_id --format=csv,noheader' | cut -d, -f1",
    );
    assert_eq!(out(&output), "3\n5\n", "{output:?}");
}

#[test]
fn without_trusted_dir_shim_is_skipped_with_note() {
    const TEST: &str = "without_trusted_dir_shim_is_skipped_with_note";
    let Some(foreign) = Foreign::new(TEST) else { return };
    // A directory in one that is writable by everyone can be replaced by anyone.
    let dir = foreign.user().display();
    let before = "PATH=/usr/bin:/bin";
    let run = |more: &str| {
        script(
            "twelve-gpus",
            &format!(
                "chmod -R go+rX . \"$GPUWS_SIM_SESSION\"; cd /\n\
                 exec setpriv --reuid=65534 --regid=65534 --clear-groups env -u XDG_CACHE_HOME \
                 -u GPUWS_SIM_SESSION -u LD_LIBRARY_PATH HOME='{dir}' XDG_RUNTIME_DIR='{dir}' \
                 {before} NO_COLOR=1 \"$0\" sim twelve-gpus --live -- \
                 \"$0\" run {more} -- sh -c 'echo $PATH'"
            ),
        )
    };
    let output = run("");
    // Only the session's directory is added, behind all others.
    let added = out(&output).trim().strip_prefix("/usr/bin:/bin:").map(str::to_owned);
    let is_session = |added: String| !added.contains(':') && added.contains("/gpuws-sim-");
    assert!(added.is_some_and(is_session), "{output:?}");
    let output_text = reported(&output);
    assert!(output_text.contains("no nvidia-smi shim: "), "{output_text}");
    assert!(output_text.contains("--no-nvidia-smi"), "{output_text}");
    assert!(!foreign.user().join("gpuws").exists() && !foreign.user().join(".cache").exists());
    let output = run("--no-nvidia-smi");
    assert!(!reported(&output).contains("nvidia-smi"), "{output:?}");
}

#[test]
fn shim_path_is_canonical() {
    const TEST: &str = "shim_path_is_canonical";
    let Some(foreign) = Foreign::new(TEST) else { return };
    let own = foreign.root.path().join("own");
    fs::create_dir(&own).unwrap();
    give_to_nobody(&own);
    let link = foreign.root.path().join("link");
    symlink("own", &link).unwrap();
    let output = script(
        "twelve-gpus",
        &format!(
            "cd /; exec setpriv --reuid=65534 --regid=65534 --clear-groups \
             env -u GPUWS_SIM_SESSION -u LD_LIBRARY_PATH HOME=/ XDG_RUNTIME_DIR='{}' \
             NO_COLOR=1 \"$0\" sim twelve-gpus --live -- \
             \"$0\" run -- sh -c 'echo \"${{PATH%%:*}}\"'",
            link.display()
        ),
    );
    assert_eq!(out(&output), format!("{}/gpuws/bin\n", own.display()), "{output:?}");
}

#[test]
fn root_rejects_lease_dir_under_user_control() {
    const TEST: &str = "root_rejects_lease_dir_under_user_control";
    let Some(foreign) = Foreign::new(TEST) else { return };
    // It belongs to root, but the owner of the parent directory can replace it.
    let claims = foreign.user().join("claims");
    fs::create_dir(&claims).unwrap();
    let output = script(
        "twelve-gpus",
        &format!(
            "\"$0\" run --claims '{0}' -- true; echo $?\n\
             GPUWS_CLAIMS='{0}' \"$0\" run -- true; echo $?\n\
             GPUWS_CLAIMS='{0}' timeout 60 \"$0\" claim --hold; echo $?\n\
             TMPDIR='{1}' XDG_RUNTIME_DIR='{1}' \"$0\" --sim labbox claim > /dev/null; echo $?",
            claims.display(),
            foreign.user().display()
        ),
    );
    assert_eq!(out(&output), "2\n2\n2\n2\n", "{output:?}");
    let output_text = reported(&output);
    assert!(output_text.contains("which belongs to user 65534"), "{output_text}");
    assert_eq!(fs::read_dir(&claims).unwrap().count(), 0);
}
