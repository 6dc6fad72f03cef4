//! The families of metrics: their names, units, labels and meanings.
//!
//! Names follow the rules of Prometheus: a base unit as suffix, `_total` for counters, `_info` for
//! labels with the value 1. The sum over all labels of a family is meaningful.

use std::fmt;

/// The type of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A value that goes up and down.
    Gauge,
    /// A value that only grows, from zero.
    Counter,
    /// Labels with the value 1.
    Info,
    /// Counts of values up to each of several bounds.
    Histogram,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Gauge => "gauge",
            Kind::Counter => "counter",
            Kind::Info => "info",
            Kind::Histogram => "histogram",
        })
    }
}

/// A family of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Family {
    /// Its type.
    pub kind: Kind,
    /// Its name, without the prefix and without the suffixes for unit and type.
    pub(crate) stem: &'static str,
    /// Its unit; empty if it has none.
    pub unit: &'static str,
    /// Its labels.
    pub labels: &'static [&'static str],
    /// Its meaning, as one sentence without the full stop.
    pub help: &'static str,
}

impl Family {
    /// Returns its name without the suffix for its type, as OpenMetrics describes it.
    pub(crate) fn base_name(&self) -> String {
        match self.unit {
            "" => format!("gpuws_{}", self.stem),
            unit => format!("gpuws_{}_{unit}", self.stem),
        }
    }

    /// Returns the name by which its samples are queried.
    pub fn name(&self) -> String {
        let suffix = match self.kind {
            Kind::Gauge | Kind::Histogram => "",
            Kind::Counter => "_total",
            Kind::Info => "_info",
        };
        format!("{}{suffix}", self.base_name())
    }
}

/// Defines the families, in the order in which they are written.
macro_rules! metrics {
    ($($metric:ident $kind:ident $stem:literal $unit:literal [$($label:literal)*] $help:literal)*) => {
        /// A family of metrics, by name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Metric {
            $(#[doc = $help] $metric,)*
        }

        impl Metric {
            /// Every family, in the order in which they are written.
            pub const ALL: &[Metric] = &[$(Metric::$metric),*];

            /// Returns the description of the family.
            pub const fn family(self) -> &'static Family {
                match self {
                    $(Metric::$metric => &Family {
                        kind: Kind::$kind,
                        stem: $stem,
                        unit: $unit,
                        labels: &[$($label),*],
                        help: $help,
                    },)*
                }
            }
        }
    };
}

