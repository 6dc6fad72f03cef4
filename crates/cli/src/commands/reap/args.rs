//! Arguments of `gpuws reap`.

use crate::args::{named, pid, time_or_zero};
use clap::builder::TypedValueParser;
use clap::{ArgAction, Args};
use gpu_core::{Pid, Selector};
use gpu_reaper::{Protect, Request};
use gpu_report::wording::shell_word;
use std::time::Duration;

#[derive(Debug, Args)]
pub(crate) struct ReapArgs {
    /// Only on these GPUs, by index (0,2-3), UUID or PCI bus ID, or all; repeatable.
    #[arg(long, value_name = "GPU,…", value_delimiter = ',')]
    pub(crate) gpu: Vec<Selector>,
    /// Only processes of this user (name or UID); repeatable.
    #[arg(long, value_name = "USER")]
    pub(crate) user: Vec<String>,
    /// Target exactly these PIDs, even without a finding; repeatable.
    #[arg(long, value_name = "PID,…", value_parser = pid, value_delimiter = ',')]
    pub(crate) pid: Vec<Pid>,
    /// Execute the plan; without it the plan is only printed.
    #[arg(long, action = ArgAction::SetTrue)]
    pub(crate) yes: bool,
    /// Time from SIGTERM to SIGKILL; 0 sends SIGKILL at once.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time_or_zero)]
    pub(crate) grace: Duration,
    /// What to end together with a target.
    #[arg(long, default_value = "process", value_parser = scope())]
    pub(crate) scope: Reach,
    /// Never signal this PID, process name or user (user:NAME); repeatable.
    #[arg(long, value_name = "PID|NAME|user:NAME", value_parser = protect)]
    pub(crate) protect: Vec<Protect>,
}

/// What ends together with a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Only the process.
    Process,
    /// Its process group.
    Group,
    /// Its container, pod or Slurm job.
    Container,
}

impl ReapArgs {
    /// Returns the command that executes the plan of this one; `sim` is the option that names a
    /// simulated machine.
    pub(crate) fn again_with_yes(&self, sim: &str) -> String {
        let mut command = format!("gpuws {sim}reap");
        let mut option = |name: &str, value: &dyn std::fmt::Display| {
            command.push_str(&format!(" --{name} {}", shell_word(&value.to_string())));
        };
        self.gpu.iter().for_each(|gpu| option("gpu", gpu));
        self.user.iter().for_each(|user| option("user", user));
        self.pid.iter().for_each(|pid| option("pid", pid));
        if self.grace != Request::GRACE {
            option("grace", &format!("{}s", self.grace.as_secs_f64()));
        }
        match self.scope {
            Reach::Process => {}
            Reach::Group => option("scope", &"group"),
            Reach::Container => option("scope", &"container"),
        }
        for protect in &self.protect {
            match protect {
                Protect::Pid(pid) => option("protect", pid),
                Protect::Name(name) => option("protect", name),
                Protect::User(user) => option("protect", &format!("user:{user}")),
            }
        }
        command + " --yes"
    }
}

fn protect(text: &str) -> Result<Protect, String> {
    let user = text.strip_prefix("user:");
    if user.unwrap_or(text).is_empty() {
        return Err("empty name".to_owned());
    }
    Ok(match (user, text.parse()) {
        (Some(user), _) => Protect::User(user.to_owned()),
        (None, Ok(pid)) => Protect::Pid(Pid(pid)),
        (None, Err(_)) => Protect::Name(text.to_owned()),
    })
}

const SCOPES: [(&str, Reach); 3] =
    [("process", Reach::Process), ("group", Reach::Group), ("container", Reach::Container)];

fn scope() -> impl TypedValueParser<Value = Reach> {
    named(&SCOPES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;

    #[test]
    fn protect_accepts_pid_name_or_user() {
        assert_eq!(protect("17"), Ok(Protect::Pid(Pid(17))));
        assert_eq!(protect("python"), Ok(Protect::Name("python".into())));
        assert_eq!(protect("user:17"), Ok(Protect::User("17".into())));
        assert!(protect("").is_err() && protect("user:").is_err());
    }

    #[test]
    fn default_arguments_are_not_destructive() {
        let cli = Cli::try_parse_from(["gpuws", "reap"]).unwrap();
        let Some(Command::Reap(reap)) = cli.command else { panic!("expected the reap command") };
        assert!(!reap.yes && reap.pid.is_empty() && reap.scope == Reach::Process);
        assert_eq!(reap.grace, Request::GRACE);
    }
}
