//! The directories, programs and actors of the test world, shared by all its processes.

use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The users of the world, in addition to root.
pub(crate) const ATTACKER: u32 = 61_001;
pub(crate) const HONEST: u32 = 61_002;
pub(crate) const ONLOOKER: u32 = 61_003;

/// The system directory in which root has installed an MPS server. The world mounts its own file
/// system there.
pub(crate) const INSTALLED: &str = "/usr/local/sbin";

/// The number of programs that an actor runs in turn, never an earlier one again. The next one is
/// the MPS server installed by root.
pub(crate) const PROGRAMS: u64 = 3;

/// The directories of the world.
#[derive(Clone, Debug)]
pub(crate) struct WorldDirs {
    /// The file system of the world.
    pub(crate) root: PathBuf,
}

impl WorldDirs {
    /// Returns the directory of device files.
    pub(crate) fn dev(&self) -> PathBuf {
        self.root.join("dev")
    }

    /// Returns the directory of root's programs.
    pub(crate) fn bin(&self) -> PathBuf {
        self.root.join("bin")
    }

    /// Returns a program of the attacker. All names with the same number refer to the same file.
    pub(crate) fn program(&self, number: u64, name: &str) -> PathBuf {
        match number {
            0..PROGRAMS => self.root.join(format!("programs/{number}/{name}")),
            _ => PathBuf::from(INSTALLED).join("nvidia-cuda-mps-server"),
        }
    }

    /// Returns the file that an actor creates after permanently closing its memory.
    pub(crate) fn released(&self, token: &str) -> PathBuf {
        self.root.join("released").join(token)
    }

    /// Returns the stop file of the reapers.
    pub(crate) fn stop(&self) -> PathBuf {
        self.root.join("stop")
    }

    /// Returns the audit log of a user.
    pub(crate) fn audit(&self, user: u32) -> PathBuf {
        self.root.join(format!("audit/{user}/audit.jsonl"))
    }
}

/// The names of the attacker's programs.
pub(crate) const PROGRAM_NAMES: [&str; 5] =
    ["train", "Xorg", "nvidia-cuda-mps-server", "nvidia-persistenced", "sshd"];

/// A process of the world and its role, which its arguments show to other processes.
#[derive(Clone, Debug)]
pub(crate) struct ActorRole {
    pub(crate) kind: String,
    /// Identifies the process.
    pub(crate) token: String,
    pub(crate) seed: u64,
    /// The number of actors that it may still start, including those started by them.
    pub(crate) budget: u64,
    /// The number of its program.
    pub(crate) program: u64,
}

impl ActorRole {
    /// Returns the command that runs this role with a program.
    pub(crate) fn command(&self, dirs: &WorldDirs, program: PathBuf) -> Command {
        let mut command = Command::new(program);
        command.args(["actor", &self.kind, &self.token]).arg(&dirs.root);
        command.args([self.seed, self.budget, self.program].map(|number| number.to_string()));
        command.current_dir("/").stdin(Stdio::null()).env_remove("LD_PRELOAD");
        command
    }

    /// Parses the role from the arguments of a process; `None` if it has none.
    pub(crate) fn read(arguments: &[String]) -> Option<(ActorRole, WorldDirs)> {
        let [_, first, kind, token, root, seed, budget, program] = arguments else { return None };
        let number = |text: &String| text.parse().ok();
        let role = ActorRole {
            kind: kind.clone(),
            token: token.clone(),
            seed: number(seed)?,
            budget: number(budget)?,
            program: number(program)?,
        };
        (first == "actor").then(|| (role, WorldDirs { root: root.into() }))
    }
}
