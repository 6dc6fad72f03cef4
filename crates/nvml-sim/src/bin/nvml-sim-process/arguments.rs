//! The command line of an external process.

use std::ffi::OsString;
use std::str::FromStr;

/// The accepted options.
pub(crate) const USAGE: &str = "nvml-sim-process --use GPU:MIB[,GPU:MIB…] [--load PERCENT] \
                                [--name NAME] [--seconds N | -- COMMAND…]";

/// The configuration of an external process.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Config {
    /// The devices, and the memory used on each in MiB.
    pub(crate) uses: Vec<(Which, u64)>,
    /// The utilisation of each device, in percent.
    pub(crate) load: Option<u8>,
    /// The process name in the kernel.
    pub(crate) name: Option<String>,
    /// How long it runs.
    pub(crate) seconds: Option<u32>,
    /// The command to run; the process ends with it.
    pub(crate) command: Vec<OsString>,
}

/// A device selector.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Which {
    /// The device with this index.
    Index(u32),
    /// Every device visible to a CUDA program.
    Visible,
}

impl Config {
    /// Parses the arguments after the program's name.
    ///
    /// # Errors
    /// The problem, as text that completes 'failed to …'.
    pub(crate) fn read(words: impl IntoIterator<Item = OsString>) -> Result<Self, String> {
        let mut words = words.into_iter();
        let mut config = Config::default();
        while let Some(word) = words.next() {
            if word == "--" {
                config.command = words.collect();
                if config.command.is_empty() {
                    return Err(wrong("missing command after '--'"));
                }
                break;
            }
            let option = word.to_string_lossy().into_owned();
            let value =
                words.next().ok_or_else(|| wrong(&format!("'{option}' requires a value")))?;
            let value = value.to_string_lossy();
            match option.as_str() {
                "--use" => {
                    for used in value.split(',') {
                        config.uses.push(device(used)?);
                    }
                }
                "--load" => {
                    let load = Some(number(&value)?).filter(|load| *load <= 100);
                    let load = load.ok_or_else(|| wrong(&format!("'{value}' is above 100")))?;
                    config.load = Some(load);
                }
                "--name" => config.name = Some(value.into_owned()),
                "--seconds" => config.seconds = Some(number(&value)?),
                _ => return Err(wrong(&format!("unknown option '{option}'"))),
            }
        }
        if config.uses.is_empty() {
            return Err(wrong("--use is missing"));
        }
        if config.seconds.is_some() && !config.command.is_empty() {
            return Err(wrong("use either --seconds or a command"));
        }
        Ok(config)
    }
}

fn device(text: &str) -> Result<(Which, u64), String> {
    let (which, mib) =
        text.split_once(':').ok_or_else(|| wrong(&format!("'{text}' is not GPU:MIB")))?;
    let which = if which == "visible" { Which::Visible } else { Which::Index(number(which)?) };
    Ok((which, number(mib)?))
}

fn number<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| wrong(&format!("'{text}' is not a valid number")))
}

fn wrong(why: &str) -> String {
    format!("parse the command line: {why}; usage: {USAGE}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Config, String> {
        Config::read(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn command_line_sets_devices_and_duration() {
        let config = read("--use 0:100,visible:7 --load 98 --name trainer -- sh -c true").unwrap();
        assert_eq!(config.uses, [(Which::Index(0), 100), (Which::Visible, 7)]);
        assert_eq!((config.load, config.name.as_deref()), (Some(98), Some("trainer")));
        assert_eq!(config.command, ["sh", "-c", "true"]);
        let config = read("--use 3:1 --seconds 5").unwrap();
        assert_eq!((config.uses, config.seconds), (vec![(Which::Index(3), 1)], Some(5)));
    }

    #[test]
    fn invalid_arguments_are_rejected_with_usage() {
        for line in [
            "",
            "--use",
            "--use 0",
            "--use :5",
            "--use a:5",
            "--use 0:",
            "--use 0:-1",
            "--use 0:1,",
            "--use 0:1 --load 101",
            "--use 0:1 --load 300",
            "--use 0:1 --",
            "--seconds 4",
            "--use 0:1 --seconds 4 -- true",
            "--use 0:1 true",
            "--uses 0:1",
        ] {
            let why = read(line).unwrap_err();
            assert!(why.starts_with("parse the command line: "), "{line}: {why}");
            assert!(why.ends_with(USAGE), "{line}: {why}");
        }
    }
}
