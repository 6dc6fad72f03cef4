//! Completion of values that change: GPUs, users, processes, leases, machines and hosts.
//!
//! A completion script of clap has fixed values only. An argument that takes other values gets the
//! [name](Kind::name) of their kind as its only fixed value. [`script`] replaces this marker with
//! a call of a function that gets [`lines`] from gpuws. No shell evaluates a value.

use gpu_core::{ProcessInfo, Snapshot, acts, clean};
use gpu_steward::Listing;
use std::collections::BTreeSet;

/// A kind of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Indexes of GPUs, and UUIDs of partitions.
    Gpus,
    /// Hosts that the shell knows.
    Hosts,
    /// IDs of leases.
    Leases,
    /// Shipped simulated machines, and paths.
    Machines,
    /// PIDs of processes that use or hold a GPU.
    Processes,
    /// Their users, and those that the shell knows.
    Users,
}

impl Kind {
    /// All kinds, with their names.
    pub const NAMED: [(&str, Kind); 6] = [
        ("gpu-values", Kind::Gpus),
        ("host-values", Kind::Hosts),
        ("lease-values", Kind::Leases),
        ("machine-values", Kind::Machines),
        ("process-values", Kind::Processes),
        ("user-values", Kind::Users),
    ];

    /// Returns the kind of an argument from the name of its value in the help text.
    pub fn of_argument(value_name: &str) -> Option<Kind> {
        Some(match value_name {
            "GPU" | "GPU,…" => Kind::Gpus,
            "HOST,…" => Kind::Hosts,
            "LEASE" => Kind::Leases,
            "MACHINE" | "NAME|DIR|FILE" => Kind::Machines,
            "PID" | "PID,…" => Kind::Processes,
            "USER" | "USER,…" => Kind::Users,
            _ => return None,
        })
    }

    /// Returns its name, which stands for its values in a script of clap.
    pub fn name(self) -> &'static str {
        Kind::NAMED.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }

    /// Returns the values of this kind on a machine, each with a description; none for a kind that
    /// no snapshot has. Both are untrusted text.
    pub fn on(self, now: &Snapshot) -> Vec<(String, String)> {
        let gpus = now.devices.iter().flat_map(|device| {
            let index = device.id().index;
            let name = device.info.name.clone().unwrap_or_default();
            let partitions = device.partitions.iter().flatten().filter_map(move |part| {
                let profile = part.profile.as_deref().unwrap_or("partition");
                Some((part.uuid.as_ref().ok()?.to_string(), format!("{profile} of GPU {index}")))
            });
            std::iter::once((index.to_string(), name)).chain(partitions)
        });
        let listed = now.devices.iter().flat_map(|device| device.processes.iter().flatten());
        let holders = now.holders.iter().flatten().map(|holder| holder.process.pid);
        let pids: BTreeSet<_> = listed.map(|process| process.pid).chain(holders).collect();
        let processes = pids.iter().filter_map(|pid| now.process(*pid).ok());
        let user = |info: &ProcessInfo| info.user.clone().unwrap_or_default();
        match self {
            Kind::Gpus => gpus.collect(),
            Kind::Processes => processes
                .map(|info| (info.key.pid.to_string(), format!("{} {}", user(info), info.name)))
                .collect(),
            Kind::Users => {
                let users: BTreeSet<String> = processes.map(user).collect();
                users.into_iter().map(|user| (user, "uses a GPU".to_owned())).collect()
            }
            Kind::Hosts | Kind::Leases | Kind::Machines => Vec::new(),
        }
    }
}

/// Returns the IDs of all leases, each with its command.
pub fn leases(listing: &Listing) -> Vec<(String, String)> {
    let entries = listing.leases.iter().map(|leased| &leased.entry);
    entries.map(|entry| (entry.id.to_string(), entry.command.clone())).collect()
}

/// Returns a line for each value: the value, a tab, and its description.
///
/// A value with control characters is left out: a line of a shell cannot contain it.
pub fn lines(values: &[(String, String)]) -> String {
    let typed = values.iter().filter(|(value, _)| !value.is_empty() && !value.contains(acts));
    typed.map(|(value, about)| format!("{value}\t{}\n", clean(about))).collect()
}

/// Returns a script of clap for a shell with its markers replaced; unchanged for a shell other than
/// bash, zsh and fish.
///
/// `positionals` are the commands with a first argument of one of these kinds; clap omits them for
/// fish.
pub fn script(shell: &str, script: &str, positionals: &[(&str, Kind)]) -> String {
    match shell {
        "bash" => bash(script),
        "zsh" => zsh(script),
        "fish" => fish(script, positionals),
        _ => script.to_owned(),
    }
}

fn zsh(script: &str) -> String {
    let begin = "_gpuws() {\n";
    let words = "    local gpuws_at=$CURRENT; local -a gpuws_words=(\"${words[@]}\")\n";
    let functions = include_str!("completion/values.zsh");
    called(script, "(", ")", |kind| format!("_gpuws_values {kind}")).replacen(
        begin,
        &format!("{functions}{begin}{words}"),
        1,
    )
}

fn fish(script: &str, positionals: &[(&str, Kind)]) -> String {
    let call = |kind: &str| format!("\"(__gpuws_values {kind})\"");
    let mut words = String::new();
    for (command, kind) in positionals {
        let marker = kind.name();
        words += &format!(
            "complete -c gpuws -n \"__fish_gpuws_using_subcommand {command}\" -f -a \"{marker}\\t''\"\n"
        );
    }
    // clap's condition fails between a global option and its value, so `--sim` goes without it.
    let root = "-n \"__fish_gpuws_needs_command\" -l sim ";
    let script = script.replacen(root, "-l sim ", 1) + &words;
    include_str!("completion/values.fish").to_owned() + &called(&script, "\"", "\\t''\"", call)
}

/// Replaces each marker between two texts with a call.
fn called(script: &str, before: &str, after: &str, call: impl Fn(&str) -> String) -> String {
    Kind::NAMED.iter().fold(script.to_owned(), |script, (name, _)| {
        script.replace(&format!("{before}{name}{after}"), &call(name))
    })
}

/// Omits clap's own completion of paths, which splits them at spaces.
fn bash(script: &str) -> String {
    let mut completed = include_str!("completion/values.bash").to_owned();
    let mut positional = None;
    for line in script.lines() {
        let indent = &line[..line.len() - line.trim_start().len()];
        let found = Kind::NAMED.iter().find(|(name, _)| line.contains(name));
        let line = match found {
            // The values of an option.
            Some((name, _)) if line.contains("compgen") => format!("{indent}_gpuws_values {name}"),
            // The values of a positional argument are among the options of the command.
            Some((name, _)) => {
                positional = Some(name);
                line.replace(&format!(" {name}"), "")
            }
            // Without an answer, bash completes a path, and quotes it.
            None if line.contains("compgen -f") => format!("{indent}COMPREPLY=()"),
            None => line.to_owned(),
        };
        completed += &line;
        completed.push('\n');
        if line.trim() == "prev=\"$3\"" {
            completed +=
                "    [[ \"${prev}\" != \"=\" ]] || prev=\"${COMP_WORDS[COMP_CWORD - 2]}\"\n";
        } else if line.contains("compgen -W \"${opts}\"")
            && let Some(name) = positional
        {
            completed += &format!("{indent}[[ \"${{cur}}\" == -* ]] || _gpuws_values {name}\n");
        } else if line.trim_start().starts_with("opts=\"") && found.is_none() {
            positional = None;
        }
    }
    completed
}
