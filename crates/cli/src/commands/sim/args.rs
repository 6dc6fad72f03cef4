//! Arguments of `gpuws sim`.

use clap::Args;
use gpu_sim::{CallEffect, CallFault};
use std::ffi::OsString;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct SimArgs {
    /// The machine: a name, a directory, or a file written by `record`.
    #[arg(value_name = "MACHINE")]
    pub(crate) machine: PathBuf,
    /// Start a real placeholder process for each simulated one; ending it frees its memory.
    /// Placeholders do not respawn, hang or become zombies.
    #[arg(long)]
    pub(crate) live: bool,
    /// Freeze the machine at this time after its start.
    #[arg(long, value_name = "MILLISECONDS", conflicts_with = "live")]
    pub(crate) at: Option<u64>,
    /// Seed for values that drift over time.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
    /// Latency of each NVML call.
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 0)]
    pub(crate) latency: u64,
    /// Inject a fault into an NVML function; repeatable. EFFECT is a return code (`15`),
    /// `delay:MS`, `hang`, `lose:GPU` or `add:GPU` (adds a process); `*` means every function.
    #[arg(long, value_name = "FUNCTION=EFFECT[,gpu=N][,from=N][,times=N]", value_parser = fault)]
    pub(crate) fault: Vec<CallFault>,
    /// Append NVML call counts per program to this file as JSON Lines.
    #[arg(long, value_name = "FILE")]
    pub(crate) count_calls: Option<PathBuf>,
    /// Path of the simulated NVML; default: next to gpuws.
    #[arg(long, value_name = "libnvml_sim.so")]
    pub(crate) library: Option<PathBuf>,
    /// The command to run, after `--`.
    #[arg(value_name = "COMMAND", trailing_var_arg = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

/// Parses `FUNCTION=EFFECT`, followed by any of `,gpu=N`, `,from=N` and `,times=N`.
fn fault(text: &str) -> Result<CallFault, String> {
    let mut parts = text.split(',');
    let (function, effect) =
        parts.next().and_then(|part| part.split_once('=')).ok_or("expected FUNCTION=EFFECT")?;
    if function != "*" && !function.starts_with("nvml") {
        return Err(format!("'{function}' is not an NVML function"));
    }
    let number = |text: &str| text.parse().map_err(|_| format!("'{text}' is not a number"));
    let gpu = |text: &str| text.parse().map_err(|_| format!("'{text}' is not a GPU index"));
    let effect = match effect.split_once(':') {
        None if effect == "hang" => CallEffect::Hangs,
        None => CallEffect::Returns(gpu(effect).map_err(|_| format!("unknown effect '{effect}'"))?),
        Some(("delay", millis)) => CallEffect::DelayMs(number(millis)?),
        Some(("lose", index)) => CallEffect::LosesGpu(gpu(index)?),
        Some(("add", index)) => CallEffect::AddsProcess(gpu(index)?),
        Some(_) => return Err(format!("unknown effect '{effect}'")),
    };
    let mut fault =
        CallFault { function: function.to_owned(), gpu: None, from: 1, times: None, effect };
    for part in parts {
        match part.split_once('=') {
            Some(("gpu", index)) => fault.gpu = Some(gpu(index)?),
            Some(("from", nth)) => fault.from = number(nth)?,
            Some(("times", count)) => fault.times = Some(number(count)?),
            _ => return Err(format!("unknown option '{part}'; expected gpu=N, from=N or times=N")),
        }
    }
    Ok(fault)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fault_spec_is_parsed() {
        let read = fault("nvmlDeviceGetMemoryInfo_v2=hang,gpu=2,from=3,times=1").unwrap();
        assert_eq!((read.gpu, read.from, read.times), (Some(2), 3, Some(1)));
        assert_eq!(read.effect, CallEffect::Hangs);
        assert_eq!(fault("*=15").unwrap().effect, CallEffect::Returns(15));
        assert_eq!(fault("*=delay:200").unwrap().effect, CallEffect::DelayMs(200));
        for wrong in ["", "nvmlInit_v2", "init=hang", "*=hand", "*=delay:x", "*=15,gpus=1"] {
            assert!(fault(wrong).is_err(), "{wrong}");
        }
    }
}
