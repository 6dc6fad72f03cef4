//! GPUs that the kernel has suspended: a repeated view does not wake them.

use crate::live::{out, script};

/// Suspends the GPUs of a session. The call counter then shows whether NVML was queried.
const SUSPEND: &str = "for bus in 0000:04:00.0 0000:0a:00.0; do
    power=$GPUWS_SIM_SESSION/sys/bus/pci/drivers/nvidia/$bus/power
    mkdir -p $power; echo suspended > $power/runtime_status; echo auto > $power/control
done
";

#[test]
fn repeated_status_shows_sleeping_gpus_without_a_query() {
    let looks = "\"$0\" status -l 1 | head -c 600\n";
    let shown = out(&script("labbox", &format!("{SUSPEND}{looks}")));
    assert!(shown.contains("asleep"), "{shown}");
    assert!(!shown.contains("80.0 GiB") && !shown.contains("users of"), "{shown}");
}

#[test]
fn single_status_asks_sleeping_gpus_like_other_tools() {
    let shown = out(&script("labbox", &format!("{SUSPEND}\"$0\" status\n")));
    assert!(shown.contains("80.0 GiB") && !shown.contains("asleep"), "{shown}");
}

#[test]
fn watcher_of_sleeping_gpus_is_not_blind() {
    let looks = "\"$0\" watch --every 1s --for 1s\n";
    let shown = out(&script("labbox", &format!("{SUSPEND}{looks}")));
    assert!(shown.contains("watched every 1 s") && !shown.contains("BLIND"), "{shown}");
}
