//! The directories, programs and actors of the test world, for all its processes.

use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The users of the world; root is another one.
pub(crate) const ATTACKER: u32 = 61_001;
pub(crate) const HONEST: u32 = 61_002;
pub(crate) const ONLOOKER: u32 = 61_003;

/// The system directory where root has installed an MPS server. The world mounts its own file
/// system there.
pub(crate) const INSTALLED: &str = "/usr/local/sbin";

/// The number of programs that an actor runs, one after the other and never an earlier one again.
/// The next one is the MPS server that root installed.
pub(crate) const PROGRAMS: u64 = 3;

/// The directories of the world.
#[derive(Clone, Debug)]
pub(crate) struct Scene {
    /// The file system of the world.
    pub(crate) root: PathBuf,
}

impl Scene {
    /// Returns the directory of device files.
    pub(crate) fn dev(&self) -> PathBuf {
        self.root.join("dev")
    }

    /// Returns the directory of root's programs.
    pub(crate) fn bin(&self) -> PathBuf {
        self.root.join("bin")
    }

    /// Returns a program of the attacker's. All names of one number are the same file.
    pub(crate) fn program(&self, number: u64, name: &str) -> PathBuf {
        match number {
            0..PROGRAMS => self.root.join(format!("programs/{number}/{name}")),
            _ => PathBuf::from(INSTALLED).join("nvidia-cuda-mps-server"),
        }
    }

    /// Returns the file that an actor creates once it has closed its memory for good.
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

/// A process of the world and its role; its arguments contain them, for others to read.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) kind: String,
    /// Unique to the process.
    pub(crate) token: String,
    pub(crate) seed: u64,
    /// How many more actors it may start, including those that they start.
    pub(crate) budget: u64,
    /// The number of its program.
    pub(crate) program: u64,
}

impl Part {
    /// Returns the command that plays this role with a program.
    pub(crate) fn command(&self, scene: &Scene, program: PathBuf) -> Command {
        let mut command = Command::new(program);
        command.args(["actor", &self.kind, &self.token]).arg(&scene.root);
        command.args([self.seed, self.budget, self.program].map(|number| number.to_string()));
        command.current_dir("/").stdin(Stdio::null()).env_remove("LD_PRELOAD");
        command
    }

    /// Parses the role from the arguments of a process; `None` if it has none.
    pub(crate) fn read(arguments: &[String]) -> Option<(Part, Scene)> {
        let [_, role, kind, token, root, seed, budget, program] = arguments else { return None };
        let number = |text: &String| text.parse().ok();
        let part = Part {
            kind: kind.clone(),
            token: token.clone(),
            seed: number(seed)?,
            budget: number(budget)?,
            program: number(program)?,
        };
        (role == "actor").then(|| (part, Scene { root: root.into() }))
    }
}
