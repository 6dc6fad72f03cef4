//! Resets a device with the installed nvidia-smi, because NVML has no public function for it.
//!
//! nvidia-smi is run by its full path, never through `PATH`, because this program then runs as
//! root.

use crate::child::moment;
use gpu_core::{Absent, DeviceFault, Error, ErrorKind, MachineFault, PciBusId, Result};
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// The installation paths of nvidia-smi: distributions, NVIDIA's installer, WSL, NixOS, containers.
const PATHS: [&str; 6] = [
    "/usr/bin/nvidia-smi",
    "/usr/local/bin/nvidia-smi",
    "/usr/lib/wsl/lib/nvidia-smi",
    "/run/current-system/sw/bin/nvidia-smi",
    "/usr/local/nvidia/bin/nvidia-smi",
    "/opt/bin/nvidia-smi",
];

/// The deadline of a reset, which normally takes seconds.
const DEADLINE: Duration = Duration::from_secs(60);

/// The time for nvidia-smi to exit after it has closed its output.
const EXIT_TIMEOUT: Duration = Duration::from_secs(5);

/// The maximum output to keep, in bytes; nvidia-smi normally prints less.
const MAX_OUTPUT: u64 = 16 << 10;

/// The maximum length of nvidia-smi's message, in characters.
const MAX_WORDS: usize = 400;

/// The installed nvidia-smi.
pub(crate) struct Resetter {
    program: PathBuf,
    deadline: Duration,
}

impl Resetter {
    /// Finds nvidia-smi.
    ///
    /// # Errors
    /// `Machine(NoLibrary)` when none is installed.
    pub(crate) fn installed() -> Result<Self> {
        let program = PATHS.iter().map(PathBuf::from).find(|path| path.is_file());
        let program = program.ok_or_else(|| {
            Error::new(MachineFault::NoLibrary, "find nvidia-smi")
                .with_source(format!("not found at {}", PATHS.join(", ")))
        })?;
        Ok(Resetter { program, deadline: DEADLINE })
    }

    /// Resets the device at this address; `name` is its name in errors.
    ///
    /// # Errors
    /// By nvidia-smi's exit code: `Field(NotPermitted)`, `Field(NotSupported)`, `Device(Lost)`, or
    /// `Device(InUse)` for any other code, with its message; `TimedOut` if it does not exit; `Io`
    /// if it cannot be run.
    pub(crate) fn reset(&self, bus: PciBusId, name: &str) -> Result<()> {
        let what = format!("reset {name}");
        let failed = |error| Error::new(ErrorKind::Io, what.clone()).with_source(error);
        let mut command = Command::new(&self.program);
        command.arg("--gpu-reset").arg("-i").arg(bus.to_string()).current_dir("/");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let (status, words) = self.run(command.spawn().map_err(failed)?);
        let Some(status) = status else {
            let text = format!("nvidia-smi did not exit within {} s", self.deadline.as_secs());
            return Err(Error::new(ErrorKind::TimedOut, what).with_source(text));
        };
        if status.success() {
            return Ok(());
        }
        let words = if words.is_empty() {
            format!("nvidia-smi exited without output ({status})")
        } else {
            format!("nvidia-smi printed: {words}")
        };
        Err(Error::new(refusal(status), what).with_source(words))
    }

    /// Returns the exit status and the output; `None` if it did not exit in time.
    fn run(&self, mut child: Child) -> (Option<ExitStatus>, String) {
        let outputs: Vec<Receiver<String>> =
            [child.stdout.take().map(reader), child.stderr.take().map(reader)]
                .into_iter()
                .flatten()
                .collect();
        // nvidia-smi closes both outputs at exit or before.
        let end = moment().saturating_add(self.deadline);
        let mut is_late = false;
        let mut texts = Vec::new();
        for output in outputs {
            match output.recv_timeout(end.saturating_sub(moment())) {
                Ok(text) => texts.push(text),
                Err(_) => is_late = true,
            }
        }
        if is_late {
            // An error means that it has already exited.
            let _ = child.kill();
        }
        // In state D the process exits only when the driver returns, so another thread waits for
        // it.
        let (sender, ended) = channel();
        std::thread::spawn(move || sender.send(child.wait()));
        let status = ended.recv_timeout(EXIT_TIMEOUT.min(self.deadline)).ok().and_then(Result::ok);
        (status.filter(|_| !is_late), words(&texts.join("\n")))
    }
}

