//! Arguments of several commands that show devices, some with the option names of other tools.

use super::time;
use crate::exit::Exit;
use crate::failure::Failure;
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgGroup, ArgMatches, Args, Command, FromArgMatches};
use gpu_core::Selector;
use gpu_report::csv::Subject;
use std::time::Duration;

// The devices that are shown; all without a selector.
#[derive(Debug, Default, Args)]
pub(crate) struct Only {
    /// Only these GPUs, by index (0,2-3), UUID or PCI bus ID, or all.
    #[arg(
        short = 'i',
        long = "gpu",
        visible_alias = "id",
        value_name = "GPU,…",
        value_delimiter = ','
    )]
    pub(crate) devices: Vec<Selector>,
}

// The fields of a CSV row, by their names in nvidia-smi.
#[derive(Debug, Default, Args)]
pub(crate) struct Fields {
    /// Fields per GPU; `gpuws query --help-query-gpu` lists them.
    #[arg(long, value_name = "FIELD,…", requires = "format")]
    pub(crate) query_gpu: Option<String>,
    /// Fields per compute process.
    #[arg(long, value_name = "FIELD,…", requires = "format", conflicts_with = "query_gpu")]
    pub(crate) query_compute_apps: Option<String>,
}

impl Fields {
    /// Returns what the rows are about, and their fields.
    pub(crate) fn chosen(&self) -> Result<(Subject, &str), Failure> {
        match (&self.query_gpu, &self.query_compute_apps) {
            (Some(names), _) => Ok((Subject::Gpu, names)),
            (None, Some(names)) => Ok((Subject::ComputeApp, names)),
            (None, None) => Err(Failure::new(Exit::Usage, "select fields")
                .with_hint("--query-gpu=index,name,memory.used, or --query-compute-apps=pid")),
        }
    }
}

// One of nvidia-smi's queries, or the list of its fields.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) subject: Subject,
    /// `None` for the list.
    pub(crate) fields: Option<String>,
}

impl Args for Asked {
    fn augment_args(command: Command) -> Command {
        let add = |command: Command, [query, help, about]: [&'static str; 3]| {
            let fields = Arg::new(query).long(query).value_name("FIELD,…").requires("format");
            let list = Arg::new(help).long(help).action(ArgAction::SetTrue);
            let listed = format!("List the fields of --{query}");
            command.args([fields.help(about), list.help(listed)].map(|arg| arg.group("what")))
        };
        let command = command.group(ArgGroup::new("what").required(true));
        Subject::ALL.map(Subject::options).into_iter().fold(command, add)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Asked::augment_args(command)
    }
}

impl FromArgMatches for Asked {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let asked = Subject::ALL.into_iter().find_map(|subject| {
            let [query, help, _] = subject.options();
            let fields = matches.get_one::<String>(query).cloned();
            (fields.is_some() || matches.get_flag(help)).then_some(Asked { subject, fields })
        });
        asked.ok_or_else(|| clap::Error::new(ErrorKind::MissingRequiredArgument))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Asked::from_arg_matches(matches)?;
        Ok(())
    }
}

// Whether and how often a view is repeated.
#[derive(Debug, Default, Args)]
pub(crate) struct Repeat {
    /// Repeat after this time until Ctrl-C.
    #[arg(short = 'l', long = "loop", value_name = "TIME", num_args = 0..=1,
          default_missing_value = "5s", value_parser = time)]
    every: Option<Duration>,
    /// Repeat interval in milliseconds; also -lms.
    #[arg(long = "loop-ms", value_name = "MS", conflicts_with = "every",
          value_parser = clap::value_parser!(u32).range(1..))]
    millis: Option<u32>,
}

impl Repeat {
    /// Returns whether the view is shown only once.
    pub(crate) fn is_once(&self) -> bool {
        self.pause().is_none()
    }

    /// Returns the time between two views; `None` for a single one.
    pub(crate) fn pause(&self) -> Option<Duration> {
        self.every.or(self.millis.map(|millis| Duration::from_millis(millis.into())))
    }
}
