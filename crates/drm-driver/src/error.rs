//! The meaning of the errors.
//!
//! The drivers number none of them, and their makers publish no catalog. What happened is what the
//! driver does where it prints the message: `amdgpu_job.c`, `amdgpu_device.c`, `gmc_v*.c`,
//! `amdgpu_ras.c`, `smu_cmn.c`, `i915_gpu_error.c`, `intel_reset.c`, `xe_guc_submit.c`,
//! `xe_device.c`, `drm_drv.c` and "Device Wedging" of the kernel's `drm-uapi.rst`. The remedies are a
//! rule of this project: a driver that has recovered needs none, one that has given up needs a reset.

use gpu_core::{DriverError, DriverErrorCode, FaultClass, Relation, Remedy, Severity};

/// An error: its code, name, what happened, part, severity, remedy and relation.
type Known = (&'static str, &'static str, &'static str, FaultClass, Severity, Remedy, Relation);

use FaultClass::{Hardware, Link, Lost, Memory, Notice, Program, Unresponsive};
use Relation::{Alone, Cause, Cleanup, Detail};
use Remedy::{None as Nothing, Reboot, Reset, RestartProgram as Restart, Support};
use Severity::{Contained, Fatal, NotFatal, Unstated};

const ERRORS: &[Known] = &[
    ("ring-timeout", "ring timeout", "a queue stopped", Program, Unstated, Restart, Cause),
    ("page-fault", "page fault", "invalid memory access", Program, Unstated, Restart, Cause),
    ("gpu-hang", "GPU hang", "an engine stopped", Program, Unstated, Restart, Cause),
    ("job-timeout", "job timeout", "a job did not end in time", Program, Unstated, Restart, Cause),
    ("engine-fault", "memory fault", "invalid memory access", Program, Unstated, Restart, Cause),
    ("process", "process", "the program of an error", Program, Unstated, Nothing, Detail),
    (
        "context-reset",
        "context reset",
        "a program lost its work",
        Program,
        Unstated,
        Nothing,
        Cleanup,
    ),
    (
        "engine-reset",
        "engine reset",
        "the driver reset an engine",
        Notice,
        NotFatal,
        Nothing,
        Cleanup,
    ),
    ("gpu-reset", "GPU reset", "the driver resets the GPU", Notice, Unstated, Nothing, Cleanup),
    ("gpu-reset-done", "GPU reset done", "the GPU works again", Notice, NotFatal, Nothing, Cleanup),
    (
        "memory-lost",
        "memory lost",
        "the reset cleared its memory",
        Notice,
        Unstated,
        Nothing,
        Cleanup,
    ),
    ("core-dump", "core dump", "the driver saved the state", Notice, Unstated, Nothing, Cleanup),
    ("recovered", "device wedged", "recovered by a reset", Notice, NotFatal, Nothing, Cleanup),
    (
        "reset-failed",
        "reset failed",
        "the GPU could not be reset",
        Unresponsive,
        Fatal,
        Reboot,
        Cause,
    ),
    ("reset-off", "recovery disabled", "the GPU stays stopped", Unresponsive, Fatal, Reset, Cause),
    ("wedged", "device wedged", "the driver gave up", Unresponsive, Fatal, Reset, Cause),
    (
        "firmware-timeout",
        "SMU timeout",
        "the firmware did not answer",
        Unresponsive,
        Fatal,
        Reset,
        Cause,
    ),
    ("device-lost", "device lost", "the GPU has left the bus", Lost, Fatal, Reboot, Cause),
    (
        "start-failed",
        "start failed",
        "the GPU failed to initialise",
        Unresponsive,
        Fatal,
        Reboot,
        Cause,
    ),
    (
        "firmware-missing",
        "firmware missing",
        "no firmware was loaded",
        Hardware,
        Unstated,
        Support,
        Cause,
    ),
    ("ras-uncorrected", "RAS", "uncorrectable hardware error", Memory, Fatal, Reset, Cause),
    ("ras-corrected", "RAS", "corrected hardware error", Notice, NotFatal, Nothing, Alone),
    ("ras-poison", "RAS poison", "a program used bad data", Memory, Contained, Restart, Cause),
    ("ras-link", "RAS", "error of the bus interface", Link, Fatal, Reset, Cause),
    ("bad-pages", "RAS bad pages", "bad memory is out of use", Memory, NotFatal, Nothing, Alone),
    ("worn-out", "RAS threshold", "too many bad pages", Memory, Fatal, Support, Cause),
];

/// Returns the error with a code; `None` for a code of no list here.
pub fn error(code: &DriverErrorCode) -> Option<DriverError> {
    let known = |(list, ..): &&Known| *list == code.list && code.number.is_none();
    let (list, name, text, class, severity, remedy, relation) = *ERRORS.iter().find(known)?;
    Some(DriverError {
        code: DriverErrorCode { list: list.into(), number: None },
        name: name.into(),
        text: text.into(),
        class,
        severity,
        remedy,
        relation,
        cause: None,
    })
}
