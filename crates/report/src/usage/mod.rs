//! The output of `gpuws report` for the accounts of a machine: a table, CSV and a page with
//! pictures.

mod csv;
mod page;
mod picture;
mod table;

use crate::local_time::readable;
use crate::wording::count;
use gpu_accounting::{Accounts, Amounts, Day, Energy, Owner};
use gpu_core::{Bytes, Error, ErrorKind, Origin, Result, Snapshot, Timestamp};
use jiff::Timestamp as Instant;
use jiff::tz::TimeZone;
use std::str::FromStr;
use std::time::Duration;

/// The rows of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The users.
    User,
    /// Jobs, containers, pods, services and commands.
    Job,
    /// The GPUs.
    Gpu,
    /// The days in the time zone of the report.
    Day,
}

impl By {
    /// All kinds of rows, in the order of a page.
    pub const ALL: [By; 4] = [By::User, By::Job, By::Gpu, By::Day];

    /// Returns the heading of the first column.
    fn heading(self) -> &'static str {
        match self {
            By::User => "user",
            By::Job => "job",
            By::Gpu => "gpu",
            By::Day => "day",
        }
    }
}

impl FromStr for By {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_it = |by: &By| by.heading() == text;
        By::ALL.into_iter().find(is_it).ok_or("expected user, job, gpu or day")
    }
}

/// The form of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A table for people.
    Table,
    /// CSV, after RFC 4180.
    Csv,
    /// One JSON object.
    Json,
    /// A page with pictures.
    Html,
}

impl FromStr for Form {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "table" => Ok(Form::Table),
            "csv" => Ok(Form::Csv),
            "json" => Ok(Form::Json),
            "html" => Ok(Form::Html),
            _ => Err("expected table, csv, json or html"),
        }
    }
}

/// The accounts of a machine, and the notes about them.
#[derive(Clone, Debug)]
pub struct Usage<'a> {
    /// The accounts.
    pub accounts: &'a Accounts,
    /// The source of the last snapshot.
    pub origin: Origin,
    /// The hostname, if it is known.
    pub hostname: Option<String>,
    /// The names of the other machines with samples in the accounts.
    pub other_machines: Vec<String>,
    /// The unreadable parts, as sentence fragments.
    pub damage: Vec<String>,
    /// The time zone of times and days.
    pub zone: TimeZone,
}

/// The machines with samples, the machine of the last sample last.
#[derive(Clone, Debug, Default)]
pub struct Machines(Vec<(Origin, Option<String>)>);

impl Machines {
    /// Adds the machine of a sample.
    pub fn add(&mut self, snapshot: &Snapshot) {
        // A hostname that could not be read does not mean another machine.
        let last = self.0.last().filter(|(origin, _)| *origin == snapshot.origin);
        let hostname = snapshot.hostname.as_ref().ok().or(last.and_then(|last| last.1.as_ref()));
        let hostname = hostname.cloned();
        let is_it =
            |known: &(Origin, Option<String>)| known.0 == snapshot.origin && known.1 == hostname;
        if !self.0.last().is_some_and(is_it) {
            self.0.retain(|known| !is_it(known));
            self.0.push((snapshot.origin.clone(), hostname.clone()));
        }
    }

    /// Returns origin and hostname of the last sample, and the names of the other machines; `None`
    /// without a sample.
    pub fn last(mut self) -> Option<(Origin, Option<String>, Vec<String>)> {
        let (origin, hostname) = self.0.pop()?;
        let others = self.0.iter().map(|(origin, hostname)| name(origin, hostname.as_deref()));
        Some((origin, hostname, others.collect()))
    }
}

fn name(origin: &Origin, hostname: Option<&str>) -> String {
    match (origin, hostname) {
        (Origin::Live, Some(hostname)) => hostname.to_owned(),
        (origin, _) => origin.to_string(),
    }
}

/// Returns the day of a time in a time zone.
pub fn day(at: Timestamp, zone: &TimeZone) -> Day {
    let instant = i64::try_from(at.0).ok().and_then(|at| Instant::from_millisecond(at).ok());
    let date = zone.to_datetime(instant.unwrap_or(Instant::MAX)).date();
    Day { year: date.year(), month: date.month(), day: date.day() }
}

/// Returns the longest interval that counts, if samples are used each `step`: the requested one, or
/// five minutes or more. Used samples are up to a step and the time between two samples apart.
///
/// # Errors
/// `Invalid` when the requested one is shorter than twice the step.
pub fn gap(step: Duration, requested: Option<Duration>) -> Result<Duration> {
    let least = step.saturating_mul(2);
    let gap = requested.unwrap_or(least.max(Duration::from_secs(300)));
    if gap >= least {
        return Ok(gap);
    }
    let why = "--gap is shorter than twice --step (default: 10s), so some intervals would not \
               count; --step 0 uses each sample";
    Err(Error::new(ErrorKind::Invalid, "select samples").with_source(why))
}

/// One row: a name, the user of a job, and the amounts.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) user: Option<String>,
    pub(crate) amounts: Amounts,
}

