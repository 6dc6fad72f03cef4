//! The directories, device files and programs of the test world.

use super::roles::{ATTACKER, HONEST, INSTALLED, PROGRAM_NAMES, PROGRAMS, WorldDirs};
use crate::attacker::sandbox::mount;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

/// Mounts the file systems of the world and creates their content.
pub(crate) fn make(dirs: &WorldDirs) {
    mount(&dirs.root, "mode=0755,size=512m");
    mount(Path::new(INSTALLED), "mode=0755,size=64m");
    let dir = |path: &Path, mode, user| {
        fs::create_dir_all(path).unwrap();
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        chown(path, Some(user), Some(user)).unwrap();
    };
    let copy = |from: &Path, to: &Path, user| {
        // Another process writes the file, so that no process of this program has it open.
        assert!(Command::new("cp").arg(from).arg(to).status().unwrap().success());
        fs::set_permissions(to, Permissions::from_mode(0o755)).unwrap();
        chown(to, Some(user), Some(user)).unwrap();
    };
    dir(&dirs.dev(), 0o755, 0);
    dir(&dirs.bin(), 0o755, 0);
    dir(dirs.released("x").parent().unwrap(), 0o1777, 0);
    for user in [0, HONEST] {
        dir(dirs.audit(user).parent().unwrap(), 0o700, user);
    }
    let participant = Path::new(env!("CARGO_BIN_EXE_process-participant"));
    copy(participant, &dirs.bin().join("participant"), 0);
    for name in ["Xorg", "nvidia-persistenced", "sshd", "shell"] {
        fs::hard_link(dirs.bin().join("participant"), dirs.bin().join(name)).unwrap();
    }
    copy(participant, &dirs.program(PROGRAMS, ""), 0);
    for number in 0..PROGRAMS {
        let [first, others @ ..] = PROGRAM_NAMES;
        let first = dirs.program(number, first);
        dir(first.parent().unwrap(), 0o755, ATTACKER);
        copy(participant, &first, ATTACKER);
        for name in others {
            fs::hard_link(&first, dirs.program(number, name)).unwrap();
        }
    }
    // LD_PRELOAD requires a shared library; this uses one of this program's libraries.
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let mut paths = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
    let library = paths.find(|path| path.contains("libgcc_s")).expect("Rust programs map libgcc_s");
    copy(Path::new(library), &dirs.dev().join("nvidia0"), 0);
    for name in ["nvidiactl", "nvidia-uvm"] {
        fs::write(dirs.dev().join(name), "").unwrap();
    }
    for name in ["nvidia0", "nvidiactl", "nvidia-uvm"] {
        fs::set_permissions(dirs.dev().join(name), Permissions::from_mode(0o666)).unwrap();
    }
}
