//! The machine of an exporter of metrics.

mod audit_log;
mod job_dir;

use crate::{MachineError, Options, Source};
use audit_log::AuditLog;
use gpu_core::{Clock, LeaseStore};
use gpu_export::{Exported, Exporter, Metrics, Ports, Reaps, Shown};
use gpu_host::{SystemClock, give_back_memory, share_heap, user_label};
use job_dir::JobDir;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The time that a snapshot needs in addition to the driver.
const OTHER_WORK: Duration = Duration::from_millis(400);

/// Returns the time for the driver in a snapshot that may take `left`, in steps: a backend has one
/// deadline, and scrapes with the same time-out should get the same backend.
pub fn driver_deadline(left: Duration) -> Duration {
    let time = left.saturating_sub(OTHER_WORK).min(left * 3 / 4).as_millis();
    let step = if time >= 1000 { 250 } else { 50 };
    let time = (time / step * step).max(step);
    Duration::from_millis(u64::try_from(time).unwrap_or(u64::MAX))
}

/// What an exporter reads and exports.
#[derive(Clone, Copy, Debug)]
pub struct ExportOptions<'a> {
    /// The machine.
    pub machine: Options<'a>,
    /// Called with failures outside a snapshot.
    pub warn: fn(&str),
    /// Which values are exported.
    pub shown: Shown,
    /// The directory for dcgm-exporter's `--hpc-job-mapping-dir`.
    pub jobs: Option<&'a Path>,
}

/// A machine that is read for each scrape.
///
/// A backend whose driver missed its deadline no longer answers. The next snapshot replaces it: the
/// new one calls the driver only if no child of the old one is still blocked in it.
pub struct ExportedMachine {
    sim: Option<PathBuf>,
    nvml: Option<PathBuf>,
    deadline: Duration,
    warn: fn(&str),
    shown: Shown,
    /// The machine, and the deadline of its driver.
    source: Option<(Source, Duration)>,
    exporter: Exporter,
    reaps: Reaps,
    audit_log: AuditLog,
    jobs: Option<JobDir>,
    /// Whether writing to the directory failed after the previous snapshot.
    jobs_failed: bool,
    real: SystemClock,
    last_sample: Duration,
}

impl ExportedMachine {
    /// Opens the machine and the directory for jobs.
    ///
    /// # Errors
    /// As [`Source::open`]; when the directory for jobs is a symbolic link, or others than root and
    /// the caller can change it.
    pub fn open(options: &ExportOptions<'_>) -> Result<Self, MachineError> {
        let ExportOptions { machine, warn, shown, jobs } = *options;
        // The thread that takes snapshots allocates nearly everything.
        share_heap();
        Ok(ExportedMachine {
            sim: machine.sim.map(Path::to_owned),
            nvml: machine.nvml.map(Path::to_owned),
            deadline: machine.deadline,
            warn,
            shown,
            source: Some((Source::open(&machine)?, machine.deadline)),
            exporter: Exporter::new(jobs.is_some()),
            reaps: Reaps::new(),
            audit_log: AuditLog::default(),
            jobs: jobs.map(JobDir::open).transpose()?,
            jobs_failed: false,
            real: SystemClock::new(),
            last_sample: Duration::ZERO,
        })
    }

    /// Takes a snapshot of the machine, with this deadline for the driver. The files for jobs are
    /// written afterwards.
    pub fn sample(&mut self, deadline: Duration) -> Metrics {
        let deadline = deadline.min(self.deadline);
        let (source, own) = match self.source.take() {
            // A simulated machine would start over; it has no driver to wait for.
            Some((source, own)) if own == deadline || source.is_simulated() => (source, own),
            _ => match self.reopened(deadline) {
                Ok(source) => (source, deadline),
                Err(error) => {
                    (self.warn)(&format!("failed to {}", error.into_error()));
                    return Metrics::without_answer();
                }
            },
        };
        let now = self.real.monotonic();
        if source.is_simulated() {
            source.clock.sleep(now.saturating_sub(self.last_sample));
        }
        self.last_sample = now;
        let seen = self.observe(&source);
        if !seen.has_lost_driver || source.is_simulated() {
            self.source = Some((source, own));
        }
        if let (Some(jobs), Some(files)) = (&self.jobs, &seen.job_files) {
            let written = jobs.write(files);
            if let Err(error) = &written
                && !self.jobs_failed
            {
                (self.warn)(&format!("failed to {}", error.fault()));
            }
            self.jobs_failed = written.is_err();
        }
        // The next snapshot may be minutes away.
        give_back_memory();
        seen.metrics
    }

    fn observe(&mut self, source: &Source) -> Exported {
        let leases = source.existing_lease_store();
        let ports = Ports {
            backend: &*source.backend,
            host: &*source.host,
            clock: &*source.clock,
            leases: leases.as_ref().map(|leases| leases as &dyn LeaseStore),
        };
        let reaps = &mut self.reaps;
        let log = source.audit_log();
        let is_read = log.is_none_or(|log| self.audit_log.read(&log, &mut |line| reaps.add(line)));
        let reaps = is_read.then_some(&self.reaps);
        self.exporter.observe(&ports, reaps, self.shown, &user_label)
    }

    fn reopened(&self, deadline: Duration) -> Result<Source, MachineError> {
        Source::open_to_observe(&Options {
            sim: self.sim.as_deref(),
            nvml: self.nvml.as_deref(),
            deadline,
            ..Options::this_machine()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadline_is_in_steps_and_leaves_time_for_the_rest() {
        for (left, deadline) in
            [(9_500, 7_000), (9_499, 7_000), (10_000, 7_500), (750, 350), (80, 50), (0, 50)]
        {
            let left = Duration::from_millis(left);
            assert_eq!(driver_deadline(left), Duration::from_millis(deadline), "{left:?}");
        }
    }
}