impl<'a> Usage<'a> {
    /// Returns the report of accounts; `last` is the last snapshot.
    pub fn of(accounts: &'a Accounts, last: &Snapshot, zone: TimeZone) -> Self {
        Usage {
            accounts,
            origin: last.origin.clone(),
            hostname: last.hostname.clone().ok(),
            other_machines: Vec::new(),
            damage: Vec::new(),
            zone,
        }
    }

    /// Returns the rows: users and jobs by the time that they held devices; time without a user
    /// comes last.
    pub(crate) fn rows(&self, by: By) -> Vec<Row> {
        let mut rows: Vec<(bool, Row)> = match by {
            By::User => {
                let row = |(owner, amounts): (&Owner, &Amounts)| {
                    let name = owner.to_string();
                    (*owner == Owner::Unlisted, Row { name, user: None, amounts: *amounts })
                };
                self.accounts.users().map(row).collect()
            }
            By::Job => {
                let jobs = self.accounts.jobs().map(|(owner, work, amounts)| {
                    let is_nobody = *owner == Owner::Unlisted;
                    let name = if is_nobody { owner.to_string() } else { work.to_string() };
                    let user = (!is_nobody).then(|| owner.to_string());
                    (is_nobody, Row { name, user, amounts: *amounts })
                });
                jobs.collect()
            }
            By::Gpu => {
                let mut gpus: Vec<_> = self.accounts.gpus().iter().collect();
                gpus.sort_by_key(|gpu| gpu.id.index);
                let row = |gpu: &gpu_accounting::GpuAccount| {
                    let product = gpu.name.as_deref().map(crate::wording::product);
                    let name = format!("{} {}", gpu.id.index, product.unwrap_or_default());
                    Row { name: name.trim_end().to_owned(), user: None, amounts: gpu.amounts }
                };
                return gpus.into_iter().map(row).collect();
            }
            By::Day => {
                let row = |(day, amounts): (gpu_accounting::Day, &Amounts)| Row {
                    name: day.to_string(),
                    user: None,
                    amounts: *amounts,
                };
                return self.accounts.days().map(row).collect();
            }
        };
        rows.sort_by_key(|(is_nobody, row)| (*is_nobody, std::cmp::Reverse(row.amounts.held)));
        rows.into_iter().map(|(_, row)| row).collect()
    }

    /// Returns the energy that is in no row: the rows of users and jobs exclude idle power.
    pub(crate) fn unattributed(&self, by: By) -> Option<Energy> {
        let energy = self.accounts.unattributed();
        (matches!(by, By::User | By::Job) && energy > Energy::default()).then_some(energy)
    }

    /// Returns the subject of the accounts: `simulated machine labbox, 2026-11-23 10:05:07 to …`.
    pub(crate) fn title(&self) -> String {
        let mut machine = name(&self.origin, self.hostname.as_deref());
        if let Some((first, last)) = self.accounts.span() {
            let [first, last] = [first, last].map(|at| self.time(at));
            machine.push_str(&format!(", {first} to {last}"));
        }
        machine
    }

    /// Returns the watched part of the time: `23 h 10 min watched in 83,400 samples`.
    pub(crate) fn extent(&self) -> String {
        let samples = count(self.accounts.snapshot_count(), "sample", "samples");
        let gpus = count(self.accounts.gpus().len(), "GPU", "GPUs");
        format!("{gpus}, {} watched in {samples}", span(self.accounts.watched()))
    }

    /// Returns the caveats of the figures.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if !self.other_machines.is_empty() {
            let others = self.other_machines.join(", ");
            let others = gpu_core::clean(&others).into_owned();
            notes.push(format!("samples of other machines are counted too: {others}"));
        }
        let gaps = self.accounts.gaps();
        if gaps.count > 0 {
            let longest = gaps.longest.iter().max_by_key(|gap| gap.time());
            let longest = longest.map(|gap| match gaps.count {
                1 => format!(", from {}", self.time(gap.from)),
                _ => format!(", the longest {} from {}", span(gap.time()), self.time(gap.from)),
            });
            let what = count(gaps.count, "gap", "gaps");
            let longest = longest.unwrap_or_default();
            notes.push(format!("{what} of {} not watched{longest}", span(gaps.time)));
            if self.accounts.watched().is_zero() {
                notes.push("no usage is counted: no interval is shorter than --gap".to_owned());
            }
        }
        if gaps.set_back > 0 {
            let times = count(gaps.set_back, "time", "times");
            notes.push(format!(
                "the clock was set back {times}: the times before and after overlap"
            ));
        }
        let unmeasured: Duration = self.accounts.gpus().iter().map(|gpu| gpu.unmeasured).sum();
        if !unmeasured.is_zero() {
            let time = hours(unmeasured, unmeasured);
            notes.push(format!(
                "{time} GPU-hours held without utilisation data: their use is unknown"
            ));
        }
        let whole = self.accounts.watched();
        let blind = |gpu: &gpu_accounting::GpuAccount| whole.saturating_sub(gpu.observed);
        let blind: Duration = self.accounts.gpus().iter().map(blind).sum();
        if !blind.is_zero() {
            let time = hours(blind, blind);
            notes.push(format!("{time} GPU-hours without a process list: not counted"));
        }
        notes.extend(self.damage.iter().map(|what| gpu_core::clean(what).into_owned()));
        notes
    }

    fn time(&self, at: Timestamp) -> String {
        readable(at, &self.zone)
    }
}