/// Reads an output to its end in another thread.
fn reader(mut output: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let read = (&mut output).take(MAX_OUTPUT).read_to_end(&mut bytes);
        // Drain the pipe so that the program does not block.
        let _ = read.and_then(|_| std::io::copy(&mut output, &mut std::io::sink()));
        // The receiver is gone if the deadline has passed.
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    receiver
}

/// Joins the output to one line without control characters.
fn words(text: &str) -> String {
    let printable = |c: char| if c.is_control() { ' ' } else { c };
    let text: String = text.chars().map(printable).collect();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    text.chars().take(MAX_WORDS).collect()
}

/// Maps nvidia-smi's exit code, which is NVML's code if there is one.
fn refusal(status: ExitStatus) -> ErrorKind {
    match status.code() {
        Some(3) => Absent::NotSupported.into(),
        Some(4) => Absent::NotPermitted.into(),
        Some(6) => Absent::NotFound.into(),
        Some(9) => MachineFault::DriverNotLoaded.into(),
        Some(15) => DeviceFault::Lost.into(),
        _ => DeviceFault::InUse.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A shell script in place of nvidia-smi, with its directory.
    fn scripted(script: &str, deadline: Duration) -> (Resetter, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("nvidia-smi");
        let text = dir.path().join("text");
        fs::write(&text, format!("#!/bin/sh\n{script}\n")).unwrap();
        // A child installs the script, because a program that this process has open for writing
        // cannot be executed while a newly forked child of any test holds the inherited descriptor.
        let mut install = Command::new("install");
        assert!(install.args(["-m", "755"]).arg(text).arg(&program).status().unwrap().success());
        (Resetter { program, deadline }, dir)
    }

    fn reset(script: &str, deadline: Duration) -> Result<()> {
        let bus = PciBusId { domain: 0, bus: 4, device: 0, function: 0 };
        scripted(script, deadline).0.reset(bus, "GPU 0")
    }

    #[test]
    fn reset_targets_single_device() {
        let asked = r#"[ "$*" = "--gpu-reset -i 00000000:04:00.0" ] || exit 1"#;
        assert!(reset(asked, DEADLINE).is_ok());
    }

    #[test]
    fn reset_refusal_keeps_message() {
        let fault = |script: &str| reset(script, DEADLINE).unwrap_err().fault();
        let used = fault(
            r"printf 'GPU 00000000:04:00.0: In use by\n  another \033[31mclient\n'; exit 255",
        );
        assert_eq!(used.kind, DeviceFault::InUse.into());
        assert_eq!(
            used.text,
            "reset GPU 0: nvidia-smi printed: GPU 00000000:04:00.0: In use by another [31mclient"
        );
        assert_eq!(fault("echo no >&2; exit 4").text, "reset GPU 0: nvidia-smi printed: no");
        for (code, kind) in [
            (3, ErrorKind::from(Absent::NotSupported)),
            (4, Absent::NotPermitted.into()),
            (15, DeviceFault::Lost.into()),
            (1, DeviceFault::InUse.into()),
        ] {
            assert_eq!(fault(&format!("exit {code}")).kind, kind, "{code}");
        }
    }

    #[test]
    fn long_output_is_truncated_and_hanging_reset_times_out() {
        let much = reset("yes | head -c 1000000; exit 1", DEADLINE).unwrap_err().fault();
        assert!(much.text.chars().count() < MAX_WORDS + 50, "{}", much.text);
        let hung = reset("exec sleep 600", Duration::from_millis(200)).unwrap_err();
        assert_eq!(hung.kind(), ErrorKind::TimedOut);
        let endless = reset("exec yes", Duration::from_millis(200)).unwrap_err();
        assert_eq!(endless.kind(), ErrorKind::TimedOut);
    }
}
