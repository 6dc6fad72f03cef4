//! Processes that end when their value is dropped.

use gpu_core::{Clock, Pid};
use gpu_host::SystemClock;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A child process, killed and reaped when dropped.
pub(crate) struct Sleeper {
    child: Child,
}

impl Sleeper {
    pub(crate) fn spawn(command: &mut Command) -> Self {
        loop {
            match command.spawn() {
                // Another test that starts a program at this moment still has this copy open for
                // writing.
                Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => {}
                child => return Sleeper { child: child.expect("the program can be run") },
            }
        }
    }

    /// Runs a shell script that ends with `exec sleep`; returns once the sleep runs. `$1` and so on
    /// are the arguments.
    pub(crate) fn shell(script: &str, arguments: &[&Path]) -> Self {
        let script = format!("{script}; exec sleep 1000");
        let mut command = Command::new("sh");
        command.arg("-c").arg(script).arg("sh").args(arguments);
        let sleeper = Sleeper::spawn(&mut command);
        sleeper.wait_for_name("sleep");
        sleeper
    }

    /// Runs a program that prints `ready` when it is ready.
    pub(crate) fn ready(command: &mut Command) -> Self {
        let mut sleeper = Sleeper::spawn(command.stdout(Stdio::piped()));
        let mut said = [0; 5];
        let output = sleeper.child.stdout.as_mut().expect("standard output is a pipe");
        output.read_exact(&mut said).expect("the program prints 'ready'");
        assert_eq!(&said, b"ready");
        sleeper
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid(self.child.id())
    }

    pub(crate) fn wait_for_name(&self, name: &str) {
        let comm = format!("/proc/{}/comm", self.pid());
        eventually(|| {
            std::fs::read(&comm).is_ok_and(|comm| comm.trim_ascii_end() == name.as_bytes())
        });
    }

    /// Waits for the end, so that its PID may be reused.
    pub(crate) fn reap(&mut self) {
        self.child.wait().expect("the child can be waited for");
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        // A process that is already gone needs no signal.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until a condition holds; a busy machine may take minutes.
pub(crate) fn eventually(mut condition: impl FnMut() -> bool) {
    let clock = SystemClock::new();
    while !condition() {
        assert!(clock.monotonic() < Duration::from_secs(240), "it did not come true");
        clock.sleep(Duration::from_millis(2));
    }
}

/// Compiles a C program into `dir`; `None` without a compiler.
pub(crate) fn compile(dir: &Path, source: &str) -> Option<PathBuf> {
    let (text, program) = (dir.join("program.c"), dir.join("program"));
    std::fs::write(&text, source).expect("the directory can be written");
    let mut command = Command::new("cc");
    command.args(["-pthread", "-O1", "-o"]).arg(&program).arg(&text);
    let done = command.status().is_ok_and(|status| status.success());
    done.then_some(program)
}
