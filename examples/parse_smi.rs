//! Reads nvidia-smi output in any of its forms from standard input, or from a recording if the
//! argument names a simulated machine. Prints the devices and processes.
//!
//!     nvidia-smi | cargo run -p gpuws-examples --bin parse_smi
//!     cargo run -p gpuws-examples --bin parse_smi -- k80-single

use gpu_core::{Bytes, Reading, Timestamp};
use gpu_sim::Simulation;
use std::io::{Read, stdin};

/// The maximum number of bytes to read.
const LIMIT: u64 = 16 << 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut text = Vec::new();
    match std::env::args().nth(1) {
        None => drop(stdin().take(LIMIT).read_to_end(&mut text)?),
        Some(machine) => {
            let recording = Simulation::embedded(&machine)?.recording("nvidia-smi.txt");
            text = recording.ok_or("the machine has no nvidia-smi.txt")?;
        }
    }

    // The input may contain several outputs; each unreadable line is listed.
    let documents = gpu_text::sections(&text);
    if documents.is_empty() {
        return Err("the text holds no output of nvidia-smi".into());
    }
    for unread in documents.iter().flat_map(|document| &document.unread) {
        println!("line {} not read ({}): {:?}", unread.line, unread.why, unread.text);
    }
    let snapshot = gpu_text::snapshot(&documents, Timestamp(0));
    for device in &snapshot.devices {
        let (used, total) = (mib(device.memory_used()), mib(device.memory_total()));
        println!("{} {}: {used} of {total}", device.id(), name(&device.info.name));
        for process in device.processes.iter().flatten() {
            println!("  {} {}: {}", process.pid, name(&process.name), mib(process.memory));
        }
    }
    Ok(())
}

/// Returns an amount as text, or why it is absent.
fn mib(memory: Reading<Bytes>) -> String {
    memory.map_or_else(|absent| absent.to_string(), |memory| format!("{} MiB", memory.mib()))
}

/// Returns a name in quotes, without its control characters, or why it is absent.
fn name(name: &Reading<String>) -> String {
    name.as_ref().map_or_else(|absent| absent.to_string(), |name| format!("{name:?}"))
}