/// Formats a time in hours, with the decimals of its column, in which `most` is the largest: `23.4`.
pub(crate) fn hours(time: Duration, most: Duration) -> String {
    decimal(time.as_secs_f64() / 3_600.0, most.as_secs_f64() / 3_600.0)
}

/// Formats an amount of memory in the unit and with the decimals of the largest in its column:
/// `15.4 GiB`.
pub(crate) fn memory(bytes: Bytes, most: Bytes) -> String {
    let (unit, size) = match most.0 {
        1..0x10_0000 => ("KiB", 1024.0),
        0x10_0000..0x4000_0000 => ("MiB", 1_048_576.0),
        _ => ("GiB", 1_073_741_824.0),
    };
    format!("{} {unit}", decimal(bytes.0 as f64 / size, most.0 as f64 / size))
}

/// Formats an amount of energy in the unit and with the decimals of the total above or below it:
/// `6.30 kWh`. Without a total, no GPU has reported its power, and the amount is a dash.
pub(crate) fn energy(energy: Energy, total: Energy) -> String {
    let (unit, joules) = match total.joules() {
        0.0 => return "-".to_owned(),
        0.0..3_600.0 => ("J", 1.0),
        0.0..3.6e6 => ("Wh", 3_600.0),
        _ => ("kWh", 3.6e6),
    };
    format!("{} {unit}", decimal(energy.joules() / joules, total.joules() / joules))
}

/// Formats a number with the decimals of its column, in which `most` is the largest: one from 10
/// on, two from 1 on, otherwise three. Zero is `0`, and a value that would round to zero is `<0.1`.
fn decimal(number: f64, most: f64) -> String {
    let decimals = match most {
        10.0.. => 1,
        1.0.. => 2,
        _ => 3,
    };
    let least = 0.1_f64.powi(decimals);
    let decimals = decimals.unsigned_abs() as usize;
    match number {
        0.0 => "0".to_owned(),
        _ if number < least / 2.0 => format!("<{least:.decimals$}"),
        _ => format!("{number:.decimals$}"),
    }
}

/// Formats a time for people: `45 s`, `12 min`, `9 h 30 min`, `2 d 3 h`.
pub fn span(time: Duration) -> String {
    let both = |large: u64, unit: &str, small: u64, small_unit: &str| match small {
        0 => format!("{large} {unit}"),
        _ => format!("{large} {unit} {small} {small_unit}"),
    };
    match time.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7_200 => format!("{} min", seconds / 60),
        seconds @ 7_200..172_800 => both(seconds / 3_600, "h", seconds / 60 % 60, "min"),
        seconds => both(seconds / 86_400, "d", seconds / 3_600 % 24, "h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_formatted_for_people() {
        let column = |seconds: [u64; 4]| {
            let most = Duration::from_secs(seconds[3]);
            seconds.map(|seconds| hours(Duration::from_secs(seconds), most))
        };
        assert_eq!(column([0, 36, 400, 84_240]), ["0", "<0.1", "0.1", "23.4"]);
        assert_eq!(column([0, 36, 400, 3_600]), ["0", "0.01", "0.11", "1.00"]);
        assert_eq!(column([0, 1, 36, 400]), ["0", "<0.001", "0.010", "0.111"]);
        let spans = [45, 119, 720, 34_200, 36_000, 183_600].map(Duration::from_secs).map(span);
        assert_eq!(spans, ["45 s", "119 s", "12 min", "9 h 30 min", "10 h", "2 d 3 h"]);
        let joules = |joules: u128| Energy(joules * 1_000_000);
        let energies = [0, 120, 3_600, 22_680_000].map(|it| energy(joules(it), joules(it)));
        assert_eq!(energies, ["-", "120.0 J", "1.00 Wh", "6.30 kWh"]);
        let parts = [0, 2, 120, 3_154].map(|part| energy(joules(part), joules(5_000)));
        assert_eq!(parts, ["0 Wh", "<0.01 Wh", "0.03 Wh", "0.88 Wh"], "the unit of the total");
    }

    #[test]
    fn machines_of_all_samples_are_named() {
        let snapshot = |origin: Origin, hostname: &str| Snapshot {
            hostname: Ok(hostname.to_owned()),
            ..Snapshot::empty(origin, Timestamp(0))
        };
        let labbox = || Origin::Simulated("labbox".to_owned());
        let mut machines = Machines::default();
        let (a, b) = (snapshot(Origin::Live, "a"), snapshot(Origin::Live, "b"));
        for seen in [&a, &b, &snapshot(labbox(), "b"), &a, &a] {
            machines.add(seen);
        }
        let others = vec!["b".to_owned(), "simulated machine labbox".to_owned()];
        assert_eq!(machines.last(), Some((Origin::Live, Some("a".to_owned()), others)));
        assert_eq!(Machines::default().last(), None);
    }
}
