//! Parses the policy file: TOML, in which an unknown key is an error.

use super::value::{Count, Text, plain};
use super::{Allowed, Notify, Policy, REAPABLE, ReapPolicy, ReapRule, Threshold, Users};
use gpu_core::{Absent, Bytes, Reading, Selector, service_of};
use gpu_reaper::{Confidence, FindingKind, Ignored, Protect};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::time::Duration;

/// The longest time from SIGTERM to SIGKILL. The watcher does not scan in the meantime, and
/// [`gpu_reaper::Past::every`] starts over after a gap of five minutes.
const MAX_GRACE: Duration = Duration::from_secs(4 * 60);

/// The shortest time before a process is ended, which gives people time to notice the finding.
const MIN_AFTER: Duration = Duration::from_secs(60);

/// An error in a policy file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyError {
    line: Option<usize>,
    what: String,
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.what),
            None => f.write_str(&self.what),
        }
    }
}

impl Error for PolicyError {}

fn wrong(what: impl Into<String>) -> PolicyError {
    PolicyError { line: None, what: what.into() }
}

/// Returns the UID of the account with a given name.
type Accounts<'a> = &'a dyn Fn(&str) -> Reading<u32>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
struct File {
    #[serde(default)]
    findings: FindingsTable,
    #[serde(default)]
    kind: BTreeMap<Text<FindingKind>, ThresholdTable>,
    #[serde(default)]
    allow: Vec<AllowTable>,
    notify: Option<NotifyTable>,
    /// The former name of `notify`.
    tell: Option<NotifyTable>,
    reap: Option<ReapTable>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
struct FindingsTable {
    min_confidence: Option<Text<Confidence>>,
    min_memory: Option<Text<Bytes>>,
    after: Option<Text<Duration>>,
    clear_after: Option<Text<Duration>>,
    #[serde(default)]
    ignore: Vec<Text<Ignored>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
struct ThresholdTable {
    min_confidence: Option<Text<Confidence>>,
    min_memory: Option<Text<Bytes>>,
    after: Option<Text<Duration>>,
    clear_after: Option<Text<Duration>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
struct AllowTable {
    user: Option<String>,
    service: Option<String>,
    program: Option<String>,
    kinds: Option<Vec<Text<FindingKind>>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
struct NotifyTable {
    on_finding: Option<Vec<String>>,
    time_limit: Option<Text<Duration>>,
    owner: Option<bool>,
    update_every: Option<Text<Duration>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
struct ReapTable {
    dry_run: bool,
    most_per_hour: Count,
    grace: Option<Text<Duration>>,
    #[serde(default)]
    protect: Vec<Text<Protect>>,
    rule: Vec<RuleTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
struct RuleTable {
    kinds: Vec<Text<FindingKind>>,
    users: Option<Vec<String>>,
    all_users: Option<bool>,
    gpus: Option<Vec<Text<Selector>>>,
    min_confidence: Text<Confidence>,
    after: Text<Duration>,
    warn: Text<Duration>,
    jobs: Option<bool>,
}

impl Policy {
    /// Parses a policy. `accounts` returns the UID of the account with a given name. The policy
    /// applies to these UIDs, even if the accounts are renamed later.
    ///
    /// # Errors
    /// When the text is not TOML, has an unknown key or an invalid value, names an account that does
    /// not exist or cannot be looked up, or has a rule that could never or should never apply.
    pub fn parse(
        text: &str,
        accounts: &dyn Fn(&str) -> Reading<u32>,
    ) -> Result<Policy, PolicyError> {
        let file: File = toml::from_str(text).map_err(|error| {
            let before = error.span().and_then(|span| text.get(..span.start));
            let line = before.map(|before| before.matches('\n').count() + 1);
            PolicyError { line, what: plain(error.message()) }
        })?;
        let usual = threshold(
            Threshold::default(),
            file.findings.min_confidence,
            file.findings.min_memory,
            file.findings.after,
            file.findings.clear_after,
        );
        let has_former_key = file.tell.is_some();
        let table = match (file.notify, file.tell) {
            (Some(_), Some(_)) => {
                return Err(wrong("'tell' is the former name of 'notify'; keep only [notify]"));
            }
            (table, former) => table.or(former),
        };
        let kinds = file.kind.into_iter().map(|(kind, own)| {
            let own =
                threshold(usual, own.min_confidence, own.min_memory, own.after, own.clear_after);
            (kind.0, own)
        });
        Ok(Policy {
            usual,
            kinds: kinds.collect(),
            ignored: file.findings.ignore.into_iter().map(|ignored| ignored.0).collect(),
            allowed: file
                .allow
                .into_iter()
                .map(|table| {
                    allowed(table, accounts).map_err(|what| wrong(format!("allow: {what}")))
                })
                .collect::<Result<_, _>>()?,
            has_former_key,
            notify: notify(table.unwrap_or_default())?,
            reap: file.reap.map(|table| reap(table, accounts)).transpose()?,
        })
    }
}

fn threshold(
    usual: Threshold,
    confidence: Option<Text<Confidence>>,
    memory: Option<Text<Bytes>>,
    after: Option<Text<Duration>>,
    clear_after: Option<Text<Duration>>,
) -> Threshold {
    Threshold {
        min_confidence: confidence.map_or(usual.min_confidence, |text| text.0),
        min_memory: memory.map_or(usual.min_memory, |text| text.0),
        after: after.map_or(usual.after, |text| text.0),
        clear_after: clear_after.map_or(usual.clear_after, |text| text.0),
    }
}

/// Returns the UID of a user given by name or UID.
fn uid(user: &str, accounts: Accounts<'_>) -> Result<u32, String> {
    user.parse().or_else(|_| accounts(user)).map_err(|why| match why {
        Absent::NotFound => format!("there is no account '{user}' here; specify a name or a UID"),
        _ => format!("the account '{user}' could not be looked up; specify its UID"),
    })
}

/// Returns the values of an optional list. An empty list is an error, because it could mean none or
/// all.
fn listed<T>(key: &str, list: Option<Vec<Text<T>>>) -> Result<Vec<T>, String> {
    match list {
        Some(list) if list.is_empty() => Err(format!("'{key}' is empty; omit it for all")),
        list => Ok(list.into_iter().flatten().map(|text| text.0).collect()),
    }
}

fn allowed(table: AllowTable, accounts: Accounts<'_>) -> Result<Allowed, String> {
    let AllowTable { user, service, program, kinds } = table;
    if user.is_none() && service.is_none() && program.is_none() {
        return Err("a 'user', 'service' or 'program' is required".to_owned());
    }
    if let Some(service) = service.as_ref().filter(|name| !name.ends_with(".service")) {
        return Err(format!("'{service}' does not end in .service"));
    }
    if let Some(service) = service.as_ref().filter(|name| service_of(name).is_none()) {
        let why = "does not use GPUs itself: it only starts other processes";
        return Err(format!("'{service}' {why}"));
    }
    if let Some(program) = program.as_ref().filter(|path| !path.starts_with('/')) {
        let why = "is not a path; a process chooses its own name, so specify its executable";
        return Err(format!("program '{program}' {why}"));
    }
    let user = user.map(|user| uid(&user, accounts)).transpose()?;
    Ok(Allowed { user, service, program, file: None, kinds: listed("kinds", kinds)? })
}

fn notify(table: NotifyTable) -> Result<Notify, PolicyError> {
    let usual = Notify::default();
    let notify = Notify {
        on_finding: table.on_finding,
        time_limit: table.time_limit.map_or(usual.time_limit, |time| time.0),
        owner: table.owner.unwrap_or(usual.owner),
        update_every: table.update_every.map_or(usual.update_every, |time| time.0),
    };
    match &notify.on_finding {
        Some(words) if words.is_empty() => Err(wrong("notify: 'on_finding' has no command")),
        Some(_) if notify.time_limit.is_zero() => Err(wrong("notify: 'time_limit' is zero")),
        _ => Ok(notify),
    }
}

fn reap(table: ReapTable, accounts: Accounts<'_>) -> Result<ReapPolicy, PolicyError> {
    let grace = table.grace.map_or(gpu_reaper::Request::GRACE, |time| time.0);
    if grace > MAX_GRACE {
        return Err(wrong("reap: 'grace' is longer than 4m, during which nothing is watched"));
    }
    if table.rule.is_empty() {
        return Err(wrong("reap: there is no [[reap.rule]]"));
    }
    let rules = table.rule.into_iter().enumerate().map(|(at, table)| {
        rule(table, accounts).map_err(|what| wrong(format!("reap.rule {}: {what}", at + 1)))
    });
    let protect = table.protect.into_iter().map(|protect| match protect.0 {
        Protect::User(user) => Ok(Protect::User(uid(&user, accounts)?.to_string())),
        other => Ok(other),
    });
    let protect: Result<_, String> = protect.collect();
    Ok(ReapPolicy {
        dry_run: table.dry_run,
        most_per_hour: table.most_per_hour.0,
        grace,
        protect: protect.map_err(|what| wrong(format!("reap.protect: {what}")))?,
        rules: rules.collect::<Result<_, _>>()?,
    })
}

fn rule(table: RuleTable, accounts: Accounts<'_>) -> Result<ReapRule, String> {
    let kinds: Vec<FindingKind> = table.kinds.into_iter().map(|kind| kind.0).collect();
    if kinds.is_empty() {
        return Err("'kinds' is empty".to_owned());
    }
    if let Some(kind) = kinds.iter().find(|kind| !REAPABLE.contains(kind)) {
        let names = REAPABLE.map(FindingKind::name).join(", ");
        return Err(format!("a signal cannot remedy '{}'; expected {names}", kind.name()));
    }
    let users = match (table.users, table.all_users) {
        (Some(names), None | Some(false)) if !names.is_empty() => {
            let uids = names.iter().map(|name| uid(name, accounts));
            Users::Named(uids.collect::<Result<_, _>>()?)
        }
        (None, Some(true)) => Users::Ordinary,
        _ => {
            return Err("specify either 'users', a list of names, or 'all_users = true'".to_owned());
        }
    };
    let (after, warn) = (table.after.0, table.warn.0);
    if after < MIN_AFTER {
        return Err("'after' is less than 1m".to_owned());
    }
    if warn > after {
        return Err("'warn' is longer than 'after'".to_owned());
    }
    let min_confidence = table.min_confidence.0;
    let certain = kinds.iter().find(|kind| kind.reap_reason().is_some());
    if let Some(kind) = certain.filter(|_| min_confidence < Confidence::High) {
        return Err(format!("'{}' requires min_confidence = \"high\"", kind.name()));
    }
    if min_confidence == Confidence::Possible {
        return Err("min_confidence 'possible' is too low to end a process".to_owned());
    }
    let gpus = listed("gpus", table.gpus)?;
    let jobs = table.jobs.unwrap_or(false);
    Ok(ReapRule { kinds, users, gpus, min_confidence, after, warn, jobs })
}