metrics! {
    // The exporter and the machine.
    Up Gauge "up" "" []
        "Whether the driver answered in time; 1 if all GPUs sleep and gpuws did not query it"
    Build Info "build" "" ["version"]
        "The version of gpuws"
    Machine Info "machine" "" ["origin" "driver_version" "cuda_version"]
        "The machine; origin says whether it is simulated"
    ScanDuration Gauge "scan_duration" "seconds" []
        "Duration of the scan of the machine"
    ScanTimestamp Gauge "scan_timestamp" "seconds" []
        "Start time of that scan, in seconds since 1970"
    LookDuration Gauge "look_duration" "seconds" []
        "The old name of gpuws_scan_duration_seconds, until the next release"
    LookTimestamp Gauge "look_timestamp" "seconds" []
        "The old name of gpuws_scan_timestamp_seconds, until the next release"
    Readable Gauge "readable" "" ["part"]
        "Whether a part of the machine could be read; otherwise the values that depend on it are \
         missing"
    UnreadableProcesses Gauge "unreadable_processes" "" []
        "Processes whose open files could not be read, so that holders may be missing"

    // The GPUs.
    Gpu Info "gpu" "" ["gpu" "uuid" "name" "pci_bus_id"]
        "The GPUs"
    GpuUp Gauge "gpu_up" "" ["gpu" "uuid"]
        "Whether the GPU answered; missing while it sleeps"
    GpuAsleep Gauge "gpu_asleep" "" ["gpu" "uuid"]
        "Whether the GPU sleeps; it is not woken, and its other values are missing"
    GpuFree Gauge "gpu_free" "" ["gpu" "uuid"]
        "Whether the GPU is fit for a job and is known to have no lease and no user"
    GpuFit Gauge "gpu_fit" "" ["gpu" "uuid"]
        "Whether the GPU has no defect that prevents jobs"
    GpuDefect Gauge "gpu_defect" "" ["gpu" "uuid" "defect"]
        "1 for each defect that the GPU reports and each change that takes effect at a reset"
    GpuXid Gauge "gpu_xid_timestamp" "seconds" ["gpu" "uuid" "xid"]
        "Time when the driver last logged this error number (Xid) in this boot"

    // Memory that no list accounts for, and findings.
    GpuUnexplained Gauge "gpu_memory_unexplained" "bytes" ["gpu" "uuid"]
        "Memory in use that neither listed processes nor the driver account for"
    GpuHolders Gauge "gpu_holders" "" ["gpu" "uuid" "memory"]
        "Processes that the driver lists (listed), that show signs of using memory without being listed (unlisted), or that only have the device file open (none)"
    Findings Gauge "findings" "" ["kind"]
        "Findings of gpuws doctor that are at least likely"
    FindingMemory Gauge "finding_memory" "bytes" ["kind"]
        "Memory that these findings affect"
    GpuFinding Gauge "gpu_finding" "" ["gpu" "uuid" "kind" "confidence"]
        "Findings about the GPU; a finding about several GPUs counts on each"

    // Leases and the queue.
    Leases Gauge "leases" "" ["user"]
        "Leases, except those nested in others; merged leases count in full"
    GpuLeases Gauge "gpu_leases" "" ["gpu" "uuid"]
        "Leases on the GPU or on a part of it; merged leases of a user count as one"
    GpuLeasesUnused Gauge "gpu_leases_unused" "" ["gpu" "uuid" "user"]
        "Leases on the GPU without a process that uses it now"
    GpuLeasedMemory Gauge "gpu_memory_leased" "bytes" ["gpu" "uuid"]
        "Memory reserved by leases: their shares, or all of it"
    GpuJob Info "gpu_job" "" ["gpu" "uuid" "gpu_instance" "hpc_job" "user"]
        "The jobs on the GPU: leases, and Slurm jobs of its processes"
    GpuJobsLeftOut Gauge "gpu_jobs_left_out" "" ["gpu" "uuid"]
        "Jobs on the GPU beyond the 16 that have an `hpc_job`"
    QueueClaims Gauge "queue_claims" "" ["state"]
        "Claims in the queue; a stalled claim belongs to a stopped program, and others pass it"
    QueueGpus Gauge "queue_gpus" "" []
        "GPUs that the waiting claims request together"
    QueueOldest Gauge "queue_oldest_timestamp" "seconds" []
        "Arrival time of the oldest waiting claim; missing if none waits"
    UserQueuedClaims Gauge "user_queued_claims" "" ["user"]
        "Waiting claims of the user"
    ClaimWait Histogram "claim_wait" "seconds" []
        "Wait times of claims granted since the exporter started"

    // Actions of gpuws.
    ReapSignals Counter "reap_signals" "" ["signal"]
        "Signals in the audit log of the machine"
    ReapOutcomes Counter "reap_outcomes" "" ["outcome"]
        "Outcomes in the audit log, one for each targeted process"
    ReapTimestamp Gauge "reap_timestamp" "seconds" ["outcome"]
        "Time of the last such outcome in the audit log"
    Resets Counter "resets" "" ["outcome"]
        "Resets of GPUs in the audit log"

    // Users.
    UserMemory Gauge "user_memory" "bytes" ["user"]
        "GPU memory of the listed processes of the user"
    UserGpus Gauge "user_gpus" "" ["user"]
        "GPUs with listed processes of the user"
    UserProcesses Gauge "user_processes" "" ["user"]
        "Listed processes of the user"

    // The ordinary figures.
    GpuMemoryUsed Gauge "gpu_memory_used" "bytes" ["gpu" "uuid"]
        "Memory in use"
    GpuMemoryTotal Gauge "gpu_memory_total" "bytes" ["gpu" "uuid"]
        "Memory of the GPU"
    GpuMemoryReserved Gauge "gpu_memory_reserved" "bytes" ["gpu" "uuid"]
        "Memory that driver and firmware reserve, where it is reported separately"
    GpuUtilization Gauge "gpu_utilization" "ratio" ["gpu" "uuid"]
        "Share of the sample period of the driver in which a kernel ran, from 0 to 1"
    GpuTemperature Gauge "gpu_temperature" "celsius" ["gpu" "uuid"]
        "Temperature of the GPU"
    GpuPower Gauge "gpu_power" "watts" ["gpu" "uuid"]
        "Power draw"
    GpuPowerLimit Gauge "gpu_power_limit" "watts" ["gpu" "uuid"]
        "Enforced power limit"
    GpuEnergy Counter "gpu_energy" "joules" ["gpu" "uuid"]
        "Energy since the driver was loaded"

    // Each process, on request.
    ProcessMemory Gauge "process_memory" "bytes" ["gpu" "uuid" "pid" "user" "hpc_job"]
        "Memory of a listed process on the GPU"
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_follow_the_rules() {
        let names: BTreeSet<String> = Metric::ALL.iter().map(|m| m.family().name()).collect();
        assert_eq!(names.len(), Metric::ALL.len());
        for metric in Metric::ALL {
            let Family { kind, stem, unit, labels, help } = metric.family();
            let is_plain = |text: &str| text.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
            assert!(
                is_plain(stem) && is_plain(unit) && labels.iter().all(|l| is_plain(l)),
                "{stem}"
            );
            let is_counter = metric.family().name().ends_with("_total");
            assert_eq!(is_counter, *kind == Kind::Counter, "{stem}");
            assert!(
                !help.ends_with('.') && help.starts_with(|c: char| !c.is_lowercase()),
                "{stem}"
            );
            assert!(stem.ends_with("timestamp") <= (*unit == "seconds"), "{stem}");
            // Prometheus would rename a label of this name.
            assert!(!labels.contains(&"job") && !labels.contains(&"instance"), "{stem}");
        }
    }
}
