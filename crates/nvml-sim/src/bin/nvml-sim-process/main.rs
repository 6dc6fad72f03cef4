//! A real process on the devices of a session: one that represents a simulated process, or one that
//! registers itself.
//!
//! ```text
//! nvml-sim-process --use GPU:MIB[,GPU:MIB…] [--load PERCENT] [--name NAME]
//!                  [--seconds N | -- COMMAND…]
//! ```
//!
//! registers on devices by index, or with `visible` in place of an index on the devices that
//! `CUDA_VISIBLE_DEVICES` shows to a CUDA program. It runs until it or the session ends, for some
//! seconds, or as long as a command. Inside `gpuws sim MACHINE --live`, run it from the session's
//! directory: `"$GPUWS_SIM_SESSION/nvml-sim-process" --use 0:1000`.

mod arguments;
mod device_file;
mod external_process;
mod placeholder;
mod starter;

use arguments::Config;
use gpu_sim::Placeholder;
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    let played = match std::env::var_os(Placeholder::VARIABLE) {
        Some(_) => placeholder::run().map_err(|error| format!("start: {error}")),
        None => Config::read(std::env::args_os().skip(1)).and_then(external_process::run),
    };
    played.unwrap_or_else(|why| {
        // The starter of a placeholder waits for a line; the end of the output shows the failure.
        let _ = writeln!(std::io::stderr(), "nvml-sim-process: failed to {why}");
        ExitCode::FAILURE
    })
}
