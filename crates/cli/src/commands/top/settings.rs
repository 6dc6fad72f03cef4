//! The settings of the view: options take precedence over the user's file.

use super::TopArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::Screen;
use crate::{local_time, terminal};
use gpu_host::TrustedFile;
use gpu_top::config::{Config, LONGEST};
use gpu_top::{Options, Settings, Theme};
use std::path::PathBuf;
use std::time::Duration;

/// The default time between snapshots.
const INTERVAL: Duration = Duration::from_secs(1);

/// Reads the user's file. Ignores a file that another user could have written, with a warning.
pub(super) fn config() -> Result<Config, Failure> {
    let Some(path) = path() else { return Ok(Config::default()) };
    let text = match TrustedFile::text_of(&path, LONGEST) {
        Ok(text) => text.unwrap_or_default(),
        Err(error) => {
            terminal::warn(&format!("the settings are not used: failed to {}", error.fault()));
            return Ok(Config::default());
        }
    };
    Config::parse(&text).map_err(|error| {
        let what = format!("read the settings in '{}'", path.display());
        Failure::new(Exit::Usage, what)
            .with_source(error)
            .with_hint("docs/top.md lists the settings")
    })
}

/// Returns the path of the file (XDG Base Directory Specification: `$XDG_CONFIG_HOME`, or else
/// `~/.config`).
fn path() -> Option<PathBuf> {
    let absolute =
        |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let dir = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")));
    Some(dir?.join("gpuws/top.toml"))
}

/// Returns the settings; `sim` is the option that selects a simulated machine.
pub(super) fn settings(args: &TopArgs, config: &Config, sim: String, screen: &Screen) -> Settings {
    let usual = Options::default();
    let theme = args.theme.or(config.theme).unwrap_or_default();
    let options = Options {
        ascii: args.ascii || terminal::is_ascii(),
        theme: if screen.is_coloured() { theme } else { Theme::Mono },
        attention: config.attention,
        columns: config.columns.clone().unwrap_or(usual.columns),
        sort: (config.sort.unwrap_or(usual.sort.0), config.reverse.unwrap_or(usual.sort.1)),
        marker: config.marker.unwrap_or_default(),
        more: args.more || config.more.unwrap_or(usual.more),
        zone: local_time::zone(),
        sim,
        ..usual
    };
    let interval = args.delay.or(config.interval).unwrap_or(INTERVAL);
    let mouse = !args.no_mouse && config.mouse.unwrap_or(true);
    Settings { interval, mouse, options }
}
