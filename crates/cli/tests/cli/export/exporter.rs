//! A running exporter, and scrapes of it.

use crate::live::GPUWS;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Functions for the scripts of sessions, as in `live::script`.
const BEGIN: &str = "trap 'kill $(jobs -p) 2> /dev/null' EXIT\n\
                     until_so() { n=0; until \"$@\"; do n=$((n+1)); [ $n -lt 4800 ] || exit 99; \
                     sleep 0.05; done; }\n";

pub(super) struct Exporter {
    child: Child,
    pid: Pid,
    pub(super) address: SocketAddr,
    /// The directory of its session.
    session: Option<PathBuf>,
    _dir: tempfile::TempDir,
}

impl Exporter {
    /// Starts the exporter with these arguments, on a free port.
    pub(super) fn start(words: &[&str]) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", "echo $$; echo; exec \"$0\" \"$@\" --listen 127.0.0.1:0", GPUWS]);
        command.args(words);
        Exporter::spawn(command)
    }

    /// Starts it in a session of simulated NVML.
    pub(super) fn in_session(session: &[&str], words: &[&str]) -> Self {
        let mut command = Command::new(GPUWS);
        command.arg("sim").args(session).args(["--", "sh", "-c"]);
        command.arg(script("")).arg(GPUWS).args(words);
        Exporter::spawn(command)
    }

    /// Starts it in a live session, after a script.
    pub(super) fn in_live_session(machine: &str, before: &str, words: &[&str]) -> Self {
        let mut command = Command::new(GPUWS);
        command.args(["sim", machine, "--live", "--", "sh", "-c"]);
        command.arg(script(before)).arg(GPUWS).args(words);
        Exporter::spawn(command)
    }

    fn spawn(mut command: Command) -> Self {
        let dir = tempfile::tempdir().unwrap();
        command.env_remove("GPUWS_SIM_SESSION").env_remove("GPUWS_CLAIMS").env("NO_COLOR", "1");
        command.env_remove("LD_LIBRARY_PATH").env_remove("CUDA_VISIBLE_DEVICES");
        command.current_dir(dir.path()).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut line = || lines.next().expect("the exporter starts").unwrap();
        let pid = Pid::from_raw(line().parse().unwrap());
        let session = Some(line()).filter(|dir| !dir.is_empty()).map(PathBuf::from);
        let message = line();
        let address = message.strip_prefix("metrics at http://").unwrap();
        let address = address.strip_suffix("/metrics").unwrap().parse().unwrap();
        Exporter { child, pid, address, session, _dir: dir }
    }

    /// Returns the page of a scrape with these headers.
    pub(super) fn scrape(&self, headers: &str) -> String {
        let answer = ask(self.address, "/metrics", headers);
        let (head, page) = answer.split_once("\r\n\r\n").expect("a whole answer");
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        page.to_owned()
    }

    /// Returns the page of a scrape with a time-out; fails if it comes later.
    pub(super) fn scrape_within(&self, seconds: &str) -> String {
        let mut stream = TcpStream::connect(self.address).unwrap();
        let limit = Duration::from_secs_f64(seconds.parse().unwrap());
        // The page is sent in one piece, so the time to its first byte is also the time to its
        // last.
        stream.set_read_timeout(Some(limit)).unwrap();
        let header = format!("X-Prometheus-Scrape-Timeout-Seconds: {seconds}\r\n");
        write!(stream, "GET /metrics HTTP/1.1\r\n{header}\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer within the time-out");
        answer
    }

    /// Runs gpuws in the same session.
    pub(super) fn run(&self, words: &[&str]) {
        let session = self.session.as_ref().unwrap();
        let mut command = Command::new(GPUWS);
        command.args(words).env("GPUWS_SIM_SESSION", session).env("LD_LIBRARY_PATH", session);
        let output = command.stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }

    /// Returns its resident memory without the pages of files, in kB.
    pub(super) fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
        line.trim().strip_suffix(" kB").unwrap().parse().unwrap()
    }

    /// Returns how many descriptors it has open.
    pub(super) fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid)).unwrap().count()
    }

    /// Ends it, and returns the exit code.
    pub(super) fn end(mut self) -> Option<i32> {
        kill(self.pid, Signal::SIGTERM).unwrap();
        self.child.wait().unwrap().code()
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        // It may have ended.
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            let _ = kill(self.pid, Signal::SIGTERM);
            let _ = self.child.wait();
        }
    }
}

/// Returns a script that runs another one, and then the exporter as a child that it ends.
fn script(before: &str) -> String {
    format!(
        "{BEGIN}{before}\n\
         \"$0\" export --listen 127.0.0.1:0 \"$@\" > message & exporter=$!\n\
         trap 'kill $exporter' TERM\n\
         until_so test -s message\n\
         echo $$; echo $GPUWS_SIM_SESSION; cat message\n\
         wait $exporter; code=$?\n\
         [ $code -le 128 ] || {{ wait $exporter; code=$?; }}\n\
         exit $code\n"
    )
}

/// Sends a request and returns the whole answer.
pub(super) fn ask(address: SocketAddr, path: &str, headers: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    // Prometheus closes the connection after an answer to HTTP/1.0.
    write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n{headers}\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Returns the value of this sample.
pub(super) fn page_value(page: &str, sample: &str) -> Option<f64> {
    let line = page.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '))?;
    Some(line.parse().unwrap())
}

/// Returns a directory on a path that no other user can change, or prints that there is none.
pub(super) fn private_dir(test: &str) -> Option<tempfile::TempDir> {
    let dir = tempfile::tempdir_in(Path::new(GPUWS).parent()?).unwrap();
    match gpu_host::TrustedDir::open(dir.path(), gpu_host::PathTrust::Private) {
        Ok(_) => Some(dir),
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "skipped: {test}: {error}");
            None
        }
    }
}
