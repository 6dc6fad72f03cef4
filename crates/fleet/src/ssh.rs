//! The command line of ssh.

use crate::HostName;
use std::ffi::{OsStr, OsString};
use std::process::Command;
use std::time::Duration;

/// Options of every connection. In all other respects the user's configuration applies.
///
/// No user is present to type a password (`BatchMode`). Forwarded ports and sockets in the
/// configuration are meant for sessions, and would fail while a session uses them. A command cannot
/// be combined with a `RemoteCommand` from the configuration. A broken connection is detected after
/// 45 s.
const OPTIONS: [&str; 9] = [
    "BatchMode=yes",
    "ClearAllForwardings=yes",
    "ForwardAgent=no",
    "ForwardX11=no",
    "PermitLocalCommand=no",
    "RemoteCommand=none",
    "RequestTTY=no",
    "LogLevel=ERROR",
    "ServerAliveInterval=15",
];

/// The program ssh.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ssh {
    program: OsString,
}

impl Default for Ssh {
    /// Returns the `ssh` found in `PATH`.
    fn default() -> Self {
        Ssh { program: "ssh".into() }
    }
}

impl Ssh {
    /// Returns another program that accepts OpenSSH's command line.
    pub fn other(program: impl AsRef<OsStr>) -> Self {
        Ssh { program: program.as_ref().to_owned() }
    }

    /// Returns the command that runs these words on a host.
    ///
    /// ssh passes a single string to the user's login shell, which may be any shell. So the string
    /// calls `sh` with one quoted argument, in which every word is quoted. `sh` also turns death by
    /// a signal into an exit code, which ssh passes on.
    pub(crate) fn command<S: AsRef<str>>(
        &self,
        host: &HostName,
        words: &[S],
        connect: Duration,
    ) -> Command {
        let mut command = Command::new(&self.program);
        for option in OPTIONS {
            command.args(["-o", option]);
        }
        let seconds = connect.as_secs().max(1);
        command.arg("-o").arg(format!("ConnectTimeout={seconds}"));
        let words: Vec<String> = words.iter().map(|word| quoted(word.as_ref())).collect();
        let line = format!("{}; exit $?", words.join(" "));
        command.args(["--", host.as_str()]).arg(format!("sh -c {}", quoted(&line)));
        command
    }
}

/// Quotes a word for a shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(command: &Command) -> Vec<String> {
        command.get_args().map(|word| word.to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn passes_command_as_one_argument_after_host() {
        let host: HostName = "alice@gpu01".parse().unwrap();
        let ssh = Ssh::default().command(&host, &["gpuws", "status"], Duration::from_millis(500));
        let words = words(&ssh);
        let dashes = words.iter().position(|word| word == "--").unwrap();
        assert_eq!(words[dashes + 1], "alice@gpu01");
        assert_eq!(words[dashes + 2..], [r"sh -c ''\''gpuws'\'' '\''status'\''; exit $?'"]);
        assert!(words.contains(&"BatchMode=yes".to_owned()));
        assert!(words.contains(&"ConnectTimeout=1".to_owned()));
    }

    #[test]
    fn shells_pass_words_on_unchanged() {
        let host: HostName = "a".parse().unwrap();
        let odd = ["printf", "%s|", "it's", "$HOME", "`id`", "a\nb", "", "*", "; exit 9", "\\"];
        let ssh = Ssh::default().command(&host, &odd, Duration::from_secs(1));
        let line = words(&ssh).pop().unwrap();
        let output = Command::new("sh").args(["-c", &line]).output().unwrap();
        let expected: String = odd[2..].iter().map(|word| format!("{word}|")).collect();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
        let killed = Ssh::default().command(&host, &["sh", "-c", "kill $$"], Duration::ZERO);
        let line = words(&killed).pop().unwrap();
        let output = Command::new("sh").args(["-c", &line]).output().unwrap();
        assert_eq!(output.status.code(), Some(128 + 15));
    }
}
